#include "harness/generate/perplexity.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

/* Memory for logits of one call: rows of a vocabulary of 262144 are 1 MiB each. */
static const size_t LOGIT_BYTES = (size_t)64 << 20;

typedef struct sums {
    double nll, square; /* of the negative log-likelihoods and their squares */
    size_t n;
} sums;

/* One window of ctx tokens. Logits are only made where they are scored, `rows` positions a call. */
static hr_status score(const hr_perplexity_input *in, const int32_t *tokens, float *logits, size_t rows, sums *sum) {
    const size_t first = in->ctx / 2, end = in->ctx - 1;
    hr_engine_seq_cut(in->engine, 0, 0);
    HR_TRY(hr_engine_prefill(in->engine, 0, tokens, first, false));
    for (size_t at = first; at < end; at += rows) {
        const size_t n = end - at < rows ? end - at : rows;
        HR_TRY(hr_engine_prefill_all(in->engine, 0, tokens + at, n, logits));
        for (size_t i = 0; i < n; i++) {
            const float *row = logits + i * in->vocab;
            double nll = hr_logsumexp(row, in->vocab) - row[tokens[at + i + 1]];
            sum->nll += nll, sum->square += nll * nll, sum->n++;
        }
    }
    return HR_OK;
}

static hr_status all_windows(const hr_perplexity_input *in, int32_t *window, float *logits, size_t rows,
                             hr_perplexity *out) {
    sums sum = {0};
    const size_t windows = in->n_tokens / in->ctx;
    for (size_t w = 0; w < windows; w++) {
        memcpy(window, in->tokens + w * in->ctx, in->ctx * sizeof *window);
        if (in->bos >= 0) window[0] = in->bos;
        HR_TRY(score(in, window, logits, rows, &sum));
        if (in->progress) in->progress((double)(w + 1) / (double)windows, in->context);
        if (in->stop && in->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted after %zu of %zu windows", w + 1, windows);
    }
    const double n = (double)sum.n, mean = sum.nll / n;
    *out = (hr_perplexity){.ppl = exp(mean),
                           .nll_mean = mean,
                           .nll_stderr = sum.n > 1 ? sqrt(fmax(0, sum.square / n - mean * mean) / (n - 1)) : NAN,
                           .windows = windows,
                           .tokens_scored = sum.n,
                           .ctx = in->ctx};
    return HR_OK;
}

hr_status hr_perplexity_of(const hr_perplexity_input *in, hr_perplexity *out) {
    size_t rows = LOGIT_BYTES / (in->vocab * sizeof(float));
    if (rows < 1) rows = 1;
    if (rows > in->ctx) rows = in->ctx;
    int32_t *window = hr_malloc(hr_mul(in->ctx, sizeof *window));
    float *logits = hr_malloc(hr_mul(hr_mul(rows, in->vocab), sizeof *logits));
    hr_status status = window && logits ? all_windows(in, window, logits, rows, out)
                                        : hr_fail(HR_ERR_MEMORY, "out of memory for logits of %zu positions", rows);
    hr_free(logits);
    hr_free(window);
    return status;
}
