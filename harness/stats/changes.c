/* Change points: where the energy distance of the two sides is largest, kept when Student's t says so. */
#include "harness/stats/changes.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum {
    ROUNDS = 4, /* of putting changes where their sides differ most; two places can each prefer the other */
    EDGE = 3,   /* points a side at least where a place is sought: two nights are a spike */
};

hr_changes_rule hr_changes_rule_default(void) {
    return (hr_changes_rule){.window = 50, .side = 10, .stayed = 5, .p = 0.001, .magnitude = 0.02};
}

typedef struct series {
    const double *values; /* [n] */
    size_t n;
    const hr_changes_rule *rule;
    size_t *at;      /* changes, ascending [n_at]; one place a value */
    double *scratch; /* [n] */
    size_t n_at;
} series;

/* Part of the integral of Student's t beyond t, both tails: I_x(dof / 2, 1 / 2) at x = dof / (dof + t^2), by the continued
 * fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), on the side where it converges. */
static double beta_share(double a, double b, double x) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - beta_share(b, a, 1 - x);
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a;
    /* Lentz's evaluation from the front: value is the product of c over d. */
    double c = 1, d = 1 / (1 - (a + b) / (a + 1) * x), value = d;
    for (int i = 1; i < 500; i++) {
        const double even = i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i));
        const double odd = -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1));
        d = 1 / (1 + even * d), c = 1 + even / c;
        value *= c * d;
        d = 1 / (1 + odd * d), c = 1 + odd / c;
        value *= c * d;
        if (fabs(c * d - 1) < 1e-15) break;
    }
    return front * value;
}

/* Student's t of two sides with one variance, two-sided. Sides without spread differ surely, or not at all. */
static double student_p(const double *x, size_t n_x, const double *y, size_t n_y) {
    double mean_x = 0, mean_y = 0, squares = 0;
    for (size_t i = 0; i < n_x; i++) mean_x += (x[i] - x[0]) / (double)n_x;
    for (size_t i = 0; i < n_y; i++) mean_y += (y[i] - x[0]) / (double)n_y;
    for (size_t i = 0; i < n_x; i++) squares += (x[i] - x[0] - mean_x) * (x[i] - x[0] - mean_x);
    for (size_t i = 0; i < n_y; i++) squares += (y[i] - x[0] - mean_y) * (y[i] - x[0] - mean_y);
    const double dof = (double)(n_x + n_y) - 2, difference = mean_y - mean_x;
    if (difference == 0 || !(dof > 0)) return 1;
    const double t2 = difference * difference / (squares / dof * (1 / (double)n_x + 1 / (double)n_y));
    return isfinite(t2) ? beta_share(dof / 2, 0.5, dof / (dof + t2)) : 0;
}

static double median_of(series *s, size_t from, size_t to) {
    memcpy(s->scratch, s->values + from, (to - from) * sizeof *s->scratch);
    return hr_median(s->scratch, to - from);
}

/* What stands at `at` between the ends of the two sides. */
static hr_change look(series *s, size_t from, size_t at, size_t to) {
    hr_change c = {.at = at, .p = student_p(s->values + from, at - from, s->values + at, to - at), .settled = true};
    c.from = median_of(s, from, at), c.to = median_of(s, at, to);
    c.shift = c.to / c.from - 1;
    return c;
}

static bool holds(const series *s, const hr_change *c) {
    return c->p < s->rule->p && fabs(c->shift) >= s->rule->magnitude;
}

static double distance_to(const double *x, size_t n, double value) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs(x[i] - value);
    return sum;
}

/* The point of [from, to) with `side` points before and behind it at which the two sides' energy distance is largest: 2
 * mean |x - y| - mean |x - x'| - mean |y - y'|, times n_x n_y / (n_x + n_y). The sums follow as the point moves. 0: none. */
static size_t best_split(const series *s, size_t from, size_t to, size_t side) {
    const size_t n = to - from;
    const double *x = s->values + from;
    double all = 0, left = 0, right, most = 0;
    size_t best = 0;
    if (n < 2 * side) return 0;
    for (size_t i = 1; i < n; i++) all += distance_to(x, i, x[i]);
    right = all;
    for (size_t k = 1; k <= n - side; k++) { /* x[k - 1] goes to the left */
        left += distance_to(x, k - 1, x[k - 1]);
        right -= distance_to(x + k, n - k, x[k - 1]);
        if (k < side) continue;
        const double n_x = (double)k, n_y = (double)(n - k);
        const double energy =
            2 * (all - left - right) / (n_x * n_y) - 2 * left / (n_x * (n_x - 1)) - 2 * right / (n_y * (n_y - 1));
        if (energy * n_x * n_y > most) most = energy * n_x * n_y, best = from + k;
    }
    return best;
}

static void insert(series *s, size_t at) {
    size_t i = s->n_at;
    while (i > 0 && s->at[i - 1] > at) i--;
    if (i > 0 && s->at[i - 1] == at) return;
    memmove(s->at + i + 1, s->at + i, (s->n_at++ - i) * sizeof *s->at);
    s->at[i] = at;
}

/* Splits [from, to) for as long as the parts differ. */
static void split(series *s, size_t from, size_t to) {
    const size_t at = best_split(s, from, to, s->rule->side);
    if (at == 0) return;
    const hr_change c = look(s, from, at, to);
    if (!holds(s, &c)) return;
    insert(s, at);
    split(s, from, at);
    split(s, at, to);
}

