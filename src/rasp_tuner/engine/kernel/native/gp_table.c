/* What each knob adds at each value that is met, in one context: see GpTable. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

int64_t gp_table_room(const GpKnobs *k, int64_t n, int64_t most) {
    return (most + 1) * (2 * n + 3) + 3 * n + 2 * k->d + k->p + k->q + k->e;
}

GpTable gp_table(const GpKnobs *k, const GpFit *f, int64_t most, double *memory) {
    const int64_t n = f->n, room = most + 1;
    GpTable t = {.count = 0, .most = most};
    t.near = memory, t.cross = t.near + room * n, t.value = t.cross + room * n, t.mean = t.value + room;
    t.latest = (int64_t *)(t.mean + room), t.before = t.latest + k->d, t.scratch = (double *)(t.before + room);
    for (int64_t j = 0; j < k->d; j++) t.latest[j] = -1;
    return t;
}

/* Where knob j at x is in the table. If that is full, in a place that is good until the next call. */
WIDER int64_t gp_entry(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t j, double x) {
    const int64_t n = f->n, p = k->p, q = k->q, e = k->e;
    for (int64_t at = t->latest[j]; at >= 0; at = t->before[at])
        if (t->value[at] == x) return at;
    const int64_t at = t->count;
    if (at < t->most) {
        t->before[at] = t->latest[j];
        t->latest[j] = at;
        t->count++;
    }
    double *near = t->near + at * n, *cross = t->cross + at * n, *lin = t->scratch, *choice = lin + n;
    double *point = choice + n, *effects = point + k->d, *curved = effects + p, *embedding = curved + q, sum = 0.0;
    t->value[at] = x;
    memcpy(point, k->default_, sizeof(double) * (size_t)k->d); /* where nothing else adds to the prior mean */
    point[j] = x;
    gp_features(k, 1, point, effects, curved, t->mean + at, embedding);
    memset(near, 0, sizeof(double) * (size_t)n);
    memset(cross, 0, sizeof(double) * (size_t)n);
    memset(lin, 0, sizeof(double) * (size_t)(2 * n));
    for (int64_t a = 0; a < e; a++)
        if (k->embedding_knob[a] == j) {
            const double *column = f->embedded + a * n, own = embedding[a] * f->embedding_weight[a];
            for (int64_t i = 0; i < n; i++) near[i] -= 0.5 * (column[i] - own) * (column[i] - own);
        }
    exp_falling(n, near);
    for (int64_t a = 0; a < p; a++)
        if (k->effect_knob[a] == j && effects[a] != 0.0) {
            sum += effects[a] * here->effects[a];
            add_scaled(n, sqrt(f->effect_weight[a]) * effects[a], f->turned + a * n, lin);
            if (f->choice_weight[a] != 0.0)
                add_scaled(n, sqrt(f->choice_weight[a]) * effects[a], f->turned + (p + a) * n, choice);
        }
    for (int64_t a = 0; a < q; a++) /* those of other knobs are 0 at the default; the last is of all */
        if (curved[a] != 0.0) {
            sum += curved[a] * here->curved[a];
            add_scaled(n, sqrt(k->curved_variance[a]) * curved[a], f->turned + (2 * p + a) * n, cross);
        }
    for (int64_t i = 0; i < n; i++) cross[i] += lin[i] * here->share[i] + choice[i] * here->kc[i];
    t->mean[at] += sum;
    return at;
}

/* At a point x [d]. */
WIDER double gp_mean(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, const double *x) {
    const int64_t n = f->n;
    double *restrict near = t->scratch + 2 * n + k->d + k->p + k->q + k->e, sum = here->constant;
    for (int64_t j = 0; j < k->d; j++) {
        const int64_t at = gp_entry(k, f, here, t, j, x[j]);
        const double *restrict own = t->near + at * n;
        if (j == 0) memcpy(near, own, sizeof(double) * (size_t)n);
        else for (int64_t i = 0; i < n; i++) near[i] *= own[i];
        sum += t->mean[at];
    }
    return sum + dot(n, near, here->residual);
}
