#include "kernels/table.h"

#include "kernels/kv/kv_open.h"

#include <string.h>

#define X(id, name) [HR_OP_##id] = name,
const char *const hr_op_names[HR_OP_COUNT] = {HR_OP_LIST(X)};
#undef X

const char *const hr_unit_names[HR_UNIT_COUNT] = {"fp32", "bf16", "int8"};

const char *hr_act_name(hr_act act) {
    static const char *const names[HR_ACT_COUNT] = {"f32", "bf16", "int8", "int8-row"};
    return (unsigned)act < HR_ACT_COUNT ? names[act] : "unknown";
}

/* Every list of rows in the program. */
static const hr_kernel *const lists[] = {
    hr_kernels_matmul_generic,     hr_kernels_attn_generic,     hr_kernels_vec_generic,
#if defined(__x86_64__)
    hr_kernels_matmul_avx2,        hr_kernels_attn_avx2,        hr_kernels_vec_avx2,
    hr_kernels_matmul_avx512,      hr_kernels_attn_avx512,      hr_kernels_vec_avx512,
    hr_kernels_panel_avx2,         hr_kernels_panel_avxvnni,    hr_kernels_panel_vnni256_avx512,
    hr_kernels_panel_float_avx512, hr_kernels_panel_int_avx512, hr_kernels_attn_bf16_avx512,
#endif
};
enum { LISTS = sizeof lists / sizeof lists[0] };

/* Of GPUs; NULL ends it. */
static const hr_kernel *const cuda_lists[] = {
#ifdef HR_HAVE_CUDA
    hr_kernels_cuda_matmul, hr_kernels_cuda_attn, hr_kernels_cuda_vec,
#endif
    NULL};

const hr_kernel *hr_kernel_at(size_t i) {
    for (size_t l = 0; l < LISTS; l++)
        for (const hr_kernel *k = lists[l]; k && k->name; k++)
            if (i-- == 0) return k;
    return NULL;
}

const hr_kernel *hr_cuda_kernel_at(size_t i) {
    for (const hr_kernel *const *list = cuda_lists; *list; list++)
        for (const hr_kernel *k = *list; k->name; k++)
            if (i-- == 0) return k;
    return NULL;
}

static bool has_dtype(const hr_kernel *k, hr_dtype t) {
    return !k->dtypes || (k->dtypes >> t & 1u);
}

/* What does not depend on the machine. */
static bool fits_work(const hr_kernel *k, const hr_kernel_query *q) {
    if (k->family != q->family) return false;
    if (!has_dtype(k, q->dtype) || (k->act >= 0 && k->act != (int)q->act)) return false;
    if (q->n < k->n_min || (k->n_max && q->n > k->n_max)) return false;
    if (q->name && strcmp(q->name, k->name) != 0) return false;
    const bool two_types = q->family == HR_FAM_ATTN || q->family == HR_FAM_KV_APPEND;
    if (two_types && !has_dtype(k, q->dtype2)) return false;
    return q->family != HR_FAM_ATTN || k->flash == q->flash;
}

static bool fits(const hr_kernel *k, const hr_kernel_query *q, unsigned features) {
    if (!fits_work(k, q) || k->isa > q->isa || (k->needs & ~features)) return false;
    if (q->tile && k->tile && k->tile != q->tile) return false;
    return q->family != HR_FAM_MATMUL || ((k->orders ? k->orders : 1u << HR_ORDER_ROWS) >> q->order & 1u);
}

static _Atomic uint32_t preferred_lanes = 512;

void hr_kernel_prefer_lanes(uint32_t lanes) {
    preferred_lanes = lanes;
}

uint32_t hr_kernel_preferred_lanes(void) {
    return preferred_lanes;
}

static bool is_better(const hr_kernel *k, const hr_kernel *than) {
    if (k->rank != than->rank) return k->rank > than->rank;
    if (k->lanes && than->lanes && k->lanes != than->lanes) return k->lanes == preferred_lanes;
    return k->isa > than->isa;
}

