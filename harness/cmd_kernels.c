/* headroom kernels: the kernel table; with -m, which rows that model would run and what they cost a token; with --gpu, what can be
 * predicted of the rows for GPUs. */
#include "harness/cli/device_args.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/text_run.h"
#include "harness/predict/predict_rows.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Prefill is looked at with this many tokens in one pass: enough for the kernels of large batches. */
enum { PREFILL_TOKENS = 128, MOST_RECORDS = 1 << 16 };

static const char *const family_names[HR_FAM_COUNT] = {
    [HR_FAM_ACTS] = "acts",       [HR_FAM_MATMUL] = "matmul",
    [HR_FAM_ATTN] = "attention",  [HR_FAM_ATTN_MERGE] = "attention_merge",
    [HR_FAM_NORM] = "norm",       [HR_FAM_ROPE] = "rope",
    [HR_FAM_GLU] = "glu",         [HR_FAM_KV_APPEND] = "kv_append",
    [HR_FAM_EMBED] = "embed",     [HR_FAM_ADD] = "add",
    [HR_FAM_SAMPLE] = "sample",   [HR_FAM_FINISH] = "finish",
    [HR_FAM_KV_COPY] = "kv_copy", [HR_FAM_FILL] = "fill"};

/* The family whose kernel an op class is named after; HR_FAM_COUNT: none in the table. */
static hr_family family_of(hr_op op) {
    switch (op) {
    case HR_OP_QKV:
    case HR_OP_OUT:
    case HR_OP_GATE_UP:
    case HR_OP_DOWN:
    case HR_OP_HEAD:
        return HR_FAM_MATMUL;
    case HR_OP_EMBED:
        return HR_FAM_EMBED;
    case HR_OP_NORM:
        return HR_FAM_NORM;
    case HR_OP_ROPE:
        return HR_FAM_ROPE;
    case HR_OP_KV_APPEND:
        return HR_FAM_KV_APPEND;
    case HR_OP_ATTENTION:
        return HR_FAM_ATTN;
    default:
        return HR_FAM_COUNT;
    }
}

/* Row i of the table of the device. */
typedef const hr_kernel *row_at(size_t i);

/* What one row of the table does for the model. */
typedef struct use {
    bool ran[HR_PHASE_COUNT];
    double bytes[HR_PHASE_COUNT], flops[HR_PHASE_COUNT]; /* a token, summed over its ops */
} use; /* ops are looked at one by one, so that each row has its own work; joined ones are composed of these rows */

/* Adds what the recorder saw in one pass of `tokens` tokens. */
static void add_records(hr_engine *engine, row_at *at, hr_phase phase, size_t tokens, use *uses) {
    size_t n, lost;
    const hr_op_record *records = hr_engine_records(engine, &n, &lost);
    for (size_t r = 0; r < n; r++) {
        hr_family family = family_of(records[r].op);
        const hr_kernel *k;
        for (size_t i = 0; (k = at(i)) != NULL; i++) {
            /* Names of a GPU's rows are unique in the whole table. */
            if ((!k->cuda && k->family != family) || strcmp(k->name, records[r].kernel)) continue;
            uses[i].ran[phase] = true;
            uses[i].bytes[phase] += (double)records[r].bytes / (double)tokens;
            uses[i].flops[phase] += (double)records[r].flops / (double)tokens;
        }
    }
}

/* Helpers that run inside an op and leave no record of their own: asked from the chooser. */
static void add_helpers(const hr_engine *engine, const hr_engine_config *config, row_at *at, hr_phase phase,
                        uint32_t tokens, use *uses) {
    const hr_engine_facts facts = hr_engine_get_facts(engine);
    static const hr_family helpers[] = {HR_FAM_ACTS, HR_FAM_GLU, HR_FAM_ATTN_MERGE};
    for (size_t h = 0; h < sizeof helpers / sizeof *helpers; h++) {
        if (helpers[h] == HR_FAM_ATTN_MERGE && phase == HR_PHASE_PREFILL) continue; /* only decode is split */
        const hr_kernel_query query = {.family = helpers[h],
                                       .isa = facts.isa,
                                       .dtype = config->k_type,
                                       .dtype2 = config->v_type,
                                       .act = facts.act,
                                       .n = tokens,
                                       .flash = config->flash,
                                       .cuda = config->device >= 0};
        const hr_kernel *chosen = hr_kernel_choose(&query), *k;
        for (size_t i = 0; (k = at(i)) != NULL; i++) uses[i].ran[phase] |= k == chosen;
    }
}

