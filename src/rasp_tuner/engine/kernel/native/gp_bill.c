/* What own steps have cost, in hindsight: bill.py. */
#include <math.h>
#include <string.h>

#include "gp.h"
#include "linear.h"

/* out [n] = A x for a symmetric A [n, n] that is there up to its diagonal; four rows at a time. */
PART_OF_EACH void lower_times(int64_t n, const double *restrict A, const double *restrict x, double *restrict out) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const double *restrict r0 = A + i * n, *restrict r1 = r0 + n, *restrict r2 = r1 + n, *restrict r3 = r2 + n;
        const double x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
        Pair s0 = {0.0}, s1 = {0.0}, s2 = {0.0}, s3 = {0.0};
        for (int64_t j = 0; j < i; j += 2) {
            const Pair a = *(const Pair *)(r0 + j), b = *(const Pair *)(r1 + j), c = *(const Pair *)(r2 + j);
            const Pair d = *(const Pair *)(r3 + j), by = *(const Pair *)(x + j);
            *(Pair *)(out + j) += (x0 * a + x1 * b) + (x2 * c + x3 * d);
            s0 += a * by, s1 += b * by, s2 += c * by, s3 += d * by;
        }
        const double sums[] = {s0[0] + s0[1], s1[0] + s1[1], s2[0] + s2[1], s3[0] + s3[1]};
        for (int r = 0; r < 4; r++) {
            const double *own = r0 + r * n;
            double sum = sums[r];
            for (int64_t j = i; j < i + 4; j++) sum += (j <= i + r ? own[j] : A[j * n + i + r]) * x[j];
            out[i + r] = sum;
        }
    }
    for (; i < n; i++) {
        const double *restrict row = A + i * n, own = x[i];
        out[i] = dot(i + 1, row, x);
        for (int64_t j = 0; j < i; j++) out[j] += own * row[j];
    }
}

static double lower_of(double x, double most) { return x < most ? x : most; }

/* A rise of the loss by `gap` from `level`, as a share of it: see Prices in family.py. */
static double price(const GpPrices *by, double level, double gap) {
    double share;
    if (by->is_log > 0.0) share = expm1(lower_of(gap, by->most_log));
    else {
        double unit = by->unit;
        if (by->of_level > 0.0 && fabs(level) > unit) unit = fabs(level);
        share = gap / (unit > by->least_unit ? unit : by->least_unit);
    }
    return clip(share, -by->most, by->most);
}

/* Effects of a point and of the default [2, p], [2, q], [2], [2, e] embedded. */
static void features_of(const GpKnobs *k, const GpFit *f, const double *point, double *points, double *effects,
                        double *curved, double *mean, double *embedding) {
    memcpy(points, point, sizeof(double) * (size_t)k->d);
    memcpy(points + k->d, k->default_, sizeof(double) * (size_t)k->d);
    gp_features(k, 2, points, effects, curved, mean, embedding);
    for (int64_t a = 0; a < k->e; a++) embedding[a] *= f->embedding_weight[a], embedding[k->e + a] *= f->embedding_weight[a];
}

/* out [n]: the residual's covariance of a point x [e], embedded, with each row, without sharing. */
static void residual(const GpKnobs *k, const GpFit *f, const double *x, double *restrict out) {
    const int64_t n = f->n;
    memset(out, 0, sizeof(double) * (size_t)n);
    for (int64_t a = 0; a < k->e; a++) {
        const double *restrict column = f->embedded + a * n, own = x[a];
        for (int64_t i = 0; i < n; i++) out[i] -= 0.5 * (column[i] - own) * (column[i] - own);
    }
    exp_falling(n, out);
    for (int64_t i = 0; i < n; i++) out[i] *= f->hyper[VR];
}

/* weight, left [n] and out [3], spent, earned and the variance, of rows that were suggested own [n] times.
 * scale: a, in units of f->y; center and unit: of f->y. scratch: 9 n + 2 (d + p + q + e + 1). */
