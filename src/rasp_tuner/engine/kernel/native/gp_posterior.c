/* A fit in one context: means and covariances of points: posterior.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "gp_columns.h"

/* The coefficients of `here`, for a context [c] at a time. scratch: c. */
GP_API void rasp_gp_here(const GpKnobs *k, const GpFit *f, GpHere *here, const double *context, double now, double *z) {
    gp_z(f, context, z);
    const double *h = f->hyper;
    const int64_t n = f->n;
    double *kt = here->residual;
    for (int64_t i = 0; i < n; i++) {
        here->kc[i] = -0.5 * gp_apart(f->c, f->z + i * f->c, z);
        kt[i] = -(now - f->times[i]) / RECENT_STEPS;
    }
    exp_falling(n, here->kc);
    exp_falling(n, kt);
    here->own_share = h[GS] + h[GC] + h[GT];
    here->own_base = f->level + h[VC] + h[VT];
    here->constant = here->visits = here->at_default = here->defaults = 0.0;
    memset(here->effects, 0, sizeof(double) * (size_t)k->p);
    memset(here->curved, 0, sizeof(double) * (size_t)k->q);
    for (int64_t i = 0; i < n; i++) {
        here->share[i] = h[GS] + h[GC] * here->kc[i] + h[GT] * kt[i];
        here->base[i] = f->level + h[VC] * here->kc[i] + h[VT] * kt[i];
        here->constant += here->base[i] * f->alpha[i];
        const double shared = here->share[i] * f->alpha[i], own = here->kc[i] * f->alpha[i];
        here->residual[i] = h[VR] * (shared + h[TURNING] * own);
        const double *effects = f->effects + i * k->p;
        for (int64_t a = 0; a < k->p; a++)
            here->effects[a] += (f->effect_weight[a] * shared + f->choice_weight[a] * own) * effects[a];
        add_scaled(k->q, f->alpha[i], f->curved + i * k->q, here->curved);
        here->visits += here->kc[i] * f->counts[i];
        if (!memcmp(f->points + i * k->d, k->default_, sizeof(double) * (size_t)k->d)) {
            here->at_default += here->kc[i] * f->counts[i] * f->trust[i];
            here->defaults += 1.0;
        }
    }
    for (int64_t a = 0; a < k->q; a++) here->curved[a] *= k->curved_variance[a];
}

static void embed(const GpKnobs *k, const GpFit *f, int64_t m, double *embedding) {
    for (int64_t r = 0; r < m; r++)
        for (int64_t a = 0; a < k->e; a++) embedding[r * k->e + a] *= f->embedding_weight[a];
}

static void turned(int64_t n, int64_t width, const double *rows, double *columns) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < width; a++) columns[a * n + i] = rows[i * width + a];
}

/* row [n] plus what entries add, and near [n] times their factors: `at` [count] says where they begin. */
PART_OF_EACH void some_entries(int registers, int64_t i, const GpTable *t, int64_t count, const int64_t *at, double *row,
                               double *near) {
    AtOnce sums[SIDE_BY_SIDE], products[SIDE_BY_SIDE], *to = (AtOnce *)(row + i), *by = (AtOnce *)(near + i);
    for (int v = 0; v < registers; v++) sums[v] = to[v], products[v] = by[v];
    for (int64_t j = 0; j < count; j++) {
        const AtOnce *more = (const AtOnce *)(t->cross + at[j] + i), *times = (const AtOnce *)(t->near + at[j] + i);
        for (int v = 0; v < registers; v++) sums[v] += more[v], products[v] *= times[v];
    }
    for (int v = 0; v < registers; v++) to[v] = sums[v], by[v] = products[v];
}

PART_OF_EACH void add_entries(int64_t n, const GpTable *t, int64_t count, const int64_t *at, double *row, double *near) {
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * AT_ONCE <= n; i += SIDE_BY_SIDE * AT_ONCE)
        some_entries(SIDE_BY_SIDE, i, t, count, at, row, near);
    for (; i + AT_ONCE <= n; i += AT_ONCE) some_entries(1, i, t, count, at, row, near);
    for (; i < n; i++)
        for (int64_t j = 0; j < count; j++) row[i] += t->cross[at[j] + i], near[i] *= t->near[at[j] + i];
}