static hr_status observe(hr_text_run *run, row_at *at, use *uses) {
    hr_engine *engine = run->engine;
    const uint32_t seq = 0;
    uint32_t n = PREFILL_TOKENS;
    if (n > run->args.config.ubatch) n = run->args.config.ubatch;
    if (n > run->args.config.ctx - 1) n = run->args.config.ctx - 1;
    int32_t *tokens = hr_calloc(n, sizeof *tokens);
    if (!tokens) HR_FAIL(HR_ERR_MEMORY, "out of memory for %u tokens", n);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)(i % run->info.vocab);
    hr_status status = hr_engine_record(engine, MOST_RECORDS);
    if (status == HR_OK) status = hr_engine_prefill(engine, seq, tokens, n, true);
    if (status == HR_OK) {
        add_records(engine, at, HR_PHASE_PREFILL, n, uses);
        hr_engine_record_reset(engine);
        status = hr_engine_decode(engine, &seq, tokens, 1);
    }
    if (status == HR_OK) {
        add_records(engine, at, HR_PHASE_DECODE, 1, uses);
        add_helpers(engine, &run->args.config, at, HR_PHASE_PREFILL, n, uses);
        add_helpers(engine, &run->args.config, at, HR_PHASE_DECODE, 1, uses);
    }
    hr_free(tokens);
    return status;
}

static json_t *dtypes_json(const hr_kernel *k) {
    /* bit set of hr_family: the types are those of K and V */
    static const unsigned of_kv = 1u << HR_FAM_ATTN | 1u << HR_FAM_ATTN_MERGE | 1u << HR_FAM_KV_APPEND |
                                  1u << HR_FAM_FINISH | 1u << HR_FAM_KV_COPY;
    const bool kv = of_kv >> k->family & 1u;
    json_t *list = json_array();
    for (int t = 0; t <= HR_DTYPE_COUNT; t++)
        if (k->dtypes >> t & 1u)
            json_array_append_new(list, json_string(kv ? hr_kv_type_name((hr_dtype)t) : hr_dtypes[t].name));
    return list;
}

/* The orders of weights (--weights) that a product reads; [] where it does not matter. */
static json_t *weights_json(const hr_kernel *k) {
    json_t *list = json_array();
    if (k->cuda) return list; /* rows alone */
    const uint32_t orders = k->orders ? k->orders : 1u << HR_ORDER_ROWS;
    for (int o = 0; k->family == HR_FAM_MATMUL && o < HR_ORDER_COUNT; o++)
        if (orders >> o & 1u) json_array_append_new(list, json_string(hr_weights_name((hr_order)o)));
    return list;
}

static uint32_t dtypes_set(const json_t *types) {
    uint32_t set = 0;
    for (int t = 0; t < HR_DTYPE_COUNT; t++)
        for (size_t i = 0; i < json_array_size(types); i++)
            if (!strcmp(json_string_value(json_array_get(types, i)), hr_dtypes[t].name)) set |= 1u << t;
    return set;
}

/* For people: many types in a few words, so that a row stays within a line of a terminal. */
static json_t *shorter(const json_t *types, const char *op) {
    enum { MANY = 6, MANY_KV = 4 };
    if (!strcmp(op, "attention") || !strcmp(op, "kv_append"))
        return json_array_size(types) > MANY_KV ? json_pack("[s]", "types of KV") : json_copy((json_t *)types);
    const uint32_t all = (1u << HR_DTYPE_COUNT) - 1, quantized = all & ~(1u << HR_F32 | 1u << HR_F16 | 1u << HR_BF16);
    const uint32_t set = dtypes_set(types);
    if (set == all) return json_pack("[s]", "all");
    if (set == quantized) return json_pack("[s]", "quantized");
    if (json_array_size(types) <= MANY) return json_copy((json_t *)types);
    char text[128] = "all but";
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        const size_t n = strlen(text);
        if (!(set >> t & 1u)) snprintf(text + n, sizeof text - n, " %s", hr_dtypes[t].name);
    }
    return json_pack("[s]", text);
}

