/* A refit of the discrete family: evidence of kernel.py, with products of matrices of its own. They are done before those
 * of NumPy's linear algebra have begun to pay, and are the same on every machine. */
#include <math.h>

#include "discrete.h"
#include "kernel.h"
#include "linear.h"

enum { TILE_ROWS = 4, TILE_COLUMNS = 8, BASE_ROWS = 24 };
enum { BY_LINEAR, BY_NEAR, BY_KC, BY_GAPS, BY_GRAM_GAPS, BY_GRAM, BY_GRAM_KC, INFORMATION, SLOPES };

/* Four numbers that the processor may add at once; anywhere in memory. */
typedef double Four __attribute__((vector_size(32)));
typedef double Anywhere __attribute__((vector_size(32), aligned(8), may_alias));
#define INLINE static inline __attribute__((always_inline)) /* else it is not compiled for wider vectors */

/* Numbers of a matrix: element (i, j) is at[i * down + j * right]. */
typedef struct {
    const double *at;
    int64_t down, right;
} View;

/* C [4, 8] = A [4, k] B [k, 8], all in registers. */
INLINE void tile(int64_t k, View A, const double *B, int64_t stride, double *C, int64_t apart) {
    Four s0 = {0.0}, s1 = {0.0}, s2 = {0.0}, s3 = {0.0}, t0 = {0.0}, t1 = {0.0}, t2 = {0.0}, t3 = {0.0};
    for (int64_t t = 0; t < k; t++) {
        const double *a = A.at + t * A.right;
        Four left = *(const Anywhere *)(B + t * stride), right = *(const Anywhere *)(B + t * stride + 4);
        s0 += a[0] * left, t0 += a[0] * right;
        s1 += a[A.down] * left, t1 += a[A.down] * right;
        s2 += a[2 * A.down] * left, t2 += a[2 * A.down] * right;
        s3 += a[3 * A.down] * left, t3 += a[3 * A.down] * right;
    }
    *(Anywhere *)C = s0, *(Anywhere *)(C + 4) = t0;
    *(Anywhere *)(C + apart) = s1, *(Anywhere *)(C + apart + 4) = t1;
    *(Anywhere *)(C + 2 * apart) = s2, *(Anywhere *)(C + 2 * apart + 4) = t2;
    *(Anywhere *)(C + 3 * apart) = s3, *(Anywhere *)(C + 3 * apart + 4) = t3;
}

/* The same for what is left over at the edges. */
INLINE void edge(int64_t m, int64_t n, int64_t k, View A, const double *B, int64_t stride, double *C, int64_t apart) {
    for (int64_t i = 0; i < m; i++) {
        memset(C + i * apart, 0, sizeof(double) * (size_t)n);
        for (int64_t t = 0; t < k; t++) {
            add_scaled(n, A.at[i * A.down + t * A.right], B + t * stride, C + i * apart);
        }
    }
}

/* C [m, n] = A [m, k] B [k, n]; rows of B and C are `stride` and `apart` apart. */
WIDER static void product(int64_t m, int64_t n, int64_t k, View A, const double *B, int64_t stride, double *C,
                          int64_t apart) {
    int64_t i = 0;
    for (; i + TILE_ROWS <= m; i += TILE_ROWS) {
        View rows = {A.at + i * A.down, A.down, A.right};
        int64_t j = 0;
        for (; j + TILE_COLUMNS <= n; j += TILE_COLUMNS) tile(k, rows, B + j, stride, C + i * apart + j, apart);
        if (j < n) edge(TILE_ROWS, n - j, k, rows, B + j, stride, C + i * apart + j, apart);
    }
    View rest = {A.at + i * A.down, A.down, A.right};
    if (i < m) edge(m - i, n, k, rest, B, stride, C + i * apart, apart);
}

/* out [n, m] = A' for A [m, n] */
static void transpose(int64_t m, int64_t n, const double *A, double *out) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) out[j * m + i] = A[i * n + j];
    }
}

/* The same as below, of up to BASE_ROWS rows. */
WIDER static int small_half_inverse(int64_t n, const double *A, int64_t stride, double *W, int64_t apart) {
    double lower[BASE_ROWS * BASE_ROWS] = {0.0};
    for (int64_t i = 0; i < n; i++) memcpy(lower + i * n, A + i * stride, sizeof(double) * (size_t)n);
    if (cholesky(n, lower, lower)) return 1;
    for (int64_t i = 0; i < n; i++) {
        double *row = W + i * apart, by = 1.0 / lower[i * n + i];
        memset(row, 0, sizeof(double) * (size_t)n);
        for (int64_t k = 0; k < i; k++) add_scaled(k + 1, -lower[i * n + k], W + k * apart, row);
        for (int64_t k = 0; k < i; k++) row[k] *= by;
        row[i] = by;
    }
    return 0;
}

/* A triangle W [n, n] with W' W the inverse of A, by halves; rows are `stride` and `apart` apart. Scratch [n + 8, n].
 * Returns 0 if A is positive definite. */
