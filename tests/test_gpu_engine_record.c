/* Records of ops on a GPU: the same ops as on the CPU, with the device's times on the host's clock; and what the recorder leaves
 * alone. */
#include "tests/gpu_engine_fixture.h"

#include "kernels/base/clock.h"

static hr_engine *open_one(const hr_model *m, const hr_engine_config *config, int device) {
    hr_engine_config c = *config;
    hr_engine *e = NULL;
    c.device = device;
    OK(hr_engine_create(m, &c, &e));
    return e;
}

static void pass(hr_engine *e, const int32_t *tokens) {
    hr_sampling greedy = {.top_p = 1};
    uint64_t rng = 1;
    if (!hr_engine_seq_len(e, 0)) OK(hr_engine_prefill(e, 0, tokens, 20, true));
    OK(hr_engine_decode(e, (uint32_t[]){0}, tokens + 20, 1));
    hr_engine_sample(e, 0, &greedy, &rng);
}

static void records_are_those_of_the_cpu(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[64];
    gpu_ids(tokens, 64, 1);
    for (int fused = 0; fused < 2; fused++) {
        hr_engine_config c = gpu_config();
        c.fusion = fused ? HR_FUSE_ALL : 0;
        hr_engine *cpu = open_one(m, &c, HR_DEVICE_CPU), *gpu = open_one(m, &c, 0);
        OK(hr_engine_record(cpu, 200));
        OK(hr_engine_record(gpu, 200));
        const uint64_t start = hr_now_ns();
        pass(cpu, tokens), pass(gpu, tokens);
        const uint64_t end = hr_now_ns();
        size_t n = 0, n_cpu = 0, lost = 0;
        const hr_op_record *r = hr_engine_records(gpu, &n, &lost), *want = hr_engine_records(cpu, &n_cpu, NULL);
        assert_int_equal(n, n_cpu);
        assert_int_equal(lost, 0);
        uint64_t before = 0;
        for (size_t i = 0; i < n; i++) {
            if (r[i].op != want[i].op || r[i].layer != want[i].layer || r[i].phase != want[i].phase ||
                r[i].pass != want[i].pass || r[i].tokens != want[i].tokens || r[i].bytes != want[i].bytes ||
                r[i].flops != want[i].flops)
                fail_msg("record %zu: expected %s of layer %d with %llu bytes and %llu flops, got %s of layer %d, "
                         "%llu, %llu",
                         i, hr_op_names[want[i].op], want[i].layer, (unsigned long long)want[i].bytes,
                         (unsigned long long)want[i].flops, hr_op_names[r[i].op], r[i].layer,
                         (unsigned long long)r[i].bytes, (unsigned long long)r[i].flops);
            if (r[i].start_ns < start || r[i].end_ns > end + 1000 || r[i].end_ns < r[i].start_ns)
                fail_msg("record %zu (%s): from %lld to %lld ns after the start, which took %llu", i,
                         hr_op_names[r[i].op], (long long)(r[i].start_ns - start), (long long)(r[i].end_ns - start),
                         (unsigned long long)(end - start));
            if (r[i].start_ns + 1000 < before) fail_msg("record %zu begins before the one before it", i);
            before = r[i].start_ns;
            assert_true(r[i].op == HR_OP_SAMPLE || strstr(r[i].kernel, "_cuda") != NULL);
        }
        hr_engine_destroy(cpu), hr_engine_destroy(gpu);
    }
    hr_model_destroy(m);
}

static void a_ring_keeps_the_newest(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[64];
    gpu_ids(tokens, 64, 1);
    hr_engine_config c = gpu_config();
    hr_engine *e = open_one(m, &c, 0);
    OK(hr_engine_record_ring(e, 7, 0));
    for (int i = 0; i < 3; i++) pass(e, tokens);
    size_t n, lost;
    const hr_op_record *r = hr_engine_records(e, &n, &lost);
    assert_int_equal(n, 7);
    assert_true(lost > 7);
    assert_int_equal(r[6].op, HR_OP_SAMPLE);
    assert_int_equal(r[5].op, HR_OP_HEAD);
    for (size_t i = 0; i < n; i++) assert_true(r[i].end_ns >= r[i].start_ns && r[i].start_ns > 0);
    hr_engine_destroy(e);
    hr_model_destroy(m);
}

/* Logits with the recorder on, paused and off are the same: the same rows run, launched or replayed. */
static void recording_changes_no_bit(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[64];
    gpu_ids(tokens, 64, 1);
    hr_engine_config c = gpu_config();
    hr_engine *plain = open_one(m, &c, 0), *watched = open_one(m, &c, 0);
    for (int i = 0; i < 6; i++) {
        OK(hr_engine_record(watched, i < 2 || i == 5 ? 500 : 0));
        if (i == 5) hr_engine_record_pause(watched, true);
        pass(plain, tokens + i), pass(watched, tokens + i);
        for (int x = 0; x < GPU_VOCAB; x++)
            if (hr_engine_logits(plain, 0)[x] != hr_engine_logits(watched, 0)[x])
                fail_msg("step %d, logit %d: expected %.9g, got %.9g, tolerance 0 bits", i, x,
                         (double)hr_engine_logits(plain, 0)[x], (double)hr_engine_logits(watched, 0)[x]);
    }
    hr_engine_destroy(plain), hr_engine_destroy(watched);
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_those_of_the_cpu),
        cmocka_unit_test(a_ring_keeps_the_newest),
        cmocka_unit_test(recording_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, use_fake_driver, NULL);
}
