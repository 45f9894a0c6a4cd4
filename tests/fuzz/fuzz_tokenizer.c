/* Text and vocabularies from fuzz data. Byte 0 chooses the pre-splitter and whether the vocabulary is sound; then come
 * its tokens and merges, each "length (0..15), type, bytes", an empty one ends each list; the rest is text.
 *
 * A vocabulary with all bytes must give every text back, byte for byte, and as U+FFFD what is no UTF-8. A hostile one may
 * be refused, never crash. */
#include "engine/text/text_parts.h"
#include "engine/text/utf8.h"
#include "kernels/base/memory.h"
#include "tests/vocab_made.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds) {
    if (!holds) abort();
}

static size_t take_list(const uint8_t **data, size_t *size, hr_text *list, int32_t *types, size_t room) {
    size_t n = 0;
    while (n<room && * size> 2) {
        size_t length = (*data)[0] & 15, type = (*data)[1];
        *data += 2, *size -= 2;
        if (length == 0 && type == 0) break;
        if (length > *size) length = *size;
        list[n] = (hr_text){(const char *)*data, length};
        if (types) types[n] = (int32_t)(type % 9) - 1; /* kinds that do not exist too */
        *data += length, *size -= length;
        n++;
    }
    return n;
}

static size_t bytes_of(const hr_tokenizer *t, const int32_t *ids, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        size_t length = t->table.start[ids[i] + 1] - t->table.start[ids[i]];
        if (out) memcpy(out + used, t->table.bytes + t->table.start[ids[i]], length);
        used += length;
    }
    return used;
}

static void check_text(const hr_tokenizer *t, const char *text, size_t n, bool parse_special, bool sound) {
    int32_t *ids;
    size_t n_ids, used = 0, part;
    require(hr_tokenize(t, text, n, false, parse_special, &ids, &n_ids) == HR_OK);
    for (size_t i = 0; i < n_ids; i++) require(ids[i] >= 0 && (uint32_t)ids[i] < hr_tokenizer_vocab(t));
    if (sound) {
        char *back = malloc(n + 1);
        require(bytes_of(t, ids, n_ids, NULL) == n);
        bytes_of(t, ids, n_ids, back);
        require(memcmp(back, text, n) == 0);
        free(back);
    }
    hr_detok *d;
    require(hr_detok_create(t, true, &d) == HR_OK);
    bool same = sound && hr_utf8_run((const uint8_t *)text, n) == n;
    for (size_t i = 0; i <= n_ids; i++) {
        const char *s = i < n_ids ? hr_detok_feed(d, ids[i], &part) : hr_detok_flush(d, &part);
        require(hr_utf8_run((const uint8_t *)s, part) == part);
        if (same) require(used + part <= n && memcmp(text + used, s, part) == 0);
        used += part;
    }
    if (same) require(used == n);
    hr_detok_destroy(d);
    hr_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    if (size < 1) return 0;
    bool sound = data[0] & 4;
    hr_made *m = hr_made_create(pres[data[0] & 3], sound);
    data++, size--;
    size_t first = m->vocab.n_tokens;
    m->vocab.n_tokens += take_list(&data, &size, m->tokens + first, m->types + first, 100);
    /* Whole characters only in special tokens, so that a text's characters are never cut by one that is half of one */
    for (size_t i = first; sound && i < m->vocab.n_tokens; i++)
        if (hr_utf8_run((const uint8_t *)m->tokens[i].s, m->tokens[i].n) != m->tokens[i].n) m->types[i] = 1;
    m->vocab.n_merges = take_list(&data, &size, m->merges, NULL, 100);
    hr_tokenizer *t;
    if (hr_tokenizer_create(&m->vocab, &t) == HR_OK) {
        check_text(t, (const char *)data, size, false, sound);
        check_text(t, (const char *)data, size, true, sound);
        hr_tokenizer_destroy(t);
    }
    free(m);
    return 0;
}
