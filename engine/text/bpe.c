#include "engine/text/text_parts.h"
#include "kernels/base/memory.h"

#include <string.h>

static const uint32_t NO_RANK = UINT32_MAX;

hr_status hr_ids_push(hr_ids *ids, int32_t id) {
    if (ids->n == ids->room) {
        size_t room = ids->room ? ids->room * 2 : 64;
        int32_t *v = hr_realloc(ids->v, hr_mul(room, sizeof *v));
        if (!v) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu token ids", room);
        ids->v = v, ids->room = room;
    }
    ids->v[ids->n++] = id;
    return HR_OK;
}

/* ---- the table of merges */

static uint32_t pair_slot(uint64_t pair) {
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32 ^ h >> 15);
}

static const hr_merge *find_merge(const hr_bpe *bpe, int32_t left, int32_t right) {
    if ((left | right) < 0) return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint32_t i = pair_slot(pair) & bpe->mask;; i = (i + 1) & bpe->mask) {
        if (bpe->merges[i].pair == pair) return &bpe->merges[i];
        if (bpe->merges[i].pair == UINT64_MAX) return NULL;
    }
}

static void put_merge(hr_bpe *bpe, hr_merge merge) {
    uint32_t i = pair_slot(merge.pair) & bpe->mask;
    for (; bpe->merges[i].pair != UINT64_MAX; i = (i + 1) & bpe->mask)
        if (bpe->merges[i].pair == merge.pair) return;
    bpe->merges[i] = merge;
}

/* left: bytes of `text` before its separating space; a token may itself start with one. */
static hr_status cut_merge(hr_text text, size_t number, size_t *left) {
    const char *space = text.n > 2 ? memchr(text.s + 1, ' ', text.n - 2) : NULL;
    if (!space) HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.merges: merge %zu is not two tokens and a space", number);
    *left = (size_t)(space - text.s);
    return HR_OK;
}

static hr_status read_merges(hr_bpe *bpe, const hr_token_table *table, const hr_vocab *vocab, uint8_t *buffer) {
    for (size_t rank = 0; rank < vocab->n_merges; rank++) {
        hr_text text = vocab->merges[rank];
        size_t left = 0;
        HR_TRY(cut_merge(text, rank, &left));
        size_t a = hr_token_decode((hr_text){text.s, left}, buffer);
        size_t b = hr_token_decode((hr_text){text.s + left + 1, text.n - left - 1}, buffer + a);
        int32_t left_id = hr_index_find(&table->words, table, buffer, a);
        int32_t right_id = hr_index_find(&table->words, table, buffer + a, b);
        int32_t id = hr_index_find(&table->words, table, buffer, a + b);
        if (left_id < 0 || right_id < 0 || id < 0) continue;
        put_merge(bpe, (hr_merge){(uint64_t)(uint32_t)left_id << 32 | (uint32_t)right_id, (uint32_t)rank, id});
    }
    return HR_OK;
}

hr_status hr_bpe_init(hr_bpe *bpe, const hr_token_table *table, const hr_vocab *vocab) {
    *bpe = (hr_bpe){.unknown = -1};
    size_t found = 0, longest = 0, slots = 16;
    for (int byte = 0; byte < 256; byte++) {
        uint8_t b = (uint8_t)byte;
        bpe->byte_id[byte] = hr_index_find(&table->words, table, &b, 1);
        found += bpe->byte_id[byte] >= 0;
    }
    if (!found)
        HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.tokens: no token stands for a single byte, so this is no byte-level "
                              "vocabulary; check tokenizer.ggml.model");
    for (uint32_t i = 0; i < table->n && bpe->unknown < 0; i++)
        if (table->type[i] == HR_TOKEN_UNKNOWN) bpe->unknown = (int32_t)i;
    if (vocab->n_merges > INT32_MAX / 2)
        HR_FAIL(HR_ERR_INPUT, "tokenizer.ggml.merges: %zu merges; at most 2^30 can be used", vocab->n_merges);
    while (slots < 2 * vocab->n_merges) slots *= 2;
    for (size_t i = 0; i < vocab->n_merges; i++)
        if (vocab->merges[i].n > longest) longest = vocab->merges[i].n;
    bpe->mask = (uint32_t)(slots - 1);
    bpe->merges = hr_malloc(hr_mul(slots, sizeof *bpe->merges));
    uint8_t *buffer = hr_malloc(longest);
    if (!bpe->merges || !buffer) {
        hr_free(buffer);
        HR_FAIL(HR_ERR_MEMORY, "no memory for %zu merges", vocab->n_merges);
    }
    memset(bpe->merges, 0xff, slots * sizeof *bpe->merges);
    hr_status status = read_merges(bpe, table, vocab, buffer);
    hr_free(buffer);
    return status;
}

void hr_bpe_fini(hr_bpe *bpe) {
    hr_free(bpe->merges);
    bpe->merges = NULL;
}

/* ---- one piece */

hr_status hr_bpe_push_byte(const hr_bpe *bpe, uint8_t byte, hr_ids *ids) {
    int32_t id = bpe->byte_id[byte] >= 0 ? bpe->byte_id[byte] : bpe->unknown;
    return id < 0 ? HR_OK : hr_ids_push(ids, id);
}

static hr_status push_symbol(const hr_bpe *bpe, int32_t id, hr_ids *ids) {
    if (id < 0) id = bpe->unknown; /* only bytes without a token are negative */
    return id < 0 ? HR_OK : hr_ids_push(ids, id);
}

