/* Runs the table of rules over the cells of a run and puts what they say in order. */
#include "harness/advice/advice_rules.h"

#include "harness/report/report_plots.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

const char *const hr_severity_names[] = {"note", "medium", "high"};
/* Where a cost is not known, a finding stands where one that costs so many per cent would. */
static const double STANDS_FOR_PCT[] = {0, 5, 50};

const json_t *hr_case_time(const json_t *cell, const char **what) {
    static const char *const keys[] = {"tpot_excl_first_ms", "ttft_prefill_ms", "ttft_ms"};
    static const char *const names[] = {"a step", "a prefill", "the first token"};
    for (size_t i = 0; i < 3; i++) {
        if (!(hr_p50(cell, keys[i]) > 0)) continue;
        if (what) *what = names[i];
        return json_object_get(cell, keys[i]);
    }
    return NULL;
}

/* ---- one finding ------------------------------------------------------------------------------------------------- */

/* One line of whole characters, whatever the cells held. */
static char *clean(char *text) {
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = ' ';
    return hr_text_whole(text);
}

static json_t *number_or_null(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static hr_status put(const hr_rule *rule, const json_t *cell, hr_finding *f, json_t *out) {
    const json_t *id = json_object_get(cell, "cell_id"), *test = json_object_get(cell, "test");
    json_t *row = json_pack("{s:s, s:O, s:O, s:s, s:s, s:o, s:s, s:s, s:s, s:o}", "rule", rule->id, "cell_id",
                            json_is_string(id) ? id : json_null(), "test", json_is_string(test) ? test : json_null(),
                            "finding", clean(f->finding), "evidence", clean(f->evidence), "value",
                            number_or_null(f->value), "unit", f->unit ? f->unit : "", "todo", clean(f->todo),
                            "severity", hr_severity_names[f->severity], "cost_pct", number_or_null(f->cost_pct));
    if (!row || json_array_append_new(out, row)) HR_FAIL(HR_ERR_MEMORY, "no memory for what the rules found");
    return HR_OK;
}

static hr_status ask(const hr_rule *rule, const hr_case *c, json_t *out) {
    hr_finding f = {.value = NAN, .cost_pct = NAN, .severity = HR_MEDIUM};
    return rule->fn(c, &f) ? put(rule, c->cell, &f, out) : HR_OK;
}

/* ---- cells and their siblings --------------------------------------------------------------------------------------- */

/* Cells that were measured, on a device that is there. */
static bool counts(const json_t *cell) {
    const char *status = hr_word(cell, "status");
    return json_is_object(cell) && (!*status || !strcmp(status, "ok")) && !hr_report_flagged(cell, "simulated");
}

typedef struct member {
    const json_t *cell;
    size_t order;
    char key[HR_KEY_BYTES];
} member;

/* The key of the report knows no forced kernels, and cuts names of models. */
static int by_key(const void *a, const void *b) {
    static const char *const more[] = {"model_filename", "forced", NULL};
    const member *p = a, *q = b;
    int order = strcmp(p->key, q->key);
    for (size_t i = 0; !order && more[i]; i++) order = strcmp(hr_word(p->cell, more[i]), hr_word(q->cell, more[i]));
    return order;
}
static int by_key_then_order(const void *a, const void *b) {
    const member *p = a, *q = b;
    const int key = by_key(a, b);
    return key ? key : (p->order > q->order) - (p->order < q->order);
}

/* members: [n]; cells: [n] room for a group. */
static hr_status ask_groups(const hr_rule *rule, const hr_advice_facts *facts, member *members, const json_t **cells,
                            json_t *out) {
    size_t n = 0, i;
    json_t *cell;
    json_array_foreach((json_t *)facts->cells, i, cell) {
        if (!counts(cell)) continue;
        members[n].cell = cell, members[n].order = i;
        hr_report_key(cell, rule->without, members[n++].key);
    }
    qsort(members, n, sizeof *members, by_key_then_order);
    for (size_t first = 0, last; first < n; first = last) {
        for (last = first; last < n && !by_key(&members[first], &members[last]); last++)
            cells[last - first] = members[last].cell;
        for (size_t k = first; k < last; k++) {
            const hr_case c = {
                .cell = members[k].cell, .machine = facts->machine, .siblings = cells, .n_siblings = last - first};
            HR_TRY(ask(rule, &c, out));
        }
    }
    return HR_OK;
}

static hr_status ask_of_siblings(const hr_rule *rule, const hr_advice_facts *facts, json_t *out) {
    const size_t most = json_array_size(facts->cells) + 1;
    member *members = hr_calloc(most, sizeof *members);
    const json_t **cells = hr_calloc(most, sizeof *cells);
    const hr_status status = members && cells ? ask_groups(rule, facts, members, cells, out)
                                              : hr_fail(HR_ERR_MEMORY, "no memory to compare %zu cells", most - 1);
    hr_free(members), hr_free((void *)cells);
    return status;
}

static hr_status ask_of_cells(const hr_rule *rule, const hr_advice_facts *facts, json_t *out) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)facts->cells, i, cell) {
        if (!counts(cell)) continue;
        const char *id = hr_word(cell, "cell_id");
        const hr_case c = {.cell = cell,
                           .samples = json_object_get(facts->samples, id),
                           .ops = json_object_get(facts->ops, id),
                           .recorded = json_object_get(facts->recorded, id),
                           .machine = facts->machine};
        HR_TRY(ask(rule, &c, out));
    }
    return HR_OK;
}