static int half_inverse(int64_t n, const double *A, int64_t stride, double *W, int64_t apart, double *scratch) {
    if (n <= BASE_ROWS) return small_half_inverse(n, A, stride, W, apart);
    int64_t h = n / 2, r = n - h;
    double *beside = scratch, *rest = scratch + h * r, *below = W + h * apart, *last = below + h;
    const double *corner = A + h * stride + h;
    if (half_inverse(h, A, stride, W, apart, scratch)) return 1;
    View first = {W, apart, 1}, turned = {beside, 1, r};
    product(h, r, h, first, A + h, stride, beside, r); /* [h, r] */
    product(r, r, h, turned, beside, r, rest, r);
    for (int64_t i = 0; i < r; i++) {
        for (int64_t j = 0; j < r; j++) rest[i * r + j] = corner[i * stride + j] - rest[i * r + j];
    }
    if (half_inverse(r, rest, r, last, apart, rest + r * r)) return 1;
    View second = {last, apart, 1};
    product(r, h, h, turned, W, apart, rest, h);
    product(r, h, r, second, rest, h, below, apart);
    for (int64_t i = 0; i < r; i++) {
        for (int64_t j = 0; j < h; j++) below[i * apart + j] = -below[i * apart + j];
    }
    for (int64_t i = 0; i < h; i++) memset(W + i * apart + h, 0, sizeof(double) * (size_t)r);
    return 0;
}

/* inverse [n, n] = W' W, symmetric to the last digit. */
WIDER static void squared(int64_t n, const double *W, double *inverse) {
    for (int64_t i = 0; i < n; i += TILE_ROWS) {
        int64_t m = n - i < TILE_ROWS ? n - i : TILE_ROWS, width = i + m, j = 0; /* up to the diagonal */
        View rows = {W + i * n + i, 1, n}; /* above row i, these columns are zero */
        for (; m == TILE_ROWS && j + TILE_COLUMNS <= width; j += TILE_COLUMNS) {
            tile(n - i, rows, W + i * n + j, n, inverse + i * n + j, n);
        }
        if (j < width) edge(m, width - j, n - i, rows, W + i * n + j, n, inverse + i * n + j, n);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++) inverse[j * n + i] = inverse[i * n + j];
    }
}

/* From products of the steps and main effects in `near` and `linear`: -D, the linear and the rugged part, the gram, and
 * the kernel matrix with its noises. */
WIDER static void fill_matrices(const Evidence *e, double *near, double *linear, double *rugged, double *matrix) {
    int64_t n = e->n;
    double va = e->va, vp = e->vp, rho = e->rho, own = 1.0 - e->rho, level = e->level, slope = e->level * e->vc;
    const double *restrict sizes = e->sizes;
    for (int64_t i = 0; i < n; i++) {
        double *restrict beside = near + i * n, *restrict along = linear + i * n, *restrict rough = rugged + i * n;
        double *restrict both = e->gram + i * n, *restrict row = matrix + i * n, size = sizes[i];
        const double *restrict close = e->kc + i * n;
        for (int64_t j = 0; j < n; j++) {
            rough[j] = beside[j] = (beside[j] - sizes[j]) - size;
        }
        exponentials(n, rough);
        for (int64_t j = 0; j < n; j++) {
            along[j] *= va;
            rough[j] *= vp;
            both[j] = along[j] + rough[j];
            row[j] = (slope * close[j] + level) + both[j] * (own * close[j] + rho);
        }
        row[i] += e->noises[i];
    }
}

/* One row of the sums below; apart, so that the compiler sees that no two arrays overlap. */
static inline void slope_row(int64_t n, double rho, double first, double noise, double level,
                             const double *restrict alpha, const double *restrict noises, const double *restrict means,
                             const double *restrict kc, const double *restrict gaps, const double *restrict near,
                             const double *restrict linear, const double *restrict gram,
                             const double *restrict inverse, double *restrict rugged, double *restrict columns,
                             double *restrict by_row, double *restrict rivals) {
    double own = 1.0 - rho;
    for (int64_t j = 0; j < n; j++) {
        double rest = first * alpha[j] - inverse[j], part = rest * (own * kc[j] + rho);
        rugged[j] *= part;
        by_row[j] += rugged[j];
        columns[BY_LINEAR * n + j] += part * linear[j];
        columns[BY_NEAR * n + j] += rugged[j] * near[j];
        columns[BY_GRAM * n + j] += rest * gram[j];
    }
    for (int64_t j = 0; j < n; j++) {
        double rest = (first * alpha[j] - inverse[j]) * kc[j], part = rest * gram[j];
        columns[BY_KC * n + j] += rest;
        columns[BY_GAPS * n + j] += rest * gaps[j];
        columns[BY_GRAM_KC * n + j] += part;
        columns[BY_GRAM_GAPS * n + j] += part * gaps[j];
    }
    for (int64_t j = 0; j < n; j++) {
        rivals[j] += level < means[j] ? kc[j] : 0.0;
        columns[INFORMATION * n + j] += noise * noises[j] * (inverse[j] * inverse[j]);
    }
}

