/* llama-bench's rows: its columns in its order, all of them, since readers such as compare-llama-bench.py want each and
 * join rows by their values. Axes of ours that it lacks stand in `backends`, so that rows which differ are not averaged. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/formats_internal.h"
#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What stands where neither the cell nor the file that it came from says anything. */
typedef struct column {
    const char *name;
    enum { TEXT, INT, REAL, BOOL } kind;
    const char *otherwise;
} column;
static const column columns[] = {
    {"build_commit", TEXT, ""},
    {"build_number", INT, "0"},
    {"cpu_info", TEXT, ""},
    {"gpu_info", TEXT, ""},
    {"backends", TEXT, ""},
    {"model_filename", TEXT, ""},
    {"model_type", TEXT, ""},
    {"model_size", INT, "0"},
    {"model_n_params", INT, "0"},
    {"n_batch", INT, "2048"},
    {"n_ubatch", INT, "512"},
    {"n_threads", INT, "0"},
    {"cpu_mask", TEXT, "0x0"},
    {"cpu_strict", BOOL, "0"},
    {"poll", INT, "0"},
    {"type_k", TEXT, ""},
    {"type_v", TEXT, ""},
    {"n_gpu_layers", INT, "0"},
    {"n_cpu_moe", INT, "0"},
    {"split_mode", TEXT, "none"},
    {"main_gpu", INT, "0"},
    {"no_kv_offload", BOOL, "0"},
    {"flash_attn", BOOL, "0"},
    {"tensor_split", TEXT, "0.00"},
    {"tensor_buft_overrides", TEXT, "none"},
    {"use_mmap", BOOL, "1"},
    {"embeddings", BOOL, "0"},
    {"no_op_offload", INT, "0"},
    {"fit_target", INT, "0"},
    {"fit_min_ctx", INT, "0"},
    {"n_prompt", INT, "0"},
    {"n_gen", INT, "0"},
    {"n_depth", INT, "0"},
    {"test_time", TEXT, ""},
    {"avg_ns", INT, "0"},
    {"stddev_ns", INT, "0"},
    {"avg_ts", REAL, "0"},
    {"stddev_ts", REAL, "0"},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static const char *const axes[] = {"quant",  "act",     "kv_layout", "page_size", "kv_alloc", "fusion",
                                   "forced", "weights", "isa",       "device",    "n_seqs",   NULL};

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while writing llama-bench's rows");
}

/* "CPU quant=int8 kv_layout=paged page_size=16"; one sequence is llama-bench's own. */
static json_t *backends_of(const json_t *cell) {
    char text[1024];
    size_t n = (size_t)snprintf(text, sizeof text, "%.200s", hr_word(cell, "backends"));
    for (size_t i = 0; axes[i] && n < sizeof text; i++) {
        const json_t *value = json_object_get(cell, axes[i]);
        if (!value || json_is_null(value) || (!strcmp(axes[i], "n_seqs") && json_integer_value(value) == 1)) continue;
        char *word = hr_value_text(value);
        if (word) n += (size_t)snprintf(text + n, sizeof text - n, " %s=%s", axes[i], word);
        hr_free(word);
    }
    json_t *out = json_string(text);
    return out ? out : json_string(hr_word(cell, "backends"));
}

static json_t *otherwise(const column *c) {
    switch (c->kind) {
    case TEXT:
        return json_string(c->otherwise);
    case BOOL:
        return json_boolean(*c->otherwise == '1');
    case INT:
        return json_integer(atoll(c->otherwise));
    default:
        return json_real(0);
    }
}

static json_t *value_of(hr_export_job *job, const column *c, const json_t *cell, const json_t *extras) {
    json_t *value = json_object_get(cell, c->name);
    if (!strcmp(c->name, "backends")) return backends_of(cell);
    if (value && !json_is_null(value)) {
        if (c->kind == INT && json_is_real(value)) return json_integer(llround(json_real_value(value)));
        return json_incref(value);
    }
    value = json_object_get(extras, c->name);
    if (value) return json_incref(value);
    if (strcmp(c->name, "stddev_ns") && strcmp(c->name, "stddev_ts")) /* 0 of one sample is llama-bench's own */
        hr_note(job->notes, "%s: not known, %s stands there", c->name, *c->otherwise ? c->otherwise : "an empty text");
    return otherwise(c);
}

