/* What the discrete family makes of its rows (kernel.py, target.py): likeness, target, matrices and their slopes. */
#include <math.h>

#include "discrete.h"
#include "linear.h"

/* Mean squared gaps [n, n] between contexts, which come as [c, n], and kc. */
WIDER void rasp_discrete_likeness(int64_t n, int64_t c, const double *contexts, double width, double *gaps,
                                  double *kc) {
    double by = -0.5 / (width * width), share = 1.0 / (double)(c > 0 ? c : 1);
    for (int64_t i = 0; i < n; i++) {
        double *restrict gap = gaps + i * n, *restrict close = kc + i * n;
        memset(gap, 0, sizeof(double) * (size_t)n);
        for (int64_t k = 0; k < c; k++) {
            const double *restrict others = contexts + k * n;
            double own = contexts[k * n + i];
            for (int64_t j = 0; j < n; j++) gap[j] += (own - others[j]) * (own - others[j]);
        }
        for (int64_t j = 0; j < n; j++) gap[j] *= share;
        for (int64_t j = 0; j < n; j++) close[j] = exponential(by * gap[j]);
    }
}

static double median(int64_t n, const double *values, double *sorted) {
    memcpy(sorted, values, sizeof(double) * (size_t)n);
    for (int64_t gap = n / 2; gap > 0; gap /= 2) { /* Shell's sort */
        for (int64_t i = gap; i < n; i++) {
            double value = sorted[i];
            int64_t j = i;
            for (; j >= gap && sorted[j - gap] > value; j -= gap) sorted[j] = sorted[j - gap];
            sorted[j] = value;
        }
    }
    return 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
}

/* target_of of target.py. Priors: of levels, of the scale, of what is constant, and the most level. Scratch [2, n].
 * Numbers: center, scale, level. */
WIDER void rasp_discrete_target(int64_t n, const double *y, const double *likeness, double warp, const double *priors,
                                double *scratch, double *target, double *numbers) {
    double *restrict alike = scratch, *restrict level = scratch + n;
    double size = 1e-300, center = median(n, y, target), freedom = (double)n;
    for (int64_t i = 0; i < n; i++) {
        size = fmax(size, fabs(y[i]));
        alike[i] = priors[0];
        level[i] = priors[0] * center;
    }
    for (int64_t i = 0; i < n; i++) {
        const double *restrict row = likeness + i * n;
        double own = y[i];
        for (int64_t j = 0; j < n; j++) {
            alike[j] += row[j];
            level[j] += own * row[j];
        }
    }
    double within = 0.0, squares = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        freedom -= 1.0 / alike[i];
        level[i] /= alike[i];
        double above = (y[i] - level[i]) / size, overall = (y[i] - center) / size;
        within += above * above;
        squares += overall * overall;
        sum += overall;
    }
    double prior = priors[1] / (1.0 + freedom * freedom), mean = sum / (double)n;
    squares /= (double)n;
    double deviation = sqrt((within + prior * squares) / (freedom + prior));
    if (deviation <= priors[2]) deviation = 1.0;
    double scale = size * deviation;
    for (int64_t i = 0; i < n; i++) {
        double z = (y[i] - level[i]) / scale;
        target[i] = (level[i] - center) / scale + (z > 0.0 ? warp * log1p(z / warp) : z);
    }
    numbers[0] = center;
    numbers[1] = scale;
    numbers[2] = clip((squares - mean * mean) / (deviation * deviation), 1.0, priors[3]);
}

/* The matrix [n, n] plus the sum of left_i right_i', into rows that are `stride` apart. */
WIDER void rasp_discrete_updated(int64_t n, int64_t ranks, const double *matrix, const double *left,
                                 const double *right, int64_t stride, double *changed) {
    for (int64_t i = 0; i < n; i++) {
        double *row = changed + i * stride;
        memcpy(row, matrix + i * n, sizeof(double) * (size_t)n);
        for (int64_t r = 0; r < ranks; r++) add_scaled(n, left[r * n + i], right + r * n, row);
    }
}

/* From products of all rows' steps and main effects: -D, the linear and the rugged part, the gram, and the kernel matrix
 * with its noises. */
WIDER void rasp_discrete_matrix(const Here *here, const double *kc, const double *noises, double *near,
                                double *linear, double *rugged, double *gram, double *matrix) {
    int64_t n = here->n;
    double va = here->va, vp = here->vp, rho = here->rho, own = 1.0 - here->rho;
    double level = here->level, slope = here->level * here->vc;
    const double *restrict sizes = here->sizes;
    for (int64_t i = 0; i < n; i++) {
        double *restrict beside = near + i * n, *restrict along = linear + i * n, *restrict rough = rugged + i * n;
        double *restrict both = gram + i * n, *restrict row = matrix + i * n, size = sizes[i];
        const double *restrict close = kc + i * n;
        for (int64_t j = 0; j < n; j++) {
            beside[j] = (beside[j] - sizes[j]) - size;
            rough[j] = vp * exponential(beside[j]);
        }
        for (int64_t j = 0; j < n; j++) {
            along[j] *= va;
            both[j] = along[j] + rough[j];
            row[j] = (slope * close[j] + level) + both[j] * (own * close[j] + rho);
        }
        row[i] += noises[i];
    }
}

enum { BY_LINEAR, BY_NEAR, BY_KC, BY_GAPS, BY_GRAM_GAPS, BY_GRAM, BY_GRAM_KC, INFORMATION, SLOPES };

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

/* Sums over the inverse of that matrix, which `evidence` of kernel.py needs. All matrices are symmetric, so that sums
 * along columns are those along rows. `rugged` becomes its part of the gradient. Scratch [SLOPES, n]. */
WIDER void rasp_discrete_slopes(const Here *here, const double *kc, const double *gaps, const double *noises,
                                const double *means, const double *near, const double *linear, double *rugged,
                                const double *gram, double *scratch, double *by_row, double *rivals, double *sums) {
    int64_t n = here->n;
    memset(scratch, 0, sizeof(double) * (size_t)(SLOPES * n));
    memset(by_row, 0, sizeof(double) * (size_t)n);
    memset(rivals, 0, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        slope_row(n, here->rho, here->alpha[i], noises[i], means[i], here->alpha, noises, means, kc + i * n,
                  gaps + i * n, near + i * n, linear + i * n, gram + i * n, here->inverse + i * n, rugged + i * n,
                  scratch, by_row, rivals);
    }
    for (int s = 0; s < SLOPES; s++) {
        sums[s] = 0.0;
        for (int64_t j = 0; j < n; j++) sums[s] += scratch[s * n + j];
    }
}