/* A joined op as a row: composed of the rows beside it, whose work is its work. Every pass runs it. */
static json_t *fused_json(const hr_fused_op *f, unsigned fusion, bool model, bool gpu) {
    const bool chosen = model && (fusion & f->bit);
    json_t *row = json_pack("{s:s, s:s, s:s, s:[], s:[], s:n, s:b, s:[], s:n, s:n}", "op", "fused", "name", f->name,
                            "isa", gpu ? "cuda" : hr_isa_name(HR_ISA_GENERIC), "dtypes", "weights", "act", "chosen",
                            (int)chosen, "phases", "bytes_token", "flops_token");
    for (int p = 0; chosen && p < HR_PHASE_COUNT; p++)
        json_array_append_new(json_object_get(row, "phases"), json_string(hr_phase_names[p]));
    return row;
}

/* Decode speaks for a row that runs in both phases. */
static json_t *row_json(const hr_kernel *k, const use *u) {
    hr_phase phase = u->ran[HR_PHASE_DECODE] ? HR_PHASE_DECODE : HR_PHASE_PREFILL;
    bool chosen = u->ran[phase], work = chosen && (u->bytes[phase] > 0 || u->flops[phase] > 0);
    json_t *row = json_object(), *phases = json_array();
    json_object_set_new(row, "op", json_string(family_names[k->family]));
    json_object_set_new(row, "name", json_string(k->name));
    json_object_set_new(row, "isa", json_string(k->cuda ? "cuda" : hr_isa_name(k->isa)));
    json_object_set_new(row, "dtypes", dtypes_json(k));
    json_object_set_new(row, "weights", weights_json(k));
    json_object_set_new(row, "act", k->act >= 0 ? json_string(hr_act_name((hr_act)k->act)) : json_null());
    json_object_set_new(row, "chosen", json_boolean(chosen));
    for (int p = 0; p < HR_PHASE_COUNT; p++)
        if (u->ran[p]) json_array_append_new(phases, json_string(hr_phase_names[p]));
    json_object_set_new(row, "phases", phases);
    json_object_set_new(row, "bytes_token", work ? json_real(u->bytes[phase]) : json_null());
    json_object_set_new(row, "flops_token", work ? json_real(u->flops[phase]) : json_null());
    return row;
}

/* The table as people see it: of a model the rows that it runs, else all. */
static json_t *rows_for_people(json_t *rows, bool model) {
    json_t *some = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        if (model && !json_is_true(json_object_get(row, "chosen"))) continue;
        json_t *shown = json_copy(row);
        json_object_set_new(shown, "dtypes",
                            shorter(json_object_get(row, "dtypes"), json_string_value(json_object_get(row, "op"))));
        json_array_append_new(some, shown);
    }
    return some;
}

static bool for_people(hr_format format) {
    return format == HR_FORMAT_TABLE || format == HR_FORMAT_MD;
}

static const char *const all_keys[] = {"op",     "name",   "isa",         "dtypes",      "weights", "act",
                                       "chosen", "phases", "bytes_token", "flops_token", NULL};
static const char *const table_keys[] = {"op", "name", "isa", "act", "weights", "dtypes", NULL};
static const char *const model_keys[] = {"op",     "name",        "isa",         "act", "weights",
                                         "phases", "bytes_token", "flops_token", NULL};

