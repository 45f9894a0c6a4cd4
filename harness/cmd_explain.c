/* headroom explain: one cell accounted term by term, from the ideal to what was measured; or two, and what differs. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/explain/explain.h"
#include "harness/formats/cell_device.h"
#include "harness/roof/roof.h"
#include "harness/store/store.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const hr_command hr_command_sweep;

static const char *const metric_names[] = {"ttft", "tpot", NULL};
static const hr_opt opt_vs = {.name = "--vs",
                              .group = "What is explained",
                              .kind = HR_OPT_TEXT,
                              .min = 1,
                              .metavar = "CELL",
                              .help = "explain the difference: every figure is CELL minus this other one"};
static const hr_opt opt_metric = {.name = "--metric",
                                  .group = "What is explained",
                                  .kind = HR_OPT_WORD,
                                  .choices = metric_names,
                                  .metavar = "METRIC",
                                  .help = "this one alone (default: those that the cell has)"};
static const hr_opt opt_svg = {.name = "--svg",
                               .group = "Output",
                               .kind = HR_OPT_TEXT,
                               .min = 1,
                               .metavar = "FILE",
                               .help = "also draw the waterfall (needs gnuplot)"};

#define MEASURING &hr_opt_repetitions, &hr_opt_max_time, &hr_opt_seed, &hr_opt_prompt
/* Flags that are handed on to the sweep when a cell is measured first. */
static const hr_opt *const axes[] = {HR_OPTS_AXES_SWEEP, MEASURING, NULL};
static const hr_opt *const options[] = {&opt_vs,  &opt_metric, HR_OPTS_AXES_SWEEP, MEASURING, HR_OPTS_OUTPUT,
                                        &opt_svg, &hr_opt_db,  HR_OPTS_CONFIG,     NULL};

/* ---- a cell that is measured first ------------------------------------------------------------------------------------ */

typedef struct words {
    char **v; /* [n], hr_malloc'ed */
    size_t n, capacity;
} words;

static bool put_word(words *w, const char *text) {
    if (w->n == w->capacity) {
        const size_t capacity = w->capacity ? 2 * w->capacity : 32;
        char **v = hr_realloc(w->v, hr_mul(capacity, sizeof *v));
        if (!v) return false;
        w->v = v, w->capacity = capacity;
    }
    return (w->v[w->n] = hr_strdup(text)) != NULL && ++w->n;
}

static void free_words(words *w) {
    for (size_t i = 0; i < w->n; i++) hr_free(w->v[i]);
    hr_free(w->v);
}

/* "--quant" "int8": as it would be typed. A pair is "512,128". */
static bool put_flag(words *w, const char *name, const json_t *value) {
    char text[64];
    const char *word = json_string_value(value);
    if (json_is_array(value)) {
        snprintf(text, sizeof text, "%lld,%lld", (long long)json_integer_value(json_array_get(value, 0)),
                 (long long)json_integer_value(json_array_get(value, 1)));
        word = text;
    } else if (!word) {
        snprintf(text, sizeof text, json_is_real(value) ? "%.17g" : "%.0f", json_number_value(value));
        word = text;
    }
    return put_word(w, name) && put_word(w, word);
}

static bool any_axis(const hr_args *args) {
    for (const hr_opt *const *o = axes; *o; o++)
        if (hr_args_given(args, (*o)->name)) return true;
    return false;
}

static const char *const kinds[] = {"-p", "-n", "-pg", "--isl"};

/* One value an axis and one kind of row: then the sweep has one cell. */
static hr_status check_one_cell(const hr_args *args) {
    size_t n_kinds = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) n_kinds += hr_args_given(args, kinds[i]);
    if (n_kinds > 1) HR_FAIL(HR_ERR_USAGE, "explain measures one cell: give one of -p, -n, -pg and --isl");
    for (const hr_opt *const *o = axes; *o; o++) {
        size_t n = 1;
        const hr_opt_kind kind = (*o)->kind;
        if (!hr_args_given(args, (*o)->name) || !strcmp((*o)->name, "--kernel")) continue;
        if (kind == HR_OPT_INTS || kind == HR_OPT_PAIRS) hr_args_ints(args, (*o)->name, &n);
        if (kind == HR_OPT_PAIRS) n /= 2;
        if (kind == HR_OPT_TEXTS || kind == HR_OPT_WORDS) hr_args_texts(args, (*o)->name, &n);
        if (n != 1) HR_FAIL(HR_ERR_USAGE, "%s: explain measures one cell, so one value, not %zu", (*o)->name, n);
    }
    return HR_OK;
}

