/* Learning from one sample: score the experts, then take the sample in. */
#include "learn.h"

#include <string.h>

#define LARGEST 1e100 /* deviations saturate here, so that squares and sums of squares stay finite */

/* What one call works with; the memory of all of it is one block. */
typedef struct {
    double *u, *v, *psi; /* [d], [k], [q] */
    Prior prior;
    double *scratch; /* as much as the greediest step needs */
    double *block;
} Work;

static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

static int64_t learn_scratch(const Dims *dims) {
    return larger(larger(larger(track_scratch(dims), trust_scratch(dims)), larger(fit_scratch(dims), merge_scratch(dims))),
                  early_scratch(dims));
}

static Work make_work(const Dims *dims) {
    const int64_t p = dims->p, scratch = learn_scratch(dims);
    Work work;
    work.u = work.block = borrow(dims, dims->d + dims->k + dims->q + 2 * p + p * p + scratch);
    work.v = work.u + dims->d;
    work.psi = work.v + dims->k;
    work.prior.mean = work.psi + dims->q;
    work.prior.pull = work.prior.mean + p;
    work.prior.precision = work.prior.pull + p;
    work.scratch = work.prior.precision + p * p;
    return work;
}

/* Score the experts by a sample that came to `point`, and move what all situations share; returns trust in it. */
static double judge_scored(const Dims *dims, const State *one, const Belief *belief, const double *point, double y,
                    const double *logs, Work *work) {
    const double trust = trust_in_sample(dims, one, belief, logs);
    if (trust >= 0.5) {
        const double a = *belief->a;
        double means[E], variances[E];
        observe_scores(one, logs);
        each_expert(dims, belief, point, means, variances);
        for (int i = 0; i < E; i++) {
            means[i] = y / a - (means[i] + (*belief->offset + *belief->origin)) / a;
            variances[i] = variances[i] / a / a;
        }
        observe_noise(one, means, variances);
        make_prior(dims, one, &work->prior);
        track(dims, one, belief, &work->prior, work->scratch);
    }
    return trust;
}

/* How far a sample is trusted, before it is taken in. `belief` is null for the first sample. */
static double judge(const Dims *dims, const State *one, const Belief *belief, const double *point,
                    const double *losses, const double *logs, Work *work) {
    double trust = 1.0;
    if (*one->steps >= 2.0)
        trust = judge_scored(dims, one, belief, point, dot(dims->k, losses, one->weights), logs, work);
    return *one->steps < EARLY ? 1.0 : trust; /* the first are judged together, and again with every one that comes */
}

/* Now and then, look again at how far slots are trusted. */
static void renew_trust(const Dims *dims, const State *one, const Belief *belief, double *scratch) {
    if (*one->steps >= 2.0 && refresh_now(one)) update_trust(dims, one, belief, scratch);
}

/* A failed sample counts like any other, but is never an outlier. */
static void take_in(const Dims *dims, const State *one, const Belief *belief, const double *point,
                    const double *context, const double *losses, bool failed, double trust, Work *work) {
    const int64_t d = dims->d, k = dims->k;
    if (*one->steps == 0.0) memcpy(one->first, losses, sizeof(double) * (size_t)k);
    for (int64_t i = 0; i < k; i++) work->v[i] = clip(losses[i] - one->first[i], -LARGEST, LARGEST);
    for (int64_t i = 0; i < d; i++) work->u[i] = 2.0 * (point[i] - dims->default_[i]);
    features(dims, work->u, work->psi);
    memcpy(work->psi + dims->p, work->v, sizeof(double) * (size_t)k);
    observe_window(dims, one, work->u, context, work->v, trust);
    write_sample(dims, one, context, work->psi, trust, work->scratch);
    if (*one->steps <= EARLY) {
        one->early[place_up_to(EARLY - 1, *one->steps - 1.0)] = failed ? FAILED : 0.0;
        recheck_early_samples(dims, one, work->scratch);
    }
    if (*one->steps >= 3.0 && refresh_now(one)) {
        make_prior(dims, one, &work->prior);
        fit_moving(dims, one, belief, &work->prior, work->scratch);
    }
}

void rasp_learn(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                const double *points, const double *contexts, const double *losses, const double *failed,
                const double *logs) {
    Work work = make_work(dims);
    for (int64_t i = 0; i < n; i++) {
        const State one = tuner(dims, all, rows[i]);
        Belief belief = {0};
        if (*one.steps > 0.0) belief = belief_at(dims, beliefs + i * belief_length(dims));
        const double *point = points + i * dims->d, *own = losses + i * dims->k;
        const double trust = judge(dims, &one, &belief, point, own, logs + i * E, &work);
        renew_trust(dims, &one, &belief, work.scratch);
        take_in(dims, &one, &belief, point, contexts + i * dims->c, own, failed[i] > 0.0, trust, &work);
    }
    release(work.block);
}
