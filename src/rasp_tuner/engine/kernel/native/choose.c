/* The next point to run: candidates around the experts' optima and the best tried, and the choice among them.
 *
 * centres  [E + 1, d]   every expert's minimiser, and their mean, in u
 * n        scalar       candidates: the centres, the best tried, and moves from the leader's centre and from the best
 * f, Sf    [p, LANES]   features of some candidates side by side, and their products with S
 */
#include <math.h>
#include <string.h>

#include "quadratic.h"

enum { DIRECTIONS = 3, MOVES = 6, LANES = 8 };
static const double REACH[MOVES] = {0.1, -0.1, 0.2, -0.2, 0.4, -0.4}; /* moves along the least known directions */
static const double HORIZON_STEPS = 12.0;  /* in which one more observation shall pay for itself */
static const double FIRST_PROBE = 0.35;    /* length of the first move, along one knob */
static const double TIE = 1e-6;            /* of the range: a smaller difference is none */
static const double EQUAL_WEIGHTS = 1e-9;  /* of a weight: of experts that differ by less the first leads */
static const double LEAST_WEIGHT = 1e-8;   /* an expert with less is left out of a choice */
enum { PREDICTED_OPTIMUM, BEST_TRIED, PROBE_NEAR_IT, FIRST };

/* What an expert gives some candidates: the mean in units of y, the others in units of a. */
typedef struct {
    double mean[LANES], variance[LANES], gain[LANES];
} Lanes;

typedef struct {
    double weights[E]; /* without experts that have next to none */
    double *K, *centres, *u, *mean, *variance, *gain, *axes, *values, *covariance;
} Comparison;

static int64_t candidates(const Dims *dims) {
    return E + 2 + 2 * MOVES * (dims->d < DIRECTIONS ? dims->d : DIRECTIONS);
}

static double *make_scratch(const Dims *dims, Comparison *s) {
    int64_t d = dims->d, p = dims->p, n = candidates(dims);
    Part parts[] = {{&s->K, p * p}, {&s->centres, (E + 1) * d}, {&s->u, n * d}, {&s->mean, n}, {&s->variance, n},
                    {&s->gain, n}, {&s->axes, d * d}, {&s->values, d}, {&s->covariance, d * d}};
    return ALLOCATE(dims, parts);
}

static int64_t argmin(int64_t n, const double *x) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (x[i] < x[best]) best = i;
    }
    return best;
}

/* Weights of the experts that count in a choice, and what the moving one needs. */
static void prepare(const Dims *dims, const State *one, const Belief *belief, Comparison *s) {
    double total = 0.0;
    for (int i = 0; i < E; i++) {
        s->weights[i] = belief->weights[i] < LEAST_WEIGHT ? 0.0 : belief->weights[i];
        total += s->weights[i];
    }
    for (int i = 0; i < E; i++) s->weights[i] /= total;
    if (s->weights[L] > 0.0) moving_covariance(dims, one, belief, s->K);
}

static void make_centres(const Dims *dims, const Belief *belief, double *centres) {
    int64_t d = dims->d;
    for (int64_t l = 0; l < L; l++) minimiser(dims, belief->mean + l * dims->p, *belief->a, centres + l * d);
    for (int64_t i = 0; i < d; i++) {
        double moved = clip(belief->optimum[i], lowest(dims, i), highest(dims, i)), mean = 0.0;
        centres[L * d + i] = *belief->moving > 0.0 ? moved : centres[i];
        for (int64_t e = 0; e < E; e++) mean += belief->weights[e] * centres[e * d + i];
        centres[E * d + i] = mean;
    }
}

/* u [d] of the slot with the best y in a situation like this; the default while there is none. */
static void make_hint(const Dims *dims, const State *one, const Belief *belief, double *u) {
    int64_t n = (int64_t)one->count[0], best = 0;
    const double *similar = belief->kernels + 2 * dims->R;
    double least = INFINITY, by = 1.0 / *belief->spread;
    memset(u, 0, sizeof(double) * (size_t)dims->d);
    EACH(i, n) {
        double score = slot_target(dims, one, i) * by + 2.0 * (1.0 - similar[i]);
        if (score < least) least = score, best = i;
    }
    best = first_of_least(least, best);
    if (n == 0) return;
    for (int64_t i = 0; i < dims->d; i++) u[i] = one->prompts[best * dims->P + 1 + i] / one->counts[best];
}

