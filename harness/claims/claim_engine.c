/* Claims about whole passes of the engine. Models are layers of published shapes with random weights: a layer costs what
 * it costs, however many there are, so one or two stand for all. */
#include "harness/claims/claim_bench.h"
#include "harness/claims/claim_tests.h"
#include "harness/stats/stats.h"
#include "kernels/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ONE_LAYER  "synth:llama-3.2-1b:layers=1:vocab=8192"
#define TWO_LAYERS "synth:llama-3.2-1b:layers=2:vocab=8192"
#define BIG_LAYER  "synth:llama-3.1-8b:layers=1:vocab=8192"
#define BIG_HEAD   "synth:llama-3.2-1b:layers=1:vocab=32768"
/* Attention of the 1B shape with hardly anything around it. */
#define ATTENTION "synth:llama-3.2-1b:layers=1:vocab=1024:ffn=256"

#define BIT(op) (1u << HR_OP_##op)
enum { PRODUCTS = BIT(QKV) | BIT(OUT) | BIT(GATE_UP) | BIT(DOWN) | BIT(HEAD) };

/* ---- attention ---- */

static hr_status attention_ratio(hr_claims_run *run, int64_t tokens, bool naive_first, hr_claim_measured *out) {
    static const hr_metric_ops_of attention = {HR_PHASE_PREFILL, BIT(ATTENTION)};
    hr_arm_spec naive = {.model = ATTENTION, .kind = HR_CELL_PP, .n_prompt = tokens, .naive = true}, flash = naive;
    flash.naive = false;
    return hr_claim_compare(run, naive_first ? &naive : &flash, naive_first ? &flash : &naive, hr_metric_ops,
                            &attention, out);
}

hr_status hr_test_flash(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    snprintf(out->note, sizeof out->note, "prefill of %d tokens in one pass, 32 heads of 64 on 8 KV heads, bf16 KV",
             claim->arg);
    return attention_ratio(run, claim->arg, true, &out->measured);
}

hr_status hr_test_flash_short(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    HR_TRY(attention_ratio(run, claim->arg, false, &out->measured));
    hr_claim_measured longer;
    HR_TRY(attention_ratio(run, 2 * (int64_t)claim->arg, false, &longer));
    snprintf(out->note, sizeof out->note, "at %d tokens; at %d the naive one is %.2f x as fast", claim->arg,
             2 * claim->arg, longer.value);
    return HR_OK;
}

/* ---- fusion ---- */

