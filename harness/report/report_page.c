/* The order of the page: verdict, machine, plots, tables, method, what was not measured. */
#include "harness/report/report_kv.h"
#include "harness/report/report_why.h"

#include "harness/version.h"
#include "kernels/base/memory.h"

#include <string.h>

/* ---- the machine ------------------------------------------------------------------------------------------------ */

static void fact(hr_doc *doc, const char *name, const char *value) {
    if (!*value) return;
    hr_doc_cell(doc, "%s", name);
    hr_doc_cell(doc, "%.200s", value);
    hr_doc_row_end(doc);
}

/* Appends a word to a list in text unless it stands there. */
static void listed(char *text, size_t size, const char *word) {
    char whole[220], with_marks[80];
    const size_t n = strlen(text);
    if (!*word) word = "unknown";
    snprintf(whole, sizeof whole, " %s,", text);
    snprintf(with_marks, sizeof with_marks, " %.60s,", word);
    if (!strstr(whole, with_marks) && n < size) snprintf(text + n, size - n, "%s%.60s", n ? ", " : "", word);
}

/* What measured: commits of the cells, which may be older than their report. */
static void measured_by(hr_doc *doc, const hr_report *r) {
    char commits[160] = "", compilers[160] = "";
    size_t i;
    json_t *item;
    json_array_foreach(r->cells, i, item) listed(commits, sizeof commits, hr_word(item, "build_commit"));
    json_array_foreach(r->runs, i, item) {
        if (!json_array_size(r->cells)) listed(commits, sizeof commits, hr_word(item, "build_commit"));
        listed(compilers, sizeof compilers, hr_word(item, "compiler"));
    }
    fact(doc, strchr(commits, ',') ? "measured by Headroom of commits" : "measured by Headroom of commit", commits);
    fact(doc, "built by", compilers);
    snprintf(commits, sizeof commits, "Headroom %s, commit %.60s", HR_VERSION, hr_commit());
    fact(doc, "report written by", commits);
}

/* What the run's doctor found amiss: "bad: swap; warn: turbo, smt". What it could not see is no finding. */
static void fitness(hr_doc *doc, const json_t *machine) {
    static const char *const words[] = {"bad", "warn"};
    const json_t *doctor = json_object_get(machine, "doctor");
    char text[400] = "", names[180];
    for (size_t w = 0; w < 2; w++) {
        const char *name;
        json_t *status;
        *names = 0;
        json_object_foreach((json_t *)doctor, name, status) {
            const char *word = json_string_value(status);
            if (word && !strcmp(word, words[w])) listed(names, sizeof names, name);
        }
        const size_t n = strlen(text);
        if (*names) snprintf(text + n, sizeof text - n, "%s%s: %s", n ? "; " : "", words[w], names);
    }
    if (json_object_size(doctor)) fact(doc, "not fit (headroom doctor)", *text ? text : "nothing found");
}

static void gpu_facts(hr_doc *doc, const json_t *gpu) {
    char text[200];
    const double driver = hr_num(gpu, "driver"), bits = hr_num(gpu, "memory_bus_bits"),
                 datasheet = hr_num(gpu, "datasheet_read_gb_s");
    fact(doc, "GPU", hr_word(gpu, "name"));
    snprintf(text, sizeof text, "%s of compute capability %.0f.%.0f, %s of L2",
             hr_text_of(hr_num(gpu, "sms"), "multiprocessor"), hr_num(gpu, "compute_major"),
             hr_num(gpu, "compute_minor"), hr_text_size(hr_num(gpu, "l2_bytes")));
    fact(doc, "its units", text);
    int n = snprintf(text, sizeof text, "%s", hr_text_size(hr_num(gpu, "memory_bytes")));
    if (bits > 0 && datasheet > 0)
        snprintf(text + n, sizeof text - (size_t)n, ", %.0f bits wide, %s GB/s by its clock", bits,
                 hr_text_num(datasheet));
    fact(doc, "its memory", text);
    snprintf(text, sizeof text, "CUDA %d.%d", (int)driver / 1000, (int)driver % 1000 / 10);
    if (driver > 0) fact(doc, "its driver", text);
    if (json_is_true(json_object_get(gpu, "simulated"))) fact(doc, "simulated", "no real GPU: times mean nothing");
}

