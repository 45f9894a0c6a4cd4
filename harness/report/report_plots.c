/* The table of plots, the scripts inside the program, and what is written for each. */
#include "harness/report/report_plots.h"

#include "harness/formats/formats.h"
#include "harness/stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The text of plots/NAME.gp; the path is from the root, where builds run. */
#define EMBED(symbol, file)                              \
    __asm__(".pushsection .rodata\n"                     \
            ".global " #symbol "\n"                      \
            ".type " #symbol ", %object\n" #symbol ":\n" \
            ".incbin \"plots/" file "\"\n"               \
            ".byte 0\n"                                  \
            ".size " #symbol ", . - " #symbol "\n"       \
            ".popsection\n");                            \
    extern const char symbol[]
EMBED(hr_plot_style, "style.gp");
EMBED(hr_plot_script_bandwidth, "bandwidth.gp");
EMBED(hr_plot_script_peaks, "peaks.gp");
EMBED(hr_plot_script_roofline, "roofline.gp");
EMBED(hr_plot_script_lines, "lines.gp");
EMBED(hr_plot_script_mbu, "mbu.gp");
EMBED(hr_plot_script_layouts, "layouts.gp");
EMBED(hr_plot_script_request, "request.gp");
EMBED(hr_plot_script_ops, "ops.gp");
EMBED(hr_plot_script_kv_heatmap, "kv_heatmap.gp");
EMBED(hr_plot_script_kv_curves, "kv_curves.gp");
EMBED(hr_plot_script_kv_allocators, "kv_allocators.gp");
EMBED(hr_plot_script_kv_concurrency, "kv_concurrency.gp");
EMBED(hr_plot_script_waterfall, "waterfall.gp");
EMBED(hr_plot_script_history, "history.gp");

static const char *const bandwidth_columns[] = {"bytes_per_thread", "read_gb_s", "threads", NULL};
static const char *const peaks_columns[] = {"x", "gflop_s", "ci95_lo", "ci95_hi", "threads", "unit", NULL};
static const char *const cell_points[] = {
    "intensity_flop_byte", "gflop_s", "roof_fraction", "ms", "bound", "test", "cell_id", NULL};
static const char *const op_points[] = {
    "intensity_flop_byte", "gflop_s", "roof_fraction", "ms", "share", "op", "phase", "cell_id", NULL};
static const char *const ttft_columns[] = {"isl", "ttft_ms_p50", "lo_ms", "hi_ms", "n", "test", "cell_id", NULL};
static const char *const batch_columns[] = {
    "n_seqs", "tpot_excl_first_ms_p50", "lo_ms", "hi_ms", "n", "test", "cell_id", NULL};
static const char *const depth_columns[] = {
    "n_depth", "tpot_excl_first_ms_p50", "lo_ms", "hi_ms", "n", "test", "cell_id", NULL};
static const char *const mbu_columns[] = {"x", "mbu_pct", "lo_pct", "hi_pct", "quant", "test", "cell_id", NULL};
static const char *const layout_columns[] = {
    "x", "tpot_excl_first_ms_p50", "lo_ms", "hi_ms", "n", "kv_layout", "cell_id", NULL};
static const char *const request_columns[] = {"x",          "prefill_pct", "decode_pct", "ttft_ms_p50",
                                              "e2e_ms_p50", "isl",         "cell_id",    NULL};
static const char *const ops_columns[] = {"x", "ms", "roof_ms", "loss_ms", "roof_part_ms", "share_pct", "op", NULL};
static const char *const heatmap_columns[] = {"x", "y",       "context", "vs_head", "ci95_lo", "ci95_hi",
                                              "n", "verdict", "figure",  "note",    NULL};
static const char *const curve_columns[] = {"context", "gb_s", "lo_gb_s", "hi_gb_s", "us", "n", "panel", "state", NULL};
static const char *const allocator_columns[] = {"y", "requests_s",    "lo",        "hi", "budget_pct",
                                                "n", "largest_batch", "allocator", NULL};
static const char *const concurrency_columns[] = {"concurrency", "requests_s",    "lo",     "hi",
                                                  "n",           "largest_batch", "p99_ms", NULL};

#define INTERVALS "Bars: 95 % interval of the median, or lowest to highest where there are fewer than 6 samples."

