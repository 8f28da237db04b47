/* What a belief expects at given points: of each expert, of their mixture, of a difference, of an observation.
 *
 * The moving optimum at a point u has slopes h = [1, (u_i - o_i)^2, -2 q_i (u_i - o_i)] by its level, its curvatures
 * q and where the optimum o lies in this context; K [p, p] is the covariance of these.
 *
 * f, h   [p, SIDE]   features of some points, and these slopes there, side by side: matrices are read once for all
 * level  [SIDE]      y of the moving optimum there, in units of a */
#include <math.h>
#include <string.h>

#include "quadratic.h"

enum { SIDE = 4 };

typedef struct {
    double f[MOST_FEATURES * SIDE], h[MOST_FEATURES * SIDE], level[SIDE];
} Columns;

/* Column c is of the point u [d]. */
static void set_column(const Dims *dims, const Belief *belief, const double *u, int c, Columns *columns) {
    int64_t d = dims->d;
    double *f = columns->f + c, *h = columns->h + c, level = *belief->level;
    f[0] = h[0] = 1.0;
    for (int64_t i = 0; i < d; i++) {
        double gap = u[i] - belief->optimum[i], curvature = belief->curvatures[i];
        f[(1 + i) * SIDE] = u[i];
        f[(1 + d + i) * SIDE] = u[i] * u[i];
        h[(1 + i) * SIDE] = gap * gap;
        h[(1 + d + i) * SIDE] = -2.0 * curvature * gap;
        level += curvature * (gap * gap);
    }
    columns->level[c] = level;
}

/* Column c is what one column differs from another by. */
static void set_difference(const Dims *dims, int one, int other, int c, Columns *columns) {
    for (int64_t i = 0; i < dims->p * SIDE; i += SIDE) {
        columns->f[i + c] = columns->f[i + one] - columns->f[i + other];
        columns->h[i + c] = columns->h[i + one] - columns->h[i + other];
    }
    columns->level[c] = columns->level[one] - columns->level[other];
}

/* by f' A f of a symmetric A, at least 0; four rows at a time, so that additions need not wait for one another. */
WIDER static void forms(int64_t p, const double *A, const double *f, double by, double *out) {
    enum { PARTS = SIDE / AT_ONCE };
    const AtOnce *columns = (const AtOnce *)f;
    AtOnce sum[PARTS] = {{0.0}};
    int64_t i = 0;
    for (; i + 4 <= p; i += 4) {
        const double *row = A + i * p;
        AtOnce a[PARTS] = {{0.0}}, b[PARTS] = {{0.0}}, c[PARTS] = {{0.0}}, d[PARTS] = {{0.0}};
        for (int64_t j = 0; j < p; j++)
            for (int q = 0; q < PARTS; q++) {
                const AtOnce own = columns[PARTS * j + q];
                a[q] += row[j] * own;
                b[q] += row[p + j] * own;
                c[q] += row[2 * p + j] * own;
                d[q] += row[3 * p + j] * own;
            }
        for (int q = 0; q < PARTS; q++) {
            const AtOnce *own = columns + PARTS * i + q;
            sum[q] += a[q] * own[0];
            sum[q] += b[q] * own[PARTS];
            sum[q] += c[q] * own[2 * PARTS];
            sum[q] += d[q] * own[3 * PARTS];
        }
    }
    for (; i < p; i++) {
        AtOnce a[PARTS] = {{0.0}};
        for (int64_t j = 0; j < p; j++)
            for (int q = 0; q < PARTS; q++) a[q] += A[i * p + j] * columns[PARTS * j + q];
        for (int q = 0; q < PARTS; q++) sum[q] += a[q] * columns[PARTS * i + q];
    }
    for (int q = 0; q < PARTS; q++) ((AtOnce *)out)[q] = sum[q];
    for (int c = 0; c < SIDE; c++) out[c] = out[c] > 0.0 ? out[c] * by : 0.0;
}

/* Mean less the offset, and variance, of all experts, [E, SIDE]. */
WIDER static void each_column(const Dims *dims, const Belief *belief, const Columns *columns, double *means,
                              double *variances) {
    int64_t p = dims->p;
    double a = *belief->a;
    const Quad *f = (const Quad *)columns->f;
    for (int64_t l = 0; l < L; l++) {
        const double *mean = belief->mean + l * p;
        Quad sum = {0.0};
        for (int64_t i = 0; i < p; i++) sum += mean[i] * f[i];
        *(Quad *)(means + l * SIDE) = sum;
        forms(p, belief->S + l * p * p, columns->f, a * a, variances + l * SIDE);
    }
    if (*belief->moving > 0.0) {
        for (int c = 0; c < SIDE; c++) means[L * SIDE + c] = a * columns->level[c];
        forms(p, belief->K, columns->h, a * a, variances + L * SIDE);
    } else { /* it begins as the blind one */
        memcpy(means + L * SIDE, means, sizeof(double) * SIDE);
        memcpy(variances + L * SIDE, variances, sizeof(double) * SIDE);
    }
}