static void facts(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {"machine", "", NULL};
    const json_t *m = r->machine, *gpu = json_object_get(m, "gpu");
    char text[200];
    hr_doc_table(doc, headings);
    fact(doc, "class", hr_word(m, "machine_class"));
    if (gpu) gpu_facts(doc, gpu);
    fact(doc, "CPU", hr_word(m, "cpu"));
    if (hr_num(m, "cores") > 0) {
        snprintf(text, sizeof text, "%s, %s, %s", hr_text_of(hr_num(m, "cores"), "core"),
                 hr_text_of(hr_num(m, "threads"), "hardware thread"), hr_text_of(hr_num(m, "numa_nodes"), "NUMA node"));
        fact(doc, "usable", text);
    }
    if (hr_num(m, "memory_bytes") > 0) fact(doc, "memory", hr_text_size(hr_num(m, "memory_bytes")));
    snprintf(text, sizeof text, "L1d %s, L2 %s, L3 %s", hr_text_size(hr_num(m, "l1d_bytes")),
             hr_text_size(hr_num(m, "l2_bytes")), hr_text_size(hr_num(m, "l3_bytes")));
    if (hr_num(m, "l1d_bytes") > 0) fact(doc, "caches as reported", text);
    const double llc = hr_num(r->roof, "llc_bytes");
    if (llc > 0) fact(doc, "last-level cache as measured", hr_text_size(llc));
    fact(doc, "instruction sets", hr_word(m, "isas"));
    fact(doc, "system", hr_word(m, "os"));
    fact(doc, "hypervisor", hr_word(m, "hypervisor"));
    fact(doc, "frequency governor", hr_word(m, "governor"));
    fitness(doc, m);
    if (hr_num(r->roof, "clock_ghz") > 0) {
        snprintf(text, sizeof text, "%s GHz", hr_text_num(hr_num(r->roof, "clock_ghz")));
        fact(doc, "clock (proxy)", text);
    }
    if (hr_num(r->roof, "handoff_ns") > 0) {
        snprintf(text, sizeof text, "%s ns", hr_text_num(hr_num(r->roof, "handoff_ns")));
        fact(doc, "core to core, one way", text);
    }
    measured_by(doc, r);
    hr_doc_table_end(doc);
}

static void ceiling(hr_doc *doc, const char *what, const char *threads, const char *value, const char *unit,
                    const char *interval, const char *ridge) {
    hr_doc_cell(doc, "%.60s", what);
    hr_doc_cell(doc, "%s", threads);
    hr_doc_cell(doc, "%s", value);
    hr_doc_cell(doc, "%s", unit);
    hr_doc_cell(doc, "%s", interval);
    hr_doc_cell(doc, "%s", ridge);
    hr_doc_row_end(doc);
}

static void interval_text(const json_t *row, char *out, size_t size) {
    const double lo = hr_num(row, "ci95_lo"), hi = hr_num(row, "ci95_hi");
    out[0] = 0;
    if (isfinite(lo) && isfinite(hi)) snprintf(out, size, "%s to %s", hr_text_num(lo), hr_text_num(hi));
}

static const char *ops_unit(const char *unit) {
    return strcmp(unit, "int8") ? "GFLOP/s" : "GOP/s";
}

