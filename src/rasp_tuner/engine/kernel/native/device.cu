/* The kernel for GPUs: the same C files, as C++. ../gpu_compile.py compiles it while a program runs, for tuners of one
 * size, in parts: `believe` and `learn`, which go through all of a tuner's memory, are done by the 32 lanes of a warp
 * together (RASP_LANES, see EACH in linear.h), and the rest by one thread for each tuner.
 *
 * RASP_NUMBERS of scratch memory are in the fast memory of the processor that the warp runs on; or, if `scratch` is
 * given, there. A thread alone has them in the GPU's "local" memory. */
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
#include "shared.c"
#include "trust.c"
#include "believe.c"
#include "choose.c"
#include "learn.c"

enum { LENGTH = 2 * E + 7 + 1 + Dims::r + 2 * Dims::d + L * (2 * Dims::p + 2 * Dims::p * Dims::p + 1 + Dims::R) };
#define KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(RASP_THREADS) \
        name(const double *default_, const double *sketch, const State all, const int64_t n, double *scratch, __VA_ARGS__)

#if RASP_LANES > 1
extern __shared__ double fast[];
/* The tuners of this warp, one after the other. */
#define TUNERS \
    const Dims dims = {default_, sketch, scratch ? scratch + (int64_t)blockIdx.x * RASP_NUMBERS : fast}; \
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x)
#else
#define TUNERS \
    double memory[RASP_NUMBERS]; \
    const Dims dims = {default_, sketch, memory}; \
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; \
    if (i < n)
#endif

#if RASP_PART == 0
KERNEL(believe, const double *contexts, double *beliefs) {
    TUNERS rasp_believe(&dims, &all, &i, 1, contexts + i * dims.c, beliefs + i * LENGTH);
}

#elif RASP_PART == 1
KERNEL(learn, double *beliefs, const double *points, const double *contexts, const double *losses,
       const double *failed, const double *logs) {
    TUNERS rasp_learn(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, contexts + i * dims.c,
                      losses + i * dims.k, failed + i, logs + i * E);
}

#else
KERNEL(predict, double *beliefs, const double *points, int64_t count, double *means, double *variances) {
    TUNERS rasp_predict(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * count * dims.d, count,
                        means + i * count, variances + i * count);
}

KERNEL(compare, double *beliefs, const double *points, const double *others, double *means, double *variances) {
    TUNERS rasp_compare(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, others + i * dims.d, means + i,
                        variances + i);
}

KERNEL(against, double *beliefs, const double *points, double *out) {
    TUNERS rasp_against(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, out + i * 6);
}

KERNEL(forecast, double *beliefs, const double *points, const double *y, double *means, double *variances,
       double *logs) {
    TUNERS rasp_forecast(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, y + i, means + i,
                         variances + i, logs + i * E);
}

KERNEL(choose, double *beliefs, const double *draws, double *points, double *sources, double *means,
       double *variances) {
    TUNERS rasp_choose(&dims, &all, &i, 1, beliefs + i * LENGTH, draws + i * (dims.d + candidates(&dims)),
                       points + i * dims.d, sources + i, means + i, variances + i);
}

KERNEL(best, double *beliefs, double *points) {
    TUNERS rasp_best(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d);
}
#endif