/* Sums over the inverse that the gradient needs. All matrices are symmetric, so that sums along columns are those along
 * rows. `rugged` becomes its part of the gradient, summed in `by_row` [n]. Scratch [SLOPES, n]. */
WIDER static void add_slopes(const Evidence *e, const double *alpha, const double *means, const double *near,
                             const double *linear, double *rugged, double *scratch, double *by_row, double *sums) {
    int64_t n = e->n;
    memset(scratch, 0, sizeof(double) * (size_t)(SLOPES * n));
    memset(by_row, 0, sizeof(double) * (size_t)n);
    memset(e->rivals, 0, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        slope_row(n, e->rho, alpha[i], e->noises[i], means[i], alpha, e->noises, means, e->kc + i * n, e->gaps + i * n,
                  near + i * n, linear + i * n, e->gram + i * n, e->inverse + i * n, rugged + i * n, scratch, by_row,
                  e->rivals);
    }
    for (int s = 0; s < SLOPES; s++) {
        sums[s] = 0.0;
        for (int64_t j = 0; j < n; j++) sums[s] += scratch[s * n + j];
    }
}

/* The gradient [7 + d] of the log evidence in theta, whose noise has a step of its own; in the order of kernel.py.
 * Scratch [n, q]. */
static void set_gradient(const Knobs *knobs, const Evidence *e, const double *rugged, const double *by_row,
                         const double *sums, double *scratch) {
    int64_t n = e->n, q = knobs->q;
    double all = 0.0, of_contexts = e->level * e->vc, *by_knob = e->gradient + 7;
    View parts = {rugged, n, 1};
    for (int64_t i = 0; i < n; i++) all += by_row[i];
    e->gradient[0] = 0.5 * sums[BY_LINEAR];
    e->gradient[1] = 0.5 * all;
    e->gradient[2] = -0.5 * sums[BY_NEAR];
    e->gradient[3] = 0.5 * (of_contexts * sums[BY_GAPS] + (1.0 - e->rho) * sums[BY_GRAM_GAPS]) / (e->width * e->width);
    e->gradient[4] = 0.0;
    e->gradient[5] = 0.5 * of_contexts * sums[BY_KC];
    e->gradient[6] = 0.5 * e->rho * (1.0 - e->rho) * (sums[BY_GRAM] - sums[BY_GRAM_KC]);
    memset(by_knob, 0, sizeof(double) * (size_t)knobs->d);
    product(n, q, n, parts, e->steps, q, scratch, q);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < q; j++) {
            double step = e->steps[i * q + j];
            by_knob[knobs->step_knob[j]] -= e->weights[j] * (step * (by_row[i] * step - scratch[i * q + j]));
        }
    }
}

/* Everything, but for the step of the noise. Returns 0 if the kernel matrix is positive definite. Scratch [5 n + p + q +
 * 20, n]. */
int64_t rasp_discrete_evidence(const Knobs *knobs, const Evidence *e) {
    int64_t n = e->n, p = knobs->p, q = knobs->q, square = n * n;
    double *near = e->scratch, *linear = near + square, *rugged = linear + square, *matrix = rugged + square;
    double *W = matrix + square, *columns = W + square, *alpha = columns + (p + q) * n, *means = alpha + n;
    double *by_row = means + n, *slopes = by_row + n, sums[SLOPES];
    View steps = {e->steps, q, 1}, phi = {e->phi, p, 1};
    for (int64_t i = 0; i < n; i++) e->noises[i] = e->noise / e->counts[i] * e->doubt[i] + e->jitter;
    transpose(n, q, e->weighted, columns);
    transpose(n, p, e->phi, columns + q * n);
    product(n, n, q, steps, columns, n, near, n);
    product(n, n, p, phi, columns + q * n, n, linear, n);
    fill_matrices(e, near, linear, rugged, matrix);
    if (half_inverse(n, matrix, n, W, n, e->inverse)) return 1;
    squared(n, W, e->inverse);
    symmetric_times(n, e->inverse, e->target, alpha);
    e->sums[0] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double noise = e->noises[i], by_noise = noise * alpha[i], own = e->inverse[i * n + i];
        double error = by_noise * by_noise + fmax(noise - noise * noise * own, 0.0);
        means[i] = e->target[i] - by_noise;
        e->factor[i] = (e->freedom + error / (e->noise / e->counts[i])) / (e->freedom + 1.0);
        e->sums[0] += (alpha[i] * alpha[i] - own) * noise;
    }
    add_slopes(e, alpha, means, near, linear, rugged, slopes, by_row, sums);
    e->sums[1] = sums[INFORMATION];
    set_gradient(knobs, e, rugged, by_row, sums, columns);
    return 0;
}
