/* Points as features: knobs.py. */
#include <math.h>

#include "gp.h"

void gp_features(const GpKnobs *k, int64_t m, const double *points, double *effects, double *curved, double *mean,
                 double *embedding) {
    const double unit = 1.0 / sqrt((double)k->d);
    for (int64_t r = 0; r < m; r++) {
        const double *x = points + r * k->d;
        double *effect = effects + r * k->p, *bent = curved + r * k->q, *at = embedding + r * k->e, sum = 0.0;
        for (int64_t j = 0; j < k->d; j++) {
            const double u = (x[j] - k->default_[j]) / k->reach[j], size = fabs(u);
            sum += u * u * k->bowl[j] + (k->few[j] > 0.0 ? size : (double)(size > SAME_LEVEL)) * k->harm[j];
        }
        for (int64_t i = 0; i < k->ordered; i++) {
            const int64_t j = k->ordered_at[i];
            const double u = (x[j] - k->default_[j]) / k->reach[j];
            *effect++ = *at++ = u;
            *bent++ = u * u;
        }
        *bent = sum * unit;
        mean[r] = sum;
        for (int64_t i = 0; i < k->switches; i++) {
            const int64_t j = k->switch_at[i];
            *effect++ = *at++ = fabs(x[j] - k->default_[j]) / k->reach[j] > SAME_LEVEL;
        }
        for (int64_t i = 0; i < k->hot; i++) effect[i] = fabs(x[k->hot_knob[i]] - k->hot_at[i]) < SAME_LEVEL;
        for (int64_t i = 0; i < k->hot_choices; i++) at[i] = CHOICE_APART * effect[k->hot_choice[i]];
    }
}

GP_API void rasp_gp_features(const GpKnobs *k, int64_t m, const double *points, double *effects, double *curved,
                             double *mean, double *embedding) {
    gp_features(k, m, points, effects, curved, mean, embedding);
}
