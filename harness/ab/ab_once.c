/* One short sweep of one program. Its rows come from stdout, the public contract that versions share; its ops from its store,
 * which a program of another version may write in another way: then there are none. */
#include "harness/ab/ab_internal.h"

#include "harness/formats/json_get.h"
#include "harness/profilers/child.h"
#include "kernels/base/memory.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void hr_ab_side_fini(hr_ab_side *side) {
    json_decref(side->cells), json_decref(side->ops);
    *side = (hr_ab_side){0};
}

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while measuring pairs");
}

/* "--db" and "--db=x" alike. */
static bool is_flag(const char *word, const char *flag) {
    const size_t n = strlen(flag);
    return !strncmp(word, flag, n) && (word[n] == 0 || (word[n] == '=' && !strncmp(flag, "--", 2)));
}

static bool any_flag(const char *const *args, const char *const *flags) {
    for (size_t i = 0; args && args[i]; i++)
        for (size_t f = 0; flags[f]; f++)
            if (is_flag(args[i], flags[f])) return true;
    return false;
}

hr_status hr_ab_check_args(const char *const *args) {
    static const char *const own[] = {"-o",       "--output", "--json", "-oe",       "--output-err",   "--out", "--db",
                                      "--resume", "--help",   "-h",     "--dry-run", "--print-config", NULL};
    for (size_t i = 0; args && args[i]; i++) {
        const char *const one[] = {args[i], NULL};
        if (any_flag(one, own))
            HR_FAIL(HR_ERR_USAGE, "%.60s behind --: every run has an output and a store of its own; leave it out",
                    args[i]);
    }
    return HR_OK;
}

/* Whether a --config file among them says how many repetitions. What is wrong with the file, the sweep tells. */
static bool config_repeats(const char *const *args) {
    for (size_t i = 0; args && args[i]; i++) {
        const char *const is = "--config";
        const size_t n = strlen(is);
        if (strncmp(args[i], is, n) != 0) continue;
        const char *path = args[i][n] == '=' ? args[i] + n + 1 : args[i][n] ? NULL : args[i + 1];
        json_t *config = path ? json_load_file(path, 0, NULL) : NULL;
        const bool says = json_object_get(config, "repetitions") != NULL;
        json_decref(config);
        if (says) return true;
    }
    return false;
}

/* ---- the command line -------------------------------------------------------------------------------------------------- */

static json_t *words_of(const hr_ab_options *o, const char *program, const char *db) {
    static const char *const repetitions[] = {"-r", "--repetitions", NULL};
    char count[24];
    json_t *words = json_pack("[s, s]", program, "sweep");
    bool ok = words != NULL;
    for (size_t i = 0; ok && o->sweep_args && o->sweep_args[i]; i++)
        ok = json_array_append_new(words, json_string(o->sweep_args[i])) == 0;
    if (ok && !any_flag(o->sweep_args, repetitions) && !config_repeats(o->sweep_args)) {
        snprintf(count, sizeof count, "%zu", o->repetitions);
        ok = json_array_append_new(words, json_string("-r")) == 0 &&
             json_array_append_new(words, json_string(count)) == 0;
    }
    const char *const own[] = {"--db", db, "-o", "json", "--no-progress"};
    for (size_t i = 0; ok && i < sizeof own / sizeof *own; i++)
        ok = json_array_append_new(words, json_string(own[i])) == 0;
    if (ok) return words;
    json_decref(words);
    return NULL;
}

/* ---- what it printed ---------------------------------------------------------------------------------------------------- */

/* Exit codes by which a sweep says that its rows are there: all ok, or some cells failed. */
static bool has_rows(const hr_child *child) {
    return child->code == 0 || child->code == 4;
}

