/* bench-compare A B PAIRS FILTER [FLAGS...]: runs the benchmarks of two builds in pairs, in random order within each, and
 * says row by row whether B is faster. Prints a table; exit status 0, 2 (a run failed), 3 (no row is in both). */
#include "kernels/base/pairs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double effect = 0.02; /* shifts below 2 % are no matter */

typedef struct row {
    const char *name;
    double ns[2][HR_PAIRS_EXACT]; /* median of each run; 0: not there */
    double log_ratio[HR_PAIRS_EXACT];
    double shift, lo, hi, p;
} row;

typedef struct table {
    row *rows;
    size_t n, room;
} table;

static row *find(table *t, const char *name) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0) return &t->rows[i];
    if (t->n == t->room) {
        t->room = 2 * t->room + 64;
        row *more = realloc(t->rows, t->room * sizeof *more);
        if (!more) abort();
        t->rows = more;
    }
    t->rows[t->n] = (row){.name = strdup(name)};
    return &t->rows[t->n++];
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the repetitions of every benchmark in one output file. */
static int read_run(table *t, const char *file, int side, int pair) {
    json_t *root = json_load_file(file, 0, NULL), *list = json_object_get(root, "benchmarks"), *b;
    size_t i = 0;
    if (!json_is_array(list)) {
        json_decref(root);
        return 2;
    }
    while (i < json_array_size(list)) {
        const char *name = json_string_value(json_object_get(json_array_get(list, i), "run_name"));
        double ns[64];
        size_t n = 0;
        for (; i < json_array_size(list); i++) {
            b = json_array_get(list, i);
            if (strcmp(json_string_value(json_object_get(b, "run_name")), name) != 0) break;
            if (json_is_true(json_object_get(b, "error_occurred"))) continue;
            if (strcmp(json_string_value(json_object_get(b, "run_type")), "iteration") != 0) continue;
            if (n < 64) ns[n++] = json_number_value(json_object_get(b, "real_time"));
        }
        qsort(ns, n, sizeof *ns, by_value);
        if (n) find(t, name)->ns[side][pair] = ns[n / 2];
    }
    json_decref(root);
    return 0;
}

/* Runs one side with its output on nobody's terminal. */
static int run_side(table *t, char **flags, int side, int pair, const char *program) {
    char out[64], flag[96];
    snprintf(out, sizeof out, "/tmp/bench-compare.%d.json", (int)getpid());
    snprintf(flag, sizeof flag, "--benchmark_out=%s", out);
    const pid_t child = fork();
    if (child == 0) {
        flags[0] = (char *)(size_t)program, flags[1] = flag;
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(2);
        execv(program, flags);
        _exit(127);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
        fprintf(stderr, "bench-compare: %s ended with status %d\n", program, status);
        return 2;
    }
    status = read_run(t, out, side, pair);
    remove(out);
    if (status) fprintf(stderr, "bench-compare: %s wrote no results\n", program);
    return status;
}

/* Keeps rows that every run of both sides has. */
static size_t keep_common(table *t, size_t pairs) {
    size_t kept = 0, all = t->n;
    for (size_t i = 0; i < all; i++) {
        int whole = 1;
        for (size_t p = 0; p < pairs; p++) whole &= t->rows[i].ns[0][p] > 0 && t->rows[i].ns[1][p] > 0;
        if (whole) t->rows[kept++] = t->rows[i];
    }
    t->n = kept;
    return all - kept;
}

static double median(const double *x, size_t n) {
    double sorted[HR_PAIRS_EXACT];
    memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static void judge(table *t, size_t pairs) {
    double *p = malloc((t->n + 1) * sizeof *p);
    if (!p) abort();
    for (size_t i = 0; i < t->n; i++) {
        row *r = &t->rows[i];
        for (size_t k = 0; k < pairs; k++) r->log_ratio[k] = log(r->ns[1][k] / r->ns[0][k]);
        r->shift = hr_pairs_shift(r->log_ratio, pairs, &r->lo, &r->hi);
        p[i] = hr_pairs_p(r->log_ratio, pairs);
    }
    hr_pairs_holm(p, t->n);
    for (size_t i = 0; i < t->n; i++) t->rows[i].p = p[i];
    free(p);
}

static double percent(double log_ratio) {
    return 100 * (exp(log_ratio) - 1);
}

static void print(const table *t, size_t pairs, size_t left_out) {
    size_t counts[4] = {0}, width = 9;
    for (size_t i = 0; i < t->n; i++)
        if (strlen(t->rows[i].name) > width) width = strlen(t->rows[i].name);
    printf("%-*s %12s %12s %9s %19s %8s  verdict\n", (int)width, "benchmark", "base us", "new us", "time",
           "95 % interval", "p (Holm)");
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        const hr_pairs_verdict v = hr_pairs_judge(r->shift, r->lo, r->hi, r->p, effect);
        counts[v]++;
        printf("%-*s %12.3f %12.3f %+8.1f%% %+8.1f%% ..%+7.1f%% %8.4f  %s\n", (int)width, r->name,
               median(r->ns[0], pairs) / 1e3, median(r->ns[1], pairs) / 1e3, percent(r->shift), percent(r->lo),
               percent(r->hi), r->p, hr_pairs_verdicts[v]);
    }
    printf("%zu pairs, %zu rows: %zu same, %zu faster, %zu slower, %zu inconclusive; %zu rows are not in both\n", pairs,
           t->n, counts[0], counts[1], counts[2], counts[3], left_out);
    if (2.0 * (double)t->n / (double)((size_t)1 << pairs) >= 0.05)
        printf("with %zu rows, %zu pairs cannot show a difference (p >= 2 / 2^pairs, times the rows): more PAIRS or a "
               "narrower BENCH_FILTER\n",
               t->n, pairs);
}

int main(int argc, char **argv) {
    enum { FIXED = 6 };
    const long pairs = argc > 4 ? strtol(argv[3], NULL, 10) : 0;
    if (pairs < 1 || pairs > HR_PAIRS_EXACT) {
        fprintf(stderr, "usage: bench-compare BASE_PROGRAM NEW_PROGRAM PAIRS(1-%d) FILTER [--benchmark_...]\n",
                HR_PAIRS_EXACT);
        return 2;
    }
    char filter[1024];
    snprintf(filter, sizeof filter, "--benchmark_filter=%s", argv[4]);
    char **flags = calloc((size_t)argc + FIXED, sizeof *flags);
    if (!flags) return 2;
    char *fixed[FIXED - 2] = {filter, "--benchmark_min_time=0.02", "--benchmark_repetitions=3",
                              "--benchmark_out_format=json"};
    memcpy(flags + 2, fixed, sizeof fixed);
    memcpy(flags + FIXED, argv + 5, (size_t)(argc - 5) * sizeof *flags);
    table t = {0};
    srand((unsigned)time(NULL));
    int status = 0;
    for (int p = 0; p < pairs && !status; p++) {
        const int first = rand() >> 8 & 1;
        for (int i = 0; i < 2 && !status; i++) status = run_side(&t, flags, first ^ i, p, argv[1 + (first ^ i)]);
        fprintf(stderr, "\rbench-compare: pair %d of %ld%s", p + 1, pairs, p + 1 == pairs ? "\n" : "");
    }
    if (!status) {
        const size_t left_out = keep_common(&t, (size_t)pairs);
        judge(&t, (size_t)pairs);
        print(&t, (size_t)pairs, left_out);
        status = t.n ? 0 : 3;
    }
    for (size_t i = 0; i < t.n; i++) free((void *)(size_t)t.rows[i].name);
    free(t.rows);
    free(flags);
    return status;
}
