/* Which stored run a gate compares with when it is asked for the last good one. A gate leaves its verdict in the record of
 * the candidate's run (key `gate`), so that the next night can look it up. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <string.h>

/* The ids of a run's cells as keys of an object. */
static hr_status ids_of(hr_store *store, const char *run_id, json_t **out) {
    json_t *cells, *cell, *ids = json_object();
    size_t i;
    bool ok = ids != NULL;
    const hr_status status = hr_store_cells(store, run_id, &cells);
    if (status != HR_OK) {
        json_decref(ids);
        return status;
    }
    json_array_foreach(cells, i, cell) ok = ok && json_object_set_new(ids, hr_word(cell, "cell_id"), json_true()) == 0;
    json_decref(cells);
    *out = ids;
    return ok ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory while looking for a good run");
}

static bool have_common(const json_t *a, json_t *b) {
    const char *key;
    json_t *value;
    json_object_foreach(b, key, value) {
        if (json_object_get(a, key)) return true;
    }
    return false;
}

/* Passed: 1; never judged, or without a clear end: 0; refused: -1. */
static int standing(const json_t *run) {
    const json_t *gate = json_object_get(run, "gate");
    const double code = hr_num(gate, "exit_code");
    return code == 0 ? 1 : code == 1 || code == 4 ? -1 : 0;
}

static hr_status search(hr_store *store, const json_t *runs, size_t at, const json_t *wanted, bool passed,
                        char **run_id) {
    const char *machine = hr_word(json_array_get(runs, at), "machine_class");
    for (size_t i = at; i-- > 0 && !*run_id;) {
        const json_t *run = json_array_get(runs, i);
        json_t *ids = NULL;
        if (standing(run) < (passed ? 1 : 0) || strcmp(machine, hr_word(run, "machine_class")) != 0) continue;
        const hr_status status = ids_of(store, hr_word(run, "run_id"), &ids);
        const bool fits = status == HR_OK && have_common(wanted, ids);
        json_decref(ids);
        HR_TRY(status);
        if (fits && !(*run_id = hr_strdup(hr_word(run, "run_id"))))
            HR_FAIL(HR_ERR_MEMORY, "out of memory while looking for a good run");
    }
    return HR_OK;
}

hr_status hr_gate_last_good(hr_store *store, const char *candidate, char **run_id, bool *passed) {
    json_t *runs = NULL, *wanted = NULL;
    *run_id = NULL;
    HR_TRY(hr_store_runs(store, &runs));
    hr_status status = ids_of(store, candidate, &wanted);
    size_t at = 0;
    while (at < json_array_size(runs) && strcmp(hr_word(json_array_get(runs, at), "run_id"), candidate) != 0) at++;
    for (int strict = 1; strict >= 0 && status == HR_OK && !*run_id; strict--) {
        *passed = strict;
        status = search(store, runs, at, wanted, strict, run_id);
    }
    json_decref(runs), json_decref(wanted);
    if (status == HR_OK && !*run_id)
        HR_FAIL(HR_ERR_INPUT, "no run before %s has a cell of it on this machine class: name one with --baseline RUN",
                candidate);
    return status;
}
