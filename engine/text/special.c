#include "engine/text/text_parts.h"
#include "kernels/base/memory.h"

#include <string.h>

static size_t length_of(const hr_token_table *table, uint32_t id) {
    return table->start[id + 1] - table->start[id];
}

static bool is_wanted(const hr_token_table *table, uint32_t id, unsigned types) {
    return (types >> table->type[id] & 1) && length_of(table, id);
}

/* A token of one byte starts with that byte and any other. */
static void mark_pairs(hr_special *special, const uint8_t *s, size_t n) {
    unsigned first = (unsigned)s[0] << 8;
    for (unsigned second = n > 1 ? s[1] : 0; second <= (n > 1 ? s[1] : 255u); second++)
        special->pairs[(first | second) / 64] |= (uint64_t)1 << (first | second) % 64;
}

static hr_status list_lengths(hr_special *special, const hr_token_table *table, unsigned types) {
    uint8_t *seen = hr_calloc(table->longest + (size_t)1, 1);
    if (!seen) HR_FAIL(HR_ERR_MEMORY, "no memory for the special tokens");
    size_t n = 0;
    for (uint32_t id = 0; id < table->n; id++) {
        if (!is_wanted(table, id, types)) continue;
        n += !seen[length_of(table, id)];
        seen[length_of(table, id)] = 1;
    }
    special->lengths = hr_malloc(hr_mul(n, sizeof *special->lengths));
    for (size_t length = table->longest; special->lengths && length > 0; length--)
        if (seen[length]) special->lengths[special->n_lengths++] = (uint32_t)length;
    hr_free(seen);
    if (!special->lengths) HR_FAIL(HR_ERR_MEMORY, "no memory for the special tokens");
    return HR_OK;
}

hr_status hr_special_init(hr_special *special, const hr_token_table *table, unsigned types) {
    size_t n = 0;
    *special = (hr_special){0};
    for (uint32_t id = 0; id < table->n; id++) n += is_wanted(table, id, types);
    HR_TRY(hr_index_init(&special->index, n));
    for (uint32_t id = 0; id < table->n; id++) {
        if (!is_wanted(table, id, types)) continue;
        hr_index_put(&special->index, table, (int32_t)id);
        mark_pairs(special, table->bytes + table->start[id], length_of(table, id));
    }
    return list_lengths(special, table, types);
}

void hr_special_fini(hr_special *special) {
    hr_index_fini(&special->index);
    hr_free(special->lengths);
    special->lengths = NULL;
}

static hr_status push_hit(hr_special_hits *hits, size_t at) {
    if (hits->n == hits->room) {
        size_t room = hits->room ? hits->room * 2 : 16;
        hr_special_hit *v = hr_realloc(hits->v, hr_mul(room, sizeof *v));
        if (!v) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu special tokens in a text", room);
        hits->v = v, hits->room = room;
    }
    hits->v[hits->n++] = (hr_special_hit){at, -1};
    return HR_OK;
}

/* Every place where some special token stands, overlapping ones too. */
static hr_status collect(const hr_special *special, const hr_token_table *table, const uint8_t *s, size_t n,
                         hr_special_hits *hits) {
    for (size_t at = 0; at < n; at++) {
        unsigned pair = (unsigned)s[at] << 8 | (at + 1 < n ? s[at + 1] : 0);
        if (!(special->pairs[pair / 64] >> pair % 64 & 1)) continue;
        for (size_t i = 0; i < special->n_lengths; i++) {
            if (special->lengths[i] > n - at) continue;
            if (hr_index_find(&special->index, table, s + at, special->lengths[i]) < 0) continue;
            HR_TRY(push_hit(hits, at));
            break;
        }
    }
    return HR_OK;
}

hr_status hr_special_search(const hr_special *special, const hr_token_table *table, const uint8_t *s, size_t n,
                            hr_special_hits *hits) {
    *hits = (hr_special_hits){0};
    if (!special->n_lengths) return HR_OK;
    HR_TRY(collect(special, table, s, n, hits));
    if (!hits->n) return HR_OK;
    uint8_t *taken = hr_calloc(n, 1);
    if (!taken) HR_FAIL(HR_ERR_MEMORY, "no memory for the special tokens of %zu bytes of text", n);
    for (size_t i = 0; i < special->n_lengths; i++) {
        size_t length = special->lengths[i];
        for (size_t h = 0; h < hits->n; h++) {
            size_t at = hits->v[h].at;
            /* what is taken already is no shorter, so it covers one of this one's ends if they overlap */
            if (length > n - at || taken[at] || taken[at + length - 1]) continue;
            hits->v[h].id = hr_index_find(&special->index, table, s + at, length);
            if (hits->v[h].id >= 0) memset(taken + at, 1, length);
        }
    }
    hr_free(taken);
    return HR_OK;
}
