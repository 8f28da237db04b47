/* Random numbers of many tuners: a function of the seed, a tuner's number and how often it was asked. See ../draws.py. */
#include "kernel.h"

#define GOLDEN 0x9E3779B97F4A7C15u /* the step of SplitMix64 */

static uint64_t scrambled(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void rasp_draws(uint64_t seed, int64_t n, const double *numbers, const double *asks, int64_t count, double *draws) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = scrambled(scrambled((uint64_t)numbers[i] * GOLDEN + seed) + (uint64_t)asks[i] * GOLDEN);
        for (int64_t j = 0; j < count; j++)
            draws[i * count + j] = (double)(scrambled(key + (uint64_t)(j + 1) * GOLDEN) >> 11) * 0x1p-53;
    }
}
