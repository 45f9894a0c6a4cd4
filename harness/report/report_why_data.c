/* Explanations, advice, and what observing costs: what of the store the report shows. */
#include "harness/report/report_why.h"

#include "harness/advice/advice.h"
#include "harness/explain/explain.h"
#include "harness/show/stored_cell.h"

#include <string.h>

enum { EXPLAINED_MOST = 3, RANGES_MOST = 2 };

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while reading the store for the report");
}

/* ---- explanations ----------------------------------------------------------------------------------------------- */

static hr_status explain(hr_store *store, hr_report *r, const json_t *cell) {
    const char *id = hr_word(cell, "cell_id"), *run_id = hr_word(cell, "run_id");
    json_t *ops = NULL, *recorded = NULL, *explanation = NULL;
    if (json_object_get(r->explained, id)) return HR_OK;
    hr_status status = hr_store_ops(store, run_id, id, &ops);
    if (status == HR_OK) status = hr_store_recorded(store, run_id, id, &recorded);
    if (status == HR_OK) status = hr_explain(cell, ops, recorded, &explanation);
    json_decref(ops), json_decref(recorded);
    if (status == HR_ERR_INPUT) { /* it cannot be told, which the page says */
        if (!*r->unexplained) snprintf(r->unexplained, sizeof r->unexplained, "%s", hr_error());
        return HR_OK;
    }
    HR_TRY(status);
    return json_object_set_new(r->explained, id, explanation) == 0 ? HR_OK : no_memory();
}

static hr_status explain_all(hr_store *store, hr_report *r) {
    hr_report_pair pairs[EXPLAINED_MOST];
    const size_t n = hr_report_pairs(r, pairs, EXPLAINED_MOST);
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].decode) HR_TRY(explain(store, r, pairs[i].decode));
        if (pairs[i].prefill) HR_TRY(explain(store, r, pairs[i].prefill));
    }
    return HR_OK;
}

const json_t *hr_why_explained(const hr_report *r, const char *metric) {
    hr_report_pair pairs[EXPLAINED_MOST];
    const size_t n = hr_report_pairs(r, pairs, EXPLAINED_MOST);
    for (size_t i = 0; i < n; i++) {
        const json_t *cell = !strcmp(metric, "tpot") ? pairs[i].decode : pairs[i].prefill;
        const json_t *e = cell ? json_object_get(r->explained, hr_word(cell, "cell_id")) : NULL;
        if (json_is_object(json_object_get(json_object_get(e, "metrics"), metric))) return e;
    }
    return NULL;
}

const char *hr_why_missing(const hr_report *r) {
    return *r->unexplained ? r->unexplained : "no cell was measured whose time could be explained";
}

/* ---- advice ----------------------------------------------------------------------------------------------------- */

/* A finding on a measurement that the report does not show (an older one of the same cell) is left out. */
static bool is_shown(const hr_report *r, const json_t *finding, const char *run_id) {
    const char *id = hr_word(finding, "cell_id");
    size_t i;
    json_t *cell;
    if (!*id) return true;
    json_array_foreach(r->cells, i, cell) if (!strcmp(hr_word(cell, "cell_id"), id) &&
                                              !strcmp(hr_word(cell, "run_id"), run_id)) return true;
    return false;
}

static hr_status advise(hr_store *store, hr_report *r) {
    size_t i, k;
    json_t *run, *finding, *found;
    json_array_foreach(r->runs, i, run) {
        const char *run_id = hr_word(run, "run_id");
        if (!(hr_num(run, "n_ok") > 0)) continue;
        HR_TRY(hr_advice_of_run(store, run_id, NULL, &found));
        bool whole = true;
        json_array_foreach(found, k, finding) if (is_shown(r, finding, run_id)) whole &=
            json_array_append(r->advice, finding) == 0;
        json_decref(found);
        if (!whole) return no_memory();
    }
    return HR_OK;
}

/* ---- observing -------------------------------------------------------------------------------------------------- */

/* Rows of the same name, model, quantization and test: the newest counts. */
static hr_status load_observed(hr_store *store, hr_report *r) {
    json_t *by_key = json_object(), *run, *row, *rows;
    size_t i, k;
    hr_status status = by_key ? HR_OK : no_memory();
    json_array_foreach(r->runs, i, run) {
        if (status == HR_OK) status = hr_store_observe(store, hr_word(run, "run_id"), &rows);
        if (status != HR_OK) break;
        json_array_foreach(rows, k, row) {
            char key[800];
            snprintf(key, sizeof key, "%.500s %.20s %.20s %.80s %.60s", hr_word(row, "model_filename"),
                     hr_word(row, "quant"), hr_word(row, "act"), hr_word(row, "test"), hr_word(row, "name"));
            /* a way that could not be had this time does not displace a measurement */
            if (json_is_null(json_object_get(row, "median")) && json_object_get(by_key, key)) continue;
            if (json_object_set(by_key, key, row) != 0) status = no_memory();
        }
        json_decref(rows);
    }
    const char *key;
    json_object_foreach(by_key, key, row) if (status == HR_OK && json_array_append(r->observed, row) != 0) status =
        no_memory();
    json_decref(by_key);
    return status;
}

/* The ranges of a cell that are ops, with what the recorder saw of the same op beside. */
static hr_status load_ranges_of(hr_store *store, hr_report *r, const json_t *cell) {
    const char *id = hr_word(cell, "cell_id"), *run_id = hr_word(cell, "run_id");
    json_t *ranges = NULL, *ops = NULL, *beside = NULL, *row, *kept = json_array();
    hr_status status = kept ? hr_store_ranges(store, run_id, id, &ranges) : no_memory();
    if (status == HR_OK && json_array_size(ranges)) {
        status = hr_store_ops(store, run_id, id, &ops);
        if (status == HR_OK) status = hr_ranges_beside_ops(ranges, ops, &beside);
    }
    size_t i;
    json_array_foreach(beside, i, row) {
        if (isnan(hr_num(row, "recorded_n")) || strncmp(hr_word(row, "source"), "nsys", 4)) continue;
        if (json_array_append(kept, row) != 0) status = no_memory();
    }
    json_decref(ranges), json_decref(ops), json_decref(beside);
    if (status == HR_OK && json_array_size(kept)) {
        json_t *entry = json_pack("{s:O, s:O}", "cell", cell, "rows", kept);
        if (json_array_append_new(r->ranges, entry) != 0) status = no_memory();
    }
    json_decref(kept);
    return status;
}

hr_status hr_report_load_why(hr_store *store, hr_report *r) {
    r->explained = json_object(), r->advice = json_array(), r->observed = json_array(), r->ranges = json_array();
    if (!r->explained || !r->advice || !r->observed || !r->ranges) return no_memory();
    HR_TRY(explain_all(store, r));
    HR_TRY(advise(store, r));
    HR_TRY(load_observed(store, r));
    for (size_t i = json_array_size(r->cells); i-- > 0 && json_array_size(r->ranges) < RANGES_MOST;) /* newest first */
        HR_TRY(load_ranges_of(store, r, json_array_get(r->cells, i)));
    return HR_OK;
}

void hr_report_why_fini(hr_report *r) {
    json_decref(r->explained), json_decref(r->advice), json_decref(r->observed), json_decref(r->ranges);
}
