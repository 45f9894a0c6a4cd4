/* tokenizer.h - how a tokenizer is made from a model file's vocabulary; use is declared in engine.h. */
#ifndef HR_TOKENIZER_H
#define HR_TOKENIZER_H

#include "engine/engine.h"

/* What a model file says about text. Strings are borrowed, not NUL-terminated, and only needed during create. */
typedef struct hr_text {
    const char *s;
    size_t n;
} hr_text;
typedef struct hr_vocab {
    hr_text model;         /* tokenizer.ggml.model: "gpt2" is byte-level BPE */
    hr_text pre;           /* tokenizer.ggml.pre: "gpt-2", "llama-bpe", "qwen2", "smollm", ... */
    const hr_text *tokens; /* [n_tokens] */
    const int32_t *types;  /* [n_tokens]: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; or NULL */
    size_t n_tokens;
    const hr_text *merges; /* [n_merges] "left right" */
    size_t n_merges;
    int32_t bos, eos, eot; /* -1: none */
    bool add_bos;
} hr_vocab;

/* ERR_UNSUPPORTED names a model or pre-splitter that is not built; ERR_INPUT a vocabulary that contradicts itself. */
hr_status hr_tokenizer_create(const hr_vocab *vocab, hr_tokenizer **out);
/* The tokenizer of synthetic models: each byte is the id of its value modulo vocab; id i is byte i modulo 256. */
hr_status hr_tokenizer_create_bytes(uint32_t vocab, hr_tokenizer **out);
/* NULL, or why a vocabulary with this model and pre is not supported (for inspect). Static text. */
const char *hr_tokenizer_unsupported(hr_text model, hr_text pre);
uint32_t hr_tokenizer_vocab(const hr_tokenizer *tokenizer);
const char *hr_tokenizer_name(const hr_tokenizer *tokenizer); /* "bpe/llama-bpe", "bytes" */

#endif
