/* The section on the kernels of a GPU that its cells ran: occupancy and time at a datasheet's roof, beside nothing that was measured. */
#include "harness/predict/predict_rows.h"
#include "harness/report/report_page.h"

#include "harness/report/report_label.h"
#include <math.h>
#include <string.h>

/* Whether a cell names the row in `kernels`: {phase: {op: name}}; a joined op stands as "qkv_fused+row". */
static bool names_row(const json_t *kernels, const char *name) {
    const char *phase, *op;
    json_t *ops, *value;
    json_object_foreach((json_t *)kernels, phase, ops) {
        json_object_foreach(ops, op, value) {
            const char *text = json_string_value(value), *at = text ? strstr(text, name) : NULL;
            const char end = at ? at[strlen(name)] : 0;
            if (at && (end == 0 || end == '+') && (at == text || at[-1] == '+')) return true;
        }
    }
    return false;
}

static bool is_used(const hr_report *r, const char *name) {
    size_t i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) if (names_row(json_object_get(cell, "kernels"), name)) return true;
    return false;
}

static void row(hr_doc *doc, const json_t *p) {
    const double bytes = hr_num(p, "bytes"), flops = hr_num(p, "flops"), us = hr_num(p, "roof_us");
    hr_doc_cell(doc, "%s", hr_word(p, "name"));
    if (isfinite(hr_num(p, "n")))
        hr_doc_cell(doc, "%.0f", hr_num(p, "n"));
    else
        hr_doc_cell(doc, "–");
    hr_doc_cell(doc, "%.0f", hr_num(p, "registers"));
    hr_doc_cell(doc, "%.1f", hr_num(p, "shared_bytes") / 1024);
    hr_doc_cell(doc, "%.0f %%", 100 * hr_num(p, "occupancy"));
    hr_doc_cell(doc, "%s", hr_word(p, "bound"));
    if (!isfinite(us)) {
        for (int i = 0; i < 4; i++) hr_doc_cell(doc, "–");
    } else {
        hr_doc_cell(doc, "%.2f", bytes / 1e6);
        hr_doc_cell(doc, "%.3f", flops / 1e9);
        hr_doc_cell(doc, "%.2f", us);
        hr_doc_cell(doc, "%s", hr_word(p, "roof_bound"));
    }
    hr_doc_row_end(doc);
}

void hr_report_gpu_predicted(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {"kernel",          ">tokens",  ">registers", ">shared KiB",
                                           ">occupancy",      "bound by", ">MB",        ">Gflop",
                                           ">µs at the roof", "roof",     NULL};
    const json_t *gpu = json_object_get(r->machine, "gpu");
    if (!gpu) return;
    hr_gpu_sheet sheet;
    json_t *rows = NULL, *p;
    size_t i, shown = 0;
    hr_doc_heading(doc, 2, "Kernels of the GPU: predicted, not measured");
    const double sms = hr_num(gpu, "sms");
    if (!hr_predict_sheet(hr_word(gpu, "name"), isfinite(sms) ? (uint32_t)sms : 0, hr_num(gpu, "datasheet_read_gb_s"),
                          &sheet)) {
        hr_doc_para(doc, "No datasheet of %.90s is known to this program, so nothing is predicted.",
                    hr_word(gpu, "name"));
        return;
    }
    if (hr_predict_rows(&sheet, &rows) != HR_OK) {
        hr_doc_para(doc, "Nothing is predicted: %.300s.", hr_error());
        return;
    }
    hr_doc_para(doc,
                "Rows that the cells of this report ran, on a datasheet's %s (%.0f GB/s, %.0f TFLOP/s bf16). The "
                "figures are %s.",
                sheet.title, sheet.read_gb_s, sheet.gflop_s[HR_UNIT_BF16] / 1e3, hr_predict_caption);
    hr_doc_table(doc, headings);
    json_array_foreach(rows, i, p) if (is_used(r, hr_word(p, "name"))) row(doc, p), shown++;
    hr_doc_table_end(doc);
    if (!shown) hr_doc_para(doc, "No row of the kernel table is named by the cells.");
    json_decref(rows);
}
