/* Axes become cells: counts, nulls, duplicates, what is skipped, names and fingerprints, order. */
#include "tests/hr_test.h"

#include "harness/sweep/axes.h"

#include <stdlib.h>

static const hr_machine machine = {
    .cpu = "test", .class_name = "test-2c-8g", .cores = 2, .threads = 2, .memory_bytes = (uint64_t)8 << 30};

static const char *const w_tiny[] = {"synth:tiny"}, *const w_native[] = {"native"}, *const w_auto[] = {"auto"};
static const char *const w_rows[] = {"native"}, *const w_all[] = {"all"};
static const char *const w_bf16[] = {"bf16"}, *const w_head[] = {"head"}, *const w_generic[] = {"generic"};
static const int64_t i_0[] = {0}, i_1[] = {1}, i_16[] = {16}, i_512[] = {512}, i_2048[] = {2048};

#define WORDS(a) ((hr_words){a, sizeof(a) / sizeof(a)[0]})
#define INTS(a)  ((hr_ints){a, sizeof(a) / sizeof(a)[0]})

static hr_axes base(void) {
    return (hr_axes){.models = WORDS(w_tiny),
                     .quant = WORDS(w_native),
                     .act = WORDS(w_auto),
                     .k_type = WORDS(w_bf16),
                     .v_type = WORDS(w_bf16),
                     .kv_layout = WORDS(w_head),
                     .isa = WORDS(w_generic),
                     .weights = WORDS(w_rows),
                     .fusion = WORDS(w_all),
                     .depth = INTS(i_0),
                     .seqs = INTS(i_1),
                     .batch = INTS(i_2048),
                     .ubatch = INTS(i_512),
                     .page_size = INTS(i_16),
                     .flash = INTS(i_1)};
}

static hr_sweep_plan plan_of(const hr_axes *axes) {
    hr_sweep_plan plan;
    if (hr_sweep_plan_create(axes, &machine, &plan) != HR_OK) fail_msg("%s", hr_error());
    return plan;
}

static void product_of_the_contract(void **state) {
    (void)state;
    static const char *const layouts[] = {"head", "paged", "zorder"}, *const quants[] = {"f32", "int8"};
    static const int64_t p[] = {32, 64}, isl[] = {32}, osl[] = {1, 8};
    hr_axes a = base();
    a.kv_layout = WORDS(layouts), a.quant = WORDS(quants);
    a.n_prompt = INTS(p), a.n_gen = INTS(i_16), a.isl = INTS(isl), a.osl = INTS(osl);
    hr_sweep_plan plan = plan_of(&a);
    assert_int_equal(plan.n, (2 + 1 + 2) * 3 * 2);
    assert_int_equal(plan.n_skipped, 0);
    for (size_t i = 0; i < plan.n; i++) {
        const hr_cell_config *c = &plan.cells[i].config;
        assert_true((c->page_size == HR_CELL_NULL) == !hr_kv_is_paged(c->kv_layout));
        assert_int_equal(strlen(plan.cells[i].id), 32);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(plan.cells[i].id, plan.cells[j].id);
    }
    hr_sweep_plan_destroy(&plan);
}

static void axes_that_do_not_concern_a_row_are_null(void **state) {
    (void)state;
    static const int64_t seqs[] = {1, 4, 8}, batches[] = {512, 2048}, pages[] = {8, 16}, depths[] = {0, 64};
    hr_axes a = base();
    a.seqs = INTS(seqs), a.batch = INTS(batches), a.page_size = INTS(pages), a.depth = INTS(depths);
    a.n_prompt = INTS(i_16), a.n_gen = INTS(i_16), a.isl = INTS(i_16), a.osl = INTS(i_16);
    hr_sweep_plan plan = plan_of(&a);
    /* pp: depth x batch; tg: depth x seqs; isl: seqs x batch; pages never, the layout is head */
    assert_int_equal(plan.n, 2 * 2 + 2 * 3 + 3 * 2);
    for (size_t i = 0; i < plan.n; i++) {
        const hr_cell_config *c = &plan.cells[i].config;
        assert_int_equal(c->page_size, HR_CELL_NULL);
        if (c->kind == HR_CELL_PP) assert_int_equal(c->n_seqs, HR_CELL_NULL);
        if (c->kind == HR_CELL_TG) assert_true(c->batch == HR_CELL_NULL && c->ubatch == HR_CELL_NULL);
        if (c->kind == HR_CELL_ISL) assert_int_equal(c->depth, HR_CELL_NULL);
    }
    hr_sweep_plan_destroy(&plan);
}

