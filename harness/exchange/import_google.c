/* Google Benchmark: a benchmark is a cell whose test is its name, a repetition is a sample: real time of one iteration in
 * ns, fractions kept. Aggregates count only where there are no repetitions. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"

#include <string.h>

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while reading Google Benchmark's rows");
}

/* NaN: no unit of theirs. */
static double ns_of_unit(const char *unit) {
    return !strcmp(unit, "ns") || !*unit ? 1
           : !strcmp(unit, "us")         ? 1e3
           : !strcmp(unit, "ms")         ? 1e6
           : !strcmp(unit, "s")          ? 1e9
                                         : NAN;
}

/* The name without what repetitions and aggregates add. */
static const char *name_of(const json_t *row) {
    const char *name = hr_word(row, "run_name");
    return *name ? name : hr_word(row, "name");
}

static bool is_aggregate(const json_t *row) {
    return !strcmp(hr_word(row, "run_type"), "aggregate") || *hr_word(row, "aggregate_name");
}

/* ---- the machine: what a context says of the hardware, not its name, which changes from one runner to the next ---- */

static hr_status put_machine(hr_import *im) {
    static const char *const facts[] = {"host_name", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled", "caches"};
    const json_t *caches = json_object_get(im->context, "caches");
    json_t *words = json_array(), *cache;
    size_t i;
    char id[33], class_name[64];
    bool ok = hr_identity_add(words, "num_cpus", json_object_get(im->context, "num_cpus"));
    json_array_foreach((json_t *)caches, i, cache) ok = ok && hr_identity_add(words, "cache", cache);
    hr_status status = ok ? hr_identity(words, id) : no_memory();
    json_decref(words);
    HR_TRY(status);
    const double n = hr_num(im->context, "num_cpus");
    if (n > 0)
        snprintf(class_name, sizeof class_name, "imported-%.0fc-%.8s", n, id);
    else
        hr_imported_class("", "", class_name, sizeof class_name);
    im->machine = json_pack("{s:s, s:s}", "machine_class", class_name, "source", "google-benchmark");
    for (i = 0; i < sizeof facts / sizeof *facts; i++) {
        json_t *fact = json_object_get(im->context, facts[i]);
        if (fact && json_object_set(im->machine, facts[i], fact)) return no_memory();
    }
    return im->machine ? HR_OK : no_memory();
}

/* ---- cells ---- */

static hr_status name_cell(const hr_import *im, const char *name, char id[33]) {
    const char *program = hr_word(im->context, "executable"), *slash = strrchr(program, '/');
    json_t *words = json_array(), *values = json_pack("[s, s, s, s]", "google-benchmark", slash ? slash + 1 : program,
                                                      name, hr_word(im->machine, "machine_class"));
    static const char *const keys[] = {"tool", "program", "name", "machine"};
    bool ok = values != NULL;
    for (size_t i = 0; ok && i < 4; i++) ok = hr_identity_add(words, keys[i], json_array_get(values, i));
    const hr_status status = ok ? hr_identity(words, id) : no_memory();
    json_decref(words), json_decref(values);
    return status;
}

/* The cell of a row's benchmark, made when it is the first. */
static hr_status cell_of(hr_import *im, size_t row, const json_t *given, json_t **out) {
    char id[33];
    const char *date = hr_word(im->context, "date"), *commit = hr_word(im->context, "commit");
    HR_TRY(name_cell(im, name_of(given), id));
    const json_t *place = json_object_get(im->index, id);
    if (place) {
        *out = json_array_get(im->cells, (size_t)json_integer_value(place));
        return HR_OK;
    }
    json_t *cell = hr_cell_blank(), *threads = json_object_get(given, "threads");
    bool ok = cell && json_object_set_new(cell, "test", json_string(name_of(given))) == 0 &&
              json_object_set_new(cell, "cell_id", json_string(id)) == 0 &&
              json_object_set_new(cell, "status", json_string("ok")) == 0 &&
              json_object_set_new(cell, "samples_ns", json_array()) == 0;
    if (ok && *date) ok = json_object_set_new(cell, "test_time", json_string(date)) == 0;
    if (ok && *commit) ok = json_object_set_new(cell, "build_commit", json_string(commit)) == 0;
    if (ok && json_is_integer(threads)) ok = json_object_set(cell, "n_threads", threads) == 0;
    if (!ok) {
        json_decref(cell);
        return no_memory();
    }
    HR_TRY(hr_import_take(im, row, cell, NULL));
    *out = json_array_get(im->cells, json_array_size(im->cells) - 1);
    return HR_OK;
}

static hr_status note_rest(hr_import *im, const json_t *given) {
    static const char *const known[] = {
        "name",           "run_name",         "run_type",       "repetitions",
        "threads",        "real_time",        "time_unit",      "aggregate_name",
        "error_occurred", "error_message",    "skipped",        "skip_message",
        "family_index",   "repetition_index", "aggregate_unit", "per_family_instance_index"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)given, key, value) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i], key)) i++;
        if (i == sizeof known / sizeof *known && !hr_note(im->notes, "%.60s: no key of a cell: left out", key))
            return no_memory();
    }
    return HR_OK;
}

