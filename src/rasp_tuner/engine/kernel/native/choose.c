/* The next point to run: candidates around the experts' optima and the best tried, and the choice among them.
 *
 * centres  [E + 1, d]       every expert's minimiser, and their mean, in u
 * n        scalar           candidates: the centres, the best tried, and moves from the leader's centre and that one
 * u        [., d, LANES]    candidates, so many side by side; the last ones are filled up with the default
 * f, Sf    [p, LANES]       features of some candidates side by side, and their products with S
 * h, Kh    [p, LANES]       the same of the moving optimum: slopes of y by its level, curvatures and location
 */
#include <math.h>
#include <string.h>

#include "quadratic.h"

enum { MOVES = 6, LANES = 8 };
static const double AWAY[MOVES] = REACH; /* moves along the least known directions */
enum { PREDICTED_OPTIMUM, BEST_TRIED, PROBE_NEAR_IT, FIRST };

/* What an expert gives some candidates: the mean in units of y, the others in units of a. */
typedef struct {
    double mean[LANES], variance[LANES], gain[LANES];
} Lanes;

typedef struct {
    double weights[E]; /* without experts that have next to none */
    double *centres, *u, *mean, *variance, *gain, *axes, *values, *covariance;
} Comparison;

static int64_t candidates(const Dims *dims) {
    return E + 2 + 2 * MOVES * (dims->d < DIRECTIONS ? dims->d : DIRECTIONS);
}

/* Candidates are dealt with in blocks. */
static int64_t blocks(int64_t n) { return (n + LANES - 1) / LANES; }

/* Where knob i of candidate j is. */
static double *knob(const Dims *dims, const Comparison *s, int64_t j, int64_t i) {
    return s->u + (j / LANES * dims->d + i) * LANES + j % LANES;
}

static void set_candidate(const Dims *dims, Comparison *s, int64_t j, const double *u) {
    for (int64_t i = 0; i < dims->d; i++) *knob(dims, s, j, i) = u[i];
}

static void candidate_to_point(const Dims *dims, const Comparison *s, int64_t j, double *point) {
    double u[MOST_KNOBS];
    for (int64_t i = 0; i < dims->d; i++) u[i] = *knob(dims, s, j, i);
    to_point(dims, u, point);
}

static double *make_scratch(const Dims *dims, Comparison *s) {
    int64_t d = dims->d, n = LANES * blocks(candidates(dims));
    Part parts[] = {{&s->centres, (E + 1) * d}, {&s->u, n * d}, {&s->mean, n}, {&s->variance, n}, {&s->gain, n},
                    {&s->axes, d * d}, {&s->values, d}, {&s->covariance, d * d}};
    return ALLOCATE(dims, parts);
}

static int64_t argmin(int64_t n, const double *x) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (x[i] < x[best]) best = i;
    }
    return best;
}

/* Weights of the experts that count in a choice. */
static void weigh(const Belief *belief, Comparison *s) {
    double total = 0.0;
    for (int i = 0; i < E; i++) {
        s->weights[i] = belief->weights[i] < LEAST_WEIGHT ? 0.0 : belief->weights[i];
        total += s->weights[i];
    }
    for (int i = 0; i < E; i++) s->weights[i] /= total;
}

static void make_centres(const Dims *dims, const Belief *belief, double *centres) {
    int64_t d = dims->d;
    for (int64_t l = 0; l < L; l++) minimiser(dims, belief->mean + l * dims->p, *belief->a, centres + l * d);
    for (int64_t i = 0; i < d; i++) {
        double moved = clip(belief->optimum[i], lowest(dims, i), highest(dims, i)), mean = 0.0;
        centres[L * d + i] = *belief->moving > 0.0 ? moved : centres[i];
        for (int64_t e = 0; e < E; e++) mean += belief->weights[e] * centres[e * d + i];
        centres[E * d + i] = mean;
    }
}

/* Sf [p, LANES] = S f, and f' S f, at least 0; two rows at a time, so that additions need not wait for one another. */
static inline void products(int64_t p, const double *S, const double *f, double *Sf, double *variance) {
    enum { PARTS = LANES / AT_ONCE };
    const AtOnce *parts = (const AtOnce *)f;
    AtOnce *out = (AtOnce *)Sf, *sums = (AtOnce *)variance, all[PARTS] = {{0.0}};
    for (int64_t i = 0; i < p; i += 2) {
        const double *row = S + i * p, *next = i + 1 < p ? row + p : row;
        AtOnce a[PARTS] = {{0.0}}, b[PARTS] = {{0.0}};
        for (int64_t j = 0; j < p; j++)
            for (int c = 0; c < PARTS; c++) {
                a[c] += row[j] * parts[PARTS * j + c];
                b[c] += next[j] * parts[PARTS * j + c];
            }
        for (int c = 0; c < PARTS; c++) out[PARTS * i + c] = a[c], all[c] += a[c] * parts[PARTS * i + c];
        if (i + 1 == p) break;
        for (int c = 0; c < PARTS; c++) out[PARTS * (i + 1) + c] = b[c], all[c] += b[c] * parts[PARTS * (i + 1) + c];
    }
    for (int c = 0; c < PARTS; c++) sums[c] = all[c];
    for (int c = 0; c < LANES; c++) variance[c] = variance[c] > 0.0 ? variance[c] : 0.0;
}

