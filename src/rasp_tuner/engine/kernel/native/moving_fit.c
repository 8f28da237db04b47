/* The fit of the moving optimum: a bowl whose optimum moves linearly with the context; warm Gauss-Newton steps.

   symbol   shape        meaning
   u        [d, n]       points relative to the default, in [-2, 2]; here samples lie side by side
   x        [1 + r, n]   a one, and the components of the context
   y        [n]          target, in units of the shared curvature
   theta    b, q, M      y = b + sum_i q_i (u_i - M_i x)^2 with q [d], M [d, 1 + r]
   J        [n, m]       slope of y by theta, times the root of what a sample counts
   A        [m, m]       precision of theta: J'J and that of the prior */
#include "learn.h"

#include <string.h>

enum { TALL = 4, WIDE = 8 };                           /* the part of a product that is formed at once */
static const double LENGTHS[] = STEP_LENGTHS;           /* tried in turn */

/* One fit: its data, its prior, and where it stands. */
typedef struct {
    const Dims *dims;
    int64_t n, stride;                /* samples; numbers in a row of J: m, and some to fill it up */
    double *u, *x, *y, *root;         /* [d, WINDOW], [1 + r, WINDOW], [n], [n] of what a sample counts */
    double *prior, *away, *pull;      /* [m] mean; [m] mean - theta; [m] precision (mean - theta) */
    double level_precision;
    const double *shapes;             /* precision of the curvatures: a block of that of the local experts */
    const double *location_variance;  /* [d] */
    double *theta, *gaps, *residual;  /* [m], [d, WINDOW] to the optimum, [n] */
    double *moved, *after, *left;     /* the same after a step */
    double *step, *side;              /* [m]; [n] */
    double *J, *A, *lower;            /* [n, stride]; [m, m]; [m, m] */
} Fit;

static int64_t row_length(const Dims *dims) { return (dims->m + WIDE) / WIDE * WIDE + TALL; } /* no power of two */

int64_t fit_scratch(const Dims *dims) {
    const int64_t n = WINDOW, m = dims->m;
    return n * (3 * dims->d + 1 + dims->r) + 5 * n + 6 * m + n * row_length(dims) + 2 * m * m;
}

static Fit make_fit(const Dims *dims, double *scratch) {
    const int64_t n = WINDOW, d = dims->d, m = dims->m;
    Fit fit = {.dims = dims};
    fit.stride = row_length(dims);
    fit.u = scratch;
    fit.gaps = fit.u + n * d;
    fit.after = fit.gaps + n * d;
    fit.x = fit.after + n * d;
    fit.y = fit.x + n * (1 + dims->r);
    fit.root = fit.y + n;
    fit.residual = fit.root + n;
    fit.left = fit.residual + n;
    fit.side = fit.left + n;
    fit.prior = fit.side + n;
    fit.away = fit.prior + m;
    fit.pull = fit.away + m;
    fit.theta = fit.pull + m;
    fit.moved = fit.theta + m;
    fit.step = fit.moved + m;
    fit.J = fit.step + m;
    fit.A = fit.J + n * fit.stride;
    fit.lower = fit.A + m * m;
    return fit;
}

/* The lower triangle of A [m, m] = R'R for R [n, m] with rows `stride` apart; rows are longer than m by WIDE - 1. */
WIDER static void square_of(int64_t n, int64_t m, int64_t stride, const double *restrict R, double *restrict A) {
    for (int64_t i = 0; i < m; i += TALL) {
        for (int64_t j = 0; j < i + TALL && j < m; j += WIDE) {
            double sums[TALL][WIDE] = {{0.0}};
            const double *restrict a = R + i, *restrict b = R + j;
            for (int64_t s = 0; s < n; s++, a += stride, b += stride)
                for (int y = 0; y < TALL; y++)
                    for (int x = 0; x < WIDE; x++) sums[y][x] += a[y] * b[x];
            for (int y = 0; y < TALL && i + y < m; y++)
                for (int x = 0; x < WIDE && j + x <= i + y; x++) A[(i + y) * m + j + x] = sums[y][x];
        }
    }
}

/* Prior variance of where the optimum of a knob lies, and of how it moves with component j of x. */
static inline double move_variance(const Fit *fit, int64_t knob, int64_t j) {
    return fit->location_variance[knob] * (j ? SLOPE_VARIANCE : 1.0);
}

