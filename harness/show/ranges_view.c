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
                                         "recorded_mean_ns|=recorder: mean (us)|1e-3",
                                         "recorded_median_ns|=median (us)|1e-3",
                                         "difference_pct|=medians differ (%)|1",
                                         NULL};

static json_t *real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static double number(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Calls, and mean and median of one, of the ops that go by a range's name, "down:decode": over all layers and kernels. */
typedef struct op_sum {
    double calls, mean, median;
} op_sum;

static op_sum sum_of(const json_t *ops, const char *name) {
    op_sum s = {0};
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        const char *op = json_string_value(json_object_get(row, "op"));
        const char *phase = json_string_value(json_object_get(row, "phase"));
        const size_t n = op ? strlen(op) : 0;
        if (!op || !phase || strncmp(op, name, n) || name[n] != ':' || strcmp(name + n + 1, phase)) continue;
        const double count = number(row, "n");
        s.calls += count;
        s.mean += count * number(row, "mean_ns"); /* NaN in stores before version 4 */
        s.median += count * number(row, "median_ns");
    }
    s.mean /= s.calls, s.median /= s.calls; /* NaN without calls */
    return s;
}

/* Medians, where both have one: a burst of other work on the machine moves a mean far. */
static double difference(const json_t *row, const op_sum *s) {
    const double median = number(row, "median_ns"), mean = number(row, "mean_ns");
    if (isfinite(median)) return 100 * (median / s->median - 1);
    return 100 * ((isfinite(mean) ? mean : number(row, "total_ns") / number(row, "n")) / s->mean - 1);
}

static bool add_recorded(json_t *row, const json_t *ops) {
    const char *name = json_string_value(json_object_get(row, "name"));
    const op_sum s = sum_of(ops, name ? name : "");
    json_t *calls = s.calls > 0 ? json_integer((json_int_t)s.calls) : json_null();
    return json_object_set_new(row, "recorded_n", calls) == 0 &&
           json_object_set_new(row, "recorded_mean_ns", real_or_null(s.mean)) == 0 &&
           json_object_set_new(row, "recorded_median_ns", real_or_null(s.median)) == 0 &&
           json_object_set_new(row, "difference_pct", real_or_null(difference(row, &s))) == 0;
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
