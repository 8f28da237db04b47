/* Slots of memory: micro-clusters of contexts, each with sums of its samples; merged when full, never thrown away. */
#include "learn.h"

#define LEAST_SHARE 0.0025    /* of the spread: contexts that move smoothly still have neighbours */
#define REACH_DEVIATIONS 1.36 /* deviations of the usual distance between neighbours that still count as near */

enum { SETTLED_SAMPLES = 32 /* samples from which on one more hardly changes the scales of the context */ };
enum { BLOCK = 256, LANES = 8 }; /* dimensions that are dealt with at a time; sums that are formed side by side */

/* How the dimensions of a context are measured. */
typedef struct {
    const State *one;
    const double *context; /* as if it had come, too: a dimension that never moved may do so now; or null */
    double steps, changes; /* samples so far; what the sums of changes are divided by */
    double moved;          /* dimensions that have moved at all, at least 1; the others have factors of zero */
    bool all;              /* whether that is all of them */
} Scales;

/* The variance of a dimension; infinite if it has not moved. */
static inline double spread_of(const Scales *scales, int64_t i) {
    const State *one = scales->one;
    double mean = one->mean[i], moment = one->moment[i];
    if (scales->context) {
        const double n = scales->steps, now = scales->context[i] - one->origin[i];
        mean = (n * mean + now) / (n + 1.0);
        moment = (n * moment + now * now) / (n + 1.0);
    }
    const double variance = moment - mean * mean;
    return variance > 1e-12 * moment ? variance : INFINITY;
}

/* Half the mean squared change of a dimension from one sample to the next, of the spread that it has. */
static inline double wobble_of(const Scales *scales, int64_t i, double spread) {
    return most(scales->one->changes[i] / scales->changes, LEAST_SHARE * spread);
}

static Scales make_scales(const Dims *dims, const State *one, const double *context) {
    Scales scales = {one, context, *one->steps, most(*one->steps - 1.0, 1.0), 1.0, false};
    int64_t moved = 0;
    for (int64_t i = 0; i < dims->c; i++)
        moved += spread_of(&scales, i) < INFINITY;
    scales.moved = most((double)moved, 1.0);
    scales.all = moved == dims->c;
    return scales;
}

static Scales scales_at(const Dims *dims, const State *one, const double *context) {
    if (*one->steps >= SETTLED_SAMPLES) {
        const Scales scales = make_scales(dims, one, NULL);
        if (scales.all)
            return scales;
    }
    return make_scales(dims, one, context);
}

/* Mean squared distances to the first slots, in units of the wobble and of the spread, block by block. */
static void measure(const Dims *dims, const State *one, const double *context, int64_t slots, double *near,
                    double *far) {
    const int64_t c = dims->c;
    const Scales scales = scales_at(dims, one, context);
    double now[BLOCK], by_wobble[BLOCK], by_spread[BLOCK];
    for (int64_t slot = 0; slot < slots; slot++)
        near[slot] = far[slot] = 0.0;
    for (int64_t start = 0; start < c; start += BLOCK) {
        const int64_t width = c - start < BLOCK ? c - start : BLOCK;
        for (int64_t i = 0; i < width; i++) {
            const double spread = spread_of(&scales, start + i);
            now[i] = context[start + i] - one->origin[start + i];
            by_wobble[i] = 1.0 / (wobble_of(&scales, start + i, spread) * scales.moved);
            by_spread[i] = 1.0 / (spread * scales.moved);
        }
        for (int64_t slot = 0; slot < slots; slot++) {
            const double *key = one->keys + slot * c + start;
            double a[LANES] = {0.0}, b[LANES] = {0.0};
            int64_t i = 0;
            for (; i + LANES <= width; i += LANES)
                for (int lane = 0; lane < LANES; lane++) {
                    const double gap = key[i + lane] - now[i + lane], square = gap * gap;
                    a[lane] += by_wobble[i + lane] * square;
                    b[lane] += by_spread[i + lane] * square;
                }
            for (; i < width; i++) {
                const double gap = key[i] - now[i], square = gap * gap;
                a[0] += by_wobble[i] * square;
                b[0] += by_spread[i] * square;
            }
            near[slot] += ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7]));
            far[slot] += ((b[0] + b[4]) + (b[1] + b[5])) + ((b[2] + b[6]) + (b[3] + b[7]));
        }
    }
}

void context_gaps(const Dims *dims, const State *one, const double *context, double *gaps) {
    const int64_t count = (int64_t)*one->count, R = dims->R;
    measure(dims, one, context, count, gaps, gaps + R);
    for (int64_t slot = count; slot < R; slot++)
        gaps[slot] = gaps[R + slot] = 0.0;
}

double context_reach(const State *one) {
    const double mean = one->distance[0], square = one->distance[1];
    return 2.0 + REACH_DEVIATIONS * sqrt(most(square - mean * mean, 0.0));
}
