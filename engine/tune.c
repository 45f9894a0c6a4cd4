/* tune.c - the width of int8 products on this CPU: looked up, else measured, once a process. */
#include "engine/tune.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/panel.h"
#include "kernels/base/random.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tile of a prefill: 64 tokens by 256 rows of 1024 columns are 34 Mop, some 40 us on a core of 800 Gop/s, and lie in
 * its L2. */
enum { TOKENS = 64, ROWS = 256, COLS = 1024, RUNS = 12, WARM_RUNS = 2 };
static const double WORTH = 1.01;

/* ---- which rows compete ---- */

static bool usable(const hr_kernel *k, hr_isa isa, uint32_t n) {
    return k->family == HR_FAM_MATMUL && k->lanes && k->isa <= isa && !(k->needs & ~hr_cpu_features()) &&
           k->unit == HR_UNIT_INT8 && n >= k->n_min && (!k->n_max || n <= k->n_max) &&
           (k->orders >> HR_ORDER_PANELS & 1u);
}

/* Rows between which the chooser decides by lanes. */
static bool compete(const hr_kernel *a, const hr_kernel *b) {
    return a->dtypes & b->dtypes && a->act == b->act && a->rank == b->rank && a->lanes == 256 && b->lanes == 512;
}

hr_width_pair hr_tune_pair(hr_isa isa, uint32_t n) {
    const hr_kernel *a, *b;
    for (size_t i = 0; (a = hr_kernel_at(i)) != NULL; i++) {
        if (!usable(a, isa, n)) continue;
        for (size_t j = 0; (b = hr_kernel_at(j)) != NULL; j++)
            if (usable(b, isa, n) && compete(a, b)) return (hr_width_pair){a, b};
    }
    return (hr_width_pair){NULL, NULL};
}

/* ---- the measurement ---- */

/* One kernel with its operands; everything in one block of pages. */
typedef struct contestant {
    const hr_kernel *kernel;
    hr_mat w;
    hr_acts x;
    hr_matmul call;
    void *scratch, *memory;
    size_t bytes;
} contestant;

static void *take(char *base, size_t *used, size_t bytes) {
    void *at = base ? base + *used : NULL;
    *used = hr_align_up(*used + bytes, 128);
    return at;
}

static size_t place(contestant *c, char *base, hr_dtype t) {
    size_t used = 0;
    const size_t panels = hr_panel_count(ROWS), tile = c->kernel->tile;
    c->w = (hr_mat){.dtype = t, .rows = ROWS, .cols = COLS, .order = HR_ORDER_PANELS};
    c->w.data = take(base, &used, panels * hr_panel_bytes(t, COLS));
    c->w.scales = take(base, &used, panels * hr_panel_scales(t, COLS) * sizeof(uint16_t));
    c->x = (hr_acts){.type = (hr_act)c->kernel->act, .n = TOKENS, .k = COLS, .ld = COLS, .tile = (uint32_t)tile};
    c->x.q = take(base, &used, (size_t)TOKENS * COLS);
    c->x.d = take(base, &used, (size_t)TOKENS * COLS / 32 * sizeof(float));
    c->x.sum = take(base, &used, (size_t)TOKENS * COLS / 32 * sizeof(int32_t));
    if (tile) {
        const size_t areas = (TOKENS + tile - 1) / tile;
        c->x.tiles = take(base, &used, areas * hr_acts_tile_bytes(c->x.type, (uint32_t)tile, COLS));
    }
    c->call = (hr_matmul){.w = &c->w, .x = &c->x, .ldy = ROWS};
    c->call.y = take(base, &used, (size_t)TOKENS * ROWS * sizeof(float));
    c->scratch = take(base, &used, hr_matmul_scratch(COLS, TOKENS));
    return used;
}

