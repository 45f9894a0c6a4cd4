/* kv_fixture.h - what tests of the KV cache and of attention share: caches over poisoned memory, random rows, every
 * kernel row that this machine runs. */
#ifndef HR_KV_FIXTURE_H
#define HR_KV_FIXTURE_H

#include "tests/hr_test.h"

#include "engine/kv/kv_cache.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"
#include "kernels/kv/kv_open.h"
#include "kernels/table.h"

static inline uint32_t fix_below(uint64_t *state, uint32_t n) {
    return (uint32_t)(hr_random(state) % n);
}
/* Uniform in [-1, 1). */
static inline float fix_float(uint64_t *state) {
    return (float)((double)(hr_random(state) >> 11) / 4503599627370496.0 - 1);
}
static inline float *fix_floats(size_t n, uint64_t seed) {
    float *x = hr_malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = fix_float(&seed);
    return x;
}

/* Row i of a family that this machine can run; NULL past the end. */
static inline const hr_kernel *fix_kernel(hr_family family, size_t i) {
    const hr_kernel *const lists[] = {
        hr_kernels_attn_generic, hr_kernels_vec_generic,
#ifdef __x86_64__
        hr_kernels_attn_avx2,    hr_kernels_vec_avx2,         hr_kernels_attn_avx512,
        hr_kernels_vec_avx512,   hr_kernels_attn_bf16_avx512,
#endif
    };
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const hr_kernel *k = lists[l]; k->name; k++)
            if (k->family == family && k->isa <= hr_isa_best() && !(k->needs & ~hr_cpu_features()) && i-- == 0)
                return k;
    return NULL;
}
/* Whether a row of attention takes K and V of these types, n_q queries at a time. */
static inline bool fix_takes(const hr_kernel *k, hr_dtype k_type, hr_dtype v_type, uint32_t n_q) {
    const uint32_t types = 1u << k_type | 1u << v_type;
    return (k->dtypes & types) == types && n_q >= k->n_min && (!k->n_max || n_q <= k->n_max);
}
/* The row of a family of one ISA (for attention with or without flash). */
static inline const hr_kernel *fix_kernel_of(hr_family family, hr_isa isa, bool flash) {
    const hr_kernel *k;
    for (size_t i = 0; (k = fix_kernel(family, i)); i++)
        if (k->isa == isa && (family != HR_FAM_ATTN || k->flash == flash)) return k;
    fail_msg("no row of family %d, ISA %s", (int)family, hr_isa_name(isa));
    return NULL;
}

/* A cache whose memory holds no number anywhere (0xff in every byte is NaN in f32, f16 and bf16). */
static inline hr_kv_cache *fix_cache(hr_kv_cache_config config) {
    hr_kv_cache *cache;
    if (hr_kv_cache_create(&config, &cache) != HR_OK) fail_msg("%s", hr_error());
    const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
    const uint64_t extents = hr_kv_is_paged(config.layout) ? hr_kv_cache_free_pages(cache) : config.max_seqs;
    for (int x = 0; x < HR_KV_PLANES; x++)
        if (s->base[x]) memset(s->base[x], 0xff, extents * hr_kv_extent_bytes(s->g, x));
    if (s->open) memset(s->open, 0xff, config.max_seqs * hr_kv_open_bytes(s->g));
    return cache;
}

/* Attention of all units as the engine would run it, in `shares` pieces; scratch is made dirty before. */
static inline void fix_attend(hr_attn *a, const hr_kernel *attn, const hr_kernel *merge, size_t shares) {
    const size_t bytes = hr_attn_scratch(a->head_dim, a->n_heads / a->n_kv_heads, a->pos0 + a->n_q, attn->flash);
    const size_t partial = hr_attn_partial_floats(a->n_heads, a->n_kv_heads, a->head_dim, a->pos0 + a->n_q);
    /* exact sizes, so that a sanitizer sees the first byte beyond */
    void *raw = hr_malloc(bytes + 64), *scratch = (char *)raw + (64 - (uintptr_t)raw % 64) % 64;
    float *parts = hr_malloc(partial * sizeof *parts);
    assert_non_null(raw);
    assert_non_null(parts);
    memset(scratch, 0xff, bytes);
    memset(parts, 0xff, partial * sizeof *parts);
    a->partial = hr_attn_is_split(a) ? parts : NULL;
    const size_t units = hr_attn_units(a);
    for (size_t i = shares; i-- > 0;) attn->fn.attn(a, units * i / shares, units * (i + 1) / shares, scratch);
    if (a->partial) merge->fn.attn_merge(a, 0, a->n_kv_heads);
    hr_free(raw);
    hr_free(parts);
}

#endif
