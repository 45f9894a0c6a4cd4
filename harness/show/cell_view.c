#include "harness/show/cell_view.h"

#include "harness/formats/cell_keys.h"
#include "harness/show/stored_cell.h"

#include <math.h>
#include <string.h>

typedef enum unit {
    PLAIN,
    BYTES,
    FLOPS,
    SHARE, /* a ratio, shown in % */
    PERCENT,
    NS,
    MS,
    TOKENS,   /* token/s */
    REQUESTS, /* request/s */
    GB_S,
    GFLOP_S,
    FLOP_BYTE,
    WATT,
    MILLIJOULE, /* a token */
    MHZ,
    CELSIUS
} unit;
static const char *const unit_names[] = {[PLAIN] = "",     [BYTES] = "",           [FLOPS] = "",
                                         [SHARE] = " %",   [PERCENT] = " %",       [NS] = " ns",
                                         [MS] = " ms",     [TOKENS] = " token/s",  [REQUESTS] = " request/s",
                                         [GB_S] = " GB/s", [GFLOP_S] = " GFLOP/s", [FLOP_BYTE] = " flop/byte",
                                         [WATT] = " W",    [MILLIJOULE] = " mJ",   [MHZ] = " MHz",
                                         [CELSIUS] = " °C"};

typedef struct line {
    const char *key;
    unit unit;
} line;

static const line measured[] = {{"test", PLAIN},       {"status", PLAIN},     {"error", PLAIN},
                                {"flags", PLAIN},      {"cell_id", PLAIN},    {"run_id", PLAIN},
                                {"test_time", PLAIN},  {"tags", PLAIN},       {"model_filename", PLAIN},
                                {"model_type", PLAIN}, {"model_size", BYTES}, {"model_n_params", PLAIN},
                                {NULL, PLAIN}};
static const line setup[] = {{"quant", PLAIN},     {"act", PLAIN},    {"kv_layout", PLAIN}, {"page_size", PLAIN},
                             {"kv_alloc", PLAIN},  {"type_k", PLAIN}, {"type_v", PLAIN},    {"flash_attn", PLAIN},
                             {"softmax", PLAIN},   {"fusion", PLAIN}, {"forced", PLAIN},    {"weights", PLAIN},
                             {"n_prompt", PLAIN},  {"n_gen", PLAIN},  {"n_depth", PLAIN},   {"isl", PLAIN},
                             {"osl", PLAIN},       {"n_seqs", PLAIN}, {"n_batch", PLAIN},   {"n_ubatch", PLAIN},
                             {"n_threads", PLAIN}, {"isa", PLAIN},    {"device", PLAIN},    {"n_gpu_layers", PLAIN},
                             {"seed", PLAIN},      {NULL, PLAIN}};
static const line rates[] = {
    {"prefill_tok_s", TOKENS},          {"decode_tok_s", TOKENS},        {"output_tok_s", TOKENS},
    {"per_user_tok_s", TOKENS},         {"requests_s", REQUESTS},        {"goodput_req_s", REQUESTS},
    {"prefill_req_s_device", REQUESTS}, {"decode_tok_s_device", TOKENS}, {NULL, PLAIN}};
static const line work[] = {{"bytes_weights", BYTES},
                            {"bytes_kv_read", BYTES},
                            {"bytes_kv_write", BYTES},
                            {"bytes_step", BYTES},
                            {"flops_step", FLOPS},
                            {"flops_by_unit", FLOPS},
                            {"intensity_flop_byte", FLOP_BYTE},
                            {"mbu", SHARE},
                            {"mfu", SHARE},
                            {"roof_time_ms", MS},
                            {"roof_fraction", SHARE},
                            {"bound", PLAIN},
                            {"prefill_bytes", BYTES},
                            {"prefill_flops", FLOPS},
                            {"prefill_mfu", SHARE},
                            {"prefill_roof_fraction", SHARE},
                            {"prefill_bound", PLAIN},
                            {"peak_read_gb_s", GB_S},
                            {"peak_gflop_s", GFLOP_S},
                            {"cache_resident", PLAIN},
                            {NULL, PLAIN}};
static const line quality[] = {
    {"stop_reason", PLAIN}, {"noise_rel", SHARE},          {"warmups", PLAIN},        {"probe_overhead_pct", PERCENT},
    {"state_class", PLAIN}, {"read_gb_s_before", GB_S},    {"read_gb_s_after", GB_S}, {"handoff_ns", NS},
    {"clock_ratio", PLAIN}, {"psi_cpu_some_pct", PERCENT}, {"page_faults", PLAIN},    {"ctx_switches", PLAIN},
    {NULL, PLAIN}};
