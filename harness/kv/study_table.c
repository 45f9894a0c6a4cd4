/* The tables for people: what is compared stands side by side. */
#include "harness/kv/study_print.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

const char hr_study_legend[] =
    "time / time of head, median of pairs: = no difference (within 2 %), + slower, - faster, ? inconclusive";

const char *hr_study_mark(const char *verdict) {
    if (!strcmp(verdict, "no difference")) return "=";
    if (!strcmp(verdict, "slower")) return "+";
    return strcmp(verdict, "faster") ? "?" : "-";
}

/* Behind the point, for two digits that say something; forks of pages take 0.00009 of the time. */
static int digits_of(double ratio) {
    if (ratio >= 10) return 0;
    return ratio >= 0.1 || ratio < 1e-9 ? 2 : 1 - (int)floor(log10(ratio));
}

/* "1.03 +"; "" where there is no comparison. */
static void ratio_text(const json_t *versus, char *out, size_t n) {
    const double median = hr_num(versus, "median");
    out[0] = 0;
    if (isfinite(median))
        snprintf(out, n, "%.*f %s", digits_of(median), median, hr_study_mark(hr_word(versus, "verdict")));
}

/* "paged:16" */
static void arm_text(const json_t *row, char *out, size_t n) {
    const json_t *page = json_object_get(row, "page_size");
    if (json_is_integer(page))
        snprintf(out, n, "%s:%d", hr_word(row, "name"), (int)json_integer_value(page));
    else
        snprintf(out, n, "%s", hr_word(row, "name"));
}

static const char *const place_keys[] = {"op", "kv_heads", "head_dim", "context", "batch", "state", NULL};

static bool same_place(const json_t *a, const json_t *b) {
    for (size_t k = 0; place_keys[k]; k++)
        if (!json_equal(json_object_get(a, place_keys[k]), json_object_get(b, place_keys[k]))) return false;
    return true;
}

/* One row a place, one column an arm. *arms: {arm: null} in the order in which they come up. */
static json_t *by_place(const json_t *list, json_t *arms) {
    json_t *out = json_array(), *row, *place = NULL;
    size_t i;
    char arm[64], text[32];
    json_array_foreach((json_t *)list, i, row) {
        if (!place || !same_place(place, row)) {
            place = json_object();
            for (size_t k = 0; place && place_keys[k]; k++)
                json_object_set(place, place_keys[k], json_object_get(row, place_keys[k]));
            if (json_array_append_new(out, place)) break;
        }
        if (!strcmp(hr_word(row, "name"), "head")) {
            const double bytes = hr_num(row, "bytes_needed");
            json_object_set(place, "head", json_object_get(row, "median"));
            json_object_set(place, "gb_s", json_object_get(row, "gb_s"));
            json_object_set_new(place, "kib", isfinite(bytes) ? json_real(bytes / 1024) : json_null());
            continue;
        }
        arm_text(row, arm, sizeof arm);
        ratio_text(json_object_get(row, "vs_head"), text, sizeof text);
        json_object_set_new(place, arm, json_string(text));
        json_object_set_new(arms, arm, json_null());
    }
    return out;
}

static hr_status places_table(const json_t *list, bool operations, json_t **rows, const char ***keys) {
    static const char *const before[] = {"kv_heads|=KV heads", "head_dim|=dim", "context", "batch", "kib|=KiB"};
    json_t *arms = json_object(), *place, *value;
    *rows = arms ? by_place(list, arms) : NULL;
    *keys = hr_calloc(16 + json_object_size(arms), sizeof **keys);
    if (!*rows || !*keys) {
        json_decref(arms);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the study");
    }
    size_t n = 0;
    if (operations) (*keys)[n++] = "op";
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) (*keys)[n++] = before[i];
    (*keys)[n++] = "state";
    (*keys)[n++] = "head|=head us";
    (*keys)[n++] = "gb_s|=GB/s";
    /* names that live in the rows */
    const char *key;
    size_t i;
    json_array_foreach(*rows, i, place) json_object_foreach(place, key, value) {
        if (!json_object_get(arms, key)) continue;
        (*keys)[n++] = key;
        json_object_del(arms, key);
    }
    json_decref(arms);
    return HR_OK;
}