static const hr_kernel *choose_cuda(const hr_kernel_query *q) {
    const hr_kernel *chosen = NULL, *k;
    for (size_t i = 0; (k = hr_cuda_kernel_at(i)) != NULL; i++)
        if (fits_work(k, q) && (!chosen || k->rank > chosen->rank)) chosen = k;
    return chosen;
}

const hr_kernel *hr_kernel_choose(const hr_kernel_query *q) {
    if (q->cuda) return choose_cuda(q);
    const unsigned features = hr_cpu_features();
    const hr_isa best = hr_isa_best();
    hr_kernel_query query = *q;
    if (query.isa > best) query.isa = best;
    const hr_kernel *chosen = NULL;
    for (size_t l = 0; l < LISTS; l++) {
        for (const hr_kernel *k = lists[l]; k && k->name; k++) {
            if (!fits(k, &query, features)) continue;
            if (!chosen || is_better(k, chosen)) chosen = k;
        }
    }
    return chosen;
}

const hr_kernel *hr_kernel_ref(const hr_kernel *k) {
    for (const hr_kernel *const *list = lists; list < lists + LISTS; list++)
        for (const hr_kernel *r = *list; r && r->name; r++) {
            const bool types = !r->dtypes || (k->dtypes & ~r->dtypes) == 0;
            if (r->isa == HR_ISA_GENERIC && r->family == k->family && types && r->act == k->act && r->flash == k->flash)
                return r;
        }
    return NULL;
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

/* Positions from..to - 1 that were evicted. */
static uint64_t gone_among(const hr_kv_seq *s, uint64_t from, uint64_t to) {
    const uint64_t a = s->gone_from > from ? s->gone_from : from, b = s->gone_to < to ? s->gone_to : to;
    return b > a ? b - a : 0;
}

/* What rows of the open group have more than closed ones, of the last `rows` of len positions. */
static uint64_t open_excess(const hr_kv_geom *g, uint64_t len, uint64_t rows) {
    if (g->type[0] != HR_I4KC) return 0;
    const uint64_t open = len % HR_KV_GROUP < rows ? len % HR_KV_GROUP : rows;
    return open * (2 * (uint64_t)g->head_dim - g->row_bytes[HR_KV_K] - g->row_bytes[HR_KV_KS]);
}

hr_work hr_work_attn(const hr_kernel *k, const hr_attn *a) {
    const uint64_t last = (uint64_t)a->pos0 + a->n_q; /* positions 0..last - 1 exist for the last query */
    uint64_t first = 0, pairs = 0;
    if (a->window && a->pos0 + (uint64_t)1 > a->window) first = a->pos0 + (uint64_t)1 - a->window;
    if (!a->window && a->kv->gone_to == a->kv->gone_from) { /* query i sees pos0 + 1 + i positions */
        pairs = a->n_q * (a->pos0 + (uint64_t)1) + (a->n_q ? (uint64_t)a->n_q * (a->n_q - 1) / 2 : 0);
    } else
        for (uint64_t p = a->pos0; p < last; p++) {
            const uint64_t seen = a->window && p + 1 > a->window ? a->window : p + 1;
            pairs += seen - gone_among(a->kv, p + 1 - seen, p + 1);
        }
    const uint64_t rows = a->n_q ? last - first - gone_among(a->kv, first, last) : 0;
    return (hr_work){.bytes = a->n_kv_heads * (rows * position_bytes(a->kv->g) + open_excess(a->kv->g, last, rows)),
                     .flops = 4 * pairs * a->n_heads * a->head_dim,
                     .unit = k->unit};
}

hr_work hr_work_kv_append(const hr_kv_geom *g, size_t n) {
    const uint64_t open =
        g->type[0] == HR_I4KC ? 2 * (uint64_t)g->head_dim : 0; /* each row is written open, and closed later */
    return (hr_work){.bytes = (uint64_t)n * g->n_heads * (position_bytes(g) + open), .unit = HR_UNIT_FP32};
}
