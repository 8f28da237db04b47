/* Features of a point, and factors, inverses and eigenvectors of small symmetric matrices.
 * Inner loops run along rows and add to many sums at once: they are vectorised without changing the order of any sum. */
#include "linear.h"

#include <math.h>
#include <string.h>

#include "kernel.h"

enum { MOST_TURNS = 60 };
enum { LARGE = 16 }; /* rows from which on wider vectors pay */
static const double ROUNDING = 1e-16; /* of the largest: what is beside the diagonal is none */

/* phi [p] = [1, u, u^2] */
void features(const Dims *dims, const double *u, double *phi) {
    int64_t d = dims->d;
    phi[0] = 1.0;
    for (int64_t i = 0; i < d; i++) {
        phi[1 + i] = u[i];
        phi[1 + d + i] = u[i] * u[i];
    }
}

/* x = n log 2 + r with a whole n and |r| <= log(2) / 2: e^r by its Taylor series, and n goes into the exponent.
 * Nothing branches, so that all loops are vectorised. */
#define TO_WHOLE 6755399441055744.0 /* 1.5 * 2^52: a sum with it has no digits after the point */
#ifdef RASP_KNOBS
WIDER void exp_falling(int64_t n, double *x) {
    EACH(i, n) x[i] = x[i] > -708.0 ? x[i] : -708.0;
    EACH(i, n) {
        double shifted = x[i] * 1.4426950408889634 + TO_WHOLE, whole = shifted - TO_WHOLE, scale;
        double r = (x[i] - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10; /* log 2, in two */
        double series = 1.0 / 6227020800.0;
        series = series * r + 1.0 / 479001600.0;
        series = series * r + 1.0 / 39916800.0;
        series = series * r + 1.0 / 3628800.0;
        series = series * r + 1.0 / 362880.0;
        series = series * r + 1.0 / 40320.0;
        series = series * r + 1.0 / 5040.0;
        series = series * r + 1.0 / 720.0;
        series = series * r + 1.0 / 120.0;
        series = series * r + 1.0 / 24.0;
        series = series * r + 1.0 / 6.0;
        series = series * r + 0.5;
        series = 1.0 + (r + r * r * series);
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof(bits));
        bits = (bits + 1023) << 52; /* the last bits of `shifted` are those of n */
        memcpy(&scale, &bits, sizeof(scale));
        x[i] = series * scale;
    }
    JOIN();
}

void log_positive(int64_t n, double *x) {
    for (int64_t i = 0; i < n; i++) x[i] = log(x[i]);
}
#else
enum { QUADS = 2 }; /* while one waits for a product, the other goes on */

