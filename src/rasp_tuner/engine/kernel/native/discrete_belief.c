/* What the discrete family holds true in one context (belief.py), and what a look would be worth (here.py). */
#include <math.h>

#include "discrete.h"
#include "linear.h"

/* Closeness of this raw context to each row's, and what follows. `sums` are those of kc y and kc; how many samples are
 * known of contexts like this, and whether the default is one of them. */
WIDER void rasp_discrete_believe(const Knobs *knobs, const Here *here, double alike, const double *context,
                                 double *sums) {
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
    for (int64_t i = 0; i < n; i++) kc[i] *= by;
    exponentials(n, kc);
    for (int64_t i = 0; i < n; i++) {
        share[i] = own * kc[i] + rho;
        base[i] = slope * kc[i] + level;
    }
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sums[0] += kc[i] * here->values[i];
        sums[1] += kc[i];
        if (!(kc[i] > alike)) continue;
        const double *point = here->points + i * knobs->d;
        int64_t same = 0;
        while (same < knobs->d && point[same] == knobs->default_[same]) same++;
        sums[2] += here->counts[i];
        if (same == knobs->d) sums[3] = 1.0;
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

/* The row of this point [d] whose context is closest; -1 if there is none. */
int64_t rasp_discrete_nearest(const Knobs *knobs, const Here *here, const double *point) {
    int64_t d = knobs->d, nearest = -1;
    for (int64_t i = 0; i < here->n; i++) {
        const double *row = here->points + i * d;
        int64_t same = 0;
        while (same < d && row[same] == point[same]) same++;
        if (same == d && (nearest < 0 || here->kc[i] > here->kc[nearest])) nearest = i;
    }
    return nearest;
}

/* One row: `near` becomes the gram, `linear` the kernel in this context; the mean of the target. */
static inline double cross_row(const Here *here, double size, double *restrict near, double *restrict linear) {
    int64_t n = here->n;
    double va = here->va, vp = here->vp;
    const double *restrict sizes = here->sizes, *restrict share = here->share, *restrict base = here->base;
    for (int64_t j = 0; j < n; j++) near[j] = (near[j] - sizes[j]) - size;
    exponentials(n, near);
    for (int64_t j = 0; j < n; j++) {
        near[j] = vp * near[j] + va * linear[j];
        linear[j] = near[j] * share[j] + base[j];
    }
    return dot(n, linear, here->alpha);
}

/* Of the candidates: from products of their steps and main effects with those of the rows, the same as above. */
WIDER void rasp_discrete_cross(const Knobs *knobs, const Here *here, Search *search) {
    int64_t n = here->n, p = knobs->p;
    for (int64_t i = 0; i < search->kept; i++) {
        search->mean[i] = cross_row(here, search->sizes[i], search->near + i * n, search->cross + i * n);
        search->mean[i] += search->phi[i * p + p - 1] * knobs->prior[p - 1];
    }
}

/* Covariance [kept, kept] of the candidates, where it was what the rows explain of it; `own_near` is used up. */
WIDER static void covariance_of(const Here *here, Search *search) {
    int64_t count = search->kept;
    double va = here->va, vp = here->vp, level = here->level * (1.0 + here->vc);
    const double *restrict sizes = search->sizes;
    for (int64_t i = 0; i < count; i++) {
        double *restrict row = search->covariance + i * count;
        double *restrict beside = search->own_near + i * count;
        const double *restrict along = search->own + i * count;
        for (int64_t j = 0; j < count; j++) beside[j] = (beside[j] - sizes[j]) - sizes[i];
        exponentials(count, beside);
        for (int64_t j = 0; j < count; j++) row[j] = (vp * beside[j] + va * along[j] + level) - row[j];
    }
}

/* out [2, n] = x A for a symmetric A [n, n]; rows of A by fours, so that sums are loaded and stored less often. */
static inline void symmetric_times_two(int64_t n, const double *restrict A, const double *restrict x,
                                       double *restrict out) {
    int64_t i = 0;
    memset(out, 0, sizeof(double) * (size_t)(2 * n));
    for (; i + 4 <= n; i += 4) {
        const double *row = A + i * n, *a = x + i, *b = x + n + i;
        for (int64_t j = 0; j < n; j++) {
            double first = row[j], second = row[n + j], third = row[2 * n + j], last = row[3 * n + j];
            out[j] += (a[0] * first + a[1] * second) + (a[2] * third + a[3] * last);
            out[n + j] += (b[0] * first + b[1] * second) + (b[2] * third + b[3] * last);
        }
    }
    for (; i < n; i++) {
        add_scaled(n, x[i], A + i * n, out);
        add_scaled(n, x[n + i], A + i * n, out + n);
    }
}

/* Two points: mean [2] and covariance [2, 2] of the target, first in memory [6 + 2 (p + 2 q + 1) + 6 n]. */
WIDER void rasp_discrete_look(const Knobs *knobs, const Here *here, const double *point, const double *other,
                              double *memory) {
    int64_t n = here->n, p = knobs->p, q = knobs->q;
    double *mean = memory, *covariance = mean + 2, *sizes = covariance + 4, *phi = sizes + 2, *steps = phi + 2 * p;
    double *weighted = steps + 2 * q, *gram = weighted + 2 * q, *crosses = gram + 2 * n, *reach = crosses + 2 * n;
    rasp_discrete_features(knobs, 1, point, here->weights, phi, steps, weighted, sizes);
    rasp_discrete_features(knobs, 1, other, here->weights, phi + p, steps + q, weighted + q, sizes + 1);
    for (int64_t i = 0; i < 2; i++) {
        double *cross = crosses + i * n;
        for (int64_t j = 0; j < n; j++) {
            gram[i * n + j] = dot(q, steps + i * q, here->weighted + j * q);
            cross[j] = dot(p, phi + i * p, here->phi + j * p);
        }
        mean[i] = cross_row(here, sizes[i], gram + i * n, cross) + phi[i * p + p - 1] * knobs->prior[p - 1];
    }
    symmetric_times_two(n, here->inverse, crosses, reach);
    for (int64_t i = 0; i < 2; i++) {
        for (int64_t j = 0; j < 2; j++) {
            double near = dot(q, steps + i * q, weighted + j * q) - sizes[j] - sizes[i];
            double own = here->vp * exponential(near) + here->va * dot(p, phi + i * p, phi + j * p);
            double explained = dot(n, reach + i * n, crosses + j * n);
            covariance[2 * i + j] = own + here->level * (1.0 + here->vc) - explained;
        }
    }
}

/* E[(Z - gap)+] of a standard normal Z, for gap >= 0: as in here.py. */
static double expected_excess(double gap) {
    static const double ROOT = 2.5066282746310002; /* of 2 pi */
    double nearby = fmin(gap, 40.0), density = exp(-0.5 * (nearby * nearby)) / ROOT, t = 1.0 / (1.0 + 0.2316419 * gap);
    double sum = -1.821255978 + t * 1.330274429;
    sum = 1.781477937 + t * sum;
    sum = -0.356563782 + t * sum;
    sum = 0.319381530 + t * sum;
    return fmax(density - gap * (density * t * sum), 0.0);
}

/* How far a noisy look at each candidate is expected to lower the least mean: knowledge_gradient of here.py. Their order
 * [count] by mean comes, too. */
void rasp_discrete_gradient(int64_t count, const double *mean, const double *covariance, double noise, double jitter,
                            int64_t looks, const double *look, int64_t *order, double *value) {
    static const double MOST_DENSITY = 0.39894228040143276; /* of a standard normal */
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

/* Whether a point [d] is one of the rows. */
static int is_known(const Knobs *knobs, const Here *here, const double *point) {
    size_t size = sizeof(double) * (size_t)knobs->d;
    for (int64_t i = 0; i < here->n; i++) {
        if (!memcmp(point, here->points + i * knobs->d, size)) return 1;
    }
    return 0;
}

/* Values of the candidates; which of them has the least mean less its value over the horizon. A look at a new point may
 * turn out to be one at another. */
int64_t rasp_discrete_rank(const Knobs *knobs, const Here *here, Search *search) {
    int64_t best = 0;
    double least = INFINITY;
    covariance_of(here, search);
    rasp_discrete_gradient(search->kept, search->mean, search->covariance, here->noise, search->jitter, search->looks,
                           search->look, search->order, search->value);
    for (int64_t i = 0; i < search->kept; i++) {
        if (search->reached < 1.0 && !is_known(knobs, here, search->candidates + i * knobs->d)) {
            search->value[i] *= search->reached;
        }
        double score = search->mean[i] - search->horizon * search->value[i];
        if (score < least) {
            least = score;
            best = i;
        }
    }
    return best;
}