/* Means [m] and covariances with the rows [m, n] of points [m, d], whose features these are; near [n] is room. */
static WIDER void crossed(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t m,
                          const double *points, double *mean, double *cross, double *restrict near) {
    const int64_t n = f->n;
    const double *h = f->hyper;
    for (int64_t r = 0; r < m; r++) {
        double *restrict row = cross + r * n;
        for (int64_t i = 0; i < n; i++) row[i] = here->base[i], near[i] = h[VR] * (here->share[i] + h[TURNING] * here->kc[i]);
        const double *x = points + r * k->d;
        for (int64_t j = 0, end; j < k->d; j = end) {
            int64_t at[SOME_COLUMNS];
            for (end = j; end < k->d && end - j < SOME_COLUMNS && (end == j || t->count < t->most); end++)
                at[end - j] = n * gp_entry(k, f, here, t, end, x[end]);
            add_entries(n, t, end - j, at, row, near);
        }
        for (int64_t i = 0; i < n; i++) row[i] += near[i];
        mean[r] += dot(n, row, f->alpha);
    }
}

/* Means [m] and covariance [m, m] at points [m, d]: the same bits for two points, whatever the others are.
 * scratch: 2 m (p + q + e) + n (m + 1) + p + q. */
WIDER void gp_joint(const GpKnobs *k, const GpFit *f, const GpHere *here, GpTable *t, int64_t m, const double *points,
                    double *mean, double *covariance, double *scratch) {
    const int64_t n = f->n, p = k->p, q = k->q, e = k->e;
    const double *h = f->hyper;
    double *effects = scratch, *curved = effects + m * p, *embedding = curved + m * q, *cross = embedding + m * e;
    double *restrict near = cross + n * m; /* [n] */
    gp_features(k, m, points, effects, curved, mean, embedding);
    embed(k, f, m, embedding);
    crossed(k, f, here, t, m, points, mean, cross, near);
    gp_forward(n, f->root, m, cross, near);
    double *effect_root = near + n, *curved_root = effect_root + p; /* of weights, of points here: [p], [q] */
    double *columns = curved_root + q, *effect_columns = columns + m * e, *curved_columns = effect_columns + m * p;
    for (int64_t a = 0; a < p; a++) effect_root[a] = sqrt(here->own_share * f->effect_weight[a] + f->choice_weight[a]);
    for (int64_t a = 0; a < q; a++) curved_root[a] = sqrt(k->curved_variance[a]);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t a = 0; a < p; a++) effects[r * p + a] *= effect_root[a];
        for (int64_t a = 0; a < q; a++) curved[r * q + a] *= curved_root[a];
    }
    const double own_residual = h[VR] * (here->own_share + h[TURNING]);
    turned(m, e, embedding, columns);
    turned(m, p, effects, effect_columns);
    turned(m, q, curved, curved_columns);
    for (int64_t r = 0; r < m; r++) { /* up to the diagonal */
        double *row = covariance + r * m;
        squared_gaps(r, r + 1, e, columns, m, row);
        for (int64_t s = 0; s <= r; s++) row[s] *= -0.5;
        exp_falling(r + 1, row);
        for (int64_t s = 0; s <= r; s++) row[s] = row[s] * own_residual + here->own_base;
        add_products(r, r + 1, p, effect_columns, m, row);
        add_products(r, r + 1, q, curved_columns, m, row);
    }
    gp_less_products(m, n, cross, covariance);
    for (int64_t r = 0; r < m; r++)
        for (int64_t s = 0; s < r; s++) covariance[s * m + r] = covariance[r * m + s];
}

/* The same. scratch: that, and that of a table of m d values. */
GP_API void rasp_gp_joint(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points,
                          double *mean, double *covariance, double *scratch) {
    GpTable t = gp_table(k, f, m * k->d, scratch);
    gp_joint(k, f, here, &t, m, points, mean, covariance, scratch + gp_table_room(k, f->n, m * k->d));
}

/* Means and variances [m] alone. scratch: m (p + q + e) + n (m + 1), and that of a table of m d values. */
GP_API void rasp_gp_marginal(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points,
                             double *mean, double *variance, double *scratch) {
    const int64_t n = f->n, p = k->p, q = k->q;
    GpTable t = gp_table(k, f, m * k->d, scratch);
    double *effects = scratch + gp_table_room(k, n, m * k->d), *curved = effects + m * p, *embedding = curved + m * q;
    double *cross = embedding + m * k->e, *near = cross + n * m;
    gp_features(k, m, points, effects, curved, mean, embedding);
    crossed(k, f, here, &t, m, points, mean, cross, near);
    gp_forward(n, f->root, m, cross, near);
    for (int64_t r = 0; r < m; r++) {
        const double *x = effects + r * p, *u = curved + r * q;
        double own = f->hyper[VR] * (here->own_share + f->hyper[TURNING]) + here->own_base;
        for (int64_t a = 0; a < p; a++)
            own += (here->own_share * f->effect_weight[a] + f->choice_weight[a]) * x[a] * x[a];
        for (int64_t a = 0; a < q; a++) own += k->curved_variance[a] * u[a] * u[a];
        variance[r] = own - dot(n, cross + r * n, cross + r * n);
    }
}