/* Mean and variance of the mixture of experts, of one column. */
static void mix(const double *weights, const double *means, const double *variances, double *mean, double *variance) {
    double middle = 0.0, sum = 0.0;
    for (int i = 0; i < E; i++) middle += weights[i] * means[i * SIDE];
    for (int i = 0; i < E; i++) {
        double apart = means[i * SIDE] - middle;
        sum += weights[i] * (variances[i * SIDE] + apart * apart);
    }
    *mean = middle;
    *variance = sum;
}

/* As each_column, of one point: the first column. */
static void each_at(const Dims *dims, const Belief *belief, const double *point, double *means, double *variances) {
    double u[MOST_KNOBS];
    Columns columns;
    to_u(dims, point, u);
    for (int c = 0; c < SIDE; c++) set_column(dims, belief, u, c, &columns);
    each_column(dims, belief, &columns, means, variances);
}

void each_expert(const Dims *dims, const Belief *belief, const double *point, double *means, double *variances) {
    double each[E * SIDE], unsure[E * SIDE];
    each_at(dims, belief, point, each, unsure);
    for (int i = 0; i < E; i++) means[i] = each[i * SIDE], variances[i] = unsure[i * SIDE];
}

/* Log density of Student's t, `gap` away from its centre. */
static double log_student(double gap, double variance) {
    double far = fabs(gap) / sqrt(FREEDOM * variance);
    if (far > FARTHEST) far = FARTHEST;
    return STUDENT_NORM - 0.5 * log(variance) - 0.5 * (FREEDOM + 1.0) * log1p(far * far);
}

void rasp_predict(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                  const double *points, int64_t count, double *means, double *variances) {
    int64_t d = dims->d, length = belief_length(dims);
    double u[MOST_KNOBS], each[E * SIDE], unsure[E * SIDE];
    Columns columns;
    (void)all, (void)rows;
    for (int64_t i = 0; i < n; i++) {
        Belief belief = belief_at(dims, beliefs + i * length);
        for (int64_t j = 0; j < count; j += SIDE) {
            for (int64_t c = 0; c < SIDE; c++) { /* the last point more than once, to fill up */
                to_u(dims, points + (i * count + (j + c < count ? j + c : count - 1)) * d, u);
                set_column(dims, &belief, u, (int)c, &columns);
            }
            each_column(dims, &belief, &columns, each, unsure);
            for (int64_t c = 0; c < SIDE && j + c < count; c++) {
                double *mean = means + i * count + j + c;
                mix(belief.weights, each + c, unsure + c, mean, variances + i * count + j + c);
                *mean += *belief.offset + *belief.origin;
            }
        }
    }
}

void rasp_against(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                  const double *points, double *out) {
    int64_t d = dims->d, length = belief_length(dims);
    double u[MOST_KNOBS], at_default[MOST_KNOBS] = {0.0}, each[E * SIDE], unsure[E * SIDE];
    Columns columns; /* of the point, of the default, of their difference; the last fills up */
    (void)all, (void)rows;
    for (int64_t i = 0; i < n; i++) {
        Belief belief = belief_at(dims, beliefs + i * length);
        double *to = out + 6 * i, base = *belief.offset + *belief.origin;
        to_u(dims, points + i * d, u);
        set_column(dims, &belief, u, 0, &columns);
        set_column(dims, &belief, at_default, 1, &columns);
        set_difference(dims, 0, 1, 2, &columns);
        set_difference(dims, 0, 0, 3, &columns);
        each_column(dims, &belief, &columns, each, unsure);
        mix(belief.weights, each, unsure, to + 3, to + 4);
        mix(belief.weights, each + 1, unsure + 1, to, to + 5);
        mix(belief.weights, each + 2, unsure + 2, to + 1, to + 2);
        to[0] += base;
        to[3] += base;
    }
}

void rasp_forecast(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                   const double *points, const double *y, double *means, double *variances, double *logs) {
    int64_t length = belief_length(dims);
    double each[E * SIDE], unsure[E * SIDE];
    (void)all, (void)rows;
    for (int64_t i = 0; i < n; i++) {
        Belief belief = belief_at(dims, beliefs + i * length);
        double a = *belief.a, base = *belief.offset + *belief.origin;
        each_at(dims, &belief, points + i * dims->d, each, unsure);
        for (int j = 0; j < E; j++) {
            double variance = unsure[j * SIDE] + belief.noises[j] * (a * a);
            logs[i * E + j] = log_student(y[i] - (each[j * SIDE] + base), variance);
        }
        mix(belief.weights, each, unsure, means + i, variances + i);
        means[i] += base;
    }
}
