/* The ways of watching one after the other; each gives its rows, kept as they are measured. */
#include "harness/observe/observe.h"

#include <stdio.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "no memory for what was observed");
}

static size_t count_bits(unsigned bits) {
    size_t n = 0;
    for (; bits; bits &= bits - 1) n++;
    return n;
}

hr_status hr_observe_next(const hr_observe_options *o, hr_watch watch, size_t done) {
    if (o->stop && o->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
    const size_t before = count_bits(o->watches & ((1u << watch) - 1)), all = count_bits(o->watches);
    if (o->progress)
        o->progress(((double)before + (double)done / (double)o->pairs) / (double)all, hr_watch_names[watch],
                    o->context);
    return HR_OK;
}

static hr_status keep(const hr_observe_options *o, json_t *rows, json_t *row) {
    if (!row || json_array_append_new(rows, row) != 0) return no_memory();
    return o->keep ? o->keep(row, o->context) : HR_OK;
}

/* A request of one token has no TPOT; steps in turns need two. */
static bool has_metric(const hr_observe_options *o, hr_observe_metric metric) {
    return metric == HR_OBSERVE_TTFT || hr_cell_steps(o->cell) > 1;
}

/* In pairs that were cut short there may be enough for an interval. */
enum { LEAST_PAIRS = 6 };

static hr_status keep_rows(const hr_observe_options *o, hr_watch watch, const hr_observe_pairs *pairs,
                           const char *reason, json_t *rows) {
    for (int m = 0; m < HR_OBSERVE_METRICS; m++)
        if (has_metric(o, (hr_observe_metric)m))
            HR_TRY(keep(o, rows, hr_observe_row(o, watch, (hr_observe_metric)m, pairs, reason)));
    return HR_OK;
}

static hr_status load(const hr_observe_options *o, hr_model **model) {
    const hr_load_options how = hr_cell_load_options(o->cell);
    return hr_model_load(o->cell->model, &how, model);
}

static hr_status watch_one(const hr_observe_options *o, hr_watch watch, hr_model **model, json_t *rows) {
    hr_observe_pairs pairs = {0};
    hr_status measured;
    char said[512];
    if (hr_watch_in_process(watch)) {
        if (!*model) HR_TRY(load(o, model));
        measured = hr_observe_engine(o, *model, watch, &pairs);
    } else {
        hr_model_destroy(*model); /* the processes need its memory */
        *model = NULL;
        measured = hr_observe_processes(o, watch, &pairs);
    }
    snprintf(said, sizeof said, "%s", hr_error());
    if (measured == HR_ERR_INTERRUPTED) {
        if (pairs.n >= LEAST_PAIRS) HR_TRY(keep_rows(o, watch, &pairs, NULL, rows));
        return hr_fail(measured, "%s", said);
    }
    return keep_rows(o, watch, &pairs, measured == HR_OK ? NULL : said, rows);
}

hr_status hr_observe_run(const hr_observe_options *o, json_t **rows) {
    if (!(*rows = json_array())) return no_memory();
    hr_model *model = NULL;
    hr_status status = HR_OK;
    for (int w = 0; w < HR_WATCH_COUNT && status == HR_OK; w++)
        if (o->watches >> w & 1u) status = watch_one(o, (hr_watch)w, &model, *rows);
    hr_model_destroy(model);
    return status;
}
