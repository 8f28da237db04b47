/* The moving optimum: a bowl whose optimum moves linearly with the context; warm Gauss-Newton steps on a window.

   symbol   shape        meaning
   u        [n, d]       points relative to the default, in [-2, 2]
   x        [n, 1 + r]   a one, and the leading principal components of the context, standardised
   y        [n]          target, in units of the shared curvature
   theta    b, q, M      y = b + sum_i q_i (u_i - M_i x)^2 with q [d], M [d, 1 + r]
   J        [n, m]       slope of y by theta */
#include "learn.h"

#include <string.h>

#define SLOPE_VARIANCE 0.6     /* of how the optimum moves with x, in units of the variance of the optimum itself */
#define LARGEST_TARGET 1e12    /* in units of the curvature: a constant metric that jumps must not overflow */
#define FARTHEST_OPTIMUM 1e3   /* in u: one absurd context must not throw the others out */

enum { PLENTY_SAMPLES = 40, COMPONENTS_EVERY_STEPS = 8 }; /* from so many on, so long between looks */
enum { YOUNG_SAMPLES = 50, YOUNG_EXTRA_STEPS = 3 };    /* up to so many, every fit takes so many steps more */
enum { TOGETHER = 4 };                                 /* samples that are added to the normal equations at once */
static const double STEP_LENGTHS[] = {1.0, 0.4, 0.1};  /* tried in turn */

/* A long context is projected at random to fewer dimensions [w]. */
static void reduce_context(const Dims *dims, const double *context, double *reduced) {
    const int64_t c = dims->c, w = dims->w;
    for (int64_t j = 0; j < w; j++) reduced[j] = c > w ? 0.0 : context[j];
    if (c > w)
        for (int64_t i = 0; i < c; i++)
            for (int64_t j = 0; j < w; j++) reduced[j] += context[i] * dims->sketch[i * w + j];
}

/* x [1 + r] of a reduced context. */
static void encode_reduced(const Dims *dims, const State *one, const double *reduced, double *x) {
    const int64_t w = dims->w, r = dims->r;
    x[0] = 1.0;
    for (int64_t j = 0; j < r; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < w; i++) sum += (reduced[i] - one->centre[i]) * one->encode[i * r + j];
        x[1 + j] = clip(sum, -3.0, 3.0);
    }
}

void encode_context(const Dims *dims, const State *one, const double *context, double *x) {
    double reduced[SKETCH_DIMENSIONS];
    reduce_context(dims, context, reduced);
    encode_reduced(dims, one, reduced, x);
}

void observe_window(const Dims *dims, const State *one, const double *u, const double *context, const double *v,
                    double weight) {
    const int64_t w = dims->w, row = (int64_t)*one->steps % WINDOW;
    const double n = *one->steps + 1.0;
    double *reduced = one->window_contexts + row * w, gap[SKETCH_DIMENSIONS];
    reduce_context(dims, context, reduced);
    memcpy(one->window_points + row * dims->d, u, sizeof(double) * (size_t)dims->d);
    memcpy(one->window_losses + row * dims->k, v, sizeof(double) * (size_t)dims->k);
    one->window_weights[row] = weight;
    for (int64_t i = 0; i < w; i++) {
        gap[i] = reduced[i] - one->reduced_mean[i];
        one->reduced_mean[i] += gap[i] / n;
    }
    for (int64_t i = 0; i < w; i++) {
        for (int64_t j = 0; j < w; j++) {
            double *moment = one->reduced_moments + i * w + j;
            *moment += (gap[i] * (reduced[j] - one->reduced_mean[j]) - *moment) / n;
        }
    }
}

