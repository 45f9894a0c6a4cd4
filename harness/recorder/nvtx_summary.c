/* What a recording comes to, name by name. */
#include "harness/recorder/nvtx_record.h"

#include <stdlib.h>

static uint64_t duration(const hr_rec *r) {
    return r->end_ns - r->start_ns;
}

static int compare(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

/* 0: of one line. */
static int by_what(const hr_rec *x, const hr_rec *y) {
    int order = compare(x->kind, y->kind);
    if (!order) order = compare(x->domain, y->domain);
    if (!order) order = compare(x->category, y->category);
    return order ? order : compare(x->name, y->name);
}

static int by_what_and_duration(const void *left, const void *right) {
    const hr_rec *x = ((const hr_rec_ref *)left)->record, *y = ((const hr_rec_ref *)right)->record;
    const int order = by_what(x, y);
    return order ? order : compare(duration(x), duration(y));
}

static int by_total(const void *left, const void *right) {
    const hr_rec_line *a = left, *b = right;
    const int order = compare(b->total_ns, a->total_ns);
    return order ? order : by_what(a->example, b->example);
}

hr_rec_line *hr_rec_summarize(hr_rec_ref *refs, size_t n, size_t *n_lines) {
    size_t lines = 0;
    if (n) qsort(refs, n, sizeof *refs, by_what_and_duration);
    for (size_t i = 0; i < n; i++) lines += !i || by_what(refs[i - 1].record, refs[i].record) != 0;
    hr_rec_line *out = calloc(lines ? lines : 1, sizeof *out);
    if (!out) return NULL;
    *n_lines = lines;
    lines = 0;
    for (size_t i = 0, end; i < n; i = end, lines++) {
        hr_rec_line *line = &out[lines];
        line->example = refs[i].record;
        for (end = i; end < n && by_what(refs[i].record, refs[end].record) == 0; end++)
            line->total_ns += duration(refs[end].record);
        line->calls = end - i;
        line->min_ns = duration(refs[i].record), line->max_ns = duration(refs[end - 1].record);
        const hr_rec *low = refs[i + (end - i - 1) / 2].record, *high = refs[i + (end - i) / 2].record;
        line->median_ns = ((double)duration(low) + (double)duration(high)) / 2;
    }
    qsort(out, lines, sizeof *out, by_total);
    return out;
}
