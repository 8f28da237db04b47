/* Where the numbers of one tuner lie: in the arrays of a state, and in the buffer of its belief. */
#include <stdlib.h>

#include "quadratic.h"

#define OWN_PART(name, numbers) .name = all->name + row * (numbers),
State tuner(const Dims *dims, const State *all, int64_t row) {
    const int64_t d = dims->d, c = dims->c, k = dims->k, P = dims->P, R = dims->R, w = dims->w, r = dims->r, m = dims->m;
    const State one = {STATE_ARRAYS(OWN_PART)};
    return one;
}

/* The next part of a buffer that is handed out from front to back. */
static double *take(double **next, int64_t length) {
    double *part = *next;
    *next += length;
    return part;
}

#define TAKEN(name, numbers) .name = take(&next, numbers),
Belief belief_at(const Dims *dims, double *buffer) {
    const int64_t d = dims->d, p = dims->p, R = dims->R, r = dims->r;
    double *next = buffer;
    const Belief belief = {BELIEF_ARRAYS(TAKEN)};
    return belief;
}

int64_t belief_length(const Dims *dims) {
    const int64_t d = dims->d, p = dims->p, R = dims->R, r = dims->r;
    return 0 BELIEF_ARRAYS(ADDED);
}

#ifndef RASP_KNOBS /* else device.cu has its own */
double *borrow(const Dims *dims, int64_t length) {
    (void)dims;
    double *memory = (double *)malloc(sizeof(double) * (size_t)length);
    if (!memory) abort(); /* some kilobytes: where these cannot be had, nothing else can */
    return memory;
}

void release(double *memory) { free(memory); }
#endif

double *allocate(const Dims *dims, const Part *parts, size_t count) {
    int64_t total = 0;
    for (size_t i = 0; i < count; i++) total += parts[i].length;
    double *memory = borrow(dims, total), *next = memory;
    for (size_t i = 0; i < count; i++) *parts[i].part = take(&next, parts[i].length);
    return memory;
}

#ifndef RASP_SOURCES
#define RASP_SOURCES "unknown"
#endif

const char *rasp_sources(void) { return RASP_SOURCES; }
