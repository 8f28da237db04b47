/* Moves of a point, the descent of the mean, and what a look is worth: search.py, value.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

enum { NODES = 12 };
typedef __typeof__((AtOnce){0.0} < (AtOnce){0.0}) AtOnceBits; /* all or none of the bits of each */

static int64_t nearest(const double *levels, int64_t n, double x) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabs(levels[i] - x) < fabs(levels[best] - x)) best = i;
    return best;
}

/* Values that knob j may move to from x; how many. Room for as many as it has levels, at least 6. */
static int64_t values_of(const GpKnobs *k, int64_t j, double x, double width, double *values) {
    const double *levels = k->levels + k->first_level[j];
    const int64_t n = k->first_level[j + 1] - k->first_level[j];
    int64_t count = 0;
    if (n == 0) {
        values[0] = x - width;
        values[1] = x + width;
        if (values[0] < 0.0 || values[1] > 1.0) {
            const double way = x < 0.5 ? width : -width;
            values[0] = x + way;
            values[1] = x + 0.5 * way;
        }
        return 2;
    }
    const int64_t at = nearest(levels, n, x);
    if (n <= MOST_FEW || k->unordered[j]) {
        for (int64_t i = 0; i < n; i++)
            if (i != at) values[count++] = levels[i];
        return count;
    }
    const int64_t hops[] = {-(n / 3), -(n / 8), -1, 1, n / 8, n / 3}; /* ascending; n > 8 */
    int64_t last = -1;
    for (int i = 0; i < 6; i++) {
        int64_t to = at + hops[i];
        to = to < 0 ? 0 : to > n - 1 ? n - 1 : to;
        if (to != at && to != last) values[count++] = levels[to];
        last = to;
    }
    return count;
}

int64_t gp_moves(const GpKnobs *k, const double *x, double width, double *points, int64_t *knob) {
    int64_t count = 0;
    for (int64_t j = 0; j < k->d; j++) {
        double *values = points + count * k->d; /* read before it is written over, backwards */
        const int64_t own = values_of(k, j, x[j], width, values);
        for (int64_t i = own - 1; i >= 0; i--) {
            const double value = values[i];
            memcpy(points + (count + i) * k->d, x, sizeof(double) * (size_t)k->d);
            points[(count + i) * k->d + j] = value;
            knob[count + i] = j;
        }
        count += own;
    }
    return count;
}

double gp_snapped(const GpKnobs *k, int64_t j, double x) {
    const double *levels = k->levels + k->first_level[j];
    const int64_t n = k->first_level[j + 1] - k->first_level[j];
    return n ? levels[nearest(levels, n, clip(x, 0.0, 1.0))] : clip(x, 0.0, 1.0);
}

/* x [d] becomes the end of a descent of the mean from it, of so many steps at most; returns the mean there.
 * scratch: most (d + 2) + 2 d + n (d + 1); most: moves there can be. */
WIDER double gp_descended(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, double *x,
                          int64_t most_steps, int64_t most, GpSteps *steps, double *scratch) {
    const int64_t d = k->d, n = f->n;
    const size_t size = sizeof(double) * (size_t)d;
    double *points = scratch, *mean = points + most * d, *ends = mean + most;
    int64_t *knob = (int64_t *)(ends + 2 * d);
    double *others = ends + 2 * d + most, *after = others + n * d; /* [d, n] the residual without each knob; [n] */
    double least = gp_mean(k, f, here, t, x);
    for (int64_t step = 0; step < most_steps; step++) {
        int64_t known = 0;
        while (known < steps->count && memcmp(steps->from + known * d, x, size)) known++;
        if (known < steps->count) {
            if (!memcmp(steps->to + known * d, x, size)) break;
            memcpy(x, steps->to + known * d, size);
            least = steps->mean[known];
            continue;
        }
        const int64_t count = gp_moves(k, x, NEAR, points, knob);
        double sum = here->constant;
        memcpy(others, here->residual, sizeof(double) * (size_t)n);
        for (int64_t i = 0; i < n; i++) after[i] = 1.0;
        for (int64_t j = 0; j < d; j++) {
            const int64_t at = gp_entry(k, f, here, t, j, x[j]);
            const double *restrict by = t->near + at * n, *restrict from = others + j * n;
            double *restrict to = others + (j + 1) * n;
            if (j + 1 < d) for (int64_t i = 0; i < n; i++) to[i] = from[i] * by[i];
            sum += t->mean[at];
        }
        for (int64_t j = d - 1; j >= 0; j--) {
            const double *restrict by = t->near + gp_entry(k, f, here, t, j, x[j]) * n;
            double *restrict to = others + j * n;
            for (int64_t i = 0; i < n; i++) to[i] *= after[i], after[i] *= by[i];
        }
        double *together = ends, *single = ends + d, single_mean = least;
        memcpy(together, x, size);
        memcpy(single, x, size);
        for (int64_t i = 0; i < count;) {
            const int64_t j = knob[i];
            const double rest = sum - t->mean[gp_entry(k, f, here, t, j, x[j])];
            int64_t end = i, best = i;
            for (; end < count && knob[end] == j; end++) {
                const int64_t at = gp_entry(k, f, here, t, j, points[end * d + j]);
                mean[end] = rest + t->mean[at] + dot(n, others + j * n, t->near + at * n);
                if (mean[end] < mean[best]) best = end;
            }
            if (k->first_level[j + 1] == k->first_level[j]) {
                const double x0 = points[i * d + j] - x[j], x1 = points[(i + 1) * d + j] - x[j];
                const double one = (mean[i] - least) / x0, two = (mean[i + 1] - least) / x1;
                const double bend = (one - two) / (x0 - x1), slope = one - bend * x0;
                double move = bend > LEAST_CURVATURE ? -slope / (2.0 * bend) : -copysign(MOST_MOVE, slope);
                together[j] = clip(x[j] + clip(move, -MOST_MOVE, MOST_MOVE), 0.0, 1.0);
            } else {
                if (mean[best] < least - 1e-9) together[j] = points[best * d + j];
                if (mean[best] < single_mean) {
                    single_mean = mean[best];
                    memcpy(single, points + best * d, size);
                }
            }
            i = end;
        }
        if (k->lawful) k->lawful(2, ends);
        const double both[] = {gp_mean(k, f, here, t, together), gp_mean(k, f, here, t, single)};
        const int better = both[1] < both[0], lower = both[better] <= least - 1e-7;
        memcpy(steps->from + known * d, x, size);
        if (lower) {
            memcpy(x, ends + better * d, size);
            least = both[better];
        }
        memcpy(steps->to + known * d, x, size);
        steps->mean[known] = least;
        steps->count++;
        if (!lower) break;
    }
    return least;
}