/* Words: scanning all pairs for the lowest rank beats a heap. */
static hr_status encode_short(const hr_bpe *bpe, const uint8_t *piece, size_t n, hr_ids *ids) {
    int32_t id[HR_BPE_SHORT], merged[HR_BPE_SHORT] = {0}; /* merged[i], rank[i]: of symbols i and i + 1 */
    uint32_t rank[HR_BPE_SHORT];
    for (size_t i = 0; i < n; i++) id[i] = bpe->byte_id[piece[i]];
    for (size_t i = 0; i + 1 < n; i++) {
        const hr_merge *m = find_merge(bpe, id[i], id[i + 1]);
        rank[i] = m ? m->rank : NO_RANK;
        if (m) merged[i] = m->id;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        id[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) id[i] = id[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) rank[i] = rank[i + 1], merged[i] = merged[i + 1];
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const hr_merge *m = find_merge(bpe, id[i], id[i + 1]);
            rank[i] = m ? m->rank : NO_RANK;
            if (m) merged[i] = m->id;
        }
    }
    for (size_t i = 0; i < n; i++) HR_TRY(push_symbol(bpe, id[i], ids));
    return HR_OK;
}

/* A symbol starts at the byte of its index and is linked to its neighbours. */
struct hr_symbol {
    int32_t id, merged; /* merged, rank: of this symbol and the next one */
    uint32_t rank;      /* NO_RANK: no merge, or this symbol has been swallowed */
    uint32_t prev, next;
};

static const uint32_t NO_SYMBOL = UINT32_MAX;

static void heap_add(uint64_t *heap, size_t *n, uint64_t entry) {
    size_t i = (*n)++;
    for (; i && heap[(i - 1) / 2] > entry; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static uint64_t heap_take(uint64_t *heap, size_t *n) {
    uint64_t top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static void rank_pair(const hr_bpe *bpe, hr_symbol *symbols, uint32_t i, uint64_t *heap, size_t *n_heap) {
    hr_symbol *s = &symbols[i];
    const hr_merge *m = s->next == NO_SYMBOL ? NULL : find_merge(bpe, s->id, symbols[s->next].id);
    s->rank = m ? m->rank : NO_RANK;
    if (!m) return;
    s->merged = m->id;
    heap_add(heap, n_heap, (uint64_t)m->rank << 32 | i);
}

static hr_status reserve(hr_bpe_scratch *scratch, size_t n) {
    if (n <= scratch->room) return HR_OK;
    hr_bpe_scratch_fini(scratch);
    scratch->symbols = hr_malloc(hr_mul(n, sizeof *scratch->symbols));
    scratch->heap = hr_malloc(hr_mul(n, 2 * sizeof *scratch->heap));
    if (!scratch->symbols || !scratch->heap) HR_FAIL(HR_ERR_MEMORY, "no memory to tokenize a word of %zu bytes", n);
    scratch->room = n;
    return HR_OK;
}

/* A merge takes one entry and adds at most two, so the heap never holds more than 2 n. Entries whose pair has changed
 * since are recognized by their rank and dropped. */
hr_status hr_bpe_encode_heap(const hr_bpe *bpe, hr_bpe_scratch *scratch, const uint8_t *piece, size_t n, hr_ids *ids) {
    if (n == 0) return HR_OK;
    HR_TRY(reserve(scratch, n));
    hr_symbol *s = scratch->symbols;
    uint64_t *heap = scratch->heap;
    size_t n_heap = 0;
    for (size_t i = 0; i < n; i++)
        s[i] = (hr_symbol){.id = bpe->byte_id[piece[i]],
                           .rank = NO_RANK,
                           .prev = i ? (uint32_t)i - 1 : NO_SYMBOL,
                           .next = i + 1 < n ? (uint32_t)i + 1 : NO_SYMBOL};
    for (size_t i = 0; i < n; i++) rank_pair(bpe, s, (uint32_t)i, heap, &n_heap);
    while (n_heap) {
        uint64_t entry = heap_take(heap, &n_heap);
        uint32_t left = (uint32_t)entry;
        if (s[left].rank != (uint32_t)(entry >> 32)) continue;
        uint32_t right = s[left].next;
        s[left].id = s[left].merged;
        s[left].next = s[right].next;
        s[right].rank = NO_RANK;
        if (s[left].next != NO_SYMBOL) s[s[left].next].prev = left;
        rank_pair(bpe, s, left, heap, &n_heap);
        if (s[left].prev != NO_SYMBOL) rank_pair(bpe, s, s[left].prev, heap, &n_heap);
    }
    for (uint32_t i = 0; i != NO_SYMBOL; i = s[i].next) HR_TRY(push_symbol(bpe, s[i].id, ids));
    return HR_OK;
}

hr_status hr_bpe_encode(const hr_bpe *bpe, hr_bpe_scratch *scratch, const uint8_t *piece, size_t n, hr_ids *ids) {
    return n <= HR_BPE_SHORT ? encode_short(bpe, piece, n, ids) : hr_bpe_encode_heap(bpe, scratch, piece, n, ids);
}

void hr_bpe_scratch_fini(hr_bpe_scratch *scratch) {
    hr_free(scratch->symbols);
    hr_free(scratch->heap);
    *scratch = (hr_bpe_scratch){0};
}