/* Whether both recorded the same ops, by the same kernels, equally often. */
static bool same_steps(const json_t *a, const json_t *b) {
    const json_t *x = json_object_get(a, "ops"), *y = json_object_get(b, "ops");
    if (json_array_size(x) != json_array_size(y)) return false;
    static const char *const keys[] = {"phase", "layer", "op", "kernel", "n"};
    for (size_t i = 0; i < json_array_size(x); i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (!json_equal(json_object_get(json_array_get(x, i), keys[k]),
                            json_object_get(json_array_get(y, i), keys[k])))
                return false;
    return true;
}

static hr_status fuse_arms(hr_arm arms[2], const hr_metric_ops_of *ops, hr_claim_result *out) {
    json_t *plain = NULL, *fused = NULL;
    hr_status status = hr_arm_run(&arms[0], &plain);
    if (status == HR_OK) status = hr_arm_run(&arms[1], &fused);
    const bool same = status == HR_OK && same_steps(plain, fused);
    json_decref(plain), json_decref(fused);
    if (status != HR_OK) return status;
    if (same) {
        snprintf(out->reason, sizeof out->reason, "the engine runs the same steps with and without this fusion");
        return HR_OK;
    }
    return hr_claim_ratio(&arms[0], &arms[1], hr_metric_ops, ops, &out->measured);
}

hr_status hr_test_fuse(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const unsigned bit = (unsigned)claim->arg;
    const bool head = bit == HR_FUSE_HEAD_SAMPLE;
    hr_metric_ops_of ops = {HR_PHASE_DECODE, BIT(NORM) | BIT(QKV) | BIT(ROPE) | BIT(KV_APPEND)};
    if (bit == HR_FUSE_GATE_UP) ops.ops = BIT(NORM) | BIT(GATE_UP);
    if (head) ops.ops = BIT(NORM) | BIT(HEAD) | BIT(SAMPLE);
    const hr_arm_spec plain = {.model = head ? BIG_HEAD : TWO_LAYERS,
                               .kind = head ? HR_CELL_ISL : HR_CELL_TG,
                               .n_prompt = head ? 16 : 0,
                               .n_gen = 33,
                               .unfused = true,
                               .fuse = bit};
    hr_arm_spec fused = plain;
    fused.unfused = false;
    hr_arm arms[2] = {{0}};
    hr_status status = hr_arm_open(run, &plain, &arms[0]);
    if (status == HR_OK) status = hr_arm_open(run, &fused, &arms[1]);
    if (status == HR_OK) status = fuse_arms(arms, &ops, out);
    hr_arm_close(&arms[1]), hr_arm_close(&arms[0]);
    snprintf(out->note, sizeof out->note, "the ops that are joined, in decode of one sequence, 1B shape, bf16");
    return status;
}

/* ---- quantization ---- */

static double metric_step(const hr_arm *arm, const json_t *result, const void *context) {
    (void)arm, (void)context;
    return json_number_value(json_object_get(result, "step_ms"));
}

hr_status hr_test_quant_speed(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_arm_spec half = {.model = TWO_LAYERS, .quant = HR_QUANT_BF16, .kind = HR_CELL_TG, .n_gen = 32};
    hr_arm_spec small = half;
    small.quant = (hr_quant)claim->arg;
    snprintf(out->note, sizeof out->note, "decode of one sequence, 1B shape, bf16 against %s",
             hr_quant_name(small.quant));
    return hr_claim_compare(run, &half, &small, metric_step, NULL, &out->measured);
}

/* ---- prefill ---- */

static double metric_token(const hr_arm *arm, const json_t *result, const void *context) {
    (void)context;
    const json_t *step = json_object_get(result, "step_ms");
    (void)arm;
    if (json_is_number(step)) return json_number_value(step);
    return json_number_value(json_object_get(result, "prefill_ms")) / 2048;
}

hr_status hr_test_parallel(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const char *model = run->options->quick ? ONE_LAYER : TWO_LAYERS;
    const hr_arm_spec alone = {.model = model, .kind = HR_CELL_TG, .n_gen = 16, .depth = claim->arg / 2};
    const hr_arm_spec together = {.model = model, .kind = HR_CELL_PP, .n_prompt = claim->arg};
    snprintf(out->note, sizeof out->note, "one by one: tokens at a depth of %d, the middle of the prompt",
             claim->arg / 2);
    return hr_claim_compare(run, &alone, &together, metric_token, NULL, &out->measured);
}

static hr_arm_spec prefill_spec(const hr_claims_run *run) {
    return (hr_arm_spec){.model = run->options->quick ? ONE_LAYER : BIG_LAYER, .kind = HR_CELL_PP, .n_prompt = 2048};
}

static double metric_prefill_share(const hr_arm *arm, const json_t *result, const void *context) {
    (void)arm;
    const int *attention = context;
    return 100 * hr_result_ops_ms(result, HR_PHASE_PREFILL, *attention ? BIT(ATTENTION) : PRODUCTS) /
           hr_result_ops_ms(result, HR_PHASE_PREFILL, ~0u);
}

hr_status hr_test_prefill_share(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_arm_spec spec = prefill_spec(run);
    snprintf(out->note, sizeof out->note, "2048 tokens, a layer of the %s shape", run->options->quick ? "1B" : "8B");
    return hr_claim_sample(run, &spec, metric_prefill_share, &claim->arg, &out->measured);
}

/* Roof time of the products over their time, each unit against its own peak, % */
static double products_of_peak(const json_t *result, const hr_state *peaks) {
    double roof_ms = 0, unknown = 0;
    size_t i;
    json_t *row;
    (void)unknown;
    const int unit = peaks->gflop_s[HR_UNIT_BF16] > 0 ? HR_UNIT_BF16 : HR_UNIT_FP32;
    json_array_foreach(json_object_get(result, "ops"), i, row) {
        const char *name = json_string_value(json_object_get(row, "op"));
        for (int op = 0; op < HR_OP_COUNT; op++)
            if (PRODUCTS >> op & 1u && !strcmp(hr_op_names[op], name))
                roof_ms += json_number_value(json_object_get(row, "n")) *
                           json_number_value(json_object_get(row, "flops")) / peaks->gflop_s[unit] * 1e-6;
    }
    return 100 * roof_ms / hr_result_ops_ms(result, HR_PHASE_PREFILL, PRODUCTS);
}

/* Ceilings are taken before and after each sample, the higher counts, as beside a cell of a sweep. */
typedef double with_peaks(const hr_arm *arm, const json_t *result, const hr_state *peaks, int arg);

static void keep_best(hr_state *best, const hr_state *now) {
    best->read_gb_s = fmax(best->read_gb_s, now->read_gb_s);
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        if (!(best->gflop_s[u] >= now->gflop_s[u])) best->gflop_s[u] = now->gflop_s[u];
}

static hr_status sample_with_peaks(hr_claims_run *run, const hr_arm_spec *spec, with_peaks *value, int arg,
                                   hr_claim_measured *out) {
    hr_arm arm;
    hr_state before, after, best;
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    HR_TRY(hr_claim_peaks(run, &before)); /* first: an engine pins this thread */
    HR_TRY(hr_arm_open(run, spec, &arm));
    const uint64_t start = hr_now_ns();
    hr_status status = hr_claim_peaks(run, &before);
    while (status == HR_OK && n < HR_CLAIM_SAMPLES && !hr_claim_enough(run, n, start)) {
        json_t *result = NULL;
        status = hr_arm_run(&arm, &result);
        if (status == HR_OK) status = hr_claim_peaks(run, &after);
        if (status == HR_OK) {
            best = before;
            keep_best(&best, &after);
            v[n++] = value(&arm, result, &best, arg);
            before = after;
        }
        json_decref(result);
    }
    hr_arm_close(&arm);
    if (status == HR_OK) *out = hr_claim_of_samples(v, n);
    return status;
}

static double value_prefill_peak(const hr_arm *arm, const json_t *result, const hr_state *peaks, int arg) {
    (void)arm, (void)arg;
    return products_of_peak(result, peaks);
}

hr_status hr_test_prefill_peak(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    const hr_arm_spec spec = prefill_spec(run);
    snprintf(out->note, sizeof out->note,
             "matrix products of 2048 tokens, a layer of the %s shape, against the measured peak",
             run->options->quick ? "1B" : "8B");
    return sample_with_peaks(run, &spec, value_prefill_peak, 0, &out->measured);
}

/* ---- decode ---- */

static const hr_arm_spec decode = {.model = TWO_LAYERS, .quant = HR_QUANT_BF16, .kind = HR_CELL_TG, .n_gen = 32};

static double value_decode_ceiling(const hr_arm *arm, const json_t *result, const hr_state *peaks, int compute) {
    const hr_step_work w = hr_engine_decode_work(arm->engine, 1, 16);
    const double ms = json_number_value(json_object_get(result, "step_ms"));
    double roof = (double)(w.bytes_weights + w.bytes_kv_read + w.bytes_kv_write) / peaks->read_gb_s * 1e-6;
    if (compute) roof = 0;
    for (int u = 0; compute && u < HR_UNIT_COUNT; u++)
        if (w.flops[u])
            roof +=
                (double)w.flops[u] / (peaks->gflop_s[u] > 0 ? peaks->gflop_s[u] : peaks->gflop_s[HR_UNIT_FP32]) * 1e-6;
    return 100 * roof / ms;
}

hr_status hr_test_decode_ceiling(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    snprintf(out->note, sizeof out->note,
             "one sequence, 1B shape, bf16: %s over the measured ceiling, of the step's time",
             claim->arg ? "flops" : "bytes");
    return sample_with_peaks(run, &decode, value_decode_ceiling, claim->arg, &out->measured);
}

hr_status hr_test_intensity(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    hr_arm arm;
    HR_TRY(hr_arm_open(run, &decode, &arm));
    const hr_step_work w = hr_engine_decode_work(arm.engine, 1, 512);
    hr_arm_close(&arm);
    double flops = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) flops += (double)w.flops[u];
    out->measured = hr_claim_exact(flops / (double)(w.bytes_weights + w.bytes_kv_read + w.bytes_kv_write));
    snprintf(out->note, sizeof out->note,
             "counted by the kernels' owners: one sequence at a context of 512, 1B shape, bf16");
    return HR_OK;
}