static hr_status set_up(contestant *c, const hr_kernel *kernel, hr_dtype t, hr_isa isa) {
    c->kernel = kernel;
    c->bytes = place(c, NULL, t);
    c->memory = hr_pages_alloc(c->bytes, true);
    float *x = hr_malloc(sizeof(float) * TOKENS * COLS);
    if (!c->memory || !x) {
        hr_free(x);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for choosing the width of int8 kernels");
    }
    place(c, c->memory, t);
    uint64_t rng = 1;
    uint8_t *data = (uint8_t *)(uintptr_t)c->w.data;
    uint16_t *scales = (uint16_t *)(uintptr_t)c->w.scales;
    for (size_t i = 0; i < hr_panel_count(ROWS) * hr_panel_bytes(t, COLS); i++)
        data[i] = (uint8_t)(hr_random(&rng) >> 56);
    for (size_t i = 0; i < hr_panel_count(ROWS) * hr_panel_scales(t, COLS); i++) scales[i] = hr_f32_to_f16(0.01f);
    for (size_t i = 0; i < (size_t)TOKENS * COLS; i++) x[i] = (float)(int32_t)(hr_random(&rng) >> 40) * 1e-6f;
    const hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = isa, .dtype = t, .act = c->x.type, .n = TOKENS};
    hr_kernel_choose(&q)->fn.acts(&c->x, x, COLS, 0, TOKENS);
    hr_free(x);
    return HR_OK;
}

static double run(const contestant *c) {
    const uint64_t start = hr_now_ns();
    c->kernel->fn.matmul(&c->call, 0, ROWS, c->scratch);
    const uint64_t ns = hr_now_ns() - start;
    return 2.0 * TOKENS * ROWS * COLS / (double)(ns ? ns : 1);
}

static hr_status contest(contestant c[2], const hr_width_pair *pair, double best[2]) {
    const hr_kernel *const kernels[2] = {pair->narrow, pair->wide};
    hr_dtype t = 0;
    while (!((pair->narrow->dtypes & pair->wide->dtypes) >> t & 1u)) t++;
    for (int i = 0; i < 2; i++) HR_TRY(set_up(&c[i], kernels[i], t, kernels[i]->isa));
    for (int r = 0; r < WARM_RUNS + RUNS; r++)
        for (int i = 0; i < 2; i++) {
            const double rate = run(&c[i]);
            if (r >= WARM_RUNS && rate > best[i]) best[i] = rate;
        }
    return HR_OK;
}

hr_status hr_tune_measure(const hr_width_pair *pair, double *narrow, double *wide) {
    contestant c[2] = {{0}, {0}};
    double best[2] = {0, 0};
    const hr_status status = contest(c, pair, best);
    for (int i = 0; i < 2; i++)
        if (c[i].memory) hr_pages_free(c[i].memory, c[i].bytes);
    *narrow = best[0], *wide = best[1];
    return status;
}

uint32_t hr_tune_decide(double narrow, double wide) {
    return narrow > WORTH * wide ? 256 : 512;
}

/* ---- once a process ---- */

static hr_status find(hr_tuning *t) {
    const char *forced = getenv("HEADROOM_LANES");
    char key[512], path[sizeof t->cache];
    *t = (hr_tuning){.lanes = 512, .how = HR_TUNED_DEFAULT};
    if (forced && *forced) {
        if (strcmp(forced, "256") && strcmp(forced, "512"))
            HR_FAIL(HR_ERR_USAGE, "HEADROOM_LANES=%.40s: must be 256 or 512", forced);
        t->lanes = (uint32_t)atoi(forced), t->how = HR_TUNED_FORCED;
        return HR_OK;
    }
    const hr_width_pair pair = hr_tune_pair(hr_isa_best(), TOKENS);
    if (!pair.narrow) return HR_OK;
    hr_tune_key(&pair, key, sizeof key);
    const bool has_place = hr_tune_path(key, path, sizeof path);
    if (has_place) memcpy(t->cache, path, sizeof path);
    if (has_place && hr_tune_load(path, key, t)) {
        t->how = HR_TUNED_CACHED;
        return HR_OK;
    }
    HR_TRY(hr_tune_measure(&pair, &t->narrow_gop_s, &t->wide_gop_s));
    t->lanes = hr_tune_decide(t->narrow_gop_s, t->wide_gop_s), t->how = HR_TUNED_MEASURED;
    if (!has_place || !hr_tune_store(path, key, t)) t->cache[0] = 0;
    return HR_OK;
}

static pthread_mutex_t once_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool known;
static hr_tuning tuning; /* valid once known; both under the mutex */

hr_status hr_tune(hr_tuning *out) {
    pthread_mutex_lock(&once_mutex);
    hr_status status = HR_OK;
    if (!known) {
        status = find(&tuning);
        known = status == HR_OK;
        if (known) hr_kernel_prefer_lanes(tuning.lanes);
    }
    if (known && out) *out = tuning;
    pthread_mutex_unlock(&once_mutex);
    return status;
}