/* What turns reduced contexts into components, and back: encode [w, r], decode [r, w]. */
static void make_components(const Dims *dims, const State *one, double *encode, double *decode) {
    const int64_t w = dims->w, r = dims->r;
    double spread[SKETCH_DIMENSIONS];
    for (int64_t i = 0; i < w; i++) {
        const double variance = one->reduced_moments[i * (w + 1)], mean = one->reduced_mean[i];
        spread[i] = variance > 1e-12 * (variance + mean * mean) ? sqrt(variance) : 1.0;
    }
    if (w <= r) {
        for (int64_t i = 0; i < w; i++) {
            for (int64_t j = 0; j < r; j++) {
                encode[i * r + j] = i == j ? 1.0 / spread[i] : 0.0;
                decode[j * w + i] = i == j ? spread[i] : 0.0;
            }
        }
        return;
    }
    double A[SKETCH_DIMENSIONS * SKETCH_DIMENSIONS], values[SKETCH_DIMENSIONS];
    double vectors[SKETCH_DIMENSIONS * SKETCH_DIMENSIONS];
    for (int64_t i = 0; i < w; i++)
        for (int64_t j = 0; j < w; j++) A[i * w + j] = one->reduced_moments[i * w + j] / (spread[i] * spread[j]);
    eigen_symmetric(w, A, values, vectors);
    for (int64_t j = 0; j < r; j++) {
        const double size = sqrt(most(values[w - r + j], 1e-9));
        for (int64_t i = 0; i < w; i++) {
            const double axis = vectors[i * w + w - r + j];
            encode[i * r + j] = axis / size / spread[i];
            decode[j * w + i] = axis * size * spread[i];
        }
    }
}

/* Look at the components anew, and re-express the optimum in them. */
static void refresh_components(const Dims *dims, const State *one) {
    const int64_t d = dims->d, w = dims->w, r = dims->r;
    double encode[SKETCH_DIMENSIONS * RANK], decode[RANK * SKETCH_DIMENSIONS];
    make_components(dims, one, encode, decode);
    for (int64_t knob = 0; knob < d && *one->fitted > 0.0; knob++) {
        double *M = one->theta + 1 + d + knob * (1 + r), slopes[SKETCH_DIMENSIONS]; /* by the reduced context */
        double moved = M[0];
        for (int64_t i = 0; i < w; i++) {
            slopes[i] = dot(r, M + 1, one->encode + i * r);
            moved += slopes[i] * (one->reduced_mean[i] - one->centre[i]);
        }
        M[0] = clip(moved, -FARTHEST_OPTIMUM, FARTHEST_OPTIMUM);
        for (int64_t j = 0; j < r; j++)
            M[1 + j] = clip(dot(w, slopes, decode + j * w), -FARTHEST_OPTIMUM, FARTHEST_OPTIMUM);
    }
    memcpy(one->centre, one->reduced_mean, sizeof(double) * (size_t)w);
    memcpy(one->encode, encode, sizeof(double) * (size_t)(w * r));
}

/* One fit: its data, its prior, and where it stands. */
typedef struct {
    const Dims *dims;
    int64_t n;                        /* samples */
    const double *u;                  /* [n, d] */
    double *x, *y, *trust;            /* [n, 1 + r], [n], [n] */
    double *prior, *pull;             /* [m] mean; [m] precision (mean - theta) */
    double level_precision;
    const double *shapes;             /* precision of the curvatures: a block of that of the local experts */
    const double *location_variance;  /* [d] */
    double *theta, *gaps, *residual;  /* [m], [n, d] to the optimum, [n] */
    double *moved, *after, *left;     /* the same after a step */
    double *step;                     /* [m] */
    double *jacobian, *A, *scratch;   /* [n and a few, m], [m, m], [m, m] */
} Fit;

int64_t fit_scratch(const Dims *dims) {
    const int64_t n = WINDOW, d = dims->d, m = dims->m;
    return n * (1 + dims->r) + 4 * n + 2 * n * d + 5 * m + (n + TOGETHER) * m + 2 * m * m;
}

static Fit make_fit(const Dims *dims, double *scratch) {
    const int64_t n = WINDOW, d = dims->d, m = dims->m;
    Fit fit = {.dims = dims};
    fit.x = scratch;
    fit.y = fit.x + n * (1 + dims->r);
    fit.trust = fit.y + n;
    fit.residual = fit.trust + n;
    fit.left = fit.residual + n;
    fit.gaps = fit.left + n;
    fit.after = fit.gaps + n * d;
    fit.prior = fit.after + n * d;
    fit.pull = fit.prior + m;
    fit.theta = fit.pull + m;
    fit.moved = fit.theta + m;
    fit.step = fit.moved + m;
    fit.jacobian = fit.step + m;
    fit.A = fit.jacobian + (n + TOGETHER) * m;
    fit.scratch = fit.A + m * m;
    return fit;
}

