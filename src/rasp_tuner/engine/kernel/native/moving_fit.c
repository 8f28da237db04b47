/* The fit of the moving optimum: a bowl whose optimum moves linearly with the context; warm Gauss-Newton steps.

   symbol   shape        meaning
   u        [d, n]       points relative to the default, in [-2, 2]; here samples lie side by side
   x        [1 + r, n]   a one, and the components of the context
   y        [n]          target, in units of the shared curvature
   theta    b, q, M      y = b + sum_i q_i (u_i - M_i x)^2 with q [d], M [d, 1 + r]
   J        [m + 1, n]   slope of y by theta, and what is left of y, times the root of what a sample counts
   A        [m + 1, .]   precision of theta: J J' and that of the prior; its last column is the right side of a step */
#include "learn.h"

#include <string.h>

enum { TALL = 4, WIDE = 2 };                            /* the part of a product that is formed at once */
static const double LENGTHS[] = STEP_LENGTHS;           /* tried in turn */

/* One fit: its data, its prior, and where it stands. */
typedef struct {
    const Dims *dims;
    int64_t n;                        /* samples */
    double *u, *x, *y, *root;         /* [d, WINDOW], [1 + r, WINDOW], [n], [n] of what a sample counts */
    double *prior, *away, *pull;      /* [m] mean; [m] mean - theta; [m] precision (mean - theta) */
    double level_precision;
    const double *shapes;             /* precision of the curvatures: a block of that of the local experts */
    const double *location_variance;  /* [d] */
    double *theta, *gaps, *residual;  /* [m], [d, WINDOW] to the optimum, [n] */
    double *moved, *after, *left;     /* the same after a step */
    double *step, *side;              /* [m]; [n] */
    double *J, *A, *lower;            /* [m + 1, WINDOW]; [m + 1, m + 1]; [m, m] */
} Fit;

int64_t fit_scratch(const Dims *dims) {
    const int64_t n = WINDOW, m = dims->m;
    return n * (3 * dims->d + 1 + dims->r) + 5 * n + 6 * m + n * (m + 1) + (m + 1) * (m + 1) + m * m;
}

static Fit make_fit(const Dims *dims, double *scratch) {
    const int64_t n = WINDOW, d = dims->d, m = dims->m;
    Fit fit = {.dims = dims};
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
    fit.A = fit.J + n * (m + 1);
    fit.lower = fit.A + (m + 1) * (m + 1);
    return fit;
}

/* A [rows, rows] = J J' for J [rows, WINDOW], from the diagonal on. */
WIDER static void square_of(int64_t n, int64_t rows, double *J, double *A) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t s = n; s % AT_ONCE; s++) J[i * WINDOW + s] = 0.0;
    for (int64_t i = 0; i < rows; i += TALL) {
        const AtOnce *a[TALL], *b[WIDE];
        for (int y = 0; y < TALL; y++) a[y] = (const AtOnce *)(J + (i + y < rows ? i + y : rows - 1) * WINDOW);
        for (int64_t j = 0; j < i + TALL && j < rows; j += WIDE) {
            AtOnce sums[TALL][WIDE] = {{{0.0}}};
            for (int x = 0; x < WIDE; x++) b[x] = (const AtOnce *)(J + (j + x < rows ? j + x : rows - 1) * WINDOW);
            for (int64_t s = 0; s * AT_ONCE < n; s++)
                for (int y = 0; y < TALL; y++)
                    for (int x = 0; x < WIDE; x++) sums[y][x] += a[y][s] * b[x][s];
            for (int y = 0; y < TALL && i + y < rows; y++)
                for (int x = 0; x < WIDE && j + x <= i + y; x++) {
                    const double *parts = (const double *)&sums[y][x];
                    double sum = 0.0;
                    for (int c = 0; c < AT_ONCE; c++) sum += parts[c];
                    A[(j + x) * rows + i + y] = sum;
                }
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

/* J, from the gaps and what is left of y at theta. */
WIDER static void make_slopes(const Fit *fit) {
    const int64_t n = fit->n, d = fit->dims->d, size = 1 + fit->dims->r, m = fit->dims->m;
    const double *restrict root = fit->root, *restrict x = fit->x, *restrict residual = fit->residual;
    double *restrict J = fit->J;
    EACH(s, n) J[s] = root[s];
    for (int64_t i = 0; i < d; i++) {
        const double *restrict gap = fit->gaps + i * WINDOW, by = -2.0 * fit->theta[1 + i];
        double *restrict bend = J + (1 + i) * WINDOW, *restrict slope = J + (1 + d + i * size) * WINDOW;
        EACH(s, n) bend[s] = root[s] * (gap[s] * gap[s]);
        EACH(s, n) slope[s] = by * (root[s] * gap[s]);
        for (int64_t j = 1; j < size; j++) EACH(s, n) slope[j * WINDOW + s] = slope[s] * x[j * WINDOW + s];
    }
    EACH(s, n) J[m * WINDOW + s] = root[s] * residual[s];
    JOIN();
}

/* The step; `pull` is that at theta. Returns 0 if there is one; then A holds the factor of the precision. */
WIDER static int make_step(const Fit *fit) {
    const int64_t d = fit->dims->d, p = fit->dims->p, m = fit->dims->m, size = 1 + fit->dims->r, rows = m + 1;
    double *A = fit->A, *step = fit->step;
    make_slopes(fit);
    square_of(fit->n, rows, fit->J, A);
    A[0] += fit->level_precision;
    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = i; j < d; j++) A[(1 + i) * rows + 1 + j] += fit->shapes[i * p + j];
        for (int64_t j = 0; j < size; j++) A[(1 + d + i * size + j) * (rows + 1)] += 1.0 / move_variance(fit, i, j);
    }
    for (int64_t i = 0; i < m; i++) A[i * rows + m] += fit->pull[i];
    if (factor(m, rows, A)) return 1;
    for (int64_t i = m - 1; i >= 0; i--) {
        const double *row = A + i * rows;
        step[i] = (row[m] - dot(m - 1 - i, row + i + 1, step + i + 1)) / row[i];
    }
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
    *one->fitted = helped < 0 ? 0.0 : 1.0; /* without a factor the steps so far led nowhere: as where y jumps */
    if (helped < 0) return;
    transpose_root(m, m + 1, fit.A, fit.lower);
    inverse_of_root(m, fit.lower, one->covariance);
    *one->unit = a;
    for (int64_t i = 0; i < 1 + d; i++) fit.theta[i] *= a;
    fit.theta[0] += offset;
    memcpy(one->theta, fit.theta, sizeof(double) * (size_t)m);
}
