/* The tokenizer on vocabularies small enough to know every answer, and on hostile ones. */
#include "hr_test.h"

#include "engine/text/text_parts.h"
#include "kernels/base/memory.h"
#include "vocab_made.h"
#include <pthread.h>

static hr_tokenizer *open_made(hr_made *m) {
    hr_tokenizer *t;
    if (hr_tokenizer_create(&m->vocab, &t) != HR_OK) print_error("%s\n", hr_error());
    assert_non_null(t);
    return t;
}

static void check(const hr_tokenizer *t, const char *text, size_t n, bool special, const int32_t *want, size_t n_want) {
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(hr_tokenize(t, text, n, true, special, &ids, &n_ids), HR_OK);
    for (size_t i = 0; i < n_ids && i < n_want; i++)
        if (ids[i] != want[i])
            fail_msg("'%.*s': index %zu: expected %d, got %d", (int)n, text, i, (int)want[i], (int)ids[i]);
    if (n_ids != n_want) fail_msg("'%.*s': expected %zu ids, got %zu", (int)n, text, n_want, n_ids);
    hr_free(ids);
}
#define CHECK(t, text, special, ...)                                                    \
    do {                                                                                \
        const int32_t want_[] = {__VA_ARGS__};                                          \
        check(t, text, sizeof(text) - 1, special, want_, sizeof want_ / sizeof *want_); \
    } while (0)

static void merges_by_rank(void **state) {
    (void)state;
    hr_made *m = hr_made_create("gpt-2", true);
    int32_t he = hr_made_word(m, "he"), ll = hr_made_word(m, "ll"), llo = hr_made_word(m, "llo");
    int32_t el = hr_made_word(m, "el"), w = hr_made_word(m, " w"), aa = hr_made_word(m, "aa");
    hr_made_merge(m, "l", "l");
    hr_made_merge(m, "e", "l"); /* later than l l: never used in "ell" */
    hr_made_merge(m, "h", "e");
    hr_made_merge(m, "ll", "o");
    hr_made_merge(m, " ", "w");
    hr_made_merge(m, "a", "a");
    hr_tokenizer *t = open_made(m);
    CHECK(t, "hello", false, he, llo);
    CHECK(t, "ell hell", false, 'e', ll, ' ', he, ll);
    CHECK(t, "el", false, el);
    CHECK(t, "a w", false, 'a', w);
    CHECK(t, "aaaaa", false, aa, aa, 'a'); /* of equal ranks the leftmost first */
    assert_string_equal(hr_tokenizer_name(t), "bpe/gpt-2");
    assert_int_equal(hr_tokenizer_vocab(t), 262);
    hr_tokenizer_destroy(t);
    free(m);
}

/* Tokens and merges over {a, b, c} drawn at random; the answer from the definition: again and again the pair of lowest
 * rank, leftmost first, by comparing strings. Short words, the heap and the whole tokenizer must all agree with it. */
static size_t merge_by_definition(const hr_made *m, const char *word, size_t n, size_t *starts) {
    size_t parts = n;
    for (size_t i = 0; i <= n; i++) starts[i] = i;
    for (;;) {
        size_t best = SIZE_MAX, where = 0;
        for (size_t i = 0; i + 1 < parts; i++) {
            size_t a = starts[i + 1] - starts[i], b = starts[i + 2] - starts[i + 1];
            for (size_t r = 0; r < m->vocab.n_merges && r < best; r++) {
                hr_text t = m->merges[r];
                if (t.n == a + b + 1 && memcmp(t.s, word + starts[i], a) == 0 && t.s[a] == ' ' &&
                    memcmp(t.s + a + 1, word + starts[i + 1], b) == 0)
                    best = r, where = i;
            }
        }
        if (best == SIZE_MAX) return parts;
        memmove(&starts[where + 1], &starts[where + 2], (parts - where - 1) * sizeof *starts);
        parts--;
    }
}

