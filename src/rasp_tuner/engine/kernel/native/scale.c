/* Whether a metric is easier to predict by its logarithm: what easier_in_logs in ../../scale.py does, tuner by tuner.

   symbol   shape    meaning
   n        scalar   samples that count: all in use but the worst
   x, u     [n, .]   contexts in units of their metric; points, from -1 to 1
   K        [n, n]   kernel: quadratics of the point, half shared by all contexts and half own to similar ones */
#include "learn.h"

#include <string.h>

#define LIKELIER_NATS 0.7 /* a sample */
#define CONTEXT_WIDTH 0.3 /* of contexts that are nearly the same, in deviations */
#define SHARED 0.5        /* of the kernel that all contexts have in common */
#define LEAST_SIZE 1e-20

enum { MOST_SAMPLES = 64, LIKELIER_FROM_SAMPLES = 16, FALSE_ONE_IN = 6, SCALES = 2, KERNEL_NOISES = 2 };
static const double OF_KERNEL[KERNEL_NOISES] = {0.01, 0.3}; /* noise, of K: the better of which counts */

/* Products of the rows of x [n, width]: out [n, n] += by x x', its lower triangle. */
static void add_products(int64_t n, int64_t width, const double *x, double by, double *out) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) out[i * n + j] += by * dot(width, x + i * width, x + j * width);
}

static double median(int64_t n, const double *values) {
    const double half = (double)(1 + (n - 1) / 2), middle = value_reaching(n, values, NULL, half);
    return n % 2 ? middle : 0.5 * (middle + value_reaching(n, values, NULL, half + 1.0));
}

/* K [n, n], its lower triangle, of samples at points [., d] in contexts [., c]; x and `like` [n, n] are scratch. */
static void make_kernel(int64_t n, int64_t d, int64_t c, const double *contexts, const double *points,
                        const int64_t *order, double *x, double *like, double *K) {
    double sizes[MOST_SAMPLES];
    const double by = 1.0 / (-2.0 * CONTEXT_WIDTH * CONTEXT_WIDTH);
    for (int64_t s = 0; s < n; s++) memcpy(x + s * c, contexts + order[s] * c, sizeof(double) * (size_t)c);
    memset(like, 0, sizeof(double) * (size_t)(n * n));
    memset(K, 0, sizeof(double) * (size_t)(n * n));
    add_products(n, c, x, 1.0, like);
    for (int64_t i = 0; i < n; i++) sizes[i] = like[i * (n + 1)];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) like[i * n + j] = by * most(sizes[i] + sizes[j] - 2.0 * like[i * n + j], 0.0);
        exp_falling(i + 1, like + i * n);
    }
    for (int64_t s = 0; s < n; s++)
        for (int64_t i = 0; i < d; i++) x[s * d + i] = 2.0 * points[order[s] * d + i] - 1.0;
    add_products(n, d, x, 1.0 / (double)d, K);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            const double bowl = 1.0 + K[i * n + j];
            K[i * n + j] = (SHARED + (1.0 - SHARED) * like[i * n + j]) * (bowl * bowl);
        }
    }
}

/* Mean log density of each value of z [n] given all others, up to a constant; `inverse` is that of a kernel. */
static double likelihood(int64_t n, const double *inverse, const double *z) {
    double squares[MOST_SAMPLES], size = LEAST_SIZE, logs = 0.0;
    for (int64_t i = 0; i < n; i++) size = most(size, fabs(z[i]));
    symmetric_times(n, inverse, z, squares);
    for (int64_t i = 0; i < n; i++) {
        const double own = inverse[i * (n + 1)], gap = squares[i] / size;
        squares[i] = gap * gap / own;
        logs += log(own) / (double)n;
    }
    return 0.5 * logs - 0.5 * log(most(median(n, squares), LEAST_SIZE)) - log(size);
}

/* Whether it is, of one tuner: samples [most] of which some are used. Scratch has room for that many rows of x. */
static bool easier_in_logs(int64_t most_, int64_t d, int64_t c, const double *contexts, const double *points,
                           const double *logs, const bool *used, double *scratch) {
    double keys[MOST_SAMPLES], z[SCALES][MOST_SAMPLES], mean = 0.0, best[SCALES] = {-INFINITY, -INFINITY};
    int64_t order[MOST_SAMPLES], spare[MOST_SAMPLES], count = 0;
    for (int64_t s = 0; s < most_; s++) {
        keys[s] = used[s] ? logs[s] : INFINITY;
        count += used[s];
    }
    if (count < LIKELIER_FROM_SAMPLES) return false;
    sort_indices(most_, keys, order, spare); /* the worst are left out: false measurements would ask for a logarithm */
    const int64_t n = count - count / FALSE_ONE_IN;
    double *K = scratch, *A = K + n * n, *inverse = A + n * n, *lower = inverse + n * n, *x = lower + n * n;
    make_kernel(n, d, c, contexts, points, order, x, A, K);
    for (int64_t s = 0; s < n; s++) mean += logs[order[s]] / (double)n;
    for (int64_t s = 0; s < n; s++) {
        z[1][s] = clip(logs[order[s]] - mean, -100.0, 100.0);
        z[0][s] = exp(z[1][s]);
    }
    for (int scale = 0; scale < SCALES; scale++) {
        const double middle = median(n, z[scale]);
        for (int64_t s = 0; s < n; s++) z[scale][s] -= middle;
    }
    for (int noise = 0; noise < KERNEL_NOISES; noise++) {
        memcpy(A, K, sizeof(double) * (size_t)(n * n));
        for (int64_t s = 0; s < n; s++) A[s * (n + 1)] += OF_KERNEL[noise];
        if (inverse_spd(n, A, inverse, lower)) continue; /* rounding only */
        for (int scale = 0; scale < SCALES; scale++) best[scale] = most(best[scale], likelihood(n, inverse, z[scale]));
    }
    return best[1] - best[0] > LIKELIER_NATS;
}

void rasp_easier_in_logs(int64_t tuners, int64_t samples, int64_t d, int64_t c, const double *contexts,
                         const double *points, const double *logs, const bool *used, bool *easier) {
    const Dims none = {0};
    double *scratch = borrow(&none, samples * (4 * samples + (d > c ? d : c)));
    for (int64_t i = 0; i < tuners; i++) {
        const int64_t first = i * samples;
        easier[i] = easier_in_logs(samples, d, c, contexts + first * c, points + first * d, logs + first, used + first,
                                   scratch);
    }
    release(scratch);
}
