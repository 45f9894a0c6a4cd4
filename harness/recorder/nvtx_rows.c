/* Rows of the trace. Ranges of one thread nest as long as they come from one domain; those of several domains, and spans,
 * may overlap each other in any way, which viewers don't show on one row: what does not nest goes to a row of its own. */
#include "harness/recorder/nvtx_record.h"

#include <stdlib.h>

enum { ROWS_MOST = 256 }; /* of one thread */

/* Ends of the ranges that are open on a row, the innermost last. */
typedef struct open_ends {
    uint64_t *ends;
    size_t n, space;
} open_ends;

static bool is_span(const hr_rec *r) {
    return r->kind == HR_REC_SPAN;
}

/* Of two that start at once the longer one is outside; of equal ones the one that ended later. */
static int by_place(const void *left, const void *right) {
    const hr_rec_ref *a = left, *b = right;
    const hr_rec *x = a->record, *y = b->record;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (is_span(x) != is_span(y)) return is_span(x) ? 1 : -1;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return a->order == b->order ? 0 : a->order > b->order ? -1 : 1;
}

/* 1: it nests and is on the row now; 0: it doesn't; -1: out of memory. */
static int place(open_ends *row, const hr_rec *r) {
    while (row->n && row->ends[row->n - 1] <= r->start_ns && row->ends[row->n - 1] < r->end_ns) row->n--;
    if (row->n && row->ends[row->n - 1] < r->end_ns) return 0;
    if (row->n == row->space) {
        const size_t space = row->space ? 2 * row->space : 32;
        uint64_t *more = realloc(row->ends, space * sizeof *more);
        if (!more) return -1;
        row->ends = more, row->space = space;
    }
    row->ends[row->n++] = r->end_ns;
    return 1;
}

static bool row_add(hr_rec_rows *rows, const hr_rec *r, uint32_t number) {
    if (rows->n == rows->space) {
        const uint32_t space = rows->space ? 2 * rows->space : 16;
        hr_rec_row *more = realloc(rows->rows, space * sizeof *more);
        if (!more) return false;
        rows->rows = more, rows->space = space;
    }
    rows->rows[rows->n++] = (hr_rec_row){.thread = r->thread, .span = is_span(r), .number = number};
    return true;
}

bool hr_rec_rows_make(hr_rec_ref *refs, size_t *n, hr_rec_rows *out) {
    open_ends open[ROWS_MOST] = {0};
    uint32_t first = 0, used = 0; /* rows of this thread and kind */
    size_t kept = 0;
    bool ok = true;
    *out = (hr_rec_rows){0};
    if (*n) qsort(refs, *n, sizeof *refs, by_place);
    for (size_t i = 0; i < *n && ok; i++) {
        const hr_rec *r = refs[i].record, *before = i ? refs[i - 1].record : NULL;
        if (!before || before->thread != r->thread || is_span(before) != is_span(r)) {
            for (uint32_t k = 0; k < ROWS_MOST; k++) open[k].n = 0;
            first = out->n, used = 0;
        }
        int placed = 0;
        uint32_t k = 0;
        /* Marks nest anywhere. */
        for (; k < ROWS_MOST && !placed; k++) {
            if (k == used) {
                ok = row_add(out, r, k);
                used++;
            }
            placed = !ok ? -1 : r->kind == HR_REC_MARK ? 1 : place(&open[k], r);
        }
        ok = placed >= 0;
        if (placed <= 0) {
            out->left_out++;
            continue;
        }
        const hr_rec_ref ref = {.record = r, .order = refs[i].order, .row = first + k - 1};
        refs[kept++] = ref;
    }
    for (uint32_t k = 0; k < ROWS_MOST; k++) free(open[k].ends);
    *n = kept;
    return ok;
}
