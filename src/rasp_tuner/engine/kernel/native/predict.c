/* What a belief expects at given points: of each expert, of their mixture, of a difference, of an observation.
 *
 * The moving optimum at a point u has the slopes g = [ratio, -2 q_i (u_i - o_i), ratio (u_i - o_i)^2] by its level, by
 * where the optimum o lies in this context, and by its curvatures; K [p, p] is the covariance of these. */
#include <math.h>
#include <string.h>

#include "quadratic.h"

/* Where coefficient i of theta goes in [level, optimum, curvatures]. */
static int64_t place(int64_t d, int64_t width, int64_t i) {
    if (i == 0) return 0;
    return i <= d ? d + i : 1 + (i - 1 - d) / width;
}

void moving_covariance(const Dims *dims, const State *one, const Belief *belief, double *K) {
    int64_t d = dims->d, p = dims->p, m = dims->m, width = 1 + dims->r;
    double row[MOST_FEATURES];
    memset(K, 0, sizeof(double) * (size_t)(p * p));
    for (int64_t i = 0; i < m; i++) {
        const double *from = one->covariance + i * m;
        double by = i <= d ? 1.0 : belief->x[(i - 1 - d) % width];
        row[0] = from[0];
        for (int64_t j = 0; j < d; j++) {
            row[1 + j] = dot(width, from + 1 + d + j * width, belief->x);
            row[1 + d + j] = from[1 + j];
        }
        add_scaled(p, by, row, K + place(d, width, i) * p);
    }
}

void moving_slopes(const Dims *dims, const Belief *belief, const double *u, double *slopes, double *mean) {
    int64_t d = dims->d;
    double sum = *belief->level, ratio = *belief->ratio;
    slopes[0] = ratio;
    for (int64_t i = 0; i < d; i++) {
        double gap = u[i] - belief->optimum[i], curvature = belief->curvatures[i];
        slopes[1 + i] = -2.0 * curvature * gap;
        slopes[1 + d + i] = ratio * (gap * gap);
        sum += curvature * (gap * gap);
    }
    *mean = sum;
}

/* f' A f of a symmetric A, at least 0. */
static double form(int64_t p, const double *A, const double *f) {
    double product[MOST_FEATURES];
    symmetric_times(p, A, f, product);
    double square = dot(p, product, f);
    return square > 0.0 ? square : 0.0;
}

/* Mean less the offset, and variance, of all experts, [E]; K is of the moving optimum, if it has a say. */
static void each_centred(const Dims *dims, const Belief *belief, const double *u, const double *K, double *means,
                         double *variances) {
    int64_t p = dims->p;
    double f[MOST_FEATURES], a = *belief->a;
    features(dims, u, f);
    for (int64_t l = 0; l < L; l++) {
        means[l] = dot(p, belief->mean + l * p, f);
        variances[l] = form(p, belief->S + l * p * p, f) * (a * a);
    }
    means[L] = means[0], variances[L] = variances[0]; /* it begins as the blind one */
    if (*belief->moving > 0.0) {
        moving_slopes(dims, belief, u, f, means + L);
        means[L] *= a;
        variances[L] = form(p, K, f) * (a * a);
    }
}

void each_expert(const Dims *dims, const State *one, const Belief *belief, const double *point, double *means,
                 double *variances) {
    double u[MOST_KNOBS], K[MOST_FEATURES * MOST_FEATURES];
    if (*belief->moving > 0.0) moving_covariance(dims, one, belief, K);
    to_u(dims, point, u);
    each_centred(dims, belief, u, K, means, variances);
}

/* Mean and variance of the mixture of experts. */
static void mix(const double *weights, const double *means, const double *variances, double *mean, double *variance) {
    double middle = dot(E, weights, means), sum = 0.0;
    for (int i = 0; i < E; i++) sum += weights[i] * (variances[i] + (means[i] - middle) * (means[i] - middle));
    *mean = middle;
    *variance = sum;
}

/* Log density of Student's t, `gap` away from its centre. */
static double log_student(double gap, double variance) {
    double far = fabs(gap) / sqrt(FREEDOM * variance);
    if (far > FARTHEST) far = FARTHEST;
    return STUDENT_NORM - 0.5 * log(variance) - 0.5 * (FREEDOM + 1.0) * log1p(far * far);
}

