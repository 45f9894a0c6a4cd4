/* What is known of each cell over the pairs. A pair counts for a cell when both of its runs measured it in one and the same
 * state of the machine; so a cell that is disturbed costs the others nothing. */
#include "harness/ab/ab_internal.h"

#include "harness/compare/compare_internal.h"
#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while measuring pairs");
}

static const json_t *find(const json_t *cells, const char *id) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        if (!strcmp(hr_word(cell, "cell_id"), id)) return cell;
    }
    return NULL;
}

static bool was_skipped(const json_t *cell) {
    return !strcmp(hr_word(cell, "status"), "skipped");
}

/* ---- the cells of the first pair ------------------------------------------------------------------------------------------- */

static hr_status put_alone(json_t *list, const json_t *cell, const char *why) {
    static const char *const copied[] = {"test", "cell_id", "state_class", "model_filename", "quant", "status"};
    json_t *row = json_object();
    bool ok = row != NULL;
    for (size_t i = 0; ok && i < sizeof copied / sizeof *copied; i++) ok = hr_row_copy(row, copied[i], cell, copied[i]);
    ok = ok && hr_row_text(row, "why", why) && json_array_append(list, row) == 0;
    json_decref(row);
    return ok ? HR_OK : no_memory();
}

/* Cells without a partner, and those that both sides skip. */
static hr_status list_alone(const json_t *own, const json_t *other, json_t *list) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)own, i, cell) {
        const json_t *there = find(other, hr_word(cell, "cell_id"));
        char why[300];
        if (there && !was_skipped(cell) && !was_skipped(there)) continue;
        if (was_skipped(cell))
            snprintf(why, sizeof why, "skipped: %.200s", hr_word(cell, "error"));
        else if (there)
            snprintf(why, sizeof why, "skipped on the other side: %.200s", hr_word(there, "error"));
        else
            snprintf(why, sizeof why, "the other side has no such cell");
        HR_TRY(put_alone(list, cell, why));
    }
    return HR_OK;
}

static hr_status check_simulated(const json_t *cells, const hr_compare_rule *rule, const char *name) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        if (!rule->allow_simulated && hr_cell_has_flag(cell, "simulated"))
            HR_FAIL(HR_ERR_INPUT,
                    "%s of %s is simulated: its times say nothing of a machine (--allow-simulated to compare)",
                    hr_cell_name(cell), name);
    }
    return HR_OK;
}

hr_status hr_ab_cells_init(hr_ab_cells *cells, const hr_ab_side *a, const hr_ab_side *b, const hr_compare_rule *rule) {
    size_t i;
    json_t *cell;
    HR_TRY(check_simulated(a->cells, rule, "A"));
    HR_TRY(check_simulated(b->cells, rule, "B"));
    cells->v = hr_calloc(json_array_size(a->cells) + 1, sizeof *cells->v);
    cells->unmatched_a = json_array(), cells->unmatched_b = json_array();
    if (!cells->v || !cells->unmatched_a || !cells->unmatched_b) return no_memory();
    HR_TRY(list_alone(a->cells, b->cells, cells->unmatched_a));
    HR_TRY(list_alone(b->cells, a->cells, cells->unmatched_b));
    json_array_foreach(a->cells, i, cell) {
        const json_t *there = find(b->cells, hr_word(cell, "cell_id"));
        if (!there || was_skipped(cell) || was_skipped(there)) continue;
        hr_ab_cell *c = &cells->v[cells->n++];
        *c = (hr_ab_cell){.cell = json_deep_copy(hr_cell_is_ok(cell) ? cell : there)};
        c->ops[0] = json_array(), c->ops[1] = json_array();
        if (!c->cell || !c->ops[0] || !c->ops[1]) return no_memory();
        c->metrics = hr_compare_metrics(c->cell);
    }
    return HR_OK;
}

void hr_ab_cells_fini(hr_ab_cells *cells) {
    for (size_t i = 0; i < cells->n; i++) {
        hr_ab_cell *c = &cells->v[i];
        json_decref(c->cell);
        for (int s = 0; s < 2; s++) json_decref(c->failed[s]), json_decref(c->ops[s]);
    }
    json_decref(cells->unmatched_a), json_decref(cells->unmatched_b);
    hr_free(cells->v);
    *cells = (hr_ab_cells){0};
}

/* ---- one more pair ------------------------------------------------------------------------------------------------------------ */

static bool needs(const hr_ab_cell *c, size_t wanted) {
    return c->n < wanted && !c->failed[0] && !c->failed[1];
}

bool hr_ab_cells_need(const hr_ab_cells *cells, size_t wanted) {
    for (size_t i = 0; i < cells->n; i++)
        if (needs(&cells->v[i], wanted)) return true;
    return false;
}

