/* Rows of llama-bench: its JSON, JSONL and CSV hold the same keys, most of which are ours as well. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"

#include <string.h>

/* Keys that say what came out, or when and by which build, and not what was measured. */
static bool is_result(const char *key) {
    static const char *const results[] = {"build_commit", "build_number", "test_time",  "avg_ns",    "stddev_ns",
                                          "avg_ts",       "stddev_ts",    "samples_ns", "samples_ts"};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!strcmp(results[i], key)) return true;
    return false;
}

/* Keys of a cell that are llama-bench's stand before "test". */
static bool is_theirs(const char *key) {
    for (const char *const *k = hr_key_names(); *k && strcmp(*k, "test"); k++)
        if (!strcmp(*k, key)) return true;
    return false;
}

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while reading llama-bench's rows");
}

/* "pp512", "tg128 @ d4096", "pp512+tg128": llama-bench's own words. */
static bool put_test(json_t *cell) {
    const double p = hr_num(cell, "n_prompt"), g = hr_num(cell, "n_gen"), d = hr_num(cell, "n_depth");
    char text[120] = "";
    size_t n = 0;
    if (p > 0) n += (size_t)snprintf(text, sizeof text, "pp%.0f", p);
    if (g > 0) n += (size_t)snprintf(text + n, sizeof text - n, "%stg%.0f", n ? "+" : "", g);
    if (d > 0) snprintf(text + n, sizeof text - n, " @ d%.0f", d);
    return json_object_set_new(cell, "test", json_string(text)) == 0;
}

/* A key of ours takes the value; -1 for flash_attn is llama-bench's "auto", which is no boolean. */
static hr_status put_key(hr_import *im, size_t row, json_t *cell, json_t *extras, const char *key, hr_kind kind,
                         const json_t *given) {
    const bool csv = im->container == HR_CONTAINER_CSV;
    json_t *value = csv ? hr_key_from_text(kind, json_string_value(given)) : hr_key_value(kind, given);
    if (value) return json_object_set_new(cell, key, value) == 0 ? HR_OK : no_memory();
    if (!strcmp(key, "flash_attn") &&
        (csv ? !strcmp(json_string_value(given), "-1") : json_integer_value(given) == -1)) {
        if (!hr_note(im->notes, "flash_attn -1 (auto): what was used is not in the file")) return no_memory();
        return json_object_set(extras, key, (json_t *)given) == 0 ? HR_OK : no_memory();
    }
    return hr_import_fail(im, row, "%.60s does not hold what llama-bench writes there", key);
}

static hr_status put_keys(hr_import *im, size_t row, json_t *cell, json_t *extras, json_t *words) {
    const char *key;
    json_t *given;
    hr_kind kind;
    json_object_foreach(json_array_get(im->rows, row), key, given) {
        if (!is_result(key) && !hr_identity_add(words, key, given)) return no_memory();
        if (is_theirs(key) && hr_key_kind(key, &kind)) {
            HR_TRY(put_key(im, row, cell, extras, key, kind, given));
            continue;
        }
        if (json_object_set(extras, key, given)) return no_memory();
        if (!hr_note(im->notes, "%.60s: no key of a cell; counts in cell_id, kept for export", key)) return no_memory();
    }
    return HR_OK;
}

static hr_status check_times(hr_import *im, size_t row, json_t *cell) {
    json_t *samples = json_object_get(cell, "samples_ns"), *rates = json_object_get(cell, "samples_ts"), *sample;
    size_t i;
    double mean, stddev;
    json_array_foreach(samples, i, sample) {
        const double ns = json_number_value(sample);
        if (ns >= 1 && ns < 9e18) continue;
        return hr_import_fail(im, row, "sample %zu of samples_ns is %.3g: a time is at least 1 ns", i + 1, ns);
    }
    const double said = hr_num(cell, "avg_ns"), said_stddev = hr_num(cell, "stddev_ns");
    if (!json_array_size(samples) && !(said > 0))
        return hr_import_fail(im, row, "neither samples_ns nor avg_ns: nothing was measured");
    if (said < 0 || said_stddev < 0 || hr_num(cell, "avg_ts") < 0)
        return hr_import_fail(im, row, "avg_ns, stddev_ns or avg_ts is negative");
    if (json_is_array(rates) && json_array_size(rates) != json_array_size(samples)) {
        json_object_set_new(cell, "samples_ts", json_null());
        if (!hr_note(im->notes, "samples_ts: not one a sample: made again from samples_ns")) return no_memory();
    }
    hr_moments(samples, &mean, &stddev);
    /* llama-bench calculates in whole ns: its standard deviation is off by up to about the root of the mean */
    if (fabs(said - mean) > 1 + 1e-9 * mean || fabs(said_stddev - stddev) > 0.05 * stddev + 2 * sqrt(mean))
        if (!hr_note(im->notes, "avg_ns or stddev_ns does not follow from samples_ns: kept as the file says"))
            return no_memory();
    return HR_OK;
}