/* ---- order ---------------------------------------------------------------------------------------------------------- */

typedef struct placed {
    json_t *row;
    double weight;
    size_t order;
} placed;

static double weight_of(const json_t *row) {
    const double cost = hr_num(row, "cost_pct");
    if (isfinite(cost)) return cost;
    for (size_t s = 0; s < 3; s++)
        if (!strcmp(hr_severity_names[s], hr_word(row, "severity"))) return STANDS_FOR_PCT[s];
    return 0;
}

static int by_weight(const void *a, const void *b) {
    const placed *p = a, *q = b;
    if (p->weight != q->weight) return p->weight < q->weight ? 1 : -1;
    return (p->order > q->order) - (p->order < q->order);
}

/* Takes rows. */
static hr_status in_order(json_t *rows, json_t **out) {
    const size_t n = json_array_size(rows);
    placed *places = hr_calloc(n + 1, sizeof *places);
    json_t *sorted = json_array();
    bool ok = places && sorted;
    for (size_t i = 0; ok && i < n; i++) {
        json_t *row = json_array_get(rows, i);
        places[i] = (placed){row, weight_of(row), i};
    }
    if (ok) qsort(places, n, sizeof *places, by_weight);
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append(sorted, places[i].row) == 0;
    hr_free(places), json_decref(rows);
    if (!ok) {
        json_decref(sorted);
        HR_FAIL(HR_ERR_MEMORY, "no memory for what the rules found");
    }
    *out = sorted;
    return HR_OK;
}

hr_status hr_advice(const hr_advice_facts *facts, json_t **out) {
    json_t *rows = json_array();
    hr_status status = rows ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for what the rules found");
    for (const hr_rule *rule = hr_rule_table; rule->id && status == HR_OK; rule++)
        status = rule->once      ? ask(rule, &(hr_case){.machine = facts->machine}, rows)
                 : rule->without ? ask_of_siblings(rule, facts, rows)
                                 : ask_of_cells(rule, facts, rows);
    if (status == HR_OK) return in_order(rows, out);
    json_decref(rows);
    return status;
}

/* ---- out of the store ------------------------------------------------------------------------------------------------ */

typedef hr_status hr_load_fn(hr_store *store, const char *run_id, const char *cell_id, json_t **out);

static hr_status load(hr_store *store, const char *run_id, const char *cell_id, hr_load_fn *from, json_t *into) {
    json_t *rows = NULL;
    HR_TRY(from(store, run_id, cell_id, &rows));
    if (json_object_set_new(into, cell_id, rows)) HR_FAIL(HR_ERR_MEMORY, "no memory for the rows of cell %s", cell_id);
    return HR_OK;
}

static hr_status load_all(hr_store *store, const char *run_id, const char *only, const json_t *cells, json_t *samples,
                          json_t *ops, json_t *recorded) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        const char *id = hr_word(cell, "cell_id");
        if (!counts(cell) || !*id || (only && strcmp(only, id))) continue;
        HR_TRY(load(store, run_id, id, hr_store_samples, samples));
        HR_TRY(load(store, run_id, id, hr_store_ops, ops));
        HR_TRY(load(store, run_id, id, hr_store_recorded, recorded));
    }
    return HR_OK;
}

/* What is said of this cell, and of the run as a whole. */
static void keep_only(json_t *rows, const char *cell_id) {
    for (size_t i = json_array_size(rows); i-- > 0;) {
        const char *id = hr_word(json_array_get(rows, i), "cell_id");
        if (*id && strcmp(id, cell_id)) json_array_remove(rows, i);
    }
}

hr_status hr_advice_of_run(hr_store *store, const char *run_id, const char *only, json_t **out) {
    json_t *cells = NULL, *machine = NULL, *rows = NULL, *one = NULL;
    json_t *samples = json_object(), *ops = json_object(), *recorded = json_object();
    hr_status status = samples && ops && recorded ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for run %s", run_id);
    if (status == HR_OK && only)
        status = hr_store_cell(store, only, run_id, &one); /* says when there is no such cell */
    if (status == HR_OK) status = hr_store_cells(store, run_id, &cells);
    if (status == HR_OK) status = hr_store_machine(store, run_id, &machine);
    if (status == HR_OK) status = load_all(store, run_id, only, cells, samples, ops, recorded);
    if (status == HR_OK)
        status = hr_advice(
            &(hr_advice_facts){
                .cells = cells, .samples = samples, .ops = ops, .recorded = recorded, .machine = machine},
            &rows);
    if (status == HR_OK && only) keep_only(rows, only);
    if (status == HR_OK) *out = rows;
    json_decref(cells), json_decref(machine), json_decref(one);
    json_decref(samples), json_decref(ops), json_decref(recorded);
    return status;
}