/* The line of a sweep with these axes; its row goes to a file that says which cell of the store it is. */
static hr_status sweep_line(const hr_args *args, const char *db, const char *row_file, words *w) {
    json_t *given = hr_args_json(args);
    bool ok = given != NULL, kind = false;
    for (const hr_opt *const *o = axes; ok && *o; o++) {
        const char *name = (*o)->name;
        const json_t *value = json_object_get(given, name + strspn(name, "-"));
        size_t i;
        json_t *item;
        if (!value) continue;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) kind |= hr_args_given(args, kinds[k]);
        if (!json_is_array(value)) {
            ok = put_flag(w, name, value);
            continue;
        }
        json_array_foreach(value, i, item) ok = ok && put_flag(w, name, item);
    }
    if (ok && !kind) ok = put_word(w, "--isl") && put_word(w, "512");
    if (ok && !kind && !hr_args_given(args, "--osl")) ok = put_word(w, "--osl") && put_word(w, "64");
    const char *const ending[] = {"-o", "jsonl", "--out", row_file, "--db", db};
    for (size_t i = 0; ok && i < sizeof ending / sizeof *ending; i++) ok = put_word(w, ending[i]);
    if (ok && hr_args_flag(args, "--quiet")) ok = put_word(w, "--quiet");
    if (ok && hr_args_flag(args, "--no-progress")) ok = put_word(w, "--no-progress");
    json_decref(given);
    if (!ok) HR_FAIL(HR_ERR_MEMORY, "out of memory while preparing to measure");
    return HR_OK;
}

/* The exit code of the sweep; 2 is said on stderr. */
static int measure(const hr_args *args, const char *db, const char *row_file) {
    words w = {0};
    hr_args *line = NULL;
    int code = 2;
    hr_status status = sweep_line(args, db, row_file, &w);
    if (status == HR_OK) status = hr_args_parse(&hr_command_sweep, (int)w.n, w.v, &line);
    if (status == HR_OK)
        code = hr_command_sweep.run(line);
    else
        hr_report_failure();
    if (line) hr_args_destroy(line);
    free_words(&w);
    return code;
}

/* What ends with the command: the row of the cell, and for --db none the store. */
typedef struct temporary {
    char folder[240], row[260], db[260];
} temporary;

static hr_status make_temporary(temporary *t) {
    const char *tmp = getenv("TMPDIR");
    char folder[sizeof t->folder];
    snprintf(folder, sizeof folder, "%.200s/headroom-explain-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) HR_FAIL(HR_ERR_IO, "%s: cannot make a folder for the cell: %s", folder, strerror(errno));
    memcpy(t->folder, folder, sizeof folder);
    snprintf(t->row, sizeof t->row, "%s/row.jsonl", t->folder);
    snprintf(t->db, sizeof t->db, "%s/cell.db", t->folder);
    return HR_OK;
}

static void remove_temporary(const temporary *t) {
    static const char *const names[] = {"cell.db", "cell.db-wal", "cell.db-shm", "row.jsonl"};
    char name[300];
    if (!*t->folder) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s/%s", t->folder, names[i]);
        unlink(name);
    }
    rmdir(t->folder);
}

/* ID@RUN of the row: the newest cell of a store may be one that another program measures meanwhile. */
static hr_status name_measured(const temporary *t, char *name, size_t n) {
    FILE *f = fopen(t->row, "r");
    if (!f) HR_FAIL(HR_ERR_IO, "%s: %s", t->row, strerror(errno));
    json_t *row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
    fclose(f);
    const char *cell_id = hr_word(row, "cell_id"), *run_id = hr_word(row, "run_id");
    snprintf(name, n, "%.64s@%.64s", cell_id, run_id);
    const bool whole = *cell_id && *run_id;
    json_decref(row);
    if (!whole) HR_FAIL(HR_ERR_INTERNAL, "%s: the sweep does not say which cell it measured", t->row);
    return HR_OK;
}

/* ---- a cell of the store ---------------------------------------------------------------------------------------------- */

static void set_text(json_t *cell, const char *key, const char *text) {
    if (text && *text) json_object_set_new(cell, key, json_string(text));
}

