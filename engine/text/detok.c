#include "engine/text/text_parts.h"
#include "engine/text/utf8.h"
#include "kernels/base/memory.h"

#include <string.h>

struct hr_detok {
    const hr_tokenizer *tokenizer;
    bool show_special;
    uint8_t held[4]; /* [n_held] the start of a character that the next tokens may complete */
    size_t n_held;
    uint8_t *in; /* [held + longest token] */
    char *out;   /* [3 bytes for each of in] */
};

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

hr_status hr_detok_create(const hr_tokenizer *tokenizer, bool show_special, hr_detok **out) {
    size_t room = sizeof((hr_detok *)0)->held + (tokenizer->bytes_only ? 1 : tokenizer->table.longest);
    hr_detok *d = hr_calloc(1, sizeof *d);
    *out = NULL;
    if (d) {
        *d = (hr_detok){.tokenizer = tokenizer, .show_special = show_special};
        d->in = hr_malloc(room);
        d->out = hr_malloc(hr_mul(room, 3));
    }
    if (!d || !d->in || !d->out) {
        hr_detok_destroy(d);
        HR_FAIL(HR_ERR_MEMORY, "no memory to turn tokens into text");
    }
    *out = d;
    return HR_OK;
}

void hr_detok_destroy(hr_detok *d) {
    if (!d) return;
    hr_free(d->in);
    hr_free(d->out);
    hr_free(d);
}

/* Appends to out what n bytes at s are; what may still become a character is held back. */
static size_t emit(hr_detok *d, const uint8_t *s, size_t n, size_t used) {
    size_t at = 0;
    d->n_held = 0;
    while (at < n) {
        int step = hr_utf8_step(s + at, n - at);
        if (step == 0) {
            d->n_held = n - at;
            memmove(d->held, s + at, d->n_held);
            break;
        }
        if (step > 0) {
            memcpy(d->out + used, s + at, (size_t)step);
            used += (size_t)step, at += (size_t)step;
        } else {
            memcpy(d->out + used, REPLACEMENT, 3);
            used += 3, at += (size_t)-step;
        }
    }
    return used;
}

const char *hr_detok_flush(hr_detok *d, size_t *n) {
    *n = d->n_held ? 3 : 0;
    memcpy(d->out, REPLACEMENT, *n);
    d->n_held = 0;
    return d->out;
}

const char *hr_detok_feed(hr_detok *d, int32_t id, size_t *n) {
    const hr_tokenizer *t = d->tokenizer;
    *n = 0;
    if (id < 0 || (uint32_t)id >= t->vocab) return d->out;
    uint8_t byte = (uint8_t)(id % 256);
    const uint8_t *bytes = &byte;
    size_t length = 1;
    if (!t->bytes_only) {
        bytes = t->table.bytes + t->table.start[id];
        length = t->table.start[id + 1] - t->table.start[id];
        if (t->table.type[id] == HR_TOKEN_CONTROL || t->table.type[id] == HR_TOKEN_UNKNOWN) {
            hr_detok_flush(d, n); /* no character reaches across a special token */
            if (d->show_special) *n = emit(d, bytes, length, *n);
            return d->out;
        }
    }
    size_t held = d->n_held;
    memcpy(d->in, d->held, held);
    memcpy(d->in + held, bytes, length);
    *n = emit(d, d->in, held + length, 0);
    return d->out;
}