PART_OF_EACH void exp_some(Quad *x) {
    Quad r[QUADS], series[QUADS], scale[QUADS];
    for (int i = 0; i < QUADS; i++) {
        const Quad least = {-708.0, -708.0, -708.0, -708.0};
        const QuadBits above = (QuadBits)(x[i] > least);
        const Quad from = (Quad)(((QuadBits)x[i] & above) | ((QuadBits)least & ~above));
        const Quad shifted = from * 1.4426950408889634 + TO_WHOLE, whole = shifted - TO_WHOLE;
        r[i] = (from - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10; /* log 2, in two */
        scale[i] = (Quad)(((QuadBits)shifted + 1023) << 52); /* the last bits of `shifted` are those of n */
        series[i] = r[i] * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    }
    const double rest[] = {1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0,
                           1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5};
    for (int term = 0; term < 10; term++)
        for (int i = 0; i < QUADS; i++) series[i] = series[i] * r[i] + rest[term];
    for (int i = 0; i < QUADS; i++) x[i] = (1.0 + (r[i] + r[i] * r[i] * series[i])) * scale[i];
}

WIDER void exp_falling(int64_t n, double *x) {
    int64_t i = 0;
    for (; i + 4 * QUADS <= n; i += 4 * QUADS) exp_some((Quad *)(x + i));
    if (i < n) {
        Quad last[QUADS] = {{0.0}};
        memcpy(last, x + i, sizeof(double) * (size_t)(n - i));
        exp_some(last);
        memcpy(x + i, last, sizeof(double) * (size_t)(n - i));
    }
}

/* x = 2^n m with m from root(1/2) to root(2). With f = m - 1 and s = f / (2 + f), log m = f - f^2 / 2 + s (f^2 / 2 + R),
 * where R is a series in s^2: coefficients are those of fdlibm. */
PART_OF_EACH void log_four(Quad *x) {
    const double series[] = {1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
                             2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01};
    const uint64_t half_root = 0x3FE6A09E667F3BCD, one = 0x3FF0000000000000, digits = 0x000FFFFFFFFFFFFF;
    const QuadBits bits = (QuadBits)*x - half_root + one; /* their exponent is n + 1023, their digits are those of m */
    const Quad whole = (Quad)((bits >> 52) + 0x4338000000000000) - (TO_WHOLE + 1023.0);
    const Quad f = (Quad)((bits & digits) + half_root) - 1.0, s = f / (f + 2.0), z = s * s, half = 0.5 * f * f;
    Quad R = z * 1.479819860511658591e-01;
    for (int term = 0; term < 6; term++) R = (R + series[term]) * z;
    *x = whole * 6.93147180369123816490e-01 - ((half - (s * (half + R) + whole * 1.90821492927058770002e-10)) - f);
}

WIDER void log_positive(int64_t n, double *x) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) log_four((Quad *)(x + i));
    if (i < n) {
        Quad last = {1.0, 1.0, 1.0, 1.0};
        memcpy(&last, x + i, sizeof(double) * (size_t)(n - i));
        log_four(&last);
        memcpy(x + i, &last, sizeof(double) * (size_t)(n - i));
    }
}
#endif

/* factor: U of A = U'U for the first n rows of A [rows, rows], in place; of A only what is not below the diagonal is read.
 *   What stands beside it, B, becomes U'^-1 B, and C in the corner becomes C - B' A^-1 B: so right sides are solved for,
 *   and their products known, along with the factor.
 * transpose_root: its first part as a lower triangle [n, n] with zeros above; both may be one, if they have n rows.
 * inverse_of_root: of A = scratch scratch', a lower triangle with zeros above, which is used up.
 * inverse_spd: of A; scratch [n, n].
 * Those that return something return 0 if A is positive definite. */
void transpose_root(int64_t n, int64_t rows, const double *upper, double *lower) {
    EACH(i, n) {
        for (int64_t j = 0; j < i; j++) lower[i * n + j] = upper[j * rows + i];
        lower[i * (n + 1)] = upper[i * (rows + 1)];
    }
    JOIN();
    EACH(i, n) for (int64_t j = i + 1; j < n; j++) lower[i * n + j] = 0.0;
    JOIN();
}

#if defined(RASP_LANES) && RASP_LANES > 1
int factor(int64_t n, int64_t rows, double *A) {
    for (int64_t j = 0; j < n; j++) {
        JOIN();
        double *own = A + j * rows, pivot = own[j];
        JOIN();
        if (!(pivot > 0.0 && pivot <= 1e300)) return 1;
        double root = sqrt(pivot), inverse = 1.0 / root;
        EACH(i, rows - j) own[j + i] = i ? own[j + i] * inverse : root;
        JOIN();
        EACH(i, rows - j - 1) {
            double *row = A + (j + 1 + i) * rows, value = own[j + 1 + i];
            for (int64_t k = j + 1 + i; k < rows; k++) row[k] -= value * own[k];
        }
    }
    JOIN();
    return 0;
}

int inverse_spd(int64_t n, const double *A, double *inverse, double *scratch) {
    EACH(i, n * n) scratch[i] = A[i];
    if (factor(n, n, scratch)) return 1;
    transpose_root(n, n, scratch, scratch);
    inverse_of_root(n, scratch, inverse);
    return 0;
}

