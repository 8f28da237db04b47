/* Slots of memory: clusters of contexts, each with sums of its samples; merged when full, never thrown away. */
#include "learn.h"
#include "linear.h"

#include <string.h>

enum { CANDIDATES = MERGE_CANDIDATES /* slots that look for a partner when slots are merged; they take turns */ };
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
    AtOnce a[SUMS / AT_ONCE] = {{0.0}}, b[SUMS / AT_ONCE] = {{0.0}};
    int64_t i = 0;
    for (; i + SUMS <= width; i += SUMS) {
        for (int part = 0; part < SUMS / AT_ONCE; part++) {
            const int64_t at = i + AT_ONCE * part;
            const AtOnce gap = *(const AtOnce *)(key + at) - *(const AtOnce *)(now + at), square = gap * gap;
            a[part] += *(const AtOnce *)(by_wobble + at) * square;
            b[part] += *(const AtOnce *)(by_spread + at) * square;
        }
    }
    if (i) *near += total((const double *)a), *far += total((const double *)b);
    for (; i < width; i++) {
        const double gap = key[i] - now[i], square = gap * gap;
        *near += by_wobble[i] * square;
        *far += by_spread[i] * square;
    }
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
    const int64_t count = slots_used(dims, one), R = dims->R;
    measure(dims, one, context, count, gaps, gaps + R);
    EACH(slot, R - count) gaps[count + slot] = gaps[R + count + slot] = 0.0;
    JOIN();
}

double context_reach(const State *one) {
    const double mean = one->distance[0], square = one->distance[1];
    return MEAN_DISTANCE + REACH_DEVIATIONS * sqrt(most(square - mean * mean, 0.0));
}

bool seen_before(const Dims *dims, const State *one, int64_t slot, int64_t n, const bool *others, double *scratch) {
    double *near = scratch + dims->c, *far = near + EARLY;
    const double reach = ALIKE_REACHES * context_reach(one);
    bool before = false, beside = false;
    EACH(i, dims->c) scratch[i] = one->keys[slot * dims->c + i] + one->origin[i];
    JOIN();
    measure(dims, one, scratch, n, near, far);
    for (int64_t i = 0; i < n; i++) {
        const bool alike = near[i] < reach;
        before = before || (alike && i < slot);
        beside = beside || (alike && others[i]);
    }
    return before && beside;
}