/* People see the rows that the model runs and what they are stated for; programs see the whole table. */
static hr_status print(const hr_output *output, json_t *rows, bool model) {
    hr_output first = *output, second = *output;
    const char *const *keys = model ? model_keys : table_keys;
    first.to_stderr = false, second.format = output->err_format;
    json_t *some = rows_for_people(rows, model);
    hr_status status =
        for_people(first.format) ? hr_output_rows(&first, some, keys) : hr_output_rows(&first, rows, all_keys);
    if (status == HR_OK && output->to_stderr)
        status = for_people(second.format) ? hr_rows_write(second.format, stderr, some, keys)
                                           : hr_rows_write(second.format, stderr, rows, all_keys);
    if (status == HR_OK && model && for_people(output->format) && !output->quiet)
        fprintf(
            stderr,
            "headroom: the %zu of %zu rows that the model runs; bytes and flops a token are of one decode step\n"
            "headroom: (of rows that only prefill runs: of up to %d prompt tokens in one pass, over their number)\n",
            json_array_size(some), json_array_size(rows), PREFILL_TOKENS);
    json_decref(some);
    return status;
}

/* Of int8 rows that differ in the width of their vectors alone, which one is taken, and how that is known. */
static hr_status say_width(const hr_output *output) {
    hr_tuning t;
    HR_TRY(hr_tune(&t));
    if (output->quiet || !for_people(output->format)) return HR_OK;
    static const char *const how[] = {[HR_TUNED_DEFAULT] = "no other width runs here",
                                      [HR_TUNED_FORCED] = "HEADROOM_LANES says so",
                                      [HR_TUNED_CACHED] = "measured before on this CPU",
                                      [HR_TUNED_MEASURED] = "measured now"};
    fprintf(stderr, "headroom: int8 rows of two widths: %u bits are taken; %s", t.lanes, how[t.how]);
    if (t.wide_gop_s > 0)
        fprintf(stderr, " (one thread: %.0f GOP/s with 256 bits, %.0f with 512)", t.narrow_gop_s, t.wide_gop_s);
    if (output->verbose && t.cache[0]) fprintf(stderr, "; kept in %s", t.cache);
    fprintf(stderr, "\n");
    return HR_OK;
}

/* Flags that only a model uses are checked all the same. */
static hr_status check_choices(const hr_args *args) {
    hr_engine_config c = hr_engine_config_default();
    size_t n = 0;
    const char *const *forced = hr_args_texts(args, "--kernel", &n);
    HR_TRY(hr_fusion_parse(hr_args_text(args, "--fusion"), &c.fusion));
    for (size_t i = 0; i < n; i++) HR_TRY(hr_kernel_force_add(&c, forced[i]));
    return HR_OK;
}

static hr_status kernels(const hr_args *args, hr_text_run *run) {
    hr_output output;
    hr_progress progress;
    HR_TRY(hr_output_resolve(args, &output));
    HR_TRY(check_choices(args));
    size_t n = 0;
    hr_devices devices;
    HR_TRY(hr_device_args(args, &devices));
    const bool gpu = devices.v[0] >= 0;
    row_at *at = gpu ? hr_cuda_kernel_at : hr_kernel_at;
    while (at(n)) n++;
    if (!n)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "--device: this build has no kernels for GPUs; build it where the CUDA toolkit is (make "
                "CUDA=FOLDER)");
    use *uses = hr_calloc(n + 1, sizeof *uses);
    if (!uses) HR_FAIL(HR_ERR_MEMORY, "out of memory for the list of kernels");
    hr_progress_init(&progress, output.progress);
    hr_status status = HR_OK;
    unsigned fusion = 0;
    if (hr_args_given(args, "--model")) {
        status = hr_text_run_init(args, false, run);
        uint32_t ctx = PREFILL_TOKENS + 1;
        if (status == HR_OK && ctx > run->info.ctx) ctx = run->info.ctx;
        fusion = run->args.config.fusion;
        run->args.config.fusion = 0;
        if (status == HR_OK) status = hr_text_run_open(run, ctx, &progress);
        if (status == HR_OK) status = observe(run, at, uses);
        hr_progress_clear(&progress);
    }
    if (status == HR_OK) {
        json_t *rows = json_array();
        const char *isa = hr_args_text(args, "--isa"); /* auto shows what other CPUs would run, too */
        for (size_t i = 0; i < n; i++)
            if (gpu || !strcmp(isa, "auto") || at(i)->isa <= hr_isa_parse(isa))
                json_array_append_new(rows, row_json(at(i), &uses[i]));
        if (!gpu) status = say_width(&output);
        for (const hr_fused_op *f = hr_fused_ops; f->name; f++)
            if (f == hr_fused_ops || f->bit != f[-1].bit)
                json_array_append_new(rows, fused_json(f, fusion, hr_args_given(args, "--model"), gpu));
        if (status == HR_OK) status = print(&output, rows, hr_args_given(args, "--model"));
        json_decref(rows);
    }
    hr_free(uses);
    return status;
}

