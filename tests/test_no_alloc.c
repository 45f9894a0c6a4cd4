/* No allocation, by whatever library, inside prefill and decode: this program counts malloc and its kin itself. */
#include "tests/hr_test.h"

#include "engine/engine.h"
#include "kernels/base/memory.h"

#include <stdatomic.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HR_SANITIZED 1
#else
#define HR_SANITIZED 0
#endif

static _Atomic uint64_t allocations;

#if !HR_SANITIZED
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
void *malloc(size_t n) {
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *old, size_t n) {
    allocations++;
    return __libc_realloc(old, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
    allocations++;
    return __libc_memalign(alignment, n);
}
#endif

static void steps_allocate_nothing(void **state) {
    (void)state;
    if (HR_SANITIZED) hr_skip("the sanitizer owns malloc in this build");
    static const hr_quant quants[] = {HR_QUANT_F32, HR_QUANT_BF16, HR_QUANT_INT8, HR_QUANT_INT4};
    for (size_t q = 0; q < sizeof quants / sizeof *quants; q++)
        for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++) {
            hr_model *m;
            hr_engine *e;
            hr_load_options o = {.quant = quants[q]};
            assert_int_equal(hr_model_load("synth:tiny:layers=2", &o, &m), HR_OK);
            hr_engine_config c = hr_engine_config_default();
            c.threads = 2, c.max_seqs = 3, c.ctx = 512, c.ubatch = 64, c.kv_layout = (hr_kv_layout)layout;
            assert_int_equal(hr_engine_create(m, &c, &e), HR_OK);
            int32_t tokens[200];
            for (int i = 0; i < 200; i++) tokens[i] = (i * 37) % 256;
            assert_int_equal(hr_engine_record(e, 100000), HR_OK);
            uint64_t ours = hr_alloc_count(), all = allocations, rng = 1;
            for (uint32_t s = 0; s < 3; s++) assert_int_equal(hr_engine_prefill(e, s, tokens, 200, true), HR_OK);
            for (int i = 0; i < 10; i++) {
                int32_t next[3];
                for (size_t s = 0; s < 3; s++)
                    next[s] = hr_engine_sample(e, i ? s : 0,
                                               &(hr_sampling){.temperature = 0.7f, .top_k = 20, .top_p = 0.9f}, &rng);
                assert_int_equal(hr_engine_decode(e, (uint32_t[]){0, 1, 2}, next, 3), HR_OK);
            }
            hr_engine_seq_cut(e, 1, 50);
            assert_int_equal(hr_alloc_count() - ours, 0);
            assert_int_equal(allocations - all, 0);
            hr_engine_destroy(e);
            hr_model_destroy(m);
        }
    assert_true(allocations > 10); /* the counter counts */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
