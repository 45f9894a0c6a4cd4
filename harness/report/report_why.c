/* The waterfall of the cells that stand for the others, in figures; and the advice. */
#include "harness/report/report_why.h"

#include "harness/explain/explain_plot.h"

#include <stdlib.h>
#include <string.h>

/* ---- where the time went ---------------------------------------------------------------------------------------- */

/* Backquotes are for the terminal. */
static const char *plain(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; *text && n + 1 < size; text++)
        if (*text != '`') out[n++] = *text;
    out[n] = 0;
    return hr_text_whole(out);
}

static json_t *tsv_of(const json_t *e, const char *metric) {
    char *text = NULL;
    size_t n;
    FILE *stream = open_memstream(&text, &n);
    if (!stream) return NULL;
    const hr_status status = hr_explain_tsv(e, metric, stream);
    json_t *tsv = fclose(stream) == 0 && status == HR_OK ? json_string(text) : NULL;
    free(text); /* open_memstream's own memory */
    return tsv;
}

static void fill(const hr_report *r, const char *metric, const char *name, hr_plot_data *data) {
    const json_t *e = hr_why_explained(r, metric);
    if (!e) {
        char why[400];
        hr_plot_why(data, "%s", plain(hr_why_missing(r), why, sizeof why));
        return;
    }
    data->tsv = tsv_of(e, metric);
    if (!data->tsv || hr_explain_add_panel(e, metric, name, data, &data->height) != HR_OK) data->failed = true;
}

void hr_fill_waterfall_tpot(const hr_report *r, hr_plot_data *data) {
    fill(r, "tpot", "waterfall_tpot", data);
}

void hr_fill_waterfall_ttft(const hr_report *r, hr_plot_data *data) {
    fill(r, "ttft", "waterfall_ttft", data);
}

static const char *rate(double v) {
    return v > 0 ? hr_text_num(v) : ""; /* of work that no ceiling counts there is no rate */
}

