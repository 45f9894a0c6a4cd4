/* The KV cache: memory for the other families, and appends of one token and of a chunk in every layout and type.
 *
 * Fork and eviction of the cache are the engine's and have no row in the table. */
#include "bench/bench_kvmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void shuffle(uint32_t *table, uint32_t n) {
    uint64_t seed = 9;
    for (uint32_t i = 0; i < n; i++) table[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = (uint32_t)(hr_random(&seed) % (i + 1)), t = table[i];
        table[i] = table[j], table[j] = t;
    }
}

hr_status hr_bench_kv_init(hr_bench_kv *kv, hr_kv_layout layout, hr_dtype type, uint32_t layers, uint32_t heads,
                           uint32_t dim, uint32_t positions) {
    const bool paged = hr_kv_is_paged(layout);
    memset(kv, 0, sizeof *kv);
    HR_TRY(hr_kv_geom_init(&kv->geom, layout, layers, heads, dim, type, type, positions, paged ? HR_BENCH_PAGE : 0));
    const uint32_t pages = paged ? kv->geom.n_blocks * kv->geom.block / HR_BENCH_PAGE : 1;
    kv->seq.g = &kv->geom;
    size_t total = 0;
    bool ok = true;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        const size_t bytes = pages * hr_kv_extent_bytes(&kv->geom, x);
        if (!bytes) continue;
        total += bytes, kv->bytes[x] = bytes;
        ok &= (kv->seq.base[x] = hr_pages_alloc(bytes, true)) != NULL;
    }
    if (paged) ok &= (kv->seq.table = kv->table = malloc(pages * sizeof *kv->table)) != NULL;
    if (paged && ok) shuffle(kv->table, pages);
    if (ok) return HR_OK;
    hr_bench_kv_fini(kv);
    HR_FAIL(HR_ERR_MEMORY, "no memory for %zu MiB of KV", total >> 20);
}

hr_status hr_bench_kv_fill(hr_bench_kv *kv, const hr_kernel *append, uint32_t n) {
    enum { CHUNK = 256 };
    const size_t ld = (size_t)kv->geom.n_heads * kv->geom.head_dim, all = 2 * CHUNK * ld;
    float *x = hr_bench_floats(all, 17);
    if (!x) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    for (uint32_t layer = 0; layer < kv->geom.n_layers; layer++)
        for (uint32_t p = 0; p < n; p += CHUNK)
            append->fn.kv_append(&kv->seq, layer, p, x, ld, x + CHUNK * ld, ld, 0, n - p < CHUNK ? n - p : CHUNK, 0,
                                 kv->geom.n_heads);
    kv->seq.len = n;
    hr_pages_free(x, all * sizeof *x);
    return HR_OK;
}

void hr_bench_kv_fini(hr_bench_kv *kv) {
    for (int x = 0; x < HR_KV_PLANES; x++)
        if (kv->seq.base[x]) hr_pages_free(kv->seq.base[x], kv->bytes[x]);
    free(kv->table);
    memset(kv, 0, sizeof *kv);
}

uint32_t hr_bench_kv_layers(uint64_t bytes) {
    const uint64_t n = hr_bench_cold_bytes() / bytes + 1;
    return n < 4096 ? (uint32_t)n : 4096;
}

/* ---- append ---- */

typedef struct what {
    const hr_kernel *k;
    hr_kv_layout layout;
    hr_dtype type;
    uint32_t heads, dim;
} what;

typedef struct run {
    what w;
    uint32_t n, capacity, next; /* next: position that is written next */
    hr_bench_kv kv;
    float *x; /* [2][n][heads * dim] */
} run;

static size_t width(const what *w) {
    return (size_t)w->heads * w->dim;
}

static void teardown(void *context) {
    run *r = context;
    hr_bench_kv_fini(&r->kv);
    if (r->x) hr_pages_free(r->x, 2 * r->n * width(&r->w) * sizeof *r->x);
    free(r);
}

