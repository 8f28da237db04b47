/* The covariance of the rows, its factor, the scale that explains them best, and slopes of the evidence: model.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

int cholesky(int64_t n, const double *A, double *lower); /* linear.c */
int inverse_spd(int64_t n, const double *A, double *inverse, double *scratch);

static const double MEMORY_STEPS = 20.0, JITTER = 1e-8, GUESS_ROWS = 2.0;

/* Lower triangles [n, n] of the parts of the covariance. */
typedef struct {
    double *kc, *kt, *lin, *choice, *res, *gap, *whole;
} Parts;

static Parts parts_in(double *scratch, int64_t n) {
    const int64_t s = n * n;
    const Parts parts = {scratch, scratch + s, scratch + 2 * s, scratch + 3 * s, scratch + 4 * s, scratch + 5 * s, scratch + 6 * s};
    return parts;
}

/* out [0 .. i] = sum_k w_k x_ik x_jk over rows j <= i of x [n, k]; columns [k, n] are the same, turned. */
static inline void weighted_products(int64_t n, int64_t i, int64_t width, const double *row, const double *weight,
                                     const double *columns, double *restrict out) {
    for (int64_t j = 0; j <= i; j++) out[j] = 0.0;
    for (int64_t k = 0; k < width; k++) {
        const double w = weight[k] * row[k];
        if (w != 0.0) add_scaled(i + 1, w, columns + k * n, out);
    }
}

static void turned(int64_t n, int64_t width, const double *rows, double *columns) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++) columns[k * n + i] = rows[i * width + k];
}

static inline void squared_gaps(int64_t n, int64_t i, int64_t width, const double *row, const double *columns,
                                double *restrict out) {
    for (int64_t j = 0; j <= i; j++) out[j] = 0.0;
    for (int64_t k = 0; k < width; k++) {
        const double *column = columns + k * n, own = row[k];
        for (int64_t j = 0; j <= i; j++) out[j] += (column[j] - own) * (column[j] - own);
    }
}

/* columns: room for n times the widest of effects, embedding, curved and context. */
WIDER static void covariance(const GpKnobs *k, const GpFit *f, Parts s, double *columns) {
    const double *h = f->hyper;
    const int64_t n = f->n;
    for (int64_t i = 0; i < n; i++) {
        double size = 0.0;
        for (int64_t a = 0; a < k->e; a++) {
            const double x = f->embedding[i * k->e + a] * f->embedding_weight[a];
            f->embedded[i * k->e + a] = x;
            size += x * x;
        }
        f->sizes[i] = size;
    }
    turned(n, k->e, f->embedded, columns);
    for (int64_t i = 0; i < n; i++) squared_gaps(n, i, k->e, f->embedded + i * k->e, columns, s.gap + i * n);
    turned(n, f->c, f->z, columns);
    for (int64_t i = 0; i < n; i++) {
        double *kc = s.kc + i * n, *kt = s.kt + i * n, *res = s.res + i * n, *gap = s.gap + i * n;
        squared_gaps(n, i, f->c, f->z + i * f->c, columns, kc);
        for (int64_t j = 0; j <= i; j++) {
            kc[j] *= -0.5;
            kt[j] = -fabs(f->times[i] - f->times[j]) / MEMORY_STEPS;
            res[j] = -0.5 * gap[j];
        }
        exp_falling(i + 1, kc);
        exp_falling(i + 1, kt);
        exp_falling(i + 1, res);
    }
    turned(n, k->p, f->effects, columns);
    for (int64_t i = 0; i < n; i++) {
        weighted_products(n, i, k->p, f->effects + i * k->p, f->effect_weight, columns, s.lin + i * n);
        weighted_products(n, i, k->p, f->effects + i * k->p, f->choice_weight, columns, s.choice + i * n);
    }
    turned(n, k->q, f->curved, columns);
    for (int64_t i = 0; i < n; i++) {
        double *whole = s.whole + i * n, *res = s.res + i * n;
        const double *kc = s.kc + i * n, *kt = s.kt + i * n, *lin = s.lin + i * n, *choice = s.choice + i * n;
        weighted_products(n, i, k->q, f->curved + i * k->q, k->curved_variance, columns, whole);
        for (int64_t j = 0; j <= i; j++) {
            res[j] *= h[VR];
            const double sharing = h[GS] + h[GC] * kc[j] + h[GT] * kt[j];
            whole[j] += f->level + h[VC] * kc[j] + h[VT] * kt[j] + (lin[j] + res[j]) * sharing + choice[j] * kc[j];
        }
    }
}

