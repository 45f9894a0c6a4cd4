/* Verdicts over made-up sessions whose truth is known: how often a gate of 200 cells turns red when nothing changed, and how
 * often it finds what did. Seeded, so the same numbers everywhere.
 *
 * A session is 13 pairs of runs, A and B in random order; a run takes three samples of each cell, whose median is what counts;
 * one observation a pair: the logarithm of B's median over A's. As in a gate: exact sign-flip test, Holm over the cells,
 * Hodges-Lehmann interval, verdict. HR_TEST_QUICK=1 leaves out most kinds of noise. HR_TRUST_OUT=FILE takes ten times the
 * sessions (a minute) and writes all rates as a table (TSV) for the report on how far verdicts can be trusted. */
#include "harness/stats/changes.h"
#include "harness/stats/two_samples.h"
#include "kernels/base/pairs.h"
#include "kernels/base/random.h"
#include "tests/hr_test.h"

#include <stdbool.h>

enum { CELLS = 200, PAIRS = 13, SAMPLES = 3, SESSIONS = 1000, STORED = PAIRS * SAMPLES };
static const double EFFECT = 0.02, LEVEL = 0.05;

/* What disturbs a time, in logarithms. Cells are disturbed independently, which is the worst for a family of tests; but for
 * drift, which is the machine's. */
typedef struct noise {
    const char *name;
    double white;    /* of a sample */
    double heavy;    /* scale of Student's t with two degrees of freedom: no finite variance */
    double drift;    /* from the first run to the last: at most this, in either direction */
    double wave;     /* of twelve runs' length */
    double clusters; /* distance of two clusters: where a run's memory fell, three of ten runs */
    double chained;  /* an autoregressive chain over all samples of a cell in order, 0.95 from one to the next */
    bool a_first;    /* A always before B */
} noise;
static const noise kinds[] = {
    {.name = "white 1 %", .white = 0.01},
    {.name = "heavy tails", .white = 0.005, .heavy = 0.01},
    {.name = "drift 20 % and waves", .white = 0.01, .drift = 0.2, .wave = 0.05},
    {.name = "two clusters 12 % apart", .white = 0.01, .clusters = 0.12},
    {.name = "autocorrelated 5 %", .white = 0.005, .chained = 0.05},
    {.name = "all of these",
     .white = 0.005,
     .heavy = 0.005,
     .drift = 0.1,
     .wave = 0.02,
     .clusters = 0.08,
     .chained = 0.03},
};

static FILE *trust; /* NULL: nobody asked for the table */

static double uniform(uint64_t *seed) {
    return ((double)(hr_random(seed) >> 11) + 0.5) * 0x1p-53;
}
/* The sum of four numbers of 16 bits: nearly normal, ends at 3.5, and cheap. */
static double normal(uint64_t *seed) {
    const uint64_t r = hr_random(seed);
    const double sum = (double)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
    return (sum - 2 * 65535.0) * (1.7320508075688772 / 65536);
}
static double student_2(uint64_t *seed) {
    const double u = uniform(seed);
    return (2 * u - 1) / sqrt(2 * u * (1 - u));
}
static double median_3(const double *x) {
    const double low = fmin(x[0], x[1]), high = fmax(x[0], x[1]);
    return fmax(low, fmin(high, x[2]));
}

typedef struct session {
    bool b_first[PAIRS];
    double drift[2 * PAIRS]; /* of each run in order */
} session;
static void session_begin(const noise *k, uint64_t *seed, session *s) {
    const double slope = k->drift * (2 * uniform(seed) - 1), phase = 6.283185307179586 * uniform(seed);
    for (size_t i = 0; i < PAIRS; i++) s->b_first[i] = !k->a_first && (hr_random(seed) >> 63);
    for (size_t run = 0; run < 2 * PAIRS; run++)
        s->drift[run] = slope * (double)run / (2 * PAIRS - 1) + k->wave * sin(phase + 0.5 * (double)run);
}

