/* Sums over columns [width, stride], for many places of a row at once. They stay in registers until they are whole, and
 * are added up in the order of the columns: the same bits, however many places there are. */
#ifndef RASP_GP_COLUMNS_H
#define RASP_GP_COLUMNS_H

#include "linear.h"

enum { SIDE_BY_SIDE = 4, SOME_COLUMNS = 16 }; /* registers; columns that are gone through together */

typedef struct {
    int64_t count;
    double by[SOME_COLUMNS];
    const double *of[SOME_COLUMNS];
} SomeColumns;

PART_OF_EACH void add_some(int registers, int64_t i, const SomeColumns *s, double *out) {
    AtOnce sums[SIDE_BY_SIDE], *to = (AtOnce *)(out + i);
    for (int v = 0; v < registers; v++) sums[v] = to[v];
    for (int64_t a = 0; a < s->count; a++) {
        const AtOnce *from = (const AtOnce *)(s->of[a] + i);
        for (int v = 0; v < registers; v++) sums[v] += s->by[a] * from[v];
    }
    for (int v = 0; v < registers; v++) to[v] = sums[v];
}

PART_OF_EACH void add_each(int64_t count, const SomeColumns *s, double *out) {
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * AT_ONCE <= count; i += SIDE_BY_SIDE * AT_ONCE) add_some(SIDE_BY_SIDE, i, s, out);
    for (; i + AT_ONCE <= count; i += AT_ONCE) add_some(1, i, s, out);
    for (; i < count; i++)
        for (int64_t a = 0; a < s->count; a++) out[i] += s->by[a] * s->of[a][i];
}

/* out [count] += products of place `own` with the first ones. Most columns may be 0 there. */
PART_OF_EACH void add_products(int64_t own, int64_t count, int64_t width, const double *columns, int64_t stride,
                               double *out) {
    SomeColumns some = {.count = 0};
    for (int64_t a = 0; a < width; a++) {
        const double *column = columns + a * stride;
        if (column[own] == 0.0) continue;
        some.by[some.count] = column[own], some.of[some.count++] = column;
        if (some.count == SOME_COLUMNS) add_each(count, &some, out), some.count = 0;
    }
    if (some.count) add_each(count, &some, out);
}

PART_OF_EACH void some_gaps(int registers, int64_t i, int64_t own, int64_t width, const double *columns, int64_t stride,
                            double *out) {
    AtOnce sums[SIDE_BY_SIDE] = {{0.0}};
    for (int64_t a = 0; a < width; a++) {
        const double *column = columns + a * stride, x = column[own];
        const AtOnce *from = (const AtOnce *)(column + i);
        for (int v = 0; v < registers; v++) {
            const AtOnce gap = from[v] - x;
            sums[v] += gap * gap;
        }
    }
    for (int v = 0; v < registers; v++) ((AtOnce *)(out + i))[v] = sums[v];
}

/* out [count]: squared distances of place `own` from the first ones. */
PART_OF_EACH void squared_gaps(int64_t own, int64_t count, int64_t width, const double *columns, int64_t stride,
                               double *out) {
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * AT_ONCE <= count; i += SIDE_BY_SIDE * AT_ONCE)
        some_gaps(SIDE_BY_SIDE, i, own, width, columns, stride, out);
    for (; i + AT_ONCE <= count; i += AT_ONCE) some_gaps(1, i, own, width, columns, stride, out);
    for (; i < count; i++) {
        out[i] = 0.0;
        for (int64_t a = 0; a < width; a++) {
            const double gap = columns[a * stride + i] - columns[a * stride + own];
            out[i] += gap * gap;
        }
    }
}

#endif
