/* The engine on a GPU gives the logits of the engine on the CPU: every quantization, activation, way of joining ops, batch, with
 * graphs and without; and what it refuses. */
#include "tests/gpu_engine_fixture.h"

/* A prompt in two micro-batches, then some steps of one sequence and some of several. */
static void run(const hr_model *m, const hr_engine_config *c, const char *what) {
    int32_t tokens[200];
    gpu_ids(tokens, 200, 3);
    gpu_pair p = gpu_open(m, c, what);
    gpu_prefill(&p, 0, tokens, 29);
    for (int i = 0; i < 2; i++) gpu_decode(&p, (uint32_t[]){0}, tokens + 60 + i, 1);
    if (c->max_seqs >= 3) {
        gpu_prefill(&p, 1, tokens + 70, 7), gpu_prefill(&p, 2, tokens + 90, 1);
        for (int i = 0; i < 2; i++) gpu_decode(&p, (uint32_t[]){2, 0, 1}, tokens + 100 + 3 * i, 3);
    }
    gpu_close(&p);
}

static void every_quantization(void **state) {
    (void)state;
    for (int quant = 0; quant < HR_QUANT_COUNT; quant++) {
        hr_model *m = gpu_load(GPU_TINY, (hr_quant)quant);
        for (int act = 0; act < HR_ACT_COUNT; act++) {
            hr_engine_config c = gpu_config();
            char what[64];
            /* each with bf16, and every activation with some types of each kind */
            const bool all = quant == HR_QUANT_F32 || quant == HR_QUANT_INT8 || quant == HR_QUANT_INT4;
            const bool row = quant == HR_QUANT_INT8_ROW || quant == HR_QUANT_INT4_G128;
            if (act != HR_ACT_BF16 && !all && !(row && act == HR_ACT_INT8_ROW)) continue;
            c.act = act, c.k_type = c.v_type = act == HR_ACT_F32 ? HR_F32 : HR_BF16, c.max_seqs = 3;
            snprintf(what, sizeof what, "%s, %s", hr_quant_name((hr_quant)quant), hr_act_name((hr_act)act));
            run(m, &c, what);
        }
        hr_model_destroy(m);
    }
}

static void every_way_of_joining_ops(void **state) {
    (void)state;
    static const hr_act acts[] = {HR_ACT_F32, HR_ACT_BF16, HR_ACT_INT8};
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    for (int i = 0; i < 6; i++) {
        hr_engine_config c = gpu_config();
        char what[96], text[HR_FUSION_TEXT];
        c.fusion = i < 4 ? 1u << i : i == 4 ? 0 : HR_FUSE_ALL;
        c.act = acts[i % 3], c.max_seqs = 3;
        snprintf(what, sizeof what, "fusion %s, %s", hr_fusion_text(c.fusion, text), hr_act_name((hr_act)c.act));
        run(m, &c, what);
    }
    hr_model_destroy(m);
}

/* Steps of 1 to 8 sequences of different lengths; what is replayed gives the bits of what is launched. */
static void every_batch_with_graphs_and_without(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[300];
    gpu_ids(tokens, 300, 4);
    hr_engine_config c = gpu_config();
    gpu_pair p = gpu_open(m, &c, "graphs");
    c.device = 0, c.graphs = false;
    hr_engine *launched = NULL;
    OK(hr_engine_create(m, &c, &launched));
    assert_true(hr_engine_get_facts(p.gpu).graphs && !hr_engine_get_facts(launched).graphs);
    for (uint32_t s = 0; s < 8; s++) {
        gpu_prefill(&p, s, tokens + 10 * s, 3 + 7 * s);
        OK(hr_engine_prefill(launched, s, tokens + 10 * s, 3 + 7 * s, true));
    }
    for (uint32_t n = 1; n <= 8; n++) {
        for (int again = 0; again < 2; again++) { /* captured, or the graph of a step of another size; replayed */
            uint32_t seqs[8];
            for (uint32_t i = 0; i < n; i++) seqs[i] = (i * 3 + n) % 8;
            gpu_decode(&p, seqs, tokens + 100 + 10 * n + again, n);
            OK(hr_engine_decode(launched, seqs, tokens + 100 + 10 * n + again, n));
            for (uint32_t i = 0; i < n; i++) {
                const float *got = hr_engine_logits(p.gpu, i), *want = hr_engine_logits(launched, i);
                for (int x = 0; x < GPU_VOCAB; x++)
                    if (fabsf(got[x] - want[x]) > 1e-5f) /* splits of products depend on the bound of tokens */
                        fail_msg("step of %u, row %u, logit %d: expected %.9g as launched, got %.9g replayed, "
                                 "tolerance 1e-5",
                                 n, i, x, (double)want[x], (double)got[x]);
            }
        }
    }
    assert_true(hr_engine_get_facts(p.gpu).device_ns > 0);
    hr_engine_destroy(launched);
    gpu_close(&p);
    hr_model_destroy(m);
}