/* The samples of one cell, B after A: x[2][PAIRS][SAMPLES]. */
static void measure(const noise *k, const session *s, uint64_t *seed, double x[2][PAIRS][SAMPLES]) {
    double chain = k->chained * normal(seed);
    for (size_t run = 0; run < 2 * PAIRS; run++) {
        double *to = x[(run & 1) != s->b_first[run / 2]][run / 2];
        const double place = k->clusters > 0 && uniform(seed) < 0.3 ? k->clusters : 0;
        for (size_t i = 0; i < SAMPLES; i++) {
            to[i] = s->drift[run] + place + k->white * normal(seed);
            if (k->heavy > 0) to[i] += k->heavy * student_2(seed);
            if (k->chained > 0) to[i] += chain = 0.95 * chain + 0.3122498999199199 * k->chained * normal(seed);
        }
    }
}
static void observe(const noise *k, const session *s, uint64_t *seed, double d[PAIRS]) {
    double x[2][PAIRS][SAMPLES];
    measure(k, s, seed, x);
    for (size_t i = 0; i < PAIRS; i++) d[i] = median_3(x[1][i]) - median_3(x[0][i]);
}

/* A rate as a row of the table, with Wilson's interval of 95 %; limit: the highest that passes, NaN where none is set. */
static double rate(const char *what, const char *kind, double shift, const char *rule, int hits, int of, double limit) {
    const double z = 1.959963984540054, n = of, p = hits / n, middle = (p + z * z / (2 * n)) / (1 + z * z / n);
    const double half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    if (!trust) return p;
    fprintf(trust, "%s\t%s\t%g\t%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t", what, kind, 100 * shift, rule, of, hits, 100 * p,
            100 * fmax(0, middle - half), 100 * fmin(1, middle + half));
    fprintf(trust, isnan(limit) ? "\n" : "%.1f\n", 100 * limit);
    return p;
}

static int sessions(void) {
    return trust ? 10 * SESSIONS : SESSIONS;
}
/* 6.4 % for a thousand sessions: the level and two standard errors; less for more. */
static double limit_of(int n) {
    return LEVEL + (0.064 - LEVEL) * sqrt((double)SESSIONS / n);
}

static bool red(const double d[PAIRS], double adjusted) {
    if (!(adjusted < LEVEL)) return false; /* no verdict without it: spares the interval */
    double lo, hi;
    const double shift = hr_pairs_shift(d, PAIRS, &lo, &hi);
    const hr_pairs_verdict v = hr_pairs_judge(shift, lo, hi, adjusted, EFFECT);
    return v == HR_PAIRS_SLOWER || v == HR_PAIRS_FASTER;
}

/* In how many sessions of n any cell has an adjusted p under the level, and any a verdict. */
static void alarms(const noise *k, int n, int *by_p, int *by_verdict) {
    static double d[CELLS][PAIRS], p[CELLS];
    *by_p = *by_verdict = 0;
    for (int i = 0; i < n; i++) {
        uint64_t seed = hr_mix64((uint64_t)i + 1);
        session s;
        session_begin(k, &seed, &s);
        for (size_t c = 0; c < CELLS; c++) {
            observe(k, &s, &seed, d[c]);
            p[c] = hr_pairs_p(d[c], PAIRS);
        }
        hr_pairs_holm(p, CELLS);
        bool any_p = false, any_red = false;
        for (size_t c = 0; c < CELLS; c++) any_p |= p[c] < LEVEL, any_red |= red(d[c], p[c]);
        *by_p += any_p, *by_verdict += any_red;
    }
}

/* Nothing changed, and a gate of 200 cells stays within its level whatever the noise is. */
static void nothing_changed(void **state) {
    (void)state;
    const int n = sessions();
    const double limit = limit_of(n);
    const size_t all = sizeof kinds / sizeof *kinds;
    for (size_t k = 0; k < all; k++) {
        if (hr_test_quick() && k > 0 && k + 1 < all) continue; /* white and all at once remain */
        int by_p, by_verdict;
        alarms(&kinds[k], n, &by_p, &by_verdict);
        const double p = rate("false alarm", kinds[k].name, 0, "adjusted p", by_p, n, limit);
        const double v = rate("false alarm", kinds[k].name, 0, "verdict", by_verdict, n, limit);
        if (p > limit || v > limit)
            fail_msg(
                "%s, %d sessions: expected at most %.1f %% with a false alarm, got %.1f %% by p, %.1f %% by verdict",
                kinds[k].name, n, 100 * limit, 100 * p, 100 * v);
        /* Independent cells, of which each has the smallest p with 2 / 2^13: 1 - (1 - 2 / 8192)^200 = 4.77 %. */
        const double want = 0.0477, least = want - 4 * sqrt(want * (1 - want) / n);
        if (k == 0 && !(p >= least))
            fail_msg("%s: expected %.1f %% at least by p, which is what Holm gives away, got %.1f %%", kinds[k].name,
                     100 * least, 100 * p);
    }
}

