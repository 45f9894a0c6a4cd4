/* github-action-benchmark's customSmallerIsBetter, and the text of Go benchmarks that benchstat reads. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/formats_internal.h"
#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while writing the export");
}

/* ---- customSmallerIsBetter: times alone, each the median, with its interval beside ---- */

static bool add_entry(json_t *rows, const json_t *cell, const char *label, const char *metric, const char *unit,
                      const json_t *dist) {
    char value[32], lo[32], hi[32];
    hr_real_text(hr_num(dist, "p50"), value, sizeof value);
    json_t *name = *metric ? json_sprintf("%s %s", label, metric) : json_string(label);
    json_t *row = json_pack(
        "{s:o, s:s, s:O, s:o}", "name", name, "unit", unit, "value", json_object_get(dist, "p50"), "extra",
        json_sprintf("n: %lld\ncell: %s\ncommit: %s", (long long)json_integer_value(json_object_get(dist, "n")),
                     hr_word(cell, "cell_id"), hr_word(cell, "build_commit")));
    if (row && !isnan(hr_num(dist, "ci95_lo"))) {
        hr_short_text(hr_num(dist, "ci95_lo"), lo, sizeof lo), hr_short_text(hr_num(dist, "ci95_hi"), hi, sizeof hi);
        json_object_set_new(row, "range", json_sprintf("95 %% of the median: %s to %s", lo, hi));
    }
    return json_array_append_new(rows, row) == 0;
}

/* Cells of other tools may have no time of ours: their own samples, in ns. */
static bool add_samples(hr_export_job *job, json_t *rows, const json_t *cell, const char *label) {
    json_t *samples = hr_export_samples(job, cell, "samples_ns");
    const size_t n = json_array_size(samples);
    double *values = samples ? hr_malloc(hr_mul(n + 1, sizeof *values)) : NULL;
    for (size_t i = 0; values && i < n; i++) values[i] = json_number_value(json_array_get(samples, i));
    json_t *dist = values ? hr_dist_json(values, n) : NULL;
    bool ok = dist != NULL;
    if (ok && n) ok = add_entry(rows, cell, label, "", "ns", dist);
    if (ok && !n) hr_note(job->notes, "%.80s: no samples, so no median: left out", hr_word(cell, "test"));
    job->written += n > 0;
    hr_free(values);
    json_decref(samples), json_decref(dist);
    return ok;
}

static hr_status add_custom(hr_export_job *job, const json_t *cell, json_t *rows) {
    const char *names[HR_EXPORT_TIMES + 1], *known[HR_EXPORT_TIMES + 8];
    const size_t n = hr_export_times(cell, names);
    size_t n_known = 0;
    char *label = hr_export_label(cell);
    bool ok = label != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = add_entry(rows, cell, label, names[i], "ms", json_object_get(cell, names[i]));
        known[n_known++] = names[i];
    }
    job->written += n > 0;
    if (ok && !n) ok = add_samples(job, rows, cell, label);
    known[n_known++] = "test", known[n_known++] = "model_filename", known[n_known++] = "quant";
    known[n_known++] = "build_commit", known[n_known] = NULL;
    ok = ok && hr_export_note_rest(job, cell, known);
    hr_free(label);
    return ok ? HR_OK : no_memory();
}

hr_status hr_export_custom(hr_export_job *job) {
    json_t *rows = json_array();
    hr_status status = rows ? HR_OK : no_memory();
    for (size_t i = 0; i < json_array_size(job->cells) && status == HR_OK; i++) {
        const json_t *cell = json_array_get(job->cells, i);
        if (hr_export_takes(job, cell)) status = add_custom(job, cell, rows);
    }
    if (status == HR_OK) status = hr_json_write(job->stream, rows);
    json_decref(rows);
    return status;
}

/* ---- benchstat: a line a repetition ---- */

/* One word: what a name may not hold becomes '_'. */
static void put_word(FILE *stream, const char *text, bool capital) {
    for (; *text; text++, capital = false) {
        const bool fits = isalnum((unsigned char)*text) || strchr("._:+=@", *text) || (unsigned char)*text >= 0x80;
        putc(!fits ? '_' : capital ? toupper((unsigned char)*text) : *text, stream);
    }
}

