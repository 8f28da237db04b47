/* What a tuner holds true in one context: slots pooled for each local expert, each pool solved as a regression.
 *
 * W      [L, R]   how much each slot counts for each expert
 * sums   [L, P]   packed sums over slots, by W
 */
#include <math.h>
#include <string.h>

#include "learn.h"
#include "quadratic.h"

static const double LEAST_COUNTED = 1e-250; /* a smaller weight changes nothing, but its products are slow */
#ifdef RASP_KNOBS
enum { MOST_SIDE_BY_SIDE = 0 };
#else
enum { MOST_SIDE_BY_SIDE = 33 }; /* features: larger matrices are inverted one by one, for the sake of the cache */
#endif

typedef struct {
    double *gaps, *W, *sums, *A, *inverse, *side, *Sf, *estimate;
    Prior prior;
} Scratch;

/* How much each slot counts for each local expert; for the pool, by trust too. */
WIDER static void weigh_slots(int64_t n, int64_t R, const State *one, const double *restrict gaps,
                              double *restrict kernels, double *restrict W) {
    double now = one->steps[0] - 1.0, widths[] = {context_reach(one), 2.0 * NARROW_WIDTH * NARROW_WIDTH};
    const double *restrict last = one->last, *restrict trust = one->trust;
    EACH(i, L * R) kernels[i] = W[i] = 0.0;
    EACH(i, n) kernels[i] = 1.0;
    EACH(i, n) kernels[R + i] = (now - last[i]) / -RECENT_STEPS;
    for (int64_t l = 2; l < L; l++) {
        EACH(i, n) {
            double gap = gaps[(l - 2) * R + i] / widths[l - 2], most = gap < FARTHEST_GAP ? gap : FARTHEST_GAP;
            kernels[l * R + i] = -(most * most);
        }
    }
    for (int64_t l = 1; l < L; l++) exp_falling(n, kernels + l * R);
    for (int64_t l = 0; l < L; l++) {
        EACH(i, n) {
            double weight = kernels[l * R + i] * trust[l * R + i];
            W[l * R + i] = weight < LEAST_COUNTED ? 0.0 : weight;
        }
    }
    JOIN();
}

#if defined(RASP_LANES) && RASP_LANES > 1
/* sums [L, P] = W prompts */
static void pool(int64_t n, int64_t P, int64_t R, const double *restrict prompts, const double *restrict W,
                 double *restrict sums) {
    EACH(j, P) {
        double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
#pragma unroll 8
        for (int64_t i = 0; i < n; i++) {
            const double x = prompts[i * P + j];
            s0 += W[i] * x, s1 += W[R + i] * x, s2 += W[2 * R + i] * x, s3 += W[3 * R + i] * x;
        }
        sums[j] = s0, sums[P + j] = s1, sums[2 * P + j] = s2, sums[3 * P + j] = s3;
    }
    JOIN();
}
#else
/* sums [L, P] = W prompts: four slots at a time, so that sums are read and written a quarter as often. */
WIDER static void pool(int64_t n, int64_t P, int64_t R, const double *restrict prompts, const double *restrict W,
                       double *restrict sums) {
    double *restrict s0 = sums, *restrict s1 = sums + P, *restrict s2 = sums + 2 * P, *restrict s3 = sums + 3 * P;
    memset(sums, 0, sizeof(double) * (size_t)(L * P));
    for (int64_t i = 0; i < n; i += 4) { /* beyond the last slot, weights are 0 */
        const double *a = W + i, *b = a + R, *c = b + R, *d = c + R, *w = prompts + i * P;
        const double *x = i + 1 < n ? w + P : w, *y = i + 2 < n ? x + P : w, *z = i + 3 < n ? y + P : w;
        for (int64_t j = 0; j < P; j++) {
            s0[j] += (a[0] * w[j] + a[1] * x[j]) + (a[2] * y[j] + a[3] * z[j]);
            s1[j] += (b[0] * w[j] + b[1] * x[j]) + (b[2] * y[j] + b[3] * z[j]);
            s2[j] += (c[0] * w[j] + c[1] * x[j]) + (c[2] * y[j] + c[3] * z[j]);
            s3[j] += (d[0] * w[j] + d[1] * x[j]) + (d[2] * y[j] + d[3] * z[j]);
        }
    }
}

