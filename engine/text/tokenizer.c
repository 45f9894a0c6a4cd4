#include "engine/text/text_parts.h"
#include "engine/text/utf8.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- making one */

static bool equals(hr_text text, const char *name) {
    return text.n == strlen(name) && memcmp(text.s, name, text.n) == 0;
}

const char *hr_tokenizer_unsupported(hr_text model, hr_text pre) {
    if (!equals(model, "gpt2")) return "tokenizer model is not gpt2 (byte-level BPE)";
    if (!hr_presplit_find(pre))
        return "pre-splitter is none of gpt-2, default, smollm, llama-bpe, llama3, llama-v3, qwen2";
    return NULL;
}

static hr_status check_id(const char *key, int32_t id, size_t n) {
    if (id >= 0 && (size_t)id >= n)
        HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.%s: token %d is outside a vocabulary of %zu", key, (int)id, n);
    return HR_OK;
}

static void add_end(hr_tokenizer *t, int32_t id) {
    if (id < 0 || hr_tokenizer_is_end(t, id)) return;
    if (t->n_ends < sizeof t->ends / sizeof *t->ends) t->ends[t->n_ends++] = id;
}

/* Files name one end token or two; chat models stop at others as well, which are known by their text. */
static void find_ends(hr_tokenizer *t, const hr_vocab *vocab) {
    static const char *const names[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>", "<end_of_turn>",
                                        "<|endoftext|>", "<|eom_id|>", "<EOT>",   "<|end_of_text|>"};
    add_end(t, vocab->eos);
    add_end(t, vocab->eot);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_end(t, hr_index_find(&t->written.index, &t->table, (const uint8_t *)names[i], strlen(names[i])));
}

static hr_status fill(hr_tokenizer *t, const hr_vocab *vocab, const hr_presplit_kind *kind) {
    HR_TRY(check_id("bos_token_id", vocab->bos, vocab->n_tokens));
    HR_TRY(check_id("eos_token_id", vocab->eos, vocab->n_tokens));
    HR_TRY(check_id("eot_token_id", vocab->eot, vocab->n_tokens));
    if (vocab->add_bos && vocab->bos < 0)
        HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.bos_token_id is missing, but texts begin with that token");
    HR_TRY(hr_token_table_init(&t->table, vocab));
    HR_TRY(hr_bpe_init(&t->bpe, &t->table, vocab));
    HR_TRY(hr_special_init(&t->user, &t->table, 1u << HR_TOKEN_USER));
    HR_TRY(
        hr_special_init(&t->written, &t->table, 1u << HR_TOKEN_USER | 1u << HR_TOKEN_CONTROL | 1u << HR_TOKEN_UNKNOWN));
    HR_TRY(hr_presplit_create(kind, &t->presplit));
    t->self = hr_calloc(vocab->n_tokens, sizeof *t->self);
    if (!t->self) HR_FAIL(HR_ERR_MEMORY, "no memory for a vocabulary of %zu tokens", vocab->n_tokens);
    snprintf(t->name, sizeof t->name, "bpe/%s", kind->name);
    t->vocab = t->table.n;
    t->whole_pieces = kind->whole_pieces;
    t->bos = vocab->bos < 0 ? -1 : vocab->bos;
    t->add_bos = vocab->add_bos;
    find_ends(t, vocab);
    return HR_OK;
}

hr_status hr_tokenizer_create(const hr_vocab *vocab, hr_tokenizer **out) {
    *out = NULL;
    const char *why = hr_tokenizer_unsupported(vocab->model, vocab->pre);
    if (why)
        HR_FAIL(HR_ERR_UNSUPPORTED, "tokenizer %.*s with pre-splitter %.*s: %s", (int)(vocab->model.n & 63),
                vocab->model.n ? vocab->model.s : "", (int)(vocab->pre.n & 63), vocab->pre.n ? vocab->pre.s : "", why);
    hr_tokenizer *t = hr_calloc(1, sizeof *t);
    if (!t) HR_FAIL(HR_ERR_MEMORY, "no memory for a tokenizer");
    hr_status status = fill(t, vocab, hr_presplit_find(vocab->pre));
    if (status == HR_OK)
        *out = t;
    else
        hr_tokenizer_destroy(t);
    return status;
}

hr_status hr_tokenizer_create_bytes(uint32_t vocab, hr_tokenizer **out) {
    *out = NULL;
    if (vocab == 0 || vocab > INT32_MAX)
        HR_FAIL(HR_ERR_INPUT, "a byte tokenizer of %u tokens; 1 to 2147483647 can be used", vocab);
    hr_tokenizer *t = hr_calloc(1, sizeof *t);
    if (!t) HR_FAIL(HR_ERR_MEMORY, "no memory for a tokenizer");
    snprintf(t->name, sizeof t->name, "bytes");
    t->vocab = vocab;
    t->bytes_only = true;
    t->bos = -1;
    *out = t;
    return HR_OK;
}

