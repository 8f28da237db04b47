/* What the files of the learning side share. Symbols as in ../state.py. */
#ifndef RASP_LEARN_H
#define RASP_LEARN_H

#include "kernel.h"
#include "linear.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define OUTLIER_ODDS 1e-2   /* prior odds of a false measurement */
#define CHI2_MEDIAN 0.455   /* median of a squared standard normal */

static inline double least(double x, double y) { return x < y ? x : y; }
static inline double most(double x, double y) { return x > y ? x : y; }

/* Natural logarithm of one of the variances that are weighed: from 1e-4 to 1, two a decade. */
static inline double noise_log(int i) { return 2.302585092994046 * (0.5 * i - 4.0); }

/* shared.c */
int64_t estimate_scratch(const Dims *dims); /* numbers that estimate_curvature needs */
void solve_lower(int64_t n, const double *lower, double *x); /* x <- lower^-1 x */

#endif