#endif

/* G, b and rest of one expert from its packed sums; y is not less the offset yet. */
static void unpack(const Dims *dims, const double *weights, const double *packed, double *G, double *b, double *rest) {
    int64_t p = dims->p, q = dims->q, k = dims->k;
    EACH(i, p) {
        const double *row = packed + i * q - i * (i - 1) / 2; /* begins with entry i */
        for (int64_t j = i; j < p; j++) G[i * p + j] = G[j * p + i] = row[j - i];
        b[i] = dot(k, row + p - i, weights);
    }
    JOIN();
    packed += p * q - p * (p - 1) / 2;
    double sum = 0.0;
    for (int64_t i = 0; i < k; i++) {
        sum += weights[i] * weights[i] * packed[0] + 2.0 * weights[i] * dot(k - 1 - i, packed + 1, weights + i + 1);
        packed += k - i;
    }
    *rest = sum;
}

/* Pooled sums of y less the blind mean, so that numbers stay small. */
static void make_sums(const Dims *dims, const State *one, const Belief *belief, Scratch *s) {
    int64_t p = dims->p;
    pool(slots_used(dims, one), dims->P, dims->R, one->prompts, s->W, s->sums);
    for (int64_t l = 0; l < L; l++) {
        unpack(dims, one->weights, s->sums + l * dims->P, belief->G + l * p * p, belief->b + l * p, belief->rest + l);
    }
    double offset = belief->G[0] > 0.0 ? belief->b[0] / belief->G[0] : 0.0;
    for (int64_t l = 0; l < L; l++) {
        double *G = belief->G + l * p * p, *b = belief->b + l * p;
        belief->rest[l] -= offset * (2.0 * b[0] - offset * G[0]);
        EACH(i, p) b[i] -= offset * G[i];
    }
    JOIN();
    *belief->offset = offset;
}

/* Add what a quadratic cannot say by itself: its least value is about the level all situations share. */
WIDER static void pin(const Dims *dims, const State *one, double level, double *mean, double *S, Scratch *s) {
    int64_t p = dims->p;
    double u[MOST_KNOBS], f[MOST_FEATURES];
    minimiser(dims, mean, one->curvature[0], u);
    features(dims, u, f);
    symmetric_times_shared(p, S, f, s->Sf);
    double by = 1.0 / (dot(p, f, s->Sf) + one->level_variance[0] + START_NOISE);
    double gap = level - dot(p, f, mean);
    EACH(i, p) {
        double gain = s->Sf[i] * by;
        mean[i] += gain * gap;
        add_scaled(p, -gain, s->Sf, S + i * p);
    }
    JOIN();
}

/* S of every local expert: the inverse of G / rho + prior. */
WIDER static void invert(const Dims *dims, const Belief *belief, Scratch *s) {
    int64_t p = dims->p, size = p * p;
    const double *restrict precision = s->prior.precision;
    double by[L];
    int wrong[L] = {0};
    for (int64_t l = 0; l < L; l++) by[l] = 1.0 / belief->noises[l];
    if (p <= MOST_SIDE_BY_SIDE) {
        const double *restrict G = belief->G, *restrict inverse = s->inverse;
        double *restrict A = s->A, *restrict S = belief->S;
        EACH(i, size)
            for (int64_t l = 0; l < L; l++) A[i * L + l] = G[l * size + i] * by[l] + precision[i];
        inverse_four(p, A, s->inverse, s->side, wrong);
        EACH(i, size)
            for (int64_t l = 0; l < L; l++) S[l * size + i] = inverse[i * L + l];
    } else {
        for (int64_t l = 0; l < L; l++) {
            const double *restrict G = belief->G + l * size;
            EACH(i, size) s->A[i] = G[i] * by[l] + precision[i];
            wrong[l] = inverse_spd(p, s->A, belief->S + l * size, s->inverse);
        }
    }
    for (int64_t l = 0; l < L; l++) { /* numbers beyond all measure: know nothing, but stay finite */
        double *S = belief->S + l * size;
        if (wrong[l]) memset(S, 0, sizeof(double) * (size_t)size);
        for (int64_t i = 0; i < size && wrong[l]; i += p + 1) {
            double known = belief->G[l * size + i] * by[l] + precision[i];
            S[i] = known >= 1.0 ? 1.0 / known : 1.0;
        }
    }
}