static void terms(hr_doc *doc, const json_t *metric) {
    static const char *const headings[] = {
        "term", "kind", ">ms", ">of measured", ">GB/s", ">GFLOP/s", ">of roof", "why, and what to try", NULL};
    const double whole = hr_num(metric, "measured_ms");
    size_t i;
    json_t *term;
    hr_doc_table(doc, headings);
    json_array_foreach(json_object_get(metric, "terms"), i, term) {
        char why[700];
        const double ms = hr_num(term, "ms"), fraction = hr_num(term, "roof_fraction");
        hr_doc_cell(doc, "%.24s", hr_word(term, "name"));
        hr_doc_cell(doc, "%.16s", hr_word(term, "kind"));
        hr_doc_cell(doc, "%s", hr_text_num(fabs(ms) < 1e-9 * whole ? 0 : ms)); /* what roundings leave of a sum */
        hr_doc_cell(doc, "%.1f %%", ms / whole * 100);
        hr_doc_cell(doc, "%s", rate(hr_num(term, "gb_s")));
        hr_doc_cell(doc, "%s", rate(hr_num(term, "gflop_s")));
        hr_doc_cell(doc, "%s", isfinite(fraction) ? hr_text_pct(fraction) : "");
        hr_doc_cell(doc, "%s", plain(hr_word(term, "reason"), why, sizeof why));
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

static void metric_table(hr_doc *doc, const json_t *e, const char *name) {
    const json_t *metric = json_object_get(json_object_get(e, "metrics"), name), *cell = json_object_get(e, "cell");
    const double whole = hr_num(metric, "measured_ms"), ideal = hr_num(metric, "ideal_ms"),
                 recorded = hr_num(metric, "recorded_ms");
    char need[80] = "", with[80] = "";
    if (isfinite(ideal)) snprintf(need, sizeof need, "; the ceilings allow %s ms", hr_text_num(ideal));
    if (isfinite(recorded)) snprintf(with, sizeof with, ", %s ms with it on", hr_text_num(recorded));
    hr_doc_para(doc, "%s of %s: %s ms with the recorder off%s%s; %.2f %% is left unexplained.",
                !strcmp(name, "tpot") ? "TPOT" : "TTFT", hr_text_title(cell), hr_text_num(whole), with, need,
                hr_num(metric, "unexplained_pct"));
    terms(doc, metric);
}

/* "attention 12 % (published: 23 %)" of the phases that are known. */
static void splits(hr_doc *doc, const json_t *e, const char *metric) {
    const json_t *split = json_object_get(e, "split"), *p = json_object_get(split, "prefill"),
                 *d = json_object_get(split, "decode");
    if (!strcmp(metric, "ttft") && isfinite(hr_num(p, "gemm_pct")))
        hr_doc_para(doc,
                    "Of the ops of this prefill: matrix products %.0f %% (published: %.0f %%), attention %.0f %% "
                    "(%.0f %%), the rest %.0f %%.",
                    hr_num(p, "gemm_pct"), hr_num(p, "published_gemm_pct"), hr_num(p, "attention_pct"),
                    hr_num(p, "published_attention_pct"), hr_num(p, "other_pct"));
    if (!strcmp(metric, "tpot") && isfinite(hr_num(d, "memory_pct")))
        hr_doc_para(doc,
                    "Of this decode step, memory needs %.0f %% at its ceiling (published: %.0f %%) and arithmetic "
                    "%.0f %% (%.0f %%).",
                    hr_num(d, "memory_pct"), hr_num(d, "published_memory_pct"), hr_num(d, "compute_pct"),
                    hr_num(d, "published_compute_pct"));
}

void hr_report_waterfall(hr_doc *doc, const hr_report *r, const hr_page_plot *plots) {
    static const char *const metrics[] = {"tpot", "ttft"};
    size_t i;
    json_t *note;
    if (!hr_why_explained(r, metrics[0]) && !hr_why_explained(r, metrics[1])) return; /* said under what is missing */
    hr_doc_para(doc,
                "From what the measured ceilings allow to what was measured, term by term. The terms add up to the "
                "time with the recorder off; “headroom explain CELL” does this for any cell.");
    hr_page_plots(doc, plots, "waterfall");
    for (size_t m = 0; m < 2; m++) {
        const json_t *e = hr_why_explained(r, metrics[m]);
        if (!e) continue;
        metric_table(doc, e, metrics[m]);
        splits(doc, e, metrics[m]);
        json_array_foreach(json_object_get(e, "notes"), i, note)
            hr_doc_para(doc, "Note: %.400s.", json_string_value(note));
    }
}

/* ---- advice ----------------------------------------------------------------------------------------------------- */

enum { RULES_MOST = 12 };

static size_t others_of_rule(const json_t *advice, size_t first, const char *rule) {
    size_t n = 0;
    for (size_t i = first + 1; i < json_array_size(advice); i++)
        n += !strcmp(hr_word(json_array_get(advice, i), "rule"), rule);
    return n;
}

static bool is_first_of_rule(const json_t *advice, size_t at, const char *rule) {
    for (size_t i = 0; i < at; i++)
        if (!strcmp(hr_word(json_array_get(advice, i), "rule"), rule)) return false;
    return true;
}

static bool is_closed(const char *text) {
    const size_t n = strlen(text);
    return !n || strchr(".!?", text[n - 1]);
}

/* The finding in bold, then "evidence. To do: what. (test)", with one full stop each whatever the rule wrote. */
static void finding(hr_doc *doc, const json_t *f, size_t others) {
    char lead[400], also[80] = "", where[120] = "", texts[2][520];
    const char *what = hr_word(f, "finding"), *todo = plain(hr_word(f, "todo"), texts[0], sizeof texts[0]),
               *evidence = plain(hr_word(f, "evidence"), texts[1], sizeof texts[1]), *test = hr_word(f, "test");
    const size_t end = strlen(what);
    snprintf(lead, sizeof lead, "%.*s:", (int)(end && what[end - 1] == '.' ? end - 1 : end), what);
    if (others) snprintf(also, sizeof also, " Also in %s.", hr_text_of((double)others, "other cell"));
    if (*test) snprintf(where, sizeof where, " (%.60s)", test);
    hr_doc_item(doc, hr_text_whole(lead), "%.500s%s%s%.500s%s%s%s", evidence, is_closed(evidence) ? "" : ".",
                *todo ? " To do: " : "", todo, is_closed(todo) ? "" : ".", also, where);
}

void hr_report_advice(hr_doc *doc, const hr_report *r) {
    const size_t n = json_array_size(r->advice);
    size_t said = 0, left = 0;
    if (!json_array_size(r->cells)) return;
    hr_doc_heading(doc, 2, "Advice");
    if (!n) {
        hr_doc_para(doc, "No rule found anything to mend in these cells. “headroom advise --rules” lists what was "
                         "looked for.");
        return;
    }
    hr_doc_para(doc, "Rules over what was measured, most costly first; “headroom advise” prints every cell of each.");
    hr_doc_list(doc, true);
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(r->advice, i);
        const char *rule = hr_word(f, "rule");
        if (!is_first_of_rule(r->advice, i, rule)) continue;
        if (said++ < RULES_MOST)
            finding(doc, f, others_of_rule(r->advice, i, rule));
        else
            left++;
    }
    if (left) hr_doc_item(doc, "More:", "%s stand in “headroom advise”.", hr_text_of((double)left, "other finding"));
    hr_doc_list(doc, false);
}