static hr_status check_shape(hr_import *im, size_t row, json_t *cell) {
    const double p = hr_num(cell, "n_prompt"), g = hr_num(cell, "n_gen"), d = hr_num(cell, "n_depth");
    if (isnan(p) || isnan(g)) return hr_import_fail(im, row, "n_prompt or n_gen is missing: no row of llama-bench");
    if (p < 0 || g < 0 || d < 0 || p + g == 0)
        return hr_import_fail(im, row, "n_prompt %.0f, n_gen %.0f: no test", p, g);
    if (!*hr_word(cell, "model_filename") && !*hr_word(cell, "model_type"))
        return hr_import_fail(im, row, "neither model_filename nor model_type: no row of llama-bench");
    return HR_OK;
}

/* All rows of a file are of one machine. */
static hr_status put_machine(hr_import *im, size_t row, const json_t *cell) {
    const char *cpu = hr_word(cell, "cpu_info"), *gpu = hr_word(cell, "gpu_info");
    char class_name[192];
    hr_imported_class(cpu, gpu, class_name, sizeof class_name);
    if (!im->machine) {
        im->machine = json_pack("{s:s, s:s, s:s, s:s}", "machine_class", class_name, "cpu", cpu, "gpu", gpu, "source",
                                "llama-bench");
        return im->machine ? HR_OK : no_memory();
    }
    if (strcmp(cpu, hr_word(im->machine, "cpu")) || strcmp(gpu, hr_word(im->machine, "gpu")))
        return hr_import_fail(im, row,
                              "of another machine (%.60s %.60s) than the first row: a file is one run; split it by "
                              "cpu_info and gpu_info",
                              cpu, gpu);
    return HR_OK;
}

static hr_status fill(hr_import *im, size_t row, json_t *cell, json_t *extras, json_t *words) {
    char id[33];
    HR_TRY(put_keys(im, row, cell, extras, words));
    HR_TRY(check_shape(im, row, cell));
    HR_TRY(check_times(im, row, cell));
    HR_TRY(put_machine(im, row, cell));
    json_t *tool = json_string("llama-bench");
    const bool named = hr_identity_add(words, "tool", tool);
    json_decref(tool);
    if (!named) return no_memory();
    HR_TRY(hr_identity(words, id));
    bool ok = put_test(cell) && json_object_set_new(cell, "cell_id", json_string(id)) == 0 &&
              json_object_set_new(cell, "status", json_string("ok")) == 0;
    /* llama-bench generates for one sequence */
    if (ok && hr_num(cell, "n_gen") > 0) ok = json_object_set_new(cell, "n_seqs", json_integer(1)) == 0;
    return ok ? HR_OK : no_memory();
}

hr_status hr_import_llama(hr_import *im) {
    size_t i;
    json_t *cell;
    for (size_t row = 0; row < json_array_size(im->rows); row++) {
        cell = hr_cell_blank();
        json_t *extras = json_object(), *words = json_array();
        hr_status status = cell && extras && words ? fill(im, row, cell, extras, words) : no_memory();
        json_decref(words);
        if (status == HR_OK) {
            HR_TRY(hr_import_take(im, row, cell, extras));
            continue;
        }
        json_decref(cell), json_decref(extras);
        return status;
    }
    json_array_foreach(im->cells, i, cell) HR_TRY(hr_import_derive(cell));
    return HR_OK;
}
