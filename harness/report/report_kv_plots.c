/* Plots of the KV study: layouts against contexts as a heat map and as curves, allocators by budget and by concurrency. */
#include "harness/report/report_kv.h"

#include <string.h>

/* ---- the heat map ----------------------------------------------------------------------------------------------- */

enum { ROW_HEIGHT = 34, ROOM_ABOVE_AND_BELOW = 120 };

static void shape_text(const json_t *row, char *out, size_t size) {
    snprintf(out, size, "%s of %s, %s a KV head, %.16s, batch %s", hr_text_of(hr_num(row, "kv_heads"), "KV head"),
             hr_text_count(hr_num(row, "head_dim")), hr_text_of(hr_num(row, "group"), "query head"),
             hr_word(row, "type_k"), hr_text_count(hr_num(row, "batch")));
}

/* The row of a layout at a context of the shape; NULL: none. */
static const json_t *at_context(const json_t *rows, const json_t *shape, const char *state, double context,
                                const json_t *arm) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) if (hr_num(row, "context") == context && hr_kvr_same_arm(row, arm) &&
                                                   hr_kvr_in_state(row, state) &&
                                                   hr_kvr_same_shape(row, shape)) return row;
    return NULL;
}

/* Ratio and verdict; of head, which everything is compared with, the time and the rate. */
static void heat_cell(hr_plot_data *data, size_t series, double x, const json_t *row) {
    const json_t *versus = json_object_get(row, "vs_head");
    const double ratio = hr_num(versus, "median");
    const bool base = !isfinite(ratio) && hr_kvr_is_head(row);
    if (!isfinite(ratio) && !base) return;
    char figure[48], note[48];
    if (base) {
        const double us = hr_num(row, "median");
        snprintf(figure, sizeof figure, us < 1e4 ? "%.20s us" : "%.20s ms", hr_text_num(us < 1e4 ? us : us * 1e-3));
        snprintf(note, sizeof note, "%.20s GB/s", hr_text_num(hr_num(row, "gb_s")));
    } else {
        snprintf(figure, sizeof figure, "%.20s", hr_text_ratio(ratio));
        snprintf(note, sizeof note, "%.20s", *hr_word(versus, "verdict") ? hr_word(versus, "verdict") : "no verdict");
    }
    json_t *out =
        hr_plot_row(data, series,
                    (double[]){x, (double)series, hr_num(row, "context"), base ? 1 : ratio, hr_num(versus, "ci95_lo"),
                               hr_num(versus, "ci95_hi"), base ? hr_num(row, "n") : hr_num(versus, "n")},
                    7);
    hr_plot_text(data, out, base ? "base" : note);
    hr_plot_text(data, out, figure);
    hr_plot_text(data, out, note);
}

void hr_fill_kv_heatmap(const hr_report *r, hr_plot_data *data) {
    const json_t *rows = hr_kvr_rows(r, "layouts"), *arms[HR_KV_ARMS_MOST];
    double contexts[HR_KV_PLACES_MOST];
    size_t n;
    char why[200], label[80], shape_words[160];
    const json_t *shape = hr_kvr_usual_shape(rows, contexts, &n);
    if (!shape) {
        hr_plot_why(data, "%s", hr_kvr_missing(r, why, sizeof why));
        return;
    }
    const size_t n_arms = hr_kvr_arms(rows, arms, HR_KV_ARMS_MOST);
    for (size_t a = 0; a < n_arms; a++) {
        const size_t series = hr_plot_series(data, hr_text_arm(arms[a]));
        for (size_t i = 0; i < n; i++)
            heat_cell(data, series, (double)i + 1, at_context(rows, shape, "cold", contexts[i], arms[a]));
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *any = at_context(rows, shape, "cold", contexts[i], arms[0]);
        const double bytes = hr_num(any ? any : shape, "bytes_needed");
        snprintf(label, sizeof label, "%.0f", contexts[i]);
        hr_plot_list_word(data, "labels", label);
        hr_plot_list_word(data, "sizes", any && isfinite(bytes) ? hr_text_size(bytes) : "");
    }
    hr_plot_count(data, "height", ROOM_ABOVE_AND_BELOW + ROW_HEIGHT * n_arms);
    shape_text(shape, shape_words, sizeof shape_words);
    hr_plot_more(data, "Shape: %s.", shape_words);
    if (!json_array_size(data->rows)) hr_plot_why(data, "no layout was compared with head");
}