static void merges_agree_with_definition(void **state) {
    (void)state;
    uint64_t rng = 7;
#define DRAW(n) ((rng = rng * 6364136223846793005u + 1442695040888963407u), (size_t)((rng >> 33) % (n)))
    for (int round = 0; round < 40; round++) {
        hr_made *m = hr_made_create("gpt-2", true);
        for (int i = 0; i < 60; i++) { /* joins two known tokens, so that every merge gives a token */
            size_t known = m->vocab.n_tokens - 256 + 3, a = DRAW(known), b = DRAW(known);
            hr_text left = m->tokens[a < 3 ? 'a' + a : 253 + a], right = m->tokens[b < 3 ? 'a' + b : 253 + b];
            char l[32] = {0}, r[32] = {0}, both[64];
            if (left.n + right.n > 12) continue;
            memcpy(l, left.s, left.n);
            memcpy(r, right.s, right.n);
            snprintf(both, sizeof both, "%s%s", l, r);
            bool is_new = true;
            for (size_t k = 0; k < m->vocab.n_tokens; k++)
                is_new &= !(m->tokens[k].n == strlen(both) && memcmp(m->tokens[k].s, both, strlen(both)) == 0);
            if (is_new) hr_made_word(m, both);
            hr_made_merge(m, l, r);
        }
        hr_tokenizer *t = open_made(m);
        hr_bpe_scratch scratch = {0};
        for (int words = 0; words < 40; words++) {
            char word[100];
            size_t n = 1 + DRAW(words < 30 ? HR_BPE_SHORT : 99), starts[102];
            for (size_t i = 0; i < n; i++) word[i] = (char)('a' + DRAW(3));
            size_t parts = merge_by_definition(m, word, n, starts);
            for (int way = 0; way < 3; way++) {
                hr_ids ids = {0};
                const uint8_t *s = (const uint8_t *)word;
                if (way == 0) assert_int_equal(hr_bpe_encode(&t->bpe, &scratch, s, n, &ids), HR_OK);
                if (way == 1) assert_int_equal(hr_bpe_encode_heap(&t->bpe, &scratch, s, n, &ids), HR_OK);
                if (way == 2) assert_int_equal(hr_tokenize(t, word, n, false, false, &ids.v, &ids.n), HR_OK);
                assert_int_equal(ids.n, parts);
                for (size_t i = 0; i < parts; i++) {
                    hr_text got = m->tokens[ids.v[i]];
                    if (got.n != starts[i + 1] - starts[i] || memcmp(got.s, word + starts[i], got.n) != 0)
                        fail_msg("round %d, %.*s, way %d: index %zu: got %.*s", round, (int)n, word, way, i, (int)got.n,
                                 got.s);
                }
                hr_free(ids.v);
            }
        }
        hr_bpe_scratch_fini(&scratch);
        hr_tokenizer_destroy(t);
        free(m);
    }
}

static void pieces_of(const char *pre, const char *text, size_t n, const char *want) {
    hr_presplit *p;
    hr_splitter s;
    char got[512];
    size_t used = 0;
    assert_int_equal(hr_presplit_create(hr_presplit_find((hr_text){pre, strlen(pre)}), &p), HR_OK);
    assert_int_equal(hr_splitter_init(&s, p), HR_OK);
    for (size_t at = 0, end; at < n; at = end) {
        assert_int_equal(hr_splitter_next(&s, (const uint8_t *)text, n, at, &end), HR_OK);
        assert_true(end > at && end <= n && used + end - at + 1 < sizeof got);
        memcpy(got + used, text + at, end - at);
        used += end - at;
        got[used++] = '|';
    }
    got[used] = 0;
    if (strcmp(got, want) != 0) fail_msg("%s: expected %s, got %s", pre, want, got);
    hr_splitter_fini(&s);
    hr_presplit_destroy(p);
}
#define PIECES(pre, text, want) pieces_of(pre, text, sizeof(text) - 1, want)

static void splits_into_pieces(void **state) {
    (void)state;
    PIECES("gpt-2", "They'd've 12 a1!?  x \n", "They|'d|'ve| 12| a|1|!?| | x| \n|");
    PIECES("gpt-2", "DON'T", "DON|'|T|");
    PIECES("", "a  b", "a| | b|");
    PIECES("smollm", "x 12  3 y  z", "x| |1|2|  |3| y| | z|");
    PIECES("smollm", "It's 4's", "It|'s| |4|'s|");
    PIECES("smollm", "\xc2\xbd\xef\xbc\x94", "\xc2\xbd|\xef\xbc\x94|"); /* a half and a wide 4 are numbers too */
    PIECES("llama-bpe", "DON'T 12345 (x)\n\n y", "DON|'T| |123|45| (|x|)\n\n| y|");
    PIECES("llama3", " \n \t\n  x", " \n \t\n| | x|");
    PIECES("llama-v3", "tail   ", "tail|   |");
    PIECES("qwen2", "a 12\t\tb", "a| |1|2|\t|\tb|");
    /* U+3000 is a space; U+180E, since Unicode 6.3, is none */
    PIECES("gpt-2", "a\xe3\x80\x80\xe3\x80\x80 b", "a|\xe3\x80\x80\xe3\x80\x80| b|");
    PIECES("gpt-2", "a \xe1\xa0\x8e", "a| \xe1\xa0\x8e|");
    assert_null(hr_presplit_find((hr_text){"gpt", 3}));
}

