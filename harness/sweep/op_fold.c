#include "harness/sweep/op_fold.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <string.h>

typedef struct op_row {
    hr_op_record key; /* phase, layer, op, kernel, unit */
    double sum_ns, bytes, flops, imbalance_ns, handoff_ns;
    double *ns;
    size_t n, capacity;
} op_row;

struct hr_op_fold {
    op_row *rows;
    size_t n, capacity;
    size_t last; /* row of the last record: layers come in the same order each step */
};

hr_status hr_op_fold_create(hr_op_fold **out) {
    *out = hr_calloc(1, sizeof **out);
    if (!*out) HR_FAIL(HR_ERR_MEMORY, "no memory for the record of ops");
    return HR_OK;
}

void hr_op_fold_destroy(hr_op_fold *fold) {
    if (!fold) return;
    for (size_t i = 0; i < fold->n; i++) hr_free(fold->rows[i].ns);
    hr_free(fold->rows);
    hr_free(fold);
}

static bool same(const hr_op_record *a, const hr_op_record *b) {
    return a->phase == b->phase && a->layer == b->layer && a->op == b->op &&
           (a->kernel == b->kernel || (a->kernel && b->kernel && !strcmp(a->kernel, b->kernel)));
}

/* The search begins behind the last hit, where the next op of a forward pass nearly always lies. */
static op_row *find(hr_op_fold *fold, const hr_op_record *key) {
    for (size_t i = 0; i < fold->n; i++) {
        const size_t at = (fold->last + 1 + i) % fold->n;
        if (same(&fold->rows[at].key, key)) {
            fold->last = at;
            return &fold->rows[at];
        }
    }
    if (fold->n == fold->capacity) {
        const size_t capacity = fold->capacity ? fold->capacity * 2 : 256;
        op_row *rows = hr_realloc(fold->rows, hr_mul(capacity, sizeof *rows));
        if (!rows) return NULL;
        fold->rows = rows, fold->capacity = capacity;
    }
    fold->rows[fold->n] = (op_row){.key = *key};
    fold->last = fold->n++;
    return &fold->rows[fold->last];
}

hr_status hr_op_fold_add(hr_op_fold *fold, const hr_op_record *records, size_t n) {
    for (size_t i = 0; i < n; i++) {
        op_row *row = find(fold, &records[i]);
        if (row && row->n == row->capacity) {
            const size_t capacity = row->capacity ? row->capacity * 2 : 32;
            double *ns = hr_realloc(row->ns, hr_mul(capacity, sizeof *ns));
            if (ns) row->ns = ns, row->capacity = capacity;
        }
        if (!row || row->n == row->capacity) HR_FAIL(HR_ERR_MEMORY, "no memory for the record of ops");
        const hr_op_record *r = &records[i];
        row->ns[row->n] = (double)(r->end_ns - r->start_ns);
        row->sum_ns += row->ns[row->n++];
        row->bytes += (double)r->bytes, row->flops += (double)r->flops;
        row->imbalance_ns += (double)r->imbalance_ns, row->handoff_ns += (double)r->handoff_ns;
    }
    return HR_OK;
}

hr_status hr_op_fold_rows(const hr_op_fold *fold, json_t **out) {
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < fold->n; i++) {
        const op_row *r = &fold->rows[i];
        const double n = (double)r->n;
        json_array_append_new(rows, json_pack("{s:s, s:i, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "phase",
                                              hr_phase_names[r->key.phase], "layer", (int)r->key.layer, "op",
                                              hr_op_names[r->key.op], "kernel", r->key.kernel ? r->key.kernel : "", "n",
                                              (json_int_t)r->n, "median_ns", hr_median(r->ns, r->n), "bytes",
                                              r->bytes / n, "flops", r->flops / n, "mean_ns", r->sum_ns / n,
                                              "imbalance_ns", r->imbalance_ns / n, "handoff_ns", r->handoff_ns / n,
                                              "unit", hr_unit_names[r->key.unit]));
    }
    if (!rows || json_array_size(rows) != fold->n) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "no memory for the rows of ops");
    }
    *out = rows;
    return HR_OK;
}

double hr_op_sum_ns(const hr_op_record *records, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)(records[i].end_ns - records[i].start_ns);
    return sum;
}