/* What an explanation needs to know beside the cell: machines, and whether the prompt was a text. */
static hr_status add_surroundings(hr_store *store, const char *run_id, json_t *cell) {
    json_t *machine, *runs, *run;
    size_t i;
    hr_machine here;
    HR_TRY(hr_store_machine(store, run_id, &machine));
    set_text(cell, "machine_class", hr_cell_class(cell, machine));
    json_decref(machine);
    /* Which GPUs are here is not asked: that would start a driver for a note. */
    if (!hr_cell_on_gpu(cell) && hr_machine_get(&here) == HR_OK) set_text(cell, "this_machine_class", here.class_name);
    HR_TRY(hr_store_runs(store, &runs));
    json_array_foreach(runs, i, run) {
        if (strcmp(hr_word(run, "run_id"), run_id)) continue;
        const bool prompt = json_object_get(json_object_get(run, "args"), "prompt") != NULL;
        json_object_set_new(cell, "has_prompt", json_boolean(prompt));
    }
    json_decref(runs);
    return HR_OK;
}

static hr_status explain_cell(hr_store *store, const char *text, bool measured_now, json_t **out) {
    char *cell_id = NULL, *run_id = NULL;
    json_t *cell = NULL, *ops = NULL, *recorded = NULL;
    HR_TRY(hr_store_resolve_cell(store, text, &cell_id, &run_id));
    hr_status status = hr_store_cell(store, cell_id, run_id, &cell);
    if (status == HR_OK) status = hr_store_ops(store, run_id, cell_id, &ops);
    if (status == HR_OK) status = hr_store_recorded(store, run_id, cell_id, &recorded);
    if (status == HR_OK) status = add_surroundings(store, run_id, cell);
    if (status == HR_OK && measured_now) set_text(cell, "planted", getenv("HEADROOM_PLANT"));
    if (status == HR_OK) status = hr_explain(cell, ops, recorded, out);
    json_decref(cell), json_decref(ops), json_decref(recorded);
    hr_free(cell_id), hr_free(run_id);
    return status;
}

static hr_status explain_difference(hr_store *store, const char *vs, json_t **explanation) {
    json_t *other = NULL, *difference = NULL;
    HR_TRY(explain_cell(store, vs, false, &other));
    const hr_status status = hr_explain_difference(*explanation, other, &difference);
    json_decref(other);
    if (status != HR_OK) return status;
    json_decref(*explanation);
    *explanation = difference;
    return HR_OK;
}

/* Leaves the other metric null. */
static hr_status choose_metric(const char *name, json_t *explanation) {
    json_t *metrics = json_object_get(explanation, "metrics");
    if (!name) return HR_OK;
    if (!json_is_object(json_object_get(metrics, name)))
        HR_FAIL(HR_ERR_INPUT, "--metric %s: the cell (%.60s) has none", name,
                hr_word(json_object_get(explanation, "cell"), "test"));
    json_object_set_new(metrics, strcmp(name, "ttft") ? "ttft" : "tpot", json_null());
    return HR_OK;
}

static hr_status load(const hr_args *args, const char *db, const char *text, bool measured_now, json_t **out) {
    hr_store *store;
    const char *vs = hr_args_text(args, "--vs");
    HR_TRY(hr_store_open(db, false, &store));
    hr_status status = explain_cell(store, text, measured_now, out);
    if (status == HR_OK && vs) status = explain_difference(store, vs, out);
    hr_store_close(store);
    return status == HR_OK ? choose_metric(hr_args_text(args, "--metric"), *out) : status;
}

/* ---- output ------------------------------------------------------------------------------------------------------------ */

static const char *const columns[] = {"metric", "name",    "kind",          "ms",     "share_pct",
                                      "gb_s",   "gflop_s", "roof_fraction", "reason", NULL};

/* The terms of all metrics as flat rows. */
static hr_status rows_of(const json_t *explanation, json_t **out) {
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t k = 0; metric_names[k]; k++) {
        const json_t *m = json_object_get(json_object_get(explanation, "metrics"), metric_names[k]);
        const double other = hr_num(m, "b_measured_ms"), whole = isnan(other) ? hr_num(m, "measured_ms") : other;
        size_t i;
        json_t *term;
        json_array_foreach(json_object_get(m, "terms"), i, term) {
            json_t *row = json_object();
            const double share = hr_num(term, "ms") / whole * 100;
            ok = ok && row && json_object_set_new(row, "metric", json_string(metric_names[k])) == 0;
            for (size_t c = 1; ok && columns[c]; c++) {
                json_t *value = json_object_get(term, columns[c]);
                if (!strcmp(columns[c], "share_pct"))
                    ok = json_object_set_new(row, columns[c], isfinite(share) ? json_real(share) : json_null()) == 0;
                else
                    ok = json_object_set(row, columns[c], value ? value : json_null()) == 0;
            }
            ok = ok && json_array_append(rows, row) == 0;
            json_decref(row);
        }
    }
    if (ok) {
        *out = rows;
        return HR_OK;
    }
    json_decref(rows);
    HR_FAIL(HR_ERR_MEMORY, "out of memory while printing an explanation");
}

