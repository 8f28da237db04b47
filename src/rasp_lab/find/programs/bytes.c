/* Products of bytes, summed as whole numbers: newer CPUs have an instruction for it, which -march=native allows. */
#include <stdint.h>
#include <stdio.h>
#define N 16384

static uint8_t a[N], b[N];

int main(void) {
    for (int i = 0; i < N; i++) {
        a[i] = (uint8_t)(i * 7 + i / 13);
        b[i] = (uint8_t)(i * 3 + i / 7);
    }
    uint32_t total = 0;
    for (int round = 0; round < 24000; round++) {
        uint32_t sum = 0;
        for (int i = 0; i < N; i++) sum += (uint32_t)a[i] * b[i];
        a[round % N] ^= (uint8_t)sum;
        total += sum;
    }
    printf("%u\n", total);
    return 0;
}
