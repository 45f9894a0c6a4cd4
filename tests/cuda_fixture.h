/* cuda_fixture.h - what tests of kernels for GPUs share: device memory that is poisoned and bounded, launches in every mode of the
 * machine (tests/cuda_on_cpu/shim.h), weights, activations, batches, and comparisons that name the mode.
 *
 *     for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
 *         hr_cuda_poison(y);
 *         hr_cuda_run(row, &params);
 *         hr_cuda_assert_near(y, want, n, relative, absolute, "gemv_bf16");
 *     } */
#ifndef HR_CUDA_FIXTURE_H
#define HR_CUDA_FIXTURE_H

#include "kernels/base/memory.h"
#include "kernels/base/random.h"
#include "kernels/cuda/cuda_params.h"
#include "kernels/table.h"
#include "tests/cuda_on_cpu/shim.h"
#include "tests/hr_test.h"

/* ---- device memory ---- */

#ifdef HR_ON_GPU
#include "tests/gpu_machine.h"
#define HR_CUDA_RAW_FREE hr_gpu_free
static inline void *hr_cuda_raw_alloc(size_t bytes) {
    return hr_gpu_alloc(bytes);
}
#else
#define HR_CUDA_RAW_FREE free
static inline void *hr_cuda_raw_alloc(size_t bytes) {
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 256, bytes), 0);
    return p;
}
#endif

enum { HR_CUDA_CANARY = 64 };
typedef struct hr_cuda_memory_head {
    size_t bytes;
    uint8_t pad[256 - sizeof(size_t)];
} hr_cuda_memory_head;

/* All bits set: NaN in every type of float. */
static inline void hr_cuda_poison(void *p) {
    const hr_cuda_memory_head *head = (const hr_cuda_memory_head *)p - 1;
    memset(p, 0xff, head->bytes);
}
/* Aligned to 256 as cuMemAlloc's, poisoned; a write behind its end is found by free, a read by AddressSanitizer. */
static inline void *hr_cuda_alloc(size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    const size_t canary = 0;
#else
    const size_t canary = HR_CUDA_CANARY;
#endif
    hr_cuda_memory_head *head = hr_cuda_raw_alloc(sizeof *head + bytes + canary);
    head->bytes = bytes;
    hr_cuda_poison(head + 1);
    memset((char *)(head + 1) + bytes, 0x5a, canary);
    return head + 1;
}
static inline void hr_cuda_free(const void *p) {
    if (!p) return;
    const hr_cuda_memory_head *head = (const hr_cuda_memory_head *)p - 1;
#ifndef __SANITIZE_ADDRESS__
    const uint8_t *behind = (const uint8_t *)p + head->bytes;
    for (size_t i = 0; i < HR_CUDA_CANARY; i++)
        if (behind[i] != 0x5a) fail_msg("a kernel wrote byte %zu behind %zu bytes of device memory", i, head->bytes);
#endif
    HR_CUDA_RAW_FREE((void *)(uintptr_t)head);
}
static inline void *hr_cuda_copy_of(const void *from, size_t bytes) {
    void *p = hr_cuda_alloc(bytes);
    memcpy(p, from, bytes);
    return p;
}
/* Uniform in [-1, 1). */
static inline float hr_cuda_random(uint64_t *state) {
    return (float)((double)(hr_random(state) >> 11) / 4503599627370496.0 - 1);
}
static inline float *hr_cuda_floats(size_t n, uint64_t seed) {
    float *x = hr_cuda_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = hr_cuda_random(&seed);
    return x;
}

/* ---- launches ---- */

#ifdef HR_ON_GPU
#define hr_cuda_test_caps (*hr_gpu_caps())
#else
/* An H100. */
static const hr_cuda_caps hr_cuda_test_caps = {
    .major = 9, .minor = 0, .sms = 132, .smem_optin = 232448, .workspace = 4 << 20};
#endif

/* hr_cuda_caps.workspace bytes; zero before every launch, and hr_cuda_run fails when a kernel does not leave them so. Never freed. */
static inline void *hr_cuda_workspace(void) {
    static void *workspace;
    if (!workspace) {
        workspace = hr_cuda_raw_alloc(4 << 20);
        memset(workspace, 0, 4 << 20);
    }
    return workspace;
}