/* ---- a whole request ---- */

static double metric_compose(const hr_arm *arm, const json_t *result, const void *context) {
    (void)arm, (void)context;
    const json_t *ttft = json_object_get(result, "ttft_ms"), *e2e = json_object_get(result, "e2e_ms");
    return 100 * json_number_value(json_object_get(ttft, "p50")) / json_number_value(json_object_get(e2e, "p50"));
}

hr_status hr_test_compose(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_arm_spec spec = {.model = run->options->quick ? ONE_LAYER : "synth:llama-3.2-1b",
                              .kind = HR_CELL_ISL,
                              .n_prompt = claim->arg,
                              .n_gen = 128};
    snprintf(out->note, sizeof out->note, "%s, bf16, one request alone",
             run->options->quick ? "a layer of the 1B shape" : "the 1B shape");
    return hr_claim_sample(run, &spec, metric_compose, NULL, &out->measured);
}

/* ---- threads ---- */

enum { COUNTS = 5 };

/* Counts worth a try: shares of the cores, each once. */
static unsigned thread_counts(unsigned cores, unsigned counts[COUNTS]) {
    static const double shares[COUNTS] = {0.25, 0.5, 0.6, 0.75, 1};
    unsigned n = 0;
    for (int i = 0; i < COUNTS; i++) {
        const unsigned t = (unsigned)fmax(1, floor(shares[i] * cores + 0.5));
        if (n == 0 || counts[n - 1] != t) counts[n++] = t;
    }
    return n;
}

