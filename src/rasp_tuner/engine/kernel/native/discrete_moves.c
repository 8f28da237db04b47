/* Points of the discrete family: their features, and where candidates come from (knobs.py, belief.py). */
#include <math.h>

#include "discrete.h"
#include "kernel.h"
#include "linear.h"

static void point_features(const Knobs *knobs, const double *restrict x, const double *restrict weights,
                           double *restrict phi, double *restrict steps, double *restrict weighted, double *size) {
    int64_t d = knobs->d, q = knobs->q;
    double all[2 * d + q + 2], on = 0.0, away = 0.0, sum = 0.0;
    for (int64_t i = 0; i < d; i++) {
        double z = 2.0 * x[i] - 1.0, gap = fabs(x[i] - knobs->default_[i]);
        all[i] = z;
        all[d + i] = z * z;
        if (knobs->binary[i]) on += z;
        away += knobs->unordered[i] ? (double)(gap > 0.0) : gap;
    }
    for (int64_t j = 0; j < knobs->ramps; j++) {
        steps[j] = clip((x[knobs->step_knob[j]] - knobs->ramp_low[j]) * knobs->ramp_slope[j], 0.0, 1.0);
    }
    for (int64_t j = knobs->ramps, i = 0; j < q; j++, i++) {
        steps[j] = (double)(fabs(x[knobs->step_knob[j]] - knobs->choice_at[i]) < knobs->choice_width[i]);
    }
    memcpy(all + 2 * d, steps, sizeof(double) * (size_t)q);
    all[2 * d + q] = on;
    all[2 * d + q + 1] = away;
    for (int64_t t = 0; t < knobs->p; t++) {
        phi[t] = all[knobs->term[t]] * knobs->term_scale[t] - knobs->origin[t];
    }
    for (int64_t j = 0; j < q; j++) {
        double value = steps[j] * weights[j];
        weighted[j] = 2.0 * value;
        sum += value * steps[j];
    }
    *size = sum;
}

void rasp_discrete_features(const Knobs *knobs, int64_t count, const double *points, const double *weights,
                            double *phi, double *steps, double *weighted, double *sizes) {
    for (int64_t i = 0; i < count; i++) {
        point_features(knobs, points + i * knobs->d, weights, phi + i * knobs->p, steps + i * knobs->q,
                       weighted + i * knobs->q, sizes + i);
    }
}

/* Which knobs of each mutant change: places [mutants, d] in `changed`; and which mutants swap two binary knobs.
 * `arrivals` [mutants, d] are divided by the rates: the first few are drawn. */
void rasp_discrete_race(const Knobs *knobs, Search *search) {
    int64_t d = knobs->d, moves = 0, swaps = 0;
    for (int64_t i = 0; i < search->mutants; i++) {
        double *race = search->arrivals + i * d, limit = -1.0;
        int64_t wanted = search->changes[i] < d ? search->changes[i] : d;
        if (wanted > 1 && search->lots[i] < knobs->swap_chance) {
            search->swapped[swaps++] = i;
            wanted -= 2;
        }
        for (int64_t j = 0; j < d; j++) race[j] /= search->rates[j];
        for (int64_t taken = 0; taken < wanted;) { /* the next to arrive, and all that do so at the same time */
            double next = INFINITY;
            for (int64_t j = 0; j < d; j++) {
                if (race[j] > limit && race[j] < next) next = race[j];
            }
            if (next == INFINITY) break;
            for (int64_t j = 0; j < d; j++) taken += race[j] == next;
            limit = next;
        }
        for (int64_t j = 0; wanted > 0 && j < d; j++) {
            if (race[j] <= limit) search->changed[moves++] = i * d + j;
        }
    }
    search->moves = moves;
    search->swaps = swaps;
}

/* The level that a knob has at this value. */
static int64_t place_of(const Knobs *knobs, int64_t knob, double value) {
    int64_t low = knobs->first_cut[knob], high = knobs->first_cut[knob + 1];
    double shifted = value + 2.0 * (double)knob;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (knobs->cuts[middle] < shifted) low = middle + 1;
        else high = middle;
    }
    return low - knobs->first_cut[knob];
}

static void swap(const Knobs *knobs, const double *lottery, double *point) {
    int64_t falls = -1, rises = -1;
    for (int64_t j = 0; j < knobs->d; j++) {
        if (!knobs->binary[j]) continue;
        int64_t *place = point[j] != knobs->low[j] ? &falls : &rises;
        if (*place < 0 || lottery[j] > lottery[*place]) *place = j;
    }
    if (falls < 0 || rises < 0) return;
    point[falls] = knobs->low[falls];
    point[rises] = knobs->high[rises];
}

