/* What to try next, in one call: belief.py, search.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

enum { STARTS = 3 };
enum { BEST_KNOWN, BEST_TRIED, AT_DEFAULT, ONE_MOVED, SEVERAL_MOVED, NEARBY }; /* places in SOURCES */

/* Whether x [d] is one of points [count, d]. */
static int is_among(int64_t d, const double *x, int64_t count, const double *points) {
    for (int64_t i = 0; i < count; i++)
        if (!memcmp(points + i * d, x, sizeof(double) * (size_t)d)) return 1;
    return 0;
}

/* Different stored points, least mean first: which rows [SHORTLIST] they are; how many, up to `wanted`. */
static int64_t best_rows(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t barred_count,
                         const double *barred, int64_t wanted, int64_t *rows) {
    double key[SHORTLIST + 1];
    int64_t count = 0;
    for (int64_t i = 0; i < f->n; i++) { /* without the residual at first */
        const double *x = f->points + i * k->d;
        const double mean = f->mean[i] + dot(k->p, f->effects + i * k->p, here->effects)
                            + dot(k->q, f->curved + i * k->q, here->curved);
        if (count == SHORTLIST && mean >= key[count - 1]) continue;
        int64_t at = count;
        int known = is_among(k->d, x, barred_count, barred);
        for (int64_t r = 0; r < count && !known; r++) known = key[r] == mean && is_among(k->d, x, 1, f->points + rows[r] * k->d);
        if (known) continue;
        if (count < SHORTLIST) count++;
        else at--;
        for (; at > 0 && key[at - 1] > mean; at--) key[at] = key[at - 1], rows[at] = rows[at - 1];
        key[at] = mean, rows[at] = i;
    }
    for (int64_t r = 0; r < count; r++) {
        const int64_t row = rows[r];
        const double mean = gp_mean(k, f, here, t, f->points + row * k->d);
        int64_t at = r;
        for (; at > 0 && key[at - 1] > mean; at--) key[at] = key[at - 1], rows[at] = rows[at - 1];
        key[at] = mean, rows[at] = row;
    }
    return count < wanted ? count : wanted;
}

typedef struct {
    int64_t count, lines;
    double *points;               /* [count, d] */
    int64_t *source, *line, *line_knob;
} Found;

static void add(const GpKnobs *k, Found *found, const double *x, int64_t source) {
    if (is_among(k->d, x, found->count, found->points)) return;
    memcpy(found->points + found->count * k->d, x, sizeof(double) * (size_t)k->d);
    found->source[found->count++] = source;
}

/* Where the knob of some lines moves in a candidate with several knobs moved. */
static double moved_to(const GpKnobs *k, const double *lines, const int64_t *line_knob, int64_t count, int64_t j, double x,
                       double pick, double normal) {
    if (k->first_level[j + 1] == k->first_level[j]) return clip(x + WIDE * normal, 0.0, 1.0);
    int64_t first = 0, end;
    while (first < count && line_knob[first] < j) first++;
    for (end = first; end < count && line_knob[end] == j;) end++;
    return end > first ? lines[(first + (int64_t)(pick * (double)(end - first))) * k->d + j] : x;
}

/* Ends [STARTS, d] of descents from the best stored points and the default, without those that are barred; how many.
 * `least`: the one of least mean. memory: STARTS DESCENTS (2 d + 1), and the scratch of gp_descended. */
static int64_t descents(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t tried,
                        const int64_t *rows, int64_t barred_count, const double *barred, int64_t most, double *memory,
                        double *ends, int64_t *least) {
    const int64_t d = k->d, room = STARTS * DESCENTS;
    const size_t size = sizeof(double) * (size_t)d;
    const double *from[STARTS] = {tried ? f->points + rows[0] * d : k->default_, k->default_, f->points + rows[1] * d};
    GpSteps steps = {0, memory, memory + room * d, memory + 2 * room * d};
    double lowest = INFINITY;
    int64_t kept = 0;
    for (int64_t i = 0; i < (tried > 1 ? STARTS : STARTS - 1); i++) {
        double *end = ends + kept * d;
        memcpy(end, from[i], size);
        const double there = gp_descended(k, f, here, t, end, DESCENTS, most, &steps, memory + room * (2 * d + 1));
        if (is_among(d, end, barred_count, barred)) continue;
        if (there < lowest) lowest = there, *least = kept;
        kept++;
    }
    return kept;
}

/* The point of least mean that descents find; 0 if all are barred. scratch as for a choice. */
GP_API int64_t rasp_gp_best(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t barred_count,
                            const double *barred, int64_t most, int64_t values, double *out, double *scratch) {
    GpTable t = gp_table(k, f, values, scratch);
    double *ends = scratch + gp_table_room(k, f->n, values);
    int64_t rows[SHORTLIST + 1] = {0}, least = 0;
    const int64_t tried = best_rows(k, f, here, &t, barred_count, barred, 1, rows);
    const int64_t kept = descents(k, f, here, &t, tried, rows, barred_count, barred, most, ends + STARTS * k->d, ends, &least);
    memcpy(out, kept ? ends + least * k->d : f->points + rows[0] * k->d, sizeof(double) * (size_t)k->d);
    return kept > 0 || tried > 0;
}

/* How many candidates there can be, and the scratch that a choice needs. */
GP_API int64_t rasp_gp_choose_room(const GpKnobs *k, int64_t n, int64_t most, int64_t values) {
    const int64_t d = k->d, m = STARTS + BEST_ROWS + 2 + most + SEVERAL + ELSEWHERE, steps = STARTS * DESCENTS;
    const int64_t descents = steps * (2 * d + 1) + most * (d + 2) + 2 * d + n * (d + 1), lines = most * (d + 1);
    const int64_t joint = 2 * m * (k->p + k->q + k->e) + n * (m + 1) + k->p + k->q, value = m * (m + 3) + 2;
    const int64_t rest = joint > value ? joint : value, more = descents > rest ? descents : rest;
    return gp_table_room(k, n, values) + m * (d + m + 6) + (STARTS + 1) * d + lines + 2 * d + more;
}