void rasp_predict(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                  const double *points, int64_t count, double *means, double *variances) {
    int64_t d = dims->d, p = dims->p, length = belief_length(dims);
    double *K, *u, each[E], unsure[E];
    Part parts[] = {{&K, p * p}, {&u, d}};
    double *memory = ALLOCATE(dims, parts);
    for (int64_t i = 0; i < n; i++) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        if (*belief.moving > 0.0) moving_covariance(dims, &one, &belief, K);
        for (int64_t j = i * count; j < (i + 1) * count; j++) {
            to_u(dims, points + j * d, u);
            each_centred(dims, &belief, u, K, each, unsure);
            mix(belief.weights, each, unsure, means + j, variances + j);
            means[j] += *belief.offset + *belief.origin;
        }
    }
    release(memory);
}

/* Mean and variance of y at the first of two points u [2, d] less y at the second. `f` is scratch, [2, p]. */
static void difference(const Dims *dims, const Belief *belief, const double *u, const double *K, double *f,
                       double *mean, double *variance) {
    int64_t d = dims->d, p = dims->p;
    double each[E], unsure[E], level, other, a = *belief->a, *g = f + p;
    features(dims, u, f);
    features(dims, u + d, g);
    for (int64_t j = 0; j < p; j++) f[j] -= g[j];
    for (int64_t l = 0; l < L; l++) {
        each[l] = dot(p, belief->mean + l * p, f);
        unsure[l] = form(p, belief->S + l * p * p, f) * (a * a);
    }
    each[L] = each[0], unsure[L] = unsure[0]; /* it begins as the blind one */
    if (*belief->moving > 0.0) {
        moving_slopes(dims, belief, u, f, &level);
        moving_slopes(dims, belief, u + d, g, &other);
        for (int64_t j = 0; j < p; j++) f[j] -= g[j];
        each[L] = (level - other) * a;
        unsure[L] = form(p, K, f) * (a * a);
    }
    mix(belief->weights, each, unsure, mean, variance);
}

void rasp_compare(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                  const double *points, const double *others, double *means, double *variances) {
    int64_t d = dims->d, p = dims->p, length = belief_length(dims);
    double *K, *u, *f;
    Part parts[] = {{&K, p * p}, {&u, 2 * d}, {&f, 2 * p}};
    double *memory = ALLOCATE(dims, parts);
    for (int64_t i = 0; i < n; i++) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        if (*belief.moving > 0.0) moving_covariance(dims, &one, &belief, K);
        to_u(dims, points + i * d, u);
        to_u(dims, others + i * d, u + d);
        difference(dims, &belief, u, K, f, means + i, variances + i);
    }
    release(memory);
}

void rasp_against(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                  const double *points, double *out) {
    int64_t d = dims->d, p = dims->p, length = belief_length(dims);
    double *K, *u, *f, each[E], unsure[E];
    Part parts[] = {{&K, p * p}, {&u, 2 * d}, {&f, 2 * p}};
    double *memory = ALLOCATE(dims, parts);
    for (int64_t i = 0; i < n; i++) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        double *to = out + 6 * i, base = *belief.offset + *belief.origin;
        if (*belief.moving > 0.0) moving_covariance(dims, &one, &belief, K);
        to_u(dims, points + i * d, u);
        for (int64_t j = 0; j < d; j++) u[d + j] = 0.0;
        difference(dims, &belief, u, K, f, to + 1, to + 2);
        for (int64_t j = 0; j < 2; j++) { /* the point, and the default */
            each_centred(dims, &belief, u + j * d, K, each, unsure);
            mix(belief.weights, each, unsure, to + (j ? 0 : 3), to + 4 + j);
        }
        to[0] += base;
        to[3] += base;
    }
    release(memory);
}

void rasp_forecast(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                   const double *points, const double *y, double *means, double *variances, double *logs) {
    int64_t length = belief_length(dims);
    double each[E], unsure[E];
    for (int64_t i = 0; i < n; i++) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        double a = *belief.a, base = *belief.offset + *belief.origin;
        each_expert(dims, &one, &belief, points + i * dims->d, each, unsure);
        for (int j = 0; j < E; j++) {
            logs[i * E + j] = log_student(y[i] - (each[j] + base), unsure[j] + belief.noises[j] * (a * a));
        }
        mix(belief.weights, each, unsure, means + i, variances + i);
        means[i] += base;
    }
}