/* Mutants [mutants, d]; half of them are the first elite's. Uniform draws [4, moves], then a lottery [swaps, d]. */
static void mutate(const Knobs *knobs, const Search *search, double *points) {
    int64_t d = knobs->d, moves = search->moves;
    const double *draws = search->uniform, *lottery = draws + 4 * moves;
    for (int64_t i = 0; i < search->mutants; i++) {
        int64_t parent = i % (search->found + 3) - 3;
        memcpy(points + i * d, search->points + (parent > 0 ? parent : 0) * d, sizeof(double) * (size_t)d);
    }
    for (int64_t i = 0; i < moves; i++) {
        int64_t knob = search->changed[i] % d, last = knobs->last[knob], place, other;
        double *value = points + search->changed[i];
        double near = draws[i], uniform = draws[moves + i], side = draws[2 * moves + i], moved;
        if (draws[3 * moves + i] < search->home && *value != knobs->default_[knob]) {
            *value = knobs->default_[knob];
            continue;
        }
        if (knobs->discrete[knob]) {
            place = place_of(knobs, knob, *value);
            if (near < knobs->neighbour[knob]) other = place + (side < 0.5 ? 1 : -1);
            else other = (place + 1 + (int64_t)(uniform * (double)last)) % (last + 1);
            moved = knobs->turning[knob * knobs->turns + (other < 0 ? knobs->turns - 1 : other)];
        } else {
            moved = near < knobs->near_chance ? clip(*value + search->steps[i], 0.0, 1.0) : side;
        }
        *value = moved;
    }
    for (int64_t i = 0; i < search->swaps; i++) swap(knobs, lottery + i * d, points + search->swapped[i] * d);
}

/* Between main effects and rows [n, p], the effects' posterior mean [p], and chances [d] that a mutation touches. */
WIDER static void main_effects(const Knobs *knobs, const Here *here, Search *search) {
    int64_t p = knobs->p, d = knobs->d, count = knobs->values;
    double *values = search->values, *effects = search->effects, *rates = search->rates, sum = 0.0, total = 0.0;
    memcpy(effects, knobs->prior, sizeof(double) * (size_t)p);
    for (int64_t i = 0; i < here->n; i++) {
        double by = here->va * here->share[i];
        double *restrict row = search->shared + i * p;
        const double *restrict phi = here->phi + i * p;
        for (int64_t t = 0; t < p; t++) row[t] = by * phi[t];
        add_scaled(p, here->alpha[i], row, effects);
    }
    memset(values, 0, sizeof(double) * (size_t)(d * count));
    for (int64_t t = 0; t < p; t++) add_scaled(d * count, effects[t], knobs->single + t * d * count, values);
    for (int64_t i = 0; i < d; i++) {
        double least = INFINITY, most = -INFINITY;
        for (int64_t j = i * count; j < (i + 1) * count; j++) {
            least = fmin(least, values[j]);
            most = fmax(most, values[j]);
        }
        rates[i] = most - least;
        sum += rates[i];
    }
    for (int64_t i = 0; i < d; i++) {
        rates[i] += 0.3 / (double)d * sum + 1e-12;
        total += rates[i];
    }
    for (int64_t i = 0; i < d; i++) {
        rates[i] = (1.0 - knobs->focused) / (double)d + knobs->focused / total * rates[i];
    }
}

/* What is known before anything is drawn: elites, of which the default is one where there are none, and main effects. */
void rasp_discrete_begin(const Knobs *knobs, const Here *here, Search *search) {
    size_t size = sizeof(double) * (size_t)knobs->d;
    search->found = rasp_discrete_elites(knobs, here, search->elites, search->alike, search->means, search->rows);
    for (int64_t i = 0; i < search->found; i++) {
        memcpy(search->points + i * knobs->d, here->points + search->rows[i] * knobs->d, size);
    }
    if (search->found == 0) memcpy(search->points + search->found++ * knobs->d, knobs->default_, size);
    main_effects(knobs, here, search);
}

/* What main effects that are drawn say of every value of every knob: of their mean first, then as `draws` say. Their
 * covariance is the prior's less what the rows explain of it, which is used up. */
