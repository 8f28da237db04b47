/* Very short loops: code for vectors costs more than it saves; small functions should be inlined. */
#include <stdint.h>
#include <stdio.h>
#define N 4096

static int32_t v[N + 16];

static int32_t step(const int32_t *x, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * 3 + (x[i] >> 2);
    return sum;
}

static int length(int32_t x) { return 2 + (x & 3); }

int main(void) {
    for (int i = 0; i < N + 16; i++) v[i] = i * 37 % 101;
    int32_t total = 0;
    for (int round = 0; round < 2500; round++)
        for (int i = 0; i < N; i++) {
            int32_t s = step(v + i, length(v[i]));
            v[i] = s & 127;
            total += s;
        }
    printf("%d\n", total);
    return 0;
}