/* Posterior of one local expert, whose S is known. */
static void solve(const Dims *dims, const State *one, const Belief *belief, int64_t l, double level, Scratch *s) {
    int64_t p = dims->p;
    double *S = belief->S + l * p * p, *b = belief->b + l * p;
    double a = *belief->a, by = 1.0 / belief->noises[l];
    EACH(i, p) s->side[i] = b[i] * by + a * s->prior.pull[i] + (i ? 0.0 : level * s->prior.precision[0]);
    JOIN();
    symmetric_times_shared(p, S, s->side, belief->mean + l * p);
    if (one->curvature[0] > 0.0) pin(dims, one, level, belief->mean + l * p, S, s);
}

/* K [p, p] of level, curvatures and location in this context: sums of coefficients of the moving optimum. So the rows of
 * K are sums of rows of the coefficients' covariance, and its columns are sums of columns of these. */
WIDER static void moving_covariance(const Dims *dims, const State *one, const Belief *belief) {
    int64_t d = dims->d, p = dims->p, m = dims->m, width = 1 + dims->r;
    const double *restrict x = belief->x;
    double ratio = *belief->ratio;
    EACH(i, p) {
        int64_t many = i <= d ? 1 : width; /* coefficients in this sum, from the first */
        int64_t first = i <= d ? i : 1 + d + (i - 1 - d) * width;
        const double *from = one->covariance + first * m;
        double *row = belief->K + i * p, sum[MOST_ROWS];
        for (int64_t j = 0; j < m; j++) sum[j] = from[j] * (i <= d ? ratio : x[0]);
        for (int64_t k = 1; k < many; k++) add_scaled(m, x[k], from + k * m, sum);
        for (int64_t j = 0; j <= d; j++) row[j] = sum[j] * ratio;
        for (int64_t j = 0; j < d; j++) row[1 + d + j] = dot(width, sum + 1 + d + j * width, x);
    }
    JOIN();
}

/* The posterior of the moving optimum in these units: they have moved since the fit. */
static void believe_moving(const Dims *dims, const State *one, const double *context, const Belief *belief) {
    int64_t d = dims->d, p = dims->p, width = 1 + dims->r;
    int64_t steps = samples_seen(one);
    int may = steps < MOVING_SETTLED_SAMPLES || steps % MOVING_LOOK_EVERY_STEPS == 0;
    may = may || one->scores[L] > MOVING_IDLE_NATS;
    double a = *belief->a;
    *belief->moving = one->fitted[0] > 0.0 && may ? 1.0 : 0.0;
    if (*belief->moving == 0.0) {
        *belief->level = *belief->ratio = 0.0;
        memset(belief->x, 0, sizeof(double) * (size_t)(width + 2 * d)); /* curvatures and optimum follow */
        memset(belief->K, 0, sizeof(double) * (size_t)(p * p));
        return;
    }
    encode_context(dims, one, context, belief->x);
    *belief->level = (one->theta[0] - *belief->offset) / a;
    *belief->ratio = one->unit[0] / a;
    for (int64_t i = 0; i < d; i++) {
        belief->curvatures[i] = one->theta[1 + i] / a;
        belief->optimum[i] = dot(width, one->theta + 1 + d + i * width, belief->x);
    }
    moving_covariance(dims, one, belief);
}

double likeness(const Dims *dims, const State *one, const Belief *belief) {
    const double *similar = belief->kernels + 2 * dims->R;
    double likest = 0.0;
    EACH(i, slots_used(dims, one)) likest = most(likest, similar[i]);
    return largest_of_lanes(likest);
}

