/* A fit in one context: means and covariances of points: posterior.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

/* The coefficients of `here`, for a context z [c] at a time. */
GP_API void rasp_gp_here(const GpKnobs *k, const GpFit *f, GpHere *here, const double *z, double now) {
    const double *h = f->hyper;
    const int64_t n = f->n;
    double *kt = here->residual;
    for (int64_t i = 0; i < n; i++) {
        double gap = 0.0;
        for (int64_t a = 0; a < f->c; a++) gap += (f->z[i * f->c + a] - z[a]) * (f->z[i * f->c + a] - z[a]);
        here->kc[i] = -0.5 * gap;
        kt[i] = -(now - f->times[i]) / MEMORY_STEPS;
    }
    exp_falling(n, here->kc);
    exp_falling(n, kt);
    here->own_share = h[GS] + h[GC] + h[GT];
    here->own_base = f->level + h[VC] + h[VT];
    here->constant = 0.0;
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

/* The same of x, if out is that of `from`: points that are compared differ in a few places. */
static inline void move_exponents(int64_t n, int64_t e, const double *from, const double *x, const double *columns,
                                  double *restrict out) {
    for (int64_t a = 0; a < e; a++)
        if (x[a] != from[a]) {
            const double *column = columns + a * n, by = x[a] - from[a], middle = 0.5 * (x[a] + from[a]);
            for (int64_t i = 0; i < n; i++) out[i] += by * (column[i] - middle);
        }
}

/* out [n] += sum_a w_a (x_a - from_a) column_a; from: nothing where it is NULL. */
static inline void add_products(int64_t n, int64_t width, const double *weight, const double *from, const double *x,
                                const double *columns, int64_t stride, double *restrict out) {
    for (int64_t a = 0; a < width; a++) {
        const double by = weight[a] * (from ? x[a] - from[a] : x[a]);
        if (by != 0.0) add_scaled(n, by, columns + a * stride, out);
    }
}

static void embed(const GpKnobs *k, const GpFit *f, int64_t m, double *embedding) {
    for (int64_t r = 0; r < m; r++)
        for (int64_t a = 0; a < k->e; a++) embedding[r * k->e + a] *= f->embedding_weight[a];
}

static void turned(int64_t n, int64_t width, const double *rows, double *columns) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < width; a++) columns[a * n + i] = rows[i * width + a];
}

/* Means [m] at points [m, d]. scratch: m (p + q + e) + 2 n. */
WIDER void gp_means(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points, double *out,
                    double *scratch) {
    const int64_t n = f->n;
    double *effects = scratch, *curved = effects + m * k->p, *embedding = curved + m * k->q;
    double *first = embedding + m * k->e, *near = first + n;
    gp_features(k, m, points, effects, curved, out, embedding);
    embed(k, f, m, embedding);
    exponents(n, k->e, embedding, f->embedded, n, first);
    for (int64_t r = 0; r < m; r++) {
        memcpy(near, first, sizeof(double) * (size_t)n);
        move_exponents(n, k->e, embedding, embedding + r * k->e, f->embedded, near);
        exp_falling(n, near);
        out[r] += here->constant + dot(k->p, effects + r * k->p, here->effects)
                  + dot(k->q, curved + r * k->q, here->curved) + dot(n, near, here->residual);
    }
}

GP_API void rasp_gp_means(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points,
                          double *out, double *scratch) {
    gp_means(k, f, here, m, points, out, scratch);
}

