/* headroom show: one cell with everything that is stored of it. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/show/cell_view.h"
#include "harness/show/stored_cell.h"

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

/* The cell with its ops, and the ranges of profilers where there are any, as more keys. */
static hr_status add_parts(hr_stored_cell *c) {
    json_t *ranges = NULL;
    if (json_object_set(c->cell, "ops", c->ops) != 0) HR_FAIL(HR_ERR_MEMORY, "out of memory while reading the cell");
    if (json_array_size(c->ranges) == 0) return HR_OK;
    HR_TRY(hr_ranges_beside_ops(c->ranges, c->ops, &ranges));
    if (json_object_set_new(c->cell, "ranges", ranges) != 0)
        HR_FAIL(HR_ERR_MEMORY, "out of memory while reading the cell");
    return HR_OK;
}

static int run(const hr_args *args) {
    hr_output output;
    hr_stored_cell c = {0};
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK)
        status = hr_stored_cell_load("show", hr_args_text(args, "--db"), hr_args_positional(args, 0), false, &c);
    if (status == HR_OK) status = add_parts(&c);
    if (status == HR_OK) status = show(&output, c.cell);
    hr_stored_cell_fini(&c);
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
