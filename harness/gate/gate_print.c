/* A verdict on stdout. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

/* Red first; of equals the order they came in. */
static json_t *by_outcome(const json_t *rows) {
    static const char *const order[] = {"red", "failed", "inconclusive", "allowed", "apart", "passed"};
    json_t *out = json_array(), *row;
    bool ok = out != NULL;
    size_t i;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) json_array_foreach((json_t *)rows, i, row) {
            if (!strcmp(hr_word(row, "outcome"), order[k])) ok = ok && json_array_append(out, row) == 0;
        }
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static json_t *shown(const json_t *row) {
    static const char *const keys[] = {"name",       "a_median", "b_median", "shift_pct",
                                       "p_adjusted", "n_b",      "verdict",  "outcome"};
    const double lo = hr_num(row, "ci95_lo_pct"), hi = hr_num(row, "ci95_hi_pct");
    json_t *out = json_object();
    bool ok = out != NULL;
    for (size_t i = 0; ok && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(row, keys[i]);
        ok = json_object_set(out, keys[i], value ? value : json_null()) == 0;
    }
    json_t *interval = isfinite(lo) && isfinite(hi) ? json_sprintf("%+.2f to %+.2f", lo, hi) : json_null();
    if (ok && json_object_set_new(out, "interval", interval) == 0) return out;
    json_decref(out);
    return NULL;
}

static hr_status print_table(FILE *f, const json_t *verdict) {
    static const char *const keys[] = {"name|=cell",
                                       "a_median|=baseline ms",
                                       "b_median|=candidate ms",
                                       "shift_pct|=shift %",
                                       "interval|=95 % interval",
                                       "p_adjusted|=p adj.",
                                       "n_b|=n",
                                       "verdict|=verdict",
                                       "outcome|=outcome",
                                       NULL};
    json_t *rows = by_outcome(json_object_get(verdict, "cells")), *out = json_array(), *row, *reason;
    bool ok = rows && out;
    size_t i;
    json_array_foreach(rows, i, row) ok = ok && json_array_append_new(out, shown(row)) == 0;
    hr_status status = ok ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory while printing a verdict");
    if (status == HR_OK && json_array_size(out)) status = hr_rows_write(HR_FORMAT_TABLE, f, out, keys);
    json_decref(rows), json_decref(out);
    HR_TRY(status);
    fputc('\n', f);
    json_array_foreach(json_object_get(verdict, "reasons"), i, reason) fprintf(f, "- %s\n", json_string_value(reason));
    char *line = hr_gate_line(verdict);
    fprintf(f, "%s\n", line ? line : hr_word(verdict, "verdict"));
    hr_free(line);
    return hr_stream_flush(f);
}

hr_status hr_gate_print(hr_format format, FILE *stream, const json_t *verdict) {
    static const char *const keys[] = {"name",        "test",        "cell_id",  "state_class", "model_filename",
                                       "quant",       "metric",      "a_median", "b_median",    "shift_pct",
                                       "ci95_lo_pct", "ci95_hi_pct", "p",        "p_adjusted",  "n_a",
                                       "n_b",         "verdict",     "outcome",  "budget_pct",  "allowed",
                                       "reason",      "status_a",    "status_b", NULL};
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, verdict);
    if (format == HR_FORMAT_MD) return hr_gate_summary(stream, verdict);
    if (format == HR_FORMAT_TABLE) return print_table(stream, verdict);
    return hr_rows_write(format, stream, json_object_get(verdict, "cells"), keys);
}
