/* Google Benchmark's JSON: in full (a repetition a row, and its aggregates), and as a row a metric with the median, for
 * programs that take every row for a benchmark. cpu_time is not measured and not written. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/formats.h"
#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <string.h>

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while writing Google Benchmark's rows");
}

/* As it came, or what this store knows: readers want `caches` to be there. */
static json_t *context_of(const hr_export_job *job) {
    static const char *const facts[] = {"host_name", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled"};
    json_t *context = json_object_get(job->run, "context");
    if (json_is_object(context)) return json_incref(context);
    context = json_pack("{s:s, s:s}", "date", hr_word(job->run, "started"), "executable", "headroom");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        json_t *fact = json_object_get(job->machine, facts[i]);
        if (fact) json_object_set(context, facts[i], fact);
    }
    json_t *cpus = json_object_get(job->machine, "cores"), *caches = json_object_get(job->machine, "caches");
    if (json_is_integer(cpus)) json_object_set(context, "num_cpus", cpus);
    json_object_set_new(context, "caches", json_is_array(caches) ? json_incref(caches) : json_array());
    if (*hr_word(job->run, "build_commit"))
        json_object_set_new(context, "commit", json_string(hr_word(job->run, "build_commit")));
    return context;
}

static hr_status write_file(hr_export_job *job, json_t *rows) {
    json_t *context = context_of(job);
    json_t *file = context ? json_pack("{s:o, s:O}", "context", context, "benchmarks", rows) : NULL;
    const hr_status status = file ? hr_json_write(job->stream, file) : no_memory();
    json_decref(file);
    return status;
}

/* ---- in full ---- */

typedef struct family {
    const json_t *cell;
    char *label;
    json_int_t index, repetitions, threads;
} family;

static json_t *row_of(const family *f, const char *name, const char *run_type) {
    json_t *row =
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:I}", "name", name, "family_index", f->index, "per_family_instance_index",
                  (json_int_t)0, "run_name", f->label, "run_type", run_type, "repetitions", f->repetitions);
    if (row && f->threads > 0) json_object_set_new(row, "threads", json_integer(f->threads));
    return row;
}

static bool add_time(json_t *rows, json_t *row, json_t *time) {
    const bool ok = json_object_set_new(row, "real_time", time) == 0 &&
                    json_object_set_new(row, "time_unit", json_string("ns")) == 0;
    return json_array_append_new(rows, row) == 0 && ok;
}

static bool add_aggregate(json_t *rows, const family *f, const char *what, double ns) {
    const size_t n = strlen(f->label) + strlen(what) + 2;
    char *name = hr_malloc(n);
    if (!name || isnan(ns)) {
        hr_free(name);
        return name != NULL;
    }
    snprintf(name, n, "%s_%s", f->label, what);
    json_t *row = row_of(f, name, "aggregate");
    hr_free(name);
    return json_object_set_new(row, "aggregate_name", json_string(what)) == 0 &&
           json_object_set_new(row, "aggregate_unit", json_string("time")) == 0 && add_time(rows, row, json_real(ns));
}

static bool add_repetitions(json_t *rows, const family *f, json_t *samples) {
    size_t i;
    json_t *ns;
    double mean, stddev;
    bool ok = true;
    /* of an iteration that stands for many, only its mean is known here */
    const bool once = *hr_word(f->cell, "model_filename") || *hr_word(f->cell, "model_type");
    json_array_foreach(samples, i, ns) {
        json_t *row = row_of(f, f->label, "iteration");
        ok = ok && json_object_set_new(row, "repetition_index", json_integer((json_int_t)i)) == 0;
        if (once) ok = ok && json_object_set_new(row, "iterations", json_integer(1)) == 0;
        ok = add_time(rows, row, json_incref(ns)) && ok;
    }
    const size_t n = json_array_size(samples);
    if (n < 2) return ok;
    hr_moments(samples, &mean, &stddev);
    double *values = hr_malloc(hr_mul(n, sizeof *values));
    if (!values) return false;
    for (i = 0; i < n; i++) values[i] = json_number_value(json_array_get(samples, i));
    ok = ok && add_aggregate(rows, f, "mean", mean) && add_aggregate(rows, f, "median", hr_median(values, n)) &&
         add_aggregate(rows, f, "stddev", stddev);
    hr_free(values);
    return ok;
}

/* A failure is a row there as well. */
static bool add_failure(json_t *rows, const family *f) {
    const bool failed = !strcmp(hr_word(f->cell, "status"), "failed");
    json_t *row = row_of(f, f->label, "iteration");
    return json_object_set_new(row, failed ? "error_occurred" : "skipped", json_true()) == 0 &&
           json_object_set_new(row, failed ? "error_message" : "skip_message",
                               json_string(hr_word(f->cell, "error"))) == 0 &&
           add_time(rows, row, json_real(0));
}

