/* The kernel for one tuner that is alone in its state. What a call is given, and what it gives, lies in memory that is
 * known beforehand: to hand over ten addresses would cost as much as some of these calls. */
#include "kernel.h"

enum { BESIDE = 3 }; /* where that begins */

static const int64_t ONLY = 0;

#pragma GCC visibility push(default)
void rasp_one_believe(const One *one, double *belief);
void rasp_one_against(const One *one, double *belief);
void rasp_one_choose(const One *one, double *belief);
void rasp_one_forecast(const One *one, double *belief);
void rasp_one_learn(const One *one, double *belief);
#pragma GCC visibility pop

void rasp_one_believe(const One *one, double *belief) {
    rasp_believe(one->dims, one->state, &ONLY, 1, one->context, belief);
    Belief found = belief_at(one->dims, belief);
    double noise = 0.0, a = *found.a;
    for (int j = 0; j < E; j++) noise += found.weights[j] * found.noises[j];
    *one->noise = noise * (a * a);
}

void rasp_one_against(const One *one, double *belief) {
    rasp_against(one->dims, one->state, &ONLY, 1, belief, one->point, one->figures + BESIDE);
}

/* What is chosen is always set beside the default, and so is what ran. */
void rasp_one_choose(const One *one, double *belief) {
    double *out = one->figures;
    rasp_choose(one->dims, one->state, &ONLY, 1, belief, one->draws, one->chosen, out, out + 1, out + 2);
    rasp_against(one->dims, one->state, &ONLY, 1, belief, one->chosen, out + BESIDE);
}

void rasp_one_forecast(const One *one, double *belief) {
    double *out = one->figures;
    rasp_forecast(one->dims, one->state, &ONLY, 1, belief, one->point, one->y, out, out + 1, one->logs);
    rasp_one_against(one, belief);
}

void rasp_one_learn(const One *one, double *belief) {
    rasp_learn(one->dims, one->state, &ONLY, 1, belief, one->point, one->context, one->losses, one->failed, one->logs);
}
