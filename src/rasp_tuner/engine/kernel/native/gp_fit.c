/* The covariance of the rows, its factor, the scale that explains them best, and slopes of the evidence: model.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "gp_columns.h"

void inverse_of_root(int64_t n, double *root, double *inverse);

enum { STRIP = 32 }; /* numbers of LONG contexts at a time */

/* Parts of the covariance: lower triangles [n, n] of pairs of rows, or one row of them where the stride is 0. */
typedef struct {
    double *kc, *kt, *lin, *choice, *res, *gap;
    int64_t stride;
} Parts;

static Parts parts_in(double *scratch, int64_t n, int whole) {
    const int64_t s = whole ? n * n : n;
    const Parts parts = {scratch, scratch + s, scratch + 2 * s, scratch + 3 * s, scratch + 4 * s, scratch + 5 * s, whole ? n : 0};
    return parts;
}

/* Features of the rows [width, n], turned; effects, choices and curved ones times the roots of their weights. */
typedef struct {
    double *embedded, *z, *effects, *choices, *curved;
    int gaps_known; /* of contexts: they are in `kc` already */
} Columns;

static void turned(int64_t n, int64_t width, const double *rows, const double *weight, double *columns) {
    for (int64_t k = 0; k < width; k++) {
        const double by = weight ? sqrt(weight[k]) : 1.0;
        for (int64_t i = 0; i < n; i++) columns[k * n + i] = by * rows[i * width + k];
    }
}

/* Most of them are kept in f. scratch: n c. */
static Columns columns_of(const GpKnobs *k, const GpFit *f, double *scratch) {
    const int64_t n = f->n;
    Columns c = {.gaps_known = 0};
    c.embedded = f->embedded, c.z = scratch, c.effects = f->turned, c.choices = c.effects + n * k->p;
    c.curved = c.choices + n * k->p;
    for (int64_t a = 0; a < k->e; a++)
        for (int64_t i = 0; i < n; i++) c.embedded[a * n + i] = f->embedding[i * k->e + a] * f->embedding_weight[a];
    if (f->c < LONG) turned(n, f->c, f->z, NULL, c.z);
    turned(n, k->p, f->effects, f->effect_weight, c.effects);
    turned(n, k->p, f->effects, f->choice_weight, c.choices);
    turned(n, k->q, f->curved, k->curved_variance, c.curved);
    return c;
}

