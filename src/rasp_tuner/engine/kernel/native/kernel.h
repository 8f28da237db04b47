/* The kernel of the quadratic family in C: the same functions as in Python, tuner by tuner. Symbols as in state.py. */
#ifndef RASP_KERNEL_H
#define RASP_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "constants.h"
#include "linear.h"

enum { L = 4, E = 5, WINDOW = WINDOW_SAMPLES, EARLY = EARLY_SAMPLES };

typedef struct Dims {
#ifdef RASP_KNOBS /* compiled for a GPU, as C++, for one size: loops are unrolled, and small arrays are registers */
    static constexpr int64_t d = RASP_KNOBS, c = RASP_CONTEXT, k = RASP_COLUMNS;
    static constexpr int64_t p = 1 + 2 * d, q = p + k, P = q * (q + 1) / 2, R = SLOTS + SPARE_SLOTS;
    static constexpr int64_t w = c < SKETCH_DIMENSIONS ? c : SKETCH_DIMENSIONS, r = c < RANK ? c : RANK;
    static constexpr int64_t m = 1 + d + d * (1 + r);
#else
    int64_t d, c, k;           /* knobs, context dimensions, columns of losses */
    int64_t p, q, P, R;        /* features, sample, packed prompt, rows */
    int64_t w, r, m;           /* reduced context, its components, coefficients of the moving optimum */
#endif
    const double *default_;    /* [d] */
    const double *sketch;      /* [c, w] where c > w; else null */
#ifdef RASP_KNOBS
    double *memory;            /* of this thread, for scratch */
#endif
} Dims;

/* For arrays of one function: as long as any size asks for. */
#ifdef RASP_KNOBS
enum { MOST_KNOBS = Dims::d, MOST_ROOTS = Dims::d > Dims::w ? Dims::d : Dims::w, MOST_ROWS = Dims::m };
#else
enum { MOST_KNOBS = MOST_COMPILED_KNOBS, MOST_ROOTS = MOST_KNOBS, MOST_ROWS = 1 + MOST_KNOBS + MOST_KNOBS * (1 + RANK) };
#endif
enum { MOST_FEATURES = 1 + 2 * MOST_KNOBS };

/* The arrays of state.State, in its order; each begins with the axis of tuners. */
#define POINTER(name, numbers) double *name;
typedef struct {
    STATE_ARRAYS(POINTER)
} State;

/* A number as a place from 0 to `last`; a NaN is 0. What files say is checked when they are read: this holds anyway. */
static inline int64_t place_up_to(int64_t last, double x) {
    return x >= (double)last ? last : x >= 0.0 ? (int64_t)x : 0;
}
static inline int64_t slots_used(const Dims *dims, const State *one) { return place_up_to(dims->R, *one->count); }
static inline int64_t samples_seen(const State *one) { return place_up_to((int64_t)1 << 53, *one->steps); }

/* One tuner's part of these arrays. */
State tuner(const Dims *dims, const State *all, int64_t row);

/* What a call for one tuner alone is given, and gives: single.c. */
typedef struct {
    const Dims *dims;
    const State *state;
    double *context, *draws, *point, *y, *losses, *failed; /* given */
    double *logs;    /* [E] of a forecast, for `learn` */
    double *chosen;  /* [d] */
    double *noise;   /* [1] variance of an observation, by a belief */
    double *figures; /* [9]: of a choice its source, mean, variance; of a forecast mean, variance; then of `against` */
} One;

/* One tuner's belief, laid out in a buffer as belief.layout says: X(name, numbers). K [p, p] is the covariance of level,
 * curvatures and location of the moving optimum, 0 without a say; hint [d] is u of the slot with the best y in a
 * situation like this, 0 while there is none. */
#define BELIEF_ARRAYS(X) \
    X(weights, E) X(noises, E) X(spread, 1) X(offset, 1) X(origin, 1) X(a, 1) X(moving, 1) X(level, 1) X(ratio, 1) \
    X(x, 1 + r) X(curvatures, d) X(optimum, d) X(mean, L * p) X(S, L * p * p) X(G, L * p * p) X(b, L * p) X(rest, L) \
    X(kernels, L * R) X(K, p * p) X(hint, d)