/* ---- types ---- */

static json_t *types_rows(const json_t *list) {
    json_t *out = json_array(), *row, *p;
    size_t i, k;
    char text[32], name[32];
    json_array_foreach((json_t *)list, i, row) {
        json_t *one =
            json_pack("{s:O?, s:O?, s:O?, s:O?, s:O?}", "name", json_object_get(row, "name"), "model",
                      json_object_get(row, "model"), "context", json_object_get(row, "context"), "bytes_token",
                      json_object_get(row, "bytes_token"), "median", json_object_get(row, "median"));
        ratio_text(json_object_get(row, "vs_bf16"), text, sizeof text);
        json_object_set_new(one, "vs_bf16", json_string(text));
        json_array_foreach(json_object_get(row, "ppl"), k, p) {
            const double delta = hr_num(p, "delta_pct");
            snprintf(name, sizeof name, "ppl%zu", k);
            snprintf(text, sizeof text, isfinite(delta) ? "%.3f (%+.2f %%)" : "%.3f", hr_num(p, "ppl"), delta);
            json_object_set_new(one, name, json_string(text));
        }
        json_array_append_new(out, one);
    }
    return out;
}

/* Headings of the columns of perplexity, which say the context. */
static const char *ppl_heading(const json_t *list, size_t k) {
    static char text[4][64];
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)list, i, row) {
        const json_t *p = json_array_get(json_object_get(row, "ppl"), k);
        if (!p || k >= 4) continue;
        snprintf(text[k], sizeof text[k], "ppl%zu|=perplexity at %d", k, (int)hr_num(p, "ctx"));
        return text[k];
    }
    return NULL;
}

static hr_status types_table(const json_t *list, json_t **rows, const char ***keys) {
    *rows = types_rows(list);
    *keys = hr_calloc(16, sizeof **keys);
    if (!*rows || !*keys) HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the study");
    static const char *const first[] = {"name|=K/V",       "model",           "context", "bytes_token|=bytes a token",
                                        "median|=step ms", "vs_bf16|=vs bf16"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) (*keys)[n++] = first[i];
    for (size_t k = 0; k < 4; k++)
        if (ppl_heading(list, k)) (*keys)[n++] = ppl_heading(list, k);
    return HR_OK;
}

/* ---- allocators ---- */

static hr_status allocators_table(const json_t *list, json_t **rows, const char ***keys) {
    static const char *const columns[] = {"name|=allocator",
                                          "budget_pct|=budget %",
                                          "concurrency|=requests at once",
                                          "page_size|=page",
                                          "share_prefix|=shared",
                                          "prepared",
                                          "threshold",
                                          "compact_every|=compact",
                                          "largest_batch|=largest batch",
                                          "requests_s|=requests/s",
                                          "p50_ms|=P50 ms",
                                          "p99_ms|=P99 ms",
                                          "waste_inside_pct|=wasted inside %",
                                          "waste_between_pct|=between %",
                                          "failed_admissions|=refused",
                                          "preemptions|=preempted",
                                          "prefix_hits|=prefix hits",
                                          "evictions",
                                          "compactions",
                                          NULL};
    *rows = json_incref((json_t *)list);
    *keys = hr_calloc(sizeof columns / sizeof *columns, sizeof **keys);
    if (!*keys) HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the study");
    memcpy(*keys, columns, sizeof columns);
    return HR_OK;
}

hr_status hr_study_table(const json_t *study, const char *part, json_t **rows, const char ***keys) {
    const json_t *list = json_object_get(study, part);
    *rows = NULL, *keys = NULL;
    hr_status status;
    if (!strcmp(part, "layouts") || !strcmp(part, "operations"))
        status = places_table(list, !strcmp(part, "operations"), rows, keys);
    else if (!strcmp(part, "dtypes"))
        status = types_table(list, rows, keys);
    else
        status = allocators_table(list, rows, keys);
    if (status == HR_OK) return HR_OK;
    json_decref(*rows);
    hr_free((void *)*keys);
    return status;
}
