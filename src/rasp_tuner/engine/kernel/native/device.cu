/* The kernel for GPUs: the same C files, as C++. ../gpu_compile.py compiles it while a program runs, for tuners of one
 * size, in parts: some functions are done by the 32 lanes of a warp together (RASP_LANES, see EACH in linear.h), and
 * the others by one thread for each tuner.
 *
 * RASP_NUMBERS of scratch memory are in the fast memory of the processor that a warp runs on; a thread alone has them in
 * the GPU's "local" memory. */
#include "learn.h"
#include "quadratic.h"

double *borrow(const Dims *dims, int64_t length) {
    if (length > RASP_NUMBERS) __trap();
    return dims->memory;
}

void release(double *) {}

#include "layout.c"
#include "linear.c"
#include "memory.c"
#include "moving.c"
#include "moving_fit.c"
#include "predict.c"
#include "pooled_prior.c"
#include "outliers.c"
#include "believe.c"
#include "choose.c"
#include "learn.c"
#include "draws.c"

static constexpr int64_t length_of(int64_t d, int64_t p, int64_t R, int64_t r) { return 0 BELIEF_ARRAYS(ADDED); }
enum { LENGTH = length_of(Dims::d, Dims::p, Dims::R, Dims::r) };
#if RASP_LANES > 1
enum { BLOCKS = 16 }; /* on a processor at once: with fewer registers each, but with something to do in the meantime */
#else
enum { BLOCKS = RASP_PART == 1 ? 3 : 2 };
#endif
#define KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(RASP_THREADS, BLOCKS) \
        name(const double *default_, const double *sketch, const State all, const int64_t *rows, const int64_t n, \
             __VA_ARGS__)

#if RASP_LANES > 1
extern __shared__ double fast[];
#define TUNER \
    const Dims dims = {default_, sketch, fast}; \
    const int64_t i = blockIdx.x; \
    if (i < n)
#else
#define TUNER \
    double memory[RASP_NUMBERS]; \
    const Dims dims = {default_, sketch, memory}; \
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; \
    if (i < n)
#endif

#if RASP_PART == 0
KERNEL(believe, const double *contexts, double *beliefs) {
    TUNER rasp_believe(&dims, &all, rows + i, 1, contexts + i * dims.c, beliefs + i * LENGTH);
}

#elif RASP_PART == 1
KERNEL(learn, double *beliefs, const double *points, const double *contexts, const double *losses, const double *failed,
       const double *logs) {
    TUNER rasp_learn(&dims, &all, rows + i, 1, beliefs + i * LENGTH, points + i * dims.d, contexts + i * dims.c,
                     losses + i * dims.k, failed + i, logs + i * E);
}

#elif RASP_PART == 2
KERNEL(draw, int64_t seed, const double *numbers, const double *asks, double *draws) {
    TUNER {
        const int64_t count = dims.d + candidates(&dims);
        rasp_draws((uint64_t)seed, 1, numbers + i, asks + i, count, draws + i * count);
    }
}

KERNEL(choose, double *beliefs, const double *draws, double *points, double *sources, double *means,
       double *variances) {
    TUNER rasp_choose(&dims, &all, rows + i, 1, beliefs + i * LENGTH, draws + i * (dims.d + candidates(&dims)),
                       points + i * dims.d, sources + i, means + i, variances + i);
}

KERNEL(best, double *beliefs, double *points) {
    TUNER rasp_best(&dims, &all, rows + i, 1, beliefs + i * LENGTH, points + i * dims.d);
}

#else
KERNEL(predict, double *beliefs, const double *points, int64_t count, double *means, double *variances) {
    TUNER rasp_predict(&dims, &all, rows + i, 1, beliefs + i * LENGTH, points + i * count * dims.d, count,
                        means + i * count, variances + i * count);
}

KERNEL(against, double *beliefs, const double *points, double *out) {
    TUNER rasp_against(&dims, &all, rows + i, 1, beliefs + i * LENGTH, points + i * dims.d, out + i * 6);
}

KERNEL(forecast, double *beliefs, const double *points, const double *y, double *means, double *variances,
       double *logs) {
    TUNER rasp_forecast(&dims, &all, rows + i, 1, beliefs + i * LENGTH, points + i * dims.d, y + i, means + i,
                         variances + i, logs + i * E);
}
#endif
