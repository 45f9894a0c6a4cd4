/* The section "KV cache": advice, layouts, operations, and what report_kv_tables.c adds. */
#include "harness/report/report_kv.h"

#include <string.h>

static const char legend[] = "time over time of head, the median of pairs, with its 95 % interval and a mark: = no "
                             "difference (all of the interval "
                             "within 2 % of 1), + slower, − faster, ? inconclusive";

static const char *mark(const char *verdict) {
    return !strcmp(verdict, "no difference") ? " ="
           : !strcmp(verdict, "slower")      ? " +"
           : !strcmp(verdict, "faster")      ? " −"
           : *verdict                        ? " ?"
                                             : "";
}

static const char *ratio_of(const json_t *versus) {
    return hr_text_interval(hr_num(versus, "median"), hr_num(versus, "ci95_lo"), hr_num(versus, "ci95_hi"),
                            hr_text_ratio);
}

/* ---- layouts in short ------------------------------------------------------------------------------------------- */

/* One layout in one state over all places. */
typedef struct tally {
    size_t n, slower, same, faster, unclear;
    double log_sum, lowest, highest;
} tally;

static tally count(const json_t *rows, const json_t *arm, const char *state) {
    tally t = {.lowest = INFINITY, .highest = -INFINITY};
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const json_t *versus = json_object_get(row, "vs_head");
        const double ratio = hr_num(versus, "median");
        const char *verdict = hr_word(versus, "verdict");
        if (!(ratio > 0) || !hr_kvr_in_state(row, state) || !hr_kvr_same_arm(row, arm)) continue;
        const bool slower = !strcmp(verdict, "slower"), faster = !strcmp(verdict, "faster"),
                   equal = !strcmp(verdict, "no difference");
        t.n++, t.slower += slower, t.faster += faster, t.same += equal, t.unclear += !slower && !faster && !equal;
        t.log_sum += log(ratio), t.lowest = fmin(t.lowest, ratio), t.highest = fmax(t.highest, ratio);
    }
    return t;
}

static void summary(hr_doc *doc, const json_t *rows) {
    static const char *const headings[] = {"layout",   "state",          ">points", ">mean ratio", ">lowest",
                                           ">highest", ">no difference", ">faster", ">slower",     ">inconclusive",
                                           NULL};
    static const char *const states[] = {"cold", "warm"};
    const json_t *arms[HR_KV_ARMS_MOST];
    const size_t n = hr_kvr_arms(rows, arms, HR_KV_ARMS_MOST);
    hr_doc_table(doc, headings);
    for (size_t a = 0; a < n; a++)
        for (size_t s = 0; s < 2; s++) {
            const tally t = count(rows, arms[a], states[s]);
            if (!t.n) continue;
            hr_doc_cell(doc, "%s", hr_text_arm(arms[a]));
            hr_doc_cell(doc, "%s", states[s]);
            hr_doc_cell(doc, "%zu", t.n);
            hr_doc_cell(doc, "%s", hr_text_ratio(exp(t.log_sum / (double)t.n)));
            hr_doc_cell(doc, "%s", hr_text_ratio(t.lowest));
            hr_doc_cell(doc, "%s", hr_text_ratio(t.highest));
            hr_doc_cell(doc, "%zu", t.same);
            hr_doc_cell(doc, "%zu", t.faster);
            hr_doc_cell(doc, "%zu", t.slower);
            hr_doc_cell(doc, "%zu", t.unclear);
            hr_doc_row_end(doc);
        }
    hr_doc_table_end(doc);
}

/* ---- all places ------------------------------------------------------------------------------------------------- */

