/* The kernel for GPUs: the same C files, as C++, one thread for each tuner. Compiled by ../gpu_compile.py while a program
 * runs, for tuners of one size: RASP_KNOBS, RASP_CONTEXT and RASP_COLUMNS say which. */
#include "learn.h"
#include "quadratic.h"

/* Scratch memory of a thread: as many numbers as the greediest function takes. It is the GPU's "local" memory, in which
   neighbouring threads share cache lines. */
static constexpr int64_t d = Dims::d, p = Dims::p, m = Dims::m, R = Dims::R;
static constexpr int64_t ASKING = (2 + L) * R + L * Dims::P + 8 * p * p + 16 * p + 64 * (d + 4) + 2 * d * d;
static constexpr int64_t LEARNING = L * Dims::P + L * R + WINDOW * (2 * d + 5 + Dims::r + m) + 9 * m + 2 * m * m
                                    + 4 * p * p + 10 * p + 2 * d + 2 * Dims::q + 2 * Dims::c;

double *borrow(const Dims *dims, int64_t length) {
    if (length > (LEARNING > ASKING ? LEARNING : ASKING)) __trap();
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

#define KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(RASP_THREADS) \
        name(const double *default_, const double *sketch, const State all, const int64_t n, __VA_ARGS__)
/* The tuner of this thread, and what its function works with. */
#define ONE(numbers) \
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; \
    if (i >= n) return; \
    double memory[numbers]; \
    const Dims dims = {default_, sketch, memory}
enum { LENGTH = 2 * E + 7 + 1 + Dims::r + 2 * Dims::d + L * (2 * Dims::p + 2 * Dims::p * Dims::p + 1 + Dims::R) };

KERNEL(believe, const double *contexts, double *beliefs) {
    ONE(ASKING);
    rasp_believe(&dims, &all, &i, 1, contexts + i * dims.c, beliefs + i * LENGTH);
}

KERNEL(predict, double *beliefs, const double *points, int64_t count, double *means, double *variances) {
    ONE(ASKING);
    rasp_predict(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * count * dims.d, count, means + i * count,
                 variances + i * count);
}

KERNEL(compare, double *beliefs, const double *points, const double *others, double *means, double *variances) {
    ONE(ASKING);
    rasp_compare(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, others + i * dims.d, means + i,
                 variances + i);
}

KERNEL(against, double *beliefs, const double *points, double *out) {
    ONE(ASKING);
    rasp_against(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, out + i * 6);
}

KERNEL(forecast, double *beliefs, const double *points, const double *y, double *means, double *variances,
       double *logs) {
    ONE(ASKING);
    rasp_forecast(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, y + i, means + i, variances + i,
                  logs + i * E);
}

KERNEL(choose, double *beliefs, const double *draws, double *points, double *sources, double *means,
       double *variances) {
    ONE(ASKING);
    rasp_choose(&dims, &all, &i, 1, beliefs + i * LENGTH, draws + i * (dims.d + candidates(&dims)), points + i * dims.d,
                sources + i, means + i, variances + i);
}

KERNEL(best, double *beliefs, double *points) {
    ONE(ASKING);
    rasp_best(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d);
}

KERNEL(learn, double *beliefs, const double *points, const double *contexts, const double *losses,
       const double *failed, const double *logs) {
    ONE(LEARNING);
    rasp_learn(&dims, &all, &i, 1, beliefs + i * LENGTH, points + i * dims.d, contexts + i * dims.c,
               losses + i * dims.k, failed + i, logs + i * E);
}
