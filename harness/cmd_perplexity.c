/* headroom perplexity: how well a model predicts a text; the proof that a quantization still works. */
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/cli/text_run.h"
#include "harness/generate/perplexity.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>

static hr_status read_tokens(const hr_args *args, hr_text_run *run, int32_t **ids, size_t *n) {
    const char *file = hr_args_text(args, "--file");
    char *text;
    size_t bytes;
    if (!file) HR_FAIL(HR_ERR_USAGE, "no text; give a file with -f (- is stdin)");
    HR_TRY(hr_text_run_init(args, true, run));
    HR_TRY(hr_read_file(file, &text, &bytes));
    hr_status status = hr_tokenize(run->tokenizer, text, bytes, true, false, ids, n);
    hr_free(text);
    return status;
}

static hr_status print_result(const hr_output *output, const hr_perplexity *p) {
    if (!output->format_given && !output->to_stderr) {
        hr_out out;
        HR_TRY(hr_out_open(output->file, &out));
        fprintf(out.stream, "perplexity %.4f  (nll %.5f ± %.5f over %zu tokens in %zu windows of %zu)\n", p->ppl,
                p->nll_mean, p->nll_stderr, p->tokens_scored, p->windows, p->ctx);
        return hr_out_commit(&out);
    }
    json_t *object = json_object();
    json_object_set_new(object, "ppl", hr_real_or_null(p->ppl));
    json_object_set_new(object, "nll_mean", hr_real_or_null(p->nll_mean));
    json_object_set_new(object, "nll_stderr", hr_real_or_null(p->nll_stderr));
    json_object_set_new(object, "windows", json_integer((json_int_t)p->windows));
    json_object_set_new(object, "tokens_scored", json_integer((json_int_t)p->tokens_scored));
    hr_status status = hr_output_object(output, object);
    json_decref(object);
    return status;
}

static void show(double share, void *context) {
    hr_progress_show(context, share, -1, "windows");
}

static hr_status perplexity(const hr_args *args, hr_text_run *run, int32_t **ids) {
    hr_output output;
    hr_progress progress;
    hr_perplexity result;
    size_t n;
    const size_t ctx = (size_t)hr_args_int(args, "--ctx");
    HR_TRY(hr_output_resolve(args, &output));
    HR_TRY(read_tokens(args, run, ids, &n));
    if (ctx > run->info.ctx)
        HR_FAIL(HR_ERR_INPUT, "--ctx %zu is longer than the context of %s, %u", ctx, run->info.filename, run->info.ctx);
    if (n < ctx)
        HR_FAIL(HR_ERR_INPUT,
                "the text has %zu tokens, less than one window of %zu; give a longer one or a smaller --ctx", n, ctx);
    hr_progress_init(&progress, output.progress);
    hr_interrupt_install();
    hr_status status = hr_text_run_open(run, (uint32_t)ctx, &progress);
    if (status == HR_OK) {
        hr_progress_stage(&progress, "windows");
        const hr_perplexity_input input = {
            .engine = run->engine,
            .tokens = *ids,
            .n_tokens = n,
            .ctx = ctx,
            .vocab = run->info.vocab,
            .bos = hr_tokenizer_adds_bos(run->tokenizer) ? hr_tokenizer_bos(run->tokenizer) : -1,
            .stop = hr_interrupted,
            .progress = show,
            .context = &progress};
        status = hr_perplexity_of(&input, &result);
    }
    hr_progress_clear(&progress);
    return status == HR_OK ? print_result(&output, &result) : status;
}

static int run_command(const hr_args *args) {
    hr_text_run run = {0};
    int32_t *ids = NULL;
    hr_status status = perplexity(args, &run, &ids);
    hr_text_run_fini(&run);
    hr_free(ids);
    if (status == HR_OK) return 0;
    hr_report_failure();
    return status == HR_ERR_INTERRUPTED ? HR_EXIT_INTERRUPTED : 2;
}

static const hr_opt opt_file = {.name = "--file",
                                .alias = "-f",
                                .group = "Text",
                                .kind = HR_OPT_TEXT,
                                .min = 1,
                                .metavar = "FILE",
                                .help = "the text, byte by byte as it is; - reads stdin"};
static const hr_opt opt_ctx = {.name = "--ctx",
                               .alias = "-c",
                               .group = "Text",
                               .kind = HR_OPT_INT,
                               .min = 4,
                               .max = 1 << 20,
                               .fallback = "512",
                               .metavar = "N",
                               .help = "tokens of a window; the second half of each is scored"};
static const hr_opt *const options[] = {&hr_opt_model,  &opt_file,      &opt_ctx, HR_OPTS_AXES,
                                        HR_OPTS_OUTPUT, HR_OPTS_CONFIG, NULL};
static const char *const examples[] = {"headroom perplexity -m synth:tiny -f LICENSE --ctx 128",
                                       "a model of random weights knows nothing: close to the size of its vocabulary",
                                       "headroom perplexity -m synth:tiny -f LICENSE --ctx 128 --quant int8 --json",
                                       "the same with quantized weights, as JSON", NULL};

const hr_command hr_command_perplexity = {
    .name = "perplexity",
    .task = "Run a model on text",
    .summary = "how well a model predicts a text: the check that a quantization still works",
    .synopsis = "headroom perplexity -m MODEL -f FILE [--ctx N] [engine flags] [--json]",
    .options = options,
    .examples = examples,
    .run = run_command,
};
