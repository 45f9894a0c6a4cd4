/* The real SmolLM2-135M Q4_1 file against answers of independent engines (tests/golden): logits of a float64 reference,
 * greedy tokens and perplexity of llama.cpp in F32. Bounds and where they come from: tests/golden/README.md. */
#include "tests/hr_test.h"
#include "tests/real_model.h"

#include "engine/engine.h"
#include "engine/sample.h"
#include "kernels/base/memory.h"

#include <stdlib.h>

enum { CTX = 2048, PPL_CTX = 512 };

#define OK(call)                                                    \
    do {                                                            \
        if ((call) != HR_OK) fail_msg("%s: %s", #call, hr_error()); \
    } while (0)

static const char *path;
static char why[512];
static hr_model *exact;

static json_t *golden(const char *name) {
    char file[256];
    snprintf(file, sizeof file, "tests/golden/%s", name);
    json_error_t error;
    json_t *j = json_load_file(file, 0, &error);
    if (!j) fail_msg("%s: %s (run from the project's root)", file, error.text);
    return j;
}

static hr_model *load(hr_quant quant, hr_order order) {
    hr_model *m = NULL;
    OK(hr_model_load(path, &(hr_load_options){.quant = quant, .order = order, .huge_pages = true}, &m));
    return m;
}

static hr_engine *open_engine(const hr_model *m, bool f32) {
    hr_engine_config c = hr_engine_config_default();
    c.threads = 2, c.ctx = CTX, c.pin = false;
    if (f32) c.act = HR_ACT_F32, c.k_type = c.v_type = HR_F32;
    hr_engine *e = NULL;
    OK(hr_engine_create(m, &c, &e));
    return e;
}

static int32_t *ids_of(const json_t *array, size_t *n) {
    *n = json_array_size(array);
    int32_t *ids = calloc(*n ? *n : 1, sizeof *ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

static int setup(void **state) {
    (void)state;
    path = hr_real_model(why, sizeof why);
    if (path) exact = load(HR_QUANT_F32, HR_ORDER_PANELS);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    hr_model_destroy(exact);
    return 0;
}

static void logits_are_those_of_float64(void **state) {
    (void)state;
    if (!path) hr_skip("%s", why);
    json_t *all = golden("smollm2-135m-q4_1/logits.json");
    hr_engine *e = open_engine(exact, true);
    const char *name;
    json_t *row;
    size_t compared = 0;
    json_object_foreach(all, name, row) {
        const json_t *want = json_object_get(row, "float64");
        if (!want) continue;
        size_t n;
        int32_t *tokens = ids_of(json_object_get(row, "tokens"), &n);
        hr_engine_seq_cut(e, 0, 0);
        OK(hr_engine_prefill(e, 0, tokens, n, true));
        const float *logits = hr_engine_logits(e, 0);
        const json_t *top = json_object_get(want, "ids"), *values = json_object_get(want, "logits");
        for (size_t i = 0; i < json_array_size(top); i++) {
            double w = json_number_value(json_array_get(values, i));
            double g = (double)logits[json_integer_value(json_array_get(top, i))];
            /* llama.cpp in F32 is within 6e-5 of float64 here */
            if (fabs(g - w) > 1e-3) fail_msg("%s: logit %zu: expected %.6f, got %.6f, tolerance 1e-3", name, i, w, g);
        }
        double lse = json_number_value(json_object_get(want, "logsumexp"));
        assert_true(fabs(hr_logsumexp(logits, hr_model_get_info(exact)->vocab) - lse) < 1e-3);
        compared++;
        free(tokens);
    }
    assert_true(compared >= 5);
    hr_engine_destroy(e);
    json_decref(all);
}

static void greedy_tokens_are_those_of_the_f32_peer(void **state) {
    (void)state;
    if (!path) hr_skip("%s", why);
    json_t *all = golden("smollm2-135m-q4_1/greedy.json");
    hr_engine *e = open_engine(exact, true);
    const char *name;
    json_t *row;
    size_t steps = 0;
    json_object_foreach(all, name, row) {
        const json_t *want = json_object_get(row, "dequantized_kv_f32");
        if (!want) continue;
        size_t n, n_ids;
        int32_t *tokens = ids_of(json_object_get(row, "tokens"), &n),
                *ids = ids_of(json_object_get(want, "ids"), &n_ids);
        hr_engine_seq_cut(e, 0, 0);
        OK(hr_engine_prefill(e, 0, tokens, n, true));
        for (size_t i = 0; i < n_ids; i++, steps++) {
            if (json_number_value(json_array_get(json_object_get(want, "margin"), i)) < 0.002) break;
            int32_t id = hr_engine_sample(e, 0, &(hr_sampling){0}, &(uint64_t){0});
            if (id != ids[i]) fail_msg("%s: step %zu: expected id %d, got %d", name, i, ids[i], id);
            OK(hr_engine_decode(e, &(uint32_t){0}, &id, 1));
        }
        free(tokens), free(ids);
    }
    assert_true(steps >= 100);
    hr_engine_destroy(e);
    json_decref(all);
}

/* ---- perplexity, and KL to the exact run, on the same windows ---- */

typedef struct text_run {
    double nll, kl;
    size_t scored;
} text_run;

/* Scores the second half of each window. exact_logits: [windows][PPL_CTX][vocab] of the exact run, or NULL. */
static text_run score(const hr_model *m, bool f32, const int32_t *ids, size_t n, float *keep, const float *reference) {
    const size_t vocab = hr_model_get_info(m)->vocab, window = PPL_CTX * vocab;
    hr_engine *e = open_engine(m, f32);
    float *logits = keep ? NULL : malloc(window * sizeof *logits);
    text_run r = {0};
    for (size_t w = 0; w < n / PPL_CTX; w++) {
        float *out = keep ? keep + w * window : logits;
        hr_engine_seq_cut(e, 0, 0);
        OK(hr_engine_prefill_all(e, 0, ids + w * PPL_CTX, PPL_CTX, out));
        for (size_t i = PPL_CTX / 2; i + 1 < PPL_CTX; i++, r.scored++) {
            const float *row = out + i * vocab;
            const double lse = hr_logsumexp(row, vocab);
            r.nll += lse - (double)row[ids[w * PPL_CTX + i + 1]];
            if (!reference) continue;
            const float *p = reference + w * window + i * vocab;
            const double plse = hr_logsumexp(p, vocab);
            for (size_t v = 0; v < vocab; v++) {
                const double lp = (double)p[v] - plse;
                r.kl += exp(lp) * (lp - ((double)row[v] - lse));
            }
        }
    }
    free(logits);
    hr_engine_destroy(e);
    return r;
}

/* Bounds: of what the file holds, those of golden/README.md; of what rounds it a second time, about twice the measured
 * figure (+2.5 % and 0.026, +12.4 % and 0.21, +28 % and 0.35): a wrong kernel is far outside. */
static const struct {
    hr_quant quant;
    hr_order order;
    double ppl, kl; /* relative, nats */
} runs[] = {{HR_QUANT_NATIVE, HR_ORDER_ROWS, 0.025, 0.03},        {HR_QUANT_NATIVE, HR_ORDER_PANELS, 0.025, 0.03},
            {HR_QUANT_INT8, HR_ORDER_ROWS, 0.025, 0.03},          {HR_QUANT_INT8, HR_ORDER_PANELS, 0.025, 0.03},
            {HR_QUANT_INT8_ROW, HR_ORDER_PANELS, 0.05, 0.05},     {HR_QUANT_INT4_HEAD8, HR_ORDER_PANELS, 0.25, 0.4},
            {HR_QUANT_INT4_G128_HEAD8, HR_ORDER_PANELS, 0.5, 0.7}};

static void perplexity_and_divergence_are_within_bounds(void **state) {
    (void)state;
    if (!path) hr_skip("%s", why);
    json_t *want = golden("smollm2-135m-q4_1/ppl.json");
    const json_t *f32 = json_object_get(want, "dequantized_kv_f32");
    FILE *f = fopen("tests/golden/ppl.txt", "rb");
    assert_non_null(f);
    static char text[1 << 16];
    size_t bytes = fread(text, 1, sizeof text, f), n;
    fclose(f);
    int32_t *ids;
    OK(hr_tokenize(hr_model_tokenizer(exact), text, bytes, true, false, &ids, &n));
    const size_t windows = n / PPL_CTX, vocab = hr_model_get_info(exact)->vocab;
    float *keep = malloc(windows * PPL_CTX * vocab * sizeof *keep);
    text_run r = score(exact, true, ids, n, keep, NULL);
    const double ppl = json_number_value(json_object_get(f32, "ppl")), got = exp(r.nll / (double)r.scored);
    assert_int_equal(r.scored, json_integer_value(json_object_get(f32, "tokens_scored")));
    if (fabs(got / ppl - 1) > 2e-4) fail_msg("perplexity: expected %.4f, got %.4f, tolerance 0.02 %%", ppl, got);
    for (size_t i = 0; i < sizeof runs / sizeof *runs;
         i += hr_test_quick() ? 3 : 1) { /* quick: one a width of weights */
        const char *name = hr_quant_name(runs[i].quant), *order = hr_weights_name(runs[i].order);
        hr_model *m = load(runs[i].quant, runs[i].order);
        r = score(m, false, ids, n, NULL, keep);
        double q = exp(r.nll / (double)r.scored), kl = r.kl / (double)r.scored;
        print_message("# %s, %s: perplexity %.4f (%+.3f %%), KL to the exact run %.5f\n", name, order, q,
                      100 * (q / ppl - 1), kl);
        if (fabs(q / ppl - 1) > runs[i].ppl)
            fail_msg("%s, %s: perplexity: expected %.4f, got %.4f, tolerance %g %%", name, order, ppl, q,
                     100 * runs[i].ppl);
        if (!(kl <= runs[i].kl)) fail_msg("%s, %s: KL %.4f, bound %g", name, order, kl, runs[i].kl);
        hr_model_destroy(m);
    }
    free(keep);
    hr_free(ids);
    json_decref(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_float64),
        cmocka_unit_test(greedy_tokens_are_those_of_the_f32_peer),
        cmocka_unit_test(perplexity_and_divergence_are_within_bounds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
