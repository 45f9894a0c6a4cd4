/* test_model_load.c - weights in memory: in rows or in panels, at every --quant, bytes, memory at the peak, faults. */
#include "tests/model_fixture.h"

#include "kernels/base/memory.h"
#include "kernels/base/panel.h"

#include <sys/wait.h>

/* ---- panels ------------------------------------------------------------------------------------------------------- */

static void expect_same_values(const hr_model *rows, const hr_model *panels, const char *what) {
    const hr_mat *a[64], *b[64];
    const size_t n = mats_of(rows, a, 64);
    float want[1024], got[1024];
    mats_of(panels, b, 64);
    assert_true(rows->info.order == HR_ORDER_ROWS && panels->info.order == HR_ORDER_PANELS);
    assert_int_equal(rows->info.weight_bytes, panels->info.weight_bytes);
    for (size_t i = 0; i < n; i++) {
        assert_true(a[i]->order == HR_ORDER_ROWS && b[i]->order == HR_ORDER_PANELS && a[i]->dtype == b[i]->dtype);
        assert_int_equal((uintptr_t)b[i]->data % 64, 0);
        assert_int_equal((uintptr_t)b[i]->scales % 64, 0);
        for (size_t r = 0; r < a[i]->rows; r++) {
            hr_mat_row_f32(a[i], r, want), hr_mat_row_f32(b[i], r, got);
            for (size_t c = 0; c < a[i]->cols; c++)
                if (want[c] != got[c])
                    fail_msg("%s, matrix %zu, row %zu, column %zu: expected %g, got %g, tolerance 0", what, i, r, c,
                             (double)want[c], (double)got[c]);
        }
    }
}

/* Vocabularies that end inside a panel; every --quant of a drawn model. */
static void panels_of_drawn_models(void **state) {
    (void)state;
    static const char spec[] = "synth:tiny:layers=1:vocab=1003";
    for (int q = 0; q < HR_QUANT_COUNT; q++) {
        hr_model *rows = load_in(spec, (hr_quant)q, HR_ORDER_ROWS, 2);
        hr_model *panels = load_in(spec, (hr_quant)q, HR_ORDER_PANELS, 3);
        expect_same_values(rows, panels, hr_quant_name((hr_quant)q));
        hr_model_destroy(rows), hr_model_destroy(panels);
    }
}

/* Files: types as they are, without and with rounding; also a tied table, and rows copied out of the mapping. */
static void panels_of_files(void **state) {
    (void)state;
    static const uint32_t types[] = {GW_T_F32, GW_T_BF16, GW_T_F16, GW_T_Q8_0, GW_T_Q4_0, GW_T_Q4_1};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        gw w = {0};
        gw_llama(&w, types[t], t == 1);
        const char *path = model_file(&w);
        static const hr_quant quants[] = {HR_QUANT_NATIVE, HR_QUANT_INT4_G128_HEAD8};
        for (size_t q = 0; q < 2; q++) {
            hr_model *rows = load_in(path, quants[q], HR_ORDER_ROWS, 1);
            hr_model *panels = load_in(path, quants[q], HR_ORDER_PANELS, 3), *copy;
            expect_same_values(rows, panels, path);
            assert_int_equal(panels->embed.data == panels->head.data, t == 1);
            assert_true(panels->info.anon_bytes >= panels->info.weight_bytes);
            assert_int_equal(hr_model_load(path, &(hr_load_options){.quant = quants[q], .copy = true}, &copy), HR_OK);
            assert_true(copy->info.anon_bytes >= copy->info.weight_bytes && copy->info.order == HR_ORDER_ROWS);
            expect_same_values(copy, panels, "copied");
            hr_model_destroy(rows), hr_model_destroy(panels), hr_model_destroy(copy);
        }
    }
}

static void panels_do_not_depend_on_threads(void **state) {
    (void)state;
    hr_model *one = load_in("synth:tiny:vocab=1003", HR_QUANT_INT4_HEAD8, HR_ORDER_PANELS, 1);
    hr_model *five = load_in("synth:tiny:vocab=1003", HR_QUANT_INT4_HEAD8, HR_ORDER_PANELS, 5);
    const hr_mat *a[64], *b[64];
    const size_t n = mats_of(one, a, 64);
    mats_of(five, b, 64);
    for (size_t i = 0; i < n; i++) {
        const size_t panels = hr_panel_count(a[i]->rows);
        assert_memory_equal(a[i]->data, b[i]->data, panels * hr_panel_bytes(a[i]->dtype, a[i]->cols));
        assert_memory_equal(a[i]->scales, b[i]->scales, panels * hr_panel_scales(a[i]->dtype, a[i]->cols) * 2);
    }
    hr_model_destroy(one), hr_model_destroy(five);
}

/* ---- bytes -------------------------------------------------------------------------------------------------------- */

