/* What the discrete family makes of its rows (kernel.py, target.py): likeness, target, and rank-one updates. */
#include <math.h>

#include "discrete.h"
#include "kernel.h"
#include "linear.h"

/* A loop of its own: as a part of others, the compiler does half as well. */
WIDER void exponentials(int64_t n, double *x) {
    for (int64_t i = 0; i < n; i++) x[i] = exponential(x[i]);
}

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
        for (int64_t j = 0; j < n; j++) {
            gap[j] *= share;
            close[j] = by * gap[j];
        }
        exponentials(n, close);
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

/* The inverse [n, n] of a matrix that changes by so much at one place of its diagonal. */
WIDER void rasp_discrete_with_noise(int64_t n, const double *inverse, int64_t row, double change, double *changed) {
    const double *restrict column = inverse + row * n;
    double by = -change / (1.0 + change * column[row]);
    for (int64_t i = 0; i < n; i++) {
        const double *restrict from = inverse + i * n;
        double *restrict to = changed + i * n, share = column[i] * by;
        for (int64_t j = 0; j < n; j++) to[j] = from[j] + share * column[j];
    }
}