/* The same sessions judged as they must not be: A always before B under drift, and all samples of a session as if they were
 * independent (Mann-Whitney under Holm). Both turn red most of the time; so the test above can fail. */
static void without_pairs(void **state) {
    (void)state;
    int by_p, by_verdict;
    const int n = 50;
    const noise fixed = {.name = "drift 20 %, A always first", .white = 0.002, .drift = 0.2, .a_first = true};
    alarms(&fixed, n, &by_p, &by_verdict);
    const double p = rate("control", fixed.name, 0, "adjusted p", by_p, n, NAN);
    if (!(p > 0.5)) fail_msg("A always first: expected a false alarm in most sessions, got %.1f %%", 100 * p);

    const noise *chained = &kinds[4];
    const int few = 10;
    int pooled = 0;
    for (int i = 0; i < few; i++) {
        uint64_t seed = hr_mix64((uint64_t)i + 1);
        session s;
        double x[2][PAIRS][SAMPLES], each[CELLS];
        session_begin(chained, &seed, &s);
        for (int j = 0; j < PAIRS; j++) s.b_first[j] = false;
        for (size_t c = 0; c < CELLS; c++) {
            double block[2][STORED]; /* all of A, then all of B: two stored runs */
            hr_two_samples two;
            measure(chained, &s, &seed, x);
            for (size_t j = 0; j < 2 * STORED; j++) {
                const size_t run = j / SAMPLES;
                block[j / STORED][j % STORED] = x[run & 1][run / 2][j % SAMPLES];
            }
            assert_int_equal(hr_two_samples_of(block[0], STORED, block[1], STORED, &two), HR_OK);
            each[c] = two.p;
        }
        hr_adjust_holm(each, CELLS);
        bool any = false;
        for (size_t c = 0; c < CELLS; c++) any |= each[c] < LEVEL;
        pooled += any;
    }
    const double u = rate("control", "autocorrelated 5 %, stored runs", 0, "Mann-Whitney, Holm", pooled, few, NAN);
    if (!(u > 0.5)) fail_msg("stored runs: expected a false alarm in most sessions, got %.1f %%", 100 * u);
}

typedef struct found {
    int slower, faster, of;
} found;

/* One cell of 200 is slower by 1, 2, 3, 5 %: in how many sessions it is called so, at what noise of a sample. */
static const double shifts[] = {0.01, 0.02, 0.03, 0.05}, noises[] = {0.005, 0.01, 0.02};
enum { SHIFTS = sizeof shifts / sizeof *shifts, NOISES = sizeof noises / sizeof *noises };

static void find(const noise *k, int n, size_t planted, found out[SHIFTS]) {
    static double d[CELLS][PAIRS], null_p[CELLS], p[CELLS];
    memset(out, 0, SHIFTS * sizeof *out);
    for (int i = 0; i < n; i++) {
        uint64_t seed = hr_mix64((uint64_t)i + 1);
        session s;
        session_begin(k, &seed, &s);
        for (size_t c = 0; c < CELLS; c++) {
            observe(k, &s, &seed, d[c]);
            null_p[c] = c < planted ? NAN : hr_pairs_p(d[c], PAIRS);
        }
        for (size_t at = 0; at < SHIFTS; at++) {
            static double slow[CELLS][PAIRS];
            for (size_t c = 0; c < CELLS; c++) {
                p[c] = null_p[c];
                for (size_t j = 0; c < planted && j < PAIRS; j++) slow[c][j] = d[c][j] + log1p(shifts[at]);
                if (c < planted) p[c] = hr_pairs_p(slow[c], PAIRS);
            }
            hr_pairs_holm(p, CELLS);
            for (size_t c = 0; c < planted; c++) {
                double lo, hi;
                const double shift = hr_pairs_shift(slow[c], PAIRS, &lo, &hi);
                const hr_pairs_verdict v = hr_pairs_judge(shift, lo, hi, p[c], EFFECT);
                out[at].slower += v == HR_PAIRS_SLOWER, out[at].faster += v == HR_PAIRS_FASTER, out[at].of++;
            }
        }
    }
}