static void place_cells(hr_doc *doc, const json_t *place, const json_t *head, bool operations) {
    const json_t *base = head ? head : place;
    if (operations) {
        const double tokens = hr_num(place, "tokens");
        if (tokens > 1)
            hr_doc_cell(doc, "%.24s of %.0f", hr_word(place, "op"), tokens);
        else
            hr_doc_cell(doc, "%.24s", hr_word(place, "op"));
    }
    hr_doc_cell(doc, "%s × %s", hr_text_count(hr_num(place, "kv_heads")), hr_text_count(hr_num(place, "head_dim")));
    hr_doc_cell(doc, "%s", hr_text_count(hr_num(place, "context")));
    hr_doc_cell(doc, "%s", hr_text_count(hr_num(place, "batch")));
    hr_doc_cell(doc, "%.16s", hr_word(place, "state"));
    hr_doc_cell(doc, "%s", isfinite(hr_num(base, "bytes_needed")) ? hr_text_size(hr_num(base, "bytes_needed")) : "");
    hr_doc_cell(doc, "%s", isfinite(hr_num(base, "n")) ? hr_text_count(hr_num(base, "n")) : "");
    hr_doc_cell(
        doc, "%s",
        head ? hr_text_interval(hr_num(head, "median"), hr_num(head, "ci95_lo"), hr_num(head, "ci95_hi"), hr_text_num)
             : "");
    hr_doc_cell(doc, "%s", isfinite(hr_num(head, "gb_s")) ? hr_text_num(hr_num(head, "gb_s")) : "");
}

