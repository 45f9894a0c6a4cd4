/* test_gguf.c - GGUF files: sound ones give their values, broken ones one line that names file and field. */
#include "tests/hr_test.h"

#include "engine/model/gguf.h"
#include "kernels/base/memory.h"
#include "tests/gguf_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parses a finished file in memory of exactly its size, so that a sanitizer sees any byte read beyond it. */
static hr_status parse(gw *w, hr_gguf **out, uint8_t **bytes) {
    size_t n;
    *bytes = gw_finish(w, &n);
    return hr_gguf_parse_memory(*bytes, n, "test.gguf", out);
}

static void values_of_all_types(void **state) {
    (void)state;
    gw w = {0};
    gw_raw(&w, "u8", GW_U8, &(uint8_t){200}, 1);
    gw_raw(&w, "i8", GW_I8, &(int8_t){5}, 1);
    gw_raw(&w, "u16", GW_U16, &(uint16_t){60000}, 2);
    gw_raw(&w, "u64", GW_U64, &(uint64_t){4294967295u}, 8);
    gw_raw(&w, "i64", GW_I64, &(int64_t){77}, 8);
    gw_raw(&w, "f64", GW_F64, &(double){0.25}, 8);
    gw_f32(&w, "f32", 1.5f);
    gw_bool(&w, "yes", true);
    gw_str(&w, "text", "h\xc3\xa9llo");
    gw_strs(&w, "texts", (const char *[]){"a", "", "long one"}, 3);
    gw_ints(&w, "ints", (int32_t[]){-1, 2}, 2);
    float x[6] = {1, 2, 3, 4, 5, 6};
    gw_tensor(&w, "t", GW_T_F32, 2, (uint64_t[]){3, 2}, x, sizeof x);
    hr_gguf *g;
    uint8_t *bytes;
    assert_int_equal(parse(&w, &g, &bytes), HR_OK);
    static const struct {
        const char *key;
        uint32_t value;
    } ints[] = {{"u8", 200}, {"i8", 5}, {"u16", 60000}, {"u64", 4294967295u}, {"i64", 77}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        uint32_t v = 0;
        assert_int_equal(hr_gguf_get_u32(g, ints[i].key, &v), HR_OK);
        assert_int_equal(v, ints[i].value);
    }
    float f = 0, d = 0;
    bool yes = false;
    hr_text text = {0}, *texts;
    int32_t *list;
    size_t n;
    assert_int_equal(hr_gguf_get_f32(g, "f32", &f), HR_OK);
    assert_int_equal(hr_gguf_get_f32(g, "f64", &d), HR_OK);
    assert_true(f == 1.5f && d == 0.25f);
    assert_int_equal(hr_gguf_get_bool(g, "yes", &yes), HR_OK);
    assert_true(yes);
    assert_int_equal(hr_gguf_get_text(g, "text", &text), HR_OK);
    assert_true(hr_text_is(text, "h\xc3\xa9llo"));
    assert_int_equal(hr_gguf_get_texts(g, "texts", &texts, &n), HR_OK);
    assert_int_equal(n, 3);
    assert_true(hr_text_is(texts[0], "a") && hr_text_is(texts[1], "") && hr_text_is(texts[2], "long one"));
    hr_free(texts);
    assert_int_equal(hr_gguf_get_ints(g, "ints", &list, &n), HR_OK);
    assert_true(n == 2 && list[0] == -1 && list[1] == 2);
    hr_free(list);
    uint32_t untouched = 9;
    assert_int_equal(hr_gguf_get_u32(g, "absent", &untouched), HR_OK);
    assert_int_equal(untouched, 9);
    const hr_gguf_tensor *t = hr_gguf_tensor_find(g, "t");
    assert_non_null(t);
    assert_true(t->dims[0] == 3 && t->dims[1] == 2 && t->elems == 6 && t->bytes == 24);
    assert_memory_equal(t->data, x, sizeof x);
    assert_null(hr_gguf_tensor_find(g, "t2"));
    hr_gguf_close(g);
    free(bytes);
}

