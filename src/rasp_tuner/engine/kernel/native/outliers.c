/* How far samples are trusted: one that comes, those in the slots, and the first few, which are judged together.

   Two false measurements hide each other: of the first samples "the k worst are false" are rival hypotheses, compared
   by the evidence of a bowl whose steepness and noise are chosen by those that are left. One Cholesky factor of the
   samples in order of their y holds the evidence of all of them, for one noise. */
#include "learn.h"

#include <string.h>

#define HALF_LOG_TWO_PI 0.9189385332046727

enum { RIVALS = 3, MOST_ROWS_EARLY = EARLY + 2 };
static const double RIVAL_NOISES[RIVALS] = BOWL_NOISES;

void sort_indices(int64_t n, const double *keys, int64_t *order, int64_t *spare) {
    enum { RUN = 8 };
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t end = start + RUN < n ? start + RUN : n;
        for (int64_t i = start; i < end; i++) {
            int64_t place = i;
            for (; place > start && keys[order[place - 1]] > keys[i]; place--) order[place] = order[place - 1];
            order[place] = i;
        }
    }
    for (int64_t width = RUN; width < n; width *= 2) {
        memcpy(spare, order, sizeof(int64_t) * (size_t)n);
        for (int64_t start = 0; start < n; start += 2 * width) {
            const int64_t middle = start + width < n ? start + width : n;
            const int64_t end = start + 2 * width < n ? start + 2 * width : n;
            int64_t left = start, right = middle;
            for (int64_t i = start; i < end; i++) {
                const bool from_right = right < end && (left >= middle || keys[spare[right]] < keys[spare[left]]);
                order[i] = from_right ? spare[right++] : spare[left++];
            }
        }
    }
}

/* Log of the weighted mean of densities given by their logs; at least that of 1e-300 of the largest. */
static double log_mean(const double *logs, const double *weights) {
    double top = -INFINITY, mean = 0.0;
    for (int i = 0; i < E; i++) top = most(top, logs[i]);
    for (int i = 0; i < E; i++) mean += weights[i] * exp(logs[i] - top);
    return top + log(most(mean, 1e-300));
}

/* Probability that a sample is no false measurement; a second odd one in a row clears both. */
double trust_in_sample(const Dims *dims, const State *one, const Belief *belief, const double *logs) {
    if (*one->steps < 2 * FEWEST_SAMPLES) return 1.0;
    const double odds = likeness(dims, one, belief) > ALIKE ? OUTLIER_ODDS : OUTLIER_ODDS_NEW_SITUATION;
    const double if_outlier = log(odds / (10.0 * most(*one->largest, *belief->a)));
    const double trust = 1.0 / (1.0 + exp(least(if_outlier - log_mean(logs, belief->weights), 100.0)));
    if (trust >= 0.5) {
        *one->suspected = 0.0;
        return trust;
    }
    if (*one->suspected > 0.0) {
        *one->suspected = 0.0;
        const int64_t latest = place_up_to(dims->R - 1, *one->latest);
        for (int64_t i = 0; i < L; i++) one->trust[i * dims->R + latest] = 1.0;
        one->window_weights[(samples_seen(one) - 1) % WINDOW] = 1.0;
        return 1.0;
    }
    *one->suspected = 1.0;
    return trust;
}

int64_t trust_scratch(const Dims *dims) { return L * (dims->P + dims->R + dims->q); }

/* The square of what is predicted less y, in the entries of a prompt [P, L]; x [q, L] is scratch. */
WIDER static void make_form(const Dims *dims, const State *one, const Belief *belief, double *form, double *x) {
    const int64_t p = dims->p, q = dims->q;
    EACH(i, q)
        for (int expert = 0; expert < L; expert++) {
            const double mean = i < p ? belief->mean[expert * p + i] : -one->weights[i - p];
            x[i * L + expert] = i == 0 ? mean + *belief->offset : mean;
        }
    JOIN();
    EACH(i, q) {
        const double *own = x + i * L;
        double *at = form + L * (i * q - i * (i - 1) / 2 - i); /* of entry (i, j) in place j */
        for (int expert = 0; expert < L; expert++) at[i * L + expert] = own[expert] * own[expert];
        for (int64_t j = i + 1; j < q; j++)
            for (int expert = 0; expert < L; expert++)
                at[j * L + expert] = 2.0 * (own[expert] * x[j * L + expert]);
    }
    JOIN();
}

