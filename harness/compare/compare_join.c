/* Which cells of two sets belong together, and the rows of those that do.
 *
 * 1. A key that stands once on either side joins, whatever the order; one that stands twice on a side joins nothing there.
 * 2. Every cell ends in a row or in a list of those without a partner. */
#include "harness/compare/compare_internal.h"

#include "harness/formats/cell_device.h"
#include "harness/stats/stats.h"
#include "harness/stats/two_samples.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while comparing cells");
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

typedef bool (*key_of)(const json_t *cell, char *out, size_t n);

/* A cell that failed knows no state, and no comparison of times follows: its id alone. */
static bool key_of_id(const json_t *cell, char *out, size_t n) {
    snprintf(out, n, "%s", hr_word(cell, "cell_id"));
    return *out != 0;
}
static bool key_of_state(const json_t *cell, char *out, size_t n) {
    snprintf(out, n, "%s %s", hr_word(cell, "cell_id"), hr_word(cell, "state_class"));
    return *hr_word(cell, "cell_id") != 0;
}

/* What is asked of a machine, without what it answers with (threads, ISA, arithmetic of the products, device). */
static bool key_of_all_work(const json_t *cell, bool order, char *out, size_t n) {
    static const char *const keys[] = {"test",      "model_filename", "quant",      "n_prompt",  "n_gen",
                                       "n_depth",   "n_seqs",         "isl",        "osl",       "n_batch",
                                       "n_ubatch",  "type_k",         "type_v",     "kv_layout", "fusion",
                                       "page_size", "kv_alloc",       "flash_attn", "weights"};
    const size_t n_keys = sizeof keys / sizeof *keys - !order;
    size_t used = 0;
    for (size_t i = 0; i < n_keys && used < n; i++) {
        const json_t *v = json_object_get(cell, keys[i]);
        if (json_is_number(v))
            used += (size_t)snprintf(out + used, n - used, "%.17g|", json_number_value(v));
        else
            used += (size_t)snprintf(out + used, n - used, "%s|", json_is_true(v) ? "1" : hr_word(cell, keys[i]));
    }
    return used < n;
}

static bool key_of_work(const json_t *cell, char *out, size_t n) {
    return key_of_all_work(cell, true, out, n);
}
/* A GPU has no order of weights to choose: its cells stand beside those of a CPU in whatever order. */
static bool key_of_work_in_any_order(const json_t *cell, char *out, size_t n) {
    return key_of_all_work(cell, false, out, n);
}

/* ---- cells by key ------------------------------------------------------------------------------------------------- */

typedef struct side {
    const json_t *cells;
    bool *joined; /* [n] */
    json_t *by;   /* key -> [places] */
    json_t *unmatched;
} side;

enum { KEY = 1024 };

static hr_status index_by(side *s, key_of key, bool all) {
    char text[KEY];
    size_t i;
    json_t *cell, *places;
    json_decref(s->by);
    if (!(s->by = json_object())) return no_memory();
    json_array_foreach((json_t *)s->cells, i, cell) {
        if ((s->joined[i] && !all) || !key(cell, text, sizeof text)) continue;
        if (!(places = json_object_get(s->by, text))) {
            places = json_array();
            if (!places || json_object_set_new(s->by, text, places) != 0) return no_memory();
        }
        if (json_array_append_new(places, json_integer((json_int_t)i)) != 0) return no_memory();
    }
    return HR_OK;
}

static hr_status side_init(side *s, const json_t *cells) {
    *s = (side){.cells = cells, .unmatched = json_array()};
    s->joined = hr_calloc(json_array_size(cells) + 1, sizeof *s->joined);
    return s->joined && s->unmatched ? HR_OK : no_memory();
}

static void side_fini(side *s) {
    hr_free(s->joined);
    json_decref(s->by), json_decref(s->unmatched);
}

/* ---- rows of a match ---------------------------------------------------------------------------------------------- */

static bool put_two(json_t *row, const hr_two_samples *t, double *a, size_t n_a, double *b, size_t n_b) {
    const double median = hr_median(a, n_a), share = 100 / median;
    return hr_row_real(row, "a_median", median) && hr_row_real(row, "b_median", hr_median(b, n_b)) &&
           hr_row_real(row, "shift_pct", t->shift * share) && hr_row_real(row, "ci95_lo_pct", t->lo * share) &&
           hr_row_real(row, "ci95_hi_pct", t->hi * share) && hr_row_real(row, "p", t->p) &&
           json_object_set_new(row, "n_a", json_integer((json_int_t)n_a)) == 0 &&
           json_object_set_new(row, "n_b", json_integer((json_int_t)n_b)) == 0;
}

