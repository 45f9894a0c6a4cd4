/* Rows of the KV study and of claims: which count, and which stand side by side. */
#include "harness/report/report_kv.h"

#include "harness/kv/study.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *const parts[] = {"layouts", "operations", "dtypes", "allocators"};
enum { PARTS = sizeof parts / sizeof *parts };

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while reading the store for the report");
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

typedef hr_status reader(hr_store *store, const char *run_id, json_t **out);

/* by_key[text of key] is the newest row. */
static hr_status take(json_t *by_key, const json_t *rows, const char *key, size_t *replaced) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const char *id = hr_word(row, key);
        if (json_object_del(by_key, id) == 0 && replaced) ++*replaced;
        if (json_object_set(by_key, id, row) != 0) return no_memory();
    }
    return HR_OK;
}

static hr_status take_all(hr_store *store, const json_t *runs, reader *read, const char *key, json_t *by_key,
                          size_t *replaced) {
    size_t i;
    json_t *run, *rows;
    json_array_foreach((json_t *)runs, i, run) {
        HR_TRY(read(store, hr_word(run, "run_id"), &rows));
        const hr_status status = take(by_key, rows, key, replaced);
        json_decref(rows);
        HR_TRY(status);
    }
    return HR_OK;
}

/* The newest run of another machine that has rows, where the report has none of its own. */
static hr_status look_elsewhere(hr_store *store, const json_t *all, hr_report *r) {
    for (size_t i = json_array_size(all); i-- > 0 && !hr_kvr_studied(r);) {
        const json_t *run = json_array_get(all, i);
        json_t *rows;
        HR_TRY(hr_store_study(store, hr_word(run, "run_id"), &rows));
        const size_t n = json_array_size(rows);
        json_decref(rows);
        if (!n) continue;
        snprintf(r->kv_elsewhere, sizeof r->kv_elsewhere, "%.60s (run %.16s)", hr_word(run, "machine_class"),
                 hr_word(run, "run_id"));
        break;
    }
    return HR_OK;
}

/* Into the lists of their parts; rows of a part that is not known stay out. */
static hr_status sort_out(hr_report *r, const json_t *by_key) {
    const char *key;
    json_t *row;
    r->study = json_pack("{s:[], s:[], s:[], s:[]}", parts[0], parts[1], parts[2], parts[3]);
    if (!r->study) return no_memory();
    json_object_foreach((json_t *)by_key, key, row) {
        json_t *list = json_object_get(r->study, hr_word(row, "part"));
        if (list && json_array_append(list, row) != 0) return no_memory();
        r->n_kv_simulated += hr_report_flagged(row, "simulated");
    }
    return HR_OK;
}

static hr_status list_claims(hr_report *r, const json_t *by_id) {
    const char *id;
    json_t *row;
    if (!(r->claims = json_array())) return no_memory();
    json_object_foreach((json_t *)by_id, id, row) if (json_array_append(r->claims, row) != 0) return no_memory();
    return HR_OK;
}

hr_status hr_report_load_kv(hr_store *store, const json_t *all, hr_report *r) {
    json_t *study = json_object(), *claims = json_object();
    hr_status status = study && claims ? HR_OK : no_memory();
    if (status == HR_OK) status = take_all(store, r->runs, hr_store_study, "key", study, &r->n_kv_replaced);
    if (status == HR_OK) status = take_all(store, r->runs, hr_store_claims, "id", claims, NULL);
    if (status == HR_OK) status = sort_out(r, study);
    if (status == HR_OK) status = list_claims(r, claims);
    json_decref(study), json_decref(claims);
    if (status == HR_OK) status = look_elsewhere(store, all, r);
    if (status == HR_OK && !(r->kv_advice = hr_study_advice(r->study))) status = no_memory();
    return status;
}

void hr_report_kv_fini(hr_report *r) {
    json_decref(r->study), json_decref(r->claims);
    hr_free(r->kv_advice);
}

const json_t *hr_kvr_rows(const hr_report *r, const char *part) {
    return json_object_get(r->study, part);
}

bool hr_kvr_studied(const hr_report *r) {
    for (size_t p = 0; p < PARTS; p++)
        if (json_array_size(hr_kvr_rows(r, parts[p]))) return true;
    return false;
}