/* One row a place, one column a layout. */
static void places(hr_doc *doc, const json_t *rows, bool operations) {
    static const char *const before[] = {"KV heads × dim", ">context", ">batch", "state", ">KV", ">n",
                                         ">head us",       ">GB/s"};
    enum { BEFORE = sizeof before / sizeof *before };
    const json_t *at[HR_KV_PLACES_MOST], *arms[HR_KV_ARMS_MOST];
    const char *headings[BEFORE + HR_KV_ARMS_MOST + 2];
    static _Thread_local char names[HR_KV_ARMS_MOST][HR_LABEL_BYTES];
    bool more;
    size_t n_headings = 0;
    const size_t n = hr_kvr_places(rows, at, HR_KV_PLACES_MOST, &more),
                 n_arms = hr_kvr_arms(rows, arms, HR_KV_ARMS_MOST);
    if (operations) headings[n_headings++] = "operation";
    for (size_t i = 0; i < BEFORE; i++) headings[n_headings++] = before[i];
    const size_t first = n_arms && hr_kvr_is_head(arms[0]); /* has columns of its own */
    for (size_t a = first; a < n_arms; a++) {
        snprintf(names[a], sizeof names[a], ">%s", hr_text_arm(arms[a]));
        headings[n_headings++] = names[a];
    }
    headings[n_headings] = NULL;
    hr_doc_table(doc, headings);
    for (size_t i = 0; i < n; i++) {
        place_cells(doc, at[i], hr_kvr_find(rows, at[i], NULL), operations);
        for (size_t a = first; a < n_arms; a++) {
            const json_t *versus = json_object_get(hr_kvr_find(rows, at[i], arms[a]), "vs_head");
            hr_doc_cell(doc, "%s%s", ratio_of(versus), mark(hr_word(versus, "verdict")));
        }
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
    hr_doc_para(doc, "In the columns of layouts: %s. n: samples of each.%s", legend,
                more ? " There are more places than stand here: data/kv_study.tsv has all." : "");
}

/* Memory that evict gives back depends on the layout more than its time does. */
static void freed(hr_doc *doc, const json_t *rows) {
    static const char *const headings[] = {"layout", ">context", ">freed by evict", NULL};
    size_t i;
    json_t *row;
    bool any = false;
    json_array_foreach((json_t *)rows, i, row) {
        const double bytes = hr_num(row, "freed_bytes");
        if (!isfinite(bytes) || !hr_kvr_in_state(row, "cold")) continue;
        if (!any) hr_doc_table(doc, headings);
        any = true;
        hr_doc_cell(doc, "%s", hr_text_arm(row));
        hr_doc_cell(doc, "%s", hr_text_count(hr_num(row, "context")));
        hr_doc_cell(doc, "%s", hr_text_size(bytes));
        hr_doc_row_end(doc);
    }
    if (any) hr_doc_table_end(doc);
}

/* ---- how far to trust it ---------------------------------------------------------------------------------------- */

static void trust(hr_doc *doc, const hr_report *r) {
    static const char *const parts[] = {"layouts", "operations", "dtypes", "allocators"};
    size_t n = 0, changed = 0, few = 0, i;
    double fewest = INFINITY;
    json_t *row;
    for (size_t p = 0; p < 4; p++) json_array_foreach(hr_kvr_rows(r, parts[p]), i, row) {
            const double samples = hr_num(row, "n");
            n++, changed += hr_report_flagged(row, "state_changed");
            few += samples < 6;
            fewest = fmin(fewest, samples);
        }
    char text[200] = "", older[120] = "";
    if (isfinite(fewest)) snprintf(text, sizeof text, ", of at least %s each", hr_text_of(fewest, "sample"));
    if (r->n_kv_replaced)
        snprintf(older, sizeof older, " %s of the same points %s left out.",
                 hr_text_of((double)r->n_kv_replaced, "older row"), r->n_kv_replaced == 1 ? "is" : "are");
    char state[240] = "The machine kept its state.";
    if (strstr(r->kv_advice, "changed its state"))
        state[0] = 0; /* said there */
    else if (changed)
        snprintf(
            state, sizeof state,
            "The machine changed its state during %zu of them: ratios are of pairs taken side by side and stand nearly "
            "untouched, times do not.",
            changed);
    hr_doc_para(doc, "Measured: %s%s, all on this machine class (%.60s). %s%s%s", hr_text_of((double)n, "row"), text,
                *hr_word(r->machine, "machine_class") ? hr_word(r->machine, "machine_class") : "unnamed", state,
                few ? " Rows of fewer than 6 samples have no interval and no verdict." : "", older);
}

/* ---- the section ------------------------------------------------------------------------------------------------ */

static void layouts(hr_doc *doc, const hr_report *r, const hr_page_plot *plots) {
    const json_t *rows = hr_kvr_rows(r, "layouts");
    if (!json_array_size(rows)) return;
    hr_page_plots(doc, plots, "kv_layouts");
    hr_doc_heading(doc, 3, "Layouts over all shapes, batches and contexts");
    hr_doc_para(doc,
                "Time of attention over time of head, cold (caches emptied before each read) and warm. The mean is "
                "geometric. paged-identity is the kernel of pages with pages in order: the price of the look-up "
                "alone; shuffled is the price of scatter alone; contiguous-best is a kernel written for contiguous "
                "memory without the function that finds rows.");
    summary(doc, rows);
    hr_doc_heading(doc, 3, "Every point of attention");
    places(doc, rows, false);
}

static void operations(hr_doc *doc, const hr_report *r) {
    const json_t *rows = hr_kvr_rows(r, "operations");
    if (!json_array_size(rows)) return;
    hr_doc_heading(doc, 3, "Operations on a sequence");
    hr_doc_para(
        doc, "Prefill: one layer. All others: one sequence, all of its layers, one thread. Evict keeps 4 sinks and a "
             "window of a quarter of the context.");
    places(doc, rows, true);
    freed(doc, rows);
}

void hr_report_kv(hr_doc *doc, const hr_report *r, const hr_page_plot *plots) {
    const bool claims = json_array_size(r->claims) > 0;
    if (!hr_kvr_studied(r) && !claims) return; /* said under "What was not measured" */
    hr_doc_heading(doc, 2, "KV cache");
    if (hr_kvr_studied(r)) {
        if (*r->kv_advice) hr_doc_lead(doc, "%s", r->kv_advice);
        trust(doc, r);
        layouts(doc, r, plots);
        hr_kvr_predicted(doc, r);
        operations(doc, r);
        hr_kvr_types(doc, r);
        if (json_array_size(hr_kvr_rows(r, "allocators"))) hr_page_plots(doc, plots, "kv_allocators");
        hr_kvr_allocators(doc, r);
    }
    if (claims) hr_kvr_claims(doc, r);
    hr_doc_para(doc, "Every row with all that is known of it: %s%s%s.", hr_kvr_studied(r) ? "data/kv_study.tsv" : "",
                hr_kvr_studied(r) && claims ? ", " : "", claims ? "data/claims.tsv" : "");
}