/* x [n] becomes the solution of root root' x = b. */
static void solve(int64_t n, const double *root, const double *b, double *x) {
    for (int64_t i = 0; i < n; i++) x[i] = (b[i] - dot(i, root + i * n, x)) / root[i * n + i];
    for (int64_t i = n - 1; i >= 0; i--) {
        x[i] /= root[i * n + i];
        add_scaled(i, -x[i], root + i * n, x);
    }
}

typedef struct {
    double scale, evidence; /* a; its logarithm */
} Solved;

/* The factor and alpha under a noise of s2; `noises`, `alpha` and `root` of f are written. Not finite: not definite. */
static Solved solved(const GpFit *f, const double *whole, double s2, double *of_y,
                     double *of_mean) {
    const int64_t n = f->n;
    Solved out = {0.0, -INFINITY};
    for (int64_t i = 0; i < n; i++) {
        memcpy(f->root + i * n, whole + i * n, sizeof(double) * (size_t)(i + 1));
        f->noises[i] = s2 / (f->counts[i] * f->trust[i]);
        f->root[i * n + i] += f->noises[i] + JITTER * f->level;
    }
    if (cholesky(n, f->root, f->root)) return out;
    solve(n, f->root, f->y, of_y);
    solve(n, f->root, f->mean, of_mean);
    const double big = dot(n, f->y, of_y) + GUESS_ROWS, b = dot(n, f->y, of_mean), rows = (double)n + GUESS_ROWS;
    const double q = (b + sqrt(b * b + 4.0 * big * rows)) / (2.0 * big);
    double log_root = 0.0;
    for (int64_t i = 0; i < n; i++) {
        log_root += log(f->root[i * n + i]);
        f->alpha[i] = q * of_y[i] - of_mean[i];
    }
    out.scale = 1.0 / q;
    out.evidence = -0.5 * (big * q * q - 2.0 * b * q + dot(n, f->mean, of_mean)) + rows * log(q) - log_root;
    return out;
}