WIDER static void draw_effects(const Knobs *knobs, const Here *here, Search *search) {
    int64_t p = knobs->p, width = knobs->d * knobs->values;
    double *covariance = search->explained, *diagonal = search->diagonal, most = 0.0;
    for (int64_t i = 0; i < p * p; i++) covariance[i] = -covariance[i];
    for (int64_t i = 0; i < p; i++) most = fmax(most, covariance[i * (p + 1)] += here->va);
    for (int64_t i = 0; i < p; i++) diagonal[i] = covariance[i * (p + 1)] += 1e-6 * most + 1e-12;
    int rough = cholesky(p, covariance, covariance); /* then by the diagonal alone */
    for (int64_t i = 0; i < search->drawn; i++) {
        double *values = search->values + i * width, *draws = search->draws + i * p;
        double spread = i == 0 ? 0.0 : search->spread;
        for (int64_t t = 0; t < p; t++) draws[t] *= spread;
        memset(values, 0, sizeof(double) * (size_t)width);
        for (int64_t t = 0; t < p; t++) {
            double move = rough ? draws[t] * sqrt(fmax(diagonal[t], 0.0)) : dot(t + 1, covariance + t * p, draws);
            add_scaled(width, search->effects[t] + move, knobs->single + t * width, values);
        }
    }
}

/* Points [drawn, d] that minimise main effects of these values. In the last `sparse` only the strongest knobs move, from
 * the default or, every other, from the first elite; (d + 1)^taken says how many. `gains` [d] is scratch. */
static void minimise(const Knobs *knobs, const Search *search, double *gains, double *points) {
    int64_t d = knobs->d, width = knobs->values;
    for (int64_t i = 0; i < search->drawn; i++) {
        int64_t late = i - (search->drawn - search->sparse);
        for (int64_t j = 0; j < d; j++) {
            const double *own = search->values + (i * d + j) * width;
            int64_t best = 0;
            for (int64_t v = 1; v < width; v++) best = own[v] < own[best] ? v : best;
            gains[j] = own[best];
            points[i * d + j] = knobs->grid[j * width + best];
        }
        if (late < 0) continue;
        const double *base = late % 2 ? search->points : knobs->default_;
        int64_t taken = (int64_t)exp(search->taken[late] * log((double)(d + 1)));
        for (int64_t j = 0; j < d; j++) {
            int64_t rank = 0;
            for (int64_t other = 0; other < d; other++) {
                rank += gains[other] < gains[j] || (gains[other] == gains[j] && other < j);
            }
            if (rank >= taken) points[i * d + j] = base[j];
        }
    }
}

/* Whether a point [d] failed in a context like this, or is barred for another reason. */
static int is_barred(const Knobs *knobs, const Here *here, const Search *search, const double *point) {
    size_t size = sizeof(double) * (size_t)knobs->d;
    for (int64_t i = 0; i < here->n; i++) {
        if (here->failed[i] > 0.0 && here->kc[i] > search->alike && !memcmp(point, here->points + i * knobs->d, size)) {
            return 1;
        }
    }
    for (int64_t i = 0; i < search->bars; i++) {
        if (!memcmp(point, search->barred + i * knobs->d, size)) return 1;
    }
    return 0;
}

/* All candidates: elites, the default, mutants, crossovers of elites, and minimisers of main effects. The first of those
 * that are alike is kept unless it is barred; the default if all are. Places of the kept, and their features. */
void rasp_discrete_candidates(const Knobs *knobs, const Here *here, Search *search) {
    int64_t d = knobs->d, all = search->found + 1 + search->mutants + search->crossovers + search->drawn, kept = 0;
    size_t size = sizeof(double) * (size_t)d;
    double *next = search->points + search->found * d;
    const double *coin = search->uniform + 4 * search->moves + search->swaps * d;
    memcpy(next, knobs->default_, size);
    next += d;
    mutate(knobs, search, next);
    next += search->mutants * d;
    for (int64_t i = 0; i < search->crossovers; i++, next += d) {
        const double *one = search->points + search->pairs[i] * d;
        const double *other = search->points + search->pairs[search->crossovers + i] * d;
        for (int64_t j = 0; j < d; j++) next[j] = coin[i * d + j] < 0.5 ? one[j] : other[j];
    }
    draw_effects(knobs, here, search);
    minimise(knobs, search, search->rates, next);
    for (int64_t i = 0; i < all; i++) {
        const double *point = search->points + i * d;
        int known = 0;
        for (int64_t j = 0; j < kept && !known; j++) known = !memcmp(point, search->candidates + j * d, size);
        if (known || is_barred(knobs, here, search, point)) continue;
        memcpy(search->candidates + kept * d, point, size);
        search->places[kept++] = i;
    }
    if (kept == 0) {
        memcpy(search->candidates, knobs->default_, size);
        search->places[kept++] = search->found;
    }
    search->kept = kept;
    rasp_discrete_features(knobs, kept, search->candidates, here->weights, search->phi, search->passed,
                           search->weighted, search->sizes);
}