/* The candidate of least mean less `horizon` times its value.
 * uniform [SEVERAL, 2 d + 1]; normal [SEVERAL + ELSEWHERE, d] where any knob is a scale, else NULL; barred [count, d];
 * reached [d], or NULL where all can be had; nodes as in value.py; `most` moves there can be; `values`: room
 * in the table. out [d + 6]: the point; its place in SOURCES; its mean and variance; those of the default; their
 * covariance. */
GP_API void rasp_gp_choose(const GpKnobs *k, const GpFit *f, const GpHere *here, const double *uniform,
                           const double *normal, int64_t barred_count, const double *barred, const double *reached,
                           const double *nodes, double horizon, int64_t most,
                           int64_t values, double *out, double *scratch) {
    const int64_t d = k->d, n = f->n;
    const int64_t m_most = STARTS + BEST_ROWS + 2 + most + SEVERAL + ELSEWHERE;
    const size_t size = sizeof(double) * (size_t)d;
    GpTable t = gp_table(k, f, values, scratch);
    double *rest = scratch + gp_table_room(k, n, values);
    double *points = rest, *covariance = points + m_most * d, *mean = covariance + m_most * m_most;
    double *value = mean + m_most;
    Found found = {0, 0, points, (int64_t *)(value + m_most), NULL, NULL};
    found.line = found.source + m_most, found.line_knob = found.line + m_most;
    double *ends = (double *)(found.line_knob + m_most), *x = ends + STARTS * d, *lines = x + d;
    int64_t *knob = (int64_t *)(lines + most * d);
    rest = (double *)(knob + most) + 2 * d; /* room of gp_moves */
    int64_t rows[SHORTLIST + 1] = {0}, least = 0;
    const int64_t tried = best_rows(k, f, here, &t, barred_count, barred, BEST_ROWS, rows);
    const int64_t kept = descents(k, f, here, &t, tried, rows, barred_count, barred, most, rest, ends, &least);
    const double *x0 = kept ? ends + least * d : tried ? f->points + rows[0] * d : k->default_;
    add(k, &found, x0, BEST_KNOWN);
    for (int64_t i = 0; i < kept; i++) add(k, &found, ends + i * d, BEST_TRIED);
    for (int64_t i = 0; i < tried; i++) add(k, &found, f->points + rows[i] * d, BEST_TRIED);
    add(k, &found, k->default_, AT_DEFAULT);
    x0 = points;
    const int64_t count = gp_moves(k, x0, STEP, lines, knob);
    for (int64_t i = 0; i < count; i++) { /* all of them: they are compared with one another */
        memcpy(points + found.count * d, lines + i * d, size);
        found.source[found.count] = ONE_MOVED;
        found.line[i] = found.count++, found.line_knob[i] = knob[i];
    }
    for (int64_t i = 0; i < SEVERAL; i++) {
        const double *draw = uniform + i * (2 * d + 1), *order = draw + 1, *pick = order + d;
        int64_t knobs = 2, last = -1;
        for (double half = 0.5; draw[0] < half && knobs < d; half *= 0.5) knobs++;
        memcpy(x, x0, size);
        for (int64_t c = 0; c < knobs && c < d; c++) { /* in the order of their draws */
            int64_t next = -1;
            for (int64_t j = 0; j < d; j++)
                if ((last < 0 || order[j] > order[last]) && (next < 0 || order[j] < order[next])) next = j;
            if (next < 0) break;
            x[next] = moved_to(k, lines, knob, count, next, x0[next], pick[next], normal ? normal[i * d + next] : 0.0);
            last = next;
        }
        add(k, &found, x, SEVERAL_MOVED);
    }
    for (int64_t i = 0; normal && i < ELSEWHERE; i++) {
        for (int64_t j = 0; j < d; j++)
            x[j] = gp_snapped(k, j, k->bowl[j] > 0.0 ? x0[j] + LITTLE * normal[(SEVERAL + i) * d + j] : x0[j]);
        add(k, &found, x, NEARBY);
    }
    const int64_t m = found.count;
    if (k->lawful) k->lawful(m, points);
    gp_joint(k, f, here, &t, m, points, mean, covariance, rest);
    gp_value(k, m, points, count, found.line, found.line_knob, mean, covariance, f->hyper[S2], nodes, value, rest);
    int64_t best = -1, at_default = 0;
    double lowest = INFINITY;
    for (int64_t i = 0; i < m; i++) {
        const double *own = points + i * d;
        if (!memcmp(own, k->default_, size)) at_default = i;
        if (is_among(d, own, barred_count, barred)) continue;
        if (reached && !is_among(d, own, n, f->points))
            for (int64_t j = 0; j < d; j++) value[i] *= own[j] != x0[j] ? reached[j] : 1.0;
        const double score = mean[i] - horizon * value[i];
        if (best < 0 || score < lowest) lowest = score, best = i;
    }
    best = best < 0 ? 0 : best;
    memcpy(out, points + best * d, size);
    out[d] = (double)found.source[best];
    out[d + 1] = mean[best];
    out[d + 2] = covariance[best * m + best];
    out[d + 3] = mean[at_default];
    out[d + 4] = covariance[at_default * m + at_default];
    out[d + 5] = covariance[best * m + at_default];
}
