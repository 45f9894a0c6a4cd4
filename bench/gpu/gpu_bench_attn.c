/* Attention: decode of one and many sequences and prefill, over KV layouts and types, by every row of the table that fits.
 *
 * The cache has as many layers as there is memory for; each launch takes another one, so that none is in a cache of the GPU. */
#include "bench/gpu/gpu_bench.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <math.h>
#include <string.h>

/* One layer of an 8B model. */
enum { HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, MOST_LAYERS = 32 };

typedef struct attn_case {
    const char *name;
    unsigned n_segments, n_q, len; /* len: positions of each sequence, the new ones too */
    hr_kv_layout layout;
    hr_dtype type;
    unsigned page;
} attn_case;
static const attn_case large[] = {
    {"decode, 1 of 16384", 1, 1, 16384, HR_KV_HEAD, HR_BF16, 0},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_HEAD, HR_BF16, 0},
    {"prefill of 4096", 1, 4096, 4096, HR_KV_HEAD, HR_BF16, 0},
    {"decode, 64 of 1024", 64, 1, 1024, HR_KV_PAGED, HR_BF16, 16},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_PAGED, HR_BF16, 16},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_PAGED, HR_BF16, 64},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_TOKEN, HR_BF16, 0},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_ZORDER, HR_BF16, 0},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_HEAD, HR_Q8_0, 0},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_HEAD, HR_Q4_0, 0},
    {"decode, 1 of 16384", 1, 1, 16384, HR_KV_HEAD, HR_Q8_0, 0},
    {"prefill of 4096", 1, 4096, 4096, HR_KV_PAGED, HR_BF16, 16},
    {"prefill of 4096", 1, 4096, 4096, HR_KV_TOKEN, HR_BF16, 0},
    {"prefill of 4096", 1, 4096, 4096, HR_KV_HEAD, HR_Q8_0, 0},
    {"prefill of 512 at 16384", 1, 512, 16896, HR_KV_HEAD, HR_BF16, 0},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_BLOCK, HR_BF16, 0},
    {"decode, 16 of 4096", 16, 1, 4096, HR_KV_SHUFFLED, HR_BF16, 0},
};
static const attn_case little[] = {{"decode, 2 of 40", 2, 1, 40, HR_KV_HEAD, HR_BF16, 0},
                                   {"decode, 2 of 40", 2, 1, 40, HR_KV_PAGED, HR_Q8_0, 16},
                                   {"prefill of 20", 1, 20, 20, HR_KV_HEAD, HR_BF16, 0}};

typedef struct attention {
    const hr_kernel *row, *merge;
    hr_cuda_attn p;
    unsigned layers;
} attention;

static hr_status launch_attn(gpu_bench *b, void *context, unsigned i) {
    attention *a = context;
    a->p.layer = i % a->layers;
    HR_TRY(gpu_bench_row(b, a->row, &a->p));
    return a->merge && a->p.splits > 1 ? gpu_bench_row(b, a->merge, &a->p) : HR_OK;
}

/* Bytes of K, V and scales of one position in a layer. */
static size_t position_bytes(const hr_kv_geom *g) {
    size_t bytes = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) bytes += g->row_bytes[x];
    return bytes * g->n_heads;
}

/* Planes one after another from the start of `from`: extents of all sequences, or pages that lie as a shuffle puts them. */
static bool place_kv(gpu_bench *b, const attn_case *c, hr_kv_geom *g, hr_kv_seq *seqs, uint32_t *table) {
    const unsigned heads = b->small ? 2 : KV_HEADS, dim = b->small ? 64 : HEAD_DIM;
    size_t used = 0;
    for (unsigned layers = b->small ? 1 : MOST_LAYERS;; layers /= 2) {
        if (!layers) return false;
        if (hr_kv_geom_init(g, c->layout, layers, heads, dim, c->type, c->type, c->len, c->page) != HR_OK) return false;
        const size_t pages = c->page ? (c->len + c->page - 1) / c->page : 1;
        size_t bytes = 0;
        for (int x = 0; x < HR_KV_PLANES; x++) bytes += hr_kv_extent_bytes(g, x) * pages * c->n_segments + 256;
        if (bytes <= b->probe.bytes) break;
    }
    const size_t pages = c->page ? (c->len + c->page - 1) / c->page : 1, all = pages * c->n_segments;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        used = (used + 255) / 256 * 256;
        for (unsigned s = 0; s < c->n_segments; s++)
            seqs[s].base[x] = g->row_bytes[x] ? (uint8_t *)(uintptr_t)b->probe.from + used +
                                                    (c->page ? 0 : s * hr_kv_extent_bytes(g, x))
                                              : NULL;
        used += hr_kv_extent_bytes(g, x) * all;
    }
    uint64_t random = 3;
    for (size_t i = 0; c->page && i < all; i++) table[i] = (uint32_t)i;
    for (size_t i = c->page ? all - 1 : 0; i > 0; i--) {
        const size_t j = hr_random(&random) % (i + 1);
        const uint32_t swap = table[i];
        table[i] = table[j], table[j] = swap;
    }
    return true;
}