static hr_status add_cell(hr_export_job *job, const json_t *cell, json_t *rows) {
    static const char *const known[] = {"test",   "model_filename", "quant",     "n_threads",    "samples_ns",
                                        "avg_ns", "stddev_ns",      "test_time", "build_commit", NULL};
    family f = {.cell = cell, .label = hr_export_label(cell), .index = (json_int_t)job->written, .repetitions = 1};
    const bool measured = !strcmp(hr_word(cell, "status"), "ok");
    json_t *samples = hr_export_samples(job, cell, "samples_ns");
    bool ok = f.label && samples;
    f.threads = json_integer_value(json_object_get(cell, "n_threads"));
    if (!measured) {
        ok = ok && add_failure(rows, &f);
    } else if (json_array_size(samples)) {
        f.repetitions = (json_int_t)json_array_size(samples);
        ok = ok && add_repetitions(rows, &f, samples);
    } else {
        ok = ok && add_aggregate(rows, &f, "mean", hr_num(cell, "avg_ns")) &&
             add_aggregate(rows, &f, "stddev", hr_num(cell, "stddev_ns"));
    }
    ok = ok && (!measured || hr_export_note_rest(job, cell, known));
    job->written++;
    hr_free(f.label);
    json_decref(samples);
    return ok ? HR_OK : no_memory();
}

static bool simulated(hr_export_job *job, const json_t *cell) {
    const json_t *flags = json_object_get(cell, "flags");
    for (size_t i = 0; i < json_array_size(flags); i++)
        if (!strcmp(json_string_value(json_array_get(flags, i)), "simulated")) return !hr_export_takes(job, cell);
    return false;
}

hr_status hr_export_google(hr_export_job *job) {
    json_t *rows = json_array();
    hr_status status = rows ? HR_OK : no_memory();
    for (size_t i = 0; i < json_array_size(job->cells) && status == HR_OK; i++) {
        const json_t *cell = json_array_get(job->cells, i);
        if (!simulated(job, cell)) status = add_cell(job, cell, rows);
    }
    if (status == HR_OK) status = write_file(job, rows);
    json_decref(rows);
    return status;
}

/* ---- a row a metric ---- */

static hr_status add_medians(hr_export_job *job, const json_t *cell, json_t *rows) {
    const char *names[HR_EXPORT_TIMES + 1], *known[HR_EXPORT_TIMES + 8];
    const size_t n = hr_export_times(cell, names);
    char *label = hr_export_label(cell);
    bool ok = label != NULL;
    size_t n_known = 0;
    for (size_t i = 0; ok && i < n; i++) {
        json_t *name = json_sprintf("%s %s", label, names[i]);
        json_t *p50 = json_object_get(json_object_get(cell, names[i]), "p50");
        ok = json_array_append_new(
                 rows, json_pack("{s:o, s:O, s:s}", "name", name, "real_time", p50, "time_unit", "ms")) == 0;
        known[n_known++] = names[i];
    }
    json_t *samples = !n && ok ? hr_export_samples(job, cell, "samples_ns") : NULL;
    const size_t n_samples = json_array_size(samples);
    double *values = hr_malloc(hr_mul(n_samples + 1, sizeof *values));
    for (size_t i = 0; values && i < n_samples; i++) values[i] = json_number_value(json_array_get(samples, i));
    if (ok && values && n_samples)
        ok = json_array_append_new(rows, json_pack("{s:s, s:f, s:s}", "name", label, "real_time",
                                                   hr_median(values, n_samples), "time_unit", "ns")) == 0;
    ok = ok && values;
    if (ok && !n && !n_samples) hr_note(job->notes, "%.80s: no samples, so no median: left out", hr_word(cell, "test"));
    job->written += n || n_samples;
    known[n_known++] = "test", known[n_known++] = "model_filename", known[n_known++] = "quant";
    known[n_known++] = "build_commit", known[n_known++] = "test_time", known[n_known] = NULL;
    ok = ok && hr_export_note_rest(job, cell, known);
    hr_free(values), hr_free(label);
    json_decref(samples);
    return ok ? HR_OK : no_memory();
}

hr_status hr_export_medians(hr_export_job *job) {
    json_t *rows = json_array();
    hr_status status = rows ? HR_OK : no_memory();
    for (size_t i = 0; i < json_array_size(job->cells) && status == HR_OK; i++) {
        const json_t *cell = json_array_get(job->cells, i);
        if (hr_export_takes(job, cell)) status = add_medians(job, cell, rows);
    }
    if (status == HR_OK) status = write_file(job, rows);
    json_decref(rows);
    return status;
}