static void what_is_not_legal_is_skipped_with_a_reason(void **state) {
    (void)state;
    static const char *const layouts[] = {"head", "paged"}, *const allocs[] = {"per-request", "paged"};
    static const int64_t p[] = {16, 1 << 20};
    hr_axes a = base();
    a.kv_layout = WORDS(layouts), a.kv_alloc = WORDS(allocs), a.n_prompt = INTS(p);
    hr_sweep_plan plan = plan_of(&a);
    size_t by_alloc = 0, by_context = 0;
    for (size_t i = 0; i < plan.n; i++) {
        if (!plan.cells[i].skip) continue;
        by_alloc += strstr(plan.cells[i].skip, "--kv-alloc") != NULL;
        by_context += strstr(plan.cells[i].skip, "context") != NULL;
    }
    assert_int_equal(plan.n, 8);
    assert_int_equal(by_alloc, 4);
    assert_int_equal(by_context, 2);
    assert_int_equal(plan.n_skipped, 6);
    hr_sweep_plan_destroy(&plan);
}

static void wrong_lists_are_refused(void **state) {
    (void)state;
    static const int64_t zero[] = {0}, page[] = {24};
    static const char *const nope[] = {"synth:nope"};
    hr_sweep_plan plan;
    hr_axes a = base();
    assert_int_equal(hr_sweep_plan_create(&a, &machine, &plan), HR_ERR_USAGE); /* no row */
    a.n_prompt = INTS(zero);
    assert_int_equal(hr_sweep_plan_create(&a, &machine, &plan), HR_ERR_USAGE);
    a.n_prompt = INTS(i_16), a.page_size = INTS(page);
    assert_int_equal(hr_sweep_plan_create(&a, &machine, &plan), HR_ERR_USAGE);
    assert_non_null(strstr(hr_error(), "24"));
    a = base(), a.isl = INTS(i_16);
    assert_int_equal(hr_sweep_plan_create(&a, &machine, &plan), HR_ERR_USAGE);
    a = base(), a.n_gen = INTS(i_16), a.models = WORDS(nope);
    assert_int_not_equal(hr_sweep_plan_create(&a, &machine, &plan), HR_OK);
    assert_null(plan.cells);
}

static void names(void **state) {
    (void)state;
    char test[64];
    hr_cell_config c = {.kind = HR_CELL_PP, .n_prompt = 512};
    hr_cell_test(&c, test, sizeof test);
    assert_string_equal(test, "pp512");
    c = (hr_cell_config){.kind = HR_CELL_TG, .n_gen = 128, .depth = 4096};
    hr_cell_test(&c, test, sizeof test);
    assert_string_equal(test, "tg128 @ d4096");
    c = (hr_cell_config){.kind = HR_CELL_PG, .n_prompt = 512, .n_gen = 128};
    hr_cell_test(&c, test, sizeof test);
    assert_string_equal(test, "pp512+tg128");
    c = (hr_cell_config){.kind = HR_CELL_ISL, .isl = 512, .osl = 128, .depth = HR_CELL_NULL};
    hr_cell_test(&c, test, sizeof test);
    assert_string_equal(test, "isl512 osl128");
}

/* The mean context before a step, from the definition: steps at d, d + 1, ... d + n - 1. */
static void mean_context_and_steps(void **state) {
    (void)state;
    hr_cell_config c = {.kind = HR_CELL_TG, .n_gen = 4, .depth = 1024};
    assert_true(hr_cell_mean_context(&c) == (1024 + 1025 + 1026 + 1027) / 4.0);
    c = (hr_cell_config){.kind = HR_CELL_ISL, .isl = 10, .osl = 4, .n_prompt = 10, .n_gen = 4};
    assert_int_equal(hr_cell_steps(&c), 3);
    assert_true(hr_cell_mean_context(&c) == (10 + 11 + 12) / 3.0);
    assert_int_equal(hr_cell_positions(&c), 13);
    c.osl = 1;
    assert_true(isnan(hr_cell_mean_context(&c)));
}