void slot_targets(const Dims *dims, const State *one, int64_t n, double *y) {
    EACH(slot, n)
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
        const double now = clip(context[i], one->context_least[i], one->context_most[i]) - one->origin[i];
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

enum { SOME = 16 }; /* dimensions at a time */

/* gaps [CANDIDATES, R] += squared distances between `count` slots and those that look for a partner; their keys are
   columns of T [width, R] and of own [width, CANDIDATES]. */
WIDER static void add_pairs(int64_t width, int64_t R, int64_t count, const double *restrict T,
                            const double *restrict own, double *restrict gaps) {
    enum { HIGH = 4 };
    for (int64_t row = 0; row < CANDIDATES; row += HIGH) {
        for (int64_t slot = 0; slot < count; slot += SUMS) {
            double sums[HIGH][SUMS] = {{0.0}};
            const double *restrict a = own + row, *restrict b = T + slot;
            for (int64_t i = 0; i < width; i++, a += CANDIDATES, b += R)
                for (int y = 0; y < HIGH; y++)
                    for (int x = 0; x < SUMS; x++) sums[y][x] += (b[x] - a[y]) * (b[x] - a[y]);
            for (int y = 0; y < HIGH; y++)
                for (int x = 0; x < SUMS; x++) gaps[(row + y) * R + slot + x] += sums[y][x];
        }
    }
}

/* Distances between the settled slots and those of them that look for a partner [CANDIDATES, R], in units of the
   wobble; the first of these is `first` of the settled ones. Slots in the same place are at no distance: the first
   wins, and not the one whose rounding is luckiest. */
static void measure_pairs(const Dims *dims, const State *one, const int64_t *settled, int64_t count, int64_t first,
                          double *gaps, double *T) {
    const int64_t c = dims->c, R = dims->R;
    const Scales scales = make_scales(dims, one, NULL);
    double own[SOME * CANDIDATES], by[SOME];
    double sizes[SLOTS + SPARE_SLOTS] = {0.0};
    memset(gaps, 0, sizeof(double) * (size_t)(CANDIDATES * R));
    memset(T, 0, sizeof(double) * (size_t)(SOME * R));
    for (int64_t start = 0; start < c; start += SOME) {
        const int64_t width = c - start < SOME ? c - start : SOME;
        for (int64_t i = 0; i < width; i++) {
            const double wobble = wobble_of(&scales, start + i, spread_of(&scales, start + i));
            by[i] = sqrt(1.0 / (wobble * scales.moved));
        }
        for (int64_t slot = 0; slot < count; slot++) {
            const double *key = one->keys + settled[slot] * c + start;
            for (int64_t i = 0; i < width; i++) T[i * R + slot] = by[i] * key[i];
        }
        for (int64_t i = 0; i < width; i++) {
            for (int64_t slot = 0; slot < count; slot++) sizes[slot] += T[i * R + slot] * T[i * R + slot];
            for (int64_t row = 0; row < CANDIDATES; row++)
                own[i * CANDIDATES + row] = T[i * R + (first + row) % count];
        }
        add_pairs(width, R, count, T, own, gaps);
    }
    for (int64_t row = 0; row < CANDIDATES; row++) {
        for (int64_t slot = 0; slot < count; slot++) {
            double *gap = gaps + row * R + slot;
            *gap = *gap > SAME_PLACE * (sizes[slot] + sizes[(first + row) % count]) ? least(*gap, LARGEST_GAP) : 0.0;
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

/* Close the gaps that slots left: those between two gaps move together. */
static void close_ranks(const Dims *dims, const State *one, const bool *left) {
    const int64_t R = dims->R;
    const struct { double *rows; int64_t width; } all[] = {
        {one->keys, dims->c}, {one->prompts, dims->P}, {one->counts, 1}, {one->last, 1},
        {one->trust, 1}, {one->trust + R, 1}, {one->trust + 2 * R, 1}, {one->trust + 3 * R, 1}};
    int64_t to = 0;
    for (int64_t from = 0; from < R;) {
        int64_t end = from;
        while (end < R && !left[end]) end++;
        for (size_t i = 0; i < sizeof all / sizeof *all && to != from; i++) {
            const int64_t width = all[i].width;
            const size_t size = sizeof(double) * (size_t)((end - from) * width);
            memmove(all[i].rows + to * width, all[i].rows + from * width, size);
        }
        to += end - from;
        from = end + 1;
    }
    JOIN();
    *one->count = (double)to;
    *one->latest = (double)(to - 1);
}

/* The place of the least gap [count] among those that are not `out`; `own` if there is none beside it. */
static int64_t nearest_to(int64_t own, int64_t count, const double *gap, const bool *out) {
    int64_t nearest = own;
    double shortest = INFINITY;
    for (int64_t slot = 0; slot < count; slot++) {
        if (gap[slot] < shortest && !out[slot] && slot != own) {
            shortest = gap[slot];
            nearest = slot;
        }
    }
    return nearest;
}

int64_t merge_scratch(const Dims *dims) { return (CANDIDATES + SOME) * dims->R; }

/* Fold near slots into one, pair by pair: of some that take turns, and of any that are not fresh. */
APART static void merge_slots(const Dims *dims, const State *one, double *scratch) {
    const int64_t steps = samples_seen(one), R = dims->R;
    double *gaps = scratch;
    int64_t settled[SLOTS + SPARE_SLOTS], turn[CANDIDATES], nearest[CANDIDATES], count = 0; /* by place in `settled` */
    bool out[SLOTS + SPARE_SLOTS] = {false}, left[SLOTS + SPARE_SLOTS] = {false};
    for (int64_t slot = 0; slot < R; slot++)
        if (one->last[slot] <= *one->steps - 1.0 - SHARP_STEPS) settled[count++] = slot;
    if (count < 2 * (R - SLOTS)) /* too few for all pairs: many tuners of a few samples each were merged */
        for (count = 0; count < R; count++) settled[count] = count;
    const int64_t first = CANDIDATES * (steps / SPARE_SLOTS) % count;
    measure_pairs(dims, one, settled, count, first, gaps, gaps + CANDIDATES * R);
    for (int64_t row = 0; row < CANDIDATES; row++) {
        turn[row] = (first + row) % count;
        nearest[row] = nearest_to(turn[row], count, gaps + row * R, out);
    }
    for (int64_t pairs = R - SLOTS; pairs > 0; pairs--) {
        double shortest = INFINITY;
        int64_t best = -1;
        for (int64_t row = 0; row < CANDIDATES; row++) {
            if (out[turn[row]]) continue;
            const double *gap = gaps + row * R;
            if (out[nearest[row]]) nearest[row] = nearest_to(turn[row], count, gap, out);
            if (nearest[row] != turn[row] && gap[nearest[row]] < shortest) {
                shortest = gap[nearest[row]];
                best = row;
            }
        }
        if (best < 0) break; /* no two are left */
        const int64_t pair = settled[turn[best]], other = settled[nearest[best]];
        out[turn[best]] = out[nearest[best]] = left[pair > other ? pair : other] = true;
        fold(dims, one, pair < other ? pair : other, pair > other ? pair : other);
    }
    close_ranks(dims, one, left);
}

/* A new slot for one sample, whose prompt holds the sample's own sums. */
void write_sample(const Dims *dims, const State *one, const double *context, const double *psi, double trust,
                  double *scratch) {
    const int64_t c = dims->c, q = dims->q, slot = place_up_to(dims->R - 1, *one->count);
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
    *one->count = (double)(slot + 1);
    if (slot + 1 == dims->R) merge_slots(dims, one, scratch);
}
