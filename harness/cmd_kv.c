/* headroom kv: the KV cache as a subject: `map`, where each row lies; `study`, what each choice costs. */
#include "harness/cmd_kv.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/kv/kv_map.h"

#include <stdio.h>
#include <string.h>

static const hr_opt opt_positions = {.name = "--positions",
                                     .group = "Map",
                                     .kind = HR_OPT_INT,
                                     .min = 1,
                                     .max = 1 << 20,
                                     .fallback = "64",
                                     .metavar = "N",
                                     .help = "capacity of the sequence; all of its rows are printed"};

/* ---- map ------------------------------------------------------------------------------------------------------------- */

static hr_status map_options(const hr_args *args, hr_kv_map_options *o) {
    const char *spec = hr_args_text(args, "--model");
    hr_model_info info;
    if (!spec)
        HR_FAIL(HR_ERR_USAGE, "no model; give one with -m: a GGUF file or synth:NAME (`headroom models` lists names)");
    HR_TRY(hr_kv_layout_parse(hr_args_text(args, "--kv-layout"), &o->layout));
    HR_TRY(hr_kv_type_parse(hr_args_text(args, "--cache-type-k"), &o->k_type));
    HR_TRY(hr_kv_type_parse(hr_args_text(args, "--cache-type-v"), &o->v_type));
    o->page_size = (uint32_t)hr_args_int(args, "--page-size");
    o->positions = (uint32_t)hr_args_int(args, "--positions");
    HR_TRY(hr_model_peek(spec, HR_QUANT_NATIVE, HR_ORDER_ROWS, &info));
    o->n_layers = info.n_layers, o->n_heads = info.n_kv_heads, o->head_dim = info.head_dim;
    return HR_OK;
}

static hr_status write_map(const hr_output *output, const hr_kv_map *map) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = hr_kv_map_write(map, output->format, out.stream);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? hr_kv_map_write(map, output->err_format, stderr) : HR_OK;
}

static int map(const hr_args *args) {
    hr_kv_map_options options;
    hr_kv_map *m = NULL;
    hr_output output;
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK) status = map_options(args, &options);
    if (status == HR_OK) status = hr_kv_map_create(&options, &m);
    if (status == HR_OK) status = write_map(&output, m);
    hr_kv_map_destroy(m);
    return status == HR_OK ? 0 : hr_report_failure();
}

/* ---- the command ------------------------------------------------------------------------------------------------------- */

enum { FLAGS_MAX = 8 };
typedef struct part {
    const char *name;
    int (*run)(const hr_args *args);
    const char *flags[FLAGS_MAX + 1]; /* that concern this word alone */
} part;
static const part parts[] = {
    {"map", map, {"--model", "--positions", "--kv-layout", "--page-size", "--cache-type-k", "--cache-type-v", NULL}},
    {"study",
     hr_kv_study,
     {"--quick", "--full", "--part", "--resume", "--ppl-model", "--ppl-text", "--threads", "--db", NULL}}};
enum { PARTS = sizeof parts / sizeof *parts };

/* A flag of the other word would be ignored, and what comes out would not be what was asked for. */
static hr_status check_flags(const hr_args *args, const part *chosen) {
    for (size_t i = 0; i < PARTS; i++)
        for (size_t k = 0; &parts[i] != chosen && parts[i].flags[k]; k++)
            if (hr_args_given(args, parts[i].flags[k]))
                HR_FAIL(HR_ERR_USAGE, "%s is a flag of kv %s, kv %s has no use for it; leave it out", parts[i].flags[k],
                        parts[i].name, chosen->name);
    return HR_OK;
}

static int run(const hr_args *args) {
    const char *names[PARTS + 1] = {NULL};
    for (size_t i = 0; i < PARTS; i++) names[i] = parts[i].name;
    if (hr_args_n_positional(args) == 0) {
        hr_fail(HR_ERR_USAGE, "kv needs a word: map or study; `headroom kv --help` says more");
        return hr_report_failure();
    }
    const char *word = hr_args_positional(args, 0);
    for (size_t i = 0; i < PARTS; i++)
        if (!strcmp(parts[i].name, word))
            return check_flags(args, &parts[i]) == HR_OK ? parts[i].run(args) : hr_report_failure();
    const char *near = hr_nearest(word, names);
    if (near)
        hr_fail(HR_ERR_USAGE, "kv knows no %.80s; nearest is %s", word, near);
    else
        hr_fail(HR_ERR_USAGE, "kv knows no %.80s; `headroom kv --help` says what it knows", word);
    return hr_report_failure();
}

static const hr_opt *const options[] = {&hr_opt_model,     &opt_positions, &hr_opt_kv_layout,
                                        &hr_opt_page_size, &hr_opt_type_k, &hr_opt_type_v,
                                        HR_OPTS_STUDY,     HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {
    "headroom kv map -m synth:tiny --kv-layout zorder --positions 256",
    "layer, head and position of each row, and where its K and V lie",
    "headroom kv map -m synth:llama-3.2-1b --kv-layout paged --page-size 16 --positions 64 -ctk q8_0 --json",
    "the same for a program, with the places of the scales",
    "headroom kv study --quick",
    "what layouts, operations, types and allocators cost on this machine, in three minutes",
    "headroom kv study --full --resume",
    "everything, in half an hour; goes on where the last one was interrupted",
    NULL};

const hr_command hr_command_kv = {
    .name = "kv",
    .task = "Look up",
    .summary = "the KV cache: map, where each row lies; study, what layouts, types and allocators cost here",
    .synopsis =
        "headroom kv map -m MODEL [--kv-layout LAYOUT] [--page-size P] [--positions N] [-ctk T] [-ctv T] [-o FORMAT]\n"
        "       headroom kv study [--quick|--full] [--part PART] [--resume] [-t N]\n"
        "                [--ppl-model FILE] [--ppl-text FILE] [-o FORMAT] [--db FILE]",
    .options = options,
    .positional = "map|study",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
