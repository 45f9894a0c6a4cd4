/* text_parts.h - the parts of a byte-level BPE tokenizer, for engine/text/ and its tests.
 *
 * Everything works on raw bytes: the printable alphabet in which files write bytes is undone at create. */
#ifndef HR_TEXT_PARTS_H
#define HR_TEXT_PARTS_H

#include "engine/text/tokenizer.h"
#include <stdatomic.h>

enum { HR_TOKEN_NORMAL = 1, HR_TOKEN_UNKNOWN, HR_TOKEN_CONTROL, HR_TOKEN_USER, HR_TOKEN_UNUSED, HR_TOKEN_BYTE };

/* ---- token_table.c: token bytes by id, ids by token bytes */

/* Open addressing; keys lie in the table that owns the index. */
typedef struct hr_index {
    uint64_t *slots; /* [mask + 1]: high half hash, low half id + 1; 0 empty */
    uint32_t mask;
} hr_index;

typedef struct hr_token_table {
    uint32_t n, longest; /* longest: bytes of the longest token */
    uint8_t *bytes;      /* [start[n]] */
    size_t *start;       /* [n + 1] */
    uint8_t *type;       /* [n] HR_TOKEN_* */
    hr_index words;      /* what plain text may become: all but control, unknown and empty tokens; the last of equals */
} hr_token_table;

hr_status hr_token_table_init(hr_token_table *table, const hr_vocab *vocab);
void hr_token_table_fini(hr_token_table *table);
/* Bytes that a file's text of an ordinary token stands for, into out [n]; returns how many (<= n). */
size_t hr_token_decode(hr_text text, uint8_t *out);

hr_status hr_index_init(hr_index *index, size_t capacity); /* room for `capacity` entries */
void hr_index_fini(hr_index *index);
void hr_index_put(hr_index *index, const hr_token_table *table, int32_t id); /* replaces an equal key */
int32_t hr_index_find(const hr_index *index, const hr_token_table *table, const uint8_t *s, size_t n); /* or -1 */

/* ---- bpe.c: merges by rank */

typedef struct hr_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX empty */
    uint32_t rank;
    int32_t id; /* what the two become */
} hr_merge;

typedef struct hr_ids {
    int32_t *v; /* [room] */
    size_t n, room;
} hr_ids;
hr_status hr_ids_push(hr_ids *ids, int32_t id);

typedef struct hr_bpe {
    hr_merge *merges; /* [mask + 1], open addressing */
    uint32_t mask;
    int32_t byte_id[256]; /* -1: the vocabulary has no token for this byte */
    int32_t unknown;      /* stands for such a byte; -1: it is left out */
} hr_bpe;

/* Memory of long pieces, kept between pieces of one text. */
typedef struct hr_symbol hr_symbol;
typedef struct hr_bpe_scratch {
    hr_symbol *symbols; /* [room] */
    uint64_t *heap;     /* [2 * room] rank << 32 | position */
    size_t room;
} hr_bpe_scratch;

/* Merges that name tokens which are not there, or make none, are left out; of equal pairs the first counts. */
hr_status hr_bpe_init(hr_bpe *bpe, const hr_token_table *table, const hr_vocab *vocab);
void hr_bpe_fini(hr_bpe *bpe);
/* Appends the tokens of one piece; pieces of at most HR_BPE_SHORT bytes are scanned, longer ones use the heap. */
enum { HR_BPE_SHORT = 32 };
hr_status hr_bpe_encode(const hr_bpe *bpe, hr_bpe_scratch *scratch, const uint8_t *piece, size_t n, hr_ids *ids);
hr_status hr_bpe_encode_heap(const hr_bpe *bpe, hr_bpe_scratch *scratch, const uint8_t *piece, size_t n, hr_ids *ids);
hr_status hr_bpe_push_byte(const hr_bpe *bpe, uint8_t byte, hr_ids *ids);
void hr_bpe_scratch_fini(hr_bpe_scratch *scratch);

/* ---- presplit.c: text into pieces that merges do not cross */

typedef struct hr_presplit hr_presplit;
typedef struct hr_presplit_kind {
    const char *name;
    const char *pattern;
    bool whole_pieces; /* a piece that is a token is taken whole, whatever the merges say */
} hr_presplit_kind;
const hr_presplit_kind *hr_presplit_find(hr_text pre); /* NULL: not known */
hr_status hr_presplit_create(const hr_presplit_kind *kind, hr_presplit **out);
void hr_presplit_destroy(hr_presplit *presplit);

typedef struct hr_splitter {
    const hr_presplit *presplit;
    void *match; /* one thread's match memory */
} hr_splitter;
hr_status hr_splitter_init(hr_splitter *splitter, const hr_presplit *presplit);
void hr_splitter_fini(hr_splitter *splitter);
/* End of the piece that starts at `at` of n bytes of valid UTF-8; always > at. */
hr_status hr_splitter_next(hr_splitter *splitter, const uint8_t *s, size_t n, size_t at, size_t *end);

/* ---- special.c: tokens that are written in the text as they are */

typedef struct hr_special {
    hr_index index;
    uint64_t pairs[1024]; /* bit b0 << 8 | b1: some token starts with these two bytes */
    uint32_t *lengths;    /* [n_lengths] of tokens, longest first */
    size_t n_lengths;
} hr_special;
typedef struct hr_special_hit {
    size_t at;
    int32_t id; /* -1: taken by a longer one */
} hr_special_hit;
typedef struct hr_special_hits {
    hr_special_hit *v; /* [n], by position */
    size_t n, room;
} hr_special_hits;

/* The tokens whose type is in the bit set `types` (bit HR_TOKEN_*). */
hr_status hr_special_init(hr_special *special, const hr_token_table *table, unsigned types);
void hr_special_fini(hr_special *special);
/* Longer tokens are taken first wherever they stand, equals from left to right. hits->v is hr_free'd by the caller, also
 * after an error. */
hr_status hr_special_search(const hr_special *special, const hr_token_table *table, const uint8_t *s, size_t n,
                            hr_special_hits *hits);

/* ---- the tokenizer */

struct hr_tokenizer {
    char name[64];
    uint32_t vocab;
    bool bytes_only; /* hr_tokenizer_create_bytes: nothing below is used */
    hr_token_table table;
    hr_bpe bpe;
    hr_presplit *presplit;
    bool whole_pieces;
    hr_special written, user; /* all special tokens; those that are matched always */
    _Atomic uint8_t *self;    /* [vocab] do a token's own bytes give that token: 0 not tried, 1 yes, 2 no */
    int32_t bos;
    bool add_bos;
    int32_t ends[16]; /* [n_ends] */
    size_t n_ends;
};

#endif