void inverse_of_root(int64_t n, double *scratch, double *inverse) {
    EACH(i, n) scratch[i * (n + 1)] = 1.0 / scratch[i * (n + 1)];
    JOIN();
    EACH(j, n) { /* column j of the factor's inverse becomes row j above the diagonal: each needs its own only */
        double *own = scratch + j * n;
        for (int64_t i = j + 1; i < n; i++) {
            double sum = 0.0;
            for (int64_t k = j; k < i; k++) sum += scratch[i * n + k] * own[k];
            own[i] = -sum * scratch[i * (n + 1)];
        }
    }
    EACH(at, n * n) {
        const int i = (int)at / (int)n, j = (int)at % (int)n;
        double sum = 0.0;
        for (int64_t k = i > j ? i : j; k < n; k++) sum += scratch[i * n + k] * scratch[j * n + k];
        inverse[at] = sum;
    }
    JOIN();
}
#else
WIDER int factor(int64_t n, int64_t rows, double *A) {
    for (int64_t j = 0; j < n; j += 4) {
        int64_t end = j + 4 < n ? j + 4 : n;
        for (int64_t i = j; i < end; i++) {
            double *row = A + i * rows;
            for (int64_t k = j; k < i; k++) add_scaled(rows - i, -A[k * rows + i], A + k * rows + i, row + i);
            double pivot = row[i];
            if (!(pivot > 0.0 && pivot <= 1e300)) return 1;
            double root = sqrt(pivot), inverse = 1.0 / root;
            row[i] = root;
            for (int64_t k = i + 1; k < rows; k++) row[k] *= inverse;
        }
        for (int64_t i = end; i < rows; i++) { /* what these rows take from the rest */
            double by[4];
            for (int64_t k = j; k < end; k++) by[k - j] = -A[k * rows + i];
            if (end == j + 4) add_four(rows - i, by, 1, A + j * rows + i, rows, A + i * (rows + 1));
            else
                for (int64_t k = j; k < end; k++) add_scaled(rows - i, by[k - j], A + k * rows + i, A + i * (rows + 1));
        }
    }
    return 0;
}

WIDER void inverse_of_root(int64_t n, double *scratch, double *inverse) {
    for (int64_t i = 0; i < n; i++) { /* scratch becomes its own inverse, row by row */
        double *row = inverse, *own = scratch + i * n, by = 1.0 / own[i]; /* room that is not needed yet */
        int64_t k = 0;
        for (int64_t j = 0; j < i; j++) row[j] = 0.0;
        for (; k + 4 <= i; k += 4) add_four(k + 4, own + k, 1, scratch + k * n, n, row);
        for (; k < i; k++) add_scaled(k + 1, own[k], scratch + k * n, row);
        for (int64_t j = 0; j < i; j++) own[j] = row[j] * -by;
        own[i] = by;
    }
    for (int64_t i = 0; i < n; i++) {
        double *row = inverse + i * n;
        int64_t k = i;
        for (int64_t j = 0; j <= i; j++) row[j] = 0.0;
        for (; k + 4 <= n; k += 4) add_four(i + 1, scratch + k * n + i, n, scratch + k * n, n, row);
        for (; k < n; k++) add_scaled(i + 1, scratch[k * n + i], scratch + k * n, row);
        for (int64_t j = 0; j < i; j++) inverse[j * n + i] = row[j];
    }
}

int inverse_spd(int64_t n, const double *A, double *inverse, double *scratch) {
    memcpy(scratch, A, sizeof(double) * (size_t)(n * n));
    if (factor(n, n, scratch)) return 1;
    transpose_root(n, n, scratch, scratch);
    inverse_of_root(n, scratch, inverse);
    return 0;
}

#endif

