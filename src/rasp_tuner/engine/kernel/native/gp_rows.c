/* Stored rows as a fit sees them, and which of them are most alike: model.py, family.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

enum { COUNTS, TIMES, FAILED, TRUST, OWN }; /* after the losses of a row */

/* A number of a context in deviations, see contexts/context_metric.py. */
static double bounded(double x, double median, double deviation) {
    return ODD_DEVIATIONS * asinh(clip((x - median) / (ODD_DEVIATIONS * deviation), -FARTHEST, FARTHEST));
}

/* out [n, c] of contexts [n, c] */
GP_API void rasp_gp_bounded(int64_t n, int64_t c, const double *median, const double *deviation, const double *contexts,
                            double *out) {
    for (int64_t i = 0; i < n * c; i++) out[i] = bounded(contexts[i], median[i % c], deviation[i % c]);
}

/* z [c] of a context */
void gp_z(const GpFit *f, const double *context, double *z) {
    for (int64_t a = 0; a < f->c; a++) z[a] = bounded(context[a], f->median[a], f->deviation[a]) * f->relevance[a];
}

/* y [n] around its median, in units of what a is expected to be. out [3]: center, unit, spread; see Targets.
 * scratch: n. */
static void standardise(int64_t n, const double *trust, double *y, double *out, double *ordered) {
    double most = 0.0, sum = 0.0, squares = 0.0, total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        for (; at > 0 && ordered[at - 1] > y[i]; at--) ordered[at] = ordered[at - 1];
        ordered[at] = y[i];
    }
    const double center = n % 2 ? ordered[n / 2] : 0.5 * (ordered[n / 2 - 1] + ordered[n / 2]);
    most = fmax(fmax(ordered[n - 1] - center, center - ordered[0]), SMALLEST);
    for (int64_t i = 0; i < n; i++) total += trust[i], sum += trust[i] * ((y[i] - center) / most);
    for (int64_t i = 0; i < n; i++) {
        const double apart = (y[i] - center) / most - sum / total;
        squares += trust[i] * apart * apart;
    }
    const double spread = most * sqrt(squares / total), level = fabs(center);
    const double unit = spread > SAME_SHARE * level ? GUESS_SHARE * spread : UNTOLD_SHARE * level + LEAST_UNIT;
    for (int64_t i = 0; i < n; i++) y[i] = (y[i] - center) / unit;
    out[0] = center, out[1] = unit, out[2] = spread / unit;
}

/* Fill f from stored rows, and fit it. With an older fit of the same weights, `kept` [n] says where rows were there.
 * `known` [n, c]: what rasp_gp_bounded makes of their contexts, or NULL.
 * out [4]: center, unit, spread and the scale. Returns 0, or 1 if the covariance is not positive definite.
 * scratch: that of gp_fit. */
GP_API int64_t rasp_gp_take(const GpKnobs *k, const GpFit *f, const GpStored *stored, const GpFit *older,
                            const int64_t *kept, const double *known, double *out, double *scratch) {
    const int64_t n = f->n, d = k->d, c = f->c;
    const double one = 1.0, none = 0.0;
    double found[3];
    for (int64_t i = 0; i < n; i++) {
        const double *row = stored->rows + i * stored->width, *losses = row + d + c, *rest = losses + stored->columns;
        const int64_t at = older ? kept[i] : -1;
        double y = 0.0;
        for (int64_t a = 0; a < stored->columns; a++) y += losses[a] * stored->weights[a];
        f->y[i] = clip(y, -LARGEST, LARGEST);
        f->counts[i] = rest[COUNTS], f->times[i] = rest[TIMES], f->trust[i] = rest[TRUST];
        memcpy(f->points + i * d, row, sizeof(double) * (size_t)d);
        if (at < 0) {
            gp_features(k, 1, row, f->effects + i * k->p, f->curved + i * k->q, f->mean + i, f->embedding + i * k->e);
            if (known) for (int64_t a = 0; a < c; a++) f->z[i * c + a] = known[i * c + a] * f->relevance[a];
            else gp_z(f, row + d, f->z + i * c);
            continue;
        }
        memcpy(f->effects + i * k->p, older->effects + at * k->p, sizeof(double) * (size_t)k->p);
        memcpy(f->curved + i * k->q, older->curved + at * k->q, sizeof(double) * (size_t)k->q);
        memcpy(f->embedding + i * k->e, older->embedding + at * k->e, sizeof(double) * (size_t)k->e);
        memcpy(f->z + i * c, older->z + at * c, sizeof(double) * (size_t)c);
        f->mean[i] = older->mean[at];
    }
    standardise(n, f->trust, f->y, out, scratch);
    const double scatter = fmin(sqrt(f->squares) / out[1], MOST_SPREAD); /* their units are those of the losses */
    if (gp_fit(k, f, scatter * scatter, 1, &one, &none, older, kept, NULL, NULL, found, scratch)) return 1;
    out[3] = found[0];
    return 0;
}

