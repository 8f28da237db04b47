/* What all situations share: the prior it gives a bowl that is not known yet, the likeliest curvature, the noise. */
#include "learn.h"

#include <string.h>

enum { TRIED = 5, SIDES = 3 }; /* noises; right sides that are solved for: data, prior, what the prior expects of the data */
static const double TRIED_NOISES[TRIED] = ESTIMATE_NOISES; /* that the curvature is estimated with */

void make_prior(const Dims *dims, const State *one, Prior *prior) {
    const int64_t d = dims->d, p = dims->p;
    const bool known = *one->curvature > 0.0;
    const double own = OWN_DEVIATION * OWN_DEVIATION, both = COMMON_DEVIATION * COMMON_DEVIATION;
    const double common = both / (own + (double)d * both);
    prior->level_variance = LEVEL_VARIANCE;
    if (known) prior->level_variance = least(LEVEL_VARIANCE, most(4.0 * *one->level_variance, 0.01));
    double *mean = prior->mean, *precision = prior->precision, *pull = prior->pull;
    EACH(i, p * p) precision[i] = 0.0;
    JOIN();
    precision[0] = 1.0 / (prior->level_variance + (known ? 0.1 * (double)d : 0.0));
    mean[0] = 0.0;
    for (int64_t i = 0; i < d; i++) {
        const double location = one->location[i];
        mean[0] += one->location_variance[i] + location * location;
        mean[1 + i] = -2.0 * location;
        mean[1 + d + i] = 1.0;
        precision[(1 + i) * (p + 1)] = 0.25 / one->location_variance[i];
        for (int64_t j = 0; j < d; j++)
            precision[(1 + d + i) * p + 1 + d + j] = ((i == j ? 1.0 : 0.0) - common) / own;
    }
    EACH(i, p) {
        double sum = 0.0;
        for (int64_t j = 0; j < p; j++) sum += precision[i * p + j] * mean[j];
        pull[i] = sum;
    }
    JOIN();
}

double centred_level(const State *one, double offset, double a) {
    if (*one->curvature == 0.0) return 0.0;
    return clip((*one->level - offset) / a, -LARGEST_LEVEL, LARGEST_LEVEL);
}

int64_t estimate_scratch(const Dims *dims) {
    return (dims->p + SIDES) * (dims->p + SIDES) + dims->p;
}

/* For each noise the evidence is largest at one curvature, in closed form; then the noises are weighed by it. */
double estimate_curvature(const Dims *dims, const Prior *prior, const double *G, const double *b, double rest,
                          double level, double *scratch) {
    const int64_t p = dims->p;
    const int64_t rows = p + SIDES, data = p, pull = p + 1, mean = p + 2;
    const double n = most(G[0], TINY);
    double *A = scratch, *expected = A + rows * rows;
    double evidence[TRIED], logs[TRIED], top = -INFINITY;
    EACH(i, p) expected[i] = dot(p, G + i * p, prior->mean);
    JOIN();
    rest -= level * (2.0 * b[0] - level * n);
    for (int t = 0; t < TRIED; t++) {
        const double noise = TRIED_NOISES[t];
        JOIN(); /* all lanes are done with A */
        evidence[t] = -INFINITY;
        logs[t] = 0.0;
        EACH(i, p) {
            double *row = A + i * rows;
            for (int64_t j = i; j < p; j++) row[j] = G[i * p + j] / noise + prior->precision[i * p + j];
            row[data] = b[i] - level * G[i * p];
            row[pull] = prior->pull[i];
            row[mean] = expected[i];
        }
        EACH(i, SIDES * rows) A[p * rows + i] = 0.0;
        JOIN();
        if (factor(p, rows, A))
            continue; /* rounding only: this noise says nothing */
        double square = (rest + A[data * (rows + 1)] / noise) / noise; /* in the corner there are products, with a minus */
        square = most(square, most(1e-20 * fabs(rest), TINY * TINY) / noise);
        const double linear = -A[data * rows + pull] / noise, root = sqrt(linear * linear + 4.0 * n * square);
        double a = linear >= 0.0 ? 2.0 * square / (root + fabs(linear)) : (root - linear) / (2.0 * n);
        a = most(a, TINY); /* that of answers without noise may be 0 */
        double sizes = 0.0;
        for (int64_t i = 0; i < p; i++) sizes += log(A[i * (rows + 1)]);
        evidence[t] = linear / a - 0.5 * square / (a * a) - n * log(a) + 0.5 * A[pull * rows + mean] / noise
                      - 0.5 * (n * log(noise) + 2.0 * sizes) - NOISE_ODDS * (double)t;
        /* plus a little: too steep is safer than too flat */
        logs[t] = log(a) + least(0.5 / most(2.0 * square / (a * a) - linear / a, 0.5), 1.0);
        top = most(top, evidence[t]);
    }
    double total = 0.0, sum = 0.0;
    for (int t = 0; t < TRIED; t++) {
        if (evidence[t] == -INFINITY) continue;
        const double weight = exp(evidence[t] - top);
        total += weight;
        sum += weight * logs[t];
    }
    return total > 0.0 ? most(exp(sum / total), TINY) : TINY;
}

/* Natural logarithm of one of the variances that are weighed: from 1e-4 to 1, two a decade. */
static double noise_log(int i) { return 2.302585092994046 * (0.5 * i - 4.0); }

/* Score of that variance before any sample: a nat for each decade away from 1e-2. */
static double noise_prior(int i) { return -DECADE_ODDS * fabs(0.5 * i - 2.0); }

