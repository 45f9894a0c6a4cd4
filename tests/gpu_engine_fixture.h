/* gpu_engine_fixture.h - an engine on the CPU and one on a GPU, side by side: the GPU is the driver that runs kernels on the CPU.
 *
 * Tolerances are for sum (gpu - cpu)^2 / sum cpu^2 over the logits of a row; both engines round activations and KV alike.
 * f32 throughout: sums in another order and other exp, sin, cos, 1e-7 a value and some tens of values deep: 1e-9 (measured:
 * 6e-13). Where something is rounded to bf16 or f16 the two round different sums and, in attention, different factors, and are
 * as far from each other as each is from f32: the CPU was measured at 6e-5 with weights of bf16 and at 2.4e-4 with those of f32,
 * which it rounds too; so 1e-3. With int8 activations or 4 bits of KV steps are some times as coarse: 1e-2. What is wrong
 * rather than rounded shows with f32 already. */
#ifndef HR_GPU_ENGINE_FIXTURE_H
#define HR_GPU_ENGINE_FIXTURE_H

#include "tests/hr_test.h"

#include "engine/engine.h"
#include "kernels/base/memory.h"

#include <unistd.h>

#define OK(call)                                                    \
    do {                                                            \
        if ((call) != HR_OK) fail_msg("%s: %s", #call, hr_error()); \
    } while (0)

/* The stand-in for the driver, before anything opens one. */
static inline int use_fake_driver(void **state) {
    (void)state;
    const char *build = getenv("HEADROOM_BUILD");
    char file[512];
    snprintf(file, sizeof file, "%s/tests/libcuda_fake.so", build ? build : "build");
    if (access(file, R_OK)) {
        print_error("%s is missing: make it first\n", file);
        return -1;
    }
    setenv("HEADROOM_LIBCUDA", file, 1);
    setenv("HEADROOM_LIBCUPTI", "/nonexistent/libcupti.so", 0); /* times are those of events */
    setenv("HEADROOM_LIBCUBLASLT", "/nonexistent/libcublasLt.so", 0);
    return 0;
}

#define GPU_TINY "synth:tiny:layers=2:dim=128:heads=4:kv_heads=2:head_dim=32:ffn=192:vocab=320:ctx=512:seed=5"
enum { GPU_VOCAB = 320 };

static inline hr_model *gpu_load(const char *spec, hr_quant quant) {
    hr_model *m = NULL;
    const hr_load_options o = {.quant = quant, .threads = 1};
    if (hr_model_load(spec, &o, &m) != HR_OK) fail_msg("%s: %s", spec, hr_error());
    return m;
}

static inline void gpu_ids(int32_t *out, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = (int32_t)((seed >> 33) % GPU_VOCAB);
    }
}

static inline hr_engine_config gpu_config(void) {
    hr_engine_config c = hr_engine_config_default();
    c.threads = 1, c.pin = false, c.huge_pages = false, c.max_seqs = 8, c.ctx = 160, c.ubatch = 24;
    c.act = HR_ACT_F32, c.k_type = c.v_type = HR_F32;
    return c;
}

typedef struct gpu_pair {
    hr_engine *cpu, *gpu;
    double tolerance;
    const char *what;
} gpu_pair;

static inline double gpu_tolerance(const hr_engine_config *c) {
    const bool coarse = c->act == HR_ACT_INT8 || c->act == HR_ACT_INT8_ROW || c->k_type == HR_Q4_0 ||
                        c->v_type == HR_Q4_0 || c->k_type == HR_I4KC || c->v_type == HR_I4KC;
    const bool exact = c->act == HR_ACT_F32 && c->k_type == HR_F32 && c->v_type == HR_F32;
    return coarse ? 1e-2 : exact ? 1e-9 : 1e-3;
}

/* The configuration on both; forced rows and the like are the GPU's alone. */
static inline gpu_pair gpu_open(const hr_model *m, const hr_engine_config *config, const char *what) {
    gpu_pair p = {.tolerance = gpu_tolerance(config), .what = what};
    hr_engine_config c = *config;
    c.device = HR_DEVICE_CPU;
    if (hr_engine_create(m, &c, &p.cpu) != HR_OK) fail_msg("%s, CPU: %s", what, hr_error());
    c.device = 0;
    if (hr_engine_create(m, &c, &p.gpu) != HR_OK) fail_msg("%s, GPU: %s", what, hr_error());
    return p;
}
static inline void gpu_close(gpu_pair *p) {
    hr_engine_destroy(p->cpu), hr_engine_destroy(p->gpu);
}

static inline void gpu_assert_near(const gpu_pair *p, const float *got, const float *want, const char *where) {
    double error = 0, power = 0;
    size_t worst = 0;
    if (!got || !want) fail_msg("%s, %s: no logits: %s", p->what, where, hr_error());
    for (size_t i = 0; i < GPU_VOCAB; i++) {
        const double d = (double)got[i] - (double)want[i];
        error += d * d, power += (double)want[i] * (double)want[i];
        if (!(fabs(d) <= fabs((double)got[worst] - (double)want[worst]))) worst = i;
    }
    if (error <= p->tolerance * power) return;
    fail_msg(
        "%s, %s: expected the CPU's logits, NMSE %.3g, tolerance %.3g; worst is logit %zu: expected %.7g, got %.7g",
        p->what, where, error / power, p->tolerance, worst, (double)want[worst], (double)got[worst]);
}

/* Rows 0..n - 1 of the last pass. */
static inline void gpu_compare(const gpu_pair *p, size_t n, const char *where) {
    for (size_t i = 0; i < n; i++) gpu_assert_near(p, hr_engine_logits(p->gpu, i), hr_engine_logits(p->cpu, i), where);
}

static inline void gpu_prefill(const gpu_pair *p, uint32_t seq, const int32_t *tokens, size_t n) {
    if (hr_engine_prefill(p->cpu, seq, tokens, n, true) != HR_OK) fail_msg("%s, CPU: %s", p->what, hr_error());
    if (hr_engine_prefill(p->gpu, seq, tokens, n, true) != HR_OK) fail_msg("%s, GPU: %s", p->what, hr_error());
    gpu_compare(p, 1, "prefill");
}

static inline void gpu_decode(const gpu_pair *p, const uint32_t *seqs, const int32_t *tokens, size_t n) {
    if (hr_engine_decode(p->cpu, seqs, tokens, n) != HR_OK) fail_msg("%s, CPU: %s", p->what, hr_error());
    if (hr_engine_decode(p->gpu, seqs, tokens, n) != HR_OK) fail_msg("%s, GPU: %s", p->what, hr_error());
    gpu_compare(p, n, "decode");
}

#endif