static hr_shim_mode hr_cuda_mode_now;
static inline const char *hr_cuda_mode_name(void) {
    static const char *const orders[] = {"ascending", "descending", "random", "last-in-first-out"};
    static char name[64];
    snprintf(name, sizeof name, "%s %u, copies %s", orders[hr_cuda_mode_now.order], (unsigned)hr_cuda_mode_now.seed,
             hr_cuda_mode_now.copies_late ? "late" : "early");
    return name;
}

#ifdef __SANITIZE_THREAD__
enum { HR_CUDA_ONE_MODE = 1 };
#else
enum { HR_CUDA_ONE_MODE = 0 };
#endif
typedef struct hr_cuda_modes {
    unsigned next, last; /* of hr_shim_modes: to look at, 1 + the one that ran last */
    uint64_t copies;     /* before the first */
} hr_cuda_modes;
/* Sets the next mode; false: all have been. Late copies are left out where the early run of the same order had none. With
 * HR_TEST_QUICK three modes are enough, and one for ThreadSanitizer: it sees the races of all orders in each. */
static inline bool hr_cuda_next_mode(hr_cuda_modes *m) {
    if (m->next == 0) m->copies = hr_shim_get_stats().copies;
    for (; m->next < hr_shim_n_modes; m->next++) {
        const hr_shim_mode *mode = &hr_shim_modes[m->next];
        if (hr_test_quick() && m->next != 0 && (HR_CUDA_ONE_MODE || (m->next != 5 && m->next != 6))) continue;
        const bool early_ran = m->last == m->next && m->next && hr_shim_modes[m->next - 1].order == mode->order;
        if (mode->copies_late && early_ran && hr_shim_get_stats().copies == m->copies) continue;
        hr_cuda_mode_now = *mode;
        hr_shim_set_mode(mode);
        m->last = ++m->next;
        return true;
    }
    return false;
}

/* Runs a kernel of any symbol; fails unless it can be launched. */
static inline void hr_cuda_launch(const char *symbol, const hr_cuda_shape *shape, const void *params) {
    const int r = hr_shim_launch(symbol, shape, params);
    if (r == 1) fail_msg("no kernel has the symbol %s", symbol);
    if (r) {
        fail_msg("%s: no GPU launches grid %u,%u,%u of %u,%u,%u threads with %u bytes of shared memory", symbol,
                 shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0], shape->block[1], shape->block[2],
                 shape->smem);
    }
}
/* A row of the table with its own shape on hr_cuda_test_caps. `params` may be changed by the shape function. */
static inline void hr_cuda_run(const hr_kernel *row, void *params) {
    hr_cuda_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    row->fn.cuda.shape(params, &hr_cuda_test_caps, &shape);
    hr_cuda_launch(row->fn.cuda.symbol, &shape, params);
    const uint64_t *workspace = hr_cuda_workspace();
    for (size_t i = 0; i < hr_cuda_test_caps.workspace / sizeof *workspace; i++) {
        if (!workspace[i]) continue;
        memset(hr_cuda_workspace(), 0, hr_cuda_test_caps.workspace);
        fail_msg("%s (%s): byte %zu of the workspace is not left zero", row->name, hr_cuda_mode_name(), 8 * i);
    }
}
/* The row of a list by name. */
static inline const hr_kernel *hr_cuda_row(const char *name) {
    for (size_t i = 0; hr_cuda_kernel_at(i); i++)
        if (strcmp(hr_cuda_kernel_at(i)->name, name) == 0) return hr_cuda_kernel_at(i);
    fail_msg("no row for GPUs is named %s", name);
    return NULL;
}

/* ---- comparisons ---- */

/* |got - want| <= relative * |want| + absolute for all n. */
static inline void hr_cuda_assert_near_(const float *got, const double *want, size_t n, double relative,
                                        double absolute, const char *what, const char *file, int line) {
    for (size_t i = 0; i < n; i++) {
        const double limit = relative * fabs(want[i]) + absolute;
        if (fabs((double)got[i] - want[i]) <= limit || (double)got[i] == want[i]) continue;
        print_error("%s (%s): index %zu of %zu: expected %.9g, got %.9g, tolerance %.3g\n", what, hr_cuda_mode_name(),
                    i, n, want[i], (double)got[i], limit);
        _fail(file, line);
    }
}
#define hr_cuda_assert_near(got, want, n, relative, absolute, what) \
    hr_cuda_assert_near_((got), (want), (n), (relative), (absolute), (what), __FILE__, __LINE__)