static void wrong_value_types_are_named(void **state) {
    (void)state;
    gw w = {0};
    gw_str(&w, "s", "x");
    gw_raw(&w, "minus", GW_I32, &(int32_t){-3}, 4);
    gw_raw(&w, "big", GW_U64, &(uint64_t){1ull << 40}, 8);
    gw_raw(&w, "flag", GW_BOOL, &(uint8_t){7}, 1);
    gw_u32(&w, "n", 1);
    hr_gguf *g;
    uint8_t *bytes;
    assert_int_equal(parse(&w, &g, &bytes), HR_OK);
    uint32_t u;
    float f;
    bool b;
    hr_text t, *ts;
    int32_t *is;
    size_t n;
#define REFUSED(call, word)                               \
    do {                                                  \
        assert_int_equal(call, HR_ERR_INPUT);             \
        assert_non_null(strstr(hr_error(), "test.gguf")); \
        assert_non_null(strstr(hr_error(), word));        \
    } while (0)
    REFUSED(hr_gguf_get_u32(g, "s", &u), "key 's' is of type string, expected an integer");
    REFUSED(hr_gguf_get_u32(g, "minus", &u), "key 'minus' is -3");
    REFUSED(hr_gguf_get_u32(g, "big", &u), "key 'big' is 1099511627776");
    REFUSED(hr_gguf_get_f32(g, "n", &f), "expected a float");
    REFUSED(hr_gguf_get_bool(g, "n", &b), "expected a bool");
    REFUSED(hr_gguf_get_bool(g, "flag", &b), "value 7");
    REFUSED(hr_gguf_get_text(g, "n", &t), "expected a string");
    REFUSED(hr_gguf_get_texts(g, "n", &ts, &n), "expected a string array");
    REFUSED(hr_gguf_get_ints(g, "s", &is, &n), "expected an i32 array");
    hr_gguf_close(g);
    free(bytes);
}

/* ---- broken files ------------------------------------------------------------------------------------------------- */

static void small(gw *w, const char *name) {
    gw_tensor(w, name, GW_T_F32, 1, (uint64_t[]){8}, NULL, 32);
}

static void b_version(gw *w) {
    w->version = 0x7fffffff;
}
static void b_version1(gw *w) {
    w->version = 1;
}
static void b_big_endian(gw *w) {
    w->version = 0x03000000;
}
static void b_n_kv(gw *w) {
    w->claim_kv = UINT64_MAX;
}
static void b_n_kv_one_more(gw *w) {
    gw_u32(w, "a", 1), w->claim_kv = 2;
}
static void b_n_tensors(gw *w) {
    w->claim_tensors = UINT64_MAX;
}
static void b_n_tensors_one_more(gw *w) {
    small(w, "a"), w->claim_tensors = 2;
}
static void b_value_type(gw *w) {
    gw_raw(w, "k", 13, "", 1);
}
static void b_array_of_arrays(gw *w) {
    gw_raw(w, "k", GW_ARR, "\x09\0\0\0\1\0\0\0\0\0\0\0", 12);
}
static void b_array_elem(gw *w) {
    gw_raw(w, "k", GW_ARR, "\x63\0\0\0\1\0\0\0\0\0\0\0", 12);
}
static void b_array_n(gw *w) {
    gw_raw(w, "k", GW_ARR, "\x04\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 12);
}
static void b_array_strings(gw *w) {
    gw_raw(w, "k", GW_ARR, "\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", 12);
}
static void b_string_length(gw *w) {
    gw_raw(w, "k", GW_STR, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
}
static void b_two_keys(gw *w) {
    gw_u32(w, "k", 1), gw_u32(w, "j", 1), gw_u32(w, "k", 2);
}
static void b_two_tensors(gw *w) {
    small(w, "a"), small(w, "b"), small(w, "a");
}
static void b_alignment_0(gw *w) {
    gw_u32(w, "general.alignment", 0);
}
static void b_alignment_48(gw *w) {
    gw_u32(w, "general.alignment", 48);
}
static void b_alignment_type(gw *w) {
    gw_str(w, "general.alignment", "32");
}
static void b_split(gw *w) {
    gw_raw(w, "split.count", GW_U16, &(uint16_t){4}, 2);
}
static void b_dims_0(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 0, NULL, NULL, 32);
}
static void b_dims_5(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 5, (uint64_t[]){1, 1, 1, 1, 1}, NULL, 32);
}
static void b_zero_dim(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 2, (uint64_t[]){8, 0}, NULL, 32);
}
static void b_dim_product(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 2, (uint64_t[]){1ull << 33, 1ull << 33}, NULL, 32);
}
static void b_dim_sign(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 1, (uint64_t[]){1ull << 63}, NULL, 32);
}
static void b_bytes(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 1, (uint64_t[]){(1ull << 62) + 8}, NULL, 32);
}
static void b_type(gw *w) {
    gw_tensor(w, "a", 99, 1, (uint64_t[]){8}, NULL, 32);
}
static void b_type_gap(gw *w) {
    gw_tensor(w, "a", 4, 1, (uint64_t[]){32}, NULL, 32);
}
static void b_block(gw *w) {
    gw_tensor(w, "a", GW_T_Q8_0, 1, (uint64_t[]){40}, NULL, 34);
}
static void b_beyond(gw *w) {
    gw_tensor(w, "a", GW_T_F32, 1, (uint64_t[]){9}, NULL, 32);
}
static void b_offset(gw *w) {
    small(w, "a"), w->offset_shift = 8, small(w, "b");
}
static void b_offset_beyond(gw *w) {
    w->offset_shift = 1ull << 40, small(w, "a");
}
static void b_offset_wraps(gw *w) {
    w->offset_shift = 0xffffffffffffffe0u, small(w, "a");
}
static void b_overlap(gw *w) {
    small(w, "a"), w->offset_shift = (uint64_t)-32, small(w, "b");
}