/* Gaps to the optimum [d, n], and what is left of y [n]. */
WIDER static void measure_residual(const Fit *fit, const double *theta, double *gaps, double *restrict residual) {
    const int64_t n = fit->n, d = fit->dims->d, size = 1 + fit->dims->r;
    EACH(s, n) residual[s] = fit->y[s] - theta[0];
    for (int64_t i = 0; i < d; i++) {
        const double *M = theta + 1 + d + i * size, *u = fit->u + i * WINDOW, q = theta[1 + i];
        double *restrict gap = gaps + i * WINDOW;
        EACH(s, n) gap[s] = u[s] - M[0];
        for (int64_t j = 1; j < size; j++) EACH(s, n) gap[s] -= M[j] * fit->x[j * WINDOW + s];
        EACH(s, n) residual[s] -= gap[s] * gap[s] * q;
    }
    JOIN();
}

/* pull [m] = precision (prior - theta); returns its product with prior - theta. */
static double pull_to_prior(const Fit *fit, const double *theta) {
    const int64_t d = fit->dims->d, p = fit->dims->p, size = 1 + fit->dims->r, m = fit->dims->m;
    double *pull = fit->pull, *away = fit->away;
    EACH(i, m) away[i] = fit->prior[i] - theta[i];
    JOIN();
    pull[0] = fit->level_precision * away[0];
    EACH(i, d) {
        pull[1 + i] = dot(d, fit->shapes + i * p, away + 1);
        for (int64_t j = 0; j < size; j++) {
            const int64_t at = 1 + d + i * size + j;
            pull[at] = away[at] / move_variance(fit, i, j);
        }
    }
    JOIN();
    return dot(m, pull, away);
}

static double cost_of(const Fit *fit, const double *residual) {
    EACH(s, fit->n) fit->side[s] = fit->root[s] * residual[s];
    JOIN();
    return dot(fit->n, fit->side, fit->side);
}

/* x <- (lower lower')^-1 x */
static void solve_factored(int64_t n, const double *lower, double *x) {
    solve_lower(n, lower, x);
    for (int64_t i = n - 1; i >= 0; i--) {
        const double own = x[i] / lower[i * (n + 1)];
        EACH(k, i + 1) x[k] = k < i ? x[k] - own * lower[i * n + k] : own;
        JOIN();
    }
}

/* The step; `pull` is that at theta. Returns 0 if there is one. */
static int make_step(const Fit *fit) {
    const int64_t n = fit->n, d = fit->dims->d, p = fit->dims->p, m = fit->dims->m, size = 1 + fit->dims->r;
    double *A = fit->A;
    EACH(i, m) fit->step[i] = fit->pull[i];
    EACH(s, n) {
        double *J = fit->J + s * fit->stride, root = fit->root[s];
        fit->side[s] = root * fit->residual[s];
        J[0] = root;
        for (int64_t i = 0; i < d; i++) {
            const double gap = fit->gaps[i * WINDOW + s], slope = -2.0 * fit->theta[1 + i] * (root * gap);
            J[1 + i] = root * (gap * gap);
            for (int64_t j = 0; j < size; j++) J[1 + d + i * size + j] = slope * fit->x[j * WINDOW + s];
        }
        for (int64_t i = m; i < fit->stride; i++) J[i] = 0.0;
    }
    for (int64_t s = 0; s < n; s++) add_scaled(m, fit->side[s], fit->J + s * fit->stride, fit->step);
    square_of(n, m, fit->stride, fit->J, A);
    A[0] += fit->level_precision;
    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = 0; j <= i; j++) A[(1 + i) * m + 1 + j] += fit->shapes[i * p + j];
        for (int64_t j = 0; j < size; j++) A[(1 + d + i * size + j) * (m + 1)] += 1.0 / move_variance(fit, i, j);
    }
    if (cholesky(m, A, fit->lower)) return 1;
    solve_factored(m, fit->lower, fit->step);
    return 0;
}

/* One Gauss-Newton step. Returns 1 if it helped, 0 if no length did, -1 if there is none. */
static int improve(Fit *fit) {
    const int64_t m = fit->dims->m;
    const double cost = pull_to_prior(fit, fit->theta) + cost_of(fit, fit->residual);
    if (make_step(fit)) return -1;
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        EACH(j, m) fit->moved[j] = fit->theta[j] + LENGTHS[i] * fit->step[j];
        JOIN();
        measure_residual(fit, fit->moved, fit->after, fit->left);
        if (cost_of(fit, fit->left) + pull_to_prior(fit, fit->moved) <= cost) {
            double *theta = fit->theta, *gaps = fit->gaps, *residual = fit->residual;
            fit->theta = fit->moved, fit->gaps = fit->after, fit->residual = fit->left;
            fit->moved = theta, fit->after = gaps, fit->left = residual;
            return 1;
        }
    }
    return 0;
}

