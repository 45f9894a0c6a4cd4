#include "harness/sweep/sweep.h"

#include "harness/doctor/doctor.h"
#include "harness/version.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <time.h>

struct hr_sink {
    hr_store *store; /* NULL: none */
    char *run_id;    /* hr_malloc'ed */
    json_t *done;    /* ids of finished cells of a resumed run, or NULL */
    hr_out out;
    hr_cell_writer *rows, *err_rows;
    hr_format format, err_format;
    bool out_failed;
};

static hr_status begin_run(hr_sink *s, const hr_sweep_options *options, const json_t *machine, const json_t *manifest) {
    char now[32];
    const time_t t = time(NULL);
    struct tm utc;
    gmtime_r(&t, &utc);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *args = options->args ? json_incref((json_t *)options->args) : json_object();
    json_t *run = json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:O}", "command", "sweep", "args", args, "build_commit",
                            hr_commit(), "compiler", hr_compiler(), "started", now, "tags",
                            options->tags ? options->tags : "", "manifest", manifest);
    json_t *where = json_copy((json_t *)machine), *doctor = hr_doctor_summary();
    if (options->others) json_object_set_new(doctor, "others", json_string(options->others));
    json_object_set_new(where, "doctor", doctor);
    const hr_status status = run && where ? hr_store_begin_run(s->store, run, where, &s->run_id)
                                          : hr_fail(HR_ERR_MEMORY, "no memory for the record of the run");
    json_decref(run), json_decref(where);
    return status;
}

static hr_status open_all(hr_sink *s, const hr_sweep_options *options, const json_t *machine, const json_t *manifest) {
    HR_TRY(hr_out_open(options->output.file, &s->out));
    if (options->db) {
        HR_TRY(hr_store_open(options->db, true, &s->store));
        if (options->resume) HR_TRY(hr_resume_find(s->store, manifest, &s->run_id, &s->done));
        if (!s->run_id) HR_TRY(begin_run(s, options, machine, manifest));
    }
    s->format = options->output.format, s->err_format = options->output.err_format;
    HR_TRY(hr_cell_writer_create(options->output.format, s->out.stream, &s->rows));
    if (options->output.to_stderr) HR_TRY(hr_cell_writer_create(options->output.err_format, stderr, &s->err_rows));
    return HR_OK;
}

hr_status hr_sink_open(const hr_sweep_options *options, const json_t *machine, const json_t *manifest, hr_sink **out) {
    hr_sink *s = hr_calloc(1, sizeof *s);
    if (!s) HR_FAIL(HR_ERR_MEMORY, "no memory for the output");
    const hr_status status = open_all(s, options, machine, manifest);
    if (status != HR_OK) {
        if (s->out.stream) hr_out_abandon(&s->out);
        hr_store_close(s->store);
        hr_free(s->run_id), json_decref(s->done), hr_free(s);
        return status;
    }
    *out = s;
    return HR_OK;
}

bool hr_sink_has(const hr_sink *sink, const char *cell_id) {
    return json_object_get(sink->done, cell_id) != NULL;
}

/* The row as a table shows it: the spread is that of repetitions, the median stays that of requests. */
static json_t *table_row(const json_t *row, const json_t *by_repetition) {
    json_t *shown = json_copy((json_t *)row), *spread;
    const char *key;
    json_object_foreach((json_t *)by_repetition, key, spread) {
        json_t *median = json_object_get(json_object_get(row, key), "p50");
        json_t *dist = json_is_object(spread) && median ? json_copy(spread) : NULL;
        if (!dist) continue;
        json_object_set(dist, "p50", median);
        json_object_set_new(shown, key, dist);
    }
    return shown;
}

static hr_status print_row(hr_format format, hr_cell_writer *writer, const json_t *row, const json_t *by_repetition) {
    if (!by_repetition || (format != HR_FORMAT_TABLE && format != HR_FORMAT_MD)) return hr_cell_writer_put(writer, row);
    json_t *shown = table_row(row, by_repetition);
    const hr_status status = hr_cell_writer_put(writer, shown ? shown : row);
    json_decref(shown);
    return status;
}

/* The message of the first of two failures must survive the second. */
hr_status hr_sink_put(hr_sink *s, json_t *row, const hr_cell_parts *parts, const json_t *by_repetition) {
    hr_status stored = HR_OK;
    char message[1024] = "";
    if (s->store) {
        json_object_set_new(row, "run_id", json_string(s->run_id));
        stored = hr_store_put_cell_parts(s->store, s->run_id, row, parts);
        if (stored != HR_OK) snprintf(message, sizeof message, "%s", hr_error());
    }
    hr_status printed = print_row(s->format, s->rows, row, by_repetition);
    if (printed == HR_OK && fflush(s->out.stream) != 0)
        printed = hr_fail(HR_ERR_IO, "cannot write the results; see whether the disk is full");
    s->out_failed |= printed != HR_OK;
    if (s->err_rows && print_row(s->err_format, s->err_rows, row, by_repetition) != HR_OK && printed == HR_OK)
        printed = HR_ERR_IO;
    return stored != HR_OK ? hr_fail(stored, "%s", message) : printed;
}

hr_status hr_sink_roof(hr_sink *s, const json_t *roof) {
    return s->store ? hr_store_put_roof(s->store, s->run_id, roof) : HR_OK;
}

hr_status hr_sink_close(hr_sink *s, int exit_code) {
    hr_status status = hr_cell_writer_end(s->rows);
    if (s->err_rows) hr_cell_writer_end(s->err_rows);
    /* A file that misses rows is still worth more than none: nothing measured is lost. */
    const hr_status committed = hr_out_commit(&s->out);
    if (status == HR_OK) status = committed;
    if (s->store) {
        const hr_status ended = hr_store_end_run(s->store, s->run_id, exit_code);
        if (status == HR_OK) status = ended;
        hr_store_close(s->store);
    }
    hr_free(s->run_id), json_decref(s->done), hr_free(s);
    return status;
}
