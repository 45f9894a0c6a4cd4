/* explain_difference.c - two explanations, term by term: where the first cell loses what the second does not. */
#include "harness/explain/explain_internal.h"

#include "harness/stats/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *find_term(const json_t *terms, const json_t *like) {
    size_t i;
    json_t *term;
    json_array_foreach((json_t *)terms, i, term) {
        if (!strcmp(hr_word(term, "name"), hr_word(like, "name")) &&
            !strcmp(hr_word(term, "kind"), hr_word(like, "kind")))
            return term;
    }
    return NULL;
}

static json_t *less(const json_t *a, const json_t *b, const char *key) {
    return hr_real_or_null(hr_num(a, key) - hr_num(b, key));
}

/* One of the two may be NULL: its time counts 0. */
static json_t *term_json(const json_t *a, const json_t *b) {
    char reason[HR_REASON_BYTES];
    const json_t *there = a ? a : b;
    const double ms = (a ? hr_num(a, "ms") : 0) - (b ? hr_num(b, "ms") : 0);
    hr_reason_difference(a, b, reason);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:s}", "name", hr_word(there, "name"), "kind",
                     hr_word(there, "kind"), "ms", hr_real_or_null(ms), "gb_s", less(a, b, "gb_s"), "gflop_s",
                     less(a, b, "gflop_s"), "roof_fraction", less(a, b, "roof_fraction"), "reason", reason);
}

/* The kinds in the order of a waterfall, within them that of the first cell. */
static json_t *terms_json(const json_t *a, const json_t *b) {
    static const char *const kinds[] = {"ideal", "loss", "barrier", "gap", "probe", "unexplained"};
    json_t *out = json_array(), *term;
    bool ok = out != NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t i;
        json_array_foreach((json_t *)a, i, term) {
            if (!strcmp(hr_word(term, "kind"), kinds[k]))
                ok = ok && json_array_append_new(out, term_json(term, find_term(b, term))) == 0;
        }
        json_array_foreach((json_t *)b, i, term) {
            if (!strcmp(hr_word(term, "kind"), kinds[k]) && !find_term(a, term))
                ok = ok && json_array_append_new(out, term_json(NULL, term)) == 0;
        }
    }
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static json_t *metric_json(const json_t *a, const json_t *b) {
    if (!json_is_object(a) || !json_is_object(b)) return json_null();
    json_t *terms = terms_json(json_object_get(a, "terms"), json_object_get(b, "terms"));
    static const char *const keys[] = {"measured_ms", "recorded_ms", "ideal_ms", "unexplained_ms", "unexplained_pct"};
    json_t *out = json_object();
    bool ok = terms && out;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (i == 3 && ok) ok = json_object_set(out, "terms", terms) == 0;
        ok = ok && json_object_set_new(out, keys[i], less(a, b, keys[i])) == 0;
    }
    /* what each took, for headings */
    ok = ok && json_object_set_new(out, "a_measured_ms", hr_real_or_null(hr_num(a, "measured_ms"))) == 0 &&
         json_object_set_new(out, "b_measured_ms", hr_real_or_null(hr_num(b, "measured_ms"))) == 0;
    json_decref(terms);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static json_t *split_json(const json_t *a, const json_t *b) {
    if (!json_is_object(a) || !json_is_object(b)) return json_null();
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)a, key, value) {
        const bool published = !strncmp(key, "published", 9);
        if (out && json_object_set_new(out, key, published ? json_incref(value) : less(a, b, key)) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* ---- what makes two cells hard to compare ---------------------------------------------------------------------------- */

static void value_text(const json_t *value, char *out, size_t n) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    snprintf(out, n, "%s", json_is_string(value) ? json_string_value(value) : text ? text : "?");
    free(text); /* jansson's own memory */
}

static void compare_cells(const json_t *a, const json_t *b, json_t *notes) {
    static const struct {
        const char *key, *what;
    } shapes[] = {{"model_filename", "the models differ"},
                  {"test", "the tests differ"},
                  {"n_seqs", "the numbers of sequences differ"},
                  {"n_depth", "the depths differ"},
                  {"machine_class", "the machines differ, and with them the ceilings"},
                  {"state_class", "the states of the machine differ: part of every difference may be its own"}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const json_t *x = json_object_get(a, shapes[i].key), *y = json_object_get(b, shapes[i].key);
        char one[100], two[100];
        if (!x || !y || json_equal(x, y)) continue;
        value_text(x, one, sizeof one), value_text(y, two, sizeof two);
        hr_explain_note(notes, "%s: %s and %s", shapes[i].what, one, two);
    }
}

static void take_notes(const json_t *from, const char *which, json_t *notes) {
    size_t i;
    json_t *text;
    json_array_foreach(json_object_get(from, "notes"), i, text)
        hr_explain_note(notes, "%s cell: %s", which, json_string_value(text));
}

hr_status hr_explain_difference(const json_t *a, const json_t *b, json_t **out) {
    const json_t *ma = json_object_get(a, "metrics"), *mb = json_object_get(b, "metrics");
    const json_t *sa = json_object_get(a, "split"), *sb = json_object_get(b, "split");
    json_t *all = json_object(), *split = json_object(), *notes = json_array();
    bool ok = all && split && notes, any = false;
    for (size_t i = 0; ok && i < HR_EXPLAIN_METRICS; i++) {
        json_t *m = metric_json(json_object_get(ma, hr_explain_metrics[i]), json_object_get(mb, hr_explain_metrics[i]));
        any |= json_is_object(m);
        ok = json_object_set_new(all, hr_explain_metrics[i], m) == 0 &&
             json_object_set_new(
                 split, hr_explain_phases[i],
                 split_json(json_object_get(sa, hr_explain_phases[i]), json_object_get(sb, hr_explain_phases[i]))) == 0;
    }
    if (ok) {
        compare_cells(json_object_get(a, "cell"), json_object_get(b, "cell"), notes);
        take_notes(a, "first", notes), take_notes(b, "second", notes);
    }
    json_t *json = json_pack("{s:O, s:O, s:o, s:o, s:o}", "cell", json_object_get(a, "cell"), "vs",
                             json_object_get(b, "cell"), "metrics", all, "split", split, "notes", notes);
    if (!ok || !json) {
        json_decref(json);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while comparing two cells");
    }
    if (!any) {
        json_decref(json);
        HR_FAIL(HR_ERR_INPUT, "the two cells have no metric in common: one has TTFT alone, the other TPOT alone");
    }
    *out = json;
    return HR_OK;
}