/* A cell flagged state_changed whose class is not mixed was measured once more, from end to end in that class: it counts. */
static bool disturbed(const json_t *cell, const char *name, char *why, size_t n) {
    const char *what = NULL;
    if (!strcmp(hr_word(cell, "state_class"), "mixed"))
        what = "the machine changed its state during";
    else if (hr_cell_all_throttled(cell))
        what = "the clock was reduced during";
    if (what) snprintf(why, n, "%s %s", what, name);
    return what != NULL;
}

/* Whether the two runs may be held against each other. */
static bool alike(const json_t *a, const json_t *b, char *why, size_t n) {
    const char *x = hr_word(a, "state_class"), *y = hr_word(b, "state_class");
    if (disturbed(a, "A", why, n) || disturbed(b, "B", why, n)) return false;
    if (!strcmp(x, y)) return true;
    snprintf(why, n, "the machine was in state %.16s for A and %.16s for B", *x ? x : "unknown", *y ? y : "unknown");
    return false;
}

static bool put_times(hr_ab_cell *c, const json_t *a, const json_t *b) {
    const json_t *sides[2] = {a, b};
    for (size_t m = 0; c->metrics[m]; m++)
        for (int s = 0; s < 2; s++) {
            const double ms = hr_num(json_object_get(sides[s], c->metrics[m]), "p50");
            if (!(isfinite(ms) && ms > 0)) {
                snprintf(c->why, sizeof c->why, "a run of %s has no median of %s", s ? "B" : "A", c->metrics[m]);
                return false;
            }
            c->ms[m][s][c->n] = ms;
        }
    return true;
}

static hr_status put_failed(hr_ab_cell *c, int side, const json_t *cell) {
    c->failed[side] = cell ? json_deep_copy(cell)
                           : json_pack("{s:s, s:s}", "status", "failed", "error", "the cell was missing from a run");
    return c->failed[side] ? HR_OK : no_memory();
}

static hr_status add(hr_ab_cell *c, const hr_ab_side *a, const hr_ab_side *b, bool *repeat) {
    const char *id = hr_word(c->cell, "cell_id");
    const json_t *cells[2] = {find(a->cells, id), find(b->cells, id)};
    json_t *ops[2] = {json_object_get(a->ops, id), json_object_get(b->ops, id)};
    c->tried++;
    for (int s = 0; s < 2; s++)
        if (!cells[s] || !hr_cell_is_ok(cells[s])) HR_TRY(put_failed(c, s, cells[s]));
    if (c->failed[0] || c->failed[1]) return HR_OK;
    if (!alike(cells[0], cells[1], c->why, sizeof c->why) || !put_times(c, cells[0], cells[1])) {
        *repeat = true;
        return HR_OK;
    }
    c->n++;
    c->several_states |= strcmp(hr_word(c->cell, "state_class"), hr_word(cells[0], "state_class")) != 0;
    for (int s = 0; s < 2; s++)
        if (ops[s] && json_array_append(c->ops[s], ops[s]) != 0) return no_memory();
    return HR_OK;
}

hr_status hr_ab_cells_add(hr_ab_cells *cells, size_t wanted, const hr_ab_side *a, const hr_ab_side *b, bool *repeat) {
    *repeat = false;
    for (size_t i = 0; i < cells->n; i++) {
        hr_ab_cell *c = &cells->v[i];
        if (!needs(c, wanted)) continue;
        /* the first pair that counts says the state of the row */
        if (c->n == 0) {
            const json_t *first = find(a->cells, hr_word(c->cell, "cell_id"));
            if (first && hr_cell_is_ok(first) && !hr_row_copy(c->cell, "state_class", first, "state_class"))
                return no_memory();
        }
        HR_TRY(add(c, a, b, repeat));
    }
    return HR_OK;
}

void hr_ab_cells_lose(hr_ab_cells *cells, size_t wanted, const char *why) {
    for (size_t i = 0; i < cells->n; i++) {
        hr_ab_cell *c = &cells->v[i];
        if (!needs(c, wanted)) continue;
        c->tried++;
        snprintf(c->why, sizeof c->why, "%s", why);
    }
}

/* ---- the result ------------------------------------------------------------------------------------------------------------------ */

