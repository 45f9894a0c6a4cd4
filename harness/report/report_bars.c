/* Plots of shares and ceilings: the machine, the roofline, MBU, a request by phase, the time by op class. */
#include "harness/report/report_plots.h"

#include <string.h>

/* ---- the machine ------------------------------------------------------------------------------------------------ */

/* Number of the series of so many threads, which is begun when new. */
static size_t of_threads(hr_plot_data *data, double threads) {
    char title[40];
    snprintf(title, sizeof title, threads == 1 ? "%.0f thread" : "%.0f threads", threads);
    size_t i;
    json_t *known;
    json_array_foreach(data->titles, i, known) if (!strcmp(json_string_value(known), title)) return i + 1;
    return hr_plot_series(data, title);
}

void hr_fill_bandwidth(const hr_report *r, hr_plot_data *data) {
    size_t i;
    json_t *row;
    if (!r->roof) {
        hr_plot_why(data, "no “headroom roof” of this machine is in the store");
        return;
    }
    json_array_foreach(json_object_get(r->roof, "sweep"), i, row) {
        const double bytes = hr_num(row, "bytes_per_thread"), threads = hr_num(row, "threads");
        if (bytes > 0 && isfinite(hr_num(row, "gb_s")))
            hr_plot_row(data, of_threads(data, threads), (double[]){bytes, hr_num(row, "gb_s"), threads}, 3);
    }
    const json_t *machine = json_object_get(r->roof, "machine");
    hr_plot_number(data, "l1_bytes", hr_num(machine, "l1d_bytes"));
    hr_plot_number(data, "l2_bytes", hr_num(machine, "l2_bytes"));
    hr_plot_number(data, "llc_bytes", hr_num(r->roof, "llc_bytes"));
    hr_plot_number(data, "cores", hr_num(machine, "cores"));
}

void hr_fill_peaks(const hr_report *r, hr_plot_data *data) {
    size_t i;
    json_t *row;
    for (int u = 0; u < HR_UNIT_COUNT; u++) hr_plot_list_word(data, "units", hr_unit_names[u]);
    json_array_foreach(json_object_get(r->roof, "gflop_s"), i, row) {
        for (int u = 0; u < HR_UNIT_COUNT; u++) {
            if (strcmp(hr_word(row, "unit"), hr_unit_names[u])) continue;
            const double threads = hr_num(row, "threads");
            json_t *out = hr_plot_row(
                data, of_threads(data, threads),
                (double[]){u + 1, hr_num(row, "median"), hr_num(row, "ci95_lo"), hr_num(row, "ci95_hi"), threads}, 5);
            hr_plot_text(data, out, hr_unit_names[u]);
        }
    }
    if (json_array_size(data->rows)) return;
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        if (!isfinite(r->gflop_s[u])) continue;
        const size_t series = json_array_size(data->titles) ? 1 : hr_plot_series(data, "best beside the cells");
        hr_plot_text(data, hr_plot_row(data, series, (double[]){u + 1, r->gflop_s[u], NAN, NAN, NAN}, 5),
                     hr_unit_names[u]);
    }
    if (!json_array_size(data->rows)) hr_plot_why(data, "no ceiling was measured");
}

/* ---- roofline --------------------------------------------------------------------------------------------------- */

static void put_roofs(const hr_report *r, hr_plot_data *data) {
    hr_plot_number(data, "read_gb_s", r->read_gb_s);
    if (r->read_low_gb_s < 0.85 * r->read_gb_s) hr_plot_number(data, "read_low_gb_s", r->read_low_gb_s);
    hr_plot_number(data, "datasheet_gb_s", hr_num(r->roof, "datasheet_read_gb_s"));
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        if (!isfinite(r->gflop_s[u])) continue;
        hr_plot_list_word(data, "roof_name", hr_unit_names[u]);
        hr_plot_list_number(data, "roof_gflop_s", r->gflop_s[u]);
    }
}