static hr_status write_one(hr_format format, FILE *stream, const json_t *explanation) {
    json_t *rows;
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, explanation);
    if (format == HR_FORMAT_TABLE || format == HR_FORMAT_MD) return hr_explain_print(format, stream, explanation);
    HR_TRY(rows_of(explanation, &rows));
    const hr_status status = hr_rows_write(format, stream, rows, columns);
    json_decref(rows);
    return status;
}

static hr_status print(const hr_output *output, const json_t *explanation) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = write_one(output->format, out.stream, explanation);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? write_one(output->err_format, stderr, explanation) : HR_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------------- */

/* Everything that ends with 2 before anything is measured. */
static hr_status check(const hr_args *args, hr_output *output, bool *measures) {
    const bool named = hr_args_n_positional(args) > 0;
    const char *db = hr_args_text(args, "--db");
    HR_TRY(hr_output_resolve(args, output));
    *measures = any_axis(args);
    if (named && *measures)
        HR_FAIL(HR_ERR_USAGE, "give either a CELL of the store, or -m and axes of a cell to measure first");
    if (!named && !*measures)
        HR_FAIL(HR_ERR_USAGE, "explain needs a cell: `last`, an id that `headroom runs last` lists, or -m MODEL to "
                              "measure one first");
    if (*measures) HR_TRY(check_one_cell(args));
    HR_TRY(hr_output_check_all(args, (const char *const[]){"--out", "--svg", NULL}));
    if (!strcmp(db, "none") && (named || hr_args_given(args, "--vs")))
        HR_FAIL(HR_ERR_USAGE, "--db none holds no cell to explain: name a store");
    return HR_OK;
}

static int run(const hr_args *args) {
    hr_output output;
    bool measures = false;
    char measured[140] = "";
    temporary temp = {0};
    const char *db = hr_args_text(args, "--db"), *svg = hr_args_text(args, "--svg");
    json_t *explanation = NULL;
    int code = 0;
    hr_status status = check(args, &output, &measures);
    if (status == HR_OK && measures) status = make_temporary(&temp);
    if (measures && !strcmp(db, "none")) db = temp.db;
    if (status == HR_OK && measures) code = measure(args, db, temp.row);
    /* 4: the cell failed, which the explanation says with its reason */
    if (status == HR_OK && (!code || code == 4)) {
        if (measures) status = name_measured(&temp, measured, sizeof measured);
        if (status == HR_OK)
            status = load(args, db, measures ? measured : hr_args_positional(args, 0), measures, &explanation);
    }
    remove_temporary(&temp);
    if (status == HR_OK && explanation) status = print(&output, explanation);
    if (status == HR_OK && explanation && svg) status = hr_explain_svg(explanation, svg);
    json_decref(explanation);
    if (status == HR_OK) return code;
    const int failed = hr_report_failure();
    return code ? code : failed;
}

static const char *const examples[] = {
    "headroom explain last",
    "where the time of the cell that was stored last went, and what to try",
    "headroom explain last --vs last~1 --metric tpot",
    "what the newest cell does slower or faster than the one before it",
    "headroom explain -m synth:tiny --isl 64 --osl 8 --db none",
    "measures a request first (512 tokens in and 64 out when none is named), and keeps nothing",
    NULL};

const hr_command hr_command_explain = {
    .name = "explain",
    .task = "Profile",
    .summary = "account for every millisecond of a cell: ideal, losses by op, barriers, gaps",
    .synopsis = "headroom explain CELL [--vs CELL] [--metric ttft|tpot] [--svg FILE] [--db FILE] [-o FORMAT]\n"
                "       headroom explain -m MODEL [--isl N --osl N | -p N | -n N] [axes] [--vs CELL] [...]",
    .options = options,
    .positional = "CELL",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
