/* Token ids against those recorded from llama.cpp (golden/README.md), for whole vocabularies. */
#include "hr_test.h"

#include "engine/engine.h"
#include "kernels/base/memory.h"
#include "real_model.h"
#include <jansson.h>
#include <stdlib.h>

static json_t *load_json(const char *path) {
    json_error_t error;
    json_t *j = json_load_file(path, 0, &error);
    if (!j) print_error("%s: %s\n", path, error.text);
    assert_non_null(j);
    return j;
}

static void check_ids(const hr_tokenizer *t, const char *what, const char *text, size_t n, bool add_bos, bool special,
                      const int32_t *want, size_t n_want) {
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(hr_tokenize(t, text, n, add_bos, special, &ids, &n_ids), HR_OK);
    for (size_t i = 0; i < n_ids || i < n_want; i++) {
        int32_t got = i < n_ids ? ids[i] : -1, expected = i < n_want ? want[i] : -1;
        if (got == expected) continue;
        print_error("%s, special %s: index %zu: expected %d of %zu ids, got %d of %zu\n", what,
                    special ? "parsed" : "as text", i, (int)expected, n_want, (int)got, n_ids);
        fail();
    }
    hr_free(ids);
}

static void check_golden(const hr_tokenizer *t, const char *path) {
    json_t *prompts = load_json("tests/golden/prompts.json"), *golden = load_json(path), *prompt;
    size_t i, cases = 0;
    json_array_foreach(prompts, i, prompt) {
        const char *name = json_string_value(json_object_get(prompt, "name"));
        json_t *text = json_object_get(prompt, "text"), *answers = json_object_get(golden, name);
        assert_non_null(answers);
        for (int special = 0; special < 2; special++) {
            json_t *list = json_object_get(answers, special ? "parse_special" : "no_parse_special");
            assert_true(json_is_array(list));
            int32_t want[4096];
            size_t n = json_array_size(list);
            assert_true(n <= 4096);
            for (size_t k = 0; k < n; k++) want[k] = (int32_t)json_integer_value(json_array_get(list, k));
            check_ids(t, name, json_string_value(text), json_string_length(text), true, special, want, n);
            cases++;
        }
    }
    assert_true(cases >= 24);
    json_decref(prompts);
    json_decref(golden);
}

/* Folder of the vocabularies; fetched at the first use. */
static const char *vocab_folder(void) {
    static char line[1024];
    if (line[0]) return line;
    FILE *pipe = popen("tests/fetch_vocabs.sh", "r");
    assert_non_null(pipe);
    if (!fgets(line, sizeof line, pipe)) line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    int status = pclose(pipe);
    if (status != 0) {
        char reason[1024];
        memcpy(reason, line, sizeof line);
        line[0] = 0;
        hr_skip("%s", reason);
    }
    return line;
}

static hr_tokenizer *open_vocab(const char *name) {
    char path[1200];
    hr_tokenizer *t;
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf", vocab_folder(), name);
    if (hr_tokenizer_open(path, &t) != HR_OK) print_error("%s\n", hr_error());
    assert_non_null(t);
    return t;
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    assert_int_equal(fread(text, 1, *n, f), *n);
    text[*n] = 0;
    fclose(f);
    return text;
}

/* The .inp/.out pairs: cases end with a line of their own; one line of ids a case; no special tokens parsed. */
static void check_pairs(const hr_tokenizer *t, const char *name) {
    static const char MARK[] = "\n__ggml_vocab_test__\n";
    char path[1200];
    size_t n_in, n_out, cases = 0;
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.inp", vocab_folder(), name);
    char *in = read_file(path, &n_in);
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.out", vocab_folder(), name);
    char *out = read_file(path, &n_out), *line = out;
    for (char *at = in; at < in + n_in;) {
        char *end = strstr(at, MARK);
        if (!end) break;
        int32_t want[4096];
        size_t n = 0;
        char *stop = strchr(line, '\n');
        assert_non_null(stop);
        *stop = 0;
        for (char *p = line, *q; n < 4096; p = q) {
            want[n] = (int32_t)strtol(p, &q, 10);
            if (p == q) break;
            n++;
        }
        line = stop + 1;
        *end = 0;
        check_ids(t, at, at, (size_t)(end - at), false, false, want, n);
        at = end + sizeof MARK - 1;
        cases++;
    }
    assert_true(cases > 40);
    free(in);
    free(out);
}

/* Feeding token by token gives the text back: emoji, CJK and combining marks are cut by these vocabularies. */
static void check_roundtrip(const hr_tokenizer *t) {
    json_t *prompts = load_json("tests/golden/prompts.json"), *prompt;
    size_t i;
    json_array_foreach(prompts, i, prompt) {
        json_t *text = json_object_get(prompt, "text");
        size_t n = json_string_length(text), n_ids, used = 0, part;
        int32_t *ids;
        hr_detok *d;
        char *back = malloc(n + 16);
        assert_int_equal(hr_tokenize(t, json_string_value(text), n, false, false, &ids, &n_ids), HR_OK);
        assert_int_equal(hr_detok_create(t, false, &d), HR_OK);
        for (size_t k = 0; k <= n_ids; k++) {
            const char *s = k < n_ids ? hr_detok_feed(d, ids[k], &part) : hr_detok_flush(d, &part);
            assert_true(used + part <= n);
            memcpy(back + used, s, part);
            used += part;
            back[used] = 0;
            json_t *whole = json_stringn(back, used); /* NULL unless valid UTF-8: never half a character */
            assert_non_null(whole);
            json_decref(whole);
        }
        assert_int_equal(used, n);
        assert_memory_equal(back, json_string_value(text), n);
        hr_detok_destroy(d);
        hr_free(ids);
        free(back);
    }
    json_decref(prompts);
}

static void check_vocab(const char *name) {
    hr_tokenizer *t = open_vocab(name);
    char path[256];
    snprintf(path, sizeof path, "tests/golden/vocab/ggml-vocab-%s.json", name);
    check_golden(t, path);
    check_pairs(t, name);
    check_roundtrip(t);
    hr_tokenizer_destroy(t);
}

static void gpt2_ids(void **state) {
    (void)state;
    check_vocab("gpt-2");
}
static void llama_bpe_ids(void **state) {
    (void)state;
    check_vocab("llama-bpe");
}
static void qwen2_ids(void **state) {
    (void)state;
    check_vocab("qwen2");
}

static void smollm_ids(void **state) {
    (void)state;
    char reason[256];
    const char *path = hr_real_model(reason, sizeof reason);
    if (!path) hr_skip("%s", reason);
    hr_tokenizer *t;
    if (hr_tokenizer_open(path, &t) != HR_OK) print_error("%s\n", hr_error());
    assert_non_null(t);
    check_golden(t, "tests/golden/smollm2-135m-q4_1/tokens.json");
    check_roundtrip(t);
    hr_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_ids),
        cmocka_unit_test(llama_bpe_ids),
        cmocka_unit_test(qwen2_ids),
        cmocka_unit_test(smollm_ids),
    };
    return cmocka_run_group_tests_name("tokenizer against recorded ids", tests, NULL, NULL);
}