static const struct {
    const char *what;
    void (*build)(gw *w);
    hr_status status;
    const char *word;
} broken[] = {
    {"version", b_version, HR_ERR_UNSUPPORTED, "version 2147483647"},
    {"version 1", b_version1, HR_ERR_UNSUPPORTED, "version 1"},
    {"big-endian", b_big_endian, HR_ERR_UNSUPPORTED, "big-endian"},
    {"number of keys", b_n_kv, HR_ERR_INPUT, "18446744073709551615 keys"},
    {"one key more", b_n_kv_one_more, HR_ERR_INPUT, "key 1 has an empty name"},
    {"number of tensors", b_n_tensors, HR_ERR_INPUT, "18446744073709551615 tensors"},
    {"one tensor more", b_n_tensors_one_more, HR_ERR_INPUT, "tensor 1 has an empty name"},
    {"value type", b_value_type, HR_ERR_INPUT, "key 'k' has the unknown value type 13"},
    {"array of arrays", b_array_of_arrays, HR_ERR_INPUT, "array 'k'"},
    {"array element", b_array_elem, HR_ERR_INPUT, "array 'k' has elements of type 99"},
    {"array length", b_array_n, HR_ERR_INPUT, "key 'k' claims"},
    {"array of strings", b_array_strings, HR_ERR_INPUT, "key 'k' claims"},
    {"string length", b_string_length, HR_ERR_INPUT, "string of key 0 claims"},
    {"two keys", b_two_keys, HR_ERR_INPUT, "key 'k' stands twice"},
    {"two tensors", b_two_tensors, HR_ERR_INPUT, "tensor 'a' stands twice"},
    {"alignment 0", b_alignment_0, HR_ERR_INPUT, "general.alignment is 0"},
    {"alignment 48", b_alignment_48, HR_ERR_INPUT, "general.alignment is 48"},
    {"alignment type", b_alignment_type, HR_ERR_INPUT, "'general.alignment' is of type string"},
    {"split", b_split, HR_ERR_UNSUPPORTED, "4 files of a split model (split.count)"},
    {"no dimension", b_dims_0, HR_ERR_INPUT, "tensor 'a' has 0 dimensions"},
    {"five dimensions", b_dims_5, HR_ERR_INPUT, "tensor 'a' has 5 dimensions"},
    {"zero dimension", b_zero_dim, HR_ERR_INPUT, "tensor 'a': dimension 1 is 0"},
    {"product of dimensions", b_dim_product, HR_ERR_INPUT, "tensor 'a': the product of its dimensions overflows"},
    {"dimension of 2^63", b_dim_sign, HR_ERR_INPUT, "tensor 'a': the product of its dimensions overflows"},
    {"bytes", b_bytes, HR_ERR_INPUT, "tensor 'a': its size in bytes overflows"},
    {"tensor type", b_type, HR_ERR_UNSUPPORTED, "tensor 'a' has the unknown type 99"},
    {"dropped tensor type", b_type_gap, HR_ERR_UNSUPPORTED, "tensor 'a' has the unknown type 4"},
    {"block", b_block, HR_ERR_INPUT, "tensor 'a': rows of 40 elements are no multiple of the Q8_0 block of 32"},
    {"beyond the end", b_beyond, HR_ERR_INPUT, "tensor 'a' (36 bytes) lies beyond the end"},
    {"offset alignment", b_offset, HR_ERR_INPUT, "tensor 'b' lies at offset 40"},
    {"offset beyond", b_offset_beyond, HR_ERR_INPUT, "tensor 'a' (32 bytes) lies beyond the end"},
    {"offset that wraps", b_offset_wraps, HR_ERR_INPUT, "tensor 'a' (32 bytes) lies beyond the end"},
    {"overlap", b_overlap, HR_ERR_INPUT, "tensors '"},
};

