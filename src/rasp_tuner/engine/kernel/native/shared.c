/* What all situations share: the prior it gives a bowl that is not known yet, the likeliest curvature, the noise. */
#include "learn.h"

#include <string.h>

#define OWN_DEVIATION 0.3       /* of a knob's own curvature, in units of a */
#define OWN_DEVIATION_LEAST 0.1 /* the same once the knobs' curvatures are known */
#define COMMON_DEVIATION 0.4    /* of the curvature that the knobs have in common, in units of a */
#define LEVEL_VARIANCE 25.0     /* of the least y, in units of a, while nothing is known */
#define LARGEST_LEVEL 1e30      /* in units of a: a metric that jumps must not overflow */
#define TINY 1e-100             /* a curvature where y is constant, so that no logarithm sees a zero */
#define NOISE_ODDS 2.0          /* nats against each of the next but the one before */

enum { TRIED = 5 };
static const double TRIED_NOISES[TRIED] = {1e-4, 1e-3, 1e-2, 1e-1, 1.0}; /* that the curvature is estimated with */

void make_prior(const Dims *dims, const State *one, Prior *prior) {
    const int64_t d = dims->d, p = dims->p;
    const bool known = *one->curvature > 0.0;
    double own = OWN_DEVIATION;
    prior->level_variance = LEVEL_VARIANCE;
    if (known) {
        prior->level_variance = least(LEVEL_VARIANCE, most(4.0 * *one->level_variance, 0.01));
        own = most(OWN_DEVIATION_LEAST, OWN_DEVIATION / sqrt(1.0 + *one->tracked / 20.0));
    }
    const double both = COMMON_DEVIATION * COMMON_DEVIATION, common = both / (own * own + (double)d * both);
    double *mean = prior->mean, *precision = prior->precision, *pull = prior->pull;
    memset(precision, 0, (size_t)(p * p) * sizeof *precision);
    precision[0] = 1.0 / (prior->level_variance + (known ? 0.1 * (double)d : 0.0));
    mean[0] = 0.0;
    for (int64_t i = 0; i < d; i++) {
        const double shape = known ? one->shape[i] : 1.0, location = one->location[i];
        mean[0] += one->location_variance[i] + location * location;
        mean[1 + i] = -2.0 * shape * location;
        mean[1 + d + i] = shape;
        precision[(1 + i) * (p + 1)] = 0.25 / one->location_variance[i];
        for (int64_t j = 0; j < d; j++)
            precision[(1 + d + i) * p + 1 + d + j] = ((i == j ? 1.0 : 0.0) - common) / (own * own);
    }
    for (int64_t i = 0; i < p; i++) {
        pull[i] = 0.0;
        for (int64_t j = 0; j < p; j++)
            pull[i] += precision[i * p + j] * mean[j];
    }
}

double centred_level(const State *one, double offset, double a) {
    if (*one->curvature == 0.0)
        return 0.0;
    return clip((*one->level - offset) / a, -LARGEST_LEVEL, LARGEST_LEVEL);
}

int64_t estimate_scratch(const Dims *dims) {
    return 2 * dims->p * dims->p + 5 * dims->p;
}

void solve_lower(int64_t n, const double *lower, double *x) {
    for (int64_t i = 0; i < n; i++) {
        double sum = x[i];
        for (int64_t j = 0; j < i; j++)
            sum -= lower[i * n + j] * x[j];
        x[i] = sum / lower[i * n + i];
    }
}

/* For each noise the evidence is largest at one curvature, in closed form; then the noises are weighed by it. */
double estimate_curvature(const Dims *dims, const Prior *prior, const double *G, const double *b, double rest,
                          double level, double *scratch) {
    const int64_t p = dims->p;
    const double n = most(G[0], TINY);
    double *A = scratch, *lower = A + p * p, *centred = lower + p * p, *expected = centred + p;
    double *by_data = expected + p, *by_prior = by_data + p, *by_mean = by_prior + p;
    double evidence[TRIED], logs[TRIED], top = -INFINITY;
    for (int64_t i = 0; i < p; i++) {
        centred[i] = b[i] - level * G[i * p];
        expected[i] = dot(p, G + i * p, prior->mean);
    }
    rest -= level * (2.0 * b[0] - level * n);
    for (int t = 0; t < TRIED; t++) {
        const double noise = TRIED_NOISES[t];
        evidence[t] = -INFINITY;
        logs[t] = 0.0;
        for (int64_t i = 0; i < p * p; i++)
            A[i] = G[i] / noise + prior->precision[i];
        if (cholesky(p, A, lower))
            continue; /* rounding only: this noise says nothing */
        memcpy(by_data, centred, (size_t)p * sizeof *by_data);
        memcpy(by_prior, prior->pull, (size_t)p * sizeof *by_prior);
        memcpy(by_mean, expected, (size_t)p * sizeof *by_mean);
        solve_lower(p, lower, by_data);
        solve_lower(p, lower, by_prior);
        solve_lower(p, lower, by_mean);
        double square = (rest - dot(p, by_data, by_data) / noise) / noise;
        square = most(square, most(1e-20 * fabs(rest), TINY * TINY) / noise);
        const double linear = dot(p, by_prior, by_data) / noise, root = sqrt(linear * linear + 4.0 * n * square);
        double a = linear >= 0.0 ? 2.0 * square / (root + fabs(linear)) : (root - linear) / (2.0 * n);
        a = most(a, TINY); /* that of answers without noise may be 0 */
        double sizes = 0.0;
        for (int64_t i = 0; i < p; i++)
            sizes += log(lower[i * p + i]);
        evidence[t] = linear / a - 0.5 * square / (a * a) - n * log(a) - 0.5 * dot(p, by_prior, by_mean) / noise
                      - 0.5 * (n * log(noise) + 2.0 * sizes) - NOISE_ODDS * t;
        /* plus a little: too steep is safer than too flat */
        logs[t] = log(a) + least(0.5 / most(2.0 * square / (a * a) - linear / a, 0.5), 1.0);
        top = most(top, evidence[t]);
    }
    double total = 0.0, sum = 0.0;
    for (int t = 0; t < TRIED; t++) {
        if (evidence[t] == -INFINITY)
            continue;
        const double weight = exp(evidence[t] - top);
        total += weight;
        sum += weight * logs[t];
    }
    return total > 0.0 ? most(exp(sum / total), TINY) : TINY;
}

void noise_variances(const State *one, double *rho) {
    for (int expert = 0; expert < E; expert++) {
        const double *scores = one->noises + expert * NOISES;
        double total = 0.0, sum = 0.0;
        for (int i = 0; i < NOISES; i++) {
            const double weight = exp(scores[i]);
            total += weight;
            sum += weight * noise_log(i);
        }
        rho[expert] = exp(sum / total);
    }
}