/* The root of how far each sample is trusted, over the noise: one that lies far from the fit so far counts little. */
static void weigh_samples(const Fit *fit, const double *weights, double noise) {
    const int64_t n = fit->n;
    double *squares = fit->left; /* room that is not needed yet */
    EACH(s, n) squares[s] = fit->residual[s] * fit->residual[s];
    JOIN();
    const double half = (double)(1 + (n - 1) / 2), middle = value_reaching(n, squares, NULL, half);
    const double next = n % 2 ? middle : value_reaching(n, squares, NULL, half + 1.0);
    const double usual = most(0.5 * (middle + next) / CHI2_MEDIAN, noise);
    EACH(s, n) fit->root[s] = sqrt(residual_trust(squares[s], usual) * weights[s] / noise);
    JOIN();
}

/* The window as the fit wants it: samples side by side, y in units of the curvature. */
static void read_window(const Fit *fit, const State *one, double offset, double a) {
    const Dims *dims = fit->dims;
    const int64_t d = dims->d, size = 1 + dims->r;
    double x[1 + RANK];
    EACH(s, fit->n) {
        encode_reduced(dims, one, one->window_contexts + s * dims->w, x);
        for (int64_t j = 0; j < size; j++) fit->x[j * WINDOW + s] = x[j];
        for (int64_t i = 0; i < d; i++) fit->u[i * WINDOW + s] = one->window_points[s * d + i];
        const double y = dot(dims->k, one->window_losses + s * dims->k, one->weights);
        fit->y[s] = clip((y - offset) / a, -LARGEST_TARGET, LARGEST_TARGET);
    }
    JOIN();
}

void fit_moving(const Dims *dims, const State *one, const Belief *belief, const Prior *prior, double *scratch) {
    const int64_t d = dims->d, p = dims->p, m = dims->m, size = 1 + dims->r, steps = samples_seen(one);
    const double offset = *belief->offset, a = *belief->a;
    Fit fit = make_fit(dims, scratch);
    fit.n = steps < WINDOW ? steps : WINDOW;
    if (steps < EARLY_SAMPLES || steps % COMPONENTS_EVERY_STEPS == 0)
        refresh_components(dims, one); /* here only: theta and its covariance must be in the same encoding */
    read_window(&fit, one, offset, a);
    fit.level_precision = 1.0 / prior->level_variance;
    fit.shapes = prior->precision + (1 + d) * p + 1 + d;
    fit.location_variance = one->location_variance;
    memset(fit.prior, 0, sizeof(double) * (size_t)m);
    fit.prior[0] = centred_level(one, offset, a);
    for (int64_t i = 0; i < d; i++) {
        fit.prior[1 + i] = prior->mean[1 + d + i];
        fit.prior[1 + d + i * size] = one->location[i];
    }
    memcpy(fit.theta, *one->fitted > 0.0 ? one->theta : fit.prior, sizeof(double) * (size_t)m);
    if (*one->fitted > 0.0) {
        fit.theta[0] -= offset;
        for (int64_t i = 0; i < 1 + d; i++) fit.theta[i] = clip(fit.theta[i] / a, -LARGEST_TARGET, LARGEST_TARGET);
    }
    measure_residual(&fit, fit.theta, fit.gaps, fit.residual);
    weigh_samples(&fit, one->window_weights, noise_variance(one, E - 1));
    int helped = 1;
    for (int i = 0; i < 1 + (fit.n < YOUNG_SAMPLES ? YOUNG_EXTRA_STEPS : 0) && helped == 1; i++) helped = improve(&fit);
    if (helped >= 0 && inverse_spd(m, fit.A, one->covariance, fit.lower)) helped = -1;
    *one->fitted = helped < 0 ? 0.0 : 1.0; /* without an inverse the steps so far led nowhere: as where y jumps */
    if (helped < 0) return;
    *one->unit = a;
    for (int64_t i = 0; i < 1 + d; i++) fit.theta[i] *= a;
    fit.theta[0] += offset;
    memcpy(one->theta, fit.theta, sizeof(double) * (size_t)m);
}