/* ---- curves ----------------------------------------------------------------------------------------------------- */

/* Panels: 1 and 2 cold, 3 and 4 warm; 1 and 3 without pages, 2 and 4 with them. What all are compared with is in each. */
enum { PANELS = 4 };

static bool in_panel(const json_t *arm, size_t panel) {
    const bool paged = hr_num(arm, "page_size") > 0, base = hr_kvr_is_head(arm);
    return base || paged == (panel % 2 == 0);
}

/* Bandwidth out of a time; the interval turns round. */
static void curve_point(hr_plot_data *data, size_t series, size_t panel, const json_t *row) {
    const double us = hr_num(row, "median"), bytes = hr_num(row, "bytes_needed");
    if (!(us > 0) || !(bytes > 0)) return;
    json_t *out =
        hr_plot_row(data, series,
                    (double[]){hr_num(row, "context"), bytes / us * 1e-3, bytes / hr_num(row, "ci95_hi") * 1e-3,
                               bytes / hr_num(row, "ci95_lo") * 1e-3, us, hr_num(row, "n"), (double)panel},
                    7);
    hr_plot_text(data, out, hr_word(row, "state"));
}

void hr_fill_kv_curves(const hr_report *r, hr_plot_data *data) {
    const json_t *rows = hr_kvr_rows(r, "layouts"), *arms[HR_KV_ARMS_MOST];
    double contexts[HR_KV_PLACES_MOST];
    size_t n, used[PANELS] = {0};
    char why[200], shape_words[160];
    const json_t *shape = hr_kvr_usual_shape(rows, contexts, &n);
    if (!shape || n < 2) {
        if (shape)
            hr_plot_why(data, "the layouts were read at one context alone");
        else
            hr_plot_why(data, "%s", hr_kvr_missing(r, why, sizeof why));
        return;
    }
    const size_t n_arms = hr_kvr_arms(rows, arms, HR_KV_ARMS_MOST);
    size_t contiguous = 1, paged = 1; /* 1 is head, which is in every panel */
    for (size_t a = 0; a < n_arms; a++) {
        hr_plot_series(data, hr_text_arm(arms[a]));
        hr_plot_list_count(data, "look",
                           hr_kvr_is_head(arms[a])            ? 1
                           : hr_num(arms[a], "page_size") > 0 ? ++paged
                                                              : ++contiguous);
    }
    for (size_t panel = 1; panel <= PANELS; panel++)
        for (size_t a = 0; a < n_arms; a++) {
            const size_t before = json_array_size(data->rows);
            const char *state = panel <= 2 ? "cold" : "warm";
            for (size_t i = 0; i < n && in_panel(arms[a], panel); i++)
                curve_point(data, a + 1, panel, at_context(rows, shape, state, contexts[i], arms[a]));
            const bool here = json_array_size(data->rows) > before;
            hr_plot_list_count(data, "shown", here);
            used[panel - 1] += here;
        }
    for (size_t panel = 0; panel < PANELS; panel++) hr_plot_list_count(data, "panel", used[panel]);
    for (size_t i = 0; i < n; i++) hr_plot_list_number(data, "xs", contexts[i]);
    if (!used[2] && !used[3]) hr_plot_count(data, "height", 420);
    shape_text(shape, shape_words, sizeof shape_words);
    hr_plot_more(data, "Shape: %s.", shape_words);
    if (!json_array_size(data->rows)) hr_plot_why(data, "no time of a layout is in the store");
}

/* ---- allocators ------------------------------------------------------------------------------------------------- */

/* Requests a second and their interval, which is that of the wall time turned round. */
static bool rate(const json_t *row, double *value, double *lo, double *hi) {
    const double requests = hr_num(row, "requests"), ms = hr_num(row, "median");
    *value = isfinite(hr_num(row, "requests_s")) ? hr_num(row, "requests_s") : requests / ms * 1e3;
    *lo = requests / hr_num(row, "ci95_hi") * 1e3, *hi = requests / hr_num(row, "ci95_lo") * 1e3;
    return isfinite(*value);
}

