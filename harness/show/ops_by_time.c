/* Where the time of a cell went. */
#include "harness/show/cell_view.h"

#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct op_sum {
    const char *phase, *op, *kernel; /* borrowed */
    double calls, ns, bytes, flops;  /* sums over layers and calls; a call counts with its median time */
} op_sum;

static const char *word(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}
static double number(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

static size_t fold(const json_t *ops, op_sum *sums) {
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        const char *phase = word(row, "phase"), *op = word(row, "op"), *kernel = word(row, "kernel");
        size_t k = 0;
        while (k < n && (strcmp(sums[k].phase, phase) || strcmp(sums[k].op, op) || strcmp(sums[k].kernel, kernel))) k++;
        if (k == n) sums[n++] = (op_sum){.phase = phase, .op = op, .kernel = kernel};
        double calls = number(row, "n");
        sums[k].calls += calls;
        sums[k].ns += calls * number(row, "median_ns");
        sums[k].bytes += calls * number(row, "bytes");
        sums[k].flops += calls * number(row, "flops");
    }
    return n;
}

static int by_phase_then_time(const void *a, const void *b) {
    const op_sum *x = a, *y = b;
    int phase = strcmp(y->phase, x->phase); /* prefill before decode */
    return phase ? phase : (x->ns < y->ns) - (x->ns > y->ns);
}

hr_status hr_ops_by_time(const json_t *ops, json_t **out) {
    size_t most = json_array_size(ops);
    op_sum *sums = hr_calloc(most + 1, sizeof *sums);
    json_t *rows = json_array();
    bool ok = sums && rows;
    size_t n = ok ? fold(ops, sums) : 0;
    if (ok) qsort(sums, n, sizeof *sums, by_phase_then_time);
    for (size_t i = 0; ok && i < n; i++) {
        double whole = 0;
        for (size_t k = 0; k < n; k++)
            if (strcmp(sums[k].phase, sums[i].phase) == 0) whole += sums[k].ns;
        const op_sum *s = &sums[i];
        bool timed = s->ns > 0;
        json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:f, s:o, s:o, s:o, s:o}", "phase", s->phase, "op", s->op,
                                "kernel", s->kernel, "calls", (json_int_t)s->calls, "time", s->ns / 1e6, "share",
                                whole > 0 ? json_real(100 * s->ns / whole) : json_null(), "per_call",
                                s->calls > 0 ? json_real(s->ns / s->calls / 1e3) : json_null(), "traffic",
                                timed ? json_real(s->bytes / s->ns) : json_null(), "compute",
                                timed ? json_real(s->flops / s->ns) : json_null());
        ok = row && json_array_append_new(rows, row) == 0;
    }
    hr_free(sums);
    if (ok) {
        *out = rows;
        return HR_OK;
    }
    json_decref(rows);
    HR_FAIL(HR_ERR_MEMORY, "out of memory while adding up the ops");
}
