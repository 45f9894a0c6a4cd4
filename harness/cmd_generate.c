/* headroom generate: the engine on a prompt, token by token. */
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/cli/text_run.h"
#include "harness/generate/logits.h"
#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TOKENS = 1 << 20 };

typedef struct generation {
    hr_text_run run;
    hr_output output;
    hr_progress progress;
    hr_detok *detok;
    bool json; /* an object at the end instead of text as it comes */
    hr_out out;
    int32_t *prompt, *tokens; /* [n_prompt], [n_tokens] of room for n_wanted */
    size_t n_prompt, n_tokens, n_wanted;
    char *text; /* [text_used] what was generated */
    size_t text_used, text_room;
    json_t *top;
    double logsumexp;
    uint64_t prefill_ns, decode_ns;
} generation;

/* ---- the prompt ---- */

static hr_status ids_from_json(const char *path, int32_t **ids, size_t *n) {
    char *text;
    size_t bytes, i;
    json_error_t error;
    HR_TRY(hr_read_file(path, &text, &bytes));
    json_t *root = json_loadb(text, bytes, 0, &error), *item;
    hr_free(text);
    if (!root) HR_FAIL(HR_ERR_INPUT, "%s: line %d: %s", path, error.line, error.text);
    const json_t *list = json_is_object(root) ? json_object_get(root, "tokens") : root;
    hr_status status = HR_OK;
    *n = json_array_size(list);
    *ids = hr_malloc(hr_mul(*n, sizeof **ids));
    if (!json_is_array(list))
        status = hr_fail(HR_ERR_INPUT, "%s: must hold a list of token ids, or {\"tokens\": [...]}", path);
    else if (!*ids)
        status = hr_fail(HR_ERR_MEMORY, "%s: out of memory", path);
    json_array_foreach((json_t *)list, i, item) {
        json_int_t id = json_integer_value(item);
        if (status == HR_OK && (!json_is_integer(item) || id < 0 || id > INT32_MAX))
            status = hr_fail(HR_ERR_INPUT, "%s: entry %zu is no token id", path, i);
        if (status == HR_OK) (*ids)[i] = (int32_t)id;
    }
    json_decref(root);
    return status;
}

static hr_status ids_from_text(const hr_args *args, const hr_tokenizer *tokenizer, int32_t **ids, size_t *n) {
    const char *file = hr_args_text(args, "--file"), *given = hr_args_text(args, "--prompt");
    char *text = NULL;
    size_t bytes = given ? strlen(given) : 0;
    if (file) HR_TRY(hr_read_file(file, &text, &bytes));
    hr_status status =
        hr_tokenize(tokenizer, file ? text : given, bytes, true, !hr_args_flag(args, "--no-special"), ids, n);
    hr_free(text);
    return status;
}

static hr_status read_prompt(const hr_args *args, generation *g) {
    const char *ids = hr_args_text(args, "--prompt-tokens");
    int sources = (ids != NULL) + hr_args_given(args, "--file") + hr_args_given(args, "--prompt");
    if (sources != 1)
        HR_FAIL(HR_ERR_USAGE, "%s; give one of -p TEXT, -f FILE, --prompt-tokens IDS.json",
                sources ? "more than one prompt" : "no prompt");
    HR_TRY(hr_text_run_init(args, ids == NULL, &g->run));
    if (ids)
        HR_TRY(ids_from_json(ids, &g->prompt, &g->n_prompt));
    else
        HR_TRY(ids_from_text(args, g->run.tokenizer, &g->prompt, &g->n_prompt));
    if (!g->n_prompt) HR_FAIL(HR_ERR_INPUT, "the prompt has no tokens; give some text, or ids with --prompt-tokens");
    const hr_model_info *info = &g->run.info;
    for (size_t i = 0; i < g->n_prompt; i++)
        if ((uint32_t)g->prompt[i] >= info->vocab)
            HR_FAIL(HR_ERR_INPUT, "token %zu of the prompt is %d, but %s has a vocabulary of %u", i, g->prompt[i],
                    info->filename, info->vocab);
    if (g->n_prompt + g->n_wanted > info->ctx)
        HR_FAIL(HR_ERR_INPUT, "%zu tokens of prompt and %zu to generate do not fit the context of %s, %u; lower -n%s",
                g->n_prompt, g->n_wanted, info->filename, info->ctx,
                g->n_prompt >= info->ctx ? " and cut the prompt" : "");
    return HR_OK;
}