/* Llama-3.2-1B, from its shape: a layer has q and o 2048 x 2048, k and v 512 x 2048, gate and up 8192 x 2048, down
 * 2048 x 8192; one tied table 128256 x 2048; 33 vectors of 2048 floats. */
static void bytes_of_every_quant(void **state) {
    (void)state;
    const uint64_t rows = 16 * (2048 * 2 + 512 * 2 + 8192 * 2 + 2048), layers = 16 * 60817408ull,
                   vectors = 33 * 2048 * 4;
    const uint64_t head = 128256ull * 2048, head8 = head + head / 32 * 2;
    const struct {
        hr_quant quant;
        uint64_t bytes;
    } want[] = {{HR_QUANT_INT8_ROW, layers + head + 2 * (rows + 128256)},
                {HR_QUANT_INT4_G128, (layers + head) / 2 + (layers + head) / 128 * 2},
                {HR_QUANT_INT4_HEAD8, layers / 2 + layers / 32 * 2 + head8},
                {HR_QUANT_INT4_G128_HEAD8, layers / 2 + layers / 128 * 2 + head8}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        hr_model_info info;
        for (int order = 0; order < HR_ORDER_COUNT; order++) {
            assert_int_equal(hr_model_peek("synth:llama-3.2-1b", want[i].quant, (hr_order)order, &info), HR_OK);
            assert_int_equal(info.weight_bytes, want[i].bytes + vectors);
            assert_int_equal(info.anon_bytes, info.weight_bytes); /* all its rows and columns fill panels */
            assert_int_equal(info.order, order);
        }
    }
    /* a head of its own: the embedding table stays int4 */
    hr_model *m = load_in("synth:llama-2-7b:layers=1:dim=64:heads=2:kv_heads=2:ffn=64:vocab=64", HR_QUANT_INT4_HEAD8,
                          HR_ORDER_PANELS, 1);
    assert_true(m->head.dtype == HR_I8G32 && m->embed.dtype == HR_I4G32 && m->layers[0].down.dtype == HR_I4G32);
    hr_model_destroy(m);
    json_t *json;
    assert_int_equal(hr_model_inspect("synth:llama-3.2-1b", &json), HR_OK);
    const json_t *at = json_object_get(json_object_get(json, "bytes"), "weights");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(json_integer_value(json_object_get(at, hr_quant_name(want[i].quant))),
                         want[i].bytes + vectors);
    json_decref(json);
}

static void rows_that_do_not_divide_are_named(void **state) {
    (void)state;
    static const hr_quant quants[] = {HR_QUANT_INT8_ROW, HR_QUANT_INT4_G128, HR_QUANT_INT4_HEAD8,
                                      HR_QUANT_INT4_G128_HEAD8};
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++)
        expect_fails("synth:tiny:ffn=100", quants[i], HR_ERR_INPUT, "blk.0.ffn_down.weight cannot become int");
    /* floats fill up with zeros, and a group of 128 may be cut at the end of a row */
    hr_model_destroy(load_in("synth:tiny:layers=1:ffn=100", HR_QUANT_NATIVE, HR_ORDER_PANELS, 1));
    hr_model_destroy(load_in("synth:tiny:layers=1:ffn=160", HR_QUANT_INT4_G128, HR_ORDER_PANELS, 1));
}

/* ---- memory at the peak ------------------------------------------------------------------------------------------- */

/* A file of one big table, 300 MB of zeros that take no room on the disk. */
static const char *big_file(void) {
    enum { ROWS = 150016, COLS = 1024 };
    static const struct {
        const char *name;
        size_t rows, cols;
    } small[] = {{"attn_q", COLS, COLS}, {"attn_k", COLS, COLS}, {"attn_v", COLS, COLS}, {"attn_output", COLS, COLS},
                 {"ffn_gate", 64, COLS}, {"ffn_up", 64, COLS},   {"ffn_down", COLS, 64}};
    gw w = {.drop = {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length"}};
    char name[64];
    gw_llama_keys(&w);
    memset(w.drop, 0, sizeof w.drop);
    gw_u32(&w, "llama.block_count", 1), gw_u32(&w, "llama.embedding_length", COLS);
    gw_u32(&w, "llama.feed_forward_length", 64);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", small[i].name);
        const size_t rows = i == 1 || i == 2 ? small[i].rows / 2 : small[i].rows;
        gw_tensor(&w, name, GW_T_BF16, 2, (uint64_t[]){small[i].cols, rows}, NULL, rows * small[i].cols * 2);
    }
    static const char *const norms[] = {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"};
    for (size_t i = 0; i < 3; i++) gw_tensor(&w, norms[i], GW_T_F32, 1, (uint64_t[]){COLS}, NULL, COLS * 4);
    gw_tensor(&w, "token_embd.weight", GW_T_BF16, 2, (uint64_t[]){COLS, ROWS}, NULL, 0);
    w.hole = (uint64_t)ROWS * COLS * 2;
    return model_file(&w);
}

/* kB of a line of /proc/self/status. */
static double status_bytes(const char *key) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) kib = strtod(line + strlen(key), NULL);
    if (f) fclose(f);
    return kib * 1024;
}