/* Past the bounds that launches are shaped for: a second graph, more splits of attention. */
static void long_sequences(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[420];
    gpu_ids(tokens, 420, 6);
    hr_engine_config c = gpu_config();
    c.ctx = 400, c.max_seqs = 2;
    for (int flash = 0; flash < 2; flash++) {
        c.flash = flash;
        gpu_pair p = gpu_open(m, &c, flash ? "long, flash" : "long, naive");
        gpu_prefill(&p, 1, tokens + 7, 30);
        gpu_prefill(&p, 0, tokens, 253);
        for (int i = 0; i < 8; i++) gpu_decode(&p, (uint32_t[]){0, 1}, tokens + 260 + 2 * i, 2);
        gpu_close(&p);
    }
    hr_model_destroy(m);
}

static void logits_of_all_tokens(void **state) {
    (void)state;
    enum { N = 60 };
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[N];
    gpu_ids(tokens, N, 8);
    hr_engine_config c = gpu_config();
    gpu_pair p = gpu_open(m, &c, "prefill_all");
    float *want = malloc(N * GPU_VOCAB * sizeof *want), *got = malloc(N * GPU_VOCAB * sizeof *got);
    OK(hr_engine_prefill_all(p.cpu, 0, tokens, N, want));
    OK(hr_engine_prefill_all(p.gpu, 0, tokens, N, got));
    for (size_t i = 0; i < N; i++) gpu_assert_near(&p, got + i * GPU_VOCAB, want + i * GPU_VOCAB, "a token of many");
    free(want), free(got);
    gpu_close(&p);
    hr_model_destroy(m);
}

static void tokens_are_drawn_by_the_same_rules(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t tokens[64];
    gpu_ids(tokens, 64, 9);
    static const hr_sampling ways[] = {
        {0, 0, 1, 0}, {1, 40, 0.9f, 0}, {0.7f, 0, 1, 0.05f}, {1, 5, 1, 0}, {0.9f, 300, 0.8f, 0}};
    for (int fused = 0; fused < 2; fused++) {
        hr_engine_config c = gpu_config();
        c.fusion = fused ? HR_FUSE_ALL : 0;
        gpu_pair p = gpu_open(m, &c, "sampling");
        for (uint32_t s = 0; s < 3; s++) gpu_prefill(&p, s, tokens + s, 20);
        for (int step = 0; step < 4; step++) {
            gpu_decode(&p, (uint32_t[]){0, 1, 2}, tokens + 30 + 3 * step, 3);
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                for (size_t i = 0; i < 3; i++) {
                    uint64_t a = 77 + i, b = 77 + i;
                    const int32_t want = hr_engine_sample(p.cpu, i, &ways[w], &a);
                    const int32_t got = hr_engine_sample(p.gpu, i, &ways[w], &b);
                    if (got != want || a != b)
                        fail_msg("way %zu, row %zu: expected token %d and state %llu, got %d and %llu", w, i, want,
                                 (unsigned long long)a, got, (unsigned long long)b);
                }
            }
        }
        gpu_close(&p);
    }
    hr_model_destroy(m);
}

/* ---- models that are made on the device ---- */

static void a_model_can_be_made_on_the_device(void **state) {
    (void)state;
    static const hr_quant quants[] = {HR_QUANT_BF16, HR_QUANT_F32, HR_QUANT_INT8, HR_QUANT_INT4_G128_HEAD8};
    int32_t tokens[40];
    gpu_ids(tokens, 40, 10);
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) {
        hr_model *m = gpu_load(GPU_TINY, quants[i]), *made = NULL;
        OK(hr_model_load(GPU_TINY, &(hr_load_options){.quant = quants[i], .order = HR_ORDER_PANELS, .on_device = true},
                         &made));
        assert_int_equal(hr_model_get_info(made)->weight_bytes, hr_model_get_info(m)->weight_bytes);
        hr_engine_config c = gpu_config();
        c.device = 0;
        hr_engine *want = NULL, *got = NULL;
        OK(hr_engine_create(m, &c, &want));
        OK(hr_engine_create(made, &c, &got));
        OK(hr_engine_prefill(want, 0, tokens, 30, true));
        OK(hr_engine_prefill(got, 0, tokens, 30, true));
        for (int x = 0; x < GPU_VOCAB; x++)
            if (hr_engine_logits(want, 0)[x] != hr_engine_logits(got, 0)[x])
                fail_msg("%s: logit %d: expected %.9g, got %.9g, tolerance 0 bits", hr_quant_name(quants[i]), x,
                         (double)hr_engine_logits(want, 0)[x], (double)hr_engine_logits(got, 0)[x]);
        hr_engine_destroy(want), hr_engine_destroy(got);
        c.device = HR_DEVICE_CPU;
        assert_int_equal(hr_engine_create(made, &c, &got), HR_ERR_UNSUPPORTED);
        assert_non_null(strstr(hr_error(), "made on a GPU"));
        hr_model_destroy(m), hr_model_destroy(made);
    }
}

/* ---- what is said ---- */