/* What kernels are given in device memory. False: no room. */
static bool upload_batch(gpu_bench *b, const attn_case *c, const hr_kv_geom *g, hr_kv_seq *seqs, const uint32_t *table,
                         size_t *used, attention *a) {
    const unsigned n = c->n_segments * c->n_q;
    const size_t pages = c->page ? (c->len + c->page - 1) / c->page : 0;
    const CUdeviceptr geom = gpu_bench_take(b, used, sizeof *g),
                      tables = gpu_bench_take(b, used, pages * c->n_segments * sizeof *table + 4),
                      segments = gpu_bench_take(b, used, c->n_segments * sizeof(hr_cuda_segment)),
                      pos = gpu_bench_take(b, used, n * sizeof(uint32_t)),
                      segment = gpu_bench_take(b, used, n * sizeof(uint32_t)),
                      batch = gpu_bench_take(b, used, sizeof(hr_cuda_batch));
    hr_cuda_segment *host = hr_calloc(c->n_segments, sizeof *host);
    uint32_t *positions = hr_calloc(2 * (size_t)n, sizeof *positions);
    bool ok = host && positions && geom && tables && segments && pos && segment && batch;
    for (unsigned s = 0; ok && s < c->n_segments; s++) {
        seqs[s].g = (const hr_kv_geom *)(uintptr_t)geom, seqs[s].len = c->len;
        seqs[s].table = pages ? (const uint32_t *)(uintptr_t)tables + s * pages : NULL;
        host[s].kv = seqs[s]; /* both zeroed, padding too */
        host[s].pos0 = c->len - c->n_q, host[s].n = c->n_q, host[s].row0 = s * c->n_q;
    }
    for (unsigned t = 0; ok && t < n; t++) positions[t] = c->len - c->n_q + t % c->n_q, positions[n + t] = t / c->n_q;
    const hr_cuda_batch header = {.n = n,
                                  .n_segments = c->n_segments,
                                  .n_logits = n,
                                  .pos = (const uint32_t *)(uintptr_t)pos,
                                  .segment = (const uint32_t *)(uintptr_t)segment,
                                  .segments = (const hr_cuda_segment *)(uintptr_t)segments};
    ok = ok && gpu_bench_upload(b, geom, g, sizeof *g) == HR_OK &&
         (!pages || gpu_bench_upload(b, tables, table, pages * c->n_segments * sizeof *table) == HR_OK) &&
         gpu_bench_upload(b, segments, host, c->n_segments * sizeof *host) == HR_OK &&
         gpu_bench_upload(b, pos, positions, n * sizeof *positions) == HR_OK &&
         gpu_bench_upload(b, segment, positions + n, n * sizeof *positions) == HR_OK &&
         gpu_bench_upload(b, batch, &header, sizeof header) == HR_OK;
    hr_free(host), hr_free(positions);
    a->p.batch = (const hr_cuda_batch *)(uintptr_t)batch;
    return ok;
}

