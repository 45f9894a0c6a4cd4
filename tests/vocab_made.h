/* vocab_made.h - small vocabularies made by hand for tests: all 256 bytes (ids 0..255 in order of value), then what the
 * test adds. Texts are given as raw bytes; the printable alphabet of files is written here a second time. */
#ifndef HR_VOCAB_MADE_H
#define HR_VOCAB_MADE_H

#include "engine/text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

enum { HR_MADE_MAX = 512 };
typedef struct hr_made {
    hr_vocab vocab;
    hr_text tokens[HR_MADE_MAX], merges[HR_MADE_MAX];
    int32_t types[HR_MADE_MAX];
    char room[HR_MADE_MAX * 64];
    size_t used;
} hr_made;

/* Bytes as files write them: '!'..'~', 0xa1..0xac and 0xae..0xff as that code point, the rest counted from U+0100. */
static inline hr_text hr_made_encode(hr_made *m, const char *s, size_t n) {
    hr_text t = {m->room + m->used, 0};
    char *out = m->room + m->used;
    for (size_t i = 0; i < n; i++) {
        unsigned byte = (uint8_t)s[i], point = 0x100;
        for (unsigned b = 0; b < 256; b++) {
            bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            if (b == byte) {
                if (printable) point = b;
                break;
            }
            point += !printable;
        }
        if (point < 0x80) {
            out[t.n++] = (char)point;
        } else {
            out[t.n++] = (char)(0xc0 | point >> 6);
            out[t.n++] = (char)(0x80 | (point & 0x3f));
        }
    }
    m->used += t.n;
    return t;
}

static inline int32_t hr_made_token(hr_made *m, const char *s, size_t n, int32_t type) {
    bool raw = type >= 2 && type <= 4;
    int32_t id = (int32_t)m->vocab.n_tokens++;
    m->tokens[id] = raw ? (hr_text){s, n} : hr_made_encode(m, s, n);
    m->types[id] = type;
    return id;
}
static inline int32_t hr_made_word(hr_made *m, const char *s) {
    return hr_made_token(m, s, strlen(s), 1);
}
static inline void hr_made_merge(hr_made *m, const char *left, const char *right) {
    hr_text a = hr_made_encode(m, left, strlen(left));
    m->room[m->used++] = ' ';
    hr_text b = hr_made_encode(m, right, strlen(right));
    m->merges[m->vocab.n_merges++] = (hr_text){a.s, a.n + 1 + b.n};
}

/* free() it. */
static inline hr_made *hr_made_create(const char *pre, bool all_bytes) {
    hr_made *m = calloc(1, sizeof *m);
    m->vocab = (hr_vocab){.model = {"gpt2", 4},
                          .pre = {pre, strlen(pre)},
                          .tokens = m->tokens,
                          .types = m->types,
                          .merges = m->merges,
                          .bos = -1,
                          .eos = -1,
                          .eot = -1};
    for (int b = 0; all_bytes && b < 256; b++) {
        char c = (char)b;
        hr_made_token(m, &c, 1, 1);
    }
    return m;
}

#endif