static inline void hr_cuda_assert_bytes_(const void *got, const void *want, size_t n, const char *what,
                                         const char *file, int line) {
    const uint8_t *a = got, *b = want;
    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i]) continue;
        print_error("%s (%s): byte %zu of %zu: expected 0x%02x, got 0x%02x, tolerance 0\n", what, hr_cuda_mode_name(),
                    i, n, b[i], a[i]);
        _fail(file, line);
    }
}
#define hr_cuda_assert_bytes(got, want, n, what) hr_cuda_assert_bytes_((got), (want), (n), (what), __FILE__, __LINE__)

/* ---- weights ---- */

/* Row by row as the engine puts them on a device, and what they stand for. */
typedef struct hr_cuda_weights {
    hr_mat m;
    float *values; /* [rows][cols]; host memory in that no kernel reads it */
} hr_cuda_weights;

/* Random values in about [-1, 1) of any type: those of planes and floats by hr_quantize_row, blocks of GGUF with random quants. */
static inline hr_cuda_weights hr_cuda_make_weights(hr_dtype t, size_t rows, size_t cols, uint64_t seed) {
    const size_t row_bytes = hr_row_bytes(t, cols), row_scales = hr_row_scales(t, cols);
    uint8_t *data = hr_cuda_alloc(rows * row_bytes);
    uint16_t *scales = row_scales ? hr_cuda_alloc(rows * row_scales * sizeof *scales) : NULL;
    const bool blocks = t == HR_Q8_0 || t == HR_Q4_0 || t == HR_Q4_1 || t == HR_Q6_K;
    float *x = hr_cuda_floats(cols, seed);
    for (size_t r = 0; r < rows && !blocks; r++) {
        for (size_t c = 0; c < cols; c++) x[c] = hr_cuda_random(&seed);
        const hr_status s = hr_quantize_row(t, x, cols, data + r * row_bytes, scales ? scales + r * row_scales : NULL);
        if (s != HR_OK) fail_msg("%s", hr_error());
    }
    if (blocks) {
        for (size_t i = 0; i < rows * row_bytes; i++) data[i] = (uint8_t)(hr_random(&seed) >> 32);
        for (size_t i = 0; i < rows * row_bytes; i += hr_dtypes[t].block_bytes) {
            const uint16_t d = hr_f32_to_f16(hr_cuda_random(&seed) / (t == HR_Q8_0   ? 127
                                                                      : t == HR_Q6_K ? 32 * 127
                                                                                     : 8));
            memcpy(data + i + (t == HR_Q6_K ? 208 : 0), &d, 2);
            if (t == HR_Q4_1) memcpy(data + i + 2, &d, 2);
        }
    }
    hr_cuda_free(x);
    hr_cuda_weights w = {{t, rows, cols, data, scales, HR_ORDER_ROWS}, hr_malloc(rows * cols * sizeof(float) + 1)};
    assert_non_null(w.values);
    for (size_t r = 0; r < rows; r++) hr_mat_row_f32(&w.m, r, w.values + r * cols);
    return w;
}
static inline void hr_cuda_free_weights(hr_cuda_weights *w) {
    hr_cuda_free(w->m.data);
    hr_cuda_free(w->m.scales);
    hr_free(w->values);
}

/* ---- activations ---- */

