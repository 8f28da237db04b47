/* A fit in one context: means and covariances of points: posterior.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

static const double MEMORY_STEPS = 20.0;

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

/* out [n] = exp(-|x - row|^2 / 2) over rows, x [e] embedded; columns [e, n] are the rows', turned. */
static inline void residuals(int64_t n, int64_t e, const double *x, const double *columns, double *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = 0.0;
    for (int64_t a = 0; a < e; a++) {
        const double *column = columns + a * n, own = x[a];
        for (int64_t i = 0; i < n; i++) out[i] -= 0.5 * (column[i] - own) * (column[i] - own);
    }
    exp_falling(n, out);
}

static void embed(const GpKnobs *k, const GpFit *f, int64_t m, double *embedding) {
    for (int64_t r = 0; r < m; r++)
        for (int64_t a = 0; a < k->e; a++) embedding[r * k->e + a] *= f->embedding_weight[a];
}

static void turned(int64_t n, int64_t width, const double *rows, double *columns) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < width; a++) columns[a * n + i] = rows[i * width + a];
}

/* Means [m] at points [m, d]. scratch: m (p + q + e) + n (e + 1). */
WIDER void gp_means(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points, double *out,
                    double *scratch) {
    double *effects = scratch, *curved = effects + m * k->p, *embedding = curved + m * k->q;
    double *columns = embedding + m * k->e, *near = columns + f->n * k->e;
    gp_features(k, m, points, effects, curved, out, embedding);
    embed(k, f, m, embedding);
    turned(f->n, k->e, f->embedded, columns);
    for (int64_t r = 0; r < m; r++) {
        residuals(f->n, k->e, embedding + r * k->e, columns, near);
        out[r] += here->constant + dot(k->p, effects + r * k->p, here->effects)
                  + dot(k->q, curved + r * k->q, here->curved) + dot(f->n, near, here->residual);
    }
}

GP_API void rasp_gp_means(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points,
                          double *out, double *scratch) {
    gp_means(k, f, here, m, points, out, scratch);
}

/* Means [m] and covariance [m, m] at points [m, d]. scratch: m (p + q + e) + n (e + p + q + m) + m (n + m) + n. */
GP_API WIDER void rasp_gp_joint(const GpKnobs *k, const GpFit *f, const GpHere *here, int64_t m, const double *points,
                                double *mean, double *covariance, double *scratch) {
    const int64_t n = f->n, p = k->p, q = k->q, e = k->e;
    const double *h = f->hyper;
    double *effects = scratch, *curved = effects + m * p, *embedding = curved + m * q, *columns = embedding + m * e;
    double *effect_columns = columns + n * e, *curved_columns = effect_columns + n * p;
    double *cross = curved_columns + n * q, *reach = cross + n * m; /* [m, n], then turned [n, m] */
    gp_features(k, m, points, effects, curved, mean, embedding);
    embed(k, f, m, embedding);
    turned(n, e, f->embedded, columns);
    turned(n, p, f->effects, effect_columns);
    turned(n, q, f->curved, curved_columns);
    double *own = reach + n * m; /* [n] */
    for (int64_t r = 0; r < m; r++) {
        double *row = cross + r * n;
        residuals(n, e, embedding + r * e, columns, row);
        for (int64_t i = 0; i < n; i++) row[i] *= h[VR];
        for (int64_t a = 0; a < p; a++) {
            const double w = f->effect_weight[a] * effects[r * p + a];
            if (w != 0.0) add_scaled(n, w, effect_columns + a * n, row);
        }
        for (int64_t i = 0; i < n; i++) {
            row[i] = row[i] * here->share[i] + here->base[i];
            own[i] = 0.0;
        }
        for (int64_t a = 0; a < p; a++) {
            const double w = f->choice_weight[a] * effects[r * p + a];
            if (w != 0.0) add_scaled(n, w, effect_columns + a * n, own);
        }
        for (int64_t i = 0; i < n; i++) row[i] += own[i] * here->kc[i];
        for (int64_t a = 0; a < q; a++) {
            const double w = k->curved_variance[a] * curved[r * q + a];
            if (w != 0.0) add_scaled(n, w, curved_columns + a * n, row);
        }
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
    for (int64_t r = 0; r < m; r++) {
        double *row = covariance + r * m;
        for (int64_t s = 0; s <= r; s++) {
            double gap = 0.0, lin = 0.0, choice = 0.0, bent = 0.0;
            for (int64_t a = 0; a < e; a++) {
                const double apart = embedding[r * e + a] - embedding[s * e + a];
                gap += apart * apart;
            }
            for (int64_t a = 0; a < p; a++) {
                const double both = effects[r * p + a] * effects[s * p + a];
                lin += f->effect_weight[a] * both;
                choice += f->choice_weight[a] * both;
            }
            for (int64_t a = 0; a < q; a++) bent += k->curved_variance[a] * curved[r * q + a] * curved[s * q + a];
            row[s] = -0.5 * gap;
            const double rest = lin * here->own_share + choice + bent + here->own_base; /* the residual comes below */
            if (s < r) covariance[s * m + r] = rest; /* above the diagonal there is room until then */
            else cross[r] = rest;
        }
        exp_falling(r + 1, row);
        for (int64_t s = 0; s <= r; s++) {
            const double rest = s == r ? cross[r] : covariance[s * m + r];
            row[s] = row[s] * h[VR] * here->own_share + rest;
        }
    }
    for (int64_t r = 0; r < m; r++)
        for (int64_t s = 0; s < r; s++) covariance[s * m + r] = covariance[r * m + s];
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int64_t r = 0; r < m; r++) {
            const double by[] = {-reach[i * m + r], -reach[(i + 1) * m + r], -reach[(i + 2) * m + r], -reach[(i + 3) * m + r]};
            add_four(m, by, 1, reach + i * m, m, covariance + r * m);
        }
    for (; i < n; i++)
        for (int64_t r = 0; r < m; r++) add_scaled(m, -reach[i * m + r], reach + i * m, covariance + r * m);
}
