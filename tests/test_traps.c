/* What once made a harness lie, where no other test holds it: an end-of-text token that cuts a request, prompts that repeat,
 * a wall clock that steps. tests/README.md lists all traps. */
#include "tests/sweep_fixture.h"

#include "harness/sweep/bench_input.h"
#include "tests/gguf_writer.h"

#include <sys/syscall.h>
#include <time.h>

/* ---- a wall clock that steps ------------------------------------------------------------------------------------------ */

static int wall_steps; /* how often it was read while it steps; -1: it does not */

/* In place of the C library's, for this whole program: once it steps, the wall clock jumps by hours at each reading. */
int clock_gettime(clockid_t id, struct timespec *out) {
    const long failed = syscall(SYS_clock_gettime, id, out);
    if (id == CLOCK_REALTIME && wall_steps >= 0) out->tv_sec += ++wall_steps % 2 ? 7200 : -7200;
    return (int)failed;
}

/* ---- a cell on a model ------------------------------------------------------------------------------------------------ */

static json_t *measure(const char *spec, size_t repetitions) {
    const hr_load_options load = {.quant = HR_QUANT_F32, .threads = 1};
    const hr_measure_options options = fixed(repetitions);
    hr_model *model;
    hr_engine *engine;
    hr_bench *bench;
    json_t *result;
    if (hr_model_load(spec, &load, &model) != HR_OK) fail_msg("%s: %s", spec, hr_error());
    const hr_engine_config config = hr_cell_engine_config(&isl_cell, hr_model_get_info(model)->ctx);
    assert_int_equal(hr_engine_create(model, &config, &engine), HR_OK);
    assert_int_equal(hr_bench_create(model, engine, &isl_cell, &options, &bench), HR_OK);
    if (hr_bench_run(bench, &result) != HR_OK) fail_msg("%s: %s", spec, hr_error());
    hr_bench_destroy(bench), hr_engine_destroy(engine), hr_model_destroy(model);
    return result;
}

static json_int_t count_of(const json_t *result, const char *metric) {
    return json_integer_value(json_object_get(json_object_get(result, metric), "n"));
}

/* Samples that a busy machine did not flag. */
static json_int_t kept_of(const json_t *result) {
    json_int_t kept = 0;
    size_t i;
    json_t *flag;
    json_array_foreach(json_object_get(result, "sample_flags"), i, flag) kept += json_is_null(flag);
    assert_true(kept > 0);
    return kept;
}

static void a_wall_clock_that_steps_changes_no_time(void **state) {
    (void)state;
    struct timespec begin, end, wall;
    wall_steps = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    clock_gettime(CLOCK_REALTIME, &wall);
    json_t *result = measure(SMALL, 5), *ns;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int steps = wall_steps;
    wall_steps = -1;
    assert_true(steps > 0); /* the clock of this test is the one that is read */
    const double all = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    double sum = 0;
    size_t i;
    json_array_foreach(json_object_get(result, "samples_ns"), i, ns) {
        const double t = json_number_value(ns);
        if (!(t > 0)) fail_msg("sample %zu took %g ns", i, t);
        sum += t;
    }
    assert_int_equal(i, 5);
    if (!(sum < all)) fail_msg("the samples took %g ns of %g", sum, all);
    json_decref(result);
}

/* ---- the end of the text ---------------------------------------------------------------------------------------------- */

enum { END = 0 };

/* A model that says nothing but its end-of-text token: its head is zero, and of equal logits the lowest id is taken. */
static const char *model_that_ends_at_once(void) {
    static char path[128];
    char text[GW_VOCAB][2];
    const char *tokens[GW_VOCAB];
    gw w = {.drop = {"output.weight", "tokenizer.ggml.model"}};
    for (int i = 0; i < GW_VOCAB; i++) text[i][0] = (char)('!' + i), text[i][1] = 0, tokens[i] = text[i];
    gw_llama(&w, GW_T_F32, false);
    memset(w.drop, 0, sizeof w.drop);
    gw_matrix(&w, "output.weight", GW_T_F16, GW_VOCAB, GW_DIM);
    gw_str(&w, "tokenizer.ggml.model", "gpt2");
    gw_str(&w, "tokenizer.ggml.pre", "gpt-2");
    gw_strs(&w, "tokenizer.ggml.tokens", tokens, GW_VOCAB);
    gw_u32(&w, "tokenizer.ggml.eos_token_id", END);
    snprintf(path, sizeof path, "%s/ends.gguf", folder);
    gw_write(&w, path);
    return path;
}