void hr_tokenizer_destroy(hr_tokenizer *t) {
    if (!t) return;
    hr_token_table_fini(&t->table);
    hr_bpe_fini(&t->bpe);
    hr_special_fini(&t->user);
    hr_special_fini(&t->written);
    hr_presplit_destroy(t->presplit);
    hr_free((void *)t->self);
    hr_free(t);
}

uint32_t hr_tokenizer_vocab(const hr_tokenizer *t) {
    return t->vocab;
}
const char *hr_tokenizer_name(const hr_tokenizer *t) {
    return t->name;
}
bool hr_tokenizer_adds_bos(const hr_tokenizer *t) {
    return t->add_bos;
}
int32_t hr_tokenizer_bos(const hr_tokenizer *t) {
    return t->bos;
}
bool hr_tokenizer_is_end(const hr_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id) return true;
    return false;
}

/* ---- text to tokens */

typedef struct text_run {
    const hr_tokenizer *t;
    hr_splitter splitter;
    hr_bpe_scratch scratch;
    hr_ids ids;
} text_run;

/* Most pieces are tokens. Nearly always merging their bytes ends at that token, but a vocabulary may hold tokens that
 * merges never reach; what each one does is found out at its first use. Threads that race write the same answer. */
static hr_status encode_piece(text_run *run, const uint8_t *piece, size_t n) {
    const hr_tokenizer *t = run->t;
    int32_t id = hr_index_find(&t->table.words, &t->table, piece, n);
    if (id < 0) return hr_bpe_encode(&t->bpe, &run->scratch, piece, n, &run->ids);
    uint8_t self = t->whole_pieces ? 1 : atomic_load_explicit(&t->self[id], memory_order_relaxed);
    if (self == 1) return hr_ids_push(&run->ids, id);
    size_t before = run->ids.n;
    HR_TRY(hr_bpe_encode(&t->bpe, &run->scratch, piece, n, &run->ids));
    if (self == 0) {
        self = run->ids.n == before + 1 && run->ids.v[before] == id ? 1 : 2;
        atomic_store_explicit(&t->self[id], self, memory_order_relaxed);
    }
    return HR_OK;
}

/* Text without special tokens. Bytes that are no UTF-8 become byte tokens and end the piece before them. */
static hr_status encode_plain(text_run *run, const uint8_t *s, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t valid = hr_utf8_run(s + at, n - at);
        for (size_t piece = 0, end; piece < valid; piece = end) {
            HR_TRY(hr_splitter_next(&run->splitter, s + at, valid, piece, &end));
            HR_TRY(encode_piece(run, s + at + piece, end - piece));
        }
        at += valid;
        if (at < n) HR_TRY(hr_bpe_push_byte(&run->t->bpe, s[at++], &run->ids));
    }
    return HR_OK;
}

static hr_status encode_bpe(text_run *run, const uint8_t *s, size_t n, bool parse_special, hr_special_hits *hits) {
    const hr_tokenizer *t = run->t;
    HR_TRY(hr_special_search(parse_special ? &t->written : &t->user, &t->table, s, n, hits));
    HR_TRY(hr_splitter_init(&run->splitter, t->presplit));
    size_t done = 0;
    for (size_t i = 0; i < hits->n; i++) {
        hr_special_hit hit = hits->v[i];
        if (hit.id < 0) continue;
        HR_TRY(encode_plain(run, s + done, hit.at - done));
        HR_TRY(hr_ids_push(&run->ids, hit.id));
        done = hit.at + (t->table.start[hit.id + 1] - t->table.start[hit.id]);
    }
    return encode_plain(run, s + done, n - done);
}

static hr_status encode_bytes(text_run *run, const uint8_t *s, size_t n) {
    for (size_t i = 0; i < n; i++) HR_TRY(hr_ids_push(&run->ids, (int32_t)(s[i] % run->t->vocab)));
    return HR_OK;
}

hr_status hr_tokenize(const hr_tokenizer *t, const char *text, size_t n, bool add_bos, bool parse_special,
                      int32_t **ids, size_t *n_ids) {
    *ids = NULL, *n_ids = 0;
    if (n > INT32_MAX) HR_FAIL(HR_ERR_INPUT, "a text of %zu bytes; at most 2 GiB can be tokenized at once", n);
    text_run run = {.t = t};
    hr_special_hits hits = {0};
    run.ids.room = n / 3 + 2;
    run.ids.v = hr_malloc(run.ids.room * sizeof *run.ids.v);
    if (!run.ids.v) HR_FAIL(HR_ERR_MEMORY, "no memory to tokenize %zu bytes", n);
    hr_status status = add_bos && t->add_bos ? hr_ids_push(&run.ids, t->bos) : HR_OK;
    if (status == HR_OK && n)
        status = t->bytes_only ? encode_bytes(&run, (const uint8_t *)text, n)
                               : encode_bpe(&run, (const uint8_t *)text, n, parse_special, &hits);
    hr_free(hits.v);
    hr_bpe_scratch_fini(&run.scratch);
    if (run.splitter.match) hr_splitter_fini(&run.splitter);
    if (status != HR_OK) {
        hr_free(run.ids.v);
        return status;
    }
    *ids = run.ids.v, *n_ids = run.ids.n;
    return HR_OK;
}