static void seen(double share, void *context) {
    double *last = context;
    assert_true(share >= *last && share <= 1);
    *last = share;
}

static void facts_kernels_and_work(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    double last = 0;
    hr_engine_config c = gpu_config();
    c.act = -1, c.device = 0, c.progress = seen, c.context = &last;
    hr_engine *e = NULL;
    OK(hr_engine_create(m, &c, &e));
    assert_true(last == 1);
    const hr_engine_facts f = hr_engine_get_facts(e);
    assert_int_equal(f.act, HR_ACT_BF16);
    assert_int_equal(f.device, 0);
    assert_true(f.simulated && f.graphs && !f.pinned);
    assert_string_equal(f.gemm, "own");
    assert_non_null(strstr(f.gemm_why, "cuBLASLt"));
    uint64_t arena, kv;
    OK(hr_engine_plan(hr_model_get_info(m), &c, &arena, &kv));
    assert_true(arena >= f.arena_bytes);
    assert_int_equal(kv, f.kv_bytes);
    json_t *kernels = hr_engine_kernels(e, HR_PHASE_DECODE, 3);
    static const char *const ops[] = {"embed", "norm", "qkv", "attention", "out", "gate_up", "down", "head"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        assert_non_null(strstr(json_string_value(json_object_get(kernels, ops[i])), "_cuda"));
    json_decref(kernels);
    const hr_step_work w = hr_engine_decode_work(e, 2, 30);
    assert_true(w.bytes_weights > hr_model_get_info(m)->weight_bytes / 2);
    assert_true(w.flops[HR_UNIT_FP32] + w.flops[HR_UNIT_BF16] > 0 && w.bytes_kv_read > 0);
    assert_true(hr_engine_prefill_work(e, 40, 10).bytes_kv_write > 0);
    hr_engine_destroy(e);
    hr_model_destroy(m);
}

static void refused(const hr_model *m, const hr_engine_config *c, hr_status want, const char *word) {
    hr_engine *e = NULL;
    const hr_status status = hr_engine_create(m, c, &e);
    if (status != want || !strstr(hr_error(), word))
        fail_msg("expected status %d and '%s', got %d and '%s'", (int)want, word, (int)status, hr_error());
    assert_null(e);
}

static void what_is_refused(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16), *panels = NULL;
    OK(hr_model_load(GPU_TINY, &(hr_load_options){.quant = HR_QUANT_BF16, .order = HR_ORDER_PANELS, .threads = 1},
                     &panels));
    hr_engine_config c = gpu_config();
    c.device = 7;
    refused(m, &c, HR_ERR_UNSUPPORTED, "cuda:7: there is no such device");
    c.device = 0;
    refused(panels, &c, HR_ERR_UNSUPPORTED, "--weights native");
    OK(hr_kernel_force_add(&c, "down=matmul_f32_generic"));
    refused(m, &c, HR_ERR_USAGE, "runs on the CPU alone");
    hr_model_destroy(m), hr_model_destroy(panels);
}

/* In a process of its own, as the driver is opened once. */
static void too_little_memory_is_said_with_figures(void **state) {
    (void)state;
    hr_model *m = gpu_load(
        "synth:tiny:layers=2:dim=128:heads=4:kv_heads=2:head_dim=32:ffn=192:vocab=320:ctx=65536:seed=5", HR_QUANT_BF16);
    hr_engine_config c = gpu_config();
    c.device = 0, c.max_seqs = 200, c.ctx = 65536, c.k_type = c.v_type = HR_BF16;
    hr_engine *e = NULL;
    hr_device_info info;
    OK(hr_device_get_info(0, &info));
    uint64_t arena, kv;
    OK(hr_engine_plan(hr_model_get_info(m), &c, &arena, &kv));
    while (arena + kv < info.memory_bytes && c.max_seqs < 1u << 20) {
        c.max_seqs *= 2;
        OK(hr_engine_plan(hr_model_get_info(m), &c, &arena, &kv));
    }
    assert_int_equal(hr_engine_create(m, &c, &e), HR_ERR_MEMORY);
    assert_non_null(strstr(hr_error(), "GB are free"));
    hr_model_destroy(m);
}

static void every_kind_of_memory(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    for (int kind = 0; kind < HR_GPU_MEMORY_COUNT; kind++) {
        hr_engine_config c = gpu_config();
        c.memory = (hr_gpu_memory)kind, c.max_seqs = 3;
        run(m, &c, hr_gpu_memory_names[kind]);
    }
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_quantization),
        cmocka_unit_test(every_way_of_joining_ops),
        cmocka_unit_test(every_batch_with_graphs_and_without),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(logits_of_all_tokens),
        cmocka_unit_test(tokens_are_drawn_by_the_same_rules),
        cmocka_unit_test(a_model_can_be_made_on_the_device),
        cmocka_unit_test(facts_kernels_and_work),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(too_little_memory_is_said_with_figures),
        cmocka_unit_test(every_kind_of_memory),
    };
    return cmocka_run_group_tests(tests, use_fake_driver, NULL);
}