static void broken_files_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        gw w = {0};
        broken[i].build(&w);
        hr_gguf *g;
        uint8_t *bytes;
        hr_status status = parse(&w, &g, &bytes);
        free(bytes);
        if (status != broken[i].status || !strstr(hr_error(), "test.gguf: ") || !strstr(hr_error(), broken[i].word) ||
            g) {
            fail_msg("%s: expected status %d and '%s', got %d and '%s'", broken[i].what, broken[i].status,
                     broken[i].word, status, hr_error());
        }
    }
}

static void not_gguf_at_all(void **state) {
    (void)state;
    hr_gguf *g;
    assert_int_equal(hr_gguf_parse_memory("GGML\3\0\0\0", 8, "x.gguf", &g), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "x.gguf: is no GGUF file"));
    assert_int_equal(hr_gguf_parse_memory("GG", 2, "x.gguf", &g), HR_ERR_INPUT);
    assert_int_equal(hr_gguf_parse_memory("GGUF\3\0\0\0", 8, "x.gguf", &g), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "ends within header field 1"));
}

/* The last tensor ends with the file, so that no prefix is sound. Each is parsed in memory of its own size. */
static void every_truncation_is_refused(void **state) {
    (void)state;
    gw w = {0};
    gw_llama_keys(&w);
    gw_strs(&w, "tokenizer.ggml.tokens", (const char *[]){"a", "b", "c"}, 3);
    small(&w, "a"), small(&w, "b");
    size_t n;
    uint8_t *bytes = gw_finish(&w, &n);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *part = malloc(cut ? cut : 1);
        assert_non_null(part);
        memcpy(part, bytes, cut);
        hr_gguf *g;
        hr_status status = hr_gguf_parse_memory(part, cut, "cut.gguf", &g);
        if (status != HR_ERR_INPUT || g)
            fail_msg("%zu of %zu bytes: status %d, expected %d", cut, n, status, HR_ERR_INPUT);
        free(part);
    }
    free(bytes);
}

/* Every byte of the header set to four values: whatever the parser says, it reads nothing outside (sanitizers), and a
 * file that it accepts keeps the promises of gguf.h. */
