#include "harness/cli/kept_run.h"

#include "harness/cli/interrupt.h"
#include "harness/doctor/doctor.h"
#include "harness/roof/roof.h"
#include "harness/version.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

hr_status hr_kept_run_open(hr_kept_run *run) {
    const char *db = hr_args_text(run->args, "--db");
    return strcmp(db, "none") ? hr_store_open(db, true, &run->store) : HR_OK;
}

static hr_status begin(hr_kept_run *run) {
    hr_machine machine;
    HR_TRY(hr_machine_get(&machine));
    json_t *facts = hr_machine_json(&machine);
    json_object_set_new(facts, "doctor", hr_doctor_summary());
    json_t *record = json_pack("{s:s, s:o, s:s, s:s}", "command", run->command, "args", hr_args_json(run->args),
                               "build_commit", hr_commit(), "compiler", hr_compiler());
    const hr_status status = record && facts ? hr_store_begin_run(run->store, record, facts, &run->run_id)
                                             : hr_fail(HR_ERR_MEMORY, "out of memory for the record of the run");
    json_decref(record), json_decref(facts);
    return status;
}

hr_status hr_kept_run_put(hr_kept_run *run, const json_t *row) {
    if (!run->store) return HR_OK;
    if (!run->run_id) HR_TRY(begin(run));
    json_t *rows = json_pack("[O]", row);
    if (!rows) HR_FAIL(HR_ERR_MEMORY, "out of memory for a row");
    const hr_status status = run->put(run->store, run->run_id, rows);
    json_decref(rows);
    return status;
}

hr_status hr_kept_run_close(hr_kept_run *run, hr_status status) {
    char said[512];
    snprintf(said, sizeof said, "%s", hr_error());
    const hr_status ended = run->run_id ? hr_store_end_run(run->store, run->run_id, hr_exit_code(status)) : HR_OK;
    hr_store_close(run->store);
    hr_free(run->run_id);
    run->store = NULL, run->run_id = NULL;
    return status == HR_OK ? ended : hr_fail(status, "%s", said);
}
