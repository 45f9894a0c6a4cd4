#include "kernels/table.h"

#define X(id, name) [HR_OP_##id] = name,
const char *const hr_op_names[HR_OP_COUNT] = {HR_OP_LIST(X)};
#undef X

const char *const hr_unit_names[HR_UNIT_COUNT] = {"fp32", "bf16", "int8"};

const char *hr_act_name(hr_act act) {
    static const char *const names[HR_ACT_COUNT] = {"f32", "bf16", "int8"};
    return (unsigned)act < HR_ACT_COUNT ? names[act] : "unknown";
}

/* Every list of rows in the program. */
static const hr_kernel *const lists[] = {
    hr_kernels_matmul_generic, hr_kernels_attn_generic, hr_kernels_vec_generic,
#if defined(__x86_64__)
    hr_kernels_matmul_avx2,    hr_kernels_attn_avx2,    hr_kernels_vec_avx2,
    hr_kernels_matmul_avx512,  hr_kernels_attn_avx512,  hr_kernels_vec_avx512,
#endif
};
enum { LISTS = sizeof lists / sizeof lists[0] };

const hr_kernel *hr_kernel_at(size_t i) {
    for (size_t l = 0; l < LISTS; l++)
        for (const hr_kernel *k = lists[l]; k && k->name; k++)
            if (i-- == 0) return k;
    return NULL;
}

static bool has_dtype(const hr_kernel *k, hr_dtype t) {
    return !k->dtypes || (k->dtypes >> t & 1u);
}

static bool fits(const hr_kernel *k, const hr_kernel_query *q, unsigned features) {
    if (k->family != q->family || k->isa > q->isa || (k->needs & ~features)) return false;
    if (!has_dtype(k, q->dtype) || (k->act >= 0 && k->act != (int)q->act)) return false;
    if (q->n < k->n_min || (k->n_max && q->n > k->n_max)) return false;
    const bool two_types = q->family == HR_FAM_ATTN || q->family == HR_FAM_KV_APPEND;
    if (two_types && !has_dtype(k, q->dtype2)) return false;
    return q->family != HR_FAM_ATTN || k->flash == q->flash;
}

const hr_kernel *hr_kernel_choose(const hr_kernel_query *q) {
    const unsigned features = hr_cpu_features();
    const hr_isa best = hr_isa_best();
    hr_kernel_query query = *q;
    if (query.isa > best) query.isa = best;
    const hr_kernel *chosen = NULL;
    for (size_t l = 0; l < LISTS; l++) {
        for (const hr_kernel *k = lists[l]; k && k->name; k++) {
            if (!fits(k, &query, features)) continue;
            if (!chosen || k->rank > chosen->rank || (k->rank == chosen->rank && k->isa > chosen->isa)) chosen = k;
        }
    }
    return chosen;
}

/* ---- work ---- */

hr_work hr_work_matmul(const hr_kernel *k, const hr_mat *w, size_t n) {
    return (hr_work){.bytes = hr_mat_bytes(w), .flops = 2 * (uint64_t)w->rows * w->cols * n, .unit = k->unit};
}

/* Bytes of one position of one KV head: K and V rows and their scales. */
static uint64_t position_bytes(const hr_kv_geom *g) {
    uint64_t bytes = 0;
    for (int plane = 0; plane < HR_KV_PLANES; plane++) bytes += g->row_bytes[plane];
    return bytes;
}

hr_work hr_work_attn(const hr_kernel *k, const hr_attn *a) {
    const uint64_t last = (uint64_t)a->pos0 + a->n_q; /* positions 0..last - 1 exist for the last query */
    uint64_t first = 0, pairs = 0;
    if (a->window && a->pos0 + (uint64_t)1 > a->window) first = a->pos0 + (uint64_t)1 - a->window;
    for (uint64_t p = a->pos0; p < last; p++) pairs += a->window && p + 1 > a->window ? a->window : p + 1;
    const uint64_t rows = a->n_q ? last - first : 0;
    return (hr_work){.bytes = rows * a->n_kv_heads * position_bytes(a->kv->g),
                     .flops = 4 * pairs * a->n_heads * a->head_dim,
                     .unit = k->unit};
}

hr_work hr_work_kv_append(const hr_kv_geom *g, size_t n) {
    return (hr_work){.bytes = (uint64_t)n * g->n_heads * position_bytes(g), .flops = 0, .unit = HR_UNIT_FP32};
}