static void damaged_bytes_never_break_the_promises(void **state) {
    (void)state;
    gw w = {0};
    gw_llama_keys(&w);
    gw_strs(&w, "tokenizer.ggml.tokens", (const char *[]){"a", "b", "c"}, 3);
    small(&w, "a"), small(&w, "b");
    size_t n;
    uint8_t *bytes = gw_finish(&w, &n);
    unsigned accepted = 0;
    for (size_t at = 0; at < n - 64; at++) {
        for (unsigned k = 0; k < 4; k++) {
            uint8_t old = bytes[at];
            bytes[at] = (uint8_t[]){0, 0xff, old ^ 1, old ^ 0x80}[k];
            hr_gguf *g;
            if (hr_gguf_parse_memory(bytes, n, "x", &g) == HR_OK) {
                accepted++;
                for (size_t i = 0; i < g->n_tensors; i++) {
                    const hr_gguf_tensor *t = &g->tensors[i];
                    assert_true((const uint8_t *)t->data >= bytes);
                    assert_true((const uint8_t *)t->data + t->bytes <= bytes + n);
                    assert_true(t->elems > 0);
                }
            }
            hr_gguf_close(g);
            bytes[at] = old;
        }
    }
    assert_true(accepted > 0); /* letters of names may change */
    free(bytes);
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

static char folder[64];

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hr_test_gguf_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    static const char *const files[] = {"ok.gguf", "empty.gguf", "secret.gguf", "pipe.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(path_of(files[i]));
    return rmdir(folder);
}

static void expect_open_fails(const char *path, hr_status expected, const char *word) {
    hr_gguf *g;
    hr_status status = hr_gguf_open(path, &g);
    if (status != expected || !strstr(hr_error(), path) || !strstr(hr_error(), word))
        fail_msg("%s: expected status %d and '%s', got %d and '%s'", path, expected, word, status, hr_error());
    assert_null(g);
}

static void what_is_no_file_is_named(void **state) {
    (void)state;
    expect_open_fails(path_of("absent.gguf"), HR_ERR_IO, "No such file");
    expect_open_fails(folder, HR_ERR_INPUT, "is a folder");
    expect_open_fails("/dev/null", HR_ERR_INPUT, "pipe or device");
    fclose(fopen(path_of("empty.gguf"), "wb"));
    expect_open_fails(path_of("empty.gguf"), HR_ERR_INPUT, "is empty");
    assert_int_equal(mkfifo(path_of("pipe.gguf"), 0600), 0);
    expect_open_fails(path_of("pipe.gguf"), HR_ERR_INPUT, "pipe or device");
}

static void unreadable_file_is_named(void **state) {
    (void)state;
    int fd = open(path_of("secret.gguf"), O_CREAT | O_WRONLY, 0);
    close(fd);
    bool root = geteuid() == 0; /* may read everything: be nobody for a moment */
    if (root && (chmod(folder, 0755) || seteuid(65534))) hr_skip("root here cannot become another user");
    hr_gguf *g;
    hr_status status = hr_gguf_open(path_of("secret.gguf"), &g);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, HR_ERR_IO);
    assert_non_null(strstr(hr_error(), "secret.gguf: cannot open: Permission denied"));
}

/* Each n-th allocation and each n-th read of a sound file fails once. */
static void every_fault_is_survived(void **state) {
    (void)state;
    gw w = {0};
    gw_llama(&w, GW_T_F32, true);
    gw_write(&w, path_of("ok.gguf"));
    static const hr_status expected[HR_FAULT_COUNT] = {[HR_FAULT_ALLOC] = HR_ERR_MEMORY, [HR_FAULT_READ] = HR_ERR_IO};
    for (hr_fault kind = HR_FAULT_ALLOC; kind <= HR_FAULT_READ; kind++) {
        hr_gguf *g;
        uint64_t before = hr_fault_calls(kind);
        assert_int_equal(hr_gguf_open(path_of("ok.gguf"), &g), HR_OK);
        hr_gguf_close(g);
        uint64_t calls = hr_fault_calls(kind) - before;
        assert_true(calls >= 3);
        for (uint64_t i = 1; i <= calls; i++) {
            hr_fault_arm(kind, i);
            hr_status status = hr_gguf_open(path_of("ok.gguf"), &g);
            hr_fault_arm(kind, 0);
            if (status != expected[kind] || g || (kind == HR_FAULT_READ && !strstr(hr_error(), "ok.gguf")))
                fail_msg("fault %llu of kind %d: status %d, '%s'", (unsigned long long)i, kind, status, hr_error());
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_all_types),         cmocka_unit_test(wrong_value_types_are_named),
        cmocka_unit_test(broken_files_are_named),      cmocka_unit_test(not_gguf_at_all),
        cmocka_unit_test(every_truncation_is_refused), cmocka_unit_test(damaged_bytes_never_break_the_promises),
        cmocka_unit_test(what_is_no_file_is_named),    cmocka_unit_test(unreadable_file_is_named),
        cmocka_unit_test(every_fault_is_survived),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
