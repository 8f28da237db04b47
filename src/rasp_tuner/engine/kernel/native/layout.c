/* Where the numbers of one tuner lie: in the arrays of a state, and in the buffer of its belief. */
#include <stdlib.h>

#include "quadratic.h"

State tuner(const Dims *dims, const State *all, int64_t row) {
    int64_t d = dims->d, c = dims->c, k = dims->k, R = dims->R, w = dims->w, m = dims->m;
    const State one = {
        .keys = all->keys + row * R * c,
        .prompts = all->prompts + row * R * dims->P,
        .trust = all->trust + row * L * R,
        .counts = all->counts + row * R,
        .last = all->last + row * R,
        .count = all->count + row,
        .steps = all->steps + row,
        .latest = all->latest + row,
        .origin = all->origin + row * c,
        .previous = all->previous + row * c,
        .mean = all->mean + row * c,
        .moment = all->moment + row * c,
        .changes = all->changes + row * c,
        .distance = all->distance + row * 2,
        .context_least = all->context_least + row * c,
        .context_most = all->context_most + row * c,
        .curvature = all->curvature + row,
        .level = all->level + row,
        .level_variance = all->level_variance + row,
        .largest = all->largest + row,
        .tracked = all->tracked + row,
        .location = all->location + row * d,
        .location_variance = all->location_variance + row * d,
        .scores = all->scores + row * E,
        .noises = all->noises + row * E * NOISES,
        .weights = all->weights + row * k,
        .first = all->first + row * k,
        .suspected = all->suspected + row,
        .early = all->early + row * EARLY,
        .window_points = all->window_points + row * WINDOW * d,
        .window_contexts = all->window_contexts + row * WINDOW * w,
        .window_losses = all->window_losses + row * WINDOW * k,
        .window_weights = all->window_weights + row * WINDOW,
        .reduced_mean = all->reduced_mean + row * w,
        .reduced_moments = all->reduced_moments + row * w * w,
        .centre = all->centre + row * w,
        .encode = all->encode + row * w * dims->r,
        .theta = all->theta + row * m,
        .unit = all->unit + row,
        .covariance = all->covariance + row * m * m,
        .fitted = all->fitted + row,
    };
    return one;
}

/* The next part of a buffer that is handed out from front to back. */
static double *take(double **next, int64_t length) {
    double *part = *next;
    *next += length;
    return part;
}

Belief belief_at(const Dims *dims, double *buffer) {
    int64_t d = dims->d, p = dims->p;
    double *next = buffer;
    Belief belief; /* in the order of belief.layout */
    belief.weights = take(&next, E);
    belief.noises = take(&next, E);
    belief.spread = take(&next, 1);
    belief.offset = take(&next, 1);
    belief.origin = take(&next, 1);
    belief.a = take(&next, 1);
    belief.moving = take(&next, 1);
    belief.level = take(&next, 1);
    belief.ratio = take(&next, 1);
    belief.x = take(&next, 1 + dims->r);
    belief.curvatures = take(&next, d);
    belief.optimum = take(&next, d);
    belief.mean = take(&next, L * p);
    belief.S = take(&next, L * p * p);
    belief.G = take(&next, L * p * p);
    belief.b = take(&next, L * p);
    belief.rest = take(&next, L);
    belief.kernels = take(&next, L * dims->R);
    belief.K = take(&next, p * p);
    belief.hint = take(&next, d);
    return belief;
}

int64_t belief_length(const Dims *dims) {
    int64_t p = dims->p;
    return 2 * E + 7 + 1 + dims->r + 3 * dims->d + p * p + L * (p + p * p + p * p + p + 1 + dims->R);
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
