/* headroom show: one cell with everything that is stored of it. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/show/cell_view.h"
#include "harness/store/store.h"

#include "kernels/base/memory.h"

#include <string.h>

static hr_status write_cell(hr_format format, FILE *stream, const json_t *cell) {
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, cell);
    if (format == HR_FORMAT_TABLE || format == HR_FORMAT_MD) return hr_cell_view(format, stream, cell);
    hr_cell_writer *writer;
    HR_TRY(hr_cell_writer_create(format, stream, &writer));
    hr_status put = hr_cell_writer_put(writer, cell), end = hr_cell_writer_end(writer);
    return put != HR_OK ? put : end;
}

static hr_status show(const hr_output *output, const json_t *cell) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    hr_status status = write_cell(output->format, out.stream, cell);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? write_cell(output->err_format, stderr, cell) : HR_OK;
}

/* The cell with its ops as one more key. */
static hr_status load(hr_store *store, const char *text, json_t **out) {
    char *cell_id, *run_id;
    json_t *cell = NULL, *ops = NULL;
    HR_TRY(hr_store_resolve_cell(store, text, &cell_id, &run_id));
    hr_status status = hr_store_cell(store, cell_id, run_id, &cell);
    if (status == HR_OK) status = hr_store_ops(store, run_id, cell_id, &ops);
    if (status == HR_OK && json_object_set(cell, "ops", ops) != 0)
        status = hr_fail(HR_ERR_MEMORY, "out of memory while reading cell %s", cell_id);
    json_decref(ops);
    hr_free(cell_id), hr_free(run_id);
    if (status == HR_OK)
        *out = cell;
    else
        json_decref(cell);
    return status;
}

static int run(const hr_args *args) {
    hr_output output;
    hr_store *store = NULL;
    json_t *cell = NULL;
    const char *db = hr_args_text(args, "--db");
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK && hr_args_n_positional(args) == 0)
        status = hr_fail(HR_ERR_USAGE, "show needs a cell: `last`, or an id that `headroom runs last` lists");
    if (status == HR_OK && strcmp(db, "none") == 0)
        status = hr_fail(HR_ERR_USAGE, "--db none leaves nothing to show: name a store");
    if (status == HR_OK) status = hr_store_open(db, false, &store);
    if (status == HR_OK) status = load(store, hr_args_positional(args, 0), &cell);
    hr_store_close(store);
    if (status == HR_OK) status = show(&output, cell);
    json_decref(cell);
    return status == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt *const options[] = {HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {
    "headroom show last", "the cell that was stored last: setup, times, rates, ceilings, ops",
    "headroom show last~1 --json", "the one before it as one object, with raw samples and ops", NULL};

const hr_command hr_command_show = {
    .name = "show",
    .task = "Look up",
    .summary = "print everything that is stored of one cell, op by op",
    .synopsis =
        "headroom show CELL [--db FILE] [-o FORMAT]     CELL: last, last~1, ID or ID@RUN; an id may be cut short",
    .options = options,
    .positional = "CELL",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
