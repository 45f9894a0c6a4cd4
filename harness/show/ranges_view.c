/* What a profiler saw, beside what the recorder saw. */
#include "harness/show/stored_cell.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const hr_ranges_columns[] = {"source",
                                         "name",
                                         "n",
                                         "total_ns|=total (ms)|1e-6",
                                         "mean_ns|=mean (us)|1e-3",
                                         "median_ns|=median (us)|1e-3",
                                         "recorded_n",
                                         "recorded_ns|=recorder (us)|1e-3",
                                         "difference_pct|=difference %|1",
                                         NULL};

static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static double number(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Calls and mean of the ops that go by a range's name, "down:decode": all layers and kernels of it. */
static void sum_of(const json_t *ops, const char *name, double *calls, double *mean) {
    double ns = 0;
    size_t i;
    json_t *row;
    *calls = 0;
    json_array_foreach((json_t *)ops, i, row) {
        const char *op = json_string_value(json_object_get(row, "op"));
        const char *phase = json_string_value(json_object_get(row, "phase"));
        const size_t n = op ? strlen(op) : 0;
        if (!op || !phase || strncmp(op, name, n) || name[n] != ':' || strcmp(name + n + 1, phase)) continue;
        const double one = number(row, "mean_ns"), count = number(row, "n");
        *calls += count, ns += count * (isfinite(one) ? one : number(row, "median_ns"));
    }
    *mean = *calls > 0 ? ns / *calls : NAN;
}

static bool add_recorded(json_t *row, const json_t *ops) {
    const char *name = json_string_value(json_object_get(row, "name"));
    double calls, recorded;
    sum_of(ops, name ? name : "", &calls, &recorded);
    const double own = number(row, "mean_ns"), mean = isfinite(own) ? own : number(row, "total_ns") / number(row, "n");
    return json_object_set_new(row, "recorded_n", calls > 0 ? json_integer((json_int_t)calls) : json_null()) == 0 &&
           json_object_set_new(row, "recorded_ns", real_or_null(recorded)) == 0 &&
           json_object_set_new(row, "difference_pct", real_or_null(100 * (mean / recorded - 1))) == 0;
}

/* Source by source, the longest first. */
static int by_source_then_time(const void *a, const void *b) {
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    const char *s = json_string_value(json_object_get(x, "source")),
               *t = json_string_value(json_object_get(y, "source"));
    const int source = strcmp(s ? s : "", t ? t : "");
    const double p = number(x, "total_ns"), q = number(y, "total_ns");
    return source ? source : (q > p || isnan(p)) - (p > q || isnan(q));
}

static bool fill(const json_t *ranges, const json_t *ops, json_t **sorted, json_t *rows) {
    const size_t n = json_array_size(ranges);
    for (size_t i = 0; i < n; i++) sorted[i] = json_array_get(ranges, i);
    qsort(sorted, n, sizeof *sorted, by_source_then_time);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_copy(sorted[i]);
        if (!row || json_array_append_new(rows, row) != 0 || !add_recorded(row, ops)) return false;
    }
    return true;
}

hr_status hr_ranges_beside_ops(const json_t *ranges, const json_t *ops, json_t **out) {
    json_t **sorted = hr_calloc(json_array_size(ranges) + 1, sizeof *sorted), *rows = json_array();
    const bool ok = sorted && rows && fill(ranges, ops, sorted, rows);
    hr_free(sorted);
    if (ok) {
        *out = rows;
        return HR_OK;
    }
    json_decref(rows);
    HR_FAIL(HR_ERR_MEMORY, "out of memory for the ranges");
}
