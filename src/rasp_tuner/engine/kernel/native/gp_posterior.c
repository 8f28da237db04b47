/* A fit in one context: means and covariances of points: posterior.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

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
        here->residual[i] = h[VR] * shared;
        const double *effects = f->effects + i * k->p;
        for (int64_t a = 0; a < k->p; a++)
            here->effects[a] += (f->effect_weight[a] * shared + f->choice_weight[a] * own) * effects[a];
        add_scaled(k->q, f->alpha[i], f->curved + i * k->q, here->curved);
        here->visits += here->kc[i] * f->counts[i];
        if (!memcmp(f->points + i * k->d, k->default_, sizeof(double) * (size_t)k->d)) {
            here->at_default += here->kc[i] * f->counts[i];
            here->defaults += 1.0;
        }
    }
    for (int64_t a = 0; a < k->q; a++) here->curved[a] *= k->curved_variance[a];
}

/* out [n] = -|x - row|^2 / 2 over rows, x [e] embedded; columns [e, stride] are the rows', turned. */
static inline void exponents(int64_t n, int64_t e, const double *x, const double *columns, int64_t stride,
                             double *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = 0.0;
    for (int64_t a = 0; a < e; a++) {
        const double *column = columns + a * stride, own = x[a];
        for (int64_t i = 0; i < n; i++) out[i] -= 0.5 * (column[i] - own) * (column[i] - own);
    }
}

/* out [n] += sum_a x_a column_a */
static inline void add_products(int64_t n, int64_t width, const double *x, const double *columns, int64_t stride,
                                double *restrict out) {
    for (int64_t a = 0; a < width; a++)
        if (x[a] != 0.0) add_scaled(n, x[a], columns + a * stride, out);
}

static void embed(const GpKnobs *k, const GpFit *f, int64_t m, double *embedding) {
    for (int64_t r = 0; r < m; r++)
        for (int64_t a = 0; a < k->e; a++) embedding[r * k->e + a] *= f->embedding_weight[a];
}

static void turned(int64_t n, int64_t width, const double *rows, double *columns) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < width; a++) columns[a * n + i] = rows[i * width + a];
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
    for (int64_t r = 0; r < m; r++) {
        double *restrict row = cross + r * n;
        for (int64_t i = 0; i < n; i++) row[i] = here->base[i], near[i] = h[VR] * here->share[i];
        const double *x = points + r * k->d;
        int64_t j = 0;
        for (; j + 4 <= k->d && t->count + 4 <= t->most; j += 4) { /* four at once, one after the other */
            int64_t at[4];
            for (int q = 0; q < 4; q++) at[q] = n * gp_entry(k, f, here, t, j + q, x[j + q]);
            const double *restrict m0 = t->cross + at[0], *restrict m1 = t->cross + at[1], *restrict m2 = t->cross + at[2];
            const double *restrict m3 = t->cross + at[3], *restrict b0 = t->near + at[0], *restrict b1 = t->near + at[1];
            const double *restrict b2 = t->near + at[2], *restrict b3 = t->near + at[3];
            for (int64_t i = 0; i < n; i++) {
                row[i] = (((row[i] + m0[i]) + m1[i]) + m2[i]) + m3[i];
                near[i] = (((near[i] * b0[i]) * b1[i]) * b2[i]) * b3[i];
            }
        }
        for (; j < k->d; j++) {
            const int64_t at = gp_entry(k, f, here, t, j, x[j]);
            const double *restrict more = t->cross + at * n, *restrict by = t->near + at * n;
            for (int64_t i = 0; i < n; i++) row[i] += more[i], near[i] *= by[i];
        }
        for (int64_t i = 0; i < n; i++) row[i] += near[i];
        mean[r] += dot(n, row, f->alpha);
    }
    gp_forward(n, f->root, m, cross, near);
    double *effect_root = near + n, *curved_root = effect_root + p; /* of weights, of points here: [p], [q] */
    double *columns = curved_root + q, *effect_columns = columns + m * e, *curved_columns = effect_columns + m * p;
    for (int64_t a = 0; a < p; a++) effect_root[a] = sqrt(here->own_share * f->effect_weight[a] + f->choice_weight[a]);
    for (int64_t a = 0; a < q; a++) curved_root[a] = sqrt(k->curved_variance[a]);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t a = 0; a < p; a++) effects[r * p + a] *= effect_root[a];
        for (int64_t a = 0; a < q; a++) curved[r * q + a] *= curved_root[a];
    }
    turned(m, e, embedding, columns);
    turned(m, p, effects, effect_columns);
    turned(m, q, curved, curved_columns);
    for (int64_t r = 0; r < m; r++) { /* up to the diagonal */
        double *row = covariance + r * m;
        exponents(r + 1, e, embedding + r * e, columns, m, row);
        exp_falling(r + 1, row);
        for (int64_t s = 0; s <= r; s++) row[s] = row[s] * h[VR] * here->own_share + here->own_base;
        add_products(r + 1, p, effects + r * p, effect_columns, m, row);
        add_products(r + 1, q, curved + r * q, curved_columns, m, row);
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
