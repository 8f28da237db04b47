/* Triangular systems of the rows, four right-hand sides at a time: each has the same bits, whatever the others are. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

/* out [4]: products of a [n] with each of four x [n]. Of the four sums of each, the first takes the rest in. */
PART_OF_EACH void four_dots(int64_t n, const double *a, const double *const *x, double *out) {
    const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const int64_t end = n & ~(int64_t)3;
    double s0[4], s1[4], s2[4], s3[4];
#ifdef __x86_64__
    Quad q0 = {0.0}, q1 = {0.0}, q2 = {0.0}, q3 = {0.0};
    for (int64_t i = 0; i < end; i += 4) {
        const Quad own = *(const Quad *)(a + i);
        q0 += own * *(const Quad *)(x0 + i);
        q1 += own * *(const Quad *)(x1 + i);
        q2 += own * *(const Quad *)(x2 + i);
        q3 += own * *(const Quad *)(x3 + i);
    }
    memcpy(s0, &q0, sizeof(s0)), memcpy(s1, &q1, sizeof(s1)), memcpy(s2, &q2, sizeof(s2)), memcpy(s3, &q3, sizeof(s3));
#else /* as wide as registers are there: wider ones would lie in memory */
    Pair p0 = {0.0}, p1 = {0.0}, p2 = {0.0}, p3 = {0.0}, r0 = {0.0}, r1 = {0.0}, r2 = {0.0}, r3 = {0.0};
    for (int64_t i = 0; i < end; i += 4) {
        const Pair own = *(const Pair *)(a + i), more = *(const Pair *)(a + i + 2);
        p0 += own * *(const Pair *)(x0 + i), r0 += more * *(const Pair *)(x0 + i + 2);
        p1 += own * *(const Pair *)(x1 + i), r1 += more * *(const Pair *)(x1 + i + 2);
        p2 += own * *(const Pair *)(x2 + i), r2 += more * *(const Pair *)(x2 + i + 2);
        p3 += own * *(const Pair *)(x3 + i), r3 += more * *(const Pair *)(x3 + i + 2);
    }
    s0[0] = p0[0], s0[1] = p0[1], s0[2] = r0[0], s0[3] = r0[1];
    s1[0] = p1[0], s1[1] = p1[1], s1[2] = r1[0], s1[3] = r1[1];
    s2[0] = p2[0], s2[1] = p2[1], s2[2] = r2[0], s2[3] = r2[1];
    s3[0] = p3[0], s3[1] = p3[1], s3[2] = r3[0], s3[3] = r3[1];
#endif
    for (int64_t i = end; i < n; i++) {
        s0[0] += a[i] * x0[i];
        s1[0] += a[i] * x1[i];
        s2[0] += a[i] * x2[i];
        s3[0] += a[i] * x3[i];
    }
    out[0] = (s0[0] + s0[1]) + (s0[2] + s0[3]);
    out[1] = (s1[0] + s1[1]) + (s1[2] + s1[3]);
    out[2] = (s2[0] + s2[1]) + (s2[2] + s2[3]);
    out[3] = (s3[0] + s3[1]) + (s3[2] + s3[3]);
}

/* Each row x [stride] of `m` becomes the solution of root x = it, as far as its first n; `by` [n]: 1 / diagonal. */
PART_OF_EACH void solve_forward(int64_t n, const double *root, int64_t width, const double *by, int64_t m, double *rows,
                                int64_t stride) {
    for (int64_t r = 0; r < m; r += 4) {
        double *x[4], dots[4];
        const int own = m - r < 4 ? (int)(m - r) : 4;
        for (int q = 0; q < 4; q++) x[q] = rows + (r + (q < own ? q : 0)) * stride;
        for (int64_t j = 0; j < n; j++) {
            four_dots(j, root + j * width, (const double *const *)x, dots);
            for (int q = 0; q < own; q++) x[q][j] = (x[q][j] - dots[q]) * by[j];
        }
    }
}

WIDER void gp_forward(int64_t n, const double *root, int64_t m, double *rows, double *scratch) {
    for (int64_t j = 0; j < n; j++) scratch[j] = 1.0 / root[j * (n + 1)];
    solve_forward(n, root, n, scratch, m, rows, n);
}

/* root [n, n], known up to row `from` and a covariance from there on, becomes a factor. Returns 0 if it is definite. */
WIDER int gp_factor(int64_t n, int64_t from, double *root, double *scratch) {
    double *by = scratch;
    for (int64_t j = 0; j < from; j++) by[j] = 1.0 / root[j * (n + 1)];
    for (int64_t i = from; i < n; i += 4) {
        const int64_t end = i + 4 < n ? i + 4 : n;
        solve_forward(i, root, n, by, end - i, root + i * n, n);
        for (int64_t r = i; r < end; r++) {
            double *row = root + r * n;
            const double *const same[] = {row, row, row, row};
            double dots[4] = {0.0};
            for (int64_t j = i; j <= r; j++) {
                four_dots(j, root + j * n, same, dots);
                if (j < r) row[j] = (row[j] - dots[0]) * by[j];
            }
            const double pivot = row[r] - dots[0];
            if (!(pivot > 0.0 && pivot <= 1e300)) return 1;
            row[r] = sqrt(pivot);
            by[r] = 1.0 / row[r];
            memset(row + r + 1, 0, sizeof(double) * (size_t)(n - 1 - r));
        }
    }
    return 0;
}

/* x [2, n] becomes the solution of root root' x = it, for both. scratch: n. */
WIDER void gp_solve(int64_t n, const double *root, double *x, double *scratch) {
    double *one = x, *two = x + n;
    gp_forward(n, root, 2, x, scratch);
    for (int64_t i = n - 1; i >= 0; i--) {
        const double *restrict row = root + i * n, a = one[i] *= scratch[i], b = two[i] *= scratch[i];
        for (int64_t j = 0; j < i; j++) one[j] -= a * row[j], two[j] -= b * row[j];
    }
}

/* covariance [m, m], up to the diagonal, less the products of rows [m, n]. */
WIDER void gp_less_products(int64_t m, int64_t n, const double *rows, double *covariance) {
    for (int64_t r = 0; r < m; r++)
        for (int64_t s = 0; s <= r; s += 4) {
            const double *x[4];
            double dots[4];
            for (int q = 0; q < 4; q++) x[q] = rows + (s + q <= r ? s + q : r) * n;
            four_dots(n, rows + r * n, x, dots);
            for (int q = 0; q < 4 && s + q <= r; q++) covariance[r * m + s + q] -= dots[q];
        }
}
