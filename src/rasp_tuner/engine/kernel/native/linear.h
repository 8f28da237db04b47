/* Products of small vectors and matrices, row by row, in an order that is the same on every machine. */
#ifndef RASP_LINEAR_H
#define RASP_LINEAR_H

#include <stdint.h>

#ifdef __cplusplus
#define restrict __restrict__
#endif

/* Loops that also exist compiled for wider vectors: the same sums in the same order, chosen as the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) \
    && !defined(__SANITIZE_ADDRESS__) && !defined(__cplusplus)
#define WIDER __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDER
#endif

/* A compiler for GPUs puts every function into its callers; large ones shall stay apart. */
#ifdef RASP_KNOBS
#define APART __attribute__((noinline))
#else
#define APART
#endif

/* Four sums side by side, so that one addition need not wait for the last. */
static inline double dot(int64_t n, const double *a, const double *b) {
    double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++) s0 += a[i] * b[i];
    return (s0 + s1) + (s2 + s3);
}

/* y += s x */
static inline void add_scaled(int64_t n, double s, const double *restrict x, double *restrict y) {
    for (int64_t i = 0; i < n; i++) y[i] += s * x[i];
}

/* out [n] = A x for a symmetric A [n, n] */
static inline void symmetric_times(int64_t n, const double *restrict A, const double *restrict x,
                                   double *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = A[i] * x[0];
    for (int64_t j = 1; j < n; j++) add_scaled(n, x[j], A + j * n, out);
}

static inline double clip(double x, double low, double high) {
    double least = x > low ? x : low;
    return least < high ? least : high;
}

/* x [n] becomes e^x, to about a unit in the last place, for x <= 0; never less than e^-708. */
void exp_falling(int64_t n, double *x); /* linear.c */

#endif