/* What was seen elsewhere says little about who is right in a situation that is like no other. */
static void weigh_experts(const Dims *dims, const State *one, const Belief *belief) {
    const double familiar = least(likeness(dims, one, belief) / ALIKE, 1.0);
    int n = *belief->moving > 0.0 ? E : L;
    double scores[E], top = -INFINITY, total = 0.0;
    for (int i = 0; i < E; i++) scores[i] = expert_prior(i) + familiar * (one->scores[i] - expert_prior(i));
    for (int i = 0; i < n; i++) top = most(top, scores[i]);
    for (int i = 0; i < E; i++) {
        belief->weights[i] = i < n ? exp(scores[i] - top) : 0.0;
        total += belief->weights[i];
    }
    for (int i = 0; i < E; i++) belief->weights[i] /= total;
}

/* Deviation of y: the one that is tracked, else that of the slots, else one. */
static double spread(const Dims *dims, const State *one) {
    int64_t n = slots_used(dims, one);
    double mean = 0.0, square = 0.0;
    if (one->largest[0] != 0.0) return one->largest[0];
    for (int64_t i = 0; i < n; i++) mean += slot_sum(dims, one, i) / one->counts[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double gap = slot_sum(dims, one, i) / one->counts[i] - mean;
        square += gap * gap / (double)n;
    }
    return square > 0.0 ? sqrt(square) : 1.0;
}

/* u [d] of the slot with the best y in a situation like this; the default while there is none. */
WIDER static void make_hint(const Dims *dims, const State *one, const Belief *belief, double *scores) {
    int64_t n = slots_used(dims, one), best = 0;
    const double *restrict similar = belief->kernels + 2 * dims->R, *restrict counts = one->counts;
    double by = 1.0 / *belief->spread, *u = belief->hint, lowest_score;
    memset(u, 0, sizeof(double) * (size_t)dims->d);
    if (n == 0) return;
    EACH(i, n) scores[i] = slot_sum(dims, one, i);
    EACH(i, n) scores[i] = scores[i] / counts[i] * by + 2.0 * (1.0 - similar[i]);
    JOIN();
    lowest_score = scores[0];
    for (int64_t i = 1; i < n; i++) {
        if (scores[i] < lowest_score) lowest_score = scores[i], best = i;
    }
    for (int64_t i = 0; i < dims->d; i++) u[i] = one->prompts[best * dims->P + 1 + i] / one->counts[best];
}

static void believe(const Dims *dims, const State *one, const double *context, const Belief *belief, Scratch *s) {
    context_gaps(dims, one, context, s->gaps);
    weigh_slots(slots_used(dims, one), dims->R, one, s->gaps, belief->kernels, s->W);
    make_sums(dims, one, belief, s);
    make_prior(dims, one, &s->prior);
    *belief->a = one->curvature[0];
    if (one->curvature[0] == 0.0) {
        *belief->a = estimate_curvature(dims, &s->prior, belief->G, belief->b, belief->rest[0], 0.0, s->estimate);
    }
    noise_variances(one, belief->noises);
    double level = *belief->a * centred_level(one, *belief->offset, *belief->a);
    invert(dims, belief, s);
    for (int64_t l = 0; l < L; l++) solve(dims, one, belief, l, level, s);
    believe_moving(dims, one, context, belief);
    weigh_experts(dims, one, belief);
    *belief->spread = spread(dims, one);
    make_hint(dims, one, belief, s->gaps);
    *belief->origin = dot(dims->k, one->first, one->weights);
}

void rasp_believe(const Dims *dims, const State *all, const int64_t *rows, int64_t n, const double *contexts,
                  double *beliefs) {
    int64_t p = dims->p, R = dims->R, length = belief_length(dims), size = p * p * (p <= MOST_SIDE_BY_SIDE ? L : 1);
    Scratch s;
    int64_t estimate = estimate_scratch(dims);
    Part parts[] = {{&s.gaps, L * dims->P > 2 * R ? L * dims->P : 2 * R}, {&s.W, estimate > L * R ? estimate : L * R},
                    {&s.A, size}, {&s.inverse, size}, {&s.side, 2 * L * p}, {&s.Sf, p}, {&s.prior.mean, p},
                    {&s.prior.precision, p * p}, {&s.prior.pull, p}};
    double *memory = ALLOCATE(dims, parts);
    s.sums = s.gaps, s.estimate = s.W; /* the one is needed when the other is no more */
    for (int64_t i = 0; i < n; i++) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        believe(dims, &one, contexts + i * dims->c, &belief, &s);
    }
    release(memory);
}