/* Of four symmetric positive definite matrices side by side, A [n, n, 4], from their lower triangles; A is used up, and
 * wrong [4] says which are none. While one pivot is divided by, so are the other three: faster for small n.
 * A = C D C' with ones on the diagonal of C; C becomes its own inverse X, and the inverse of A is X' D^-1 X. */
WIDER void inverse_four(int64_t n, double *A, double *inverse, double *scratch, int *wrong) {
    Quad *C = (Quad *)A, *S = (Quad *)inverse, *row = (Quad *)scratch, *by = row + n; /* scratch [2 n, 4] */
    for (int c = 0; c < 4; c++) wrong[c] = 0;
    for (int64_t j = 0; j < n; j++) {
        const double *pivot = A + 4 * j * (n + 1);
        for (int c = 0; c < 4; c++) {
            wrong[c] |= !(pivot[c] > 0.0 && pivot[c] <= 1e300);
            scratch[4 * (n + j) + c] = 1.0 / pivot[c];
        }
        Quad *column = C + j * n; /* above the diagonal there is room for it */
        for (int64_t i = j + 1; i < n; i++) {
            Quad *own = C + i * n, share = own[j] * by[j];
            column[i] = own[j];
            own[j] = share;
            for (int64_t k = j + 1; k <= i; k++) own[k] = own[k] - share * column[k];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        Quad *own = C + i * n, none = {0.0};
        for (int64_t j = 0; j < i; j++) row[j] = none;
        for (int64_t k = 0; k < i; k++) {
            Quad share = own[k];
            for (int64_t j = 0; j <= k; j++) row[j] = row[j] - share * C[k * n + j];
        }
        for (int64_t j = 0; j < i; j++) own[j] = row[j];
        for (int c = 0; c < 4; c++) A[4 * i * (n + 1) + c] = 1.0;
    }
    for (int64_t i = 0; i < n; i++) {
        Quad *own = S + i * n, none = {0.0};
        for (int64_t j = 0; j <= i; j++) own[j] = none;
        for (int64_t k = i; k < n; k++) {
            Quad share = C[k * n + i] * by[k];
            for (int64_t j = 0; j <= i; j++) own[j] += share * C[k * n + j];
        }
        for (int64_t j = 0; j < i; j++) S[j * n + i] = own[j];
    }
}

/* Turn two rows of length n into c x - s y and s x + c y. */
PART_OF_EACH void turn(int64_t n, double c, double s, double *restrict x, double *restrict y) {
    for (int64_t i = 0; i < n; i++) {
        double was = x[i];
        x[i] = c * was - s * y[i];
        y[i] = s * was + c * y[i];
    }
}

/* A = Q T Q' with T tridiagonal: its diagonal, what is beside it, and Q' as rows in `axes`. A is used up. */
PART_OF_EACH void tridiagonal(int64_t n, double *A, double *axes, double *diagonal, double *beside) {
    double v[MOST_ROOTS], w[MOST_ROOTS];
    memset(axes, 0, sizeof(double) * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++) axes[i * (n + 1)] = 1.0;
    for (int64_t k = 0; k + 2 < n; k++) { /* a mirror that makes column k zero from k + 2 on */
        double length = 0.0, square = 0.0;
        for (int64_t i = k + 1; i < n; i++) length += A[i * n + k] * A[i * n + k];
        diagonal[k] = A[k * (n + 1)];
        length = sqrt(length);
        beside[k] = A[(k + 1) * n + k] > 0.0 ? -length : length;
        for (int64_t i = k + 1; i < n; i++) {
            v[i] = A[i * n + k] - (i == k + 1 ? beside[k] : 0.0);
            square += v[i] * v[i];
        }
        if (!(square > 0.0)) continue;
        int64_t left = n - k - 1;
        double by = 2.0 / square, *mirror = v + k + 1;
        for (int64_t i = k + 1; i < n; i++) w[i] = by * dot(left, A + i * n + k + 1, mirror);
        add_scaled(left, -0.5 * by * dot(left, mirror, w + k + 1), mirror, w + k + 1);
        for (int64_t i = k + 1; i < n; i++) {
            add_scaled(left, -v[i], w + k + 1, A + i * n + k + 1);
            add_scaled(left, -w[i], mirror, A + i * n + k + 1);
        }
        memset(w, 0, sizeof(double) * (size_t)n);
        for (int64_t i = k + 1; i < n; i++) add_scaled(n, by * v[i], axes + i * n, w);
        for (int64_t i = k + 1; i < n; i++) add_scaled(n, -v[i], w, axes + i * n);
    }
    for (int64_t i = n > 2 ? n - 2 : 0; i < n; i++) {
        diagonal[i] = A[i * (n + 1)];
        beside[i] = i + 1 < n ? A[(i + 1) * n + i] : 0.0;
    }
}

/* QL steps with implicit shifts: `diagonal` becomes the eigenvalues, the rows of `axes` the eigenvectors. */
PART_OF_EACH void diagonalise(int64_t n, double *axes, double *diagonal, double *beside) {
    double size = 0.0;
    for (int64_t i = 0; i < n; i++) size = fmax(size, fabs(diagonal[i]) + fabs(beside[i]));
    for (int64_t first = 0; first < n; first++) {
        for (int step = 0; step < MOST_TURNS; step++) {
            int64_t last = first;
            while (last + 1 < n && fabs(beside[last]) > ROUNDING * size) last++;
            if (last == first) break;
            double half = 0.5 * (diagonal[first + 1] - diagonal[first]) / beside[first];
            double root = sqrt(half * half + 1.0), shift = 0.0, s = 1.0, c = 1.0;
            double bulge = diagonal[last] - diagonal[first] + beside[first] / (half + (half >= 0.0 ? root : -root));
            int64_t i = last - 1;
            for (; i >= first; i--) {
                double f = s * beside[i], b = c * beside[i];
                root = beside[i + 1] = sqrt(f * f + bulge * bulge);
                if (!(root > 0.0)) break;
                s = f / root, c = bulge / root;
                double was = diagonal[i + 1] - shift;
                root = (diagonal[i] - was) * s + 2.0 * c * b;
                shift = s * root;
                diagonal[i + 1] = was + shift;
                bulge = c * root - b;
                turn(n, c, s, axes + i * n, axes + (i + 1) * n);
            }
            if (i >= first) diagonal[i + 1] -= shift; /* it fell apart in two */
            else diagonal[first] -= shift, beside[first] = bulge;
            beside[last] = 0.0;
        }
    }
}

/* Values [n] ascending, vectors [n, n] as columns; A is used up. */
PART_OF_EACH void eigen(int64_t n, double *A, double *values, double *vectors) {
    double axes[MOST_ROOTS * MOST_ROOTS], diagonal[MOST_ROOTS], beside[MOST_ROOTS];
    tridiagonal(n, A, axes, diagonal, beside);
    diagonalise(n, axes, diagonal, beside);
    int64_t order[MOST_ROOTS];
    for (int64_t i = 0; i < n; i++) { /* sorted by insertion */
        int64_t place = i;
        for (; place > 0 && diagonal[order[place - 1]] > diagonal[i]; place--) order[place] = order[place - 1];
        order[place] = i;
    }
    for (int64_t j = 0; j < n; j++) {
        values[j] = diagonal[order[j]];
        for (int64_t i = 0; i < n; i++) vectors[i * n + j] = axes[order[j] * n + i];
    }
}

static void eigen_small(int64_t n, double *A, double *values, double *vectors) { eigen(n, A, values, vectors); }

WIDER static void eigen_large(int64_t n, double *A, double *values, double *vectors) { eigen(n, A, values, vectors); }

void eigen_symmetric(int64_t n, double *A, double *values, double *vectors) {
    if (n >= LARGE) eigen_large(n, A, values, vectors);
    else if (n > 0) eigen_small(n, A, values, vectors);
}
