/* What the files of the learning side share. Symbols as in ../state.py. */
#ifndef RASP_LEARN_H
#define RASP_LEARN_H

#include "kernel.h"
#include "linear.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

static inline double least(double x, double y) { return x < y ? x : y; }
static inline double most(double x, double y) { return x > y ? x : y; }

/* One where a squared residual is about `scale`, near zero where it is far beyond. */
static inline double residual_trust(double square, double scale) {
    const double far = least(square, LARGEST_RESIDUAL * scale) / (ABSURD_DEVIATIONS * ABSURD_DEVIATIONS * scale);
    return 1.0 / ((1.0 + far) * (1.0 + far));
}

/* Whether to spend time on what changes little: always while young, then now and then. */
static inline bool refresh_now(const State *one) {
    return *one->steps < MOVING_SETTLED_SAMPLES || samples_seen(one) % MOVING_LOOK_EVERY_STEPS == 0;
}

/* memory.c */
void write_sample(const Dims *dims, const State *one, const double *context, const double *psi, double trust,
                  double *scratch);
int64_t merge_scratch(const Dims *dims);
void slot_targets(const Dims *dims, const State *one, int64_t n, double *y); /* [n] mean y of the first slots */
/* whether a slot of the first n is in a situation that came before, and one of the others in its; scratch [c + 2 EARLY] */
APART bool seen_before(const Dims *dims, const State *one, int64_t slot, int64_t n, const bool *others, double *scratch);

/* pooled_prior.c */
int64_t estimate_scratch(const Dims *dims); /* numbers that estimate_curvature needs */
void observe_scores(const State *one, const double *logs);
void observe_noise(const State *one, const double *errors, const double *unsure); /* [E], in units of a */
void reset_noise(const State *one);
double noise_variance(const State *one, int expert);
APART void track(const Dims *dims, const State *one, const Belief *belief, const Prior *prior, double *scratch);
int64_t track_scratch(const Dims *dims);

/* moving.c */
void observe_window(const Dims *dims, const State *one, const double *u, const double *context, const double *v,
                    double weight);
void encode_reduced(const Dims *dims, const State *one, const double *reduced, double *x); /* [1 + r] from [w] */
void refresh_components(const Dims *dims, const State *one);

/* moving_fit.c */
APART void fit_moving(const Dims *dims, const State *one, const Belief *belief, const Prior *prior, double *scratch);
int64_t fit_scratch(const Dims *dims);

/* outliers.c */
APART double value_reaching(int64_t n, const double *values, const double *weights, double mass);
APART void sort_indices(int64_t n, const double *keys, int64_t *order, int64_t *spare); /* stable, ascending */
double trust_in_sample(const Dims *dims, const State *one, const Belief *belief, const double *logs);
APART void update_trust(const Dims *dims, const State *one, const Belief *belief, double *scratch);
int64_t trust_scratch(const Dims *dims);
APART void recheck_early_samples(const Dims *dims, const State *one, double *scratch);
int64_t early_scratch(const Dims *dims);

#endif