const hr_plot hr_plots[] = {
    {"bandwidth", "machine", "Read bandwidth by working set",
     "All threads read their own block; each point is the best of several access patterns. Vertical lines: cache sizes "
     "a thread; the last-level cache is the measured knee.",
     bandwidth_columns, hr_fill_bandwidth, hr_plot_script_bandwidth, 440},
    {"peaks", "machine", "Peak arithmetic rate by unit",
     "Inline assembly with enough accumulators; a multiply and an add count as two operations.", peaks_columns,
     hr_fill_peaks, hr_plot_script_peaks, 360},
    {"roofline", "roofline", "Roofline: every cell",
     "A point on a roof cannot be faster on this machine at that intensity. Slope: read bandwidth; plateaus: peak of "
     "each unit; the numbers at the corners are the ridge points in flop / byte. Filled: prefill; hollow: decode.",
     cell_points, hr_fill_roofline, hr_plot_script_roofline, 560},
    {"roofline_ops", "roofline", "Roofline: op classes",
     "Op classes that both move bytes and compute; embed, norm, rope, kv_append and sample have no flops to count and "
     "stand in the table of op classes.",
     op_points, hr_fill_roofline_ops, hr_plot_script_roofline, 560},
    {"ttft", "latency", "Time to first token against input length", INTERVALS, ttft_columns, hr_fill_ttft,
     hr_plot_script_lines, 460},
    {"tpot_batch", "latency", "Time per output token against batch size",
     "Sequences decoded together; the time is that of one step, which gives each sequence one token. " INTERVALS,
     batch_columns, hr_fill_tpot_batch, hr_plot_script_lines, 460},
    {"tpot_depth", "latency", "Time per output token against context depth", INTERVALS, depth_columns,
     hr_fill_tpot_depth, hr_plot_script_lines, 460},
    {"mbu", "latency", "Memory bandwidth utilisation of decode by quantization",
     "Bytes of weights and KV of a step over its median time, as a share of the read bandwidth measured beside the "
     "cell. "
     "One sequence at the smallest depth. " INTERVALS,
     mbu_columns, hr_fill_mbu, hr_plot_script_mbu, 400},
    {"layouts", "latency", "KV layouts side by side",
     "Layouts of one line differ in nothing else. The axis does not begin at zero. " INTERVALS, layout_columns,
     hr_fill_layouts, hr_plot_script_layouts, 420},
    {"request", "latency", "Prefill and decode share of a request by input length",
     "Time to first token (queueing and prefill) and the rest of the median end-to-end time.", request_columns,
     hr_fill_request, hr_plot_script_request, 440},
    {"waterfall_tpot", "waterfall", "From the ideal to the measured time: one decode step",
     "Each bar begins where the one above it ends. Needed: what the measured ceilings allow; lost: op classes over "
     "their "
     "own roof; then waiting in the team, time in no op, what recording added, and what is left unexplained.",
     NULL, hr_fill_waterfall_tpot, hr_plot_script_waterfall, 0},
    {"waterfall_ttft", "waterfall", "From the ideal to the measured time: time to first token",
     "The same of a prefill with its first sample.", NULL, hr_fill_waterfall_ttft, hr_plot_script_waterfall, 0},
    {"ops_prefill", "ops", "Time by op class: prefill",
     "Of the recorded repetitions. Solid: the least time that the ceilings allow; hatched: what is above it. Figures: "
     "share of the time measured with the recorder off; what the ops do not explain is “outside the ops”.",
     ops_columns, hr_fill_ops_prefill, hr_plot_script_ops, 420},
    {"ops_decode", "ops", "Time by op class: one decode step",
     "Of the recorded repetitions. Solid: the least time that the ceilings allow; hatched: what is above it. Figures: "
     "share of the time measured with the recorder off; what the ops do not explain is “outside the ops”.",
     ops_columns, hr_fill_ops_decode, hr_plot_script_ops, 420},
    {"kv_heatmap", "kv_layouts", "Attention time by KV layout and context, relative to the layout head",
     "One layer, one token a sequence, caches emptied before each read. The figure is time over time of head, the "
     "median "
     "of pairs: above 1 is slower. Grey is no difference: the whole 95 % interval lies within 2 % of 1. The row head "
     "shows its own time and bandwidth.",
     heatmap_columns, hr_fill_kv_heatmap, hr_plot_script_kv_heatmap, 500},
    {"kv_curves", "kv_layouts", "Bandwidth of attention by KV layout and context",
     "Bytes of K and V over the median time. Bars: 95 % interval of the median.", curve_columns, hr_fill_kv_curves,
     hr_plot_script_kv_curves, 760},
    {"kv_allocators", "kv_allocators", "Requests a second by KV allocator and budget",
     "The same requests under each allocator, with first-come admission. Bars: 95 % interval of the median.",
     allocator_columns, hr_fill_kv_allocators, hr_plot_script_kv_allocators, 420},
    {"kv_concurrency", "kv_allocators", "Requests a second by KV allocator and requests at once",
     "Bars: 95 % interval of the median.", concurrency_columns, hr_fill_kv_concurrency, hr_plot_script_kv_concurrency,
     440},
};
const size_t hr_plots_count = sizeof hr_plots / sizeof *hr_plots;

