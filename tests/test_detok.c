/* Tokens to text: characters come out whole, wherever tokens cut them. */
#include "hr_test.h"

#include "engine/text/text_parts.h"
#include "kernels/base/memory.h"
#include "vocab_made.h"

#define BAD "\xef\xbf\xbd" /* U+FFFD */

static hr_tokenizer *open_bytes(void) {
    hr_tokenizer *t;
    assert_int_equal(hr_tokenizer_create_bytes(256, &t), HR_OK);
    return t;
}

/* Is all of it whole characters? Counted by lead bytes, without the code under test. */
static bool is_whole(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint8_t c = (uint8_t)s[i];
        size_t length = c < 0x80 ? 1 : c < 0xc0 ? 99 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (i + length > n) return false;
        for (size_t k = 1; k < length; k++)
            if (((uint8_t)s[i + k] & 0xc0) != 0x80) return false;
        i += length;
    }
    return true;
}

static void expect_bytes(const hr_tokenizer *t, const char *bytes, size_t n, const char *want) {
    hr_detok *d;
    char got[256];
    size_t used = 0, part;
    assert_int_equal(hr_detok_create(t, false, &d), HR_OK);
    for (size_t i = 0; i <= n; i++) {
        const char *s = i < n ? hr_detok_feed(d, (uint8_t)bytes[i], &part) : hr_detok_flush(d, &part);
        if (!is_whole(s, part)) fail_msg("byte %zu of %zu gave half a character", i, n);
        memcpy(got + used, s, part);
        used += part;
    }
    got[used] = 0;
    if (strcmp(got, want) != 0) fail_msg("expected '%s', got '%s'", want, got);
    hr_detok_flush(d, &part);
    assert_int_equal(part, 0);
    hr_detok_destroy(d);
}

static const char TEXT[] = "I \xe2\x9d\xa4\xef\xb8\x8f \xf0\x9f\x8d\x95 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb "
                           "\xe6\x97\xa5\xe6\x9c\xac \xc3\xa9";

static void byte_by_byte(void **state) {
    (void)state;
    hr_tokenizer *t = open_bytes();
    expect_bytes(t, TEXT, sizeof TEXT - 1, TEXT);
    expect_bytes(t, "", 0, "");
    hr_tokenizer_destroy(t);
}

/* Every way to cut a text into three tokens. */
static void every_split(void **state) {
    (void)state;
    const size_t n = sizeof TEXT - 1;
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            hr_made *m = hr_made_create("gpt-2", true);
            int32_t ids[3] = {hr_made_token(m, TEXT, a, 1), hr_made_token(m, TEXT + a, b - a, 1),
                              hr_made_token(m, TEXT + b, n - b, 1)};
            m->vocab.n_merges = 0;
            hr_token_table table;
            assert_int_equal(hr_token_table_init(&table, &m->vocab), HR_OK);
            hr_tokenizer t = {.vocab = table.n, .table = table}; /* what the detokenizer uses */
            hr_detok *d;
            char got[128];
            size_t used = 0, part;
            assert_int_equal(hr_detok_create(&t, false, &d), HR_OK);
            for (int i = 0; i < 4; i++) {
                const char *s = i < 3 ? hr_detok_feed(d, ids[i], &part) : hr_detok_flush(d, &part);
                if (!is_whole(s, part)) fail_msg("cut at %zu and %zu: token %d gave half a character", a, b, i);
                memcpy(got + used, s, part);
                used += part;
            }
            assert_int_equal(used, n);
            assert_memory_equal(got, TEXT, n);
            hr_detok_destroy(d);
            hr_token_table_fini(&table);
            free(m);
        }
}

/* One U+FFFD for each longest start of a character that cannot go on (Unicode 3.9, "maximal subparts"). */
static void invalid_bytes(void **state) {
    (void)state;
    hr_tokenizer *t = open_bytes();
    expect_bytes(t, "a\xff z", 4, "a" BAD " z");
    expect_bytes(t, "\x80\x80", 2, BAD BAD);
    expect_bytes(t, "\xf0\x9f\x8dz", 4, BAD "z");
    expect_bytes(t, "\xf0\x9f\x8d", 3, BAD);
    expect_bytes(t, "\xe2\x82\xe2\x82\xac", 5, BAD "\xe2\x82\xac");
    expect_bytes(t, "\xe0\x80\xaf", 3, BAD BAD BAD);
    expect_bytes(t, "\xed\xa0\x80", 3, BAD BAD BAD);
    expect_bytes(t, "\xf4\x90\x80\x80", 4, BAD BAD BAD BAD);
    expect_bytes(t, "\xc0\xaf", 2, BAD BAD);
    hr_tokenizer_destroy(t);
}

static void special_tokens_hidden_or_shown(void **state) {
    (void)state;
    hr_made *m = hr_made_create("gpt-2", true);
    int32_t control = hr_made_token(m, "<|end|>", 7, 3), user = hr_made_token(m, "<u>", 3, 4);
    int32_t unknown = hr_made_token(m, "<unk>", 5, 2), space = hr_made_word(m, " word");
    hr_tokenizer *t;
    assert_int_equal(hr_tokenizer_create(&m->vocab, &t), HR_OK);
    const int32_t ids[] = {'a', control, user, space, unknown, 0xf0, 0x9f, control, 'z', -1, 99999, 0xc3};
    for (int show = 0; show < 2; show++) {
        const char *want = show ? "a<|end|><u> word<unk>" BAD "<|end|>z" BAD : "a<u> word" BAD "z" BAD;
        hr_detok *d;
        char got[256];
        size_t used = 0, part;
        assert_int_equal(hr_detok_create(t, show, &d), HR_OK);
        for (size_t i = 0; i <= sizeof ids / sizeof *ids; i++) {
            bool last = i == sizeof ids / sizeof *ids;
            const char *s = last ? hr_detok_flush(d, &part) : hr_detok_feed(d, ids[i], &part);
            memcpy(got + used, s, part);
            used += part;
        }
        got[used] = 0;
        assert_string_equal(got, want);
        hr_detok_destroy(d);
    }
    hr_tokenizer_destroy(t);
    free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(every_split),
        cmocka_unit_test(invalid_bytes),
        cmocka_unit_test(special_tokens_hidden_or_shown),
    };
    return cmocka_run_group_tests_name("detokenizer", tests, NULL, NULL);
}