static bool roofs_known(const hr_report *r, hr_plot_data *data) {
    bool any = false;
    for (int u = 0; u < HR_UNIT_COUNT; u++) any |= isfinite(r->gflop_s[u]);
    if (!any || !isfinite(r->read_gb_s)) hr_plot_why(data, "the ceilings beside the cells are unknown");
    return any && isfinite(r->read_gb_s);
}

static size_t named_series(hr_plot_data *data, const char *title) {
    size_t i;
    json_t *known;
    json_array_foreach(data->titles, i, known) if (!strcmp(json_string_value(known), title)) return i + 1;
    return hr_plot_series(data, title);
}

enum { ROOFLINE_MOST = 10 }; /* series that a key can hold */

/* Number of the weights in data->vars.weights, which they join when new; from 1. */
static size_t weights_index(hr_plot_data *data, const char *name) {
    size_t i;
    json_t *known;
    json_array_foreach(json_object_get(data->vars, "weights"), i,
                       known) if (!strcmp(json_string_value(known), name)) return i +
        1;
    hr_plot_list_word(data, "weights", name);
    return i + 1;
}

/* brief: the model is not told apart, so that many models fit the key. */
static void put_cells(const hr_report *r, const char *phase, bool brief, hr_plot_data *data) {
    size_t i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        hr_report_point p;
        if (!hr_report_point_of(cell, phase, &p) || p.bytes <= 0 || p.flops <= 0) continue;
        char title[HR_LABEL_BYTES + 20];
        const char *weights = brief ? hr_axis_text(cell, hr_axis_of("quant")) : hr_text_weights(cell);
        snprintf(title, sizeof title, "%s, %s", phase, weights);
        const size_t before = json_array_size(data->titles);
        const size_t series = named_series(data, title);
        if (series > before) hr_plot_list_count(data, "mark", weights_index(data, weights));
        json_t *row =
            hr_plot_row(data, series, (double[]){p.flops / p.bytes, p.flops / (p.ms * 1e6), p.roof_fraction, p.ms}, 4);
        hr_plot_text(data, row, p.bound);
        hr_plot_text(data, row, hr_word(cell, "test"));
        hr_plot_text(data, row, hr_word(cell, "cell_id"));
    }
}

void hr_fill_roofline(const hr_report *r, hr_plot_data *data) {
    if (!roofs_known(r, data)) return;
    for (int brief = 0; brief < 2; brief++) {
        json_array_clear(data->rows), json_array_clear(data->titles), json_object_clear(data->vars);
        put_cells(r, "prefill", brief, data);
        const size_t n_prefill = json_array_size(data->titles);
        put_cells(r, "decode", brief, data);
        hr_plot_count(data, "n_prefill", n_prefill);
        if (json_array_size(data->titles) <= ROOFLINE_MOST) break;
    }
    put_roofs(r, data);
    if (!json_array_size(data->rows)) hr_plot_why(data, "no cell has bytes, flops and a time");
}

static void put_op_points(const json_t *cell, const char *phase, hr_plot_data *data) {
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(cell, "op_sums"), i, op) {
        const double bytes = hr_num(op, "bytes"), flops = hr_num(op, "flops"), ms = hr_num(op, "ms");
        if (strcmp(hr_word(op, "phase"), phase) || !(bytes > 0) || !(flops > 0) || !(ms > 0)) continue;
        char title[HR_LABEL_BYTES];
        snprintf(title, sizeof title, "%s %.24s", phase, hr_word(op, "op"));
        static const char *const classes[] = {"qkv", "attention", "out", "gate_up", "down", "head", "route", "experts"};
        size_t mark = 0;
        while (mark < sizeof classes / sizeof *classes - 1 && strcmp(classes[mark], hr_word(op, "op"))) mark++;
        hr_plot_list_count(data, "mark", mark + 1);
        json_t *row = hr_plot_row(
            data, hr_plot_series(data, title),
            (double[]){flops / bytes, flops / (ms * 1e6), hr_num(op, "roof_ms") / ms, ms, hr_num(op, "share")}, 5);
        hr_plot_text(data, row, hr_word(op, "op"));
        hr_plot_text(data, row, phase);
        hr_plot_text(data, row, hr_word(cell, "cell_id"));
    }
}