/* ---- filling ---------------------------------------------------------------------------------------------------- */

/* A text that was cut to fit may end in half a character, which jansson refuses. */
static json_t *string(const char *text) {
    char whole[512];
    snprintf(whole, sizeof whole, "%s", text);
    return json_string(hr_text_whole(whole));
}

static void append(hr_plot_data *data, json_t *list, json_t *item) {
    if (json_array_append_new(list, item) != 0) data->failed = true;
}

size_t hr_plot_series(hr_plot_data *data, const char *title) {
    append(data, data->titles, string(title));
    return json_array_size(data->titles);
}

json_t *hr_plot_row(hr_plot_data *data, size_t series, const double *values, size_t n) {
    json_t *row = json_array();
    append(data, row, json_integer((json_int_t)series));
    append(data, row, json_incref(json_array_get(data->titles, series - 1)));
    for (size_t i = 0; i < n; i++) append(data, row, hr_real_or_null(values[i]));
    append(data, data->rows, row);
    return data->failed ? NULL : row;
}

void hr_plot_text(hr_plot_data *data, json_t *row, const char *text) {
    append(data, row, string(text));
}

void hr_plot_number(hr_plot_data *data, const char *name, double value) {
    if (json_object_set_new(data->vars, name, hr_real_or_null(value)) != 0) data->failed = true;
}

void hr_plot_count(hr_plot_data *data, const char *name, size_t value) {
    if (json_object_set_new(data->vars, name, json_integer((json_int_t)value)) != 0) data->failed = true;
}

static void list_append(hr_plot_data *data, const char *name, json_t *item) {
    json_t *list = json_object_get(data->vars, name);
    if (!list) {
        list = json_array();
        if (json_object_set_new(data->vars, name, list) != 0) list = NULL;
    }
    append(data, list, item);
}
void hr_plot_list_number(hr_plot_data *data, const char *name, double value) {
    list_append(data, name, hr_real_or_null(value));
}
void hr_plot_list_count(hr_plot_data *data, const char *name, size_t value) {
    list_append(data, name, json_integer((json_int_t)value));
}
void hr_plot_list_word(hr_plot_data *data, const char *name, const char *text) {
    list_append(data, name, string(text));
}

void hr_plot_why(hr_plot_data *data, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(data->why, sizeof data->why, format, arguments);
    va_end(arguments);
}

void hr_plot_more(hr_plot_data *data, const char *format, ...) {
    const size_t n = strlen(data->more);
    va_list arguments;
    va_start(arguments, format);
    if (n && n + 1 < sizeof data->more) strcpy(data->more + n, " ");
    vsnprintf(data->more + strlen(data->more), sizeof data->more - strlen(data->more), format, arguments);
    va_end(arguments);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* Exact, so that a reader of the data gets the number of the store; a text loses tabs and line ends. */
static void field(FILE *f, const json_t *value) {
    char text[40];
    if (json_is_integer(value))
        fprintf(f, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value)) {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, json_real_value(value));
            if (strtod(text, NULL) == json_real_value(value)) break;
        }
        fputs(text, f);
    } else if (json_is_string(value))
        for (const char *c = json_string_value(value); *c; c++)
            fputc((unsigned char)*c < 32 || *c == 127 || *c == '"' ? ' ' : *c, f);
    else
        fputs("NaN", f);
}