/* sums [TOGETHER, L] = x form for x [TOGETHER, P] and form [P, L] */
enum { TOGETHER = 4 }; /* slots at a time, so that one addition need not wait for the last */
#ifdef RASP_KNOBS      /* where a thread has one lane */
static inline void form_products(int64_t P, const double *x, const double *form, double *sums) {
    for (int64_t s = 0; s < TOGETHER; s++) {
        double own[L] = {0.0};
        for (int64_t i = 0; i < P; i++)
            for (int expert = 0; expert < L; expert++) own[expert] += x[s * P + i] * form[i * L + expert];
        for (int expert = 0; expert < L; expert++) sums[s * L + expert] = own[expert];
    }
}
#else
typedef double Experts __attribute__((vector_size(8 * L), aligned(8), may_alias)); /* a number of each local one */

static inline void form_products(int64_t P, const double *x, const double *form, double *sums) {
    Experts a = {0.0}, b = {0.0}, c = {0.0}, d = {0.0};
    for (int64_t i = 0; i < P; i++, x++) {
        const Experts f = *(const Experts *)(form + i * L);
        a += x[0] * f, b += x[P] * f, c += x[2 * P] * f, d += x[3 * P] * f;
    }
    Experts *out = (Experts *)sums;
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}
#endif

/* Mean squared residual [L, R] of the slots, as each local expert sees it. Rows for slots come in whole blocks: what
   those not in use hold is not looked at. */
WIDER static void slot_residuals(const Dims *dims, const State *one, const double *form, double *squares) {
    const int64_t P = dims->P, R = dims->R, count = slots_used(dims, one);
    double sums[TOGETHER * L];
    for (int64_t slot = 0; slot < count; slot += TOGETHER) {
        form_products(P, one->prompts + slot * P, form, sums);
        for (int64_t s = 0; s < TOGETHER && slot + s < count; s++)
            for (int expert = 0; expert < L; expert++)
                squares[expert * R + slot + s] = most(sums[s * L + expert], 0.0) / one->counts[slot + s];
    }
}

/* The least value for which those up to it weigh so much; each weighs 1 if no weights are given. What cannot be it is
   put aside, time after time: half of the values as a rule. */
WIDER double value_reaching(int64_t n, const double *values, const double *weights, double mass) {
    enum { BESIDE = 4 }; /* sums side by side; values are filled up to so many by some that weigh nothing */
    double value[SLOTS + SPARE_SLOTS + BESIDE], weight[SLOTS + SPARE_SLOTS + BESIDE];
    memcpy(value, values, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++) weight[i] = weights ? weights[i] : 1.0;
    while (true) {
        for (int64_t i = n; i < n + BESIDE; i++) value[i] = INFINITY, weight[i] = 0.0;
        const double a = value[0], b = value[n / 2], c = value[n - 1];
        const double pivot = most(least(a, b), least(most(a, b), c));
        double less[BESIDE] = {0.0}, up_to[BESIDE] = {0.0};
        for (int64_t i = 0; i < n; i += BESIDE) {
            for (int s = 0; s < BESIDE; s++) {
                less[s] += (double)(value[i + s] < pivot) * weight[i + s];
                up_to[s] += (double)(value[i + s] <= pivot) * weight[i + s];
            }
        }
        const double below = (less[0] + less[1]) + (less[2] + less[3]);
        const double reached = (up_to[0] + up_to[1]) + (up_to[2] + up_to[3]);
        const bool lower = below >= mass;
        if (!lower && reached >= mass) return pivot;
        int64_t kept = 0;
        for (int64_t i = 0; i < n; i++) { /* no branches: whether a value is below is anyone's guess */
            const bool keep = lower ? value[i] < pivot : value[i] > pivot;
            value[kept] = value[i];
            weight[kept] = weight[i];
            kept += keep;
        }
        if (kept == 0) return pivot;
        if (!lower) mass -= reached;
        n = kept;
    }
}

/* Trust each slot by how far it lies from what its expert makes of it, so that outliers count little. */
void update_trust(const Dims *dims, const State *one, const Belief *belief, double *scratch) {
    const int64_t R = dims->R, count = slots_used(dims, one);
    const double a = *belief->a;
    if (count < 4) return;
    double *form = scratch, *squares = form + L * dims->P;
    make_form(dims, one, belief, form, squares + L * R);
    slot_residuals(dims, one, form, squares);
    for (int64_t expert = 0; expert < L; expert++) {
        const double *own = squares + expert * R, *kernel = belief->kernels + expert * R;
        double total = 0.0;
        EACH(slot, count) total += kernel[slot];
        const double middle = value_reaching(count, own, kernel, 0.5 * total);
        const double scale = most(belief->noises[expert] * (a * a), middle / CHI2_MEDIAN);
        EACH(slot, count)
            if (kernel[slot] > JUDGED) one->trust[expert * R + slot] = residual_trust(own[slot], scale);
    }
    JOIN();
}