/* The part of what knowing an optimum is worth that is left at an edge, where it can move one way only; 1 inside.
 * Without edges it would be t deviations out there: (1 + t^2) Phi(-t) - t phi(t). */
static double part_of(const Dims *dims, int64_t knob, double location, double deviation) {
    double below = lowest(dims, knob) - location, above = location - highest(dims, knob);
    double out = below > above ? below : above;
    if (out < 0.0) return 1.0;
    if (deviation < out / FARTHEST_OUT) deviation = out / FARTHEST_OUT;
    double t = out > 0.0 ? out / deviation : 0.0;
    double part = 0.5 * (1.0 + t * t) * erfc(t / sqrt(2.0)) - t * exp(-0.5 * t * t) / ROOT_TWO_PI;
    return part > 0.0 ? part : 0.0;
}

/* Deviation of the slope of a bowl at u, along one knob. */
static double unsure(const Dims *dims, const Belief *belief, int64_t l, int64_t knob, double u) {
    int64_t d = dims->d, p = dims->p;
    const double *slope = belief->S + l * p * p + (1 + knob) * p, *bend = slope + d * p;
    double variance = slope[1 + knob] + 4.0 * u * (slope[1 + d + knob] + u * bend[1 + d + knob]);
    return variance > 0.0 ? sqrt(variance) : 0.0;
}

/* An observation that moves an expert's minimiser by m is worth the curvature times m^2. */
WIDER static void local_expert(const Dims *dims, const Belief *belief, int64_t l, const double *centre,
                               const double *f, Lanes *out) {
    int64_t d = dims->d, p = dims->p;
    const double *mean = belief->mean + l * p;
    double a = *belief->a, Sf[MOST_FEATURES * LANES];
    enum { PARTS = LANES / AT_ONCE };
    const AtOnce *parts = (const AtOnce *)f, *slope = (const AtOnce *)Sf + PARTS, *bend = slope + PARTS * d;
    AtOnce *means = (AtOnce *)out->mean, *gains = (AtOnce *)out->gain, sums[PARTS] = {{0.0}}, worths[PARTS] = {{0.0}};
    products(p, belief->S + l * p * p, f, Sf, out->variance);
    for (int64_t i = 0; i < p; i++) {
        for (int c = 0; c < PARTS; c++) sums[c] += mean[i] * parts[PARTS * i + c];
    }
    for (int64_t i = 0; i < d; i++) {
        double curvature = mean[1 + d + i] / a, twice = 2.0 * centre[i];
        double steep = curvature > LEAST_CURVATURE ? curvature : LEAST_CURVATURE;
        double deviation = unsure(dims, belief, l, i, centre[i]) / (2.0 * steep);
        double worth = part_of(dims, i, mean[1 + i] / (-2.0 * a * steep), deviation) / (4.0 * steep);
        for (int c = 0; c < PARTS; c++) {
            AtOnce move = slope[PARTS * i + c];
            move += twice * bend[PARTS * i + c];
            worths[c] += worth * (move * move);
        }
    }
    for (int c = 0; c < PARTS; c++) means[c] = sums[c], gains[c] = worths[c];
}

WIDER static void moving_expert(const Dims *dims, const Belief *belief, const double *f, Lanes *out) {
    int64_t d = dims->d, p = dims->p;
    double a = *belief->a, h[MOST_FEATURES * LANES], Kh[MOST_FEATURES * LANES], *means = out->mean;
    const double *u = f + LANES, *moves = Kh + (1 + d) * LANES;
    for (int c = 0; c < LANES; c++) h[c] = 1.0, means[c] = *belief->level;
    for (int64_t i = 0; i < d; i++) {
        double optimum = belief->optimum[i], curvature = belief->curvatures[i];
        double *bends = h + (1 + i) * LANES, *slopes = h + (1 + d + i) * LANES;
        for (int c = 0; c < LANES; c++) {
            double gap = u[i * LANES + c] - optimum, square = gap * gap;
            bends[c] = square;
            slopes[c] = -2.0 * curvature * gap;
            means[c] += curvature * square;
        }
    }
    for (int c = 0; c < LANES; c++) means[c] *= a, out->gain[c] = 0.0;
    products(p, belief->K, h, Kh, out->variance);
    for (int64_t i = 0; i < d; i++) {
        double curvature = belief->curvatures[i];
        double worth = curvature > LEAST_CURVATURE ? curvature : LEAST_CURVATURE;
        double known = belief->K[(1 + d + i) * p + 1 + d + i];
        worth *= part_of(dims, i, belief->optimum[i], sqrt(known > 0.0 ? known : 0.0));
        for (int c = 0; c < LANES; c++) out->gain[c] += worth * (moves[i * LANES + c] * moves[i * LANES + c]);
    }
}

