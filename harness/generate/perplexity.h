/* perplexity.h - perplexity of a text by windows, as llama.cpp's tool defines it: n / ctx windows, the rest dropped; each
 * with an empty cache; its first token replaced by begin-of-text where the model adds one; the logits at positions
 * ctx/2 .. ctx-2 predict the tokens after them. */
#ifndef HR_PERPLEXITY_H
#define HR_PERPLEXITY_H

#include "engine/engine.h"

typedef struct hr_perplexity {
    double ppl, nll_mean, nll_stderr; /* nats; stderr of the mean, NaN for one token */
    size_t windows, tokens_scored, ctx;
} hr_perplexity;

typedef struct hr_perplexity_input {
    hr_engine *engine;     /* opened for at least ctx positions; sequence 0 is used */
    const int32_t *tokens; /* [n_tokens], n_tokens >= ctx >= 4 */
    size_t n_tokens, ctx, vocab;
    int32_t bos;        /* -1: the model adds none */
    bool (*stop)(void); /* asked after each window: true ends with ERR_INTERRUPTED */
    void (*progress)(double share, void *context);
    void *context;
} hr_perplexity_input;

hr_status hr_perplexity_of(const hr_perplexity_input *input, hr_perplexity *out);

#endif