const char *hr_kvr_missing(const hr_report *r, char *out, size_t size) {
    if (hr_kvr_studied(r))
        snprintf(out, size, "this part of the study was not run; “headroom kv study --quick” runs all");
    else if (r->kv_elsewhere[0])
        snprintf(out, size,
                 "the store has rows of another machine alone, %s; “headroom kv study --quick” measures this one",
                 r->kv_elsewhere);
    else
        snprintf(out, size, "the KV cache was not studied; “headroom kv study --quick” does so in under three minutes");
    return out;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static char *next(void) {
    static _Thread_local char ring[32][HR_LABEL_BYTES];
    static _Thread_local unsigned at;
    char *text = ring[at++ % 32];
    text[0] = 0;
    return text;
}

const char *hr_text_arm(const json_t *row) {
    char *text = next();
    const double page = hr_num(row, "page_size");
    const char *name = *hr_word(row, "name") ? hr_word(row, "name") : "unnamed";
    if (page > 0)
        snprintf(text, HR_LABEL_BYTES, "%.32s:%.0f", name, page);
    else
        snprintf(text, HR_LABEL_BYTES, "%.32s", name);
    return hr_text_whole(text);
}

const char *hr_text_allocator(const json_t *row) {
    char *text = next();
    const double threshold = hr_num(row, "threshold"), every = hr_num(row, "compact_every");
    const char *name = *hr_word(row, "name") ? hr_word(row, "name") : "unnamed";
    int n = snprintf(text, HR_LABEL_BYTES, "%.32s", name);
#define MORE(...) n += snprintf(text + n, HR_LABEL_BYTES - (size_t)n, __VA_ARGS__)
    if (threshold > 0) MORE(" < %.0f", threshold);
    if (every > 0) MORE(", compact every %.0f", every);
    if (every == 0) MORE(", no compaction");
    if (json_is_true(json_object_get(row, "share_prefix"))) MORE(", shared");
    if (json_is_true(json_object_get(row, "prepared"))) MORE(", prepared");
#undef MORE
    return hr_text_whole(text);
}

const char *hr_text_ratio(double v) {
    char *text = next();
    if (!isfinite(v))
        snprintf(text, HR_LABEL_BYTES, "–");
    else if (v > 0 && v < 0.0995)
        snprintf(text, HR_LABEL_BYTES, "%.*f", v < 1e-9 ? 2 : 1 - (int)floor(log10(v)), v); /* no exponents */
    else
        snprintf(text, HR_LABEL_BYTES, "%.*f", fabs(v) < 9.995 ? 2 : fabs(v) < 99.95 ? 1 : 0, v);
    return text;
}

const char *hr_text_interval(double value, double lo, double hi, const char *(*number)(double)) {
    char *text = next();
    if (isfinite(value) && isfinite(lo) && isfinite(hi))
        snprintf(text, HR_LABEL_BYTES, "%.50s (%.50s–%.50s)", number(value), number(lo), number(hi));
    else if (isfinite(value))
        snprintf(text, HR_LABEL_BYTES, "%.50s", number(value));
    return text;
}

/* ---- places and arms -------------------------------------------------------------------------------------------- */

static bool same(const json_t *a, const json_t *b, const char *const *keys) {
    for (; *keys; keys++) {
        const json_t *x = json_object_get(a, *keys), *y = json_object_get(b, *keys);
        const bool none_x = !x || json_is_null(x), none_y = !y || json_is_null(y);
        if (none_x != none_y || (!none_x && !json_equal(x, y))) return false;
    }
    return true;
}

static const char *const shape_keys[] = {"op",     "kv_heads", "head_dim", "group",  "type_k",
                                         "type_v", "batch",    "threads",  "tokens", NULL};
static const char *const context_keys[] = {"context", NULL};

bool hr_kvr_same_shape(const json_t *a, const json_t *b) {
    return same(a, b, shape_keys);
}
bool hr_kvr_same_place(const json_t *a, const json_t *b) {
    return same(a, b, context_keys) && same(a, b, shape_keys);
}
bool hr_kvr_in_state(const json_t *row, const char *state) {
    return !strcmp(hr_word(row, "state"), state);
}

size_t hr_kvr_places(const json_t *rows, const json_t **out, size_t most, bool *more) {
    size_t n = 0, i, k;
    json_t *row;
    *more = false;
    json_array_foreach((json_t *)rows, i, row) {
        for (k = 0; k < n; k++)
            if (hr_kvr_same_place(out[k], row) && hr_kvr_in_state(out[k], hr_word(row, "state"))) break;
        if (k < n) continue;
        if (n == most) {
            *more = true;
            break;
        }
        out[n++] = row;
    }
    return n;
}

bool hr_kvr_same_arm(const json_t *a, const json_t *b) {
    static const char *const page[] = {"page_size", NULL};
    return !strcmp(hr_word(a, "name"), hr_word(b, "name")) && same(a, b, page);
}

bool hr_kvr_is_head(const json_t *row) {
    return !strcmp(hr_word(row, "name"), "head");
}

size_t hr_kvr_arms(const json_t *rows, const json_t **out, size_t most) {
    size_t n = 0, i, k;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        for (k = 0; k < n && !hr_kvr_same_arm(out[k], row); k++) continue;
        if (k == n && n < most) out[n++] = row;
    }
    for (k = 1; k < n; k++)
        if (hr_kvr_is_head(out[k])) {
            const json_t *head = out[k];
            memmove(out + 1, out, k * sizeof *out);
            out[0] = head;
            break;
        }
    return n;
}

const json_t *hr_kvr_find(const json_t *rows, const json_t *place, const json_t *arm) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const bool wanted = arm ? hr_kvr_same_arm(row, arm) : hr_kvr_is_head(row);
        if (wanted && hr_kvr_in_state(row, hr_word(place, "state")) && hr_kvr_same_place(row, place)) return row;
    }
    return NULL;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

const json_t *hr_kvr_usual_shape(const json_t *rows, double *contexts, size_t *n) {
    const json_t *best = NULL;
    size_t i, j, k;
    json_t *row, *other;
    *n = 0;
    json_array_foreach((json_t *)rows, i, row) {
        double seen[HR_KV_PLACES_MOST];
        size_t m = 0;
        if (!hr_kvr_in_state(row, "cold") || strcmp(hr_word(row, "op"), "decode")) continue;
        if (best && hr_kvr_same_shape(best, row)) continue;
        json_array_foreach((json_t *)rows, j, other) {
            const double context = hr_num(other, "context");
            if (!hr_kvr_in_state(other, "cold") || !hr_kvr_same_shape(row, other) || !isfinite(context)) continue;
            for (k = 0; k < m && seen[k] != context; k++) continue;
            if (k == m && m < HR_KV_PLACES_MOST) seen[m++] = context;
        }
        if (m <= *n) continue;
        best = row, *n = m;
        memcpy(contexts, seen, m * sizeof *seen);
    }
    qsort(contexts, *n, sizeof *contexts, ascending);
    return best;
}