static const line gpu[] = {{"gpu_memory", PLAIN},
                           {"graphs", PLAIN},
                           {"gemm", PLAIN},
                           {"device_ms", MS},
                           {"power_w", WATT},
                           {"power_limit_w", WATT},
                           {"energy_mj_token", MILLIJOULE},
                           {"energy_mj_token_prefill", MILLIJOULE},
                           {"sm_mhz", MHZ},
                           {"memory_mhz", MHZ},
                           {"temperature_c", CELSIUS},
                           {"clock_reasons", PLAIN},
                           {"dram_bytes_read", BYTES},
                           {"dram_bytes_write", BYTES},
                           {"tensor_pct", PERCENT},
                           {"l2_hit_pct", PERCENT},
                           {"warps_active_pct", PERCENT},
                           {NULL, PLAIN}};
static const line path[] = {
    {"kernels", PLAIN},      {"kv_bytes_needed", BYTES}, {"kv_bytes_reserved", BYTES}, {"kv_bytes_touched", BYTES},
    {"kv_row_bytes", BYTES}, {"huge_pages", PLAIN},      {"rss_peak_bytes", BYTES},    {NULL, PLAIN}};
static const line made_by[] = {{"build_commit", PLAIN}, {"build_number", PLAIN}, {"backends", PLAIN},
                               {"cpu_info", PLAIN},     {"gpu_info", PLAIN},     {NULL, PLAIN}};
static const line others[] = {{"avg_ns", NS},     {"stddev_ns", NS},      {"avg_ts", TOKENS}, {"stddev_ts", TOKENS},
                              {"samples_ns", NS}, {"samples_ts", TOKENS}, {NULL, PLAIN}};

static const struct {
    const char *heading;
    const line *lines;
} sections[] = {{"What was measured", measured},
                {"Setup", setup},
                {"Rates, from median times", rates},
                {"Work and ceilings", work},
                {"Quality of the measurement", quality},
                {"The GPU", gpu},
                {"Path taken", path},
                {"Made by", made_by},
                {"As other tools say it", others}};
enum { VALUE_WIDTH = 95, PAGE_WIDTH = 110 };
enum { N_SECTIONS = sizeof sections / sizeof *sections, TEXT_BYTES = 2048 };

static void append(char *text, const char *more) {
    size_t n = strlen(text);
    snprintf(text + n, TEXT_BYTES - n, "%s", more);
}

/* Four digits or all of the integer part. */
static void plain_number(double value, char *text, size_t size) {
    snprintf(text, size, fabs(value) >= 1000 || value == floor(value) ? "%.0f" : "%.4g", value);
}

static void append_number(char *text, double value, unit u) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    char part[64], digits[48];
    if (u == BYTES || u == FLOPS) {
        size_t p = 0;
        while (fabs(value) >= 1000 && p < 4) value /= 1000, p++;
        snprintf(part, sizeof part, "%.4g %s%s", value, prefixes[p], u == BYTES ? (p ? "B" : "bytes") : "FLOP");
    } else {
        plain_number(u == SHARE ? 100 * value : value, digits, sizeof digits);
        snprintf(part, sizeof part, "%s%s", digits, unit_names[u]);
    }
    append(text, part);
}

/* A value as text: lists are joined by spaces, objects by "name value". Nothing for null. */
static void append_value(char *text, const json_t *value, unit u) {
    size_t i;
    const char *key, *between = "";
    json_t *item;
    if (json_is_string(value))
        append(text, json_string_value(value));
    else if (json_is_boolean(value))
        append(text, json_is_true(value) ? "yes" : "no");
    else if (json_is_number(value))
        append_number(text, json_number_value(value), u);
    json_array_foreach((json_t *)value, i, item) {
        append(text, between), between = ", ";
        const bool last = i + 1 == json_array_size(value); /* the unit once */
        append_value(text, item, last || u == BYTES || u == FLOPS ? u : PLAIN);
    }
    json_object_foreach((json_t *)value, key, item) {
        if (json_is_null(item)) continue;
        append(text, between), between = ", ";
        append(text, key), append(text, " ");
        append_value(text, item, u);
        /* Integer arithmetic is not floating-point. */
        size_t n = strlen(text);
        if (strcmp(key, "int8") == 0 && u == GFLOP_S && n > 8) memcpy(text + n - 8, " GOP/s", 7);
        if (strcmp(key, "int8") == 0 && u == FLOPS && n > 4) memcpy(text + n - 4, "OP", 3);
    }
}

static bool has_value(const json_t *value) {
    return value && !json_is_null(value) && !(json_is_array(value) && json_array_size(value) == 0);
}

/* Bytes of a long value that stand on one line: up to a comma, unless it is one word. */
static size_t line_end(const char *text) {
    const size_t whole = strlen(text);
    size_t end = 0;
    if (whole <= VALUE_WIDTH) return whole;
    for (size_t i = 1; i < whole && (i <= VALUE_WIDTH || !end); i++)
        if (text[i - 1] == ',') end = i;
    return end ? end : whole;
}

static bool add_line(json_t *rows, const char *name, const json_t *value, unit u) {
    char text[TEXT_BYTES] = "";
    append_value(text, value, u);
    const char *at = text;
    if (!*text) return true; /* "", or nothing but nulls */
    do {
        const size_t n = line_end(at);
        json_t *row = json_pack("{s:s, s:s%}", "what", name, "value", at, n);
        if (!row || json_array_append_new(rows, row) != 0) return false;
        at += n, name = "";
        at += *at == ' ';
    } while (*at);
    return true;
}

