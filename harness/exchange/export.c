/* A run of the store as another tool's file: which format, which cells, what is left out. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/formats.h"
#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while writing the export");
}

bool hr_export_takes(hr_export_job *job, const json_t *cell) {
    const char *status = hr_word(cell, "status"), *test = hr_word(cell, "test");
    const json_t *flags = json_object_get(cell, "flags");
    for (size_t i = 0; i < json_array_size(flags); i++)
        if (!strcmp(json_string_value(json_array_get(flags, i)), "simulated")) {
            hr_note(job->notes, "%.80s: simulated, no measurement: left out", test);
            return false;
        }
    if (!strcmp(status, "ok")) return true;
    hr_note(job->notes, "%.80s: %s (%.200s): left out", test, status, hr_word(cell, "error"));
    return false;
}

bool hr_export_note_rest(hr_export_job *job, const json_t *cell, const char *const *known) {
    /* "status" is ok; run and id name the place in this store */
    static const char *const silent[] = {"status", "run_id", "cell_id", NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)cell, key, value) {
        if (json_is_null(value) || (json_is_array(value) && !json_array_size(value))) continue;
        bool found = false;
        for (const char *const *k = known; *k && !found; k++) found = !strcmp(*k, key);
        for (const char *const *k = silent; *k && !found; k++) found = !strcmp(*k, key);
        if (!found && !hr_note(job->notes, "%s", key)) return false;
    }
    return true;
}

char *hr_export_label(const json_t *cell) {
    const char *model = hr_word(cell, "model_filename"), *slash = strrchr(model, '/');
    if (!*model) model = hr_word(cell, "model_type");
    if (!*model) return hr_strdup(hr_word(cell, "test"));
    if (slash && slash[1]) model = slash + 1;
    const char *quant = hr_word(cell, "quant"), *test = hr_word(cell, "test");
    const size_t n = strlen(model) + strlen(quant) + strlen(test) + 16;
    char *label = hr_malloc(n);
    if (label) snprintf(label, n, "%s %s%s%s %.8s", model, quant, *quant ? " " : "", test, hr_word(cell, "cell_id"));
    return label;
}

json_t *hr_export_samples(hr_export_job *job, const json_t *cell, const char *key) {
    const json_t *all = json_object_get(cell, key), *flags = json_object_get(cell, "samples_flags");
    json_t *kept = json_array(), *sample;
    size_t i, n_left = 0;
    json_array_foreach((json_t *)all, i, sample) {
        if (!json_is_number(sample)) continue;
        if (json_is_string(json_array_get(flags, i)))
            n_left++;
        else if (json_array_append(kept, sample))
            return NULL;
    }
    if (!json_is_array(all)) return kept;
    if (!json_array_size(kept)) return json_array_extend(kept, (json_t *)all) == 0 ? kept : NULL;
    if (n_left) hr_note(job->notes, "%.80s: %zu throttled samples: left out", hr_word(cell, "test"), n_left);
    return kept;
}

size_t hr_export_times(const json_t *cell, const char *names[HR_EXPORT_TIMES + 1]) {
    static const char *const all[HR_EXPORT_TIMES] = {
        "ttft_ms",     "ttft_queue_ms", "ttft_prefill_ms", "ttft_first_sample_ms", "tpot_excl_first_ms",
        "itl_step_ms", "e2e_ms"};
    size_t n = 0;
    for (size_t i = 0; i < HR_EXPORT_TIMES; i++)
        if (json_is_number(json_object_get(json_object_get(cell, all[i]), "p50"))) names[n++] = all[i];
    names[n] = NULL;
    return n;
}

/* ---- our own formats ---- */

static hr_status export_own(hr_export_job *job, hr_format format) {
    hr_cell_writer *writer;
    hr_status status = hr_cell_writer_create(format, job->stream, &writer);
    if (status != HR_OK) return status;
    for (size_t i = 0; i < json_array_size(job->cells) && status == HR_OK; i++) {
        status = hr_cell_writer_put(writer, json_array_get(job->cells, i));
        job->written++;
    }
    const hr_status end = hr_cell_writer_end(writer);
    if (format == HR_FORMAT_CSV) hr_note(job->notes, "samples: CSV has none");
    hr_note(job->notes, "ops, recorded repetitions and ranges: not in this format (merge takes them from a store)");
    return status == HR_OK ? end : status;
}

