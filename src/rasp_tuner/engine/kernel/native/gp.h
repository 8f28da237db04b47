/* The Gaussian-process family, compiled: the Python files in engine/gp say what each function means.
 * No index comes from a file: counts are set by native_gp.py from the shapes of arrays. */
#ifndef RASP_GP_H
#define RASP_GP_H

#include "gp_constants.h"

#include <stdint.h>

enum { GS, GC, GQ, GT, VC, VT, VR, S2, ELL, HOT, HYPERS }; /* places in theta, as in model.py */

typedef struct {                   /* as in gp/native_gp.py: the knobs of one space, see knobs.py */
    int64_t d, p, q, e, ordered, switches, hot, hot_choices; /* knobs; columns of each kind; the parts of p */
    const int64_t *ordered_at, *switch_at, *hot_knob, *hot_choice, *effect_knob, *embedding_knob;
    const int64_t *first_level, *unordered; /* [d + 1] where the levels of each knob begin; [d] */
    const double *default_, *reach, *bowl, *harm, *few, *hot_at, *of_few, *of_choice, *effect_variance;
    const double *curved_variance, *levels;
} GpKnobs;

typedef struct {                   /* as in gp/native_gp.py: rows with their weights, see model.py */
    int64_t n, c;
    double level;                  /* v0 */
    const double *hyper;           /* [HYPERS] */
    const double *effect_weight, *choice_weight, *embedding_weight; /* [p], [p], [e] */
    const double *points, *effects, *curved, *mean, *embedding, *z; /* features of the rows; contexts [n, c] */
    const double *counts, *trust, *times, *y;
    double *embedded;              /* [e, n] embedding times its weight, turned */
    double *turned;                /* [2 p + q, n] effects, those of choices, and curved, times roots of weights */
    double *root;                  /* [n, n] Cholesky factor */
    double *kernel, *alike;        /* [n, n] covariance without level and noise, and kc, up to the diagonal */
    double *alpha, *noises;        /* [n]; [n] */
} GpFit;

typedef struct {                   /* as in gp/native_gp.py: a fit in one context, see posterior.py */
    double own_share, own_base, constant;
    double *kc, *share, *base, *residual; /* [n] each; residual: coefficients of the residual in the mean */
    double *effects, *curved;      /* [p], [q] coefficients of the mean */
} GpHere;

void gp_features(const GpKnobs *k, int64_t m, const double *points, double *effects, double *curved, double *mean,
                 double *embedding); /* gp_features.c */
int64_t gp_moves(const GpKnobs *k, const double *x, double width, double *points, int64_t *knob); /* gp_search.c */
void gp_means(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points, double *out,
              double *scratch);    /* gp_posterior.c */

#ifdef _WIN32
#define GP_API __declspec(dllexport)
#else
#define GP_API __attribute__((visibility("default")))
#endif

#endif
