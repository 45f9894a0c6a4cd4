/* The loop over the points of a study, its run in the store, and what is taken from an unfinished one. */
#include "harness/kv/study_part.h"

#include "harness/doctor/doctor.h"
#include "harness/formats/json_get.h"
#include "harness/kv/study_session.h"
#include "harness/store/store.h"
#include "harness/version.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_INTERRUPTED = 130, EXIT_FAILED = 4, EXIT_BAD = 2 };

typedef struct loop {
    const hr_study_options *options;
    const hr_study_part *const *parts;
    hr_study_session *session;
    hr_store *store;                                 /* NULL: none */
    char *run_id;                                    /* NULL without a store */
    json_t *out;                                     /* {part: [rows]} */
    json_t *old;                                     /* {key: row} of the run that goes on; NULL: none */
    size_t done, all;                                /* points */
    double seconds_all, seconds_done, seconds_spent; /* as estimated; as estimated of points measured; as measured */
    FILE *failures;                                  /* one line a point that failed */
    size_t n_failed;
} loop;

static bool wanted(const loop *l, const hr_study_part *part) {
    return !l->options->part || !strcmp(l->options->part, part->name);
}

static double seconds_of(const loop *l, const hr_study_part *part, size_t point) {
    return part->seconds ? part->seconds(l->options, point) : 5;
}

/* ---- the run in the store ---- */

/* What must be the same for a study to go on. */
static void manifest_of(const hr_study_options *o, const hr_machine *machine, char *out, size_t n) {
    snprintf(out, n, "%s|%s|%s|%s|%u|%llu|%s|%s", hr_commit(), machine->class_name, o->quick ? "quick" : "full",
             o->part ? o->part : "all", o->threads, (unsigned long long)o->seed, o->ppl_model ? o->ppl_model : "",
             o->ppl_text ? o->ppl_text : "");
}

/* The newest run of this manifest, if it did not end well, with its rows. */
static hr_status find_unfinished(loop *l, const char *manifest) {
    json_t *runs, *rows, *row;
    size_t i;
    HR_TRY(hr_store_runs(l->store, &runs));
    hr_status status = HR_OK;
    for (i = json_array_size(runs); i-- > 0;) {
        json_t *run = json_array_get(runs, i);
        if (strcmp(hr_word(run, "command"), "kv study") || strcmp(hr_word(run, "manifest"), manifest)) continue;
        json_t *code = json_object_get(run, "exit_code");
        if (json_is_integer(code) && json_integer_value(code) == 0) break;
        l->run_id = hr_strdup(hr_word(run, "run_id"));
        l->old = json_object();
        if (!l->run_id || !l->old) status = hr_fail(HR_ERR_MEMORY, "kv study: out of memory");
        break;
    }
    json_decref(runs);
    if (status != HR_OK || !l->run_id) return status;
    HR_TRY(hr_store_study(l->store, l->run_id, &rows));
    json_array_foreach(rows, i, row) json_object_set(l->old, hr_word(row, "key"), row);
    json_decref(rows);
    return HR_OK;
}

static hr_status begin(loop *l) {
    const hr_study_options *o = l->options;
    hr_machine machine;
    char manifest[1024];
    if (!o->db || !strcmp(o->db, "none")) return HR_OK;
    HR_TRY(hr_store_open(o->db, true, &l->store));
    HR_TRY(hr_machine_get(&machine));
    manifest_of(o, &machine, manifest, sizeof manifest);
    if (o->resume) HR_TRY(find_unfinished(l, manifest));
    if (l->run_id) return HR_OK;
    if (o->resume && o->note)
        o->note("nothing to resume: no study of this build, machine and these flags was interrupted; a new one begins",
                o->context);
    json_t *facts = hr_machine_json(&machine);
    json_object_set_new(facts, "doctor", hr_doctor_summary());
    json_t *run = json_pack("{s:s, s:s, s:s, s:s}", "command", "kv study", "build_commit", hr_commit(), "compiler",
                            hr_compiler(), "manifest", manifest);
    if (run && o->args) json_object_set(run, "args", (json_t *)o->args);
    const hr_status status = run && facts ? hr_store_begin_run(l->store, run, facts, &l->run_id)
                                          : hr_fail(HR_ERR_MEMORY, "kv study: out of memory");
    json_decref(run), json_decref(facts);
    return status;
}

/* ---- points ---- */

/* Rows of a point that the store has already; false when one is missing. */
static bool take_old(loop *l, const hr_study_part *part, size_t point, json_t *rows) {
    json_t *keys = l->old ? part->keys(l->options, point) : NULL, *key;
    size_t i;
    bool all = keys && json_array_size(keys) > 0;
    json_array_foreach(keys, i, key) {
        const json_t *row = json_object_get(l->old, json_string_value(key));
        all = all && row && !json_is_true(json_object_get(row, "partial"));
    }
    if (all) json_array_foreach(keys, i, key) json_array_append(rows, json_object_get(l->old, json_string_value(key)));
    json_decref(keys);
    return all;
}