/* Gaps to the optimum [n, d], and what is left of y [n]. */
static void measure_residual(const Fit *fit, const double *theta, double *gaps, double *residual) {
    const int64_t d = fit->dims->d, size = 1 + fit->dims->r;
    for (int64_t s = 0; s < fit->n; s++) {
        const double *x = fit->x + s * size, *M = theta + 1 + d;
        double left = fit->y[s] - theta[0], bowl = 0.0;
        for (int64_t i = 0; i < d; i++) {
            double optimum = 0.0;
            for (int64_t j = 0; j < size; j++) optimum += x[j] * M[i * size + j];
            const double gap = fit->u[s * d + i] - optimum;
            gaps[s * d + i] = gap;
            bowl += gap * gap * theta[1 + i];
        }
        residual[s] = left - bowl;
    }
}

/* pull [m] = precision (prior - theta); returns its product with prior - theta. */
static double pull_to_prior(const Fit *fit, const double *theta) {
    const int64_t d = fit->dims->d, p = fit->dims->p, size = 1 + fit->dims->r, m = fit->dims->m;
    const double *prior = fit->prior;
    double *pull = fit->pull, cost = 0.0;
    pull[0] = fit->level_precision * (prior[0] - theta[0]);
    for (int64_t i = 0; i < d; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < d; j++) sum += fit->shapes[i * p + j] * (prior[1 + j] - theta[1 + j]);
        pull[1 + i] = sum;
        for (int64_t j = 0; j < size; j++) {
            const int64_t at = 1 + d + i * size + j;
            pull[at] = (prior[at] - theta[at]) / (fit->location_variance[i] * (j ? SLOPE_VARIANCE : 1.0));
        }
    }
    for (int64_t i = 0; i < m; i++) cost += pull[i] * (prior[i] - theta[i]);
    return cost;
}

static double cost_of(const Fit *fit, const double *residual) {
    double cost = 0.0;
    for (int64_t s = 0; s < fit->n; s++) cost += fit->trust[s] * (residual[s] * residual[s]);
    return cost;
}

/* Normal equations at theta: the lower triangle of the precision A [m, m], and the slope added to `pull`. */
static void make_normal_equations(const Fit *fit) {
    const int64_t n = fit->n, d = fit->dims->d, p = fit->dims->p, m = fit->dims->m, size = 1 + fit->dims->r;
    double *A = fit->A;
    memset(fit->jacobian + n * m, 0, sizeof(double) * (size_t)(TOGETHER * m));
    memset(A, 0, sizeof(double) * (size_t)(m * m));
    for (int64_t s = 0; s < n; s++) {
        double *J = fit->jacobian + s * m;
        const double *gaps = fit->gaps + s * d, *x = fit->x + s * size;
        J[0] = 1.0;
        for (int64_t i = 0; i < d; i++) {
            const double slope = -2.0 * fit->theta[1 + i] * gaps[i];
            J[1 + i] = gaps[i] * gaps[i];
            for (int64_t j = 0; j < size; j++) J[1 + d + i * size + j] = slope * x[j];
        }
        add_scaled(m, fit->trust[s] * fit->residual[s], J, fit->pull);
    }
    for (int64_t s = 0; s < n; s += TOGETHER) {
        const double *restrict J0 = fit->jacobian + s * m, *restrict J1 = J0 + m, *restrict J2 = J1 + m;
        const double *restrict J3 = J2 + m;
        const double w0 = fit->trust[s], w1 = s + 1 < n ? fit->trust[s + 1] : 0.0;
        const double w2 = s + 2 < n ? fit->trust[s + 2] : 0.0, w3 = s + 3 < n ? fit->trust[s + 3] : 0.0;
        for (int64_t i = 0; i < m; i++) {
            const double t0 = w0 * J0[i], t1 = w1 * J1[i], t2 = w2 * J2[i], t3 = w3 * J3[i];
            double *restrict row = A + i * m;
            for (int64_t j = 0; j <= i; j++) row[j] += (t0 * J0[j] + t1 * J1[j]) + (t2 * J2[j] + t3 * J3[j]);
        }
    }
    A[0] += fit->level_precision;
    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = 0; j <= i; j++) A[(1 + i) * m + 1 + j] += fit->shapes[i * p + j];
        for (int64_t j = 0; j < size; j++)
            A[(1 + d + i * size + j) * (m + 1)] += 1.0 / (fit->location_variance[i] * (j ? SLOPE_VARIANCE : 1.0));
    }
}

