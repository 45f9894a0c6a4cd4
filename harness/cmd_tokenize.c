/* headroom tokenize: token ids of a text. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "kernels/base/memory.h"

static const hr_opt opt_file = {.name = "--file",
                                .alias = "-f",
                                .group = "Text",
                                .kind = HR_OPT_TEXT,
                                .min = 1,
                                .metavar = "FILE",
                                .help = "the text, byte by byte as it is; - reads stdin"};
static const hr_opt opt_no_special = {.name = "--no-special",
                                      .group = "Text",
                                      .kind = HR_OPT_FLAG,
                                      .help = "special tokens written in the text stay plain text"};

static hr_status print_ids(const hr_output *output, const int32_t *ids, size_t n) {
    if (output->format_given || output->to_stderr) {
        json_t *list = json_array(), *object = json_pack("{s:o}", "tokens", list);
        for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
        hr_status status = hr_output_object(output, object);
        json_decref(object);
        return status;
    }
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    for (size_t i = 0; i < n; i++) fprintf(out.stream, i ? " %d" : "%d", ids[i]);
    putc('\n', out.stream);
    return hr_out_commit(&out);
}

static hr_status tokenize(const hr_args *args) {
    hr_output output;
    HR_TRY(hr_output_resolve(args, &output));
    const char *spec = hr_args_text(args, "--model"), *file = hr_args_text(args, "--file");
    if (!spec) HR_FAIL(HR_ERR_USAGE, "no model; give one with -m: its tokenizer is used");
    if (!file) HR_FAIL(HR_ERR_USAGE, "no text; give a file with -f (- is stdin)");
    char *text;
    size_t n, n_ids;
    HR_TRY(hr_read_file(file, &text, &n));
    hr_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    hr_status status = hr_tokenizer_open(spec, &tokenizer);
    if (status == HR_OK)
        status = hr_tokenize(tokenizer, text, n, true, !hr_args_flag(args, "--no-special"), &ids, &n_ids);
    if (status == HR_OK) status = print_ids(&output, ids, n_ids);
    hr_free(ids);
    hr_tokenizer_destroy(tokenizer);
    hr_free(text);
    return status;
}

static int run(const hr_args *args) {
    return tokenize(args) == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt *const options[] = {&hr_opt_model, &opt_file, &opt_no_special, HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {"echo Hello | headroom tokenize -m synth:tiny -f -", "ids of a line from stdin",
                                       "echo Hello | headroom tokenize -m synth:tiny -f - --json",
                                       "as {\"tokens\": [...]}; a real tokenizer comes with -m FILE.gguf", NULL};

const hr_command hr_command_tokenize = {
    .name = "tokenize",
    .task = "Run a model on text",
    .summary = "token ids of a text",
    .synopsis = "headroom tokenize -m MODEL -f FILE [--no-special] [--json]",
    .options = options,
    .examples = examples,
    .run = run,
};