/* "kernels" has a line a phase, everything else one. */
static bool add_lines(json_t *rows, const char *key, const json_t *value, unit u) {
    if (strcmp(key, "kernels") != 0) return add_line(rows, key, value, u);
    bool ok = true;
    const char *phase;
    json_t *names;
    json_object_foreach((json_t *)value, phase, names) {
        char name[64];
        snprintf(name, sizeof name, "kernels %s", phase);
        if (has_value(names)) ok = ok && add_line(rows, name, names, u);
    }
    return ok;
}

static hr_status write_rows(hr_format format, FILE *stream, const char *heading, const json_t *rows,
                            const char *const *keys) {
    if (json_array_size(rows) == 0) return HR_OK;
    fprintf(stream, format == HR_FORMAT_MD ? "## %s\n\n" : "%s\n", heading);
    HR_TRY(hr_rows_write(format, stream, rows, keys));
    fputc('\n', stream);
    return HR_OK;
}

static hr_status write_section(hr_format format, FILE *stream, size_t i, const json_t *cell) {
    static const char *const keys[] = {"what", "value", NULL};
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (const line *l = sections[i].lines; ok && l->key; l++) {
        const json_t *value = json_object_get(cell, l->key);
        if (has_value(value)) ok = add_lines(rows, l->key, value, l->unit);
    }
    hr_status status = ok ? write_rows(format, stream, sections[i].heading, rows, keys)
                          : hr_fail(HR_ERR_MEMORY, "out of memory while printing the cell");
    json_decref(rows);
    return status;
}

static hr_status write_distributions(hr_format format, FILE *stream, const json_t *cell) {
    static const char *const keys[] = {"time", "n",   "p50", "ci95_lo", "ci95_hi", "mad",  "mean", "stddev",
                                       "min",  "p90", "p95", "p99",     "max",     "weak", NULL};
    static const char *const names[] = {
        "ttft_ms",     "ttft_queue_ms", "ttft_prefill_ms", "ttft_first_sample_ms", "tpot_excl_first_ms",
        "itl_step_ms", "e2e_ms"};
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < sizeof names / sizeof *names; i++) {
        const json_t *dist = json_object_get(cell, names[i]);
        if (!json_is_object(dist)) continue;
        json_t *row = json_copy((json_t *)dist);
        char name[48];
        snprintf(name, sizeof name, "%.*s", (int)strlen(names[i]) - 3, names[i]); /* the unit is in the heading */
        ok = row && json_object_set_new(row, "time", json_string(name)) == 0 && json_array_append(rows, row) == 0;
        json_decref(row);
    }
    hr_status status = ok ? write_rows(format, stream, "Times, in ms", rows, keys)
                          : hr_fail(HR_ERR_MEMORY, "out of memory while printing the cell");
    json_decref(rows);
    return status;
}

static hr_status write_ops(hr_format format, FILE *stream, const json_t *cell) {
    static const char *const keys[] = {"phase",   "op",          "kernel",       "calls",         "time|ms",
                                       "share|%", "per_call|us", "traffic|GB/s", "compute|GOP/s", NULL};
    json_t *rows;
    HR_TRY(hr_ops_by_time(json_object_get(cell, "ops"), &rows));
    hr_status status = write_rows(format, stream, "Ops of the recorded repetitions, by time", rows, keys);
    json_decref(rows);
    return status;
}

static hr_status write_ranges(hr_format format, FILE *stream, const json_t *cell) {
    return write_rows(format, stream, "Ranges that a profiler saw, beside the recorder's times of the ops of that name",
                      json_object_get(cell, "ranges"), hr_ranges_columns);
}

/* Keys without a value, so that what is missing shows. */
static void write_unknown(FILE *stream, const json_t *cell) {
    static const char *const keys[] = {
#define X(key, kind) #key,
        HR_CELL_KEYS(X)
#undef X
    };
    const char *between = "Unknown or not concerned: ";
    size_t at = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (has_value(json_object_get(cell, keys[i]))) continue;
        if (at + strlen(keys[i]) > PAGE_WIDTH) between = ",\n  ", at = 0;
        fprintf(stream, "%s%s", between, keys[i]);
        at += strlen(between) + strlen(keys[i]);
        between = ", ";
    }
    if (between[0] == ',') fputc('\n', stream);
}

hr_status hr_cell_view(hr_format format, FILE *stream, const json_t *cell) {
    HR_TRY(write_section(format, stream, 0, cell));
    HR_TRY(write_section(format, stream, 1, cell));
    HR_TRY(write_distributions(format, stream, cell));
    for (size_t i = 2; i < N_SECTIONS; i++) HR_TRY(write_section(format, stream, i, cell));
    HR_TRY(write_ops(format, stream, cell));
    HR_TRY(write_ranges(format, stream, cell));
    write_unknown(stream, cell);
    return hr_stream_flush(stream);
}
