/* Two stored sets of samples: Mann-Whitney, Hodges-Lehmann, and the corrections for many rows. */
#include "harness/stats/two_samples.h"

#include "kernels/base/memory.h"
#include "kernels/base/pairs.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXACT = 20,                                /* samples a side up to which all choices are counted */
    BOTH = 2 * EXACT,                          /* samples in all */
    SUMS = EXACT * (2 * BOTH - EXACT + 1) + 1, /* doubled rank sums of one side: up to the EXACT largest ranks */
    LIST = 4096,                               /* differences that are listed at once rather than narrowed down */
};
static const double TAIL = 0.025, Z = 1.959963984540054; /* of the interval, a side; its normal quantile */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ways[u], u from 0 to n_a n_b: choices of ranks for which U is u, where nothing ties. They are the coefficients of the
 * Gaussian binomial, the product of (1 - q^(n_a + i)) / (1 - q^i) for i to n_b. Integers up to C(40, 20): exact. */
static void count_untied(size_t n_a, size_t n_b, double ways[EXACT * EXACT + 1]) {
    const size_t last = n_a * n_b;
    for (size_t u = 0; u <= last; u++) ways[u] = u == 0;
    for (size_t i = 1; i <= n_b; i++) {
        for (size_t u = last; u >= n_a + i; u--) ways[u] -= ways[u - n_a - i];
        for (size_t u = i; u <= last; u++) ways[u] += ways[u - i];
    }
}

/* ways[s]: choices of `pick` out of the n ascending doubled ranks that add up to s, one rank after the other. Returns
 * the greatest s. */
static size_t count_tied(const int *ranks, size_t n, size_t pick, double ways[SUMS]) {
    double table[EXACT + 1][SUMS]; /* by how many are chosen */
    const size_t last = pick * (2 * n - pick + 1);
    for (size_t k = 0; k <= pick; k++)
        for (size_t s = 0; s <= last; s++) table[k][s] = k == 0 && s == 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1 < pick ? i + 1 : pick, rank = (size_t)ranks[i]; k > 0; k--)
            for (size_t s = rank; s <= last && s <= k * rank; s++) table[k][s] += table[k - 1][s - rank];
    memcpy(ways, table[pick], (last + 1) * sizeof *ways);
    return last;
}

/* Doubled mid-ranks of the sorted values of both sides: of those that tie, first plus last rank. *ties: sum of t^3 - t. */
typedef struct ranks {
    double sum_a; /* doubled ranks of side a */
    double ties;
    int all[BOTH]; /* the doubled ranks, where n is small enough for the exact test */
} ranks;
static void rank_both(const double *a, size_t n_a, const double *b, size_t n_b, ranks *out) {
    const bool keep = n_a + n_b <= BOTH;
    *out = (ranks){.sum_a = 0};
    for (size_t i = 0, j = 0; i < n_a || j < n_b;) {
        const double value = j == n_b || (i < n_a && a[i] <= b[j]) ? a[i] : b[j];
        const size_t first = i + j + 1, i0 = i;
        while (i < n_a && a[i] == value) i++;
        while (j < n_b && b[j] == value) j++;
        const double t = (double)(i + j + 1 - first);
        out->ties += t * t * t - t;
        out->sum_a += (double)(i - i0) * (double)(first + i + j);
        if (keep)
            for (size_t r = first - 1; r < i + j; r++) out->all[r] = (int)(first + i + j);
    }
}

/* Twice the smaller tail, at most 1. */
static double exact_p(const ranks *r, size_t n_a, size_t n_b) {
    const size_t n = n_a + n_b, pick = n_a < n_b ? n_a : n_b;
    double ways[SUMS], at = r->sum_a, below = 0, above = 0, all = 0;
    size_t last = n_a * n_b;
    if (r->ties > 0) {
        if (n_b < n_a) at = (double)n * (double)(n + 1) - r->sum_a; /* of the smaller side */
        last = count_tied(r->all, n, pick, ways);
    } else {
        at = (r->sum_a - (double)n_a * (double)(n_a + 1)) / 2;
        count_untied(n_a, n_b, ways);
    }
    for (size_t s = 0; s <= last; s++) {
        all += ways[s];
        if ((double)s <= at) below += ways[s];
        if ((double)s >= at) above += ways[s];
    }
    return fmin(1, 2 * fmin(below, above) / all);
}

static double normal_p(const ranks *r, double n_a, double n_b) {
    const double n = n_a + n_b, u = r->sum_a / 2 - n_a * (n_a + 1) / 2;
    const double variance = n_a * n_b / 12 * ((n + 1) - r->ties / (n * (n - 1)));
    if (!(variance > 0)) return 1; /* all values are one */
    return fmin(1, erfc((fabs(u - n_a * n_b / 2) - 0.5) / sqrt(2 * variance)));
}

/* The largest c with P(U <= c - 1) <= TAIL, U without ties; 0: none. The closed interval from the c-th difference to the
 * c-th from above then holds the shift with 95 % at least, also where values tie. */
static uint64_t interval_rank(size_t n_a, size_t n_b) {
    if (n_a > EXACT || n_b > EXACT) {
        const double m = (double)n_a * (double)n_b, c = m / 2 - Z * sqrt(m * (double)(n_a + n_b + 1) / 12) + 0.5;
        return c >= 1 ? (uint64_t)c : 0;
    }
    double ways[EXACT * EXACT + 1], all = 0, below = 0;
    count_untied(n_a, n_b, ways);
    for (size_t u = 0; u <= n_a * n_b; u++) all += ways[u];
    uint64_t c = 0;
    while (c <= n_a * n_b && (below += ways[c]) <= TAIL * all) c++;
    return c;
}