/* Every field of the configuration, the model and the machine change the id; the same cell keeps it. */
static void fingerprint_follows_the_configuration(void **state) {
    (void)state;
    const hr_cell_config one = {.model = "m", .kind = HR_CELL_PP, .n_prompt = 8, .kv_alloc = "per-request"};
    enum { N = 25 };
    hr_cell_config c[N];
    for (size_t i = 0; i < N; i++) c[i] = one;
    c[1].n_prompt++, c[2].depth++, c[3].quant++, c[4].act++, c[5].k_type++, c[6].v_type++, c[7].kv_layout++;
    c[8].threads++, c[9].flash = true, c[10].ubatch++, c[11].isa++;
    c[12].weights = HR_ORDER_PANELS, c[13].copy = true, c[14].small_pages = true, c[15].free_threads = true;
    c[16].fusion = HR_FUSE_QKV, snprintf(c[17].forced, sizeof c[17].forced, "qkv=x");
    for (size_t i = 18; i < N; i++) c[i].gpu = 1, c[i].n_prompt = 16;
    c[19].gpu = 2, c[20].gpu_memory = HR_GPU_PINNED, c[21].cublaslt = true, c[22].power_limit_w = 500;
    c[23].kind = c[24].kind = HR_CELL_PG, c[23].n_gen = c[24].n_gen = 4, c[24].graphs = true;
    char ids[N + 2][33];
    for (size_t i = 0; i < N; i++) hr_cell_id(&c[i], "hash", "class", "", ids[i]);
    hr_cell_id(&one, "other", "class", "", ids[N]);
    hr_cell_id(&one, "hash", "other", "", ids[N + 1]);
    for (size_t i = 0; i < N + 2; i++)
        for (size_t j = 0; j < i; j++) assert_string_not_equal(ids[i], ids[j]);
    char again[33];
    hr_cell_id(&one, "hash", "class", "", again);
    assert_string_equal(again, ids[0]);
    /* Stores hold this id: it is that of the text with "device=cpu" at its end and nothing of GPUs. */
    assert_string_equal(again, "e14d75068ebe7b91e6595c1e2c20bb3a");
    /* What does not concern a cell is no part of its id: graphs without steps, a library for few tokens, all on the CPU. */
    hr_cell_config few = c[18], other;
    few.n_prompt = 8, other = few;
    other.graphs = other.cublaslt = true;
    hr_cell_id(&few, "hash", "class", "", ids[0]), hr_cell_id(&other, "hash", "class", "", ids[1]);
    assert_string_equal(ids[0], ids[1]);
}

static void configuration_survives_the_line(void **state) {
    (void)state;
    const hr_cell_config c = {.model = "synth:tiny",
                              .quant = HR_QUANT_INT4,
                              .act = 2,
                              .kind = HR_CELL_ISL,
                              .n_prompt = 5,
                              .n_gen = 6,
                              .isl = 5,
                              .osl = 6,
                              .depth = -1,
                              .n_seqs = 3,
                              .batch = 9,
                              .ubatch = 8,
                              .k_type = HR_Q8_0,
                              .v_type = HR_F32,
                              .kv_layout = HR_KV_PAGED,
                              .page_size = 4,
                              .kv_alloc = "paged",
                              .flash = true,
                              .threads = 2,
                              .isa = HR_ISA_AVX2,
                              .weights = HR_ORDER_PANELS,
                              .fusion = HR_FUSE_QKV,
                              .forced = "norm=rms_norm_generic",
                              .copy = true,
                              .small_pages = true,
                              .free_threads = true};
    hr_cell_config back;
    json_t *json = hr_cell_config_json(&c);
    assert_int_equal(hr_cell_config_parse(json, &back), HR_OK);
    char a[33], b[33];
    hr_cell_id(&c, "", "", "", a), hr_cell_id(&back, "", "", "", b);
    assert_string_equal(a, b);
    assert_string_equal(back.model, c.model);
    json_decref(json);
    const hr_cell_config on_gpu = {.model = "m",
                                   .kind = HR_CELL_TG,
                                   .n_gen = 4,
                                   .n_seqs = 16,
                                   .gpu = 3,
                                   .threads = -1,
                                   .isa = HR_ISA_AUTO,
                                   .graphs = true,
                                   .cublaslt = true,
                                   .gpu_memory = HR_GPU_COMPRESSIBLE,
                                   .power_limit_w = 450};
    json = hr_cell_config_json(&on_gpu);
    assert_int_equal(hr_cell_config_parse(json, &back), HR_OK);
    hr_cell_id(&on_gpu, "", "", "", a), hr_cell_id(&back, "", "", "", b);
    assert_string_equal(a, b);
    const hr_engine_config e = hr_cell_engine_config(&back, 4096);
    assert_true(e.device == 2 && e.graphs && e.cublaslt && e.memory == HR_GPU_COMPRESSIBLE && e.threads == 0);
    json_decref(json);
}

