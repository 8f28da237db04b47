/* The Gaussian-process family, compiled: the Python files in engine/gp say what each function means.
 * No index comes from a file: counts are set by native_gp.py from the shapes of arrays. */
#ifndef RASP_GP_H
#define RASP_GP_H

#include "gp_constants.h"

#include <stdint.h>

enum { LONG = 16 };                /* numbers in a context from which on pairs are gone through along them */
enum { GS, GC, GQ, GT, VC, VT, VR, S2, ELL, HOT, HYPERS, TURNING = HYPERS }; /* places in theta, as in model.py */

typedef struct {                   /* as in gp/native_gp.py: the knobs of one space, see knobs.py */
    int64_t d, p, q, e, ordered, switches, hot, hot_choices; /* knobs; columns of each kind; the parts of p */
    const int64_t *ordered_at, *switch_at, *hot_knob, *hot_choice, *effect_knob, *embedding_knob;
    const int64_t *first_level, *unordered; /* [d + 1] where the levels of each knob begin; [d] */
    const double *default_, *reach, *bowl, *harm, *few, *hot_at, *of_few, *of_choice, *effect_variance;
    const double *curved_variance, *levels;
    void (*lawful)(int64_t count, double *points); /* makes points [count, d] keep the rules of the space; or NULL */
} GpKnobs;

typedef struct {                   /* as in gp/native_gp.py: rows with their weights, see model.py */
    int64_t n, c;
    double level;                  /* v0 */
    double joined, squares;        /* samples that joined a row; squares of their distances from it, summed: in units of y */
    double drifted;                /* variance of what drifted until they came */
    const double *hyper;           /* [HYPERS + 1] the last is not of theta: Weights.turning */
    const double *effect_weight, *choice_weight, *embedding_weight; /* [p], [p], [e] */
    const double *relevance, *median, *deviation; /* [c] of contexts; of the relevance the root that z is times */
    double *points, *effects, *curved, *mean, *embedding, *z; /* features of the rows; contexts [n, c] */
    double *counts, *trust, *times, *y;
    double *embedded;              /* [e, n] embedding times its weight, turned */
    double *turned;                /* [2 p + q, n] effects, those of choices, and curved, times roots of weights */
    double *root;                  /* [n, n] Cholesky factor */
    double *kernel, *alike, *lately; /* [n, n] covariance without level and noise, kc and kt, up to the diagonal */
    double *alpha, *noises;        /* [n]; [n] */
} GpFit;

typedef struct {                   /* as in gp/native_gp.py: stored rows, see rows.py */
    int64_t width, columns;        /* of a row: point, context, losses; counts, times, failed, trust, own */
    const double *rows, *weights;  /* [n, width]; [columns] */
} GpStored;

typedef struct {                   /* as in gp/native_gp.py: a fit in one context, see posterior.py */
    double own_share, own_base, constant;
    double visits, at_default, defaults; /* samples of contexts like this; those of the default, by trust; its rows */
    double *kc, *share, *base, *residual; /* [n] each; residual: coefficients of the residual in the mean */
    double *effects, *curved;      /* [p], [q] coefficients of the mean */
} GpHere;

typedef struct {                   /* as in gp/native_gp.py: see Prices in family.py */
    double is_log, of_level, unit, least_unit, most_log, most;
} GpPrices;

/* What one knob at one value adds, in one context: each value that is met is worked out once. A residual is a product
 * over knobs, all else is a sum over them. */
typedef struct {
    int64_t count, most;           /* values known; that there is room for, and one more */
    int64_t *latest, *before;      /* [d] value of each knob that was met last; [most + 1] the one before it; -1: none */
    double *value, *mean;          /* [most + 1] what it adds to a mean */
    double *near, *cross;          /* [most + 1, n] factors of the residual; what it adds to covariances with the rows */
    double *scratch;
} GpTable;

/* Steps that descents made so far, to be made again by others: where from, where to, and the mean there. */
typedef struct {
    int64_t count;
    double *from, *to, *mean;      /* [count, d], [count, d], [count] */
} GpSteps;

int64_t gp_table_room(const GpKnobs *k, int64_t n, int64_t most); /* gp_table.c: numbers that gp_table needs */
GpTable gp_table(const GpKnobs *k, const GpFit *f, int64_t most, double *memory);
int64_t gp_entry(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t j, double x);
double gp_mean(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, const double *x);

void gp_features(const GpKnobs *k, int64_t m, const double *points, double *effects, double *curved, double *mean,
                 double *embedding); /* gp_features.c */
int64_t gp_moves(const GpKnobs *k, const double *x, double width, double *points, int64_t *knob); /* gp_search.c */
void gp_joint(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t m, const double *points,
              double *mean, double *covariance, double *scratch); /* gp_posterior.c */
void gp_forward(int64_t n, const double *root, int64_t m, double *rows, double *scratch); /* gp_linear.c */
int gp_factor(int64_t n, int64_t from, double *root, double *scratch);
void gp_solve(int64_t n, const double *root, double *x, double *scratch);
void gp_less_products(int64_t m, int64_t n, const double *rows, double *covariance);
void gp_z(const GpFit *f, const double *context, double *z); /* gp_rows.c */
double gp_apart(int64_t c, const double *one, const double *two);
int64_t gp_fit(const GpKnobs *k, const GpFit *f, double squares, int64_t count, const double *factors, const double *priors,
               const GpFit *older, const int64_t *kept, double *slope, double *odd, double *out,
               double *scratch);   /* gp_fit.c */
double gp_descended(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, double *x, int64_t most_steps,
                    int64_t most, GpSteps *steps, double *scratch); /* gp_search.c */
double gp_snapped(const GpKnobs *k, int64_t j, double x); /* the nearest level of knob j */
void gp_value(const GpKnobs *k, int64_t m, const double *points, int64_t count, const int64_t *lines,
              const int64_t *line_knob, const double *mean, const double *covariance, double noise,
              const double *nodes, double *value, double *scratch);

#ifdef _WIN32
#define GP_API __declspec(dllexport)
#else
#define GP_API __attribute__((visibility("default")))
#endif

#endif