static hr_status thread_rounds(hr_claims_run *run, hr_arm *arms, const unsigned *counts, unsigned n_counts,
                               hr_claim_result *out) {
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    const uint64_t start = hr_now_ns();
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(run, n, start)) {
        double best = INFINITY;
        for (unsigned k = 0; k < n_counts; k++) {
            const unsigned i = (unsigned)((k + n) % n_counts);
            json_t *result = NULL;
            HR_TRY(hr_arm_run(&arms[i], &result));
            const double ms = json_number_value(json_object_get(result, "step_ms"));
            json_decref(result);
            if (ms < best) best = ms, v[n] = 100.0 * counts[i] / run->machine.cores;
        }
        n++;
    }
    out->measured = hr_claim_of_samples(v, n);
    return HR_OK;
}

hr_status hr_test_threads(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    unsigned counts[COUNTS];
    const unsigned n = thread_counts(run->machine.cores, counts);
    if (n < 2) {
        snprintf(out->reason, sizeof out->reason, "one core has one possible count of threads");
        return HR_OK;
    }
    hr_arm arms[COUNTS] = {{0}};
    hr_status status = HR_OK;
    size_t used = 0;
    char list[64] = "";
    for (unsigned i = 0; i < n && status == HR_OK; i++) {
        hr_arm_spec spec = decode;
        spec.threads = counts[i];
        status = hr_arm_open(run, &spec, &arms[i]);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", i ? ", " : "", counts[i]);
    }
    if (status == HR_OK) status = thread_rounds(run, arms, counts, n, out);
    for (unsigned i = 0; i < n; i++)
        if (arms[i].run) hr_arm_close(&arms[i]);
    snprintf(out->note, sizeof out->note, "%s threads of %u cores, 1B shape, bf16, one sequence", list,
             run->machine.cores);
    return status;
}
