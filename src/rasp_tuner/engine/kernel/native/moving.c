/* The moving optimum: a bowl whose optimum moves linearly with the context; warm Gauss-Newton steps on a window.

   symbol   shape        meaning
   u        [n, d]       points relative to the default, in [-2, 2]
   x        [n, 1 + r]   a one, and the leading principal components of the context, standardised
   y        [n]          target, in units of the shared curvature
   theta    b, q, M      y = b + sum_i q_i (u_i - M_i x)^2 with q [d], M [d, 1 + r]
   J        [n, m]       slope of y by theta */
#include "learn.h"

enum { SKETCH_DIMENSIONS = 32 };

/* A long context is projected at random to fewer dimensions [w]. */
static void reduce_context(const Dims *dims, const double *context, double *reduced) {
    const int64_t c = dims->c, w = dims->w;
    for (int64_t j = 0; j < w; j++)
        reduced[j] = c > w ? 0.0 : context[j];
    if (c > w)
        for (int64_t i = 0; i < c; i++)
            for (int64_t j = 0; j < w; j++)
                reduced[j] += context[i] * dims->sketch[i * w + j];
}

/* x [1 + r] of a reduced context. */
static void encode_reduced(const Dims *dims, const State *one, const double *reduced, double *x) {
    const int64_t w = dims->w, r = dims->r;
    x[0] = 1.0;
    for (int64_t j = 0; j < r; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < w; i++)
            sum += (reduced[i] - one->centre[i]) * one->encode[i * r + j];
        x[1 + j] = clip(sum, -3.0, 3.0);
    }
}

void encode_context(const Dims *dims, const State *one, const double *context, double *x) {
    double reduced[SKETCH_DIMENSIONS];
    reduce_context(dims, context, reduced);
    encode_reduced(dims, one, reduced, x);
}