/* ---- the run ---- */

/* A terminal obeys control characters; what random weights say must not reach it raw. */
static void put_visible(FILE *stream, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0; /* U+0080 .. U+009F */
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            fprintf(stream, "\\x%02x", c);
        else if (c1)
            fprintf(stream, "\\u%04x", (unsigned char)text[++i]);
        else
            putc(c, stream);
    }
}

/* Text that is complete now: kept for JSON, else shown at once. */
static hr_status take_text(generation *g, const char *text, size_t n) {
    if (!n) return HR_OK;
    if (!g->json) {
        if (isatty(fileno(g->out.stream)))
            put_visible(g->out.stream, text, n);
        else
            fwrite(text, 1, n, g->out.stream);
        return hr_stream_flush(g->out.stream);
    }
    if (g->text_used + n > g->text_room) {
        size_t room = 2 * (g->text_used + n) + 256;
        char *grown = hr_realloc(g->text, room);
        if (!grown) HR_FAIL(HR_ERR_MEMORY, "out of memory for the text");
        g->text = grown, g->text_room = room;
    }
    memcpy(g->text + g->text_used, text, n);
    g->text_used += n;
    return HR_OK;
}

static hr_status decode(generation *g, const hr_sampling *how, uint64_t seed, bool ignore_end) {
    hr_engine *engine = g->run.engine;
    const uint32_t seq = 0;
    size_t n;
    while (g->n_tokens < g->n_wanted && !hr_interrupted()) {
        int32_t id = hr_engine_sample(engine, 0, how, &seed);
        g->tokens[g->n_tokens++] = id;
        if (!ignore_end && g->run.tokenizer && hr_tokenizer_is_end(g->run.tokenizer, id)) break;
        if (g->detok) {
            const char *text = hr_detok_feed(g->detok, id, &n);
            HR_TRY(take_text(g, text, n));
        }
        if (g->n_tokens < g->n_wanted) HR_TRY(hr_engine_decode(engine, &seq, &id, 1));
    }
    if (!g->detok) return HR_OK;
    const char *text = hr_detok_flush(g->detok, &n);
    return take_text(g, text, n);
}

static hr_status run_model(const hr_args *args, generation *g) {
    const hr_sampling how = {.temperature = (float)hr_args_real(args, "--temp"),
                             .top_k = (int)hr_args_int(args, "--top-k"),
                             .top_p = (float)hr_args_real(args, "--top-p"),
                             .min_p = (float)hr_args_real(args, "--min-p")};
    HR_TRY(hr_text_run_open(&g->run, (uint32_t)(g->n_prompt + g->n_wanted), &g->progress));
    hr_progress_stage(&g->progress, "reading the prompt");
    hr_progress_show(&g->progress, 0, -1, "reading the prompt");
    uint64_t start = hr_now_ns();
    HR_TRY(hr_engine_prefill(g->run.engine, 0, g->prompt, g->n_prompt, true));
    uint64_t read = hr_now_ns();
    g->prefill_ns = read - start;
    hr_progress_clear(&g->progress);
    const float *logits = hr_engine_logits(g->run.engine, 0);
    HR_TRY(hr_logits_top(logits, g->run.info.vocab, (size_t)hr_args_int(args, "--top-logits"), &g->top));
    g->logsumexp = hr_logsumexp(logits, g->run.info.vocab);
    if (g->run.tokenizer) HR_TRY(hr_detok_create(g->run.tokenizer, false, &g->detok));
    read = hr_now_ns();
    HR_TRY(decode(g, &how, (uint64_t)hr_args_int(args, "--seed"), hr_args_flag(args, "--ignore-eos")));
    g->decode_ns = hr_now_ns() - read;
    return HR_OK;
}