static void an_end_of_text_ends_no_request(void **state) {
    (void)state;
    const char *path = model_that_ends_at_once();
    const hr_load_options load = {.quant = HR_QUANT_F32, .threads = 1};
    hr_model *model;
    if (hr_model_load(path, &load, &model) != HR_OK) fail_msg("%s", hr_error());
    assert_true(hr_tokenizer_is_end(hr_model_tokenizer(model), END));
    hr_engine *engine;
    const hr_engine_config config = hr_cell_engine_config(&isl_cell, hr_model_get_info(model)->ctx);
    static const hr_sampling greedy = {.temperature = 0, .top_p = 1};
    uint64_t rng = 0;
    assert_int_equal(hr_engine_create(model, &config, &engine), HR_OK);
    assert_int_equal(hr_engine_prefill(engine, 0, (const int32_t[]){3, 4, 5}, 3, true), HR_OK);
    assert_int_equal(hr_engine_sample(engine, 0, &greedy, &rng), END);
    hr_engine_destroy(engine), hr_model_destroy(model);

    json_t *result = measure(path, 3);
    const json_int_t kept = kept_of(result);
    assert_int_equal(count_of(result, "ttft_ms"), 2 * kept); /* two requests of five tokens */
    assert_int_equal(count_of(result, "itl_step_ms"), 8 * kept);
    assert_int_equal(count_of(result, "e2e_ms"), 2 * kept);
    json_decref(result);
}

/* ---- prompts ---------------------------------------------------------------------------------------------------------- */

enum { PROMPT = 16, PROMPTS = 40 };

/* What is reused by accident would be fast: no prompt may be one that was there before. */
static void expect_different(hr_input *in, const char *what) {
    static int32_t all[PROMPTS][PROMPT];
    for (size_t i = 0; i < PROMPTS; i++) {
        size_t same = 0;
        hr_input_tokens(in, i, all[i], PROMPT);
        for (size_t k = 1; k < PROMPT; k++) same += all[i][k] == all[i][0];
        if (same == PROMPT - 1) fail_msg("%s: prompt %zu is token %d alone", what, i, all[i][0]);
        for (size_t j = 0; j < i; j++)
            if (!memcmp(all[i], all[j], sizeof all[i])) fail_msg("%s: prompts %zu and %zu are the same", what, j, i);
    }
}

static void prompts_do_not_repeat(void **state) {
    (void)state;
    /* Also lengths which steps of so many tokens, or of a prime, would bring back to the same place. */
    static const size_t lengths[] = {500, 4096, 7918, 7919, 7920, 15838};
    static char text[16384];
    const hr_load_options load = {.quant = HR_QUANT_F32, .threads = 1};
    hr_model *model;
    hr_input in;
    assert_int_equal(hr_model_load(SMALL, &load, &model), HR_OK);
    assert_int_equal(hr_input_init(&in, model, NULL, 0, 0, PROMPT), HR_OK);
    expect_different(&in, "random tokens");
    hr_input_fini(&in);
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (x = x * 1664525 + 1013904223) >> 29 ? (char)('a' + (x >> 27) % 26) : ' ';
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        char what[40];
        snprintf(what, sizeof what, "a text of %zu bytes", lengths[l]);
        if (hr_input_init(&in, model, text, lengths[l], 0, PROMPT) != HR_OK) fail_msg("%s: %s", what, hr_error());
        expect_different(&in, what);
        const char *before = NULL, *slice;
        for (size_t i = 0; i < PROMPTS; i++, before = slice) {
            size_t bytes;
            assert_int_equal(hr_input_slice(&in, i, PROMPT, &slice, &bytes), HR_OK);
            if (slice == before) fail_msg("%s: requests %zu and %zu read the same", what, i - 1, i);
        }
        hr_input_fini(&in);
    }
    hr_model_destroy(model);
}

int main(void) {
    wall_steps = -1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wall_clock_that_steps_changes_no_time, set_up, clean_up),
        cmocka_unit_test_setup_teardown(an_end_of_text_ends_no_request, set_up, clean_up),
        cmocka_unit_test(prompts_do_not_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