/* The first samples, in order of time, and which of them are false. */
typedef struct {
    int64_t n;
    double y[EARLY];
    double expected[EARLY];         /* prior mean, in units of the curvature */
    double products[EARLY * EARLY]; /* prior covariance, in units of its square; the lower triangle */
    double factor[MOST_ROWS_EARLY * MOST_ROWS_EARLY]; /* scratch: of some of these, with two right sides */
    bool may[EARLY], false_[EARLY]; /* which may be false, which are */
} Early;

int64_t early_scratch(const Dims *dims) { return (int64_t)(sizeof(Early) / sizeof(double)) + dims->c + 2 * EARLY; }

/* The prior of the samples' y under a bowl before any sample. */
WIDER static void make_early_prior(const Dims *dims, const State *one, Early *early) {
    const int64_t d = dims->d, P = dims->P;
    const int64_t n = early->n;
    double own[EARLY] = {0.0}, u[EARLY];
    for (int64_t i = 0; i < n; i++) {
        const double *phi = one->prompts + i * P; /* the first entries of a prompt are the sums of psi */
        for (int64_t k = 0; k < d; k++) own[i] += phi[1 + k] * phi[1 + k];
    }
    EACH(i, n) {
        early->expected[i] = own[i];
        for (int64_t j = 0; j <= i; j++)
            early->products[i * EARLY + j] = LEVEL_VARIANCE + (COMMON_DEVIATION * COMMON_DEVIATION) * own[i] * own[j];
    }
    for (int64_t k = 0; k < d; k++) {
        const double location = one->location[k], variance = one->location_variance[k];
        for (int64_t i = 0; i < n; i++) u[i] = one->prompts[i * P + 1 + k];
        EACH(i, n) {
            const double linear = 4.0 * variance * u[i], bend = (OWN_DEVIATION * OWN_DEVIATION) * (u[i] * u[i]);
            early->expected[i] += variance + location * location - 2.0 * location * u[i];
            for (int64_t j = 0; j <= i; j++) early->products[i * EARLY + j] += linear * u[j] + bend * (u[j] * u[j]);
        }
    }
    JOIN();
}

/* The samples in the order in which hypotheses leave them out, last first; returns how many may be false. */
static int64_t order_suspects(const Early *early, int64_t *order) {
    const int64_t n = early->n, others = n - n / ONE_IN;
    int64_t sorted[EARLY], spare[EARLY], count = 0;
    sort_indices(n, early->y, sorted, spare);
    memcpy(order, sorted, sizeof(int64_t) * (size_t)others);
    int64_t at = others;
    for (int64_t i = others; i < n; i++)
        if (!early->may[sorted[i]]) order[at++] = sorted[i];
    for (int64_t i = others; i < n; i++) {
        if (early->may[sorted[i]]) {
            order[at++] = sorted[i];
            count++;
        }
    }
    return count;
}

/* How many of the ordered samples z [n] are true by the best hypothesis; `curvature` is the bowl's, in units of z. */
static int64_t best_hypothesis(Early *early, const int64_t *order, const double *z, int64_t suspects,
                               double *curvature) {
    const int64_t n = early->n, rows = n + 2;
    double *A = early->factor, best = -INFINITY;
    int64_t last = 0;
    for (int rival = 0; rival < RIVALS; rival++) {
        EACH(i, n) {
            double *row = A + i * rows;
            for (int64_t j = i; j < n; j++) {
                const int64_t a = order[i], b = order[j];
                row[j] = early->products[a > b ? a * EARLY + b : b * EARLY + a];
            }
            row[i] += RIVAL_NOISES[rival];
            row[n] = z[i];
            row[n + 1] = early->expected[order[i]];
        }
        EACH(i, 2 * rows) A[n * rows + i] = 0.0;
        JOIN();
        if (factor(n, rows, A)) continue; /* rounding only: this noise says nothing */
        double square = 0.0, linear = 0.0, prior = 0.0, sizes = 0.0, high = z[0], low = z[0];
        for (int64_t i = 0; i < n; i++) {
            const double q = (double)(i + 1);
            const double by_y = A[i * rows + n], by_prior = A[i * rows + n + 1];
            square += by_y * by_y;
            linear += by_y * by_prior;
            prior += by_prior * by_prior;
            sizes += log(A[i * (rows + 1)]);
            high = most(high, z[i]);
            low = least(low, z[i]);
            if (i < n - suspects - 1 || high == low) continue; /* what is left is constant: it says nothing */
            const double a = most((sqrt(linear * linear + 4.0 * q * square) - linear) / (2.0 * q), TINY);
            double evidence = linear / a - 0.5 * square / (a * a) - 0.5 * prior - q * log(a);
            evidence -= sizes + q * HALF_LOG_TWO_PI;
            evidence += (double)(n - i - 1) * log(OUTLIER_ODDS); /* false ones lie anywhere within the range of y */
            if (evidence > best) {
                best = evidence;
                last = i;
                *curvature = a;
            }
        }
    }
    return best > -INFINITY ? last + 1 : n;
}