static hr_status write_as(hr_export_job *job) {
    const char *f = job->format;
    if (!strcmp(f, "llama-bench") || !strcmp(f, "llama-bench-json")) return hr_export_llama(job, HR_CONTAINER_JSON);
    if (!strcmp(f, "llama-bench-jsonl")) return hr_export_llama(job, HR_CONTAINER_JSONL);
    if (!strcmp(f, "llama-bench-csv")) return hr_export_llama(job, HR_CONTAINER_CSV);
    if (!strcmp(f, "google-benchmark")) return hr_export_google(job);
    if (!strcmp(f, "googlecpp") || !strcmp(f, "cpp_google")) return hr_export_medians(job);
    if (!strcmp(f, "customSmallerIsBetter")) return hr_export_custom(job);
    if (!strcmp(f, "benchstat")) return hr_export_benchstat(job);
    if (!strcmp(f, "headroom") || !strcmp(f, "headroom-json")) return export_own(job, HR_FORMAT_JSON);
    if (!strcmp(f, "headroom-jsonl")) return export_own(job, HR_FORMAT_JSONL);
    if (!strcmp(f, "headroom-csv")) return export_own(job, HR_FORMAT_CSV);
    HR_FAIL(HR_ERR_USAGE, "%.60s is no format that export writes", f);
}

/* ---- */

static hr_status find_run(hr_store *store, const char *run_id, json_t **out) {
    json_t *runs, *run;
    size_t i;
    *out = NULL;
    HR_TRY(hr_store_runs(store, &runs));
    json_array_foreach(runs, i, run) if (!strcmp(hr_word(run, "run_id"), run_id)) *out = json_incref(run);
    json_decref(runs);
    if (!*out) HR_FAIL(HR_ERR_INPUT, "the store has no run %.60s: `headroom runs` lists what it holds", run_id);
    return HR_OK;
}

/* Into memory first, so that a failure leaves nothing half written. */
static hr_status export_job(hr_export_job *job, FILE *stream, const char *run_id) {
    char *text = NULL;
    size_t n = 0;
    job->stream = open_memstream(&text, &n);
    if (!job->stream) return no_memory();
    hr_status status = write_as(job);
    const bool bad = ferror(job->stream) != 0;
    if ((fclose(job->stream) != 0 || bad) && status == HR_OK) status = no_memory();
    if (status == HR_OK && !job->written) {
        const char *why = json_object_iter_key(json_object_iter(job->notes));
        status = hr_fail(HR_ERR_INPUT, "run %.16s has no cell that %s can hold%s%s", run_id, job->format,
                         why ? ": " : "", why ? why : "");
    }
    if (status == HR_OK) {
        fwrite(text, 1, n, stream);
        status = hr_stream_flush(stream);
    }
    free(text);
    return status;
}

hr_status hr_export(hr_store *store, const char *run_id, const char *format, FILE *stream, size_t *n_cells,
                    json_t **unmapped) {
    json_t *cells = NULL, *run = NULL, *machine = NULL;
    hr_export_job job = {.format = format, .notes = json_object()};
    hr_status status = job.notes ? find_run(store, run_id, &run) : no_memory();
    if (status == HR_OK) status = hr_store_cells(store, run_id, &cells);
    if (status == HR_OK) status = hr_store_machine(store, run_id, &machine);
    job.cells = cells, job.run = run, job.machine = machine;
    if (status == HR_OK) status = export_job(&job, stream, run_id);
    if (status == HR_OK) {
        *n_cells = job.written;
        *unmapped = hr_notes_list(job.notes);
        if (!*unmapped) status = no_memory();
    }
    json_decref(cells), json_decref(run), json_decref(machine), json_decref(job.notes);
    return status;
}