double noise_variance(const State *one, int expert) {
    const double *scores = one->noises + expert * NOISES;
    double total = 0.0, sum = 0.0;
    for (int i = 0; i < NOISES; i++) {
        const double weight = exp(scores[i]);
        total += weight;
        sum += weight * noise_log(i);
    }
    return exp(sum / total);
}

void noise_variances(const State *one, double *rho) {
    EACH(expert, E) rho[expert] = noise_variance(one, (int)expert);
    JOIN();
}

void reset_noise(const State *one) {
    for (int expert = 0; expert < E; expert++)
        for (int i = 0; i < NOISES; i++) one->noises[expert * NOISES + i] = noise_prior(i);
}

void observe_noise(const State *one, const double *errors, const double *unsure) {
    double known[NOISES], logs[2 * E * NOISES], *size = logs, *surprise = logs + E * NOISES;
    for (int i = 0; i < NOISES; i++) known[i] = exp(noise_log(i));
    for (int at = 0; at < E * NOISES; at++) {
        size[at] = unsure[at / NOISES] + known[at % NOISES];
        const double far = least(fabs(errors[at / NOISES]) / sqrt(FREEDOM * size[at]), FARTHEST);
        surprise[at] = 1.0 + far * far;
    }
    log_positive(2 * E * NOISES, logs);
    EACH(at, E * NOISES) {
        double *score = one->noises + at;
        *score = KEEP * *score + (1.0 - KEEP) * noise_prior((int)(at % NOISES)) + STUDENT_NORM - 0.5 * size[at]
                 - 0.5 * (FREEDOM + 1.0) * surprise[at];
    }
    JOIN();
    EACH(expert, E) {
        double *scores = one->noises + expert * NOISES, top = -INFINITY;
        for (int i = 0; i < NOISES; i++) top = most(top, scores[i]);
        for (int i = 0; i < NOISES; i++) scores[i] -= top;
    }
    JOIN();
}

void observe_scores(const State *one, const double *logs) {
    double top = -INFINITY;
    for (int i = 0; i < E; i++) {
        one->scores[i] = KEEP * one->scores[i] + (1.0 - KEEP) * expert_prior(i) + logs[i];
        top = most(top, one->scores[i]);
    }
    for (int i = 0; i < E; i++) one->scores[i] -= top;
}

/* Deviation of y over the slots that are trusted. */
static double trusted_spread(const Dims *dims, const State *one, double *y) {
    const int64_t count = slots_used(dims, one);
    double total = 0.0, sum = 0.0, squares = 0.0;
    slot_targets(dims, one, count, y);
    for (int64_t i = 0; i < count; i++) {
        const double trust = one->trust[i] + 1e-9;
        total += trust;
        sum += trust * y[i];
        squares += trust * (y[i] * y[i]);
    }
    const double mean = sum / total;
    return sqrt(most(squares / total - mean * mean, 0.0));
}

/* The least value of one expert, in units of y, relative to the first sample. */
static double least_value(const Dims *dims, const Belief *belief, int expert) {
    const int64_t d = dims->d;
    const double a = *belief->a;
    if (expert == L && *belief->moving > 0.0) return *belief->level * a + *belief->offset;
    const double *mean = belief->mean + (expert < L ? expert : L - 1) * dims->p;
    double value = mean[0];
    for (int64_t i = 0; i < d; i++) {
        const double default_ = dims->default_[i], curvature = most(mean[1 + d + i], LEAST_CURVATURE * a);
        const double u = clip(mean[1 + i] / (-2.0 * curvature), -2.0 * default_, 2.0 * (1.0 - default_));
        value += u * mean[1 + i] + u * u * mean[1 + d + i];
    }
    return value + *belief->offset;
}

/* Move what all situations share towards what is seen now; the first likeliest curvature begins it. */
static void move_shared(const State *one, double value, double likeliest, double spread) {
    if (*one->curvature == 0.0) {
        *one->curvature = likeliest;
        *one->level = value;
    }
    const double gap = value - *one->level, far = least(fabs(gap) / *one->curvature, 1e6);
    *one->level += RATE * gap;
    const double change = far * far - *one->level_variance;
    *one->level_variance += (change > 0.0 || *one->level_variance > SETTLED_LEVELS ? RATE : SETTLED_RATE) * change;
    *one->curvature *= pow(clip(likeliest / *one->curvature, 0.3, 3.0), CURVATURE_RATE);
    *one->largest = most(spread, 0.995 * *one->largest);
    if (*one->largest > 0.0) *one->curvature = clip(*one->curvature, 0.1 * *one->largest, 100.0 * *one->largest);
}

int64_t track_scratch(const Dims *dims) {
    return estimate_scratch(dims) > dims->R ? estimate_scratch(dims) : dims->R;
}

void track(const Dims *dims, const State *one, const Belief *belief, const Prior *prior, double *scratch) {
    const int64_t p = dims->p;
    const double a = *belief->a;
    *one->tracked += *one->steps >= 3.0;
    if (*one->tracked < NORMAL_FROM_SAMPLES || a < LEAST_TRACKED_CURVATURE) return;
    int leader = 0;
    for (int i = 1; i < E; i++)
        if (one->scores[i] > one->scores[leader]) leader = i;
    double likeliest = *one->curvature, spread = 0.0; /* 0 where it is not looked at */
    if (refresh_now(one) || *one->curvature == 0.0) {
        const int64_t local = leader < L ? leader : L - 1;
        likeliest = estimate_curvature(dims, prior, belief->G + local * p * p, belief->b + local * p,
                                       belief->rest[local], a * centred_level(one, *belief->offset, a), scratch);
        spread = trusted_spread(dims, one, scratch);
    }
    move_shared(one, least_value(dims, belief, leader), likeliest, spread);
}
