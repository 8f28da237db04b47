/* A whole ask and a whole tell, tuner after tuner: what one function leaves in the cache is there for the next. */
#include "kernel.h"

/* Beliefs, choices by `drawn` numbers each, and these beside the default. */
void rasp_ask(const Dims *dims, const State *all, const int64_t *rows, int64_t n, const double *contexts,
              const double *draws, int64_t drawn, double *beliefs, double *points, double *sources, double *means,
              double *variances, double *beside) {
    for (int64_t i = 0; i < n; i++) {
        double *belief = beliefs + i * belief_length(dims), *point = points + i * dims->d;
        rasp_believe(dims, all, rows + i, 1, contexts + i * dims->c, belief);
        rasp_choose(dims, all, rows + i, 1, belief, draws + i * drawn, point, sources + i, means + i, variances + i);
        rasp_against(dims, all, rows + i, 1, belief, point, beside + 6 * i);
    }
}

/* What ran, beside the default; what was expected of it; and what is to be learned from it. */
void rasp_tell(const Dims *dims, const State *all, const int64_t *rows, int64_t n, double *beliefs,
               const double *points, const double *contexts, const double *losses, const double *failed,
               const double *y, double *beside, double *means, double *variances) {
    double logs[E];
    for (int64_t i = 0; i < n; i++) {
        double *belief = beliefs + i * belief_length(dims);
        const double *point = points + i * dims->d;
        rasp_against(dims, all, rows + i, 1, belief, point, beside + 6 * i);
        rasp_forecast(dims, all, rows + i, 1, belief, point, y + i, means + i, variances + i, logs);
        rasp_learn(dims, all, rows + i, 1, belief, point, contexts + i * dims->c, losses + i * dims->k, failed + i,
                   logs);
    }
}