/* The squared distance of one and two [c]: four sums at once where there are many. */
double gp_apart(int64_t c, const double *one, const double *two) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t a = 0;
    for (; c >= LONG && a + 4 <= c; a += 4)
        for (int b = 0; b < 4; b++) sums[b] += (one[a + b] - two[a + b]) * (one[a + b] - two[a + b]);
    for (; a < c; a++) sums[0] += (one[a] - two[a]) * (one[a] - two[a]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* z [c] of stored row i: that of the fit, or one of `others`. */
static const double *z_of(const GpFit *f, const int64_t *kept, int64_t i, const double *others) {
    return kept[i] >= 0 ? f->z + kept[i] * f->c : others + i * f->c;
}

/* Of n stored rows, `kept` [n] says where they are in the fit. The two of one point that are most alike, in
 * out [3]: the likeness, 0 if there are none, and which they are. With `row` >= 0: the row most like that one, see
 * _nearest in family.py. scratch: n (c + e) + p + q. */
GP_API void rasp_gp_closest(const GpKnobs *k, const GpFit *f, const GpStored *stored, int64_t n, const int64_t *kept,
                            int64_t row, double *out, double *scratch) {
    const int64_t d = k->d, c = f->c, failed = d + c + stored->columns + FAILED;
    const size_t size = sizeof(double) * (size_t)d;
    double *others = scratch, *embedding = others + n * c; /* [n, c] of those that are not in the fit; [n, e] */
    for (int64_t i = 0; i < n; i++)
        if (kept[i] < 0) gp_z(f, stored->rows + i * stored->width + d, others + i * c);
    out[0] = out[1] = out[2] = 0.0;
    if (row >= 0) {
        double *effects = embedding + n * k->e, *curved = effects + k->p, mean, least = INFINITY;
        const double *own = stored->rows + row * stored->width, *z = z_of(f, kept, row, others);
        const int at_default = !memcmp(own, k->default_, size);
        for (int64_t i = 0; i < n; i++)
            if (kept[i] >= 0) memcpy(embedding + i * k->e, f->embedding + kept[i] * k->e, sizeof(double) * (size_t)k->e);
            else gp_features(k, 1, stored->rows + i * stored->width, effects, curved, &mean, embedding + i * k->e);
        for (int64_t i = 0; i < n; i++) {
            double gap = gp_apart(k->e, embedding + i * k->e, embedding + row * k->e);
            gap += gp_apart(c, z_of(f, kept, i, others), z);
            if (at_default == !!memcmp(stored->rows + i * stored->width, k->default_, size)) gap = LARGEST;
            if (i != row && gap < least) least = gap, out[1] = (double)i;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) {
            const double *one = stored->rows + i * stored->width, *two = stored->rows + j * stored->width;
            if (one[0] != two[0] || memcmp(one, two, size) || one[failed] != two[failed]) continue;
            const int64_t a = kept[i], b = kept[j];
            double alike;
            if (a >= 0 && b >= 0) alike = f->alike[a > b ? a * f->n + b : b * f->n + a];
            else alike = exp(-0.5 * gp_apart(c, z_of(f, kept, i, others), z_of(f, kept, j, others)));
            if (alike > out[0]) out[0] = alike, out[1] = (double)i, out[2] = (double)j;
        }
}