static hr_status put_row(const hr_ab_cell *c, size_t m, size_t wanted, bool interrupted, json_t *rows) {
    char why[400];
    json_t *row = NULL;
    HR_TRY(hr_compare_pairs(c->cell, c->metrics[m], c->ms[m][0], c->ms[m][1], c->n, &row));
    bool ok = json_array_append_new(rows, row) == 0;
    if (ok && c->several_states) ok = hr_row_text(row, "state_class", NULL);
    if (!ok || c->n == wanted) return ok ? HR_OK : no_memory();
    if (interrupted)
        snprintf(why, sizeof why, "interrupted after %zu of %zu pairs", c->n, wanted);
    else if (!*c->why)
        snprintf(why, sizeof why, "the limit of time left room for %zu of %zu pairs", c->n, wanted);
    else
        snprintf(why, sizeof why, "only %zu of %zu pairs count of the %zu that were measured: %s", c->n, wanted,
                 c->tried, c->why);
    return hr_row_block(row, why) ? HR_OK : no_memory();
}

static hr_status put_failed_row(const hr_ab_cell *c, json_t *rows) {
    const json_t *a = c->failed[0] ? c->failed[0] : c->cell, *b = c->failed[1] ? c->failed[1] : c->cell;
    static const char *const named[] = {"test", "cell_id", "model_filename", "quant"};
    json_t *row = hr_compare_row(a, b, c->metrics[0]);
    bool ok = row && json_array_append_new(rows, row) == 0;
    for (size_t i = 0; ok && i < sizeof named / sizeof *named; i++) ok = hr_row_copy(row, named[i], c->cell, named[i]);
    return ok ? HR_OK : no_memory();
}

/* Op rows of a side: the median over the runs of each op's time. */
static hr_status median_ops(const json_t *runs, json_t **out) {
    const size_t n = json_array_size(runs);
    const json_t *first = json_array_get(runs, 0);
    size_t i;
    json_t *op;
    *out = json_array();
    double *ms = hr_calloc(n + 1, sizeof *ms);
    bool ok = *out && ms;
    json_array_foreach((json_t *)first, i, op) {
        size_t count = 0;
        for (size_t r = 0; ok && r < n; r++) {
            size_t k;
            json_t *other;
            json_array_foreach(json_array_get(runs, r), k, other) {
                if (!strcmp(hr_word(other, "op"), hr_word(op, "op")) &&
                    !strcmp(hr_word(other, "phase"), hr_word(op, "phase")) && count < n)
                    ms[count++] = hr_num(other, "ms");
            }
        }
        if (!ok || !count) continue;
        ok = json_array_append_new(*out, json_pack("{s:O, s:O, s:i, s:f}", "phase", json_object_get(op, "phase"), "op",
                                                   json_object_get(op, "op"), "n", 1, "median_ns",
                                                   hr_median(ms, count) * 1e6)) == 0;
    }
    hr_free(ms);
    return ok ? HR_OK : no_memory();
}

static hr_status put_ops(const hr_ab_cell *c, json_t *all) {
    json_t *sides[2] = {NULL, NULL}, *rows = NULL;
    hr_status status = median_ops(c->ops[0], &sides[0]);
    if (status == HR_OK) status = median_ops(c->ops[1], &sides[1]);
    if (status == HR_OK) status = hr_compare_ops(sides[0], sides[1], &rows);
    json_decref(sides[0]), json_decref(sides[1]);
    if (status != HR_OK) return status;
    return json_object_set_new(all, hr_word(c->cell, "cell_id"), rows) == 0 ? HR_OK : no_memory();
}

static hr_status put_all(const hr_ab_cells *cells, size_t wanted, bool interrupted, json_t *rows, json_t *ops) {
    for (size_t i = 0; i < cells->n; i++) {
        const hr_ab_cell *c = &cells->v[i];
        if (c->failed[0] || c->failed[1]) {
            HR_TRY(put_failed_row(c, rows));
            continue;
        }
        for (size_t m = 0; c->metrics[m]; m++) HR_TRY(put_row(c, m, wanted, interrupted, rows));
        HR_TRY(put_ops(c, ops));
    }
    return HR_OK;
}

hr_status hr_ab_cells_result(const hr_ab_cells *cells, size_t wanted, bool interrupted, const hr_compare_rule *rule,
                             json_t **out) {
    json_t *rows = json_array(), *ops = json_object();
    json_t *empty_a = cells->unmatched_a ? json_incref(cells->unmatched_a) : json_array();
    json_t *empty_b = cells->unmatched_b ? json_incref(cells->unmatched_b) : json_array();
    json_t *comparison =
        json_pack("{s:o, s:o, s:o, s:o}", "cells", rows, "unmatched_a", empty_a, "unmatched_b", empty_b, "ops", ops);
    hr_status status = comparison ? put_all(cells, wanted, interrupted, rows, ops) : no_memory();
    if (status == HR_OK) status = hr_compare_judge(comparison, rule);
    if (status == HR_OK)
        *out = comparison;
    else
        json_decref(comparison);
    return status;
}