/* ---- predictions ---- */

static hr_status sheet_of(const char *name, hr_gpu_sheet *out) {
    if (hr_predict_sheet(name, 0, NAN, out)) return HR_OK;
    char known[160] = "";
    for (size_t i = 0; hr_gpu_sheet_at(i); i++) {
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", hr_gpu_sheet_at(i)->name);
    }
    HR_FAIL(HR_ERR_USAGE, "--gpu %.40s: no datasheet of it is known; there are %s", name, known);
}

static hr_status predictions(const hr_args *args) {
    static const char *const keys[] = {
        "op",         "name",       "n", "registers|regs", "shared_bytes|B", "occupancy|=occ %|100", "bound", "waves",
        "roof_us|us", "roof_bound", NULL};
    hr_output output;
    hr_gpu_sheet gpu;
    json_t *rows;
    if (hr_args_given(args, "--model"))
        HR_FAIL(HR_ERR_USAGE, "--gpu predicts rows of the table, not of a model; leave -m out");
    HR_TRY(hr_output_resolve(args, &output));
    HR_TRY(check_choices(args));
    HR_TRY(sheet_of(hr_args_text(args, "--gpu"), &gpu));
    HR_TRY(hr_predict_rows(&gpu, &rows));
    const hr_status status = hr_output_rows(&output, rows, keys);
    json_decref(rows);
    if (status == HR_OK && !output.quiet) {
        fprintf(stderr, "headroom: %s: ", gpu.title);
        hr_wrapped(stderr, hr_predict_caption, 10, 110);
    }
    return status;
}

static int run_command(const hr_args *args) {
    if (hr_args_given(args, "--gpu")) return predictions(args) == HR_OK ? 0 : hr_report_failure();
    hr_text_run run = {0};
    int code = kernels(args, &run) == HR_OK ? 0 : hr_report_failure();
    hr_text_run_fini(&run);
    return code;
}

static const hr_opt opt_gpu = {
    .name = "--gpu",
    .group = "Model",
    .kind = HR_OPT_TEXT,
    .min = 1,
    .metavar = "NAME",
    .help = "what can be predicted of the rows for GPUs on a datasheet's a100, h100, h200 or b200"};
static const hr_opt *const options[] = {&hr_opt_model, &opt_gpu, HR_OPTS_AXES, HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {"headroom kernels",
                                       "the whole table",
                                       "headroom kernels -m synth:tiny",
                                       "which rows that model runs, with bytes and flops a token",
                                       "headroom kernels -m synth:tiny --quant int8 --isa avx2 --json",
                                       "as JSON, with other weights and an older CPU",
                                       "headroom kernels --device cuda:0",
                                       "the rows for GPUs; no GPU is needed to list them",
                                       "headroom kernels --gpu h200",
                                       "their occupancy and time at the roof of a datasheet: predicted",
                                       NULL};

const hr_command hr_command_kernels = {
    .name = "kernels",
    .task = "Look up",
    .summary = "the kernel table; with -m which rows a model runs, and their bytes and flops a token",
    .synopsis = "headroom kernels [-m MODEL | --gpu NAME] [engine flags] [-o FORMAT]",
    .options = options,
    .examples = examples,
    .run = run_command,
};