#ifdef RASP_KNOBS /* where a thread has one lane */
/* sums [p, LANES] = S f */
static void products(int64_t p, const double *S, const double *f, double *sums) {
    for (int64_t i = 0; i < p; i++) {
        double row[LANES] = {0.0};
        for (int64_t j = 0; j < p; j++)
            for (int c = 0; c < LANES; c++) row[c] += S[i * p + j] * f[j * LANES + c];
        for (int c = 0; c < LANES; c++) sums[i * LANES + c] = row[c];
    }
}
#else
typedef double Half __attribute__((vector_size(32), aligned(8), may_alias)); /* of the lanes */

/* sums [p, LANES] = S f; two rows at a time, so that additions need not wait for one another. */
WIDER static void products(int64_t p, const double *S, const double *f, double *sums) {
    const Half *half = (const Half *)f;
    Half *out = (Half *)sums;
    for (int64_t i = 0; i < p; i += 2) {
        const double *row = S + i * p, *next = i + 1 < p ? row + p : row;
        Half a = {0.0}, b = {0.0}, c = {0.0}, d = {0.0};
        for (int64_t j = 0; j < p; j++) {
            a += row[j] * half[2 * j];
            b += row[j] * half[2 * j + 1];
            c += next[j] * half[2 * j];
            d += next[j] * half[2 * j + 1];
        }
        out[2 * i] = a, out[2 * i + 1] = b;
        if (i + 1 < p) out[2 * i + 2] = c, out[2 * i + 3] = d;
    }
}
#endif

static void variances(int64_t p, const double *f, const double *Sf, double *variance) {
    double sum[LANES] = {0.0};
    for (int64_t i = 0; i < p * LANES; i++) sum[i % LANES] += f[i] * Sf[i];
    for (int c = 0; c < LANES; c++) variance[c] = sum[c] > 0.0 ? sum[c] : 0.0;
}

/* An optimum at the edge stays there: nothing is gained by knowing it better. */
static int inside(const Dims *dims, int64_t knob, double centre) {
    return centre > lowest(dims, knob) && centre < highest(dims, knob);
}

/* An observation that moves an expert's minimiser by m is worth the curvature times m^2. */
static void local_expert(const Dims *dims, const Belief *belief, int64_t l, const double *centre, const double *f,
                         Lanes *out) {
    int64_t d = dims->d, p = dims->p;
    const double *mean = belief->mean + l * p;
    double a = *belief->a, Sf[MOST_FEATURES * LANES];
    products(p, belief->S + l * p * p, f, Sf);
    variances(p, f, Sf, out->variance);
    memset(out->mean, 0, sizeof(out->mean));
    memset(out->gain, 0, sizeof(out->gain));
    for (int64_t i = 0; i < p; i++) {
        for (int c = 0; c < LANES; c++) out->mean[c] += mean[i] * f[i * LANES + c];
    }
    for (int64_t i = 0; i < d; i++) {
        double curvature = mean[1 + d + i] / a, twice = 2.0 * centre[i];
        double worth = 1.0 / (4.0 * (curvature > LEAST_CURVATURE ? curvature : LEAST_CURVATURE));
        const double *slope = Sf + (1 + i) * LANES, *bend = Sf + (1 + d + i) * LANES;
        if (!inside(dims, i, centre[i])) continue;
        for (int c = 0; c < LANES; c++) {
            double move = slope[c] + twice * bend[c];
            out->gain[c] += worth * (move * move);
        }
    }
}

static void moving_expert(const Dims *dims, const Belief *belief, const double *centre, const double *K,
                          const double *u, int64_t count, Lanes *out) {
    int64_t d = dims->d, p = dims->p;
    double slopes[MOST_FEATURES], g[MOST_FEATURES * LANES], Kg[MOST_FEATURES * LANES];
    memset(g, 0, sizeof(double) * (size_t)(p * LANES));
    memset(out, 0, sizeof(*out));
    for (int64_t c = 0; c < count; c++) {
        moving_slopes(dims, belief, u + c * d, slopes, out->mean + c);
        for (int64_t i = 0; i < p; i++) g[i * LANES + c] = slopes[i];
        out->mean[c] *= *belief->a;
    }
    products(p, K, g, Kg);
    variances(p, g, Kg, out->variance);
    for (int64_t i = 0; i < d; i++) {
        double curvature = belief->curvatures[i];
        double worth = curvature > LEAST_CURVATURE ? curvature : LEAST_CURVATURE;
        if (!inside(dims, i, centre[i])) continue;
        for (int c = 0; c < LANES; c++) out->gain[c] += worth * (Kg[(1 + i) * LANES + c] * Kg[(1 + i) * LANES + c]);
    }
}