static void show(const loop *l, const hr_study_part *part, size_t point) {
    if (!l->options->progress) return;
    json_t *keys = part->keys(l->options, point);
    char what[256];
    /* the key of the first row without its last word, which is the arm's */
    snprintf(what, sizeof what, "%s", json_array_size(keys) ? json_string_value(json_array_get(keys, 0)) : part->name);
    char *last = json_array_size(keys) > 1 ? strrchr(what, ' ') : NULL;
    if (last) *last = 0;
    json_decref(keys);
    const double pace = l->seconds_done > 0 ? l->seconds_spent / l->seconds_done : 1;
    l->options->progress(l->done, l->all, pace * l->seconds_all, what, l->options->context);
}

static hr_status measure(loop *l, const hr_study_part *part, size_t point, json_t *rows) {
    const uint64_t start = hr_now_ns();
    const hr_status status = part->measure(l->session, l->options, point, rows);
    l->seconds_spent += (double)(hr_now_ns() - start) * 1e-9;
    l->seconds_done += seconds_of(l, part, point);
    if (!l->store || json_array_size(rows) == 0) return status;
    char message[512]; /* what was measured before a failure is kept too */
    snprintf(message, sizeof message, "%s", hr_error());
    HR_TRY(hr_store_put_study(l->store, l->run_id, rows));
    return status == HR_OK ? HR_OK : hr_fail(status, "%s", message);
}

static hr_status run_point(loop *l, const hr_study_part *part, size_t point) {
    json_t *rows = json_array(), *list = json_object_get(l->out, part->name);
    if (!rows || !list) HR_FAIL(HR_ERR_MEMORY, "kv study: out of memory");
    hr_status status = HR_OK;
    if (!take_old(l, part, point, rows)) {
        show(l, part, point);
        status = measure(l, part, point, rows);
    }
    json_array_extend(list, rows);
    json_decref(rows);
    l->done++;
    l->seconds_all -= seconds_of(l, part, point);
    /* one point that does not fit into memory, say, costs that point */
    if (status == HR_OK || status == HR_ERR_INTERRUPTED || status == HR_ERR_IO) return status;
    fprintf(l->failures, "%s%s, point %zu: %s", l->n_failed ? "\n" : "", part->name, point + 1, hr_error());
    l->n_failed++;
    return HR_OK;
}

static hr_status run_all(loop *l) {
    for (size_t p = 0; l->parts[p]; p++) {
        if (!wanted(l, l->parts[p])) continue;
        const size_t n = l->parts[p]->points(l->options);
        l->all += n;
        for (size_t i = 0; i < n; i++) l->seconds_all += seconds_of(l, l->parts[p], i);
    }
    for (size_t p = 0; l->parts[p]; p++) {
        if (!wanted(l, l->parts[p])) continue;
        const size_t n = l->parts[p]->points(l->options);
        for (size_t i = 0; i < n; i++) {
            if (l->options->stop && l->options->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
            HR_TRY(run_point(l, l->parts[p], i));
        }
    }
    return HR_OK;
}

static int exit_code_of(hr_status status, size_t n_failed) {
    if (status == HR_ERR_INTERRUPTED) return EXIT_INTERRUPTED;
    if (status != HR_OK) return EXIT_BAD;
    return n_failed ? EXIT_FAILED : 0;
}

/* The four lists, also those of parts that are not run. */
static json_t *empty_lists(void) {
    return json_pack("{s:[], s:[], s:[], s:[]}", "layouts", "operations", "dtypes", "allocators");
}

hr_status hr_study_run_parts(const hr_study_options *options, const hr_study_part *const *parts,
                             hr_study_session *session, json_t **out, char **failed) {
    char *said = NULL;
    size_t said_bytes = 0;
    loop l = {.options = options, .parts = parts, .session = session, .out = empty_lists()};
    l.failures = open_memstream(&said, &said_bytes);
    hr_status status = l.out && l.failures ? begin(&l) : hr_fail(HR_ERR_MEMORY, "kv study: out of memory");
    if (status == HR_OK) status = run_all(&l);
    char message[512];
    snprintf(message, sizeof message, "%s", hr_error());
    if (l.run_id && l.store) {
        const hr_status ended = hr_store_end_run(l.store, l.run_id, exit_code_of(status, l.n_failed));
        if (status == HR_OK)
            status = ended;
        else
            hr_fail(status, "%s", message);
    }
    hr_store_close(l.store);
    hr_free(l.run_id);
    json_decref(l.old);
    if (l.failures) fclose(l.failures);
    if (failed) *failed = l.n_failed && said ? hr_strdup(said) : NULL;
    hr_free(said);
    *out = l.out;
    return status;
}

hr_status hr_study_run(const hr_study_options *options, json_t **out, char **failed) {
    static const hr_study_part *const parts[] = {&hr_study_layouts, &hr_study_operations, &hr_study_dtypes,
                                                 &hr_study_allocators, NULL};
    hr_study_session *session = NULL;
    *out = NULL;
    if (failed) *failed = NULL;
    HR_TRY(hr_study_session_create(options, &session));
    const hr_status status = hr_study_run_parts(options, parts, session, out, failed);
    hr_study_session_destroy(session);
    return status;
}