static hr_status time_of(hr_import *im, size_t row, const json_t *given, double *ns) {
    const double unit = ns_of_unit(hr_word(given, "time_unit")), time = hr_num(given, "real_time");
    if (isnan(unit))
        return hr_import_fail(im, row, "time_unit %.20s is none of ns, us, ms, s", hr_word(given, "time_unit"));
    if (!(time >= 0) || !(time * unit < 9e18)) return hr_import_fail(im, row, "real_time is missing or no time");
    *ns = time * unit;
    return HR_OK;
}

/* A whole number of ns stays one. */
static json_t *ns_value(double ns) {
    return ns == floor(ns) ? json_integer((json_int_t)ns) : json_real(ns);
}

static hr_status put_failure(json_t *cell, const json_t *given) {
    const bool failed = json_is_true(json_object_get(given, "error_occurred"));
    const char *why = hr_word(given, failed ? "error_message" : "skip_message");
    const bool ok = json_object_set_new(cell, "status", json_string(failed ? "failed" : "skipped")) == 0 &&
                    json_object_set_new(cell, "error", json_string(*why ? why : "no reason given")) == 0;
    return ok ? HR_OK : no_memory();
}

static hr_status put_repetition(hr_import *im, size_t row, const json_t *given) {
    json_t *cell;
    double ns = NAN;
    HR_TRY(cell_of(im, row, given, &cell));
    HR_TRY(note_rest(im, given));
    if (json_is_true(json_object_get(given, "error_occurred")) || json_is_true(json_object_get(given, "skipped")))
        return put_failure(cell, given);
    HR_TRY(time_of(im, row, given, &ns));
    return json_array_append_new(json_object_get(cell, "samples_ns"), ns_value(ns)) == 0 ? HR_OK : no_memory();
}

static hr_status put_aggregate(hr_import *im, size_t row, const json_t *given) {
    const char *what = hr_word(given, "aggregate_name");
    const bool mean = !strcmp(what, "mean"), stddev = !strcmp(what, "stddev");
    json_t *cell;
    double ns = NAN;
    HR_TRY(cell_of(im, row, given, &cell));
    if (json_array_size(json_object_get(cell, "samples_ns")) || strcmp(hr_word(cell, "status"), "ok")) return HR_OK;
    HR_TRY(note_rest(im, given));
    if (!mean && !stddev)
        return hr_note(im->notes, "aggregate %.40s of a benchmark without repetitions: left out",
                       *what ? what : "without a name")
                   ? HR_OK
                   : no_memory();
    HR_TRY(time_of(im, row, given, &ns));
    return json_object_set_new(cell, mean ? "avg_ns" : "stddev_ns", json_real(ns)) == 0 ? HR_OK : no_memory();
}

hr_status hr_import_google(hr_import *im) {
    static const char *const kept[] = {"date",        "host_name",           "executable", "num_cpus",
                                       "mhz_per_cpu", "cpu_scaling_enabled", "caches",     "commit"};
    const char *key;
    json_t *row, *value, *cell;
    size_t i, k;
    HR_TRY(put_machine(im));
    json_object_foreach(im->context, key, value) {
        for (k = 0; k < sizeof kept / sizeof *kept && strcmp(kept[k], key); k++) {
        }
        if (k == sizeof kept / sizeof *kept && !hr_note(im->notes, "context %.60s: left out", key)) return no_memory();
    }
    for (int pass = 0; pass < 2; pass++) /* aggregates may stand before repetitions of the next benchmark */
        json_array_foreach(im->rows, i, row) {
            if (!*name_of(row)) return hr_import_fail(im, i, "a benchmark without a name");
            if (json_object_get(row, "big_o") || json_object_get(row, "rms")) {
                if (!pass && !hr_note(im->notes, "complexity (big_o, rms): left out")) return no_memory();
            } else if (is_aggregate(row) == (pass == 1)) {
                HR_TRY(pass ? put_aggregate(im, i, row) : put_repetition(im, i, row));
            }
        }
    json_array_foreach(im->cells, i, cell) {
        const bool timed =
            json_array_size(json_object_get(cell, "samples_ns")) || !json_is_null(json_object_get(cell, "avg_ns"));
        if (!timed && !strcmp(hr_word(cell, "status"), "ok")) {
            const json_int_t from = json_integer_value(json_array_get(im->from, i));
            return hr_import_fail(im, (size_t)from, "%.100s has neither repetitions nor a mean", hr_word(cell, "test"));
        }
        HR_TRY(hr_import_derive(cell));
    }
    return HR_OK;
}