/* Mean less the offset, variance with the experts' disagreement, and worth of an observation, of up to LANES points. */
APART static void mixture_of(const Dims *dims, const Belief *belief, const Comparison *s, const double *u, int64_t count,
                       Lanes *all) {
    int64_t d = dims->d, p = dims->p;
    double features_of[MOST_FEATURES], f[MOST_FEATURES * LANES], a = *belief->a;
    Lanes each[E];
    memset(f, 0, sizeof(double) * (size_t)(p * LANES));
    memset(all, 0, sizeof(*all));
    for (int64_t c = 0; c < count; c++) {
        features(dims, u + c * d, features_of);
        for (int64_t i = 0; i < p; i++) f[i * LANES + c] = features_of[i];
    }
    for (int e = 0; e < E; e++) {
        if (s->weights[e] == 0.0) continue;
        if (e < L) local_expert(dims, belief, e, s->centres + e * d, f, each + e);
        else moving_expert(dims, belief, s->centres + e * d, s->K, u, count, each + e);
        for (int c = 0; c < LANES; c++) {
            all->mean[c] += s->weights[e] * each[e].mean[c];
            all->gain[c] += s->weights[e] * each[e].gain[c] / (each[e].variance[c] + belief->noises[e]);
        }
    }
    for (int e = 0; e < E; e++) {
        if (s->weights[e] == 0.0) continue;
        for (int c = 0; c < LANES; c++) {
            double gap = each[e].mean[c] - all->mean[c];
            all->variance[c] += s->weights[e] * (a * a * each[e].variance[c] + gap * gap);
        }
    }
    for (int c = 0; c < LANES; c++) all->gain[c] *= a;
}

static void mixture_at(const Dims *dims, const Belief *belief, Comparison *s, int64_t n) {
    EACH(group, (n + LANES - 1) / LANES) {
        Lanes some;
        int64_t i = group * LANES, count = n - i < LANES ? n - i : LANES;
        size_t size = sizeof(double) * (size_t)count;
        mixture_of(dims, belief, s, s->u + i * dims->d, count, &some);
        memcpy(s->mean + i, some.mean, size);
        memcpy(s->variance + i, some.variance, size);
        memcpy(s->gain + i, some.gain, size);
    }
    JOIN();
}

/* The directions in which the leading expert's optimum is least known, as columns of s->axes, worst last. */
static void least_known(const Dims *dims, const Belief *belief, int64_t leader, const double *draws,
                        Comparison *s) {
    int64_t d = dims->d, p = dims->p;
    const double *from = leader < L ? belief->S + leader * p * p : s->K;
    double trace = 0.0;
    for (int64_t i = 0; i < d; i++) {
        memcpy(s->covariance + i * d, from + (1 + i) * p + 1, sizeof(double) * (size_t)d);
        trace += s->covariance[i * (d + 1)];
    }
    for (int64_t i = 0; i < d; i++) s->covariance[i * (d + 1)] += TIE * trace * draws[i]; /* untried knobs take turns */
    eigen_symmetric(d, s->covariance, s->values, s->axes);
    for (int64_t j = 0; j < d; j++) { /* of a vector and its negative, take the one that any library would */
        double sign = 0.0;
        for (int64_t i = 0; i < d; i++) sign += s->axes[i * d + j] / (double)(1 + i);
        for (int64_t i = 0; i < d && sign < 0.0; i++) s->axes[i * d + j] *= -1.0;
    }
}