static void whole_pieces_of_llama(void **state) {
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        hr_made *m = hr_made_create(llama ? "llama-bpe" : "qwen2", true);
        int32_t abc = hr_made_word(m, "abc"); /* no merge leads to it */
        hr_tokenizer *t = open_made(m);
        for (int again = 0; again < 2; again++) { /* the second time from what the first has learnt */
            if (llama)
                CHECK(t, "abc", false, abc);
            else
                CHECK(t, "abc", false, 'a', 'b', 'c');
        }
        hr_tokenizer_destroy(t);
        free(m);
    }
}

static void special_tokens(void **state) {
    (void)state;
    hr_made *m = hr_made_create("gpt-2", true);
    int32_t bos = hr_made_token(m, "<s>", 3, 3), end = hr_made_token(m, "<|im_end|>", 10, 3);
    int32_t user = hr_made_token(m, "<u>", 3, 4), longer = hr_made_token(m, "abcd", 4, 3);
    int32_t left = hr_made_token(m, "za", 2, 3), one = hr_made_token(m, "\xff", 1, 3);
    m->vocab.bos = bos, m->vocab.eos = bos, m->vocab.add_bos = true;
    hr_tokenizer *t = open_made(m);
    CHECK(t, "", true, bos);
    CHECK(t, "<s>x<u>", true, bos, bos, 'x', user);
    CHECK(t, "<s>x<u>", false, bos, '<', 's', '>', 'x', user);
    CHECK(t, "zabcd", true, bos, 'z', longer); /* the longer one first, though the shorter stands before it */
    CHECK(t, "zabc", true, bos, left, 'b', 'c');
    CHECK(t, "abcdabcd<|im_end|>", true, bos, longer, longer, end);
    CHECK(t, "<|im_end|", true, bos, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|');
    CHECK(t, "q\xff", true, bos, 'q', one);
    int32_t *ids;
    size_t n;
    assert_int_equal(hr_tokenize(t, "", 0, false, true, &ids, &n), HR_OK);
    assert_int_equal(n, 0);
    hr_free(ids);
    assert_true(hr_tokenizer_adds_bos(t));
    assert_int_equal(hr_tokenizer_bos(t), bos);
    assert_true(hr_tokenizer_is_end(t, bos) && hr_tokenizer_is_end(t, end));
    assert_false(hr_tokenizer_is_end(t, user) || hr_tokenizer_is_end(t, -1) || hr_tokenizer_is_end(t, 'a'));
    hr_tokenizer_destroy(t);
    free(m);
}

static void plain_text_never_becomes_control(void **state) {
    (void)state;
    hr_made *m = hr_made_create("llama-bpe", true);
    hr_made_token(m, "ab", 2, 3);
    hr_made_merge(m, "a", "b");
    hr_tokenizer *t = open_made(m);
    CHECK(t, "ab", false, 'a', 'b');
    CHECK(t, "ab", true, 256);
    hr_tokenizer_destroy(t);
    free(m);
}

static void invalid_utf8_byte_by_byte(void **state) {
    (void)state;
    hr_made *m = hr_made_create("llama-bpe", true);
    hr_tokenizer *t = open_made(m);
    CHECK(t, "\xff", false, 0xff);
    CHECK(t, "a\x80z", false, 'a', 0x80, 'z');
    CHECK(t, "\xc3", false, 0xc3);
    CHECK(t, "\xf0\x9f\x8d", false, 0xf0, 0x9f, 0x8d);
    CHECK(t, "\xed\xa0\x80", false, 0xed, 0xa0, 0x80);                     /* a surrogate */
    CHECK(t, "\xc0\xaf\xe0\x80\x80", false, 0xc0, 0xaf, 0xe0, 0x80, 0x80); /* overlong */
    CHECK(t, "\xf4\x90\x80\x80", false, 0xf4, 0x90, 0x80, 0x80);           /* above U+10FFFF */
    CHECK(t, "a\0b", false, 'a', 0, 'b');
    uint64_t rng = 3;
    for (int i = 0; i < 2000; i++) { /* every byte comes back, whatever the bytes are */
        char text[16];
        int32_t want[16];
        size_t n = DRAW(16);
        for (size_t k = 0; k < n; k++) {
            static const uint8_t likely[] = {0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x80, 0xc3, 'a', ' ', '\n'};
            text[k] = (char)(DRAW(3) ? likely[DRAW(sizeof likely)] : DRAW(256));
            want[k] = (uint8_t)text[k];
        }
        check(t, text, n, true, want, n);
    }
    hr_tokenizer_destroy(t);
    free(m);
}

static void missing_bytes(void **state) {
    (void)state;
    for (int with_unknown = 0; with_unknown < 2; with_unknown++) {
        hr_made *m = hr_made_create("gpt-2", false);
        int32_t a = hr_made_word(m, "a"), b = hr_made_word(m, "b");
        int32_t unknown = with_unknown ? hr_made_token(m, "<unk>", 5, 2) : -1;
        hr_tokenizer *t = open_made(m);
        if (with_unknown)
            CHECK(t, "axb\xff", false, a, unknown, b, unknown);
        else
            CHECK(t, "axb\xff", false, a, b);
        hr_tokenizer_destroy(t);
        free(m);
    }
    hr_made *m = hr_made_create("gpt-2", false);
    hr_tokenizer *t;
    hr_made_word(m, "word");
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_INPUT);
    assert_null(t);
    assert_non_null(strstr(hr_error(), "single byte"));
    free(m);
}