/* Mean less the offset, variance with the experts' disagreement, and worth of an observation, of the candidates. */
WIDER static void mix_block(const Belief *belief, const double *weights, const Lanes *each, double *restrict mean,
                            double *restrict variance, double *restrict gain) {
    double a = *belief->a;
    for (int c = 0; c < LANES; c++) mean[c] = variance[c] = gain[c] = 0.0;
    for (int e = 0; e < E; e++) {
        if (weights[e] == 0.0) continue;
        double weight = weights[e], noise = belief->noises[e];
        for (int c = 0; c < LANES; c++) {
            mean[c] += weight * each[e].mean[c];
            gain[c] += weight * each[e].gain[c] / (each[e].variance[c] + noise);
        }
    }
    for (int e = 0; e < E; e++) {
        if (weights[e] == 0.0) continue;
        double weight = weights[e];
        for (int c = 0; c < LANES; c++) {
            double gap = each[e].mean[c] - mean[c];
            variance[c] += weight * (a * a * each[e].variance[c] + gap * gap);
        }
    }
    for (int c = 0; c < LANES; c++) gain[c] *= a;
}

APART static void mixture_at(const Dims *dims, const Belief *belief, Comparison *s, int64_t n) {
    int64_t d = dims->d;
    double f[MOST_FEATURES * LANES];
    Lanes each[E];
    for (int c = 0; c < LANES; c++) f[c] = 1.0;
    for (int64_t block = 0; block < blocks(n); block++) {
        const double *u = s->u + block * d * LANES;
        memcpy(f + LANES, u, sizeof(double) * (size_t)(d * LANES));
        for (int64_t i = 0; i < d * LANES; i++) f[(1 + d) * LANES + i] = u[i] * u[i];
        for (int e = 0; e < E; e++) {
            if (s->weights[e] == 0.0) continue;
            if (e < L) local_expert(dims, belief, e, s->centres + e * d, f, each + e);
            else moving_expert(dims, belief, f, each + e);
        }
        mix_block(belief, s->weights, each, s->mean + block * LANES, s->variance + block * LANES,
                  s->gain + block * LANES);
    }
    JOIN();
}

/* The directions in which the leading expert's optimum is least known, as columns of s->axes, worst last. */
static void least_known(const Dims *dims, const Belief *belief, int64_t leader, const double *draws,
                        Comparison *s) {
    int64_t d = dims->d, p = dims->p;
    int64_t first = leader < L ? 1 : 1 + d; /* of the location, in its features or slopes */
    const double *from = leader < L ? belief->S + leader * p * p : belief->K;
    double trace = 0.0;
    for (int64_t i = 0; i < d; i++) {
        memcpy(s->covariance + i * d, from + (first + i) * p + first, sizeof(double) * (size_t)d);
        trace += s->covariance[i * (d + 1)];
    }
    for (int64_t i = 0; i < d; i++) s->covariance[i * (d + 1)] += TIE * trace * draws[i]; /* untried knobs take turns */
    eigen_symmetric(d, s->covariance, s->values, s->axes);
    for (int64_t j = d > DIRECTIONS ? d - DIRECTIONS : 0; j < d; j++) {
        /* of a vector and its negative, take the one that any library would */
        double sign = 0.0;
        for (int64_t i = 0; i < d; i++) sign += s->axes[i * d + j] / (double)(1 + i);
        for (int64_t i = 0; i < d && sign < 0.0; i++) s->axes[i * d + j] *= -1.0;
    }
}

