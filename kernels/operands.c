#include "kernels/operands.h"

#include "kernels/base/memory.h"
#include "kernels/base/random.h"

enum { APART = 128 }; /* bytes: two lines, which some CPUs fetch together */

static void *take(char *base, size_t *used, size_t bytes) {
    void *at = base ? base + *used : NULL;
    *used = hr_align_up(*used + bytes, APART);
    return at;
}

/* Bytes used; without memory they are counted and nothing else. */
static size_t place(hr_operands *o, const hr_mat *w) {
    size_t used = 0;
    char *base = o->memory;
    hr_acts *x = &o->x;
    const size_t values = x->n * x->ld;
    if (x->type == HR_ACT_F32) x->f32 = take(base, &used, values * sizeof *x->f32);
    if (x->type == HR_ACT_BF16) x->bf16 = take(base, &used, values * sizeof *x->bf16);
    if (x->type == HR_ACT_INT8 || x->type == HR_ACT_INT8_ROW) {
        x->q = take(base, &used, values);
        x->d = take(base, &used, values / 32 * sizeof *x->d);
        x->sum = take(base, &used, values / 32 * sizeof *x->sum);
    }
    if (x->tile)
        x->tiles = take(base, &used, (x->n + x->tile - 1) / x->tile * hr_acts_tile_bytes(x->type, x->tile, x->k));
    if (!w) return used;
    o->call = (hr_matmul){.w = w, .x = x, .ldy = w->rows};
    o->call.y = take(base, &used, x->n * w->rows * sizeof *o->call.y);
    o->scratch = take(base, &used, hr_matmul_scratch(x->k, x->n));
    return used;
}

static hr_status allocate(hr_operands *o, hr_act type, uint32_t tile, size_t n, size_t k, const hr_mat *w) {
    *o = (hr_operands){.x = {.type = type, .n = n, .k = k, .ld = hr_align_up(k, 64), .tile = tile}};
    o->bytes = place(o, w);
    o->memory = hr_pages_alloc(o->bytes, true);
    if (!o->memory) HR_FAIL(HR_ERR_MEMORY, "no memory for a product of %zu tokens", n);
    place(o, w);
    return HR_OK;
}

hr_status hr_operands_acts(hr_operands *o, hr_act type, uint32_t tile, size_t n, size_t k) {
    return allocate(o, type, tile, n, k, NULL);
}

hr_status hr_operands_init(hr_operands *o, const hr_kernel *k, const hr_mat *w, size_t n) {
    const hr_act act = (hr_act)k->act;
    const size_t values = n * w->cols;
    HR_TRY(allocate(o, act, k->tile, n, w->cols, w));
    float *x = hr_malloc(values * sizeof *x);
    if (!x) {
        hr_operands_fini(o);
        HR_FAIL(HR_ERR_MEMORY, "no memory for the inputs of %zu tokens", n);
    }
    uint64_t seed = 1;
    for (size_t i = 0; i < values; i++) x[i] = (float)(hr_random(&seed) >> 40) * 0x1p-23f - 1;
    const hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = k->isa, .dtype = w->dtype, .act = act, .n = (uint32_t)n};
    hr_kernel_choose(&q)->fn.acts(&o->x, x, w->cols, 0, n);
    hr_free(x);
    return HR_OK;
}

void hr_operands_fini(hr_operands *o) {
    if (o->memory) hr_pages_free(o->memory, o->bytes);
    *o = (hr_operands){0};
}
