/* tune.c - the width of int8 products on this CPU: looked up, else measured, once a process. */
#include "engine/tune.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/panel.h"
#include "kernels/base/random.h"
#include "kernels/operands.h"

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

/* One kernel with its operands. */
typedef struct contestant {
    const hr_kernel *kernel;
    hr_mat w;
    hr_operands operands;
    void *weights;
} contestant;

static size_t data_bytes(hr_dtype t) {
    return hr_panel_count(ROWS) * hr_panel_bytes(t, COLS);
}
static size_t scale_count(hr_dtype t) {
    return hr_panel_count(ROWS) * hr_panel_scales(t, COLS);
}
static size_t weights_bytes(hr_dtype t) {
    return data_bytes(t) + scale_count(t) * sizeof(uint16_t);
}

static hr_status set_up(contestant *c, const hr_kernel *kernel, hr_dtype t) {
    uint8_t *data = c->weights = hr_pages_alloc(weights_bytes(t), true);
    if (!data) HR_FAIL(HR_ERR_MEMORY, "out of memory for choosing the width of int8 kernels");
    uint16_t *scales = (uint16_t *)(void *)(data + data_bytes(t));
    uint64_t rng = 1;
    for (size_t i = 0; i < data_bytes(t); i++) data[i] = (uint8_t)(hr_random(&rng) >> 56);
    for (size_t i = 0; i < scale_count(t); i++) scales[i] = hr_f32_to_f16(0.01f);
    c->kernel = kernel;
    c->w = (hr_mat){t, ROWS, COLS, data, scales, HR_ORDER_PANELS};
    return hr_operands_init(&c->operands, kernel, &c->w, TOKENS);
}

static double run(const contestant *c) {
    const uint64_t start = hr_now_ns();
    hr_operands_run(c->kernel, &c->operands);
    const uint64_t ns = hr_now_ns() - start;
    return 2.0 * TOKENS * ROWS * COLS / (double)(ns ? ns : 1);
}

static hr_status contest(contestant c[2], const hr_width_pair *pair, hr_dtype t, double best[2]) {
    const hr_kernel *const kernels[2] = {pair->narrow, pair->wide};
    for (int i = 0; i < 2; i++) HR_TRY(set_up(&c[i], kernels[i], t));
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
    hr_dtype t = 0; /* the first that both read */
    while (!((pair->narrow->dtypes & pair->wide->dtypes) >> t & 1u)) t++;
    const hr_status status = contest(c, pair, t, best);
    for (int i = 0; i < 2; i++) {
        hr_operands_fini(&c[i].operands);
        if (c[i].weights) hr_pages_free(c[i].weights, weights_bytes(t));
    }
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