static hr_status check_cells(const json_t *cells, const char *name, const char *program) {
    static const char *const keys[] = {"cell_id", "test", "status"};
    size_t i;
    json_t *cell;
    if (json_array_size(cells) == 0)
        HR_FAIL(HR_ERR_INPUT, "%s (%.200s) measured no cell: look at the flags behind --", name, program);
    json_array_foreach((json_t *)cells, i, cell) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (!json_is_string(json_object_get(cell, keys[k])))
                HR_FAIL(HR_ERR_INPUT,
                        "%s (%.200s): row %zu of its JSON has no %s: it is no headroom, or of another version", name,
                        program, i + 1, keys[k]);
    }
    return HR_OK;
}

static hr_status parse(const hr_child *child, const char *name, const char *program, json_t **cells) {
    json_error_t error;
    if (!child->n_out)
        HR_FAIL(HR_ERR_INPUT, "%s (%.200s) printed nothing: it is no headroom, or not of a version with sweep -o json",
                name, program);
    *cells = json_loadb(child->out, child->n_out, 0, &error);
    if (!json_is_array(*cells)) {
        json_decref(*cells);
        *cells = NULL;
        HR_FAIL(HR_ERR_INPUT, "%s (%.200s) printed no JSON array of cells: it begins with \"%.*s\"", name, program,
                (int)strcspn(child->out, "\n\r") > 40 ? 40 : (int)strcspn(child->out, "\n\r"), child->out);
    }
    const hr_status status = check_cells(*cells, name, program);
    if (status == HR_OK) return HR_OK;
    json_decref(*cells);
    *cells = NULL;
    return status;
}

/* ---- its ops --------------------------------------------------------------------------------------------------------------- */

static hr_status ops_of(hr_store *store, const char *run_id, const json_t *cells, json_t *out) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        json_t *ops = NULL, *folded = NULL;
        HR_TRY(hr_store_ops(store, run_id, hr_word(cell, "cell_id"), &ops));
        const hr_status status = hr_compare_fold_ops(ops, &folded);
        json_decref(ops);
        HR_TRY(status);
        if (json_object_set_new(out, hr_word(cell, "cell_id"), folded) != 0) return no_memory();
    }
    return HR_OK;
}

static void read_ops(const char *db, const json_t *cells, json_t *out) {
    hr_store *store;
    char *run_id;
    if (access(db, R_OK) != 0 || hr_store_open(db, false, &store) != HR_OK) return;
    if (hr_store_resolve_run(store, "last", &run_id) == HR_OK) {
        (void)ops_of(store, run_id, cells, out);
        hr_free(run_id);
    }
    hr_store_close(store);
}

static void remove_store(const char *db) {
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%.4000s%s", db, endings[i]);
        unlink(path);
    }
}

hr_status hr_ab_once(const hr_ab_options *o, const char *name, const char *program, const char *folder,
                     hr_ab_side *out) {
    char db[PATH_MAX];
    hr_child child;
    snprintf(db, sizeof db, "%.4000s/run.db", folder);
    *out = (hr_ab_side){.ops = json_object()};
    json_t *words = out->ops ? words_of(o, program, db) : NULL;
    hr_status status = words ? hr_child_run_for(words, o->timeout_s, &child) : no_memory();
    json_decref(words);
    if (status == HR_OK) {
        if (child.timed_out)
            status =
                hr_fail(HR_ERR_INPUT, "%s (%.200s) did not end within %g s (--timeout)", name, program, o->timeout_s);
        else if (child.code == 130)
            status = hr_fail(HR_ERR_INTERRUPTED, "interrupted");
        else if (!has_rows(&child))
            status = hr_fail(HR_ERR_INPUT, "%s (%.200s) ended with %d: %.300s", name, program, child.code,
                             *child.last ? child.last : "it said nothing");
        else
            status = parse(&child, name, program, &out->cells);
        hr_child_fini(&child);
    }
    if (status == HR_OK) read_ops(db, out->cells, out->ops);
    remove_store(db);
    if (status != HR_OK) hr_ab_side_fini(out);
    return status;
}
