/* Slots of memory: clusters of contexts, each with sums of its samples; merged when full, never thrown away. */
#include "learn.h"
#include "linear.h"

#include <string.h>

#define JUMP_TIMES 6.0        /* a change beyond so many times the usual one tells of a new situation */
#define LEAST_SHARE 0.0025    /* of the spread: contexts that move smoothly still have neighbours */
#define ALIKE_REACHES 2.0     /* times the reach: beyond, a situation has nothing in common with another */
#define LARGEST_DISTANCE 4.0  /* the most that one distance adds to those statistics: twice its mean */
#define SAME_PLACE 1e-12      /* of the size of two keys: a smaller squared distance is rounding */
#define LARGEST_GAP 1e300     /* a distance that overflows is still shorter than one that is ruled out */
#define SHARP_STEPS 64.0      /* steps in which a slot is not merged: what is recent stays sharp */
#define REACH_DEVIATIONS 1.36 /* deviations of the usual distance between neighbours that still count as near */

enum { SCALES_SETTLED_SAMPLES = 32 /* samples from which on one more hardly changes the scales of the context */ };
enum { CANDIDATES = 32 /* slots that look for a partner when slots are merged; they take turns */ };
enum { BLOCK = 256, SUMS = 8 }; /* dimensions that are dealt with at a time; sums that are formed side by side */

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
    for (int64_t i = 0; i < dims->c; i++) moved += spread_of(&scales, i) < INFINITY;
    scales.moved = most((double)moved, 1.0);
    scales.all = moved == dims->c;
    return scales;
}

static Scales scales_at(const Dims *dims, const State *one, const double *context) {
    if (*one->steps >= SCALES_SETTLED_SAMPLES) {
        const Scales scales = make_scales(dims, one, NULL);
        if (scales.all) return scales;
    }
    return make_scales(dims, one, context);
}