/* Medians where raw samples are missing: from the stored distributions. */
static bool put_stored(json_t *row, const json_t *a, const json_t *b, const char *metric) {
    size_t n_a, n_b;
    const double x = hr_cell_stored_median(a, metric, &n_a), y = hr_cell_stored_median(b, metric, &n_b);
    return hr_row_real(row, "a_median", x) && hr_row_real(row, "b_median", y) &&
           hr_row_real(row, "shift_pct", (y / x - 1) * 100) &&
           json_object_set_new(row, "n_a", json_integer((json_int_t)n_a)) == 0 &&
           json_object_set_new(row, "n_b", json_integer((json_int_t)n_b)) == 0 &&
           hr_row_block(row, "measured before raw samples of requests were kept, or without any: measure it again");
}

static const char *blocked(const json_t *a, const json_t *b) {
    const char *state = hr_word(a, "state_class");
    if (!strcmp(state, "mixed")) return "the machine changed its state during the cell, on both sides";
    if (hr_cell_all_throttled(a)) return "the clock was reduced during the whole cell in A";
    if (hr_cell_all_throttled(b)) return "the clock was reduced during the whole cell in B";
    return NULL;
}

/* The samples of both sides into the row. A time that is not over zero has no shift in percent. */
static hr_status fill(json_t *row, const json_t *a, const json_t *b, const char *metric) {
    double *x = NULL, *y = NULL;
    size_t n_x, n_y = 0;
    hr_two_samples t;
    HR_TRY(hr_compare_samples(a, metric, &x, &n_x));
    hr_status status = hr_compare_samples(b, metric, &y, &n_y);
    bool ok = status == HR_OK;
    if (ok && n_x && n_y) {
        status = hr_two_samples_of(x, n_x, y, n_y, &t);
        ok = status == HR_OK && put_two(row, &t, x, n_x, y, n_y);
        const char *why = blocked(a, b);
        if (ok && !(hr_num(row, "a_median") > 0)) why = "the median of A is not over zero";
        if (ok && why) ok = hr_row_block(row, why);
    } else if (ok) {
        ok = put_stored(row, a, b, metric);
    }
    hr_free(x), hr_free(y);
    return status != HR_OK ? status : ok ? HR_OK : no_memory();
}

/* Two machines: their medians and shares of their own roofs; no test says that one computer "is slower". */
static hr_status fill_apart(json_t *row, const json_t *a, const json_t *b) {
    static const char *const none[] = {"shift_pct", "ci95_lo_pct", "ci95_hi_pct", "p"};
    bool ok = hr_row_copy(row, "machine_a", a, "machine_class") && hr_row_copy(row, "machine_b", b, "machine_class");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) ok = ok && hr_row_text(row, none[i], NULL);
    ok = ok && hr_row_text(row, "state_class", NULL) && hr_row_text(row, "blocked", NULL);
    return ok ? HR_OK : no_memory();
}

/* A failed side has one row: there is no metric to compare. */
static hr_status put_rows(const json_t *a, const json_t *b, const hr_compare_rule *rule, json_t *rows) {
    const bool whole = hr_cell_is_ok(a) && hr_cell_is_ok(b);
    const char *const *metrics = hr_compare_metrics(whole || hr_cell_is_ok(a) ? a : b);
    for (size_t i = 0; metrics[i] && (whole || i == 0); i++) {
        json_t *row = hr_compare_row(a, b, metrics[i]);
        if (!row || json_array_append_new(rows, row) != 0) return no_memory();
        if (whole) HR_TRY(fill(row, a, b, metrics[i]));
        if (rule->across_machines) HR_TRY(fill_apart(row, a, b));
    }
    return HR_OK;
}

/* ---- joining ------------------------------------------------------------------------------------------------------ */

static const json_t *only(const side *s, const char *key, size_t *i) {
    const json_t *places = json_object_get(s->by, key);
    if (json_array_size(places) != 1) return NULL;
    *i = (size_t)json_integer_value(json_array_get(places, 0));
    return json_array_get(s->cells, *i);
}

static bool was_skipped(const json_t *cell) {
    return !strcmp(hr_word(cell, "status"), "skipped");
}

/* failed: only pairs of which a side failed; else those that were measured on both. */
static hr_status join(side *a, side *b, key_of key, bool failed, const hr_compare_rule *rule, json_t *rows) {
    char text[KEY];
    size_t i, j, at;
    json_t *x;
    HR_TRY(index_by(a, key, false));
    HR_TRY(index_by(b, key, false));
    json_array_foreach((json_t *)a->cells, i, x) {
        if (a->joined[i] || !key(x, text, sizeof text) || !only(a, text, &at)) continue;
        const json_t *y = only(b, text, &j);
        if (!y || was_skipped(x) || was_skipped(y)) continue;
        if (failed == (hr_cell_is_ok(x) && hr_cell_is_ok(y))) continue;
        HR_TRY(put_rows(x, y, rule, rows));
        a->joined[i] = b->joined[j] = true;
    }
    return HR_OK;
}

static const char *state_of(const json_t *cell) {
    const char *state = hr_word(cell, "state_class");
    return *state ? state : "unknown";
}

