/* What the discrete family holds true in one context (belief.py), and what a look would be worth (value.py). */
#include <math.h>

#include "discrete.h"
#include "linear.h"

/* Closeness of this raw context to each row's, and what follows; `sums` are those of kc y and kc. */
WIDER void rasp_discrete_believe(const Here *here, const double *context, double *sums) {
    int64_t n = here->n, c = here->c;
    double standard[c + 1], by = -0.5 / (here->width * here->width);
    for (int64_t k = 0; k < c; k++) standard[k] = clip((context[k] - here->middle[k]) / here->scale[k], -1e4, 1e4);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < c; k++) {
            double gap = here->contexts[i * c + k] - standard[k];
            sum += gap * gap;
        }
        here->kc[i] = sum / (double)(c > 0 ? c : 1);
    }
    double *restrict kc = here->kc, *restrict share = here->share, *restrict base = here->base;
    double own = 1.0 - here->rho, rho = here->rho, slope = here->level * here->vc, level = here->level;
    for (int64_t i = 0; i < n; i++) kc[i] = exponential(by * kc[i]);
    for (int64_t i = 0; i < n; i++) {
        share[i] = own * kc[i] + rho;
        base[i] = slope * kc[i] + level;
    }
    sums[0] = sums[1] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sums[0] += kc[i] * here->values[i];
        sums[1] += kc[i];
    }
}

/* Up to `count` rows of different points, best posterior mean first, none that failed in a context like this; how many.
 * Scratch `means` [2, n]. */
WIDER int64_t rasp_discrete_elites(const Knobs *knobs, const Here *here, int64_t count, double alike, double *means,
                                   int64_t *rows) {
    int64_t n = here->n, d = knobs->d, p = knobs->p, found = 0;
    size_t size = sizeof(double) * (size_t)d;
    double *weights = means + n;
    if (n == 0) return 0;
    for (int64_t i = 0; i < n; i++) weights[i] = here->share[i] * here->alpha[i];
    symmetric_times(n, here->gram, weights, means);
    for (int64_t i = 0; i < n; i++) {
        means[i] += here->phi[i * p + p - 1] * knobs->prior[p - 1];
        if (here->failed[i] > 0.0) means[i] = INFINITY;
    }
    while (found < count) {
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) best = means[i] < means[best] ? i : best;
        if (!(means[best] < INFINITY)) break;
        means[best] = INFINITY;
        const double *point = here->points + best * d;
        int known = 0;
        for (int64_t i = 0; i < found && !known; i++) known = !memcmp(point, here->points + rows[i] * d, size);
        for (int64_t i = 0; i < n && !known; i++) {
            known = here->failed[i] > 0.0 && here->kc[i] > alike && !memcmp(point, here->points + i * d, size);
        }
        if (!known) rows[found++] = best;
    }
    return found;
}

/* One row: `near` becomes the gram, `linear` the kernel in this context; the mean of the target. */
static inline double cross_row(const Here *here, double size, double *restrict near, double *restrict linear) {
    int64_t n = here->n;
    double va = here->va, vp = here->vp;
    const double *restrict sizes = here->sizes, *restrict share = here->share, *restrict base = here->base;
    for (int64_t j = 0; j < n; j++) near[j] = vp * exponential((near[j] - sizes[j]) - size) + va * linear[j];
    for (int64_t j = 0; j < n; j++) linear[j] = near[j] * share[j] + base[j];
    return dot(n, linear, here->alpha);
}

/* Of `count` points: from products of their steps and main effects with those of the rows, the same as above. */
WIDER void rasp_discrete_cross(const Knobs *knobs, const Here *here, int64_t count, const double *sizes,
                               const double *phi, double *near, double *linear, double *mean) {
    int64_t n = here->n, p = knobs->p;
    for (int64_t i = 0; i < count; i++) {
        mean[i] = cross_row(here, sizes[i], near + i * n, linear + i * n);
        mean[i] += phi[i * p + p - 1] * knobs->prior[p - 1];
    }
}