static inline size_t hr_cuda_act_bytes(hr_act type) {
    return type == HR_ACT_F32 ? 4 : type == HR_ACT_BF16 ? 2 : 1;
}
/* For n tokens of k values, poisoned. */
static inline hr_cuda_acts hr_cuda_alloc_acts(hr_act type, size_t n, size_t k) {
    hr_cuda_acts a = {.ld = (uint32_t)((k + 63) / 64 * 64), .type = type};
    a.data = hr_cuda_alloc(n * a.ld * hr_cuda_act_bytes(type));
    if (type == HR_ACT_INT8) a.d = hr_cuda_alloc(n * a.ld / 32 * sizeof *a.d);
    if (type == HR_ACT_INT8_ROW) a.d = hr_cuda_alloc(n * sizeof *a.d);
    return a;
}
/* Of x [n][k], by the rules of hr_acts. */
static inline hr_cuda_acts hr_cuda_make_acts(hr_act type, const float *x, size_t n, size_t k) {
    hr_cuda_acts a = hr_cuda_alloc_acts(type, n, k);
    memset(a.data, 0, n * a.ld * hr_cuda_act_bytes(type));
    const size_t group = type == HR_ACT_INT8 ? 32 : a.ld;
    for (size_t t = 0; t < n; t++) {
        for (size_t c = 0; c < k; c++) {
            if (type == HR_ACT_F32) ((float *)a.data)[t * a.ld + c] = x[t * k + c];
            if (type == HR_ACT_BF16) ((uint16_t *)a.data)[t * a.ld + c] = hr_f32_to_bf16(x[t * k + c]);
        }
        for (size_t g = 0; a.d && g < a.ld; g += group) {
            float most = 0;
            for (size_t c = g; c < g + group && c < k; c++) most = fmaxf(most, fabsf(x[t * k + c]));
            const float d = a.d[(t * a.ld + g) / group] = most / 127;
            for (size_t c = g; c < g + group && c < k; c++)
                ((int8_t *)a.data)[t * a.ld + c] = (int8_t)(d > 0 ? rintf(x[t * k + c] / d) : 0);
        }
    }
    return a;
}
/* Element c of token t as products see it. */
static inline double hr_cuda_act_value(const hr_cuda_acts *a, size_t t, size_t c) {
    const size_t i = t * a->ld + c;
    if (a->type == HR_ACT_F32) return (double)((const float *)a->data)[i];
    if (a->type == HR_ACT_BF16) return (double)hr_bf16_to_f32(((const uint16_t *)a->data)[i]);
    return (double)((const int8_t *)a->data)[i] * (double)a->d[a->type == HR_ACT_INT8 ? i / 32 : t];
}
static inline void hr_cuda_free_acts(hr_cuda_acts *a) {
    hr_cuda_free(a->data);
    hr_cuda_free(a->d);
}

/* ---- batches ---- */

/* One segment of n tokens, or n_segments of one token each, at positions pos0[segment]. Tokens are random below vocab, all
 * rows have logits. Segments have no cache yet: set segments[i].kv. */
typedef struct hr_cuda_test_batch {
    hr_cuda_batch *b;
    hr_cuda_segment *segments;
    int32_t *tokens;
    uint32_t *pos, *segment, *logit_rows;
} hr_cuda_test_batch;
static inline hr_cuda_test_batch hr_cuda_make_batch(uint32_t n_segments, uint32_t n, const uint32_t *pos0,
                                                    uint32_t vocab, uint64_t seed) {
    assert_true(n_segments == 1 || n == n_segments);
    hr_cuda_test_batch t = {.b = hr_cuda_alloc(sizeof *t.b),
                            .segments = hr_cuda_alloc(n_segments * sizeof *t.segments),
                            .tokens = hr_cuda_alloc(n * sizeof *t.tokens),
                            .pos = hr_cuda_alloc(n * sizeof *t.pos),
                            .segment = hr_cuda_alloc(n * sizeof *t.segment),
                            .logit_rows = hr_cuda_alloc(n * sizeof *t.logit_rows)};
    memset(t.segments, 0, n_segments * sizeof *t.segments);
    for (uint32_t i = 0; i < n_segments; i++) {
        t.segments[i].pos0 = pos0[i];
        t.segments[i].n = n / n_segments;
        t.segments[i].row0 = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        t.segment[i] = n_segments == 1 ? 0 : i;
        t.pos[i] = n_segments == 1 ? pos0[0] + i : pos0[i];
        t.tokens[i] = (int32_t)(hr_random(&seed) % vocab);
        t.logit_rows[i] = i;
    }
    *t.b = (hr_cuda_batch){.n = n,
                           .n_segments = n_segments,
                           .n_logits = n,
                           .tokens = t.tokens,
                           .pos = t.pos,
                           .segment = t.segment,
                           .segments = t.segments,
                           .logit_rows = t.logit_rows};
    return t;
}
static inline void hr_cuda_free_batch(hr_cuda_test_batch *t) {
    hr_cuda_free(t->b), hr_cuda_free(t->segments), hr_cuda_free(t->tokens);
    hr_cuda_free(t->pos), hr_cuda_free(t->segment), hr_cuda_free(t->logit_rows);
}

#endif
