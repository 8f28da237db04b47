/* Features of a point, and factors, inverses and eigenvectors of small symmetric matrices.
 * Inner loops run along rows and add to many sums at once: they are vectorised without changing the order of any sum. */
#include "linear.h"

#include <math.h>
#include <string.h>

#include "kernel.h"

enum { MOST_SWEEPS = 30 };
static const double ROUNDING = 1e-33; /* of the sum of squares: what is off the diagonal is none */

/* phi [p] = [1, u, u^2] */
void features(const Dims *dims, const double *u, double *phi) {
    int64_t d = dims->d;
    phi[0] = 1.0;
    for (int64_t i = 0; i < d; i++) {
        phi[1 + i] = u[i];
        phi[1 + d + i] = u[i] * u[i];
    }
}

/* A = lower lower' from the lower triangle of A; what is above the diagonal of `lower` becomes zero. They may be one.
 * Returns 0 if A is positive definite. */
WIDER int cholesky(int64_t n, const double *A, double *lower) {
    if (lower != A) memcpy(lower, A, sizeof(double) * (size_t)(n * n));
    for (int64_t j = 0; j < n; j++) {
        double pivot = lower[j * n + j];
        if (!(pivot > 0.0 && pivot <= 1e300)) return 1;
        double root = sqrt(pivot), inverse = 1.0 / root;
        double *restrict column = lower + j * n; /* above the diagonal there is room for the column below it */
        column[j] = root;
        for (int64_t i = j + 1; i < n; i++) {
            double *restrict row = lower + i * n;
            double value = row[j] * inverse;
            row[j] = column[i] = value;
            for (int64_t k = j + 1; k <= i; k++) row[k] -= value * column[k];
        }
    }
    for (int64_t j = 0; j < n; j++) memset(lower + j * n + j + 1, 0, sizeof(double) * (size_t)(n - 1 - j));
    return 0;
}

/* Of a symmetric positive definite A, from its lower triangle; scratch [n, n]. Returns 0 if A is positive definite. */
WIDER int inverse_spd(int64_t n, const double *A, double *inverse, double *scratch) {
    if (cholesky(n, A, scratch)) return 1;
    for (int64_t i = 0; i < n; i++) { /* scratch becomes its own inverse, row by row */
        double row[n], by = 1.0 / scratch[i * n + i];
        for (int64_t k = 0; k < i; k++) row[k] = 0.0;
        for (int64_t k = 0; k < i; k++) add_scaled(k + 1, -scratch[i * n + k], scratch + k * n, row);
        for (int64_t k = 0; k < i; k++) scratch[i * n + k] = row[k] * by;
        scratch[i * n + i] = by;
    }
    memset(inverse, 0, sizeof(double) * (size_t)(n * n));
    for (int64_t k = 0; k < n; k++) {
        const double *row = scratch + k * n;
        for (int64_t i = 0; i <= k; i++) add_scaled(i + 1, row[i], row, inverse + i * n);
    }
    for (int64_t i = 1; i < n; i++) {
        for (int64_t j = 0; j < i; j++) inverse[j * n + i] = inverse[i * n + j];
    }
    return 0;
}

static double off_diagonal(int64_t n, const double *A) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++) sum += 2.0 * A[i * n + j] * A[i * n + j];
    }
    return sum;
}

/* Turn two rows of length n into c x - s y and s x + c y. */
static inline void turn(int64_t n, double c, double s, double *restrict x, double *restrict y) {
    for (int64_t i = 0; i < n; i++) {
        double was = x[i];
        x[i] = c * was - s * y[i];
        y[i] = s * was + c * y[i];
    }
}

/* One rotation that makes A[i, j] zero; `axes` holds the vectors as rows. */
static inline void rotate(int64_t n, double *A, double *axes, int64_t i, int64_t j) {
    double off = A[i * n + j], ii = A[i * n + i], jj = A[j * n + j];
    double half = 0.5 * (jj - ii) / off;
    double t = (half >= 0.0 ? 1.0 : -1.0) / (fabs(half) + sqrt(half * half + 1.0));
    double c = 1.0 / sqrt(t * t + 1.0), s = t * c;
    turn(n, c, s, A + i * n, A + j * n);
    for (int64_t k = 0; k < n; k++) {
        A[k * n + i] = A[i * n + k];
        A[k * n + j] = A[j * n + k];
    }
    A[i * n + i] = ii - t * off;
    A[j * n + j] = jj + t * off;
    A[i * n + j] = A[j * n + i] = 0.0;
    turn(n, c, s, axes + i * n, axes + j * n);
}

/* Cyclic Jacobi: values [n] ascending, vectors [n, n] as columns; A is used up. */
WIDER void eigen_symmetric(int64_t n, double *A, double *values, double *vectors) {
    if (n == 0) return;
    double axes[n * n], total = off_diagonal(n, A);
    memset(axes, 0, sizeof(axes));
    for (int64_t i = 0; i < n; i++) {
        axes[i * n + i] = 1.0;
        total += A[i * n + i] * A[i * n + i];
    }
    for (int sweep = 0; sweep < MOST_SWEEPS && off_diagonal(n, A) > ROUNDING * total; sweep++) {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = i + 1; j < n; j++) {
                if (fabs(A[i * n + j]) > 1e-300) rotate(n, A, axes, i, j);
            }
        }
    }
    int64_t order[n];
    for (int64_t i = 0; i < n; i++) { /* sorted by insertion */
        int64_t place = i;
        for (; place > 0 && A[order[place - 1] * (n + 1)] > A[i * (n + 1)]; place--) order[place] = order[place - 1];
        order[place] = i;
    }
    for (int64_t j = 0; j < n; j++) {
        values[j] = A[order[j] * (n + 1)];
        for (int64_t i = 0; i < n; i++) vectors[i * n + j] = axes[order[j] * n + i];
    }
}