/* out [m] += min(mean) - E min(mean + moved z), where `at` [count] names the columns that count. */
PART_OF_EACH void add_fall(int64_t m, int64_t count, const int64_t *at, const double *mean, const double *moved,
                           const double *node, const double *weight, double *out) {
    int64_t best = at[0];
    for (int64_t i = 1; i < count; i++) best = mean[at[i]] < mean[best] ? at[i] : best;
    const double least = mean[best], farthest = fmax(fabs(node[0]), fabs(node[NODES - 1]));
    const AtOnce *nodes = (const AtOnce *)node;
    for (int64_t r = 0; r < m; r++) {
        const double *row = moved + r * m, most = least + farthest * fabs(row[best]);
        AtOnce lowest[NODES / AT_ONCE];
        for (int q = 0; q < NODES / AT_ONCE; q++) lowest[q] = row[best] * nodes[q] + least;
        for (int64_t i = 0; i < count; i++) {
            const double mu = mean[at[i]], by = row[at[i]];
            if (mu - farthest * fabs(by) > most) continue; /* it is never the least */
            for (int q = 0; q < NODES / AT_ONCE; q++) {
                const AtOnce value = by * nodes[q] + mu;
                const AtOnceBits less = (AtOnceBits)(value < lowest[q]);
                lowest[q] = (AtOnce)(((AtOnceBits)value & less) | ((AtOnceBits)lowest[q] & ~less));
            }
        }
        const Pair *weights = (const Pair *)weight, *lowest_two = (const Pair *)lowest;
        Pair sum = {0.0};
        for (int q = 0; q < NODES / 2; q++) sum += weights[q] * lowest_two[q];
        const double expected = sum[0] + sum[1];
        out[r] += least - expected > 0.0 ? least - expected : 0.0;
    }
}

/* value [m] of a look at each of m candidates; lines [count] are candidates that differ from the first in line_knob.
 * nodes [2, 12] as in value.py. scratch: m (m + 2) + 1. */
WIDER void gp_value(const GpKnobs *k, int64_t m, const double *points, int64_t count, const int64_t *lines,
                    const int64_t *line_knob, const double *mean, const double *covariance, double noise,
                    const double *nodes, double *value, double *scratch) {
    double *moved = scratch, *along = moved + m * m, *set = along + m;
    int64_t *at = (int64_t *)(set + m);
    for (int64_t r = 0; r < m; r++) {
        const double variance = covariance[r * m + r] > LEAST_VARIANCE ? covariance[r * m + r] : LEAST_VARIANCE;
        const double by = 1.0 / sqrt(variance + noise);
        for (int64_t s = 0; s < m; s++) moved[r * m + s] = covariance[r * m + s] * by;
    }
    memset(along, 0, sizeof(double) * (size_t)(2 * m));
    for (int64_t i = 0, end; i < count; i = end) {
        const int64_t j = line_knob[i];
        at[0] = 0;
        for (end = i; end < count && line_knob[end] == j; end++) at[1 + end - i] = lines[end];
        if (k->first_level[j + 1] == k->first_level[j]) {
            const double x0 = points[at[1] * k->d + j] - points[j], x1 = points[at[2] * k->d + j] - points[j];
            if (x0 == 0.0 || x1 == 0.0 || x0 == x1) continue; /* rules moved them to the same place */
            const double mean_bend = ((mean[at[1]] - mean[0]) / x0 - (mean[at[2]] - mean[0]) / x1) / (x0 - x1);
            const double bend = mean_bend > LEAST_BEND ? mean_bend : LEAST_BEND;
            for (int64_t r = 0; r < m; r++) {
                const double *row = moved + r * m;
                const double one = (row[at[1]] - row[0]) / x0, two = (row[at[2]] - row[0]) / x1;
                const double slope = fabs(one - (one - two) / (x0 - x1) * x0);
                const double bowl = slope * slope / (4.0 * bend), most = MOST_SHIFT * slope;
                along[r] += bowl < most ? bowl : most;
            }
        } else
            add_fall(m, 1 + end - i, at, mean, moved, nodes, nodes + NODES, along);
    }
    for (int64_t s = 0; s < m; s++) at[s] = s;
    add_fall(m, m, at, mean, moved, nodes, nodes + NODES, set);
    for (int64_t r = 0; r < m; r++) value[r] = along[r] > set[r] ? along[r] : set[r];
}