/* Squared distances of contexts z [n, c] with many numbers each: of STRIP of them after the other, which stay close at hand. */
static inline void context_gaps(int64_t i, int64_t count, int64_t from, int64_t c, const double *z, double *restrict out) {
    const double *own = z + i * c + from;
    const int64_t width = c - from < STRIP ? c - from : STRIP;
    for (int64_t j = 0; j < count; j++) {
        const double *other = z + j * c + from;
        double sums[4] = {0.0, 0.0, 0.0, 0.0};
        int64_t a = 0;
        for (; a + 4 <= width; a += 4)
            for (int b = 0; b < 4; b++) sums[b] += (own[a + b] - other[a + b]) * (own[a + b] - other[a + b]);
        for (; a < width; a++) sums[0] += (own[a] - other[a]) * (own[a] - other[a]);
        out[j] += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

/* The covariance of row i with the first `count` rows, without level and noise, and its parts [count] each.
 * Two rows have the same bits, whichever comes first. */
PART_OF_EACH void covariances(const GpKnobs *k, const GpFit *f, const Columns *c, int64_t i, int64_t count, Parts s,
                               double *restrict whole) {
    const double *h = f->hyper;
    const int64_t n = f->n;
    double *restrict kc = s.kc, *restrict kt = s.kt, *restrict lin = s.lin, *restrict choice = s.choice;
    double *restrict res = s.res, *restrict gap = s.gap;
    squared_gaps(i, count, k->e, c->embedded, n, gap);
    if (f->c < LONG) squared_gaps(i, count, f->c, c->z, n, kc);
    else if (!c->gaps_known) {
        for (int64_t j = 0; j < count; j++) kc[j] = 0.0;
        for (int64_t from = 0; from < f->c; from += STRIP) context_gaps(i, count, from, f->c, f->z, kc);
    }
    for (int64_t j = 0; j < count; j++) {
        kc[j] *= -0.5;
        kt[j] = -fabs(f->times[i] - f->times[j]) / RECENT_STEPS;
        res[j] = -0.5 * gap[j];
        lin[j] = choice[j] = whole[j] = 0.0;
    }
    exp_falling(count, kc);
    exp_falling(count, kt);
    exp_falling(count, res);
    add_products(i, count, k->p, c->effects, n, lin);
    add_products(i, count, k->p, c->choices, n, choice);
    add_products(i, count, k->q, c->curved, n, whole);
    for (int64_t j = 0; j < count; j++) {
        res[j] *= h[VR];
        choice[j] += h[TURNING] * res[j];
        const double sharing = h[GS] + h[GC] * kc[j] + h[GT] * kt[j];
        whole[j] += h[VC] * kc[j] + h[VT] * kt[j] + (lin[j] + res[j]) * sharing + choice[j] * kc[j];
    }
}

/* The lower triangles of f->kernel, without level and noise, of f->alike and f->lately. Of rows that are those of an older
 * fit with the same weights, `kept` [n] says where they were there, ascending; -1: nowhere. */
WIDER static void covariance(const GpKnobs *k, const GpFit *f, const GpFit *older, const int64_t *kept, Parts s,
                             double *scratch) {
    const int64_t n = f->n;
    Columns columns = columns_of(k, f, scratch);
    if (!older) {
        if (f->c >= LONG && s.stride) {
            columns.gaps_known = 1;
            for (int64_t i = 0; i < n; i++) memset(s.kc + i * n, 0, sizeof(double) * (size_t)n);
            for (int64_t from = 0; from < f->c; from += STRIP)
                for (int64_t i = 0; i < n; i++) context_gaps(i, i + 1, from, f->c, f->z, s.kc + i * n);
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = i * s.stride;
            const Parts row = {s.kc + at, s.kt + at, s.lin + at, s.choice + at, s.res + at, s.gap + at, 0};
            covariances(k, f, &columns, i, i + 1, row, f->kernel + i * n);
            memcpy(f->alike + i * n, row.kc, sizeof(double) * (size_t)(i + 1));
            memcpy(f->lately + i * n, row.kt, sizeof(double) * (size_t)(i + 1));
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0, end; j <= i && kept[i] >= 0; j = end) { /* columns that were side by side, at once */
            for (end = j + 1; end <= i && kept[j] >= 0 && kept[end] == kept[end - 1] + 1;) end++;
            const size_t size = sizeof(double) * (size_t)(end - j);
            const int64_t to = i * n + j, at = kept[i] * older->n + kept[j];
            if (kept[j] < 0) continue;
            memcpy(f->kernel + to, older->kernel + at, size);
            memcpy(f->alike + to, older->alike + at, size);
            memcpy(f->lately + to, older->lately + at, size);
        }
    double *row = scratch + n * f->c; /* [n] */
    for (int64_t i = 0; i < n; i++)
        if (kept[i] < 0) {
            covariances(k, f, &columns, i, n, s, row); /* of the parts, the first row */
            for (int64_t j = 0; j < n; j++) {
                const int64_t at = j <= i ? i * n + j : j * n + i;
                f->kernel[at] = row[j], f->alike[at] = s.kc[j], f->lately[at] = s.kt[j];
            }
        }
}

typedef struct {
    double scale, evidence; /* a; its logarithm */
} Solved;

/* The factor and alpha under a noise of s2; `noises`, `alpha` and `root` of f are written. Not finite: not definite.
 * Where the first rows are those of an older fit with the same weights, so is their factor. x: [2, n]; scratch: n. */
static Solved solved(const GpFit *f, double squares, double s2, const GpFit *older, const int64_t *kept, double *x, double *scratch) {
    const int64_t n = f->n;
    Solved out = {0.0, -INFINITY};
    int64_t from = 0;
    for (int64_t i = 0; i < n; i++) f->noises[i] = s2 / (f->counts[i] * f->trust[i]);
    if (older && older->level == f->level)
        while (from < n && kept[from] == from && older->noises[from] == f->noises[from]) from++;
    for (int64_t i = 0; i < from; i++) {
        memcpy(f->root + i * n, older->root + i * older->n, sizeof(double) * (size_t)(i + 1));
        memset(f->root + i * n + i + 1, 0, sizeof(double) * (size_t)(n - 1 - i));
    }
    for (int64_t i = from; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) f->root[i * n + j] = f->kernel[i * n + j] + f->level;
        f->root[i * n + i] += f->noises[i] + JITTER * f->level;
    }
    if (gp_factor(n, from, f->root, scratch)) return out;
    double *of_y = x, *of_mean = x + n;
    memcpy(of_y, f->y, sizeof(double) * (size_t)n);
    memcpy(of_mean, f->mean, sizeof(double) * (size_t)n);
    gp_solve(n, f->root, x, scratch);
    const double big = dot(n, f->y, of_y) + squares / (s2 + f->drifted) + GUESS_ROWS, b = dot(n, f->y, of_mean);
    const double rows = (double)n + f->joined + GUESS_ROWS;
    const double q = (b + sqrt(b * b + 4.0 * big * rows)) / (2.0 * big);
    double log_root = 0.0;
    for (int64_t i = 0; i < n; i++) {
        log_root += log(f->root[i * n + i]);
        f->alpha[i] = q * of_y[i] - of_mean[i];
    }
    out.scale = 1.0 / q;
    out.evidence = -0.5 * (big * q * q - 2.0 * b * q + dot(n, f->mean, of_mean)) + rows * log(q) - log_root
                   - 0.5 * f->joined * (log(s2 + f->drifted) + JITTER / (s2 + f->drifted));
    return out;
}

/* slope [HYPERS + d + c], twice that of the log evidence; odd [3, n]. `inverse` is [n, n]. */
WIDER static void slopes(const GpKnobs *k, const GpFit *f, Parts s, const double *inverse, double *slope, double *odd,
                         double *scratch) {
    const double *h = f->hyper;
    const int64_t n = f->n, d = k->d;
    double *sharing = scratch, *of_kc = sharing + n, *of_res = of_kc + n, *context = of_res + n;
    double *by_effect = context + n, *by_choice = by_effect + k->p, *by_axis = by_choice + k->p, *gaps = by_axis + k->e;
    double *pairs = gaps + n, *sums = pairs + n; /* [n] weights of each row; [c] */
    memset(pairs, 0, sizeof(double) * (size_t)n);
    double *columns = sums + f->c; /* effects [p, n] */
    turned(n, k->p, f->effects, NULL, columns);
    memset(slope, 0, sizeof(double) * (size_t)(HYPERS + d + f->c));
    memset(by_effect, 0, sizeof(double) * (size_t)(2 * k->p + k->e));
    for (int64_t i = 0; i < n; i++) {
        const double *kc = s.kc + i * n, *kt = s.kt + i * n, *lin = s.lin + i * n, *choice = s.choice + i * n;
        const double *res = s.res + i * n, *gap = s.gap + i * n, *inv = inverse + i * n;
        double gs = 0.0, gc = 0.0, gt = 0.0, gq = 0.0, vc = 0.0, vt = 0.0, vr = 0.0, ell = 0.0;
        odd[i] = f->alpha[i] / inv[i] * (f->alpha[i] / inv[i]); /* see `gradient` in model.py */
        odd[n + i] = fmax(1.0 / inv[i] - f->noises[i], 0.0);
        odd[2 * n + i] = 0.0;
        for (int64_t j = 0; j < i; j++) odd[2 * n + i] += kc[j], odd[2 * n + j] += kc[j];
        slope[S2] += (f->alpha[i] * f->alpha[i] - inv[i]) * f->noises[i];
        for (int64_t j = 0; j <= i; j++) { /* each pair counts twice */
            const double rest = (j < i ? 2.0 : 1.0) * (f->alpha[i] * f->alpha[j] - inv[j]);
            const double both = rest * (lin[j] + res[j]), share = h[GS] + h[GC] * kc[j] + h[GT] * kt[j];
            gs += both;
            gc += both * kc[j];
            gt += both * kt[j];
            gq += rest * kc[j] * choice[j];
            vc += rest * kc[j];
            vt += rest * kt[j];
            sharing[j] = rest * share;
            of_kc[j] = rest * kc[j];
            of_res[j] = rest * (share + h[TURNING] * kc[j]) * res[j];
            context[j] = rest * kc[j] * (h[VC] + h[GC] * (lin[j] + res[j]) + choice[j]);
            vr += of_res[j];
            ell += of_res[j] * gap[j];
        }
        slope[GS] += h[GS] * gs;
        slope[GC] += h[GC] * gc;
        slope[GT] += h[GT] * gt;
        slope[GQ] += gq;
        slope[VC] += h[VC] * vc;
        slope[VT] += h[VT] * vt;
        slope[VR] += vr;
        slope[ELL] += 0.5 * ell;
        for (int64_t a = 0; a < k->p; a++) { /* most effects of a point are 0 */
            const double own = f->effects[i * k->p + a];
            if (own == 0.0) continue;
            by_effect[a] += own * dot(i + 1, sharing, columns + a * n);
            if (f->choice_weight[a] != 0.0) by_choice[a] += own * dot(i + 1, of_kc, columns + a * n);
        }
        for (int64_t a = 0; a < k->e; a++) { /* -(x_i - x_j)^2 / 2 each, of a pair that counts twice already */
            const double *other = f->embedded + a * n, own = other[i];
            for (int64_t j = 0; j <= i; j++) gaps[j] = (own - other[j]) * (own - other[j]);
            by_axis[a] -= 0.5 * dot(i + 1, of_res, gaps);
        }
        /* -(z_i - z_j)^2 / 2 each: products of two now, squares of one below */
        const double *own = f->z + i * f->c;
        double *to = slope + HYPERS + d;
        int64_t j = 0;
        for (int64_t a = 0; a < f->c; a++) sums[a] = 0.0;
        for (; j + 4 <= i; j += 4) add_four(f->c, context + j, 1, f->z + j * f->c, f->c, sums);
        for (; j < i; j++) add_scaled(f->c, context[j], f->z + j * f->c, sums);
        for (int64_t a = 0; a < f->c; a++) to[a] += own[a] * sums[a];
        for (j = 0; j < i; j++) {
            pairs[i] += context[j];
            pairs[j] += context[j];
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < f->c; a++)
            slope[HYPERS + d + a] -= 0.5 * pairs[i] * f->z[i * f->c + a] * f->z[i * f->c + a];
    for (int64_t a = 0; a < k->p; a++) {
        const double by = f->effect_weight[a] * by_effect[a] + f->choice_weight[a] * by_choice[a];
        slope[HYPERS + k->effect_knob[a]] += by;
        if (k->of_few[a] > 0.0) slope[HOT] += by;
    }
    for (int64_t a = 0; a < k->e; a++) slope[HYPERS + k->embedding_knob[a]] += by_axis[a];
}

/* Fit the rows; `squares` of repeats are in units of f->y squared. Of `factors` times the noise the one of greatest evidence is taken, with `priors` [count] taken off the
 * evidence of each. With `slope`, slopes of the evidence [HYPERS + d + c] and odd [3, n] are written, too.
 * out [3]: the scale, which factor, and that evidence. Returns 0, or 1 if no covariance was positive definite.
 * With an older fit of the same weights, and no slopes, see `covariance`.
 * scratch: 7 n^2 + n (c + p + 8) + 2 p + e + c. */
int64_t gp_fit(const GpKnobs *k, const GpFit *f, double squares, int64_t count, const double *factors, const double *priors,
               const GpFit *older, const int64_t *kept, double *slope, double *odd, double *out, double *scratch) {
    const int64_t n = f->n;
    const Parts s = parts_in(scratch, n, slope != NULL || (f->c >= LONG && !older));
    double *inverse = scratch + 6 * n * n, *rest = scratch + 7 * n * n, best = -INFINITY;
    covariance(k, f, older, kept, s, rest);
    int64_t chosen = -1, last = -1;
    Solved found = {0.0, -INFINITY};
    for (int64_t i = 0; i < count; i++) {
        const Solved one = solved(f, squares, factors[i] * f->hyper[S2], older, kept, rest, rest + 2 * n);
        last = i;
        if (one.evidence - priors[i] > best) {
            best = one.evidence - priors[i];
            chosen = i;
            found = one;
        }
    }
    if (chosen < 0) return 1;
    if (chosen != last) found = solved(f, squares, factors[chosen] * f->hyper[S2], older, kept, rest, rest + 2 * n);
    out[0] = found.scale;
    out[1] = (double)chosen;
    out[2] = best;
    if (slope) {
        memcpy(f->kernel, f->root, sizeof(double) * (size_t)(n * n)); /* nobody needs it: theta moves on */
        inverse_of_root(n, f->kernel, inverse);
        slopes(k, f, s, inverse, slope, odd, rest);
    }
    return 0;
}

GP_API int64_t rasp_gp_fit(const GpKnobs *k, const GpFit *f, int64_t count, const double *factors, const double *priors,
                           double *slope, double *odd, double *out, double *scratch) {
    return gp_fit(k, f, f->squares, count, factors, priors, NULL, NULL, slope, odd, out, scratch);
}

/* spare [n]: the variance of each row given the others, without its noise. scratch: n^2. */
GP_API WIDER void rasp_gp_spare(const GpFit *f, double *spare, double *half) {
    const int64_t n = f->n;
    memset(spare, 0, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++) { /* the inverse of the root, row by row; squares of its columns are summed */
        const double *root = f->root + i * n, by = 1.0 / root[i];
        double *restrict row = half + i * n;
        int64_t j = 0;
        memset(row, 0, sizeof(double) * (size_t)(i + 4 < n ? i + 4 : n));
        for (; j + 4 <= i; j += 4) add_four(j + 4, root + j, 1, half + j * n, n, row);
        for (; j < i; j++) add_scaled(j + 1, root[j], half + j * n, row);
        for (j = 0; j < i; j++) row[j] *= -by;
        row[i] = by;
        for (j = 0; j <= i; j++) spare[j] += row[j] * row[j];
    }
    for (int64_t i = 0; i < n; i++) spare[i] = 1.0 / spare[i] - f->noises[i];
}
