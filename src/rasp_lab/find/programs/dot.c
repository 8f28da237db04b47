/* Sums of floating-point numbers: only -ffast-math lets the compiler add them in another order, as vectors. */
#include <stdio.h>
#define N 4096

static float a[N], b[N];

int main(void) {
    for (int i = 0; i < N; i++) {
        a[i] = 0.5f + (float)(i % 7);
        b[i] = 1.0f / (float)(1 + i % 11);
    }
    float total = 0.0f;
    for (int round = 0; round < 24000; round++) {
        float sum = 0.0f;
        for (int i = 0; i < N; i++) sum += a[i] * b[i];
        a[round % N] += 1e-6f * sum;
        total += sum;
    }
    printf("%g\n", (double)total);
    return 0;
}
