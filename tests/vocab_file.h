/* vocab_file.h - a tokenizer from the tokenizer.* keys of a GGUF file, for tests: a reader of its own, so that the
 * loader's reader and this one check each other. Trusts the file; the loader's tests try broken ones. */
#ifndef HR_VOCAB_FILE_H
#define HR_VOCAB_FILE_H

#include "engine/text/tokenizer.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct hr_gguf_cursor {
    const char *at;
} hr_gguf_cursor;

static inline uint64_t hr_gguf_number(hr_gguf_cursor *c, size_t bytes) {
    uint64_t v = 0;
    memcpy(&v, c->at, bytes);
    c->at += bytes;
    return v;
}
static inline hr_text hr_gguf_string(hr_gguf_cursor *c) {
    hr_text t = {NULL, (size_t)hr_gguf_number(c, 8)};
    t.s = c->at;
    c->at += t.n;
    return t;
}
static inline hr_text *hr_gguf_strings(hr_gguf_cursor *c, size_t n) {
    hr_text *list = malloc((n + 1) * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = hr_gguf_string(c);
    return list;
}
static inline void hr_gguf_skip(hr_gguf_cursor *c, uint32_t type) {
    static const uint8_t bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        hr_gguf_string(c);
    } else if (type == 9) {
        uint32_t of = (uint32_t)hr_gguf_number(c, 4);
        uint64_t n = hr_gguf_number(c, 8);
        for (uint64_t i = 0; i < n; i++) hr_gguf_skip(c, of);
    } else {
        c->at += bytes[type];
    }
}
static inline bool hr_text_is(hr_text t, const char *s) {
    return t.n == strlen(s) && memcmp(t.s, s, t.n) == 0;
}

static inline hr_status hr_vocab_file_open(const char *path, hr_tokenizer **out) {
    *out = NULL;
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) HR_FAIL(HR_ERR_IO, "%s cannot be read", path);
    char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED || memcmp(file, "GGUF", 4) != 0) HR_FAIL(HR_ERR_IO, "%s is no GGUF file", path);
    hr_gguf_cursor c = {file + 16};
    hr_vocab v = {.bos = -1, .eos = -1, .eot = -1};
    hr_text *tokens = NULL, *merges = NULL;
    int32_t *types = NULL;
    bool bos_said = false;
    for (uint64_t keys = hr_gguf_number(&c, 8); keys > 0; keys--) {
        hr_text key = hr_gguf_string(&c);
        uint32_t type = (uint32_t)hr_gguf_number(&c, 4);
        hr_gguf_cursor value = c, list = {c.at + 12}; /* a list: element type, count, elements */
        hr_gguf_skip(&c, type);
        size_t n = type == 9 ? (memcpy(&n, value.at + 4, 8), n) : 0;
        if (hr_text_is(key, "tokenizer.ggml.model")) v.model = hr_gguf_string(&value);
        if (hr_text_is(key, "tokenizer.ggml.pre")) v.pre = hr_gguf_string(&value);
        if (hr_text_is(key, "tokenizer.ggml.tokens")) v.n_tokens = n, tokens = hr_gguf_strings(&list, n);
        if (hr_text_is(key, "tokenizer.ggml.merges")) v.n_merges = n, merges = hr_gguf_strings(&list, n);
        if (hr_text_is(key, "tokenizer.ggml.token_type")) {
            types = malloc(n * 4 + 1);
            memcpy(types, list.at, n * 4);
        }
        if (hr_text_is(key, "tokenizer.ggml.bos_token_id")) v.bos = (int32_t)hr_gguf_number(&value, 4);
        if (hr_text_is(key, "tokenizer.ggml.eos_token_id")) v.eos = (int32_t)hr_gguf_number(&value, 4);
        if (hr_text_is(key, "tokenizer.ggml.add_bos_token")) v.add_bos = hr_gguf_number(&value, 1), bos_said = true;
    }
    if (!bos_said) v.add_bos = hr_tokenizer_default_bos(v.model, v.pre);
    v.tokens = tokens, v.merges = merges, v.types = types;
    hr_status status = hr_tokenizer_create(&v, out);
    free(tokens);
    free(merges);
    free(types);
    munmap(file, (size_t)st.st_size);
    return status;
}

#endif
