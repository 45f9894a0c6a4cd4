#include "harness/kv/study_arms.h"

#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <stdio.h>
#include <string.h>

/* ---- kinds ---- */

static void add(hr_study_arm_kind *out, size_t *n, hr_kv_layout layout, uint32_t page) {
    out[*n] = (hr_study_arm_kind){.layout = layout, .page = page};
    snprintf(out[*n].name, sizeof out->name, "%s", hr_kv_layout_name(layout));
    (*n)++;
}

size_t hr_study_arm_kinds(bool quick, bool best, hr_study_arm_kind out[HR_STUDY_ARMS_MAX]) {
    static const uint32_t few[] = {16, 64}, all[] = {1, 16, 64, 256};
    const uint32_t *pages = quick ? few : all;
    const size_t n_pages = quick ? 2 : 4;
    size_t n = 0;
    for (int l = HR_KV_HEAD; l < HR_KV_PAGED; l++) add(out, &n, (hr_kv_layout)l, 0);
    for (size_t i = 0; i < n_pages; i++) add(out, &n, HR_KV_PAGED, pages[i]);
    add(out, &n, HR_KV_PAGED_NHD, 16);
    add(out, &n, HR_KV_PAGED_IDENTITY, 16);
    if (best) {
        out[n] = (hr_study_arm_kind){.layout = HR_KV_HEAD, .best = true};
        snprintf(out[n++].name, sizeof out->name, "contiguous-best");
    }
    return n;
}

void hr_study_arm_text(const hr_study_arm_kind *kind, char *out, size_t n) {
    if (kind->page)
        snprintf(out, n, "%s:%u", kind->name, kind->page);
    else
        snprintf(out, n, "%s", kind->name);
}

const hr_kernel *hr_study_best_kernel(hr_dtype k_type, hr_dtype v_type) {
    const uint32_t types = 1u << k_type | 1u << v_type;
    const hr_kernel *best = NULL;
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (k->family != HR_FAM_ATTN || strncmp(k->name, "attn_contig_", 12)) continue;
        if (k->isa > hr_isa_best() || k->needs & ~hr_cpu_features()) continue;
        if (k->dtypes && (k->dtypes & types) != types) continue;
        if (!best || k->isa > best->isa || (k->isa == best->isa && k->rank > best->rank)) best = k;
    }
    return best;
}

const hr_kernel *hr_study_kernel(hr_family family, hr_dtype k_type, hr_dtype v_type, uint32_t n) {
    return hr_kernel_choose(&(hr_kernel_query){
        .family = family, .isa = hr_isa_best(), .dtype = k_type, .dtype2 = v_type, .n = n, .flash = true});
}

/* ---- memory ---- */

size_t hr_study_row_bytes(const hr_study_arms *arms) {
    const hr_kv_geom *g = hr_kv_cache_view(arms->caches[0], 0)->g;
    size_t bytes = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) bytes += g->row_bytes[x];
    return bytes * arms->shape.heads;
}

uint32_t hr_study_layers(const hr_study_shape *s, uint64_t most) {
    const uint64_t layer = (uint64_t)(s->batch + s->spare) * (s->context + s->room) * s->heads * s->dim * 2 * 2;
    const uint64_t fit = most / (layer ? layer : 1);
    return fit < 1 ? 1 : fit > 8 ? 8 : (uint32_t)fit;
}

static hr_status create_cache(const hr_study_shape *s, const hr_study_arm_kind *kind, hr_kv_cache **out) {
    const hr_kv_cache_config config = {.layout = kind->layout,
                                       .alloc = hr_kv_alloc_default(kind->layout),
                                       .n_layers = s->layers,
                                       .n_heads = s->heads,
                                       .head_dim = s->dim,
                                       .k_type = s->k_type,
                                       .v_type = s->v_type,
                                       .page_size = kind->page,
                                       .max_seqs = s->batch + s->spare,
                                       .capacity = s->context + s->room,
                                       .scatter = kind->layout == HR_KV_PAGED_IDENTITY || !kind->page ? 0 : 77};
    return hr_kv_cache_create(&config, out);
}