/* Covariance [count, count] of points, where it was what the rows explain of it. */
WIDER void rasp_discrete_covariance(const Here *here, int64_t count, const double *sizes, const double *near,
                                    const double *linear, double *covariance) {
    double va = here->va, vp = here->vp, level = here->level * (1.0 + here->vc);
    for (int64_t i = 0; i < count; i++) {
        double *restrict row = covariance + i * count;
        const double *restrict beside = near + i * count, *restrict along = linear + i * count;
        for (int64_t j = 0; j < count; j++) {
            row[j] = (vp * exponential((beside[j] - sizes[j]) - sizes[i]) + va * along[j] + level) - row[j];
        }
    }
}

/* Two points: their features, gram [2, n], mean [2] and covariance [2, 2]. Scratch [4, n]. */
WIDER void rasp_discrete_look(const Knobs *knobs, const Here *here, const double *points, double *phi, double *steps,
                              double *weighted, double *sizes, double *gram, double *mean, double *covariance,
                              double *scratch) {
    int64_t n = here->n, p = knobs->p, q = knobs->q;
    rasp_discrete_features(knobs, 2, points, here->weights, phi, steps, weighted, sizes);
    for (int64_t i = 0; i < 2; i++) {
        double *cross = scratch + i * n, *reach = scratch + (2 + i) * n;
        for (int64_t j = 0; j < n; j++) {
            gram[i * n + j] = dot(q, steps + i * q, here->weighted + j * q);
            cross[j] = dot(p, phi + i * p, here->phi + j * p);
        }
        mean[i] = cross_row(here, sizes[i], gram + i * n, cross) + phi[i * p + p - 1] * knobs->prior[p - 1];
        memset(reach, 0, sizeof(double) * (size_t)n);
        for (int64_t j = 0; j < n; j++) add_scaled(n, cross[j], here->inverse + j * n, reach);
    }
    for (int64_t i = 0; i < 2; i++) {
        for (int64_t j = 0; j < 2; j++) {
            double near = dot(q, steps + i * q, weighted + j * q) - sizes[j] - sizes[i];
            double own = here->vp * exponential(near) + here->va * dot(p, phi + i * p, phi + j * p);
            double explained = dot(n, scratch + (2 + i) * n, scratch + j * n);
            covariance[2 * i + j] = own + here->level * (1.0 + here->vc) - explained;
        }
    }
}

/* E[(Z - gap)+] of a standard normal Z, for gap >= 0: as in value.py. */
static double expected_excess(double gap) {
    static const double ROOT = 2.5066282746310002; /* of 2 pi */
    double nearby = fmin(gap, 40.0), density = exp(-0.5 * (nearby * nearby)) / ROOT, t = 1.0 / (1.0 + 0.2316419 * gap);
    double sum = -1.821255978 + t * 1.330274429;
    sum = 1.781477937 + t * sum;
    sum = -0.356563782 + t * sum;
    sum = 0.319381530 + t * sum;
    return fmax(density - gap * (density * t * sum), 0.0);
}

/* How far a noisy look at each candidate is expected to lower the least mean: knowledge_gradient of value.py. */
void rasp_discrete_gradient(int64_t count, const double *mean, const double *covariance, double noise, double jitter,
                            int64_t looks, const double *look, double *value) {
    static const double MOST_DENSITY = 0.39894228040143276; /* of a standard normal */
    int64_t order[count];
    for (int64_t i = 0; i < count; i++) { /* sorted by insertion */
        int64_t place = i;
        for (; place > 0 && mean[order[place - 1]] > mean[i]; place--) order[place] = order[place - 1];
        order[place] = i;
    }
    for (int64_t x = 0; x < count; x++) {
        const double *row = covariance + x * count;
        double deviation[looks], farthest = -1.0, most = 0.0;
        for (int64_t l = 0; l < looks; l++) deviation[l] = sqrt(fmax(row[x], jitter) + noise / look[l]);
        for (int64_t j = 0; j < count; j++) {
            double apart = fabs(row[order[j]] - row[order[0]]), gap = mean[order[j]] - mean[order[0]];
            if (!(apart > farthest)) continue; /* a better alternative that moves as far is worth more */
            farthest = apart;
            for (int64_t l = 0; l < looks; l++) {
                double spread = fmax(apart / deviation[l], 1e-12);
                if (spread * MOST_DENSITY / look[l] <= most) continue; /* it cannot be worth more */
                most = fmax(most, spread * expected_excess(gap / spread) / look[l]);
            }
        }
        value[x] = most;
    }
}
