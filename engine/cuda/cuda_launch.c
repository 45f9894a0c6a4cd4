/* cuda_launch.c - launching rows of the kernel table, and the first failure, which is kept until the pass ends. */
#include "engine/cuda/cuda_state.h"

#include <stdio.h>
#include <string.h>

void hr_cuda_keep(hr_cuda *g, hr_status status) {
    if (g->status != HR_OK || status == HR_OK) return;
    g->status = status;
    snprintf(g->message, sizeof g->message, "%s", hr_error());
}

bool hr_cuda_did(hr_cuda *g, CUresult result, const char *what) {
    hr_cuda_keep(g, hr_driver_check(result, what));
    return result == CUDA_SUCCESS;
}

hr_status hr_cuda_told(hr_cuda *g) {
    const hr_status status = g->status;
    if (status == HR_OK) return HR_OK;
    g->status = HR_OK;
    HR_FAIL(status, "cuda:%d: %s", g->ordinal, g->message);
}

void hr_cuda_wait(hr_cuda *g) {
    if (g->status != HR_OK) return;
    const hr_status status = hr_driver_check(g->d->cuStreamSynchronize(g->stream), "cuStreamSynchronize");
    if (status == HR_OK) return;
    char text[sizeof g->message / 2];
    snprintf(text, sizeof text, "%s", hr_error());
    if (g->last_kernel)
        hr_fail(status, "work up to kernel %s failed: %s; CUDA_LAUNCH_BLOCKING=1 tells which", g->last_kernel, text);
    hr_cuda_keep(g, status);
}

/* ---- functions ---- */

const char *hr_cuda_family_name(hr_family family) {
    static const char *const names[HR_FAM_COUNT] = {
        [HR_FAM_ACTS] = "activations",     [HR_FAM_MATMUL] = "matrix products",
        [HR_FAM_ATTN] = "attention",       [HR_FAM_ATTN_MERGE] = "merging attention",
        [HR_FAM_NORM] = "norms",           [HR_FAM_ROPE] = "RoPE",
        [HR_FAM_GLU] = "gated activation", [HR_FAM_KV_APPEND] = "KV append",
        [HR_FAM_EMBED] = "embedding",      [HR_FAM_ADD] = "addition",
        [HR_FAM_SAMPLE] = "sampling",      [HR_FAM_FINISH] = "joined RoPE and append",
        [HR_FAM_KV_COPY] = "KV copy",      [HR_FAM_FILL] = "synthetic weights"};
    return (unsigned)family < HR_FAM_COUNT && names[family] ? names[family] : "?";
}

/* The row's place in the table of functions; rows are few. */
static struct hr_cuda_slot *slot_of(hr_cuda *g, const hr_kernel *k) {
    enum { SLOTS = sizeof g->functions / sizeof *g->functions };
    size_t i = (uintptr_t)k / sizeof(hr_kernel) % SLOTS;
    for (size_t n = 0; n < SLOTS; n++, i = (i + 1) % SLOTS)
        if (!g->functions[i].kernel || g->functions[i].kernel == k) return &g->functions[i];
    g->functions[i] = (struct hr_cuda_slot){0}; /* full: the oldest choice as good as any */
    return &g->functions[i];
}

static hr_status load(hr_cuda *g, const hr_kernel *k, struct hr_cuda_slot **out) {
    struct hr_cuda_slot *slot = slot_of(g, k);
    if (!slot->kernel) {
        /* Every kernel may have 48 KiB without asking, less what it declares itself: some hundred bytes. */
        enum { FREE_OF_CHARGE = 47 << 10 };
        HR_TRY(hr_driver_function(k->fn.cuda.symbol, &slot->function));
        slot->kernel = k, slot->smem = FREE_OF_CHARGE;
    }
    *out = slot;
    return HR_OK;
}

hr_status hr_cuda_prepare(hr_cuda *g, const hr_kernel *k) {
    struct hr_cuda_slot *slot;
    return k->fn.cuda.symbol ? load(g, k, &slot) : HR_OK;
}

static hr_status launch(hr_cuda *g, const hr_kernel *k, void *params) {
    struct hr_cuda_slot *slot;
    hr_cuda_shape s = {0};
    HR_TRY(load(g, k, &slot));
    k->fn.cuda.shape(params, &g->caps, &s);
    if (s.smem > slot->smem) {
        const CUresult result =
            g->d->cuFuncSetAttribute(slot->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)s.smem);
        HR_TRY(hr_driver_check(result, "cuFuncSetAttribute"));
        slot->smem = s.smem;
    }
    void *arguments[] = {params};
    HR_CU(g->d, cuLaunchKernel(slot->function, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2],
                               s.smem, g->stream, arguments, NULL));
    return HR_OK;
}

void hr_cuda_launch(hr_cuda *g, const hr_kernel *k, void *params) {
    if (g->status != HR_OK) return;
    hr_status status;
    if (k) {
        status = launch(g, k, params);
        char name[96];
        snprintf(name, sizeof name, "kernel %s", k->name);
        if (status != HR_OK) hr_fail_prefix(status, name);
        g->last_kernel = k->name;
    } else {
        status = hr_fail(HR_ERR_UNSUPPORTED, "there is no kernel for what this pass needs");
    }
    hr_cuda_keep(g, status);
}