static json_t *row_of(hr_export_job *job, const json_t *cell, const json_t *extras) {
    json_t *row = json_object(), *value;
    const char *key;
    bool ok = row != NULL;
    for (size_t i = 0; ok && i < N_COLUMNS; i++)
        ok = json_object_set_new(row, columns[i].name, value_of(job, &columns[i], cell, extras)) == 0;
    json_object_foreach((json_t *)extras, key, value) {
        if (!json_object_get(row, key)) ok = ok && json_object_set(row, key, value) == 0;
    }
    static const char *const samples[] = {"samples_ns", "samples_ts"};
    for (size_t i = 0; ok && i < 2; i++) {
        value = json_object_get(cell, samples[i]);
        if (json_is_array(value)) ok = json_object_set(row, samples[i], value) == 0;
    }
    if (ok) return row;
    json_decref(row);
    return NULL;
}

static bool note_rest(hr_export_job *job, const json_t *cell, bool csv) {
    const char *known[N_COLUMNS + 24];
    size_t n = 0;
    for (; n < N_COLUMNS; n++) known[n] = columns[n].name;
    for (size_t i = 0; axes[i]; i++) known[n++] = axes[i];
    known[n++] = "test";
    if (!csv) known[n++] = "samples_ns", known[n++] = "samples_ts";
    known[n] = NULL;
    return hr_export_note_rest(job, cell, known);
}

/* ---- containers ---- */

static hr_status write_csv(FILE *stream, const json_t *rows) {
    json_t *names = json_object(), *row, *value;
    const char *key;
    size_t i, n;
    bool ok = names != NULL;
    json_array_foreach((json_t *)rows, i, row) json_object_foreach(row, key, value) {
        if (!json_is_array(value)) ok = ok && json_object_set_new(names, key, json_null()) == 0;
    }
    n = 0;
    json_object_foreach(names, key, value) hr_csv_field(stream, key, n++ == 0);
    hr_csv_end(stream);
    json_array_foreach((json_t *)rows, i, row) {
        n = 0;
        json_object_foreach(names, key, value) {
            const json_t *field = json_object_get(row, key);
            char *text = json_is_boolean(field) ? hr_strdup(json_is_true(field) ? "1" : "0") : hr_value_text(field);
            ok = ok && text;
            hr_csv_field(stream, text ? text : "", n++ == 0);
            hr_free(text);
        }
        hr_csv_end(stream);
    }
    json_decref(names);
    return ok ? HR_OK : no_memory();
}

static hr_status write_rows(FILE *stream, const json_t *rows, hr_container container) {
    if (container == HR_CONTAINER_JSON) return hr_json_write(stream, rows);
    if (container == HR_CONTAINER_CSV) return write_csv(stream, rows);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        hr_json_inline(stream, json_array_get(rows, i));
        putc('\n', stream);
    }
    return HR_OK;
}

static hr_status add_cell(hr_export_job *job, const json_t *cell, bool csv, json_t *rows) {
    const json_t *extras = json_object_get(json_object_get(job->run, "foreign"), hr_word(cell, "cell_id"));
    if (!hr_export_takes(job, cell)) return HR_OK;
    const bool requests = json_is_integer(json_object_get(cell, "isl"));
    if (requests || (hr_num(cell, "n_prompt") > 0) + (hr_num(cell, "n_gen") > 0) == 0) {
        hr_note(job->notes, "%.80s: llama-bench has no such test: left out", hr_word(cell, "test"));
        return HR_OK;
    }
    if (json_array_append_new(rows, row_of(job, cell, extras)) || !note_rest(job, cell, csv)) return no_memory();
    job->written++;
    return HR_OK;
}

hr_status hr_export_llama(hr_export_job *job, hr_container container) {
    json_t *rows = json_array();
    hr_status status = rows ? HR_OK : no_memory();
    for (size_t i = 0; i < json_array_size(job->cells) && status == HR_OK; i++)
        status = add_cell(job, json_array_get(job->cells, i), container == HR_CONTAINER_CSV, rows);
    if (status == HR_OK) status = write_rows(job->stream, rows, container);
    json_decref(rows);
    return status;
}