/* Points to compare. */
static void make_candidates(const Dims *dims, const Belief *belief, const double *draws, Comparison *s) {
    int64_t d = dims->d, directions = d < DIRECTIONS ? d : DIRECTIONS, leader = 0, n = (E + 1);
    double most = belief->weights[0];
    for (int64_t e = 1; e < E; e++) {
        double weight = belief->weights[e] * (1.0 - EQUAL_WEIGHTS * (double)e);
        if (weight > most) leader = e, most = weight;
    }
    least_known(dims, belief, leader, draws, s);
    memset(s->u, 0, sizeof(double) * (size_t)(blocks(candidates(dims)) * LANES * d));
    for (int64_t e = 0; e <= E; e++) set_candidate(dims, s, e, s->centres + e * d);
    set_candidate(dims, s, n++, belief->hint);
    const double *bases[] = {s->centres + leader * d, belief->hint};
    for (int b = 0; b < 2; b++) {
        for (int64_t j = 0; j < directions * MOVES; j++, n++) {
            const double *axis = s->axes + d - 1 - j / MOVES;
            for (int64_t i = 0; i < d; i++) *knob(dims, s, n, i) = bases[b][i] + axis[i * d] * AWAY[j % MOVES];
        }
    }
    for (int64_t block = 0; block < blocks(n); block++) {
        for (int64_t i = 0; i < d; i++) {
            double *u = s->u + (block * d + i) * LANES, low = lowest(dims, i), high = highest(dims, i);
            for (int c = 0; c < LANES; c++) u[c] = clip(u[c], low, high);
        }
    }
    JOIN();
}

/* A move along one knob, drawn at random. */
static void first_probe(const Dims *dims, const double *draws, double *u) {
    int64_t d = dims->d, knob = place_up_to(d - 1, draws[0] * (double)d);
    double move = draws[1] < 0.5 ? -FIRST_PROBE : FIRST_PROBE;
    if (move < lowest(dims, knob) || move > highest(dims, knob)) move = -move; /* the default is near this end */
    memset(u, 0, sizeof(double) * (size_t)d);
    u[knob] = move;
}

void rasp_choose(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
                 const double *draws, double *points, double *sources, double *means, double *variances) {
    int64_t d = dims->d, many = candidates(dims), length = belief_length(dims);
    Comparison s;
    double *memory = make_scratch(dims, &s);
    for (int64_t i = 0; i < n; i++, draws += d + many) {
        State one = tuner(dims, all, rows[i]);
        Belief belief = belief_at(dims, beliefs + i * length);
        if (one.count[0] < 2.0) {
            double u[MOST_KNOBS];
            first_probe(dims, draws, u);
            to_point(dims, u, points + i * d);
            rasp_predict(dims, all, rows + i, 1, beliefs + i * length, points + i * d, 1, means + i, variances + i);
            sources[i] = FIRST;
            continue;
        }
        weigh(&belief, &s);
        make_centres(dims, &belief, s.centres);
        make_candidates(dims, &belief, draws, &s);
        mixture_at(dims, &belief, &s, many);
        double lowest_score = INFINITY, highest_score = -INFINITY;
        EACH(j, many) s.gain[j] = s.mean[j] - HORIZON_STEPS * s.gain[j];
        JOIN();
        for (int64_t j = 0; j < many; j++) {
            double score = s.gain[j];
            lowest_score = score < lowest_score ? score : lowest_score;
            highest_score = score > highest_score ? score : highest_score;
        }
        double tie = TIE * (highest_score - lowest_score);
        EACH(j, many) s.gain[j] += tie * draws[d + j]; /* ties: either way is as good */
        JOIN();
        int64_t chosen = argmin(many, s.gain);
        sources[i] = chosen <= E ? PREDICTED_OPTIMUM : chosen == E + 1 ? BEST_TRIED : PROBE_NEAR_IT;
        means[i] = s.mean[chosen] + *belief.offset + *belief.origin;
        variances[i] = s.variance[chosen];
        candidate_to_point(dims, &s, chosen, points + i * d);
    }
    release(memory);
}

/* The least posterior mean among the experts' minimisers, their mean, the best tried and the default. */
void rasp_best(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs, double *points) {
    int64_t d = dims->d, length = belief_length(dims);
    Comparison s;
    double *memory = make_scratch(dims, &s);
    (void)all, (void)rows;
    for (int64_t i = 0; i < n; i++) {
        Belief belief = belief_at(dims, beliefs + i * length);
        weigh(&belief, &s);
        make_centres(dims, &belief, s.centres);
        memset(s.u, 0, sizeof(double) * (size_t)(blocks(E + 3) * LANES * d)); /* the last one is the default */
        for (int64_t e = 0; e <= E; e++) set_candidate(dims, &s, e, s.centres + e * d);
        set_candidate(dims, &s, E + 1, belief.hint);
        mixture_at(dims, &belief, &s, E + 3);
        candidate_to_point(dims, &s, argmin(E + 3, s.mean), points + i * d);
    }
    release(memory);
}