/* A row of a GPU's cell: what it has no axis for is null, and a simulated one says so. */
static void a_row_of_a_gpu(void **state) {
    (void)state;
    const hr_cell_config c = {.model = "synth:tiny",
                              .kind = HR_CELL_TG,
                              .n_gen = 4,
                              .n_seqs = 1,
                              .batch = -1,
                              .ubatch = -1,
                              .page_size = -1,
                              .kv_alloc = "per-request",
                              .gpu = 2,
                              .threads = -1,
                              .isa = HR_ISA_AUTO,
                              .graphs = true,
                              .cublaslt = true};
    const hr_model_info info = {.type = "llama 1B BF16", .n_layers = 16};
    const hr_device_info gpu = {.name = "NVIDIA Test", .class_name = "test-1sm-1g", .simulated = true};
    json_t *row = hr_cell_row(&c, &info, &machine, "id", 0, "");
    hr_cell_row_gpu(row, &c, &gpu);
    static const char *const nulls[] = {"n_threads", "isa", "huge_pages", "gemm", "power_limit_w"};
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (!json_is_null(json_object_get(row, nulls[i]))) fail_msg("%s must be null on this cell", nulls[i]);
    static const char *const texts[][2] = {{"device", "cuda:1"}, {"gpu_info", "NVIDIA Test"}, {"backends", "CUDA"},
                                           {"cpu_info", "test"}, {"gpu_memory", "device"},    {"weights", "native"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(json_string_value(json_object_get(row, texts[i][0])), texts[i][1]);
    assert_int_equal(json_integer_value(json_object_get(row, "n_gpu_layers")), 17);
    assert_true(json_is_true(json_object_get(row, "graphs")));
    assert_string_equal(json_string_value(json_array_get(json_object_get(row, "flags"), 0)), "simulated");
    json_decref(row);
}

/* A GPU that is not there ends the plan, whatever else is asked for. */
static void no_gpu_no_plan(void **state) {
    (void)state;
    static const int64_t devices[] = {HR_DEVICE_CPU, 0};
    hr_axes a = base();
    hr_sweep_plan plan;
    setenv("HEADROOM_LIBCUDA", "/nonexistent", 1);
    a.n_gen = INTS(i_16), a.device = INTS(devices);
    assert_int_equal(hr_sweep_plan_create(&a, &machine, &plan), HR_ERR_UNSUPPORTED);
    if (!strstr(hr_error(), "cuda:0: ")) fail_msg("the error does not name the device: %s", hr_error());
    assert_null(plan.cells);
    a.device = (hr_ints){devices, 1}; /* named, the CPU is what it is unnamed */
    plan = plan_of(&a);
    assert_int_equal(plan.n, 1);
    assert_int_equal(plan.n_gpus, 0);
    char id[33];
    snprintf(id, sizeof id, "%s", plan.cells[0].id);
    hr_sweep_plan_destroy(&plan);
    a.device = (hr_ints){0};
    plan = plan_of(&a);
    assert_string_equal(plan.cells[0].id, id);
    hr_sweep_plan_destroy(&plan);
    unsetenv("HEADROOM_LIBCUDA");
}

static void act_auto(void **state) {
    (void)state;
    assert_int_equal(hr_cell_resolve_act(HR_QUANT_F32, "llama 1B Q8_0", HR_ISA_GENERIC), HR_ACT_F32);
    assert_int_equal(hr_cell_resolve_act(HR_QUANT_BF16, "llama 1B Q8_0", HR_ISA_GENERIC), HR_ACT_F32);
    assert_int_equal(hr_cell_resolve_act(HR_QUANT_INT4, "llama 1B BF16", HR_ISA_GENERIC), HR_ACT_INT8);
    assert_int_equal(hr_cell_resolve_act(HR_QUANT_NATIVE, "llama 135M Q4_1", HR_ISA_AVX2), HR_ACT_INT8);
    assert_int_equal(hr_cell_resolve_act(HR_QUANT_NATIVE, "llama 1B F32", HR_ISA_GENERIC), HR_ACT_F32);
    const hr_act half = hr_cpu_features() & HR_CPU_BF16 ? HR_ACT_BF16 : HR_ACT_F32;
    assert_int_equal(hr_cell_resolve_act(HR_QUANT_NATIVE, "llama 1B BF16", HR_ISA_AVX512), half);
}

/* Weights in either order are models of their own: another worker, another id; --act auto follows cli.md. */
static void orders_and_quants(void **state) {
    (void)state;
    static const char *const orders[] = {"native", "repacked"};
    static const struct {
        const char *name;
        hr_act act;
    } quants[] = {{"int8", HR_ACT_INT8},          {"int4", HR_ACT_INT8},       {"int8-row", HR_ACT_INT8_ROW},
                  {"int4-g128", HR_ACT_INT8_ROW}, {"int4-head8", HR_ACT_INT8}, {"int4-g128-head8", HR_ACT_INT8_ROW}};
    enum { N = sizeof quants / sizeof quants[0] };
    const char *names[N];
    for (size_t i = 0; i < N; i++) names[i] = quants[i].name;
    hr_axes a = base();
    a.weights = WORDS(orders), a.quant = WORDS(names), a.n_gen = INTS(i_16);
    hr_sweep_plan plan = plan_of(&a);
    assert_int_equal(plan.n, 2 * N);
    for (size_t i = 0; i < plan.n; i++) {
        const hr_cell_config *c = &plan.cells[i].config;
        assert_int_equal(c->weights, i % 2 ? HR_ORDER_PANELS : HR_ORDER_ROWS);
        assert_int_equal(plan.infos[plan.cells[i].info].order, c->weights);
        assert_string_equal(hr_quant_name(c->quant), quants[i / 2].name);
        assert_int_equal(c->act, quants[i / 2].act);
        for (size_t j = 0; j < i; j++) {
            assert_false(hr_sweep_plan_same_group(&plan.cells[i], &plan.cells[j]));
            assert_string_not_equal(plan.cells[i].id, plan.cells[j].id);
        }
    }
    hr_sweep_plan_destroy(&plan);
}

/* What a cell says before it runs is what the engine then does. */
static void act_auto_is_that_of_the_engine(void **state) {
    (void)state;
    static const char spec[] = "synth:tiny:layers=1:vocab=64";
    for (int q = 0; q < HR_QUANT_COUNT; q++)
        for (int isa = 0; isa <= (int)hr_isa_best(); isa++) {
            hr_model *model;
            hr_engine *engine;
            hr_engine_config c = hr_engine_config_default();
            hr_isa resolved;
            if (hr_isa_resolve((hr_isa)isa, &resolved) != HR_OK) continue;
            c.isa = resolved, c.threads = 1, c.ctx = 16, c.pin = false;
            assert_int_equal(hr_model_load(spec, &(hr_load_options){.quant = (hr_quant)q, .threads = 1}, &model),
                             HR_OK);
            assert_int_equal(hr_engine_create(model, &c, &engine), HR_OK);
            const hr_act want = hr_cell_resolve_act((hr_quant)q, hr_model_get_info(model)->type, resolved);
            const hr_act got = hr_engine_get_facts(engine).act;
            if (got != want)
                fail_msg("%s on %s: cell %s, engine %s", hr_quant_name((hr_quant)q), hr_isa_name(resolved),
                         hr_act_name(want), hr_act_name(got));
            hr_engine_destroy(engine), hr_model_destroy(model);
        }
}

/* The same cells in another order, groups whole; the same seed gives the same order, another seed another one. */
static void shuffled_order(void **state) {
    (void)state;
    static const char *const quants[] = {"f32", "int8"};
    static const int64_t p[] = {1, 2, 3, 4, 5, 6, 7, 8};
    hr_axes a = base();
    a.quant = WORDS(quants), a.n_prompt = INTS(p), a.shuffled = true;
    hr_sweep_plan one = plan_of(&a), two = plan_of(&a);
    a.seed = 7;
    hr_sweep_plan other = plan_of(&a);
    size_t changes = 0, differ = 0;
    for (size_t i = 0; i < one.n; i++) {
        assert_string_equal(one.cells[i].id, two.cells[i].id);
        differ += strcmp(one.cells[i].id, other.cells[i].id) != 0;
        size_t found = 0;
        for (size_t j = 0; j < one.n; j++) found += !strcmp(one.cells[i].id, other.cells[j].id);
        assert_int_equal(found, 1);
        if (i) changes += !hr_sweep_plan_same_group(&one.cells[i], &one.cells[i - 1]);
    }
    assert_int_equal(one.n, 16);
    assert_int_equal(changes, 1);
    assert_true(differ > 0);
    hr_sweep_plan_destroy(&one), hr_sweep_plan_destroy(&two), hr_sweep_plan_destroy(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product_of_the_contract),
        cmocka_unit_test(axes_that_do_not_concern_a_row_are_null),
        cmocka_unit_test(what_is_not_legal_is_skipped_with_a_reason),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(names),
        cmocka_unit_test(mean_context_and_steps),
        cmocka_unit_test(fingerprint_follows_the_configuration),
        cmocka_unit_test(configuration_survives_the_line),
        cmocka_unit_test(a_row_of_a_gpu),
        cmocka_unit_test(no_gpu_no_plan),
        cmocka_unit_test(act_auto),
        cmocka_unit_test(orders_and_quants),
        cmocka_unit_test(act_auto_is_that_of_the_engine),
        cmocka_unit_test(shuffled_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
