/* Claims about quality: perplexity of a text by windows, with and without the change, on trained weights. */
#include "harness/claims/claim_bench.h"
#include "harness/claims/claim_tests.h"
#include "harness/cli/read_file.h"
#include "harness/generate/perplexity.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CTX = 512, WINDOWS_QUICK = 12, WINDOWS_FULL = 40 };
static const char FILE_NAME[] = "SmolLM2-135M-Instruct.Q4_1.gguf", TEXT_NAME[] = "tests/golden/long.txt";

struct hr_claim_text {
    char model[512];
    int32_t *tokens, bos; /* [n_windows * CTX] */
    size_t n_windows;
    bool known[2];
    double nll[2][HR_CLAIM_SAMPLES]; /* of each window: file's weights, f32 weights; bf16 KV */
};

void hr_claim_text_destroy(struct hr_claim_text *text) {
    if (!text) return;
    hr_free(text->tokens);
    hr_free(text);
}

/* ---- what is at hand ---- */

static bool find_model(const hr_claims_options *o, char *out, size_t n) {
    const char *folder = getenv("HEADROOM_MODELS"), *home = getenv("HOME");
    if (o->ppl_model)
        snprintf(out, n, "%s", o->ppl_model);
    else if (folder)
        snprintf(out, n, "%s/%s", folder, FILE_NAME);
    else
        snprintf(out, n, "%s/.cache/headroom-models/%s", home ? home : "", FILE_NAME);
    return o->ppl_model || access(out, R_OK) == 0;
}

static hr_status read_tokens(struct hr_claim_text *t, const char *file, size_t most) {
    hr_tokenizer *tokenizer;
    char *text = NULL;
    size_t bytes, n = 0;
    HR_TRY(hr_tokenizer_open(t->model, &tokenizer));
    t->bos = hr_tokenizer_adds_bos(tokenizer) ? hr_tokenizer_bos(tokenizer) : -1;
    hr_status status = hr_read_file(file, &text, &bytes);
    if (status == HR_OK) status = hr_tokenize(tokenizer, text, bytes, true, false, &t->tokens, &n);
    hr_free(text);
    hr_tokenizer_destroy(tokenizer);
    HR_TRY(status);
    t->n_windows = n / CTX < most ? n / CTX : most;
    return HR_OK;
}

/* NULL with the reason where there is no model or no text. */
static hr_status text_of(hr_claims_run *run, struct hr_claim_text **out, hr_claim_result *result) {
    const hr_claims_options *o = run->options;
    *out = run->text;
    if (run->text) return HR_OK;
    const char *file = o->ppl_text ? o->ppl_text : TEXT_NAME;
    struct hr_claim_text *t = hr_calloc(1, sizeof *t);
    if (!t) HR_FAIL(HR_ERR_MEMORY, "no memory for a text");
    hr_status status = HR_OK;
    if (!find_model(o, t->model, sizeof t->model))
        snprintf(result->reason, sizeof result->reason,
                 "needs trained weights: give them with --ppl-model, or let tests/fetch_model.sh fetch some");
    else if (!o->ppl_text && access(file, R_OK) != 0)
        snprintf(result->reason, sizeof result->reason, "needs a text to predict: give one with --ppl-text");
    else
        status = read_tokens(t, file, o->quick ? WINDOWS_QUICK : WINDOWS_FULL);
    if (status == HR_OK && !result->reason[0] && t->n_windows < 6)
        snprintf(result->reason, sizeof result->reason, "the text has %zu windows of %d tokens; 6 are needed",
                 t->n_windows, CTX);
    if (status != HR_OK || result->reason[0]) {
        hr_claim_text_destroy(t);
        return status;
    }
    *out = run->text = t;
    return HR_OK;
}

/* ---- perplexity ---- */

static hr_status windows(hr_claims_run *run, const struct hr_claim_text *t, hr_engine *engine, uint32_t vocab,
                         double *nll) {
    for (size_t w = 0; w < t->n_windows; w++) {
        const hr_perplexity_input in = {.engine = engine,
                                        .tokens = t->tokens + w * CTX,
                                        .n_tokens = CTX,
                                        .ctx = CTX,
                                        .vocab = vocab,
                                        .bos = t->bos};
        hr_perplexity p;
        HR_TRY(hr_claim_stopped(run));
        HR_TRY(hr_perplexity_of(&in, &p));
        nll[w] = p.nll_mean;
    }
    return HR_OK;
}

/* Mean negative log-likelihood of each window. */
static hr_status predict(hr_claims_run *run, struct hr_claim_text *t, hr_quant quant, hr_dtype kv, double *nll) {
    hr_model *model;
    hr_engine *engine;
    HR_TRY(hr_claim_model(run, t->model, quant, &model));
    const uint32_t vocab = hr_model_get_info(model)->vocab;
    hr_engine_config c = hr_engine_config_default();
    c.threads = run->machine.cores, c.ctx = CTX, c.k_type = c.v_type = kv;
    hr_claim_unpin();
    HR_TRY(hr_engine_create(model, &c, &engine));
    const hr_status status = windows(run, t, engine, vocab, nll);
    hr_engine_destroy(engine);
    hr_claim_unpin();
    return status;
}

/* Perplexity against that of the same window unchanged, change in %. */
static hr_status loss(hr_claims_run *run, hr_quant base, hr_quant quant, hr_dtype kv, hr_claim_result *out) {
    struct hr_claim_text *t;
    double nll[HR_CLAIM_SAMPLES], v[HR_CLAIM_SAMPLES], sum[2] = {0};
    HR_TRY(text_of(run, &t, out));
    if (!t) return HR_OK;
    const int b = base != HR_QUANT_NATIVE;
    if (!t->known[b]) HR_TRY(predict(run, t, base, HR_BF16, t->nll[b]));
    t->known[b] = true;
    HR_TRY(predict(run, t, quant, kv, nll));
    for (size_t w = 0; w < t->n_windows; w++) {
        v[w] = 100 * (exp(nll[w] - t->nll[b][w]) - 1);
        sum[0] += t->nll[b][w], sum[1] += nll[w];
    }
    out->measured = hr_claim_of_samples(v, t->n_windows);
    const double n = (double)t->n_windows;
    const char *name = strrchr(t->model, '/');
    snprintf(out->note, sizeof out->note, "perplexity %.3f -> %.3f (%+.2f %%) over %zu windows of %d tokens, %.80s",
             exp(sum[0] / n), exp(sum[1] / n), 100 * (exp((sum[1] - sum[0]) / n) - 1), t->n_windows, CTX,
             name ? name + 1 : t->model);
    return HR_OK;
}

hr_status hr_test_kv_quality(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_dtype type = hr_claim_small_kv(claim->arg);
    HR_TRY(loss(run, HR_QUANT_NATIVE, HR_QUANT_NATIVE, type, out));
    const size_t n = strlen(out->note);
    if (n) snprintf(out->note + n, sizeof out->note - n, ", KV %s", hr_kv_type_name(type));
    return HR_OK;
}

hr_status hr_test_quant_loss(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    return loss(run, HR_QUANT_BF16, (hr_quant)claim->arg, HR_BF16, out);
}
