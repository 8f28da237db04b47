/* The discrete family, compiled: the Python files in engine/discrete say what each function means.
 * Products of candidates with rows stay with NumPy, whose linear algebra is tuned to the processor. */
#ifndef RASP_DISCRETE_H
#define RASP_DISCRETE_H

#include <stdint.h>
#include <string.h>

typedef struct {                   /* as in discrete/compiled.py: Knobs of one space, see knobs.py */
    int64_t d, p, q, ramps, turns, values; /* knobs, main effects, steps, those of ordered knobs; columns of two tables */
    double near_chance, swap_chance, focused;
    const double *default_, *low, *high, *turning, *neighbour, *cuts, *grid, *single;
    const double *ramp_low, *ramp_slope, *choice_at, *choice_width, *term_scale, *origin, *prior;
    const int64_t *step_knob, *term, *last, *first_cut, *discrete, *binary, *unordered;
} Knobs;

typedef struct {                   /* as in discrete/compiled.py: a fit in one context, see belief.py */
    int64_t n, c;
    double va, vp, width, noise, vc, rho, level;
    const double *weights, *points, *phi, *weighted, *sizes, *contexts, *failed, *counts, *gram, *inverse, *alpha;
    const double *values, *middle, *scale;
    double *kc, *share, *base;     /* [n] each */
} Here;

typedef struct {                   /* as in discrete/search.py: one choice, and the memory that it is made in */
    int64_t elites, mutants, crossovers, drawn, sparse, looks; /* how many of each are wanted; the last drawn are sparse */
    int64_t found, moves, swaps, bars, kept; /* elites; changes and swaps of mutants; barred points; candidates */
    double alike, home, horizon, spread, reached, jitter;
    int64_t *rows, *changes, *changed, *swapped, *pairs, *places, *order;
    const double *look, *barred;   /* counts of looks; [bars, d] */
    double *means, *shared, *effects, *rates;             /* [2, n], [n, p], [p], [d] */
    double *lots, *arrivals, *uniform, *steps, *draws, *taken; /* what was drawn */
    double *explained, *diagonal, *values, *points, *candidates; /* [p, p], [p], [drawn, d, grid], [all, d], [kept, d] */
    double *phi, *passed, *weighted, *sizes;              /* features of the candidates */
    double *near, *cross, *own_near, *own, *covariance, *mean, *value; /* [kept, n] twice, [kept, kept] thrice, [kept] */
} Search;

typedef struct {                   /* as in discrete/compiled.py: all rows at a refit, see kernel.py */
    int64_t n;
    double va, vp, width, noise, vc, rho, level, freedom, jitter;
    const double *weights, *phi, *steps, *weighted, *sizes, *gaps, *kc, *target, *doubt, *counts;
    double *gram, *inverse, *noises, *factor, *rivals, *gradient, *sums, *scratch; /* sums: slope, information */
} Evidence;

/* e^x to a rounding or two for x <= 700, without a branch: loops over it become vectors. */
static inline double exponential(double x) {
    static const double SHIFT = 0x1.8p52, HIGH = 0x1.62e42fefa0000p-1, LOW = 0x1.cf79abc9e3b3ap-40;
    double shifted = x * 0x1.71547652b82fep0 + SHIFT, k = shifted - SHIFT, r = (x - k * HIGH) - k * LOW;
    double square = r * r, fourth = square * square; /* sums of few terms each, which need not wait for one another */
    double low = (1.0 / 6.0 + r * (1.0 / 24.0)) + square * (1.0 / 120.0 + r * (1.0 / 720.0));
    double high = (1.0 / 5040.0 + r * (1.0 / 40320.0)) + square * (1.0 / 362880.0 + r * (1.0 / 3628800.0));
    double last = (1.0 / 39916800.0 + r * (1.0 / 479001600.0)) + square * (1.0 / 6227020800.0);
    double sum = 1.0 + (r + square * (0.5 + r * (low + fourth * (high + fourth * last))));
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + 0x3ff0000000000000u; /* 2^k: k is in the lowest bits */
    double power;
    memcpy(&power, &bits, sizeof power);
    double result = sum * power;
    memcpy(&bits, &result, sizeof bits);
    bits &= (uint64_t)(x < -700.0) - 1; /* what is too small is zero */
    memcpy(&result, &bits, sizeof result);
    return result;
}

void exponentials(int64_t n, double *x); /* discrete_fit.c: x becomes e^x */

#pragma GCC visibility push(default)
/* discrete_moves.c */
void rasp_discrete_features(const Knobs *, int64_t count, const double *points, const double *weights, double *phi,
                            double *steps, double *weighted, double *sizes);
void rasp_discrete_begin(const Knobs *, const Here *, Search *);
void rasp_discrete_race(const Knobs *, Search *);
void rasp_discrete_candidates(const Knobs *, const Here *, Search *);
/* discrete_belief.c */
void rasp_discrete_believe(const Knobs *, const Here *, double alike, const double *context, double *sums);
int64_t rasp_discrete_elites(const Knobs *, const Here *, int64_t count, double alike, double *means, int64_t *rows);
int64_t rasp_discrete_nearest(const Knobs *, const Here *, const double *point);
void rasp_discrete_cross(const Knobs *, const Here *, Search *);
int64_t rasp_discrete_rank(const Knobs *, const Here *, Search *);
void rasp_discrete_look(const Knobs *, const Here *, const double *point, const double *other, double *memory);
void rasp_discrete_gradient(int64_t count, const double *mean, const double *covariance, double noise, double jitter,
                            int64_t looks, const double *look, int64_t *order, double *value);
/* discrete_fit.c, discrete_evidence.c */
void rasp_discrete_likeness(int64_t n, int64_t c, const double *contexts, double width, double *gaps, double *kc);
void rasp_discrete_target(int64_t n, const double *y, const double *likeness, double warp, const double *priors,
                          double *scratch, double *target, double *numbers);
void rasp_discrete_updated(int64_t n, int64_t ranks, const double *matrix, const double *left, const double *right,
                           int64_t stride, double *changed);
void rasp_discrete_with_noise(int64_t n, const double *inverse, int64_t row, double change, double *changed);
int64_t rasp_discrete_evidence(const Knobs *, const Evidence *);
#pragma GCC visibility pop

#endif