/* Means [m] and covariance [m, m] at points [m, d]. scratch: 2 m (p + q + e) + n (2 m + 4) + 3 p + q. */
GP_API WIDER void rasp_gp_joint(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points,
                                double *mean, double *covariance, double *scratch) {
    const int64_t n = f->n, p = k->p, q = k->q, e = k->e;
    const double *h = f->hyper;
    double *effects = scratch, *curved = effects + m * p, *embedding = curved + m * q, *cross = embedding + m * e;
    double *reach = cross + n * m; /* [m, n], then turned [n, m] */
    const double *effect_rows = f->turned, *choice_rows = effect_rows + n * p, *curved_rows = choice_rows + n * p;
    gp_features(k, m, points, effects, curved, mean, embedding);
    embed(k, f, m, embedding);
    double *first = reach + n * m, *lin = first + n, *choice = lin + n, *bent = choice + n; /* of the first point */
    double *effect_root = bent + n, *choice_root = effect_root + p, *curved_root = choice_root + p; /* [p], [p], [q] */
    for (int64_t a = 0; a < p; a++) effect_root[a] = sqrt(f->effect_weight[a]), choice_root[a] = sqrt(f->choice_weight[a]);
    for (int64_t a = 0; a < q; a++) curved_root[a] = sqrt(k->curved_variance[a]);
    memset(lin, 0, sizeof(double) * (size_t)(3 * n));
    exponents(n, e, embedding, f->embedded, n, first);
    add_products(n, p, effect_root, NULL, effects, effect_rows, n, lin);
    add_products(n, p, choice_root, NULL, effects, choice_rows, n, choice);
    add_products(n, q, curved_root, NULL, curved, curved_rows, n, bent);
    for (int64_t r = 0; r < m; r++) {
        double *row = cross + r * n, *own = reach; /* room that is not needed yet */
        memcpy(row, first, sizeof(double) * (size_t)n);
        move_exponents(n, e, embedding, embedding + r * e, f->embedded, row);
        exp_falling(n, row);
        for (int64_t i = 0; i < n; i++) {
            row[i] = h[VR] * row[i] + lin[i];
            own[i] = choice[i];
        }
        add_products(n, p, effect_root, effects, effects + r * p, effect_rows, n, row);
        add_products(n, p, choice_root, effects, effects + r * p, choice_rows, n, own);
        for (int64_t i = 0; i < n; i++) row[i] = row[i] * here->share[i] + here->base[i] + own[i] * here->kc[i] + bent[i];
        add_products(n, q, curved_root, curved, curved + r * q, curved_rows, n, row);
        mean[r] += dot(n, row, f->alpha);
    }
    turned(m, n, cross, reach);
    for (int64_t i = 0; i < n; i++) { /* forward substitution, all points at once */
        double *row = reach + i * m;
        const double *root = f->root + i * n, by = 1.0 / root[i];
        int64_t j = 0;
        for (int64_t r = 0; r < m; r++) row[r] = -row[r];
        for (; j + 4 <= i; j += 4) add_four(m, root + j, 1, reach + j * m, m, row);
        for (; j < i; j++) add_scaled(m, root[j], reach + j * m, row);
        for (int64_t r = 0; r < m; r++) row[r] *= -by;
    }
    double *own_weight = curved_root + q; /* [p]: of effects in the covariance of points here */
    double *columns = own_weight + p, *effect_columns = columns + m * e, *curved_columns = effect_columns + m * p;
    turned(m, e, embedding, columns);
    turned(m, p, effects, effect_columns);
    turned(m, q, curved, curved_columns);
    for (int64_t a = 0; a < p; a++) own_weight[a] = here->own_share * f->effect_weight[a] + f->choice_weight[a];
    for (int64_t r = 0; r < m; r++) { /* up to the diagonal */
        double *row = covariance + r * m;
        exponents(r + 1, e, embedding + r * e, columns, m, row);
        exp_falling(r + 1, row);
        for (int64_t s = 0; s <= r; s++) row[s] = row[s] * h[VR] * here->own_share + here->own_base;
        add_products(r + 1, p, own_weight, NULL, effects + r * p, effect_columns, m, row);
        add_products(r + 1, q, k->curved_variance, NULL, curved + r * q, curved_columns, m, row);
        int64_t i = 0;
        for (; i + 4 <= n; i += 4) {
            const double by[] = {-reach[i * m + r], -reach[(i + 1) * m + r], -reach[(i + 2) * m + r], -reach[(i + 3) * m + r]};
            add_four(r + 1, by, 1, reach + i * m, m, row);
        }
        for (; i < n; i++) add_scaled(r + 1, -reach[i * m + r], reach + i * m, row);
    }
    for (int64_t r = 0; r < m; r++)
        for (int64_t s = 0; s < r; s++) covariance[s * m + r] = covariance[r * m + s];
}