hr_status hr_plot_write_tsv(const hr_plot *plot, const hr_plot_data *data, FILE *f) {
    if (data->tsv) return fputs(json_string_value(data->tsv), f) < 0 ? hr_stream_flush(f) : HR_OK;
    fputs("series\ttitle", f);
    for (size_t i = 0; plot->columns[i]; i++) fprintf(f, "\t%s", plot->columns[i]);
    fputs("\n", f);
    size_t i, k;
    json_t *row, *value;
    json_array_foreach(data->rows, i, row) {
        json_array_foreach(row, k, value) {
            if (k) fputc('\t', f);
            field(f, value);
        }
        fputc('\n', f);
    }
    return HR_OK;
}

/* Single quotes hold everything but themselves, and are doubled. */
static void quoted(FILE *f, const char *text) {
    fputc('\'', f);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', f);
        fputc((unsigned char)*text < 32 || *text == 127 ? ' ' : *text, f);
    }
    fputc('\'', f);
}

static void setting(FILE *f, const json_t *value) {
    if (json_is_string(value))
        quoted(f, json_string_value(value));
    else {
        field(f, value);
        const double v = json_real_value(value);
        if (json_is_real(value) && v == floor(v) && fabs(v) < 1e15) fputc('.', f); /* else gnuplot divides integers */
    }
}

static void list(FILE *f, const char *name, const json_t *values) {
    const size_t n = json_array_size(values);
    fprintf(f, "n_%s = %zu\n", name, n);
    if (!n) return;
    fprintf(f, "array %s[%zu] = [", name, n);
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(", ", f);
        setting(f, json_array_get(values, i));
    }
    fputs("]\n", f);
}

hr_status hr_plot_write_script(const hr_plot *plot, const hr_plot_data *data, FILE *f) {
    fprintf(f, "# Run in this folder: gnuplot %s.gp reads ../data/%s.tsv and writes %s.svg\n", plot->name, plot->name,
            plot->name);
    fprintf(f, "name = '%s'\nheight = %d\n", plot->name, data->height ? data->height : plot->height);
    list(f, "title", data->titles);
    const char *name;
    json_t *value;
    json_object_foreach(data->vars, name, value) {
        if (json_is_array(value)) {
            list(f, name, value);
            continue;
        }
        fprintf(f, "%s = ", name);
        setting(f, value);
        fputs("\n", f);
    }
    fprintf(f, "\n%s\n%s", hr_plot_style, plot->script);
    return HR_OK;
}

/* What gnuplot said was wrong, for a message: its last line that is not a warning. */
static void last_complaint(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "r");
    char line[300];
    out[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strspn(line, " \t^") < strlen(line) && !strstr(line, "warning")) snprintf(out, size, "%s", line);
    }
    if (f) fclose(f);
}

/* The picture is whole when its end is there: gnuplot does not say that the disk was full. */
static bool whole(const char *path) {
    char end[64] = "";
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (fseek(f, -32, SEEK_END) == 0) end[fread(end, 1, 32, f)] = 0;
    fclose(f);
    return strstr(end, "</svg>") != NULL;
}

hr_status hr_plot_draw(const hr_plot *plot, const char *folder, bool *missing) {
    char script[64], said[4200], picture[4200], line[300];
    snprintf(script, sizeof script, "%s.gp", plot->name);
    snprintf(said, sizeof said, "%s/gnuplot.err", folder);
    snprintf(picture, sizeof picture, "%s/%s.svg", folder, plot->name);
    /* -d: without the settings of the user */
    char *const argv[] = {"gnuplot", "-d", script, NULL};
    char *environment[] = {"LC_ALL=C.UTF-8", NULL, NULL, NULL};
    char path[4096], home[4096];
    snprintf(path, sizeof path, "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/local/bin:/usr/bin:/bin");
    snprintf(home, sizeof home, "HOME=%s", getenv("HOME") ? getenv("HOME") : "/");
    environment[1] = path, environment[2] = home;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "gnuplot.err", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    pid_t pid;
    const int error = posix_spawnp(&pid, "gnuplot", &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT || error == EACCES) {
        *missing = true;
        return HR_OK;
    }
    if (error) HR_FAIL(HR_ERR_IO, "starting gnuplot: %s", strerror(error));
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
    last_complaint(said, line, sizeof line);
    unlink(said);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        HR_FAIL(HR_ERR_IO, "plots/%s.gp: gnuplot failed: %s", plot->name, *line ? line : "it gave no reason");
    if (!whole(picture))
        HR_FAIL(HR_ERR_IO, "plots/%s.svg: gnuplot wrote half a picture; is the disk full?", plot->name);
    return HR_OK;
}