static void hostile_vocabularies(void **state) {
    (void)state;
    hr_made *m = hr_made_create("gpt-2", true);
    hr_tokenizer *t;
    hr_made_word(m, "ab");
    int32_t again = hr_made_word(m, "ab");
    hr_made_word(m, "");
    hr_made_token(m, "", 0, 3);
    hr_made_token(m, "\xc3\x28 \xff", 4, 4); /* no UTF-8, with a space */
    hr_made_token(m, "weird", 5, 99);
    hr_made_merge(m, "zz", "y"); /* of unknown tokens */
    hr_made_merge(m, "a", "z");  /* to an unknown token */
    hr_made_merge(m, "a", "b");
    hr_made_merge(m, "a", "b");
    t = open_made(m);
    CHECK(t, "abaz", false, again, 'a', 'z');
    CHECK(t, "weird", true, 'w', 'e', 'i', 'r', 'd');
    hr_tokenizer_destroy(t);

    static const hr_text broken[] = {{"", 0}, {"ab", 2}, {" a", 2}, {"a ", 2}, {" ", 1}};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        m->merges[1] = broken[i];
        assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_INPUT);
        assert_non_null(strstr(hr_error(), "merge 1 "));
    }
    m->vocab.n_merges = 0;
    m->vocab.types = NULL;
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_OK);
    hr_tokenizer_destroy(t);
    m->vocab.bos = (int32_t)m->vocab.n_tokens;
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "bos_token_id"));
    m->vocab.bos = -1, m->vocab.add_bos = true;
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_INPUT);
    m->vocab.add_bos = false, m->vocab.n_tokens = 0;
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_INPUT);
    m->vocab.pre = (hr_text){"tekken", 6};
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_UNSUPPORTED);
    assert_non_null(strstr(hr_error(), "tekken"));
    m->vocab.model = (hr_text){"llama", 5};
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_ERR_UNSUPPORTED);
    assert_non_null(hr_tokenizer_unsupported(m->vocab.model, m->vocab.pre));
    assert_null(hr_tokenizer_unsupported((hr_text){"gpt2", 4}, (hr_text){"qwen2", 5}));
    free(m);
}

/* Megabytes of one piece, one kind of character, or special tokens only: no recursion, no quadratic work. */
static void very_long_texts(void **state) {
    (void)state;
    static const char *const units[] = {" ", "a", "\n", "7", "\xf0\x9f\x8d\x95", "\xff", "<s>", " a\n", "'s", "<"};
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    const size_t bytes = (size_t)1 << 20;
    char *text = malloc(bytes + 8);
    for (size_t p = 0; p < sizeof pres / sizeof *pres; p++) {
        hr_made *m = hr_made_create(pres[p], true);
        hr_made_word(m, "aa"), hr_made_word(m, "aaaa"), hr_made_word(m, "  ");
        hr_made_merge(m, "a", "a"), hr_made_merge(m, "aa", "aa"), hr_made_merge(m, " ", " ");
        hr_made_token(m, "<s>", 3, 3);
        hr_tokenizer *t = open_made(m);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t length = strlen(units[u]), n = 0;
            for (; n < bytes; n += length) memcpy(text + n, units[u], length);
            int32_t *ids;
            size_t n_ids, back = 0;
            assert_int_equal(hr_tokenize(t, text, n, false, true, &ids, &n_ids), HR_OK);
            for (size_t i = 0; i < n_ids; i++) back += t->table.start[ids[i] + 1] - t->table.start[ids[i]];
            assert_int_equal(back, n);
            hr_free(ids);
        }
        hr_tokenizer_destroy(t);
        free(m);
    }
    free(text);
}