static bool set_up(gpu_bench *b, const attn_case *c, hr_kv_geom *g, attention *a) {
    const unsigned n = c->n_segments * c->n_q, heads = b->small ? 4 : HEADS, dim = b->small ? 64 : HEAD_DIM;
    const size_t pages = c->page ? (c->len + c->page - 1) / c->page : 0, width = (size_t)heads * dim;
    size_t used = 0;
    hr_kv_seq *seqs = hr_calloc(c->n_segments, sizeof *seqs);
    uint32_t *table = hr_calloc(pages * c->n_segments + 1, sizeof *table);
    *a = (attention){.row = NULL};
    const CUdeviceptr q = gpu_bench_take(b, &used, n * width * sizeof(float)),
                      out = gpu_bench_take(b, &used, n * width * sizeof(float));
    const size_t partial_bytes = (size_t)c->n_segments * heads * HR_CUDA_SPLITS * (2 + dim) * sizeof(float);
    const CUdeviceptr partial = c->n_q == 1 ? gpu_bench_take(b, &used, partial_bytes) : 0;
    const bool ok =
        seqs && table && q && out && place_kv(b, c, g, seqs, table) && upload_batch(b, c, g, seqs, table, &used, a);
    hr_free(seqs), hr_free(table);
    if (!ok) return false;
    a->layers = g->n_layers;
    const hr_cuda_batch *batch = a->p.batch;
    a->p = (hr_cuda_attn){.batch = batch,
                          .q = (const float *)(uintptr_t)q,
                          .out = (float *)(uintptr_t)out,
                          .partial = (float *)(uintptr_t)partial,
                          .ldq = (uint32_t)width,
                          .ldo = (uint32_t)width,
                          .n_heads = heads,
                          .n_kv_heads = g->n_heads,
                          .head_dim = dim,
                          .n = n,
                          .n_segments = c->n_segments,
                          .n_q = c->n_q,
                          .max_len = c->len,
                          .scale = 1 / sqrtf((float)dim)};
    return true;
}

/* Pairs of query and position that count. */
static double pairs_of(const attn_case *c) {
    return c->n_segments * ((double)c->n_q * (c->len - c->n_q) + 0.5 * c->n_q * (c->n_q + 1.0));
}

static void run_case(gpu_bench *b, const attn_case *c) {
    hr_kv_geom *g = hr_calloc(1, sizeof *g);
    attention a;
    if (!g || !set_up(b, c, g, &a)) {
        hr_free(g);
        return;
    }
    char shape[96];
    snprintf(shape, sizeof shape, "%s, %s", c->name, hr_kv_layout_name(c->layout));
    if (c->page) snprintf(shape, sizeof shape, "%s, %s %u", c->name, hr_kv_layout_name(c->layout), c->page);
    for (size_t k = 0; hr_cuda_kernel_at(k); k++)
        if (hr_cuda_kernel_at(k)->family == HR_FAM_ATTN_MERGE) a.merge = hr_cuda_kernel_at(k);
    for (size_t k = 0; hr_cuda_kernel_at(k) && !gpu_bench_over(b); k++) {
        const hr_kernel *row = hr_cuda_kernel_at(k);
        gpu_bench_result r = {"attention",
                              row->name,
                              hr_kv_type_name(c->type),
                              "any",
                              shape,
                              a.p.n_heads,
                              a.p.head_dim,
                              c->n_segments * c->n_q,
                              0,
                              0,
                              0,
                              0};
        if (row->family != HR_FAM_ATTN || !(row->dtypes >> c->type & 1) || c->n_q < row->n_min ||
            (row->n_max && c->n_q > row->n_max) || !gpu_bench_wants(b, row->name))
            continue;
        if (!row->flash && c->n_q > 1 && !b->small) continue; /* naive prefill of 4096 takes seconds */
        a.row = row;
        if (!gpu_bench_time(b, launch_attn, &a, row->name, &r.median_ns, &r.least_ns)) continue;
        r.bytes = (double)position_bytes(g) * c->len * c->n_segments;
        r.flops = 4.0 * a.p.n_heads * a.p.head_dim * pairs_of(c);
        gpu_bench_put(b, &r);
    }
    hr_free(g);
}

hr_status gpu_bench_attention(gpu_bench *b) {
    const attn_case *cases = b->small ? little : large;
    const size_t n = b->small ? sizeof little / sizeof *little : sizeof large / sizeof *large;
    for (size_t i = 0; i < n && !gpu_bench_over(b); i++) run_case(b, &cases[i]);
    return HR_OK;
}
