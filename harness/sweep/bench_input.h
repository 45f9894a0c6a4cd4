/* bench_input.h - what the measured model reads: random tokens, or slices of a real text. Never inside a timed region,
 * but for the tokenization of a request's text. */
#ifndef HR_BENCH_INPUT_H
#define HR_BENCH_INPUT_H

#include "engine/engine.h"

typedef struct hr_input {
    const hr_tokenizer *tokenizer;
    const char *text; /* --prompt, or NULL: random tokens */
    size_t text_bytes;
    uint32_t vocab;
    uint64_t random; /* state of the generator */
    int32_t *ids;    /* [n_ids] the whole text */
    size_t n_ids;
    char *loop; /* the text, repeated until any slice fits */
    size_t loop_bytes;
} hr_input;

/* longest: tokens of the longest prompt. ERR_INPUT for a model without a tokenizer or a text without tokens. */
hr_status hr_input_init(hr_input *in, const hr_model *model, const char *text, size_t text_bytes, uint64_t seed,
                        size_t longest);
void hr_input_fini(hr_input *in);
/* n tokens of prompt number `which`, different for each number. */
void hr_input_tokens(hr_input *in, uint64_t which, int32_t *out, size_t n);
/* A slice of the text that gives at least n tokens, for requests that are tokenized while they are timed. */
hr_status hr_input_slice(hr_input *in, uint64_t which, size_t n, const char **text, size_t *bytes);

#endif