void hr_study_fill(const hr_study_arms *arms, size_t arm, uint32_t seq, uint32_t from, uint32_t to) {
    const hr_study_shape *s = &arms->shape;
    const hr_kernel *append = hr_study_kernel(HR_FAM_KV_APPEND, s->k_type, s->v_type, HR_STUDY_ROWS);
    const hr_kv_seq *view = hr_kv_cache_view(arms->caches[arm], seq);
    const size_t ld = (size_t)s->heads * s->dim;
    for (uint32_t l = 0; l < s->layers; l++)
        for (uint32_t p = from; p < to; p += HR_STUDY_ROWS)
            append->fn.kv_append(view, l, p, arms->rows, ld, arms->rows + HR_STUDY_ROWS * ld, ld, 0,
                                 to - p < HR_STUDY_ROWS ? to - p : HR_STUDY_ROWS, 0, s->heads);
}

typedef struct fill_job {
    const hr_study_arms *arms;
    size_t arm;
    unsigned threads;
} fill_job;

/* The thread that will read a head's rows writes them first, as far as shares of heads allow. */
static void fill_share(void *context, unsigned thread) {
    const fill_job *j = context;
    const hr_study_shape *s = &j->arms->shape;
    const hr_kernel *append = hr_study_kernel(HR_FAM_KV_APPEND, s->k_type, s->v_type, HR_STUDY_ROWS);
    const size_t ld = (size_t)s->heads * s->dim, all = (size_t)s->batch * s->layers;
    for (size_t i = all * thread / j->threads; i < all * (thread + 1) / j->threads; i++) {
        const hr_kv_seq *view = hr_kv_cache_view(j->arms->caches[j->arm], (uint32_t)(i / s->layers));
        for (uint32_t p = 0; p < s->context; p += HR_STUDY_ROWS)
            append->fn.kv_append(view, (uint32_t)(i % s->layers), p, j->arms->rows, ld,
                                 j->arms->rows + HR_STUDY_ROWS * ld, ld, 0,
                                 s->context - p < HR_STUDY_ROWS ? s->context - p : HR_STUDY_ROWS, 0, s->heads);
    }
}

static hr_status make_arm(hr_study_session *session, hr_study_arms *arms, size_t i) {
    const hr_study_shape *s = &arms->shape;
    if (arms->kinds[i].best) {
        arms->caches[i] = arms->caches[0];
        return HR_OK;
    }
    HR_TRY(create_cache(s, &arms->kinds[i], &arms->caches[i]));
    arms->owns[i] = true;
    for (uint32_t q = 0; q < s->batch; q++) HR_TRY(hr_kv_cache_reserve(arms->caches[i], q, s->context));
    fill_job job = {arms, i, session->threads};
    hr_gang_run(session->gang, session->threads, fill_share, &job);
    return HR_OK;
}

hr_status hr_study_random_rows(hr_study_arms *arms) {
    const size_t n = (size_t)2 * HR_STUDY_ROWS * arms->shape.heads * arms->shape.dim;
    uint64_t rng = 11;
    arms->rows = hr_malloc(hr_mul(n, sizeof *arms->rows));
    if (!arms->rows) HR_FAIL(HR_ERR_MEMORY, "kv study: no memory for rows");
    for (size_t i = 0; i < n; i++) arms->rows[i] = (float)((double)(hr_random(&rng) >> 11) / 4503599627370496.0 - 1);
    return HR_OK;
}

static hr_status make(hr_study_session *session, hr_study_arms *arms) {
    HR_TRY(hr_study_random_rows(arms));
    for (size_t i = 0; i < arms->n; i++) HR_TRY(make_arm(session, arms, i));
    return HR_OK;
}

void hr_study_arms_destroy(hr_study_arms *arms) {
    if (!arms) return;
    for (size_t i = 0; i < arms->n; i++)
        if (arms->owns[i]) hr_kv_cache_destroy(arms->caches[i]);
    hr_free(arms->rows);
    hr_free(arms);
}

hr_status hr_study_arms_get(hr_study_session *session, const hr_study_shape *shape, bool quick, hr_study_arms **out) {
    if (session->arms && !memcmp(&session->arms->shape, shape, sizeof *shape)) {
        *out = session->arms;
        return HR_OK;
    }
    hr_study_arms_destroy(session->arms); /* before the next take its place in memory */
    session->arms = NULL;
    hr_study_arms *arms = hr_calloc(1, sizeof *arms);
    if (!arms) HR_FAIL(HR_ERR_MEMORY, "kv study: out of memory");
    arms->shape = *shape;
    arms->n = hr_study_arm_kinds(quick, hr_study_best_kernel(shape->k_type, shape->v_type) != NULL, arms->kinds);
    const hr_status status = make(session, arms);
    if (status == HR_OK)
        *out = session->arms = arms;
    else
        hr_study_arms_destroy(arms);
    return status;
}