/* slope [HYPERS + d + c], twice that of the log evidence; odd [n]. `inverse` is [n, n]. */
WIDER static void slopes(const GpKnobs *k, const GpFit *f, Parts s, const double *inverse, double *slope, double *odd,
                         double *scratch) {
    const double *h = f->hyper;
    const int64_t n = f->n, d = k->d;
    double *sharing = scratch, *of_kc = sharing + n, *of_res = of_kc + n, *context = of_res + n;
    double *by_effect = context + n, *by_choice = by_effect + k->p, *by_axis = by_choice + k->p, *row = by_axis + k->e;
    memset(slope, 0, sizeof(double) * (size_t)(HYPERS + d + f->c));
    memset(by_effect, 0, sizeof(double) * (size_t)(2 * k->p + k->e));
    for (int64_t i = 0; i < n; i++) {
        const double *kc = s.kc + i * n, *kt = s.kt + i * n, *lin = s.lin + i * n, *choice = s.choice + i * n;
        const double *res = s.res + i * n, *gap = s.gap + i * n, *inv = inverse + i * n;
        double gs = 0.0, gc = 0.0, gt = 0.0, gq = 0.0, vc = 0.0, vt = 0.0, vr = 0.0, ell = 0.0;
        odd[i] = f->alpha[i] * f->alpha[i] / inv[i];
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
            of_res[j] = rest * share * res[j];
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
        for (int64_t a = 0; a < k->p; a++) row[a] = 0.0;
        for (int64_t j = 0; j <= i; j++) add_scaled(k->p, sharing[j], f->effects + j * k->p, row);
        for (int64_t a = 0; a < k->p; a++) by_effect[a] += f->effects[i * k->p + a] * row[a];
        for (int64_t a = 0; a < k->p; a++) row[a] = 0.0;
        for (int64_t j = 0; j <= i; j++) add_scaled(k->p, of_kc[j], f->effects + j * k->p, row);
        for (int64_t a = 0; a < k->p; a++) by_choice[a] += f->effects[i * k->p + a] * row[a];
        for (int64_t a = 0; a < k->e; a++) row[a] = 0.0;
        for (int64_t j = 0; j <= i; j++) { /* -(x_i - x_j)^2 / 2 each, of a pair that counts twice already */
            const double *other = f->embedded + j * k->e, *own = f->embedded + i * k->e;
            for (int64_t a = 0; a < k->e; a++) row[a] -= 0.5 * of_res[j] * (own[a] - other[a]) * (own[a] - other[a]);
        }
        for (int64_t a = 0; a < k->e; a++) by_axis[a] += row[a];
        for (int64_t j = 0; j <= i; j++) {
            const double *other = f->z + j * f->c, *own = f->z + i * f->c, by = -0.5 * context[j];
            double *to = slope + HYPERS + d;
            for (int64_t a = 0; a < f->c; a++) to[a] += by * (own[a] - other[a]) * (own[a] - other[a]);
        }
    }
    for (int64_t a = 0; a < k->p; a++) {
        const double by = f->effect_weight[a] * by_effect[a] + f->choice_weight[a] * by_choice[a];
        slope[HYPERS + k->effect_knob[a]] += by;
        if (k->of_few[a] > 0.0) slope[HOT] += by;
    }
    for (int64_t a = 0; a < k->e; a++) slope[HYPERS + k->embedding_knob[a]] += by_axis[a];
}

/* Fit the rows. Of `factors` times the noise the one of greatest evidence is taken, with `priors` [count] taken off the
 * evidence of each. With `slope`, slopes of the evidence [HYPERS + d + c] and odd [n] are written, too.
 * out [2]: the scale, and which factor. Returns 0, or 1 if no covariance was positive definite.
 * scratch: 8 n^2 + n (widest + 8) + 4 widest, the widest of p, q, e and c. */
GP_API int64_t rasp_gp_fit(const GpKnobs *k, const GpFit *f, int64_t count, const double *factors,
                           const double *priors, double *slope, double *odd, double *out, double *scratch) {
    const int64_t n = f->n;
    const Parts s = parts_in(scratch, n);
    double *inverse = scratch + 7 * n * n, *rest = scratch + 8 * n * n, best = -INFINITY;
    covariance(k, f, s, rest);
    int64_t chosen = -1, last = -1;
    Solved found = {0.0, -INFINITY};
    for (int64_t i = 0; i < count; i++) {
        const Solved one = solved(f, s.whole, factors[i] * f->hyper[S2], rest, rest + n);
        last = i;
        if (one.evidence - priors[i] > best) {
            best = one.evidence - priors[i];
            chosen = i;
            found = one;
        }
    }
    if (chosen < 0) return 1;
    if (chosen != last) found = solved(f, s.whole, factors[chosen] * f->hyper[S2], rest, rest + n);
    out[0] = found.scale;
    out[1] = (double)chosen;
    if (slope) {
        for (int64_t i = 0; i < n; i++) s.whole[i * n + i] += f->noises[i] + JITTER * f->level;
        if (inverse_spd(n, s.whole, inverse, rest)) return 1;
        slopes(k, f, s, inverse, slope, odd, rest);
    }
    return 0;
}