/* In a process of its own: anonymous and file pages at the peak, over the weights' bytes. */
static double peak_over_weights(const char *path, hr_quant quant) {
    int line[2];
    assert_int_equal(pipe(line), 0);
    const pid_t child = fork();
    if (child == 0) {
        double ratio = 0;
        hr_model *m;
        const double before = status_bytes("VmRSS:");
        const hr_load_options options = {.quant = quant, .order = HR_ORDER_PANELS, .threads = 2, .huge_pages = true};
        if (hr_model_load(path, &options, &m) == HR_OK)
            ratio = (status_bytes("VmHWM:") - before) / (double)m->info.weight_bytes;
        _exit(write(line[1], &ratio, sizeof ratio) != sizeof ratio);
    }
    double ratio = 0;
    assert_int_equal(read(line[0], &ratio, sizeof ratio), sizeof ratio);
    close(line[0]), close(line[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return ratio;
}

static void packing_makes_no_second_copy(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    hr_skip("%s", "ThreadSanitizer keeps shadows of all memory");
#endif
    const char *path = big_file();
    static const hr_quant quants[] = {HR_QUANT_NATIVE, HR_QUANT_INT8, HR_QUANT_INT4_G128_HEAD8};
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) {
        const double ratio = peak_over_weights(path, quants[i]);
        /* two threads hold at most a few MB of the file each, and the arena is whole huge pages */
        if (!(ratio > 0.5 && ratio < 1.15))
            fail_msg("%s: peak memory over weights: expected 1, got %.3f, tolerance 0.15", hr_quant_name(quants[i]),
                     ratio);
    }
}

/* ---- faults and progress ------------------------------------------------------------------------------------------ */

/* Each n-th allocation and each n-th read fails once, for mapped, converted and packed models. */
static void every_fault_is_survived(void **state) {
    (void)state;
    gw w = {0};
    gw_llama(&w, GW_T_F32, true);
    const char *specs[] = {model_file(&w), "synth:tiny:layers=1:vocab=64"};
    static const hr_quant quants[] = {HR_QUANT_NATIVE, HR_QUANT_INT8};
    for (unsigned turn = 0; turn < 16; turn++) {
        hr_fault kind = turn & 1 ? HR_FAULT_READ : HR_FAULT_ALLOC;
        const char *spec = specs[turn >> 1 & 1];
        hr_load_options options = {.quant = quants[turn >> 2 & 1], .order = (hr_order)(turn >> 3), .threads = 1};
        hr_model *m;
        uint64_t before = hr_fault_calls(kind), failed = 0;
        assert_int_equal(hr_model_load(spec, &options, &m), HR_OK);
        hr_model_destroy(m);
        uint64_t calls = hr_fault_calls(kind) - before;
        for (uint64_t i = 1; i <= calls; i++) {
            hr_fault_arm(kind, i);
            hr_status status = hr_model_load(spec, &options, &m);
            hr_fault_arm(kind, 0);
            if (status == HR_OK)
                hr_model_destroy(m);
            else {
                failed++;
                assert_null(m);
                if (status != (kind == HR_FAULT_ALLOC ? HR_ERR_MEMORY : HR_ERR_IO))
                    fail_msg("%s: fault %llu of kind %d: status %d, '%s'", spec, (unsigned long long)i, kind, status,
                             hr_error());
            }
        }
        /* Every allocation matters; of the reads the file's three (open, fstat, mmap), not the memory figures. */
        assert_int_equal(failed, kind == HR_FAULT_ALLOC ? calls : turn >> 1 & 1 ? 0 : 3);
    }
}

static double last_share;
static void note_share(double share, void *context) {
    (void)context;
    assert_true(share >= last_share && share <= 1);
    last_share = share;
}

static void progress_rises_to_one(void **state) {
    (void)state;
    hr_model *m;
    last_share = 0;
    hr_load_options options = {.quant = HR_QUANT_INT8, .threads = 2, .progress = note_share};
    assert_int_equal(hr_model_load("synth:tiny", &options, &m), HR_OK);
    assert_true(last_share == 1);
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_of_drawn_models),
        cmocka_unit_test(panels_of_files),
        cmocka_unit_test(panels_do_not_depend_on_threads),
        cmocka_unit_test(bytes_of_every_quant),
        cmocka_unit_test(rows_that_do_not_divide_are_named),
        cmocka_unit_test(packing_makes_no_second_copy),
        cmocka_unit_test(every_fault_is_survived),
        cmocka_unit_test(progress_rises_to_one),
    };
    return cmocka_run_group_tests_name("model in memory", tests, make_folder, remove_folder);
}