static void byte_tokenizer(void **state) {
    (void)state;
    hr_tokenizer *t;
    assert_int_equal(hr_tokenizer_create_bytes(1000, &t), HR_OK);
    CHECK(t, "A\xff\n", true, 'A', 255, '\n');
    assert_string_equal(hr_tokenizer_name(t), "bytes");
    assert_int_equal(hr_tokenizer_bos(t), -1);
    assert_false(hr_tokenizer_is_end(t, 0));
    hr_detok *d;
    size_t n;
    assert_int_equal(hr_detok_create(t, false, &d), HR_OK);
    const char *s = hr_detok_feed(d, 256 + 'A', &n);
    assert_true(n == 1 && s[0] == 'A');
    hr_detok_destroy(d);
    hr_tokenizer_destroy(t);
    assert_int_equal(hr_tokenizer_create_bytes(100, &t), HR_OK);
    CHECK(t, "A\xff", true, 65, 255 % 100);
    hr_tokenizer_destroy(t);
    assert_int_equal(hr_tokenizer_create_bytes(0, &t), HR_ERR_INPUT);
    assert_null(t);
}

/* Each allocation of create and of tokenizing fails once: out of memory is said, and nothing leaks (ASan looks). */
static void out_of_memory(void **state) {
    (void)state;
    hr_made *m = hr_made_create("llama-bpe", true);
    hr_made_token(m, "<s>", 3, 3);
    hr_made_word(m, "aa");
    hr_made_merge(m, "a", "a");
    size_t failures = 0;
    for (uint64_t nth = 1;; nth++) {
        hr_tokenizer *t = NULL;
        hr_detok *d = NULL;
        int32_t *ids = NULL;
        size_t n;
        char text[300];
        memset(text, 'b', sizeof text);
        memcpy(text, "aaa <s>", 7);
        uint64_t before = hr_alloc_count();
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        hr_status status = hr_tokenizer_create(&m->vocab, &t);
        if (status == HR_OK) status = hr_tokenize(t, text, sizeof text, false, true, &ids, &n);
        if (status == HR_OK) status = hr_detok_create(t, true, &d);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        bool reached = hr_alloc_count() - before >= nth;
        hr_detok_destroy(d);
        hr_free(ids);
        hr_tokenizer_destroy(t);
        if (!reached) break;
        if (status != HR_OK) assert_int_equal(status, HR_ERR_MEMORY); /* PCRE2 does without its JIT's memory */
        failures += status != HR_OK;
    }
    assert_true(failures > 15);
    free(m);
}

static void *tokenize_much(void *context) {
    const hr_tokenizer *t = context;
    for (int i = 0; i < 200; i++) {
        int32_t *ids;
        size_t n;
        if (hr_tokenize(t, "aa ab aa", 8, false, true, &ids, &n) != HR_OK || n != 5) return context;
        hr_free(ids);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    hr_made *m = hr_made_create("gpt-2", true);
    hr_made_word(m, "aa"), hr_made_word(m, " aa");
    hr_made_merge(m, "a", "a"), hr_made_merge(m, " ", "aa");
    hr_tokenizer *t = open_made(m);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, tokenize_much, t), 0);
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    hr_tokenizer_destroy(t);
    free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank),
        cmocka_unit_test(merges_agree_with_definition),
        cmocka_unit_test(splits_into_pieces),
        cmocka_unit_test(whole_pieces_of_llama),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(plain_text_never_becomes_control),
        cmocka_unit_test(missing_bytes),
        cmocka_unit_test(invalid_utf8_byte_by_byte),
        cmocka_unit_test(hostile_vocabularies),
        cmocka_unit_test(very_long_texts),
        cmocka_unit_test(byte_tokenizer),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