static void put_name(FILE *stream, const json_t *cell) {
    const char *model = hr_word(cell, "model_filename"), *slash = strrchr(model, '/');
    if (!*model) model = hr_word(cell, "model_type");
    if (slash && slash[1]) model = slash + 1;
    fputs("Benchmark", stream);
    put_word(stream, hr_word(cell, "test"), true);
    if (*model) fputs("/model=", stream), put_word(stream, model, false);
    if (*hr_word(cell, "quant")) fputs("/quant=", stream), put_word(stream, hr_word(cell, "quant"), false);
    fprintf(stream, "/cell=%.8s", hr_word(cell, "cell_id"));
}

static void put_value(FILE *stream, double value, const char *unit) {
    char text[32];
    if (!isfinite(value)) return;
    hr_real_text(value, text, sizeof text);
    fprintf(stream, "\t%s %s", text, unit);
}

/* ms were made from ns: a thousandth of one is noise of the conversion. */
static double ns_of(const json_t *ms) {
    return nearbyint(json_number_value(ms) * 1e9) / 1e3;
}

static hr_status put_lines(hr_export_job *job, const json_t *cell) {
    static const char *const series[][2] = {{"samples_ttft_ms", "ttft-ns"},
                                            {"samples_tpot_ms", "tpot-ns"},
                                            {"samples_e2e_ms", "e2e-ns"},
                                            {"samples_prefill_ms", "prefill-ns"}};
    static const char *const known[] = {"test",           "model_filename",     "quant",
                                        "samples_ns",     "samples_ttft_ms",    "samples_tpot_ms",
                                        "samples_e2e_ms", "samples_prefill_ms", "samples_flags",
                                        "cpu_info",       "build_commit",       "test_time",
                                        "n_gen",          "n_prompt",           NULL};
    const json_t *samples = json_object_get(cell, "samples_ns"), *flags = json_object_get(cell, "samples_flags"),
                 *sample;
    const double gen =
        json_is_integer(json_object_get(cell, "isl")) || hr_num(cell, "n_prompt") > 0 ? NAN : hr_num(cell, "n_gen");
    json_t *kept = hr_export_samples(job, cell, "samples_ns");
    const bool all = json_array_size(kept) == json_array_size(samples);
    json_decref(kept);
    size_t i;
    json_array_foreach((json_t *)samples, i, sample) {
        if (!all && json_is_string(json_array_get(flags, i))) continue;
        put_name(job->stream, cell);
        fputs("\t1", job->stream);
        put_value(job->stream, json_number_value(sample), "ns/op");
        if (gen > 0) put_value(job->stream, json_number_value(sample) / gen, "tpot-ns");
        for (size_t k = 0; k < 4; k++) {
            const json_t *ms = json_array_get(json_object_get(cell, series[k][0]), i);
            if (json_is_number(ms)) put_value(job->stream, ns_of(ms), series[k][1]);
        }
        putc('\n', job->stream);
    }
    if (!json_array_size(samples))
        hr_note(job->notes, "%.80s: no samples, which benchstat compares: left out", hr_word(cell, "test"));
    else
        job->written++;
    return hr_export_note_rest(job, cell, known) ? HR_OK : no_memory();
}

/* A commit is no configuration here: benchstat would put the two sides of a comparison into tables apart. */
hr_status hr_export_benchstat(hr_export_job *job) {
    const char *commit = hr_word(job->run, "build_commit"), *cpu = hr_word(json_array_get(job->cells, 0), "cpu_info");
    fprintf(job->stream, "# headroom run %s", hr_word(job->run, "run_id"));
    if (*commit) fputs(", commit ", job->stream), put_word(job->stream, commit, false);
    fputs("\npkg: headroom\n", job->stream);
    if (*cpu && !strpbrk(cpu, "\r\n")) fprintf(job->stream, "cpu: %s\n", cpu);
    for (size_t i = 0; i < json_array_size(job->cells); i++) {
        const json_t *cell = json_array_get(job->cells, i);
        if (hr_export_takes(job, cell)) HR_TRY(put_lines(job, cell));
    }
    return HR_OK;
}