/* The matrix of all b[j] - a[i] of sorted a and b: rounded differences too fall with i and rise with j, so a staircase
 * through it counts those up to a value in n_a + n_b steps. */
typedef struct matrix {
    const double *a, *b; /* ascending [n_a], [n_b] */
    size_t n_a, n_b;
    double *list; /* [room] */
    uint64_t room;
} matrix;

/* How many differences are <= v; *last: the greatest of them, *next: the smallest of the others (-inf, inf: none). */
static uint64_t count_up_to(const matrix *m, double v, double *last, double *next) {
    uint64_t count = 0;
    *last = -INFINITY, *next = INFINITY;
    for (size_t i = 0, j = 0; i < m->n_a; i++) {
        while (j < m->n_b && m->b[j] - m->a[i] <= v) j++;
        count += j;
        if (j > 0 && m->b[j - 1] - m->a[i] > *last) *last = m->b[j - 1] - m->a[i];
        if (j < m->n_b && m->b[j] - m->a[i] < *next) *next = m->b[j] - m->a[i];
    }
    return count;
}

/* The differences from lo to hi into m->list; how many. */
static size_t list_between(const matrix *m, double lo, double hi) {
    size_t count = 0;
    for (size_t i = 0, from = 0; i < m->n_a; i++) {
        while (from < m->n_b && m->b[from] - m->a[i] < lo) from++;
        for (size_t j = from; j < m->n_b && m->b[j] - m->a[i] <= hi; j++) m->list[count++] = m->b[j] - m->a[i];
    }
    return count;
}

/* Doubles in their order as integers, and back: halving that range ends after 64 steps whatever the values are. */
static int64_t order_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}
static double double_at(int64_t order) {
    const int64_t bits = order < 0 ? INT64_MIN - order : order;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The k-th smallest difference, k from 1. Bounds close in by turns: where a straight line through the counts puts it, in
 * the middle, and in the middle of the representable numbers; what then remains is listed. */
static double kth_difference(const matrix *m, uint64_t k) {
    double lo = m->b[0] - m->a[m->n_a - 1], hi = m->b[m->n_b - 1] - m->a[0];
    uint64_t below = 0, up_to = (uint64_t)m->n_a * m->n_b; /* differences < lo; <= hi */
    for (int turn = 0; lo < hi && up_to - below > m->room; turn = (turn + 1) % 3) {
        double v = turn == 0   ? lo + (hi - lo) * ((double)(k - below) / (double)(up_to - below))
                   : turn == 1 ? lo + (hi - lo) / 2
                               : double_at(order_of(lo) / 2 + order_of(hi) / 2);
        if (!(v >= lo && v < hi)) v = lo;
        double last, next;
        const uint64_t count = count_up_to(m, v, &last, &next);
        if (count >= k)
            hi = last, up_to = count;
        else
            lo = next, below = count;
    }
    if (!(lo < hi)) return lo;
    const size_t n = list_between(m, lo, hi);
    qsort(m->list, n, sizeof *m->list, ascending);
    return m->list[k - below - 1];
}

static hr_status check(const double *x, size_t n, const char *side) {
    if (n == 0) HR_FAIL(HR_ERR_INPUT, "side %s has no samples to compare: measure at least one", side);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            HR_FAIL(HR_ERR_INPUT, "sample %zu of %zu of side %s is not a finite number: leave it out", i, n, side);
    return HR_OK;
}

hr_status hr_two_samples_of(const double *a, size_t n_a, const double *b, size_t n_b, hr_two_samples *out) {
    HR_TRY(check(a, n_a, "A"));
    HR_TRY(check(b, n_b, "B"));
    const uint64_t all = (uint64_t)n_a * n_b, room = n_a + n_b > LIST ? n_a + n_b : LIST;
    double *sorted = hr_malloc(hr_mul(n_a + n_b + (all < room ? all : room), sizeof *sorted));
    if (!sorted) HR_FAIL(HR_ERR_MEMORY, "out of memory while comparing %zu samples with %zu", n_a, n_b);
    memcpy(sorted, a, n_a * sizeof *a);
    memcpy(sorted + n_a, b, n_b * sizeof *b);
    qsort(sorted, n_a, sizeof *sorted, ascending);
    qsort(sorted + n_a, n_b, sizeof *sorted, ascending);
    const matrix m = {sorted, sorted + n_a, n_a, n_b, sorted + n_a + n_b, room};

    ranks r;
    rank_both(m.a, n_a, m.b, n_b, &r);
    const double p = n_a <= EXACT && n_b <= EXACT ? exact_p(&r, n_a, n_b) : normal_p(&r, (double)n_a, (double)n_b);
    const uint64_t c = interval_rank(n_a, n_b), middle = (all + 1) / 2;
    const double under = kth_difference(&m, middle), over = all % 2 ? under : kth_difference(&m, middle + 1);
    *out = (hr_two_samples){.p = p,
                            .shift = under + (over - under) / 2,
                            .lo = c ? kth_difference(&m, c) : NAN,
                            .hi = c ? kth_difference(&m, all + 1 - c) : NAN};
    hr_free(sorted);
    return HR_OK;
}

void hr_adjust_holm(double *p, size_t n) {
    hr_pairs_holm(p, n);
}

void hr_adjust_bh(double *p, size_t n) {
    hr_pairs_bh(p, n);
}