static void ceilings(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {"ceiling",       ">threads",         ">median", "unit",
                                           "95 % interval", ">ridge flop/byte", NULL};
    char what[80], interval[80], ridge[40];
    size_t i;
    json_t *row;
    hr_doc_heading(doc, 3, "Ceilings");
    hr_doc_table(doc, headings);
    json_array_foreach(json_object_get(r->roof, "read_gb_s"), i, row) {
        snprintf(what, sizeof what, "read %.20s (%s a thread)", hr_word(row, "level"),
                 hr_text_size(hr_num(row, "bytes_per_thread")));
        interval_text(row, interval, sizeof interval);
        ceiling(doc, what, hr_text_count(hr_num(row, "threads")), hr_text_num(hr_num(row, "median")), "GB/s", interval,
                "");
    }
    json_array_foreach(json_object_get(r->roof, "gflop_s"), i, row) {
        const char *unit = hr_word(row, "unit");
        snprintf(what, sizeof what, "compute %.20s", unit);
        interval_text(row, interval, sizeof interval);
        ceiling(doc, what, hr_text_count(hr_num(row, "threads")), hr_text_num(hr_num(row, "median")), ops_unit(unit),
                interval, "");
    }
    if (isfinite(r->read_gb_s))
        ceiling(doc, "read DRAM, best beside a cell", "", hr_text_num(r->read_gb_s), "GB/s", "", "");
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        if (!isfinite(r->gflop_s[u])) continue;
        snprintf(what, sizeof what, "compute %s, best beside a cell", hr_unit_names[u]);
        snprintf(ridge, sizeof ridge, "%s", hr_text_num(r->gflop_s[u] / r->read_gb_s));
        ceiling(doc, what, "", hr_text_num(r->gflop_s[u]), ops_unit(hr_unit_names[u]), "", ridge);
    }
    hr_doc_table_end(doc);
    hr_doc_para(doc, "%s%s%s", r->roof ? "Rows with a number of threads are of the newest “headroom roof”. " : "",
                json_array_size(r->cells)
                    ? "“Best beside a cell” is the highest of the probes that stand right beside the cells, with the "
                      "threads of the cell; a share in this report is against the probes of its own cell. "
                    : "",
                isfinite(hr_num(r->roof, "datasheet_read_gb_s")) || json_object_get(r->machine, "gpu")
                    ? ""
                    : "Datasheet figures are not known for this machine.");
}

/* ---- plots ------------------------------------------------------------------------------------------------------ */

void hr_page_plots(hr_doc *doc, const hr_page_plot *plots, const char *section) {
    char caption[900];
    for (size_t i = 0; i < hr_plots_count; i++) {
        if (strcmp(hr_plots[i].section, section) || plots[i].data.why[0]) continue;
        snprintf(caption, sizeof caption, "%s%s%s", hr_plots[i].caption, plots[i].data.more[0] ? " " : "",
                 plots[i].data.more);
        hr_doc_figure(doc, hr_plots[i].name, hr_plots[i].title, caption, plots[i].svg);
    }
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static void op_table(hr_doc *doc, const json_t *cell, const char *phase) {
    static const char *const headings[] = {"op",       ">calls", ">ms",      ">share", ">roof ms", ">above roof ms",
                                           ">of roof", ">GB/s",  ">GFLOP/s", "bound",  NULL};
    size_t i;
    json_t *op;
    const double total = hr_report_phase_sum(cell, phase, "ms");
    if (!(total > 0)) return;
    hr_report_point p;
    char whole[120] = "";
    if (hr_report_point_of(cell, phase, &p))
        snprintf(whole, sizeof whole, "; measured with the recorder off: %s ms, of which the shares are",
                 hr_text_num(p.ms));
    hr_doc_para(doc, "%s of %s. Sum of the ops: %s ms%s.", !strcmp(phase, "decode") ? "One decode step" : "Prefill",
                hr_text_title(cell), hr_text_num(total), whole);
    hr_doc_table(doc, headings);
    json_array_foreach(json_object_get(cell, "op_sums"), i, op) {
        if (strcmp(hr_word(op, "phase"), phase)) continue;
        const double ms = hr_num(op, "ms");
        hr_doc_cell(doc, "%.24s", hr_word(op, "op"));
        hr_doc_cell(doc, "%s", hr_text_count(hr_num(op, "calls")));
        hr_doc_cell(doc, "%s", hr_text_num(ms));
        hr_doc_cell(doc, "%s", hr_text_pct(hr_num(op, "share")));
        hr_doc_cell(doc, "%s", hr_text_num(hr_num(op, "roof_ms")));
        hr_doc_cell(doc, "%s", hr_text_num(hr_num(op, "loss_ms")));
        /* what neither moves counted bytes nor computes has no roof to be at */
        const double bytes = hr_num(op, "bytes"), flops = hr_num(op, "flops"), nothing = NAN;
        hr_doc_cell(doc, "%s", hr_text_pct(bytes > 0 || flops > 0 ? hr_num(op, "roof_ms") / ms : nothing));
        hr_doc_cell(doc, "%s", hr_text_num(bytes > 0 ? bytes / (ms * 1e6) : nothing));
        hr_doc_cell(doc, "%s", hr_text_num(flops > 0 ? flops / (ms * 1e6) : nothing));
        hr_doc_cell(doc, "%s", hr_word(op, "bound"));
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

static void ops(hr_doc *doc, const hr_report *r, const hr_page_plot *plots) {
    hr_report_pair pairs[3];
    const size_t n = hr_report_pairs(r, pairs, 3);
    hr_doc_heading(doc, 2, "Where the time went");
    hr_report_waterfall(doc, r, plots);
    if (n) hr_doc_heading(doc, 3, "By op class");
    hr_page_plots(doc, plots, "ops");
    if (n) hr_doc_heading(doc, 3, "Op classes in figures");
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].decode) op_table(doc, pairs[i].decode, "decode");
        if (pairs[i].prefill) op_table(doc, pairs[i].prefill, "prefill");
    }
}