/* Samples that are false in a row are not to be: may no more. Returns whether there were any. */
static bool clear_rows(Early *early) {
    bool any = false;
    for (int64_t i = 0; i + FALSE_IN_A_ROW <= early->n; i++) {
        if (!(early->false_[i] && early->false_[i + 1] && early->false_[i + 2])) continue;
        early->may[i] = early->may[i + 1] = early->may[i + 2] = false;
        any = true;
    }
    return any;
}

/* Which samples are false, and the curvature that the others have. */
APART static double find_early_outliers(Early *early) {
    const int64_t n = early->n;
    int64_t order[EARLY], spare[EARLY];
    do {
        EACH(i, EARLY) early->false_[i] = false;
        JOIN();
        sort_indices(n, early->y, order, spare);
        const double size = early->y[order[n - 1]] - early->y[order[0]];
        const double middle = 0.5 * (early->y[order[(n - 1) / 2]] + early->y[order[n / 2]]);
        double z[EARLY], curvature = 0.0;
        if (n < FEWEST_SAMPLES || !(size > 0.0)) return 0.0;
        EACH(i, n) early->y[i] -= middle;
        JOIN();
        const int64_t suspects = order_suspects(early, order);
        if (suspects == 0) return 0.0;
        for (int64_t i = 0; i < n; i++) z[i] = early->y[order[i]] / size;
        const int64_t true_ = best_hypothesis(early, order, z, suspects, &curvature);
        for (int64_t i = true_; i < n; i++) early->false_[order[i]] = true;
        if (!clear_rows(early)) return curvature * size;
    } while (true);
}

/* Look again at the first samples: a few false ones among them would bend all that is shared. */
void recheck_early_samples(const Dims *dims, const State *one, double *scratch) {
    Early *early = (Early *)scratch;
    const int64_t n = place_up_to(EARLY, *one->count);
    int64_t order[EARLY], spare[EARLY];
    bool any = false, found = false, better[EARLY];
    scratch += sizeof(Early) / sizeof(double);
    early->n = n;
    EACH(i, EARLY) early->may[i] = early->false_[i] = false;
    slot_targets(dims, one, n, early->y);
    sort_indices(n, early->y, order, spare);
    const double middle = 0.5 * (early->y[order[(n - 1) / 2]] + early->y[order[n / 2]]);
    for (int64_t i = n - n / ONE_IN; i < n; i++) { /* where all is about as bad, the situation is */
        const int64_t slot = order[i];
        const double half_way = 0.5 * (early->y[slot] + middle);
        for (int64_t j = 0; j < n; j++) better[j] = early->y[j] < half_way;
        early->may[slot] = one->early[slot] != FAILED && seen_before(dims, one, slot, n, better, scratch);
        any = any || early->may[slot];
    }
    double curvature = 0.0;
    if (any) {
        make_early_prior(dims, one, early);
        curvature = find_early_outliers(early);
    }
    for (int64_t i = 0; i < n; i++) {
        const bool was = one->early[i] == OUTLIER, is = early->false_[i];
        if (was || is) {
            const double trust = is ? OUTLIER_TRUST : 1.0;
            for (int64_t expert = 0; expert < L; expert++) one->trust[expert * dims->R + i] = trust;
            one->window_weights[i] = trust;
            one->early[i] = is ? OUTLIER : 0.0;
        }
        found = found || (is && !was);
    }
    if (!found) return;
    if (*one->curvature != 0.0) { /* they had bent it */
        *one->curvature = least(*one->curvature, curvature);
        *one->largest = 0.0;
    }
    reset_noise(one); /* they were taken for noise when they came */
}