/* One Gauss-Newton step; `covariance` becomes the inverse of A. Returns 1 if it helped, 0 if none did,
   -1 if A has no inverse. */
static int improve(Fit *fit, double *covariance) {
    const int64_t m = fit->dims->m;
    const double cost = pull_to_prior(fit, fit->theta) + cost_of(fit, fit->residual);
    make_normal_equations(fit);
    if (inverse_spd(m, fit->A, covariance, fit->scratch)) return -1;
    symmetric_times(m, covariance, fit->pull, fit->step);
    for (size_t i = 0; i < sizeof STEP_LENGTHS / sizeof *STEP_LENGTHS; i++) {
        for (int64_t j = 0; j < m; j++) fit->moved[j] = fit->theta[j] + STEP_LENGTHS[i] * fit->step[j];
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

/* How far each sample is trusted, over the noise: one that lies far from the fit so far counts little. */
static void weigh_samples(const Fit *fit, const double *weights, double noise) {
    const int64_t n = fit->n;
    double squares[WINDOW];
    int64_t order[WINDOW], spare[WINDOW];
    for (int64_t s = 0; s < n; s++) squares[s] = fit->residual[s] * fit->residual[s];
    sort_indices(n, squares, order, spare);
    const double middle = 0.5 * (squares[order[(n - 1) / 2]] + squares[order[n / 2]]);
    const double usual = most(middle / CHI2_MEDIAN, noise);
    for (int64_t s = 0; s < n; s++) fit->trust[s] = residual_trust(squares[s], usual) * weights[s] / noise;
}

void fit_moving(const Dims *dims, const State *one, const Belief *belief, const Prior *prior, double *scratch) {
    const int64_t d = dims->d, p = dims->p, m = dims->m, size = 1 + dims->r, steps = (int64_t)*one->steps;
    const double offset = *belief->offset, a = *belief->a;
    double noises[E];
    Fit fit = make_fit(dims, scratch);
    fit.n = steps < WINDOW ? steps : WINDOW;
    if (steps < PLENTY_SAMPLES || steps % COMPONENTS_EVERY_STEPS == 0)
        refresh_components(dims, one); /* here only: theta and its covariance must be in the same encoding */
    fit.u = one->window_points;
    for (int64_t s = 0; s < fit.n; s++) {
        encode_reduced(dims, one, one->window_contexts + s * dims->w, fit.x + s * size);
        const double y = dot(dims->k, one->window_losses + s * dims->k, one->weights);
        fit.y[s] = clip((y - offset) / a, -LARGEST_TARGET, LARGEST_TARGET);
    }
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
    noise_variances(one, noises);
    weigh_samples(&fit, one->window_weights, noises[E - 1]);
    int helped = 1;
    for (int i = 0; i < 1 + (fit.n < YOUNG_SAMPLES ? YOUNG_EXTRA_STEPS : 0) && helped == 1; i++)
        helped = improve(&fit, one->covariance);
    *one->fitted = helped < 0 ? 0.0 : 1.0; /* without an inverse the steps so far led nowhere: as where y jumps */
    if (helped < 0) return;
    *one->unit = a;
    for (int64_t i = 0; i < 1 + d; i++) fit.theta[i] *= a;
    fit.theta[0] += offset;
    memcpy(one->theta, fit.theta, sizeof(double) * (size_t)m);
}
