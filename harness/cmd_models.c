/* headroom models: the shapes that synth:NAME knows. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"

static int run(const hr_args *args) {
    hr_output output;
    if (hr_output_resolve(args, &output) != HR_OK) return hr_report_failure();
    json_t *rows = hr_model_shapes(), *value;
    const char *keys[40], *key;
    size_t n = 0;
    json_object_foreach(json_array_get(rows, 0), key, value) if (n < 39) keys[n++] = key;
    keys[n] = NULL;
    static const char *const shown[] = {"name",
                                        "params|=M params|1e-6",
                                        "bytes|=GB|1e-9",
                                        "layers",
                                        "dim",
                                        "heads",
                                        "kv_heads|=kv",
                                        "head_dim|=hdim",
                                        "ffn",
                                        "vocab",
                                        "ctx",
                                        "source",
                                        NULL};
    const bool table = output.format == HR_FORMAT_TABLE || output.format == HR_FORMAT_MD;
    int code = hr_output_rows(&output, rows, table ? shown : keys) == HR_OK ? 0 : hr_report_failure();
    json_decref(rows);
    return code;
}

static const hr_opt *const options[] = {HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {"headroom models",
                                       "the names, with parameters, bytes and shape",
                                       "headroom models --json",
                                       "the same for a program",
                                       "headroom inspect -m synth:tiny:layers=4:seed=7",
                                       "one of them with other keys, looked at without making its weights",
                                       NULL};

const hr_command hr_command_models = {
    .name = "models",
    .task = "Look up",
    .summary = "list the synthetic models: published shapes with random weights, nothing to download",
    .synopsis = "headroom models [-o FORMAT]",
    .options = options,
    .examples = examples,
    .run = run,
};
