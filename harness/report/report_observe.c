/* What looking costs: rows of `headroom observe`, and the same ops as a profiler and the recorder saw them. */
#include "harness/report/report_why.h"

#include <string.h>

/* "0.32 % (−0.10–0.75)": signs matter, so these are not cut to three digits. */
static void cost_cell(hr_doc *doc, const json_t *row) {
    const double cost = hr_num(row, "median"), lo = hr_num(row, "ci95_lo"), hi = hr_num(row, "ci95_hi");
    if (!isfinite(cost))
        hr_doc_cell(doc, "%s", "not measured");
    else if (isfinite(lo) && isfinite(hi))
        hr_doc_cell(doc, "%+.2f (%+.2f to %+.2f)", cost, lo, hi);
    else
        hr_doc_cell(doc, "%+.2f", cost);
}

static const char *or_nothing(double v) {
    return isfinite(v) ? hr_text_num(v) : "";
}

static void observed(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {
        "watched by",      "metric",      "model and weights",  "test",    ">pairs", ">cost %",
        ">ms not watched", ">ms watched", "target of the cost", "verdict", NULL};
    size_t i;
    json_t *row;
    hr_doc_para(doc, "Runs in pairs, one watched and one not, in random order within a pair; the cost is the "
                     "Hodges-Lehmann shift over the pairs with its 95 %% interval, above 0 where watching takes time. "
                     "“met”: the whole interval keeps the target; “missed”: none of it does.");
    hr_doc_table(doc, headings);
    json_array_foreach(r->observed, i, row) {
        const double n = hr_num(row, "n");
        const char *metric = hr_word(row, "metric"), *target = hr_word(row, "target");
        hr_doc_cell(doc, "%.24s", hr_word(row, "arm"));
        hr_doc_cell(doc, "%s", !strcmp(metric, "tpot") ? "TPOT" : !strcmp(metric, "ttft") ? "TTFT" : metric);
        hr_doc_cell(doc, "%s", hr_text_weights(row));
        hr_doc_cell(doc, "%.40s", hr_word(row, "test"));
        hr_doc_cell(doc, "%s", isfinite(n) ? hr_text_count(n) : "");
        cost_cell(doc, row);
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "off_ms")));
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "on_ms")));
        hr_doc_cell(doc, "%.24s", *target ? target : "none");
        hr_doc_cell(doc, "%.16s", hr_word(row, "verdict"));
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

/* What each way is, said once; and why it was not measured. */
static void ways(hr_doc *doc, const hr_report *r) {
    size_t i;
    json_t *row;
    const char *last = "";
    hr_doc_list(doc, true);
    json_array_foreach(r->observed, i, row) {
        const char *arm = hr_word(row, "arm"), *reason = hr_word(row, "reason");
        if (!strcmp(arm, last)) continue;
        last = arm;
        hr_doc_item(doc, arm, "is %.160s.%s%.300s%s", hr_word(row, "what"), *reason ? " Not measured: " : "", reason,
                    *reason ? "." : "");
    }
    hr_doc_list(doc, false);
}

/* ---- a profiler beside the recorder ----------------------------------------------------------------------------- */

static void ranges_of(hr_doc *doc, const json_t *entry) {
    static const char *const headings[] = {"range",
                                           ">calls seen",
                                           ">ms in all",
                                           ">median us",
                                           ">mean us",
                                           ">recorded calls",
                                           ">recorder's median us",
                                           ">recorder's mean us",
                                           ">difference of medians %",
                                           NULL};
    size_t i;
    json_t *row;
    const json_t *rows = json_object_get(entry, "rows");
    hr_doc_para(doc, "%s, ranges imported from %.40s.", hr_text_title(json_object_get(entry, "cell")),
                hr_word(json_array_get(rows, 0), "source"));
    hr_doc_table(doc, headings);
    json_array_foreach((json_t *)rows, i, row) {
        const double n = hr_num(row, "n"), difference = hr_num(row, "difference_pct");
        hr_doc_cell(doc, "%.40s", hr_word(row, "name"));
        hr_doc_cell(doc, "%s", isfinite(n) ? hr_text_count(n) : "");
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "total_ns") * 1e-6));
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "median_ns") * 1e-3));
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "mean_ns") * 1e-3));
        hr_doc_cell(doc, "%s", hr_text_count(hr_num(row, "recorded_n")));
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "recorded_median_ns") * 1e-3));
        hr_doc_cell(doc, "%s", or_nothing(hr_num(row, "recorded_mean_ns") * 1e-3));
        if (isfinite(difference))
            hr_doc_cell(doc, "%+.1f", difference);
        else
            hr_doc_cell(doc, "%s", "");
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

static void ranges(hr_doc *doc, const hr_report *r) {
    size_t i;
    json_t *entry;
    if (!json_array_size(r->ranges)) return;
    hr_doc_heading(doc, 3, "The same ops by a profiler");
    hr_doc_para(doc,
                "Time of a call as the profiler saw the range, beside what the in-process recorder saw of the same "
                "op. A range costs microseconds under nsys and nanoseconds in the recorder: short ops differ most.");
    json_array_foreach(r->ranges, i, entry) ranges_of(doc, entry);
}

void hr_report_observe(hr_doc *doc, const hr_report *r) {
    const bool rows = json_array_size(r->observed) > 0;
    if (!rows && !json_array_size(r->ranges)) return; /* said under "What was not measured" */
    hr_doc_heading(doc, 2, "Cost of observing");
    if (rows) observed(doc, r), ways(doc, r);
    ranges(doc, r);
}