/* Why a cell has no partner; both sides are indexed whole, by id or by what is asked of the machine. */
static void why_alone(const side *other, const json_t *cell, key_of key, char *out, size_t n) {
    char text[KEY] = "";
    const char *reason = hr_word(cell, "error");
    const json_t *there = key(cell, text, sizeof text) ? json_object_get(other->by, text) : NULL;
    there = json_array_get(other->cells, (size_t)json_integer_value(json_array_get(there, 0)));
    if (was_skipped(cell) || !hr_cell_is_ok(cell))
        snprintf(out, n, "%s: %s", hr_word(cell, "status"), *reason ? reason : "no reason was stored");
    else if (!json_object_get(other->by, text))
        snprintf(out, n, "the other side has no such cell");
    else if (was_skipped(there))
        snprintf(out, n, "skipped on the other side: %s", hr_word(there, "error"));
    else if (key == key_of_id && strcmp(state_of(cell), state_of(there)))
        snprintf(out, n, "the machine was in another state: %s here, %s there", state_of(cell), state_of(there));
    else
        snprintf(out, n, "several cells of a side are this one: which to compare is not known");
}

static hr_status list_unmatched(side *own, const side *other, key_of key) {
    static const char *const copied[] = {"test", "cell_id", "state_class", "model_filename", "quant"};
    char why[600];
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)own->cells, i, cell) {
        if (own->joined[i]) continue;
        json_t *row = json_object();
        bool ok = row != NULL;
        for (size_t k = 0; k < sizeof copied / sizeof *copied; k++)
            ok = ok && hr_row_copy(row, copied[k], cell, copied[k]);
        why_alone(other, cell, key, why, sizeof why);
        ok = ok && hr_row_text(row, "status", hr_cell_is_ok(cell) ? "ok" : hr_word(cell, "status"));
        ok = ok && hr_row_text(row, "why", why);
        if (!ok || json_array_append(own->unmatched, row) != 0) {
            json_decref(row);
            return no_memory();
        }
        json_decref(row);
    }
    return HR_OK;
}

static bool any_on_gpu(const json_t *cells) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) if (hr_cell_on_gpu(cell)) return true;
    return false;
}

static hr_status join_all(side *a, side *b, const hr_compare_rule *rule, json_t *rows) {
    const bool gpu = any_on_gpu(a->cells) || any_on_gpu(b->cells);
    const key_of work = gpu ? key_of_work_in_any_order : key_of_work;
    const key_of key = rule->across_machines ? work : key_of_id;
    HR_TRY(join(a, b, rule->across_machines ? work : key_of_state, false, rule, rows));
    HR_TRY(join(a, b, key, true, rule, rows));
    HR_TRY(index_by(a, key, true));
    HR_TRY(index_by(b, key, true));
    HR_TRY(list_unmatched(a, b, key));
    return list_unmatched(b, a, key);
}

/* ---- what may not be compared ------------------------------------------------------------------------------------- */

/* The first cell that says which machine it is of. */
static const char *machine_of(const json_t *cells) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        const char *name = hr_word(cell, "machine_class");
        if (*name) return name;
    }
    return "";
}

static hr_status check_simulated(const json_t *cells, const char *side_name) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        if (hr_cell_has_flag(cell, "simulated"))
            HR_FAIL(HR_ERR_INPUT,
                    "%s of %s is simulated: its times say nothing of a machine (--allow-simulated to compare)",
                    hr_cell_name(cell), side_name);
    }
    return HR_OK;
}

static hr_status check(const json_t *a, const json_t *b, const hr_compare_rule *rule) {
    const char *x = machine_of(a), *y = machine_of(b);
    if (!rule->allow_simulated) {
        HR_TRY(check_simulated(a, "A"));
        HR_TRY(check_simulated(b, "B"));
    }
    if (!rule->across_machines && *x && *y && strcmp(x, y))
        HR_FAIL(HR_ERR_INPUT,
                "A is of machine %.60s and B of %.60s: no verdict is possible; --across-machines shows them "
                "side by side",
                x, y);
    return HR_OK;
}

hr_status hr_compare_cells(const json_t *a, const json_t *b, const hr_compare_rule *rule, json_t **out) {
    side x = {0}, y = {0};
    HR_TRY(check(a, b, rule));
    json_t *rows = json_array(), *comparison = NULL;
    hr_status status = rows ? side_init(&x, a) : no_memory();
    if (status == HR_OK) status = side_init(&y, b);
    if (status == HR_OK) status = join_all(&x, &y, rule, rows);
    if (status == HR_OK) {
        comparison =
            json_pack("{s:O, s:O, s:O}", "cells", rows, "unmatched_a", x.unmatched, "unmatched_b", y.unmatched);
        status = comparison ? hr_compare_judge(comparison, rule) : no_memory();
    }
    side_fini(&x), side_fini(&y);
    json_decref(rows);
    if (status == HR_OK)
        *out = comparison;
    else
        json_decref(comparison);
    return status;
}
