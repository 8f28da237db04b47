/* What the moving optimum sees of contexts: a window of the latest samples, and the leading principal components of
   their contexts, standardised: x [1 + r], that begins with a one. */
#include "learn.h"

#include <string.h>

/* A long context is projected at random to fewer dimensions [w]. */
WIDER static void reduce_context(const Dims *dims, const double *context, double *reduced) {
    const int64_t c = dims->c, w = dims->w;
    if (c <= SKETCH_DIMENSIONS) {
        for (int64_t j = 0; j < w; j++) reduced[j] = context[j];
        return;
    }
    double sums[SKETCH_DIMENSIONS] = {0.0}; /* that is w */
    for (int64_t i = 0; i < c; i++)
        for (int64_t j = 0; j < SKETCH_DIMENSIONS; j++) sums[j] += context[i] * dims->sketch[i * SKETCH_DIMENSIONS + j];
    for (int64_t j = 0; j < SKETCH_DIMENSIONS; j++) reduced[j] = sums[j];
}

/* The same of a context as scales are learned from it: of no value that is absurd, as hardly any is. */
static void reduce_bounded(const Dims *dims, const State *one, const double *context, double *reduced) {
    const int64_t c = dims->c;
    for (int64_t i = 0; i < c; i++) {
        const double more = clip(context[i], one->context_least[i], one->context_most[i]) - context[i];
        if (more == 0.0) continue;
        if (c <= SKETCH_DIMENSIONS) reduced[i] += more;
        else
            for (int64_t j = 0; j < SKETCH_DIMENSIONS; j++) reduced[j] += more * dims->sketch[i * SKETCH_DIMENSIONS + j];
    }
}

/* x [1 + r] of a reduced context. */
void encode_reduced(const Dims *dims, const State *one, const double *reduced, double *x) {
    const int64_t w = dims->w, r = dims->r;
    x[0] = 1.0;
    for (int64_t j = 0; j < r; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < w; i++) sum += (reduced[i] - one->centre[i]) * one->encode[i * r + j];
        x[1 + j] = clip(sum, -ODD_DEVIATIONS, ODD_DEVIATIONS);
    }
}

void encode_context(const Dims *dims, const State *one, const double *context, double *x) {
    double reduced[SKETCH_DIMENSIONS];
    reduce_context(dims, context, reduced);
    encode_reduced(dims, one, reduced, x);
}

void observe_window(const Dims *dims, const State *one, const double *u, const double *context, const double *v,
                    double weight) {
    const int64_t w = dims->w, row = samples_seen(one) % WINDOW;
    const double n = *one->steps + 1.0;
    double *reduced = one->window_contexts + row * w, gap[SKETCH_DIMENSIONS], inside[SKETCH_DIMENSIONS];
    reduce_context(dims, context, reduced);
    memcpy(inside, reduced, sizeof(double) * (size_t)w);
    reduce_bounded(dims, one, context, inside);
    memcpy(one->window_points + row * dims->d, u, sizeof(double) * (size_t)dims->d);
    memcpy(one->window_losses + row * dims->k, v, sizeof(double) * (size_t)dims->k);
    one->window_weights[row] = weight;
    for (int64_t i = 0; i < w; i++) {
        gap[i] = inside[i] - one->reduced_mean[i];
        one->reduced_mean[i] += gap[i] / n;
    }
    for (int64_t i = 0; i < w; i++) {
        for (int64_t j = 0; j < w; j++) {
            double *moment = one->reduced_moments + i * w + j;
            *moment += (gap[i] * (inside[j] - one->reduced_mean[j]) - *moment) / n;
        }
    }
}

/* What turns reduced contexts into components, and back: encode [w, r], decode [r, w]. */
static void make_components(const Dims *dims, const State *one, double *encode, double *decode) {
    const int64_t w = dims->w, r = dims->r;
    double spread[SKETCH_DIMENSIONS];
    for (int64_t i = 0; i < w; i++) {
        const double variance = one->reduced_moments[i * (w + 1)], mean = one->reduced_mean[i];
        spread[i] = variance > 1e-12 * (variance + mean * mean) ? sqrt(variance) : 1.0;
    }
    if (w <= r) {
        for (int64_t i = 0; i < w; i++) {
            for (int64_t j = 0; j < r; j++) {
                encode[i * r + j] = i == j ? 1.0 / spread[i] : 0.0;
                decode[j * w + i] = i == j ? spread[i] : 0.0;
            }
        }
        return;
    }
    double A[SKETCH_DIMENSIONS * SKETCH_DIMENSIONS], values[SKETCH_DIMENSIONS];
    double vectors[SKETCH_DIMENSIONS * SKETCH_DIMENSIONS];
    for (int64_t i = 0; i < w; i++)
        for (int64_t j = 0; j < w; j++) A[i * w + j] = one->reduced_moments[i * w + j] / (spread[i] * spread[j]);
    eigen_symmetric(w, A, values, vectors);
    for (int64_t j = 0; j < r; j++) {
        const double size = sqrt(most(values[w - r + j], 1e-9));
        for (int64_t i = 0; i < w; i++) {
            const double axis = vectors[i * w + w - r + j];
            encode[i * r + j] = axis / size / spread[i];
            decode[j * w + i] = axis * size * spread[i];
        }
    }
}

/* Look at the components anew, and re-express the optimum in them. */
void refresh_components(const Dims *dims, const State *one) {
    const int64_t d = dims->d, w = dims->w, r = dims->r;
    double encode[SKETCH_DIMENSIONS * RANK], decode[RANK * SKETCH_DIMENSIONS];
    make_components(dims, one, encode, decode);
    for (int64_t knob = 0; knob < d && *one->fitted > 0.0; knob++) {
        double *M = one->theta + 1 + d + knob * (1 + r), slopes[SKETCH_DIMENSIONS]; /* by the reduced context */
        double moved = M[0];
        for (int64_t i = 0; i < w; i++) {
            slopes[i] = dot(r, M + 1, one->encode + i * r);
            moved += slopes[i] * (one->reduced_mean[i] - one->centre[i]);
        }
        M[0] = clip(moved, -FARTHEST_OPTIMUM, FARTHEST_OPTIMUM);
        for (int64_t j = 0; j < r; j++)
            M[1 + j] = clip(dot(w, slopes, decode + j * w), -FARTHEST_OPTIMUM, FARTHEST_OPTIMUM);
    }
    memcpy(one->centre, one->reduced_mean, sizeof(double) * (size_t)w);
    memcpy(one->encode, encode, sizeof(double) * (size_t)(w * r));
}