/* The first of the cells that stand for models which has recorded ops of the phase. */
static const json_t *cell_with_ops(const hr_report *r, const char *phase) {
    hr_report_pair pairs[HR_PAIRS_MOST];
    const size_t n = hr_report_pairs(r, pairs, HR_PAIRS_MOST);
    for (size_t i = 0; i < n; i++) {
        const json_t *cell = strcmp(phase, "prefill") ? pairs[i].decode : pairs[i].prefill;
        if (hr_report_phase_sum(cell, phase, "ms") > 0) return cell;
    }
    return NULL;
}

void hr_fill_roofline_ops(const hr_report *r, hr_plot_data *data) {
    if (!roofs_known(r, data)) return;
    const hr_report_pair pair = {.decode = cell_with_ops(r, "decode"), .prefill = cell_with_ops(r, "prefill")};
    if (pair.decode || pair.prefill) {
        if (pair.prefill) put_op_points(pair.prefill, "prefill", data);
        hr_plot_count(data, "n_prefill", json_array_size(data->titles));
        if (pair.decode) put_op_points(pair.decode, "decode", data);
        hr_plot_more(data, "Prefill of %.80s; decode of %.80s.", pair.prefill ? hr_text_title(pair.prefill) : "no cell",
                     pair.decode ? hr_text_title(pair.decode) : "no cell");
    }
    put_roofs(r, data);
    if (!json_array_size(data->rows)) hr_plot_why(data, "no recorded ops with bytes and flops are in the store");
}

/* ---- shares ----------------------------------------------------------------------------------------------------- */

enum { BARS_MOST = 12 };

void hr_fill_mbu(const hr_report *r, hr_plot_data *data) {
    hr_report_pair pairs[BARS_MOST];
    const size_t n = hr_report_pairs(r, pairs, BARS_MOST);
    hr_plot_states states = {{0}};
    double x = 0;
    for (size_t i = 0; i < n; i++) {
        hr_report_point p;
        const json_t *cell = pairs[i].decode;
        if (!cell || !hr_report_point_of(cell, "decode", &p) || !isfinite(p.mbu)) continue;
        const double tpot = hr_p50(cell, "tpot_excl_first_ms");
        double lo, hi;
        hr_plot_interval(cell, "tpot_excl_first_ms", &lo, &hi);
        json_t *row = hr_plot_row(data, named_series(data, hr_text_model(cell)),
                                  (double[]){++x, 100 * p.mbu, 100 * p.mbu * tpot / hi, 100 * p.mbu * tpot / lo}, 4);
        hr_plot_text(data, row, hr_word(cell, "quant"));
        hr_plot_text(data, row, hr_word(cell, "test"));
        hr_plot_text(data, row, hr_word(cell, "cell_id"));
        hr_plot_list_word(data, "labels", hr_word(cell, "quant"));
        hr_plot_see_state(&states, cell);
    }
    hr_plot_note_states(&states, data);
    if (!json_array_size(data->rows)) hr_plot_why(data, "no decode cell has an MBU");
}

/* Requests grouped by everything but the input length, at most three groups of at most eight bars. */
static bool same_but_isl(const json_t *a, const json_t *b) {
    for (size_t i = 0; i < hr_axes_count(); i++)
        if (strcmp(hr_axis_name(i), "isl") && strcmp(hr_axis_text(a, i), hr_axis_text(b, i))) return false;
    return true;
}

enum { GROUPS_MOST = 3, IN_GROUP_MOST = 8 };

