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
#define WIDER __attribute__((target_clones("default", "avx2")))
#define PART_OF_EACH static inline __attribute__((always_inline)) /* of its callers, as each is compiled */
#else
#define WIDER
#define PART_OF_EACH static inline
#endif

/* A compiler for GPUs puts every function into its callers; large ones shall stay apart. */
#ifdef RASP_KNOBS
#define APART __attribute__((noinline))
#else
#define APART
#endif

/* On a GPU the lanes of a warp may work on one tuner together. All of them run all of the code, with the same numbers; the
 * iterations of an EACH loop are dealt out among them. These must not need one another, and what they write must be
 * memory that all lanes share: no array of a function. JOIN waits until all are done. Elsewhere there is one lane. */
#if defined(RASP_LANES) && RASP_LANES > 1
static inline int64_t first_of_lane(void) {
    __syncwarp();
    return threadIdx.x;
}
#define EACH(i, n) for (int64_t i = first_of_lane(); i < (n); i += RASP_LANES)
#define JOIN() __syncwarp()
static inline double largest_of_lanes(double x) {
    for (int apart = RASP_LANES / 2; apart > 0; apart /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, x, apart);
        x = other > x ? other : x;
    }
    return x;
}
#else
#define EACH(i, n) for (int64_t i = 0; i < (n); i++)
#define JOIN() ((void)0)
static inline double largest_of_lanes(double x) { return x; } /* of each lane's own x */
#endif

/* Four numbers that are worked on at once; a row of numbers is read as some of these. */
#ifdef RASP_KNOBS /* on a GPU a thread works on one number at a time */
struct Quad {
    double of[4];
    void operator+=(Quad x) { for (int i = 0; i < 4; i++) of[i] += x.of[i]; }
};
static inline Quad operator-(Quad x, Quad y) { for (int i = 0; i < 4; i++) x.of[i] -= y.of[i]; return x; }
static inline Quad operator*(Quad x, Quad y) { for (int i = 0; i < 4; i++) x.of[i] *= y.of[i]; return x; }
static inline Quad operator*(double x, Quad y) { for (int i = 0; i < 4; i++) y.of[i] *= x; return y; }
#else
typedef double Quad __attribute__((vector_size(32), aligned(8), may_alias));
typedef uint64_t QuadBits __attribute__((vector_size(32), aligned(8), may_alias));
typedef double Pair __attribute__((vector_size(16), aligned(8), may_alias)); /* two, on every processor */
typedef uint64_t PairBits __attribute__((vector_size(16), aligned(8), may_alias));
#endif

/* As many as one register holds, for sums that shall stay in registers: where Quads are wider, they lie in memory. */
#if defined(__x86_64__) || defined(RASP_KNOBS)
enum { AT_ONCE = 4 };
typedef Quad AtOnce;
#else
enum { AT_ONCE = 2 };
typedef Pair AtOnce;
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

/* y += s[0] x[0] + ... + s[3] x[3], of rows `stride` apart: y is read and written a quarter as often. */
static inline void add_four(int64_t n, const double *s, int64_t step, const double *restrict x, int64_t stride,
                            double *restrict y) {
    const double s0 = s[0], s1 = s[step], s2 = s[2 * step], s3 = s[3 * step];
    const double *restrict x1 = x + stride, *restrict x2 = x1 + stride, *restrict x3 = x2 + stride;
    for (int64_t i = 0; i < n; i++) y[i] += (s0 * x[i] + s1 * x1[i]) + (s2 * x2[i] + s3 * x3[i]);
}

/* out [n] = A x for a symmetric A [n, n] */
#if defined(RASP_LANES) && RASP_LANES > 1
static inline void symmetric_times_shared(int64_t n, const double *A, const double *x, double *out) {
    EACH(i, n) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) sum += A[j * n + i] * x[j];
        out[i] = sum;
    }
    JOIN();
}
#else
#define symmetric_times_shared symmetric_times
#endif
static inline void symmetric_times(int64_t n, const double *restrict A, const double *restrict x,
                                   double *restrict out) {
    int64_t j = 0;
    for (int64_t i = 0; i < n; i++) out[i] = 0.0;
    for (; j + 4 <= n; j += 4) add_four(n, x + j, 1, A + j * n, n, out);
    for (; j < n; j++) add_scaled(n, x[j], A + j * n, out);
}

static inline double clip(double x, double low, double high) {
    double least = x > low ? x : low;
    return least < high ? least : high;
}

/* x [n] becomes e^x, to about a unit in the last place, for x <= 0; never less than e^-708. */
void exp_falling(int64_t n, double *x); /* linear.c */
/* x [n] becomes its natural logarithm, to about a unit in the last place, for normal finite x > 0. */
void log_positive(int64_t n, double *x); /* linear.c */

#endif