GP_API WIDER void rasp_gp_bill(const GpKnobs *k, const GpFit *f, const GpPrices *by, const double *own, double center,
                               double unit, double scale, double *weight, double *left, double *out, double *scratch) {
    const double *h = f->hyper;
    const int64_t n = f->n, p = k->p;
    double *lin = scratch, *choice = lin + n, *x = choice + n, *kernel_x = x + n, *kc_x = kernel_x + n, *kt_x = kc_x + n;
    double *gap = kt_x + n, *points = gap + 3 * n, *effects = points + 2 * k->d, *curved = effects + 2 * p;
    double *mean = curved + 2 * k->q, *embedding = mean + 2, own_lin = h[VR], own_choice = h[TURNING] * h[VR], shared = 0.0;
    features_of(k, f, k->default_, points, effects, curved, mean, embedding);
    residual(k, f, embedding, lin);
    for (int64_t i = 0; i < n; i++) choice[i] = h[TURNING] * lin[i];
    for (int64_t a = 0; a < p; a++)
        if (effects[a] != 0.0) { /* turned: times the roots of weights */
            add_scaled(n, sqrt(f->effect_weight[a]) * effects[a], f->turned + a * n, lin);
            if (f->choice_weight[a] != 0.0)
                add_scaled(n, sqrt(f->choice_weight[a]) * effects[a], f->turned + (p + a) * n, choice);
            own_lin += f->effect_weight[a] * effects[a] * effects[a];
            own_choice += f->choice_weight[a] * effects[a] * effects[a];
        }
    /* what is expected of the default in each row's context */
    for (int64_t j = 0; j < n; j++) x[j] = (h[VC] + h[GC] * lin[j] + choice[j]) * f->alpha[j];
    lower_times(n, f->alike, x, kc_x);
    for (int64_t j = 0; j < n; j++) x[j] = (h[VT] + h[GT] * lin[j]) * f->alpha[j];
    lower_times(n, f->lately, x, kt_x);
    for (int64_t j = 0; j < n; j++) shared += (f->level + h[GS] * lin[j]) * f->alpha[j];
    out[0] = out[1] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double expected = f->y[i] / scale - (f->noises[i] + JITTER * f->level) * f->alpha[i], a = scale * unit;
        gap[i] = expected - kc_x[i] - kt_x[i] - shared;
        const double level = center + a * (expected - gap[i]), share = price(by, level, a * gap[i]);
        weight[i] = own[i] * (price(by, level, a * (gap[i] + SMALL_STEP)) - share) / SMALL_STEP;
        if (share > 0.0) out[0] += own[i] * share;
        else out[1] -= own[i] * share;
    }
    lower_times(n, f->kernel, weight, kernel_x);
    lower_times(n, f->alike, weight, kc_x);
    lower_times(n, f->lately, weight, kt_x);
    double sum = 0.0, variance = 0.0;
    for (int64_t i = 0; i < n; i++) sum += weight[i];
    for (int64_t i = 0; i < n; i++) { /* with_rows, in x */
        const double apart = kernel_x[i] - h[VC] * kc_x[i] - h[VT] * kt_x[i];
        const double sharing = h[GS] * sum + h[GC] * kc_x[i] + h[GT] * kt_x[i];
        x[i] = apart - lin[i] * sharing - choice[i] * kc_x[i];
        variance += weight[i] * (x[i] - lin[i] * sharing - choice[i] * kc_x[i] + own_lin * sharing + own_choice * kc_x[i]);
    }
    memcpy(gap, x, sizeof(double) * (size_t)n);
    memset(gap + n, 0, sizeof(double) * (size_t)n); /* of two systems there is one */
    gp_solve(n, f->root, gap, gap + 2 * n);
    variance -= dot(n, x, gap);
    out[2] = variance > 0.0 ? variance : 0.0;
    for (int64_t i = 0; i < n; i++) left[i] = weight[i] - gap[i];
}

/* The part of weighted rows that a residual's covariance with each moves here. */
static double of_residual(int64_t n, const GpFit *f, const GpHere *here, const double *left, const double *near) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += near[i] * left[i] * (here->share[i] + f->hyper[TURNING] * here->kc[i]);
    return sum;
}

/* The covariance of the bill and of the gap of a point [d] here. scratch: 2 n + 2 (d + p + q + e + 1). */
GP_API WIDER double rasp_gp_billed(const GpKnobs *k, const GpFit *f, const GpHere *here, const double *weight,
                                   const double *left, const double *point, double *scratch) {
    const int64_t n = f->n, p = k->p, q = k->q, e = k->e;
    double *near = scratch, *shared = near + n, *points = shared + n, *effects = points + 2 * k->d;
    double *curved = effects + 2 * p, *mean = curved + 2 * q, *embedding = mean + 2, sum = 0.0, own = 0.0, choice = 0.0;
    features_of(k, f, point, points, effects, curved, mean, embedding);
    for (int64_t i = 0; i < n; i++) shared[i] = left[i] * here->share[i];
    residual(k, f, embedding, near);
    sum += of_residual(n, f, here, left, near);
    residual(k, f, embedding + e, near);
    sum -= of_residual(n, f, here, left, near);
    for (int64_t i = 0; i < n; i++) near[i] = left[i] * here->kc[i];
    for (int64_t a = 0; a < p; a++) {
        const double more = effects[a] - effects[p + a];
        if (more == 0.0) continue;
        sum += more * sqrt(f->effect_weight[a]) * dot(n, shared, f->turned + a * n);
        sum += more * sqrt(f->choice_weight[a]) * dot(n, near, f->turned + (p + a) * n);
        own += f->effect_weight[a] * effects[p + a] * more;
        choice += f->choice_weight[a] * effects[p + a] * more;
    }
    for (int64_t a = 0; a < q; a++)
        if (curved[a] != 0.0) sum += curved[a] * sqrt(k->curved_variance[a]) * dot(n, left, f->turned + (2 * p + a) * n);
    double gap = 0.0;
    for (int64_t a = 0; a < e; a++) gap += (embedding[a] - embedding[e + a]) * (embedding[a] - embedding[e + a]);
    const double apart = f->hyper[VR] * (exp(-0.5 * gap) - 1.0); /* the default itself, in the rows' contexts */
    own += apart, choice += f->hyper[TURNING] * apart;
    return sum - own * dot(n, weight, here->share) - choice * dot(n, weight, here->kc);
}