static size_t group_requests(const hr_report *r, const json_t *groups[][IN_GROUP_MOST], size_t *sizes, size_t most) {
    size_t n = 0, i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        if (!isfinite(hr_num(cell, "isl")) || !isfinite(hr_p50(cell, "ttft_ms")) || !isfinite(hr_p50(cell, "e2e_ms")))
            continue;
        size_t k = 0;
        while (k < n && !same_but_isl(groups[k][0], cell)) k++;
        if (k == n && n == most) continue;
        if (k == n) sizes[n++] = 0;
        if (sizes[k] == IN_GROUP_MOST) continue;
        size_t at = sizes[k]++;
        for (; at > 0 && hr_num(groups[k][at - 1], "isl") > hr_num(cell, "isl"); at--)
            groups[k][at] = groups[k][at - 1];
        groups[k][at] = cell;
    }
    return n;
}

void hr_fill_request(const hr_report *r, hr_plot_data *data) {
    enum { CONSIDERED = 32 };
    const json_t *groups[CONSIDERED][IN_GROUP_MOST];
    size_t sizes[CONSIDERED];
    const size_t n = group_requests(r, groups, sizes, CONSIDERED);
    double x = 0;
    for (size_t shown = 0; shown < GROUPS_MOST; shown++) {
        size_t best = 0;
        for (size_t k = 1; k < n; k++)
            if (sizes[k] > sizes[best]) best = k;
        if (!n || !sizes[best]) break;
        char title[HR_LABEL_BYTES];
        const json_t *first = groups[best][0];
        snprintf(title, sizeof title,
                 hr_num(first, "n_seqs") > 1 ? "%s %.12s, osl %.0f, %.0f seqs" : "%s %.12s, osl %.0f",
                 hr_text_model_short(first), hr_word(first, "quant"), hr_num(first, "osl"), hr_num(first, "n_seqs"));
        const size_t series = hr_plot_series(data, title);
        hr_plot_list_number(data, "centre", x + 1 + (double)(sizes[best] - 1) / 2);
        for (size_t i = 0; i < sizes[best]; i++) {
            const json_t *cell = groups[best][i];
            const double ttft = hr_p50(cell, "ttft_ms"), e2e = hr_p50(cell, "e2e_ms"), share = 100 * ttft / e2e;
            char label[24];
            snprintf(label, sizeof label, "%.0f", hr_num(cell, "isl"));
            hr_plot_text(
                data, hr_plot_row(data, series, (double[]){++x, share, 100 - share, ttft, e2e, hr_num(cell, "isl")}, 6),
                hr_word(cell, "cell_id"));
            hr_plot_list_word(data, "labels", label);
            hr_plot_list_number(data, "at", x);
        }
        x += 0.8;
        sizes[best] = 0;
    }
    size_t left = 0;
    for (size_t k = 0; k < n; k++) left += sizes[k] > 0;
    if (left) hr_plot_more(data, "%zu more groups are in data/cells.tsv.", left);
    if (!json_array_size(data->rows))
        hr_plot_why(data, "no whole requests were measured (“headroom sweep --isl ... --osl ...”)");
}

static void fill_ops(const json_t *cell, const char *phase, hr_plot_data *data) {
    size_t i, n = 0;
    json_t *op;
    if (cell) hr_plot_series(data, hr_text_title(cell));
    json_array_foreach(json_object_get(cell, "op_sums"), i, op) {
        const double ms = hr_num(op, "ms"), roof = hr_num(op, "roof_ms");
        if (strcmp(hr_word(op, "phase"), phase) || !(ms > 0)) continue;
        json_t *row = hr_plot_row(data, 1,
                                  (double[]){(double)++n, ms, roof, ms - roof, isfinite(roof) ? fmin(roof, ms) : 0,
                                             100 * hr_num(op, "share")},
                                  6);
        hr_plot_text(data, row, hr_word(op, "op"));
        hr_plot_list_word(data, "labels", hr_word(op, "op"));
    }
    if (!n) hr_plot_why(data, "no recorded ops of %s are in the store", phase);
}

void hr_fill_ops_prefill(const hr_report *r, hr_plot_data *data) {
    fill_ops(cell_with_ops(r, "prefill"), "prefill", data);
}
void hr_fill_ops_decode(const hr_report *r, hr_plot_data *data) {
    fill_ops(cell_with_ops(r, "decode"), "decode", data);
}