/* Points u [n, d] to compare. */
static void make_candidates(const Dims *dims, const State *one, const Belief *belief, const double *draws,
                            Comparison *s) {
    int64_t d = dims->d, directions = d < DIRECTIONS ? d : DIRECTIONS, leader = 0, n = (E + 1);
    double most = belief->weights[0];
    for (int64_t e = 1; e < E; e++) {
        double weight = belief->weights[e] * (1.0 - EQUAL_WEIGHTS * (double)e);
        if (weight > most) leader = e, most = weight;
    }
    least_known(dims, belief, leader, draws, s);
    memcpy(s->u, s->centres, sizeof(double) * (size_t)((E + 1) * d));
    double *hint = s->u + n++ * d;
    make_hint(dims, one, belief, hint);
    const double *bases[] = {s->centres + leader * d, hint};
    for (int b = 0; b < 2; b++) {
        EACH(j, directions * MOVES) {
            double *u = s->u + (n + j) * d;
            for (int64_t i = 0; i < d; i++) {
                u[i] = bases[b][i] + s->axes[i * d + d - 1 - j / MOVES] * REACH[j % MOVES];
            }
        }
        n += directions * MOVES;
    }
    EACH(j, n) {
        for (int64_t i = 0; i < d; i++) s->u[j * d + i] = clip(s->u[j * d + i], lowest(dims, i), highest(dims, i));
    }
    JOIN();
}

/* A move along one knob, drawn at random. */
static void first_probe(const Dims *dims, const double *draws, double *u) {
    int64_t d = dims->d, knob = (int64_t)(draws[0] * (double)d);
    double move = draws[1] < 0.5 ? -FIRST_PROBE : FIRST_PROBE;
    if (move < lowest(dims, knob) || move > highest(dims, knob)) move = -move; /* the default is near this end */
    memset(u, 0, sizeof(double) * (size_t)d);
    u[knob] = move;
}

void rasp_choose(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                 const double *draws, double *points, double *sources, double *means, double *variances) {
    int64_t d = dims->d, many = candidates(dims), length = belief_length(dims);
    Comparison s;
    double *memory = make_scratch(dims, &s);
    for (int64_t i = 0; i < n; i++, draws += d + many) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        if (one.count[0] < 2.0) {
            first_probe(dims, draws, s.u);
            to_point(dims, s.u, points + i * d);
            rasp_predict(dims, all, rows + i, 1, beliefs + i * length, points + i * d, 1, means + i, variances + i);
            sources[i] = FIRST;
            continue;
        }
        prepare(dims, &one, &belief, &s);
        make_centres(dims, &belief, s.centres);
        make_candidates(dims, &one, &belief, draws, &s);
        mixture_at(dims, &belief, &s, many);
        double lowest_score = INFINITY, highest_score = -INFINITY;
        EACH(j, many) s.gain[j] = s.mean[j] - HORIZON_STEPS * s.gain[j];
        JOIN();
        for (int64_t j = 0; j < many; j++) {
            double score = s.gain[j];
            lowest_score = score < lowest_score ? score : lowest_score;
            highest_score = score > highest_score ? score : highest_score;
        }
        double tie = TIE * (highest_score - lowest_score);
        EACH(j, many) s.gain[j] += tie * draws[d + j]; /* ties: either way is as good */
        JOIN();
        int64_t chosen = argmin(many, s.gain);
        sources[i] = chosen <= E ? PREDICTED_OPTIMUM : chosen == E + 1 ? BEST_TRIED : PROBE_NEAR_IT;
        means[i] = s.mean[chosen] + *belief.offset + *belief.origin;
        variances[i] = s.variance[chosen];
        to_point(dims, s.u + chosen * d, points + i * d);
    }
    release(memory);
}

/* The least posterior mean among the experts' minimisers, their mean, the best tried and the default. */
void rasp_best(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs, double *points) {
    int64_t d = dims->d, length = belief_length(dims);
    Comparison s;
    double *memory = make_scratch(dims, &s);
    for (int64_t i = 0; i < n; i++) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        prepare(dims, &one, &belief, &s);
        make_centres(dims, &belief, s.centres);
        memcpy(s.u, s.centres, sizeof(double) * (size_t)((E + 1) * d));
        make_hint(dims, &one, &belief, s.u + (E + 1) * d);
        memset(s.u + (E + 2) * d, 0, sizeof(double) * (size_t)d);
        mixture_at(dims, &belief, &s, E + 3);
        to_point(dims, s.u + argmin(E + 3, s.mean) * d, points + i * d);
    }
    release(memory);
}