/* The sides of change i: to its neighbours, and half a window at most. */
static void sides(const series *s, size_t i, size_t *from, size_t *to) {
    const size_t half = s->rule->window / 2, at = s->at[i];
    *from = i > 0 ? s->at[i - 1] : 0, *to = i + 1 < s->n_at ? s->at[i + 1] : s->n;
    if (at - *from > half) *from = at - half;
    if (*to - at > half) *to = at + half;
}

/* Whether change i holds between its neighbours, with `side` points a side. Where its sides differ most nearer to a
 * neighbour or to an end of the series than that, the level there is too short to be one. */
static bool stands(series *s, size_t i, double *p) {
    size_t from, to;
    sides(s, i, &from, &to);
    const size_t side = s->rule->side, place = best_split(s, from, to, side < EDGE ? side : EDGE);
    const hr_change c = look(s, from, s->at[i], to);
    const bool cut_before = from == (i > 0 ? s->at[i - 1] : 0),
               cut_behind = to == (i + 1 < s->n_at ? s->at[i + 1] : s->n);
    *p = c.p;
    return s->at[i] - from >= side && to - s->at[i] >= side && holds(s, &c) && !(cut_before && place - from < side) &&
           !(cut_behind && to - place < side);
}

/* Windows overlap, so that one change may have been found in two places. Leaves out the least certain until all stand. */
static void keep_those_that_stand(series *s) {
    while (s->n_at > 0) {
        size_t worst = s->n_at;
        double worst_p = -1, p;
        for (size_t i = 0; i < s->n_at; i++)
            if (!stands(s, i, &p) && p > worst_p) worst = i, worst_p = p;
        if (worst == s->n_at) return;
        memmove(s->at + worst, s->at + worst + 1, (--s->n_at - worst) * sizeof *s->at);
    }
}

/* A window's edge may have cut the side of a change: each moves to where its own sides differ most. */
static void settle_places(series *s) {
    for (int round = 0; round < ROUNDS; round++) {
        bool moved = false;
        for (size_t i = 0; i < s->n_at; i++) {
            size_t from, to;
            sides(s, i, &from, &to);
            const size_t at = best_split(s, from, to, s->rule->side);
            if (at != 0 && at != s->at[i]) s->at[i] = at, moved = true;
        }
        if (!moved) return;
    }
}

/* The longest run of newest points, fewer than a side but `stayed` at least, that all lie beyond the level before them, on
 * one side of it and by the smallest magnitude. */
static bool stayed(series *s, hr_change *out) {
    const hr_changes_rule *rule = s->rule;
    const size_t begin = s->n_at > 0 ? s->at[s->n_at - 1] : 0;
    if (rule->stayed == 0) return false;
    for (size_t k = rule->side - 1; k >= rule->stayed && k > 0; k--) {
        if (s->n - begin < rule->side + k) continue;
        const size_t at = s->n - k, from = at - begin > rule->window - k ? at - (rule->window - k) : begin;
        *out = look(s, from, at, s->n);
        out->settled = false;
        if (!holds(s, out)) continue;
        const double before = median_of(s, from, at), way = out->shift < 0 ? -1 : 1;
        size_t beyond = at;
        while (beyond < s->n && way * (s->values[beyond] / before - 1) >= rule->magnitude) beyond++;
        if (beyond == s->n) return true;
    }
    return false;
}

static hr_status check(const double *values, size_t n, const hr_changes_rule *rule) {
    if (rule->side < 2 || rule->window < 2 * rule->side)
        HR_FAIL(HR_ERR_INPUT, "a window of %zu points has no room for %zu a side: at least 2 a side and twice that",
                rule->window, rule->side);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]) || values[i] <= 0)
            HR_FAIL(HR_ERR_INPUT, "point %zu of %zu is not a number over zero: leave it out", i, n);
    return HR_OK;
}

hr_status hr_changes_of(const double *values, size_t n, const hr_changes_rule *rule, hr_change *out, size_t most,
                        size_t *found) {
    *found = 0;
    HR_TRY(check(values, n, rule));
    series s = {.values = values, .n = n, .rule = rule};
    s.scratch = hr_malloc(hr_mul(n, sizeof *s.scratch));
    s.at = hr_malloc(hr_mul(n, sizeof *s.at));
    if (!s.scratch || !s.at) {
        hr_free(s.scratch);
        hr_free(s.at);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while looking for changes in %zu points", n);
    }
    for (size_t from = 0, to = 0; to < n; from += rule->window / 2) {
        to = n - from > rule->window ? from + rule->window : n;
        split(&s, from, to);
    }
    keep_those_that_stand(&s);
    settle_places(&s);
    keep_those_that_stand(&s);

    hr_change newest;
    const bool unsettled = stayed(&s, &newest);
    const size_t all = s.n_at + unsettled, skip = all > most ? all - most : 0;
    for (size_t i = skip; i < s.n_at; i++) {
        size_t from, to;
        sides(&s, i, &from, &to);
        out[(*found)++] = look(&s, from, s.at[i], to);
    }
    if (unsettled && *found < most) out[(*found)++] = newest;
    hr_free(s.scratch);
    hr_free(s.at);
    return HR_OK;
}