/* ---- what is printed ---- */

static json_t *ids_json(const int32_t *ids, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static hr_status print_object(const generation *g) {
    json_t *object = json_object(), *kernels = json_object();
    json_object_set_new(kernels, hr_phase_names[HR_PHASE_PREFILL],
                        hr_engine_kernels(g->run.engine, HR_PHASE_PREFILL, g->n_prompt));
    json_object_set_new(kernels, hr_phase_names[HR_PHASE_DECODE], hr_engine_kernels(g->run.engine, HR_PHASE_DECODE, 1));
    json_object_set_new(object, "prompt_tokens", ids_json(g->prompt, g->n_prompt));
    json_object_set_new(object, "tokens", ids_json(g->tokens, g->n_tokens));
    json_object_set_new(object, "text",
                        g->detok ? json_stringn(g->text_used ? g->text : "", g->text_used) : json_null());
    json_object_set(object, "top_logits", g->top);
    json_object_set_new(object, "logsumexp", hr_real_or_null(g->logsumexp));
    json_object_set_new(object, "kernels", kernels);
    hr_status status = hr_output_object(&g->output, object);
    json_decref(object);
    return status;
}

static hr_status print_end(generation *g) {
    if (!g->detok)
        for (size_t i = 0; i < g->n_tokens; i++) fprintf(g->out.stream, i ? " %d" : "%d", g->tokens[i]);
    putc('\n', g->out.stream);
    if (g->output.verbose)
        fprintf(stderr, "headroom: prompt %zu tokens in %.1f ms; %zu tokens in %.1f ms, %.1f token/s\n", g->n_prompt,
                (double)g->prefill_ns * 1e-6, g->n_tokens, (double)g->decode_ns * 1e-6,
                g->decode_ns ? (double)g->n_tokens / ((double)g->decode_ns * 1e-9) : 0.0);
    return hr_out_commit(&g->out);
}

static hr_status generate(const hr_args *args, generation *g) {
    HR_TRY(hr_output_resolve(args, &g->output));
    g->json = g->output.format_given || g->output.to_stderr;
    g->n_wanted = (size_t)hr_args_int(args, "--n-gen");
    g->tokens = hr_malloc(hr_mul(g->n_wanted, sizeof *g->tokens));
    if (!g->tokens) HR_FAIL(HR_ERR_MEMORY, "out of memory for %zu tokens", g->n_wanted);
    HR_TRY(read_prompt(args, g));
    hr_progress_init(&g->progress, g->output.progress);
    hr_interrupt_install();
    if (!g->json) HR_TRY(hr_out_open(g->output.file, &g->out));
    hr_status status = run_model(args, g);
    hr_progress_clear(&g->progress);
    if (status == HR_OK) status = g->json ? print_object(g) : print_end(g);
    if (status != HR_OK && !g->json) hr_out_abandon(&g->out);
    return status;
}

static int run(const hr_args *args) {
    generation g = {0};
    int code = generate(args, &g) == HR_OK ? 0 : hr_report_failure();
    hr_detok_destroy(g.detok);
    json_decref(g.top);
    hr_text_run_fini(&g.run);
    hr_free(g.prompt);
    hr_free(g.tokens);
    hr_free(g.text);
    return hr_interrupted() ? HR_EXIT_INTERRUPTED : code;
}

#define ROW(id, ...) static const hr_opt opt_##id = {__VA_ARGS__}
ROW(prompt, .name = "--prompt", .alias = "-p", .group = "Prompt (one of them)", .kind = HR_OPT_TEXT, .metavar = "TEXT",
    .help = "the prompt itself");
ROW(file, .name = "--file", .alias = "-f", .group = "Prompt (one of them)", .kind = HR_OPT_TEXT, .min = 1,
    .metavar = "FILE", .help = "a file, byte by byte as it is; - reads stdin");
ROW(ids, .name = "--prompt-tokens", .group = "Prompt (one of them)", .kind = HR_OPT_TEXT, .min = 1,
    .metavar = "IDS.json", .help = "token ids: a JSON list, or an object with the list as \"tokens\"");
ROW(no_special, .name = "--no-special", .group = "Prompt (one of them)", .kind = HR_OPT_FLAG,
    .help = "special tokens written in the text stay plain text");
ROW(n_gen, .name = "--n-gen", .alias = "-n", .group = "Generation", .kind = HR_OPT_INT, .max = MOST_TOKENS,
    .fallback = "32", .metavar = "N", .help = "tokens to generate at most; 0 only reads the prompt");
ROW(temp, .name = "--temp", .group = "Generation", .kind = HR_OPT_REAL, .max = 100, .fallback = "0", .metavar = "T",
    .help = "temperature; 0 takes the largest logit, the lowest id of equals");
ROW(top_k, .name = "--top-k", .group = "Generation", .kind = HR_OPT_INT, .max = MOST_TOKENS, .fallback = "0",
    .metavar = "K", .help = "draw from the K largest logits; 0 is off");
ROW(top_p, .name = "--top-p", .group = "Generation", .kind = HR_OPT_REAL, .max = 1, .fallback = "1", .metavar = "P",
    .help = "draw from the fewest tokens whose probabilities add up to P; 1 is off");
ROW(min_p, .name = "--min-p", .group = "Generation", .kind = HR_OPT_REAL, .max = 1, .fallback = "0", .metavar = "P",
    .help = "leave out tokens below P times the largest probability; 0 is off");
ROW(seed, .name = "--seed", .group = "Generation", .kind = HR_OPT_INT, .max = 9007199254740992.0, .fallback = "0",
    .metavar = "N", .help = "seed of the draws");
ROW(ignore_eos, .name = "--ignore-eos", .group = "Generation", .kind = HR_OPT_FLAG,
    .help = "do not stop at an end-of-text token");
ROW(top_logits, .name = "--top-logits", .group = "Generation", .kind = HR_OPT_INT, .max = MOST_TOKENS, .fallback = "10",
    .metavar = "K", .help = "logits in the JSON object, at the last position of the prompt");

static const hr_opt *const options[] = {
    &hr_opt_model,  &opt_prompt,    &opt_file,  &opt_ids,  &opt_no_special, &opt_n_gen,      &opt_temp,
    &opt_top_k,     &opt_top_p,     &opt_min_p, &opt_seed, &opt_ignore_eos, &opt_top_logits, HR_OPTS_AXES,
    HR_OPTS_OUTPUT, HR_OPTS_CONFIG, NULL};
static const char *const examples[] = {
    "headroom generate -m synth:tiny -p \"Once upon a time\" -n 16",
    "16 tokens (noise, for the weights are random)",
    "headroom generate -m synth:tiny -p Hello -n 4 --temp 0.8 --top-k 40 --seed 7 --json",
    "tokens, logits and kernels",
    "headroom generate -m synth:tiny -p Hello -n 4 --quant f32 --act f32 -ctk f32 -ctv f32 --json",
    "the exact run: all arithmetic in f32",
    NULL};

const hr_command hr_command_generate = {
    .name = "generate",
    .task = "Run a model on text",
    .summary = "continue a prompt; as JSON also its logits and the kernels that ran",
    .synopsis = "headroom generate -m MODEL (-p TEXT | -f FILE | --prompt-tokens IDS.json) [-n N] [--temp T] [engine "
                "flags] [--json]",
    .options = options,
    .examples = examples,
    .run = run,
};