/* 3 % are found on a quiet machine, where samples differ by 0.5 %, in one cell of 200 as in all of them; 1 % is under the
 * effect that matters, and nothing that got slower is ever called faster. */
static void slowdowns_are_found(void **state) {
    (void)state;
    const int n = sessions() / 5, few = sessions() / 100;
    for (size_t k = 0; k < NOISES; k++) {
        char name[32];
        snprintf(name, sizeof name, "white %g %%", 100 * noises[k]);
        const noise white = {.name = name, .white = noises[k]};
        found one[SHIFTS], all[SHIFTS];
        find(&white, n, 1, one);
        find(&white, few, CELLS, all);
        for (size_t i = 0; i < SHIFTS; i++) {
            rate("one of 200 slower", name, shifts[i], "verdict", one[i].slower, one[i].of, NAN);
            rate("all 200 slower", name, shifts[i], "verdict", all[i].slower, all[i].of, NAN);
            if (one[i].faster + all[i].faster > 0)
                fail_msg("%s, %g %% slower: expected never faster, got %d", name, 100 * shifts[i],
                         one[i].faster + all[i].faster);
        }
        if (k > 0) continue;
        if (one[0].slower + all[0].slower > 0)
            fail_msg("%s, 1 %% slower: expected no verdict, got %d", name, one[0].slower + all[0].slower);
        if (!(one[2].slower >= 0.95 * one[2].of && all[2].slower >= 0.95 * all[2].of))
            fail_msg("%s, 3 %% slower: expected to find 95 %% at least, got %d of %d in one cell, %d of %d in all",
                     name, one[2].slower, one[2].of, all[2].slower, all[2].of);
    }
}

/* Series of 400 nights: how many show a change where none is, and how many show a step of 3 % at night 250 within three nights
 * of it. */
static void nights(void **state) {
    (void)state;
    const hr_changes_rule rule = hr_changes_rule_default();
    const int n = sessions();
    for (size_t k = 0; k < NOISES; k++) {
        int false_ones = 0, right = 0;
        char name[32];
        snprintf(name, sizeof name, "nights, white %g %%", 100 * noises[k]);
        for (int i = 0; i < n; i++) {
            uint64_t seed = hr_mix64((uint64_t)i + 1);
            double x[400];
            hr_change c[8];
            size_t n_found;
            bool hit = false;
            for (size_t j = 0; j < 400; j++) x[j] = exp(noises[k] * normal(&seed));
            assert_int_equal(hr_changes_of(x, 400, &rule, c, 8, &n_found), HR_OK);
            false_ones += n_found > 0;
            for (size_t j = 250; j < 400; j++) x[j] *= 1.03;
            assert_int_equal(hr_changes_of(x, 400, &rule, c, 8, &n_found), HR_OK);
            for (size_t j = 0; j < n_found; j++) hit |= c[j].at >= 247 && c[j].at <= 253;
            right += hit;
        }
        const double wrong = rate("false change", name, 0, "series of 400", false_ones, n, LEVEL);
        const double seen = rate("change found", name, 0.03, "within 3 nights", right, n, NAN);
        if (wrong > LEVEL)
            fail_msg("%s: expected changes in at most %.1f %% of series without, got %.1f %%", name, 100 * LEVEL,
                     100 * wrong);
        if (k == 0 && !(seen >= 0.95))
            fail_msg("%s: expected to find a step of 3 %% in 95 %% of series at least, got %.1f %%", name, 100 * seen);
    }
}

int main(void) {
    const char *file = getenv("HR_TRUST_OUT");
    if (file && !(trust = fopen(file, "w"))) {
        print_error("HR_TRUST_OUT: %s cannot be written\n", file);
        return 1;
    }
    if (trust) fprintf(trust, "what\tnoise\tshift_pct\trule\tof\thits\trate_pct\tlo95_pct\thi95_pct\tlimit_pct\n");
    if (hr_test_quick()) printf("# HR_TEST_QUICK: two kinds of noise of %zu\n", sizeof kinds / sizeof *kinds);
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_changed), cmocka_unit_test(without_pairs),
                                       cmocka_unit_test(slowdowns_are_found), cmocka_unit_test(nights)};
    const int failed = cmocka_run_group_tests_name("false_alarms", tests, NULL, NULL);
    if (trust && fclose(trust) != 0) {
        print_error("HR_TRUST_OUT: %s was not written to its end\n", file);
        return 1;
    }
    return failed;
}
