/* Whether rows of KV that do not start on 128 bytes are slower to read: one attention kernel, the same rows, moved. */
#include "harness/claims/claim_bench.h"
#include "harness/claims/claim_tests.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { HEADS = 8, GROUP = 4, DIM = 64, LONG = 16384, SHORT = 1024 }; /* 2 x 16.8 MB from DRAM; 2 x 1 MB from a cache */

typedef struct read {
    hr_kv_geom g;
    hr_kv_seq seq;
    hr_attn attn;
    const hr_kernel *kernel;
    char *memory, *scratch;
    float *q;
    size_t bytes;
} read_bench;

static void read_fini(read_bench *r) {
    if (r->memory) hr_pages_free(r->memory, r->bytes);
    *r = (read_bench){0};
}

static hr_status read_init(read_bench *r, uint32_t positions) {
    *r = (read_bench){0};
    HR_TRY(hr_kv_geom_init(&r->g, HR_KV_HEAD, 1, HEADS, DIM, HR_BF16, HR_BF16, positions, 0));
    const hr_kernel_query q = {
        .family = HR_FAM_ATTN, .isa = hr_isa_best(), .dtype = HR_BF16, .dtype2 = HR_BF16, .n = 1, .flash = true};
    r->kernel = hr_kernel_choose(&q);
    const size_t plane = hr_kv_extent_bytes(&r->g, HR_KV_K) + 4096;
    const size_t scratch = hr_align_up(hr_attn_scratch(DIM, GROUP, positions, true), 4096);
    const size_t partial =
        hr_align_up(hr_attn_partial_floats(HEADS * GROUP, HEADS, DIM, positions) * sizeof(float), 4096);
    const size_t io = hr_align_up(2 * HEADS * GROUP * DIM * sizeof(float), 4096);
    r->bytes = 2 * plane + scratch + partial + io;
    r->memory = hr_pages_alloc(r->bytes, true);
    if (!r->memory) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu MB of KV", r->bytes / 1000000);
    for (size_t i = 0; i < plane; i++) ((uint16_t *)r->memory)[i] = (uint16_t)(0x3c00 + (i * 40503u >> 7) % 128);
    r->seq = (hr_kv_seq){.g = &r->g, .len = positions};
    r->seq.base[HR_KV_K] = (uint8_t *)r->memory, r->seq.base[HR_KV_V] = (uint8_t *)r->memory + plane;
    r->scratch = r->memory + 2 * plane;
    r->q = (float *)(r->scratch + scratch + partial);
    for (int i = 0; i < HEADS * GROUP * DIM; i++) r->q[i] = 0.01f * (float)(i % 17);
    r->attn = (hr_attn){.kv = &r->seq,
                        .n_heads = HEADS * GROUP,
                        .n_kv_heads = HEADS,
                        .head_dim = DIM,
                        .n_q = 1,
                        .pos0 = positions - 1,
                        .q = r->q,
                        .out = r->q + HEADS * GROUP * DIM,
                        .ldq = HEADS * GROUP * DIM,
                        .ldo = HEADS * GROUP * DIM,
                        .scale = 0.125f,
                        .partial = (float *)(r->scratch + scratch)};
    if (!hr_attn_is_split(&r->attn)) r->attn.partial = NULL;
    return HR_OK;
}

/* Microseconds of one read whose rows start `off` bytes after a multiple of 128. */
static double read_us(read_bench *r, size_t off, unsigned times) {
    uint8_t *base[2] = {r->seq.base[HR_KV_K], r->seq.base[HR_KV_V]};
    r->seq.base[HR_KV_K] += off, r->seq.base[HR_KV_V] += off;
    const uint64_t start = hr_now_ns();
    for (unsigned i = 0; i < times; i++) r->kernel->fn.attn(&r->attn, 0, hr_attn_units(&r->attn), r->scratch);
    const double us = (double)(hr_now_ns() - start) * 1e-3 / times;
    r->seq.base[HR_KV_K] = base[0], r->seq.base[HR_KV_V] = base[1];
    return us;
}

/* Time moved by `off` over time aligned. */
static hr_status pairs(hr_claims_run *run, uint32_t positions, size_t off, hr_claim_measured *out) {
    read_bench r;
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    const unsigned times = positions == LONG ? 16 : 256;
    hr_status status = read_init(&r, positions);
    if (status == HR_OK) read_us(&r, 0, times), read_us(&r, off, times);
    const uint64_t start = hr_now_ns();
    while (status == HR_OK && n < HR_CLAIM_SAMPLES && !hr_claim_enough(run, n, start)) {
        status = hr_claim_stopped(run);
        const double a = read_us(&r, n % 2 ? 0 : off, times), b = read_us(&r, n % 2 ? off : 0, times);
        v[n] = n % 2 ? b / a : a / b;
        n++;
    }
    read_fini(&r);
    if (status == HR_OK) *out = hr_claim_of_samples(v, n);
    return status;
}

hr_status hr_test_align(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    hr_claim_measured half, cached;
    HR_TRY(pairs(run, LONG, 8, &out->measured));
    HR_TRY(pairs(run, LONG, 64, &half));
    HR_TRY(pairs(run, SHORT, 8, &cached));
    snprintf(out->note, sizeof out->note,
             "decode attention, rows of 128 bytes that start 8 bytes after a multiple of 128 over aligned ones, %d "
             "positions, one thread; 64 bytes after: %.3f x; 8 bytes after at %d positions (in a cache): %.3f x",
             LONG, half.value, SHORT, cached.value);
    return HR_OK;
}