#define ADDED(name, numbers) + (numbers)
typedef struct {
    BELIEF_ARRAYS(POINTER)
} Belief;

Belief belief_at(const Dims *dims, double *buffer);
int64_t belief_length(const Dims *dims);


/* Nats of an expert before any sample. */
static inline double expert_prior(int expert) { return expert > 0 && expert < L ? -LOCAL_ODDS : 0.0; }

/* Scratch memory of so many numbers, taken once a call; on a GPU a thread has its own. */
double *borrow(const Dims *dims, int64_t length); /* layout.c */
void release(double *memory);                     /* layout.c */

/* What both halves use. All matrices are row by row. */
typedef struct {               /* of a bowl not known yet, in units of the curvature, level left out */
    double *mean, *precision, *pull;  /* [p], [p, p], [p] */
    double level_variance;
} Prior;

APART void make_prior(const Dims *dims, const State *one, Prior *prior);                   /* pooled_prior.c */
double centred_level(const State *one, double offset, double a);                     /* pooled_prior.c */
APART double estimate_curvature(const Dims *dims, const Prior *prior, const double *G, const double *b, double rest,
                          double level, double *scratch);                            /* pooled_prior.c */
void noise_variances(const State *one, double *rho);                                 /* pooled_prior.c: [E] */
APART void context_gaps(const Dims *dims, const State *one, const double *context, double *gaps); /* memory.c: [2, R] */
double context_reach(const State *one);                                              /* memory.c */
void encode_context(const Dims *dims, const State *one, const double *context, double *x);  /* moving.c: [1 + r] */
double likeness(const Dims *dims, const State *one, const Belief *belief);           /* believe.c: of the likest slot */
void features(const Dims *dims, const double *u, double *phi);                       /* linear.c: [p] */
APART int factor(int64_t n, int64_t rows, double *A);                                      /* linear.c: 0 if it worked */
void transpose_root(int64_t n, int64_t rows, const double *upper, double *lower);           /* linear.c */
APART void inverse_of_root(int64_t n, double *scratch, double *inverse);                   /* linear.c */
APART int inverse_spd(int64_t n, const double *A, double *inverse, double *scratch);       /* linear.c: 0 if it worked */
APART void inverse_four(int64_t n, double *A, double *inverse, double *scratch, int *wrong);    /* linear.c: side by side */
APART void eigen_symmetric(int64_t n, double *A, double *values, double *vectors);         /* linear.c: ascending; columns */
APART void each_expert(const Dims *dims, const Belief *belief, const double *point, double *means,
                 double *variances);                                                 /* predict.c: [E], [E], without origin and offset */

#pragma GCC visibility push(default) /* all else is compiled as hidden */
const char *rasp_sources(void); /* digest of the files that the library was made of */

/* What Python calls: n tuners, rows[i] of the state each; inputs and outputs are [n, .]. */
void rasp_believe(const Dims *, const State *, const int64_t *rows, int64_t n, const double *contexts, double *beliefs);
void rasp_predict(const Dims *, const State *, const int64_t *rows, int64_t n, double *beliefs, const double *points,
                  int64_t count, double *means, double *variances);
void rasp_against(const Dims *, const State *, const int64_t *rows, int64_t n, double *beliefs, const double *points,
                  double *out); /* [n, 6]: y of the default; mean and variance of the difference; y; both variances */
void rasp_forecast(const Dims *, const State *, const int64_t *rows, int64_t n, double *beliefs, const double *points,
                   const double *y, double *means, double *variances, double *logs);
void rasp_choose(const Dims *, const State *, const int64_t *rows, int64_t n, double *beliefs, const double *draws,
                 double *points, double *sources, double *means, double *variances);
void rasp_best(const Dims *, const State *, const int64_t *rows, int64_t n, double *beliefs, double *points);
void rasp_learn(const Dims *, const State *, const int64_t *rows, int64_t n, double *beliefs, const double *points,
                const double *contexts, const double *losses, const double *failed, const double *logs);
void rasp_draws(uint64_t seed, int64_t n, const double *numbers, const double *asks, int64_t count,
                double *draws); /* draws.c: [n, count], uniform in [0, 1) */
#pragma GCC visibility pop

#endif
