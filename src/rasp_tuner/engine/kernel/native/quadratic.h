/* What the files of the asking side share. Symbols as in ../state.py. */
#ifndef RASP_QUADRATIC_H
#define RASP_QUADRATIC_H

#include <stddef.h>

#include "kernel.h"
#include "linear.h"


/* Parts of scratch memory, of so many numbers each. */
typedef struct {
    double **part;
    int64_t length;
} Part;

double *allocate(const Dims *dims, const Part *parts, size_t count); /* layout.c; to be released */
#define ALLOCATE(dims, parts) allocate(dims, parts, sizeof(parts) / sizeof((parts)[0]))

/* The unit box as seen from the default, in u. */
static inline double lowest(const Dims *dims, int64_t knob) { return -2.0 * dims->default_[knob]; }
static inline double highest(const Dims *dims, int64_t knob) { return 2.0 * (1.0 - dims->default_[knob]); }

/* u [d] where a quadratic with coefficients [p] is least within the box. */
static inline void minimiser(const Dims *dims, const double *mean, double a, double *u) {
    for (int64_t i = 0; i < dims->d; i++) {
        double curvature = mean[1 + dims->d + i], least = LEAST_CURVATURE * a;
        double best = mean[1 + i] / (-2.0 * (curvature > least ? curvature : least));
        u[i] = clip(best, lowest(dims, i), highest(dims, i));
    }
}

static inline void to_u(const Dims *dims, const double *point, double *u) {
    for (int64_t i = 0; i < dims->d; i++) u[i] = 2.0 * (point[i] - dims->default_[i]);
}

static inline void to_point(const Dims *dims, const double *u, double *point) {
    for (int64_t i = 0; i < dims->d; i++) point[i] = clip(dims->default_[i] + u[i] / 2.0, 0.0, 1.0);
}

/* Sum of y in a slot, relative to the first sample: a packed prompt begins with the sums of its samples. */
static inline double slot_sum(const Dims *dims, const State *one, int64_t slot) {
    return dot(dims->k, one->prompts + slot * dims->P + dims->p, one->weights);
}

#endif
