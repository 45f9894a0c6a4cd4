#include "engine/text/text_parts.h"
#include "engine/text/utf8.h"
#include "kernels/base/memory.h"

#include <string.h>

/* Byte-level vocabularies write each byte as one printable character: printable Latin-1 as itself, the 68 others as
 * U+0100 upward in order of value. -1: a character that stands for no byte. */
static int byte_of(uint32_t point) {
    static const uint8_t first[68] = {0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,
                                      14,  15,  16,  17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,
                                      28,  29,  30,  31,  32,  127, 128, 129, 130, 131, 132, 133, 134, 135,
                                      136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149,
                                      150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173};
    if (point >= 0x100) return point < 0x100 + 68 ? first[point - 0x100] : -1;
    return (point > 0x20 && point < 0x7f) || (point > 0xa0 && point != 0xad) ? (int)point : -1;
}

size_t hr_token_decode(hr_text text, uint8_t *out) {
    const uint8_t *s = (const uint8_t *)text.s;
    size_t length = 0;
    for (size_t at = 0; at < text.n;) {
        int step = hr_utf8_step(s + at, text.n - at);
        int byte = step > 0 ? byte_of(hr_utf8_point(s + at, step)) : -1;
        size_t used = step > 0 ? (size_t)step : 1;
        if (byte >= 0) {
            out[length++] = (uint8_t)byte;
        } else { /* outside the alphabet: the bytes as they are */
            memmove(out + length, s + at, used);
            length += used;
        }
        at += used;
    }
    return length;
}

/* Multiply-and-fold, eight bytes at a time; tokens are short. */
static uint32_t hash_of(const uint8_t *s, size_t n) {
    uint64_t h = n * 0x9e3779b97f4a7c15u;
    while (n >= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
        s += 8, n -= 8;
    }
    uint64_t w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return (uint32_t)(h * 0xd6e8feb86659fd93u >> 32);
}

hr_status hr_index_init(hr_index *index, size_t capacity) {
    size_t slots = 16;
    while (slots < 2 * capacity) slots *= 2;
    *index = (hr_index){hr_calloc(slots, sizeof *index->slots), (uint32_t)(slots - 1)};
    if (!index->slots) HR_FAIL(HR_ERR_MEMORY, "no memory for an index of %zu tokens", capacity);
    return HR_OK;
}

void hr_index_fini(hr_index *index) {
    hr_free(index->slots);
    index->slots = NULL;
}

/* The slot of the key, or the free slot where it belongs. */
static uint32_t slot_of(const hr_index *index, const hr_token_table *table, uint32_t hash, const uint8_t *s, size_t n) {
    uint32_t i = hash & index->mask;
    for (;; i = (i + 1) & index->mask) {
        uint64_t slot = index->slots[i];
        if (!slot) return i;
        if ((uint32_t)(slot >> 32) != hash) continue;
        uint32_t id = (uint32_t)slot - 1;
        if (table->start[id + 1] - table->start[id] == n && memcmp(table->bytes + table->start[id], s, n) == 0)
            return i;
    }
}

void hr_index_put(hr_index *index, const hr_token_table *table, int32_t id) {
    const uint8_t *s = table->bytes + table->start[id];
    size_t n = table->start[id + 1] - table->start[id];
    uint32_t hash = hash_of(s, n);
    index->slots[slot_of(index, table, hash, s, n)] = (uint64_t)hash << 32 | ((uint32_t)id + 1);
}

int32_t hr_index_find(const hr_index *index, const hr_token_table *table, const uint8_t *s, size_t n) {
    if (n == 0 || n > table->longest) return -1;
    uint64_t slot = index->slots[slot_of(index, table, hash_of(s, n), s, n)];
    return slot ? (int32_t)((uint32_t)slot - 1) : -1;
}

static bool is_plain(uint8_t type) {
    return type != HR_TOKEN_CONTROL && type != HR_TOKEN_USER && type != HR_TOKEN_UNKNOWN;
}

hr_status hr_token_table_init(hr_token_table *table, const hr_vocab *vocab) {
    *table = (hr_token_table){0};
    if (vocab->n_tokens == 0 || vocab->n_tokens > INT32_MAX / 2)
        HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.tokens: %zu tokens; 1 to 2^30 can be used", vocab->n_tokens);
    uint32_t n = (uint32_t)vocab->n_tokens;
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_add_overflow(total, vocab->tokens[i].n, &total)) total = SIZE_MAX;
    table->n = n;
    table->bytes = hr_malloc(total);
    table->start = hr_malloc(hr_mul(n + (size_t)1, sizeof *table->start));
    table->type = hr_malloc(n);
    if (!table->bytes || !table->start || !table->type)
        HR_FAIL(HR_ERR_MEMORY, "no memory for a vocabulary of %u tokens", n);
    HR_TRY(hr_index_init(&table->words, n));
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t type = vocab->types ? vocab->types[i] : HR_TOKEN_NORMAL;
        if (type < HR_TOKEN_NORMAL || type > HR_TOKEN_BYTE) type = HR_TOKEN_NORMAL; /* 0 and new kinds are plain text */
        hr_text text = vocab->tokens[i];
        size_t length = text.n;
        if (is_plain((uint8_t)type))
            length = hr_token_decode(text, table->bytes + at);
        else
            memcpy(table->bytes + at, text.s ? text.s : "", text.n);
        if (length > UINT32_MAX) HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.tokens: token %u has %zu bytes", i, length);
        table->type[i] = (uint8_t)type;
        table->start[i] = at;
        at += length;
        table->start[i + 1] = at;
        if (length > table->longest) table->longest = (uint32_t)length;
        if (length && type != HR_TOKEN_CONTROL && type != HR_TOKEN_UNKNOWN)
            hr_index_put(&table->words, table, (int32_t)i);
    }
    return HR_OK;
}

void hr_token_table_fini(hr_token_table *table) {
    hr_free(table->bytes);
    hr_free(table->start);
    hr_free(table->type);
    hr_index_fini(&table->words);
    *table = (hr_token_table){0};
}