/* A budget is a share of what sampled lengths demand, so that one share gives slightly different bytes. */
static bool about(double a, double b) {
    return fabs(a - b) <= 0.1 * b;
}

/* Distinct values of a number over the rows that have about the same as `of` under another key. */
static size_t distinct(const json_t *rows, const char *key, const json_t *of, const char *equal, double *out,
                       size_t most) {
    size_t n = 0, i, k;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const double v = rint(hr_num(row, key));
        if (!isfinite(v) || !about(hr_num(row, equal), hr_num(of, equal))) continue;
        for (k = 0; k < n && out[k] != v; k++) continue;
        if (k < n || n == most) continue;
        for (k = n++; k > 0 && out[k - 1] > v; k--) out[k] = out[k - 1];
        out[k] = v;
    }
    return n;
}

/* A row of the traffic that has most values of a key among those of equal `equal`. */
static const json_t *richest(const json_t *rows, const char *key, const char *equal, double *values, size_t most,
                             size_t *n) {
    const json_t *best = NULL;
    size_t i;
    json_t *row;
    *n = 0;
    json_array_foreach((json_t *)rows, i, row) {
        if (!isfinite(hr_num(row, equal))) continue;
        const size_t m = distinct(rows, key, row, equal, values, most);
        if (m > *n) best = row, *n = m;
    }
    if (best) *n = distinct(rows, key, best, equal, values, most);
    return best;
}

static const json_t *of_traffic(const json_t *rows, const char *name, const char *key, double value, const json_t *of,
                                const char *equal) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) if (rint(hr_num(row, key)) == value &&
                                                   about(hr_num(row, equal), hr_num(of, equal)) &&
                                                   !strcmp(hr_text_allocator(row), name)) return row;
    return NULL;
}

static size_t allocator_names(const json_t *rows, const char (**out)[HR_LABEL_BYTES]) {
    static _Thread_local char names[HR_KV_ARMS_MOST][HR_LABEL_BYTES];
    size_t n = 0, i, k;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const char *name = hr_text_allocator(row);
        for (k = 0; k < n && strcmp(names[k], name); k++) continue;
        if (k == n && n < HR_KV_ARMS_MOST) snprintf(names[n++], HR_LABEL_BYTES, "%s", name);
    }
    *out = names;
    return n;
}

static const double BETWEEN = 0.7; /* bars of space between two allocators */

/* The bars of one allocator from y on; the next y. */
static double bars(hr_plot_data *data, const json_t *rows, const json_t *of, const char *name, const double *budgets,
                   size_t n_budgets, double y) {
    const double first = y;
    double value, lo, hi;
    for (size_t b = 0; b < n_budgets; b++) {
        const json_t *row = of_traffic(rows, name, "budget_pct", budgets[b], of, "concurrency");
        if (!row || !rate(row, &value, &lo, &hi)) continue;
        json_t *out = hr_plot_row(
            data, b + 1, (double[]){y++, value, lo, hi, budgets[b], hr_num(row, "n"), hr_num(row, "largest_batch")}, 7);
        hr_plot_text(data, out, name);
    }
    if (y == first) return y;
    hr_plot_list_word(data, "labels", name);
    hr_plot_list_number(data, "at", (first + y - 1) / 2);
    return y + BETWEEN;
}

/* Bars lie, so that there is room for names. */
void hr_fill_kv_allocators(const hr_report *r, hr_plot_data *data) {
    const json_t *rows = hr_kvr_rows(r, "allocators");
    const char(*names)[HR_LABEL_BYTES];
    double budgets[6], y = 1;
    size_t n_budgets;
    char text[200];
    const json_t *of = richest(rows, "budget_pct", "concurrency", budgets, 6, &n_budgets);
    if (!of) {
        hr_plot_why(data, "%s", hr_kvr_missing(r, text, sizeof text));
        return;
    }
    const size_t n = allocator_names(rows, &names);
    for (size_t b = 0; b < n_budgets; b++) {
        snprintf(text, sizeof text, "KV memory %.0f %% of the demand", budgets[b]);
        hr_plot_series(data, text);
    }
    for (size_t a = 0; a < n; a++) y = bars(data, rows, of, names[a], budgets, n_budgets, y);
    if (!json_array_size(data->rows)) {
        hr_plot_why(data, "no rate of an allocator is in the store");
        return;
    }
    hr_plot_number(data, "last", y - BETWEEN - 1);
    hr_plot_count(data, "height", (size_t)(110 + 18 * y));
    hr_plot_more(data, "%s at once. Traffic: %.200s.", hr_text_of(hr_num(of, "concurrency"), "request"),
                 *hr_word(of, "distribution") ? hr_word(of, "distribution") : "not described");
}

