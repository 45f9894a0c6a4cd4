/* Claims that arithmetic settles: bytes of published shapes, and rounding. */
#include "harness/claims/claim_tests.h"

#include "engine/engine.h"
#include "harness/claims/claim_bench.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <math.h>
#include <stdio.h>

hr_status hr_test_quant_memory(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)run;
    hr_model_info half, small;
    HR_TRY(hr_model_peek("synth:llama-2-7b", HR_QUANT_F16, HR_ORDER_ROWS, &half));
    HR_TRY(hr_model_peek("synth:llama-2-7b", (hr_quant)claim->arg, HR_ORDER_ROWS, &small));
    out->measured = hr_claim_exact((double)half.weight_bytes / (double)small.weight_bytes);
    snprintf(out->note, sizeof out->note, "%.0f MB and %.0f MB, scales of the groups included",
             (double)half.weight_bytes / 1e6, (double)small.weight_bytes / 1e6);
    return HR_OK;
}

hr_status hr_test_mbu_example(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)run, (void)claim;
    hr_model_info info;
    HR_TRY(hr_model_peek("synth:llama-2-7b", HR_QUANT_F16, HR_ORDER_ROWS, &info));
    const double embed = 2.0 * info.vocab * info.dim; /* a lookup reads one row */
    const double bytes = (double)info.weight_bytes - embed;
    out->measured = hr_claim_exact(100 * bytes / 0.023 / 600e9);
    snprintf(out->note, sizeof out->note, "%.2f GB a step; 50 to 70 %% of other engines is not tested here",
             bytes / 1e9);
    return HR_OK;
}

hr_status hr_test_kv_size(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)run;
    const char *spec = claim->arg ? "synth:llama-3.1-8b" : "synth:llama-2-7b";
    hr_model_info info;
    uint64_t arena, one, two;
    HR_TRY(hr_model_peek(spec, HR_QUANT_F16, HR_ORDER_ROWS, &info));
    hr_engine_config c = hr_engine_config_default();
    c.k_type = c.v_type = HR_F16;
    c.ctx = 4096;
    HR_TRY(hr_engine_plan(&info, &c, &arena, &two));
    c.ctx = 2048;
    HR_TRY(hr_engine_plan(&info, &c, &arena, &one));
    out->measured = hr_claim_exact(claim->arg ? (double)(two - one) / 2048 / 1024 : (double)two / 1e9);
    snprintf(out->note, sizeof out->note, "the bytes that this engine maps for %s", spec + 6);
    return HR_OK;
}

/* ---- softmax ---- */

/* To bf16 and back: what a register of 16 bits would keep. */
static float cut(float x) {
    return hr_bf16_to_f32(hr_f32_to_bf16(x));
}

enum { SCORES = 1024, VECTORS = 25 };

/* Root mean square error of the weights of one softmax, relative to the exact ones. */
static double softmax_error(const float *score, bool low) {
    static double exact[SCORES];
    double sum = 0, top = -INFINITY, error = 0, power = 0;
    float sum_f = 0, got[SCORES];
    for (int i = 0; i < SCORES; i++) top = fmax(top, (double)score[i]);
    for (int i = 0; i < SCORES; i++) sum += exact[i] = exp((double)score[i] - top);
    for (int i = 0; i < SCORES; i++) {
        const float at = low ? cut(cut(score[i]) - cut((float)top)) : score[i] - (float)top;
        got[i] = low ? cut(expf(at)) : expf(at);
        sum_f = low ? cut(sum_f + got[i]) : sum_f + got[i];
    }
    for (int i = 0; i < SCORES; i++) {
        const double w = exact[i] / sum, d = (double)(low ? cut(got[i] / sum_f) : got[i] / sum_f) - w;
        error += d * d, power += w * w;
    }
    return sqrt(error / power);
}

hr_status hr_test_softmax(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)run, (void)claim;
    double ratio[VECTORS], low = 0, high = 0;
    uint64_t rng = 3;
    float score[SCORES];
    for (int v = 0; v < VECTORS; v++) {
        for (int i = 0; i < SCORES; i++) { /* a sum of uniforms: near normal, standard deviation 2 */
            float s = 0;
            for (int k = 0; k < 12; k++) s += (float)(hr_random(&rng) >> 40) * 0x1p-24f;
            score[i] = 2 * (s - 6);
        }
        const double l = softmax_error(score, true), h = softmax_error(score, false);
        ratio[v] = l / h, low += l / VECTORS, high += h / VECTORS;
    }
    out->measured = hr_claim_of_samples(ratio, VECTORS);
    snprintf(out->note, sizeof out->note,
             "relative error of the weights over %d scores: %.1e with every step and the sum in bf16, %.1e in fp32",
             SCORES, low, high);
    return HR_OK;
}