/* "12.3 (12.1 to 12.9)" */
static void dist_cell(hr_doc *doc, const json_t *cell, const char *dist) {
    double lo, hi;
    const double median = hr_p50(cell, dist);
    hr_plot_interval(cell, dist, &lo, &hi);
    if (!isfinite(median))
        hr_doc_cell(doc, "%s", "");
    else if (isfinite(lo) && isfinite(hi) && lo < hi)
        hr_doc_cell(doc, "%s (%s–%s)", hr_text_num(median), hr_text_num(lo), hr_text_num(hi));
    else
        hr_doc_cell(doc, "%s", hr_text_num(median));
}

static void optional(hr_doc *doc, double value, const char *text) {
    hr_doc_cell(doc, "%s", isfinite(value) ? text : "");
}

static void flag_cell(hr_doc *doc, const json_t *cell) {
    char text[240] = "";
    size_t n = 0, i;
    json_t *flag;
    json_array_foreach(json_object_get(cell, "flags"), i, flag) if (json_is_string(flag) && n < sizeof text) n +=
        (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? " " : "", json_string_value(flag));
    hr_doc_cell(doc, "%s", text);
}

static void cells(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {"model and weights",
                                           "type of the files",
                                           "test",
                                           "KV",
                                           ">seqs",
                                           ">threads",
                                           ">n",
                                           ">TTFT or prefill ms",
                                           ">TPOT ms",
                                           ">prefill token/s",
                                           ">decode token/s",
                                           ">MB a step",
                                           ">moved GB/s",
                                           ">MBU",
                                           ">MFU",
                                           ">of roof",
                                           "bound",
                                           ">can read GB/s",
                                           "stop",
                                           "state",
                                           "flags",
                                           "cell",
                                           NULL};
    hr_doc_heading(doc, 2, "All cells");
    hr_doc_para(
        doc, "Medians, in brackets the 95 %% interval of the median, or lowest and highest where there are fewer than "
             "6 samples. MB a step: weights and KV moved by a decode step, or by the whole prefill in rows without "
             "decode; moved GB/s, MBU, MFU and the share of the roof are of the same. Everything else that is known of "
             "a cell: "
             "data/cells.tsv, or “headroom show CELL”.");
    size_t i;
    json_t *cell;
    hr_doc_table(doc, headings);
    json_array_foreach(r->cells, i, cell) {
        const double page = hr_num(cell, "page_size"), seqs = hr_num(cell, "n_seqs");
        hr_doc_cell(doc, "%s", hr_text_weights(cell));
        hr_doc_cell(doc, "%s", hr_text_type(cell));
        hr_doc_cell(doc, "%.60s", hr_word(cell, "test"));
        if (page > 0)
            hr_doc_cell(doc, "%.20s:%.0f %.8s", hr_word(cell, "kv_layout"), page, hr_word(cell, "type_k"));
        else
            hr_doc_cell(doc, "%.20s %.8s", hr_word(cell, "kv_layout"), hr_word(cell, "type_k"));
        optional(doc, seqs, hr_text_count(seqs));
        optional(doc, hr_num(cell, "n_threads"), hr_text_count(hr_num(cell, "n_threads")));
        hr_doc_cell(doc, "%zu", json_array_size(json_object_get(cell, "samples_ns")));
        dist_cell(doc, cell, isfinite(hr_num(cell, "isl")) ? "ttft_ms" : "ttft_prefill_ms");
        dist_cell(doc, cell, "tpot_excl_first_ms");
        optional(doc, hr_num(cell, "prefill_tok_s"), hr_text_num(hr_num(cell, "prefill_tok_s")));
        optional(doc, hr_num(cell, "decode_tok_s"), hr_text_num(hr_num(cell, "decode_tok_s")));
        optional(doc, hr_num(cell, "bytes_step"), hr_text_num(hr_num(cell, "bytes_step") / 1e6));
        hr_report_point p;
        const bool known = hr_report_point_of(cell, "decode", &p) || hr_report_point_of(cell, "prefill", &p);
        const double moved = known ? p.bytes / (p.ms * 1e6) : (double)NAN;
        optional(doc, moved, hr_text_num(moved));
        optional(doc, hr_num(cell, "mbu"), hr_text_pct(hr_num(cell, "mbu")));
        optional(doc, hr_num(cell, "mfu"), hr_text_pct(hr_num(cell, "mfu")));
        optional(doc, hr_num(cell, "roof_fraction"), hr_text_pct(hr_num(cell, "roof_fraction")));
        hr_doc_cell(doc, "%.16s", hr_word(cell, "bound"));
        optional(doc, hr_num(cell, "peak_read_gb_s"), hr_text_num(hr_num(cell, "peak_read_gb_s")));
        hr_doc_cell(doc, "%.16s", hr_word(cell, "stop_reason"));
        hr_doc_cell(doc, "%.16s", hr_word(cell, "state_class"));
        flag_cell(doc, cell);
        hr_doc_cell(doc, "%.8s", hr_word(cell, "cell_id"));
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

/* Axes that nothing was compared along. */
static void single_values(hr_doc *doc, const hr_report *r) {
    static const struct {
        const char *key, *name;
    } axes[] = {{"model_filename", "models"}, {"quant", "quantizations"},         {"type_k", "types of K"},
                {"kv_layout", "KV layouts"},  {"n_seqs", "batch sizes"},          {"n_threads", "threads"},
                {"isa", "instruction sets"},  {"flash_attn", "attention kernels"}};
    char text[600] = "";
    size_t n = 0, i;
    for (size_t a = 0; a < sizeof axes / sizeof *axes && n < sizeof text; a++) {
        const size_t axis = hr_axis_of(axes[a].key);
        char first[HR_LABEL_BYTES] = "";
        bool several = false;
        json_t *cell;
        json_array_foreach(r->cells, i, cell) {
            const char *value = hr_axis_text(cell, axis);
            if (!*first) snprintf(first, sizeof first, "%s", value);
            several |= *value && strcmp(first, value);
        }
        if (*first && !several)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s (%s)", n ? ", " : "", axes[a].name, first);
    }
    if (n) hr_doc_item(doc, "Axes with one value alone:", "%s.", text);
}

/* Neighbours that lack the same share an item. */
static void missing_plots(hr_doc *doc, const hr_page_plot *plots) {
    for (size_t i = 0, end; i < hr_plots_count; i = end) {
        const char *why = plots[i].data.why;
        char lead[600];
        size_t n = (size_t)snprintf(lead, sizeof lead, "%s", hr_plots[i].title);
        for (end = i + 1; *why && end < hr_plots_count && !strcmp(plots[end].data.why, why); end++)
            if (n < sizeof lead) n += (size_t)snprintf(lead + n, sizeof lead - n, "; %s", hr_plots[end].title);
        if (!*why) continue;
        if (n + 1 < sizeof lead) strcpy(lead + n, ":");
        hr_doc_item(doc, lead, "%s.", why);
    }
}

static void not_measured(hr_doc *doc, const hr_report *r, const hr_page_plot *plots) {
    hr_doc_heading(doc, 2, "What was not measured");
    hr_doc_list(doc, true);
    size_t i;
    missing_plots(doc, plots);
    if (!json_array_size(r->claims)) {
        hr_doc_item(doc,
                    "Published claims:", "none was tested; “headroom claims --quick” does so in about four minutes.");
    }
    if (json_array_size(r->cells) && !json_array_size(r->observed))
        hr_doc_item(doc, "What watching costs:",
                    "not measured in pairs; “headroom observe” compares the recorder, NVTX ranges and attached tools "
                    "with nothing. What the recorder alone cost stands under “How far to trust it”.");
    json_t *cell;
    json_array_foreach(r->others, i, cell) {
        char lead[HR_LABEL_BYTES + 20];
        snprintf(lead, sizeof lead, "%.10s: %s:", hr_word(cell, "status"), hr_text_title(cell));
        hr_doc_item(doc, lead, "%.400s", *hr_word(cell, "error") ? hr_word(cell, "error") : "no reason is stored");
    }
    single_values(doc, r);
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        const char *word = u == HR_UNIT_BF16 ? "bf16" : "vnni";
        const char *isas = hr_word(r->machine, "isas");
        if (u == HR_UNIT_FP32 || !*isas || strstr(isas, word)) continue;
        hr_doc_item(doc, hr_unit_names[u], "this machine has no unit of its own for it (its instruction sets: %.80s).",
                    isas);
    }
    hr_doc_item(doc, "Requests under traffic, other devices and cost", "are not part of this report.");
    hr_doc_list(doc, false);
}

void hr_report_page(hr_doc *doc, const hr_report *r, const hr_page_plot *plots, const char *note) {
    char title[200];
    const json_t *newest = json_array_get(r->runs, json_array_size(r->runs) - 1);
    snprintf(title, sizeof title, "Headroom report: %.96s",
             *hr_word(r->machine, "cpu") ? hr_word(r->machine, "machine_class") : "this machine");
    hr_doc_begin(doc, title);
    hr_doc_para(doc, "How far LLM inference on this machine is from what the machine can do: %s of %s, newest %.40s.",
                json_array_size(r->cells) ? hr_text_of((double)json_array_size(r->cells), "cell") : "no cells",
                hr_text_of((double)json_array_size(r->runs), "run"), hr_word(newest, "started"));
    if (note) hr_doc_para(doc, "Note: %s.", note);
    if (r->n_elsewhere)
        hr_doc_para(doc, "These runs also hold %s of other devices, which this report is not about (--device).",
                    hr_text_of((double)r->n_elsewhere, "cell"));
    hr_doc_heading(doc, 2, "Verdict");
    hr_report_verdict(doc, r);
    const bool measured = json_array_size(r->cells) > 0; /* else the ceilings alone */
    if (measured) {
        hr_doc_heading(doc, 3, "How far to trust it");
        hr_report_trust(doc, r);
    }
    hr_doc_heading(doc, 2, "The machine and its ceilings");
    facts(doc, r);
    if (measured || r->roof) ceilings(doc, r);
    hr_page_plots(doc, plots, "machine");
    if (measured) {
        hr_doc_heading(doc, 2, "Roofline");
        hr_page_plots(doc, plots, "roofline");
        hr_doc_heading(doc, 2, "Latency, bandwidth and layouts");
        hr_page_plots(doc, plots, "latency");
        ops(doc, r, plots);
        hr_report_advice(doc, r);
        hr_report_gpu_predicted(doc, r);
    }
    hr_report_kv(doc, r, plots);
    if (measured) cells(doc, r);
    hr_report_observe(doc, r);
    hr_report_method(doc, r);
    not_measured(doc, r, plots);
    hr_doc_end(doc);
}