/* ---- concurrency ------------------------------------------------------------------------------------------------ */

/* Plain pages against the pool, where intervals are apart. */
static void crossing(const json_t *rows, const json_t *of, const double *at, size_t n, hr_plot_data *data) {
    char ahead[100] = "", behind[100] = "";
    size_t compared = 0;
    for (size_t i = 0; i < n; i++) {
        double value, lo, hi, pool_value, pool_lo, pool_hi;
        const json_t *paged = NULL, *pool = NULL;
        size_t k;
        json_t *row;
        json_array_foreach((json_t *)rows, k, row) {
            if (hr_num(row, "concurrency") != at[i] || !about(hr_num(row, "budget_bytes"), hr_num(of, "budget_bytes")))
                continue;
            const bool plain =
                !json_is_true(json_object_get(row, "share_prefix")) && !json_is_true(json_object_get(row, "prepared"));
            if (!paged && plain && !strcmp(hr_word(row, "name"), "paged")) paged = row;
            if (!pool && !strcmp(hr_word(row, "name"), "pool")) pool = row;
        }
        if (!paged || !pool || !rate(paged, &value, &lo, &hi) || !rate(pool, &pool_value, &pool_lo, &pool_hi)) continue;
        compared++;
        char *list = lo > pool_hi ? ahead : hi < pool_lo ? behind : NULL;
        if (!list) continue;
        const size_t used = strlen(list);
        snprintf(list + used, sizeof ahead - used, "%s%.0f", used ? ", " : "", at[i]);
    }
    if (!compared) return;
    if (!*ahead && !*behind)
        hr_plot_more(data,
                     "Pages against the pool: no difference is shown at any concurrency, as all intervals touch.");
    else
        hr_plot_more(data, "Pages against the pool, where intervals are apart: ahead at %s, behind at %s requests.",
                     *ahead ? ahead : "none", *behind ? behind : "none");
}

void hr_fill_kv_concurrency(const hr_report *r, hr_plot_data *data) {
    const json_t *rows = hr_kvr_rows(r, "allocators");
    const char(*names)[HR_LABEL_BYTES];
    double at[32], value, lo, hi;
    size_t n_at, lines = 0;
    char text[200];
    const json_t *of = richest(rows, "concurrency", "budget_bytes", at, 32, &n_at);
    if (!of || n_at < 2) {
        if (json_array_size(rows))
            hr_plot_why(data, "one number of requests at once alone was measured in one memory");
        else
            hr_plot_why(data, "%s", hr_kvr_missing(r, text, sizeof text));
        return;
    }
    const size_t n = allocator_names(rows, &names);
    for (size_t a = 0; a < n; a++) {
        size_t points = 0;
        for (size_t i = 0; i < n_at; i++)
            points += of_traffic(rows, names[a], "concurrency", at[i], of, "budget_bytes") != NULL;
        if (points < 2) continue;
        const size_t series = hr_plot_series(data, names[a]);
        for (size_t i = 0; i < n_at; i++) {
            const json_t *row = of_traffic(rows, names[a], "concurrency", at[i], of, "budget_bytes");
            if (!row || !rate(row, &value, &lo, &hi)) continue;
            lines++;
            hr_plot_row(
                data, series,
                (double[]){at[i], value, lo, hi, hr_num(row, "n"), hr_num(row, "largest_batch"), hr_num(row, "p99_ms")},
                7);
        }
    }
    for (size_t i = 0; i < n_at; i++) hr_plot_list_number(data, "xs", at[i]);
    hr_plot_more(data, "Memory for KV: about %s.", hr_text_size(hr_num(of, "budget_bytes")));
    crossing(rows, of, at, n_at, data);
    if (!lines) hr_plot_why(data, "no allocator was measured at two numbers of requests at once");
}