/* Both write the same rows into zeroed memory of one layout: all bits must agree. */
static hr_status check(const what *w) {
    enum { N = 37 };
    const hr_kernel *ref = hr_kernel_ref(w->k);
    hr_bench_kv got, want;
    if (!ref) HR_FAIL(HR_ERR_INTERNAL, "%s has no reference row", w->k->name);
    HR_TRY(hr_bench_kv_init(&got, w->layout, w->type, 2, w->heads, w->dim, 64));
    hr_status status = hr_bench_kv_init(&want, w->layout, w->type, 2, w->heads, w->dim, 64);
    if (status == HR_OK) {
        status = hr_bench_kv_fill(&got, w->k, N);
        if (status == HR_OK) status = hr_bench_kv_fill(&want, ref, N);
        for (int x = 0; status == HR_OK && x < HR_KV_PLANES; x++)
            if (got.bytes[x] && memcmp(got.seq.base[x], want.seq.base[x], got.bytes[x]) != 0)
                status = hr_fail(HR_ERR_INTERNAL, "%s is wrong: plane %d of %s in layout %s differs from the reference",
                                 w->k->name, x, hr_dtypes[w->type].name, hr_kv_layout_name(w->layout));
        hr_bench_kv_fini(&want);
    }
    hr_bench_kv_fini(&got);
    return status;
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    HR_TRY(check(w));
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->w = *w, r->n = (uint32_t)args[0], r->capacity = 4096;
    r->x = hr_bench_floats(2 * r->n * width(w), 21);
    hr_status status = hr_bench_kv_init(&r->kv, w->layout, w->type, 16, w->heads, w->dim, r->capacity);
    if (status == HR_OK && !r->x) status = hr_fail(HR_ERR_MEMORY, "out of memory");
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

/* Layer after layer, as a step writes them; then the next position. */
static void body(void *context, uint64_t iterations) {
    run *r = context;
    const size_t ld = width(&r->w);
    uint32_t layer = 0;
    for (uint64_t i = 0; i < iterations; i++) {
        r->w.k->fn.kv_append(&r->kv.seq, layer, r->next, r->x, ld, r->x + r->n * ld, ld, 0, r->n, 0, r->w.heads);
        if (++layer < r->kv.geom.n_layers) continue;
        layer = 0, r->next += r->n;
        if (r->next + r->n > r->capacity) r->next = 0;
    }
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    const hr_work work = hr_work_kv_append(&r->kv.geom, r->n);
    /* Writes have no ceiling of their own: rates without a share. */
    return (hr_bench_cost){.items = (double)work.bytes, .item = "written/s"};
}

static void add(const hr_kernel *k, const hr_bench_model *m, hr_kv_layout layout, hr_dtype type, bool smoke) {
    static const char *const names[] = {"n"};
    static const int64_t all[] = {1, 512}, few[] = {3};
    const what w = {k, layout, type, m->n_kv_heads, m->head_dim};
    char name[HR_BENCH_NAME], suffix[48];
    snprintf(name, sizeof name, "kv_append/%s/%s", k->name, m->name);
    snprintf(suffix, sizeof suffix, "%s.%s", hr_dtypes[type].name, hr_kv_layout_name(layout));
    hr_bench_add(&(hr_bench_family){.name = name,
                                    .arg_names = names,
                                    .n_args = 1,
                                    .values = smoke ? few : all,
                                    .n_values = smoke ? 1 : 2,
                                    .suffix = suffix,
                                    .context = &w,
                                    .context_bytes = sizeof w,
                                    .setup = setup,
                                    .body = body,
                                    .teardown = teardown,
                                    .cost = cost});
}

void hr_bench_register_kv(bool smoke) {
    static const hr_dtype types[] = {HR_BF16, HR_F32, HR_F16, HR_Q8_0, HR_Q4_0};
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (k->family != HR_FAM_KV_APPEND || !hr_bench_can_run(k)) continue;
        for (int m = smoke ? 0 : 2; m < (smoke ? 1 : HR_BENCH_MODELS); m++)
            for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++)
                for (int t = 0; t < 5; t++) {
                    const bool takes = !k->dtypes || k->dtypes >> types[t] & 1;
                    if (takes && (t == 0 || layout == HR_KV_HEAD || smoke))
                        add(k, &hr_bench_models[m], (hr_kv_layout)layout, types[t], smoke);
                }
    }
}