static inline double total(const double *sums) {
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/* Adds the squared differences of two blocks of contexts, under two rows of weights. */
static inline void add_gaps(int64_t width, const double *key, const double *now, const double *by_wobble,
                            const double *by_spread, double *near, double *far) {
    Quad a[2] = {{0.0}, {0.0}}, b[2] = {{0.0}, {0.0}};
    int64_t i = 0;
    for (; i + SUMS <= width; i += SUMS) {
        for (int half = 0; half < 2; half++) {
            const int64_t at = i + 4 * half;
            const Quad gap = *(const Quad *)(key + at) - *(const Quad *)(now + at), square = gap * gap;
            a[half] += *(const Quad *)(by_wobble + at) * square;
            b[half] += *(const Quad *)(by_spread + at) * square;
        }
    }
    if (i) *near += total((const double *)a), *far += total((const double *)b);
    for (; i < width; i++) {
        const double gap = key[i] - now[i], square = gap * gap;
        *near += by_wobble[i] * square;
        *far += by_spread[i] * square;
    }
}

/* The same, under one row of weights. */
static inline double gap_between(int64_t width, const double *key, const double *now, const double *by_wobble) {
    double sums[SUMS] = {0.0}, sum = 0.0;
    int64_t i = 0;
    for (; i + SUMS <= width; i += SUMS) {
        for (int lane = 0; lane < SUMS; lane++) {
            const double gap = key[i + lane] - now[i + lane];
            sums[lane] += by_wobble[i + lane] * (gap * gap);
        }
    }
    if (i) sum = total(sums);
    for (; i < width; i++) {
        const double gap = key[i] - now[i];
        sum += by_wobble[i] * (gap * gap);
    }
    return sum;
}

/* Mean squared distances to the first slots, in units of the wobble and of the spread, block by block. */
WIDER static void measure(const Dims *dims, const State *one, const double *context, int64_t slots, double *near,
                    double *far) {
    const int64_t c = dims->c;
    const Scales scales = scales_at(dims, one, context);
    double now[BLOCK], by_wobble[BLOCK], by_spread[BLOCK];
    EACH(slot, slots) near[slot] = far[slot] = 0.0;
    for (int64_t start = 0; start < c; start += BLOCK) {
        const int64_t width = c - start < BLOCK ? c - start : BLOCK;
        for (int64_t i = 0; i < width; i++) {
            const double spread = spread_of(&scales, start + i);
            now[i] = context[start + i] - one->origin[start + i];
            by_wobble[i] = 1.0 / (wobble_of(&scales, start + i, spread) * scales.moved);
            by_spread[i] = 1.0 / (spread * scales.moved);
        }
        EACH(slot, slots)
            add_gaps(width, one->keys + slot * c + start, now, by_wobble, by_spread, near + slot, far + slot);
    }
    JOIN();
}

void context_gaps(const Dims *dims, const State *one, const double *context, double *gaps) {
    const int64_t count = (int64_t)*one->count, R = dims->R;
    measure(dims, one, context, count, gaps, gaps + R);
    EACH(slot, R - count) gaps[count + slot] = gaps[R + count + slot] = 0.0;
    JOIN();
}

double context_reach(const State *one) {
    const double mean = one->distance[0], square = one->distance[1];
    return 2.0 + REACH_DEVIATIONS * sqrt(most(square - mean * mean, 0.0));
}

bool seen_before(const Dims *dims, const State *one, int64_t slot, double *scratch) {
    double *near = scratch + dims->c, *far = near + EARLY;
    const double reach = ALIKE_REACHES * context_reach(one);
    EACH(i, dims->c) scratch[i] = one->keys[slot * dims->c + i] + one->origin[i];
    JOIN();
    measure(dims, one, scratch, slot, near, far);
    for (int64_t i = 0; i < slot; i++) {
        if (near[i] < reach) return true;
    }
    return false;
}

void slot_targets(const Dims *dims, const State *one, double *y) {
    const int64_t count = (int64_t)*one->count;
    EACH(slot, count)
        y[slot] = dot(dims->k, one->prompts + slot * dims->P + dims->p, one->weights) / one->counts[slot];
    JOIN();
}

/* Statistics of contexts take in one more. */
static void observe_context(const Dims *dims, const State *one, const double *context) {
    const int64_t c = dims->c;
    const double n = *one->steps;
    const Scales scales = make_scales(dims, one, NULL);
    double distance = 0.0;
    for (int64_t i = 0; i < c; i++) {
        const double now = context[i] - one->origin[i];
        if (n > 0.0) {
            double change = now - one->previous[i];
            change *= change;
            if (n > 3.0) {
                const double wobble = wobble_of(&scales, i, spread_of(&scales, i));
                distance += change * (1.0 / (wobble * scales.moved));
                change = least(change, 2.0 * JUMP_TIMES * wobble);
            }
            one->changes[i] += 0.5 * change;
        }
        one->previous[i] = now;
        one->mean[i] += (now - one->mean[i]) / (n + 1.0);
        one->moment[i] += (now * now - one->moment[i]) / (n + 1.0);
    }
    if (n > 3.0) {
        distance = least(distance, LARGEST_DISTANCE);
        one->distance[0] += (distance - one->distance[0]) / (n - 3.0);
        one->distance[1] += (distance * distance - one->distance[1]) / (n - 3.0);
    }
}

/* Distances between the settled slots and those of them that look for a partner [CANDIDATES, R], in units of the
   wobble. Slots in the same place are at no distance: the first wins, and not the one whose rounding is luckiest. */
static void measure_pairs(const Dims *dims, const State *one, const int64_t *settled, int64_t count,
                          const int64_t *turn, double *gaps, double *sizes) {
    const int64_t c = dims->c, R = dims->R;
    const Scales scales = make_scales(dims, one, NULL);
    const double origin[BLOCK] = {0.0};
    double by_wobble[BLOCK];
    EACH(i, CANDIDATES * R) gaps[i] = 0.0;
    EACH(i, R) sizes[i] = 0.0;
    for (int64_t start = 0; start < c; start += BLOCK) {
        const int64_t width = c - start < BLOCK ? c - start : BLOCK;
        for (int64_t i = 0; i < width; i++)
            by_wobble[i] = 1.0 / (wobble_of(&scales, start + i, spread_of(&scales, start + i)) * scales.moved);
        EACH(i, count) {
            const double *key = one->keys + settled[i] * c + start;
            sizes[settled[i]] += gap_between(width, key, origin, by_wobble);
            for (int row = 0; row < CANDIDATES; row++)
                gaps[row * R + settled[i]] += gap_between(width, key, one->keys + turn[row] * c + start, by_wobble);
        }
    }
    for (int row = 0; row < CANDIDATES; row++) {
        EACH(i, count) {
            double *gap = gaps + row * R + settled[i];
            *gap = *gap > SAME_PLACE * (sizes[settled[i]] + sizes[turn[row]]) ? least(*gap, LARGEST_GAP) : 0.0;
        }
    }
    JOIN();
}

/* One slot takes in another. */
static void fold(const Dims *dims, const State *one, int64_t near, int64_t gone) {
    const int64_t c = dims->c, P = dims->P, R = dims->R;
    const double share = one->counts[gone] / (one->counts[gone] + one->counts[near]);
    double *key = one->keys + near * c;
    for (int64_t i = 0; i < c; i++) key[i] += share * (one->keys[gone * c + i] - key[i]);
    for (int64_t i = 0; i < L; i++) {
        double *trust = one->trust + i * R;
        trust[near] += share * (trust[gone] - trust[near]);
    }
    EACH(i, P) one->prompts[near * P + i] += one->prompts[gone * P + i];
    JOIN();
    one->counts[near] += one->counts[gone];
    one->last[near] = most(one->last[near], one->last[gone]);
}

/* Close the gaps that slots left. */
static void close_ranks(const Dims *dims, const State *one, const bool *left) {
    const int64_t c = dims->c, P = dims->P, R = dims->R;
    int64_t to = 0;
    for (int64_t from = 0; from < R; from++) {
        if (left[from]) continue;
        if (to != from) {
            memcpy(one->keys + to * c, one->keys + from * c, sizeof(double) * (size_t)c);
            EACH(i, P) one->prompts[to * P + i] = one->prompts[from * P + i];
            for (int64_t i = 0; i < L; i++) one->trust[i * R + to] = one->trust[i * R + from];
            one->counts[to] = one->counts[from];
            one->last[to] = one->last[from];
        }
        to++;
    }
    JOIN();
    *one->count = (double)to;
    *one->latest = (double)(to - 1);
}

int64_t merge_scratch(const Dims *dims) { return CANDIDATES * dims->R + dims->R + CANDIDATES; }

/* Fold near slots into one, pair by pair: of some that take turns, and of any that are not fresh. */
APART static void merge_slots(const Dims *dims, const State *one, double *scratch) {
    const int64_t steps = (int64_t)*one->steps, R = dims->R;
    double *gaps = scratch, *sizes = gaps + CANDIDATES * R, *nearest = sizes + R; /* the slot nearest to each */
    int64_t settled[SLOTS + SPARE_SLOTS], turn[CANDIDATES], count = 0;
    bool out[SLOTS + SPARE_SLOTS], left[SLOTS + SPARE_SLOTS] = {false};
    for (int64_t slot = 0; slot < R; slot++) {
        out[slot] = one->last[slot] > *one->steps - 1.0 - SHARP_STEPS;
        if (!out[slot]) settled[count++] = slot;
    }
    for (int row = 0; row < CANDIDATES; row++)
        turn[row] = settled[(row + CANDIDATES * (steps / SPARE_SLOTS)) % count]; /* some are: few slots are fresh */
    measure_pairs(dims, one, settled, count, turn, gaps, sizes);
    EACH(row, CANDIDATES) nearest[row] = -1.0; /* not known */
    for (int64_t pairs = R - SLOTS; pairs > 0; pairs--) {
        double shortest = INFINITY;
        int best = -1;
        EACH(row, CANDIDATES) {
            if (out[turn[row]] || (nearest[row] >= 0.0 && !out[(int64_t)nearest[row]])) continue;
            double least_gap = INFINITY;
            int64_t partner = turn[row];
            for (int64_t slot = 0; slot < R; slot++) {
                if (!out[slot] && slot != turn[row] && gaps[row * R + slot] < least_gap) {
                    least_gap = gaps[row * R + slot];
                    partner = slot;
                }
            }
            nearest[row] = (double)partner;
        }
        JOIN();
        for (int row = 0; row < CANDIDATES; row++) {
            if (out[turn[row]] || (int64_t)nearest[row] == turn[row]) continue;
            const double gap = gaps[row * R + (int64_t)nearest[row]];
            if (gap < shortest) shortest = gap, best = row;
        }
        if (best < 0) break; /* no two are left */
        const int64_t pair = turn[best], other = (int64_t)nearest[best];
        out[pair] = out[other] = left[pair > other ? pair : other] = true;
        fold(dims, one, pair < other ? pair : other, pair > other ? pair : other);
    }
    close_ranks(dims, one, left);
}

/* A new slot for one sample, whose prompt holds the sample's own sums. */
void write_sample(const Dims *dims, const State *one, const double *context, const double *psi, double trust,
                  double *scratch) {
    const int64_t c = dims->c, q = dims->q, slot = (int64_t)*one->count;
    double *prompt = one->prompts + slot * dims->P;
    if (*one->steps == 0.0) memcpy(one->origin, context, sizeof(double) * (size_t)c);
    observe_context(dims, one, context);
    for (int64_t i = 0; i < c; i++) one->keys[slot * c + i] = context[i] - one->origin[i];
    EACH(i, q) {
        double *row = prompt + i * q - i * (i - 1) / 2 - i;
        for (int64_t j = i; j < q; j++) row[j] = psi[i] * psi[j];
    }
    JOIN();
    for (int64_t i = 0; i < L; i++) one->trust[i * dims->R + slot] = trust;
    one->counts[slot] = 1.0;
    one->last[slot] = *one->steps;
    *one->latest = (double)slot;
    *one->steps += 1.0;
    *one->count += 1.0;
    if (slot + 1 == dims->R) merge_slots(dims, one, scratch);
}
