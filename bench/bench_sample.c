/* A token from logits: the k largest without a full sort, and the whole choice as the engine makes it. */
#include "bench/bench.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- hr_top_k ---- */

typedef struct run {
    size_t vocab, k;
    float *logits;
    hr_candidate *best; /* [k] */
    hr_model *model;
    hr_engine *engine;
    hr_sampling how;
    uint64_t rng;
} run;

static void teardown(void *context) {
    run *r = context;
    if (r->logits) hr_pages_free(r->logits, r->vocab * sizeof *r->logits);
    free(r->best);
    if (r->engine) hr_engine_destroy(r->engine);
    if (r->model) hr_model_destroy(r->model);
    free(r);
}

/* Counts how many logits are larger than each of the chosen. */
static hr_status check(const run *r) {
    for (size_t i = 0; i < r->k; i++) {
        size_t larger = 0;
        for (size_t c = 0; c < r->vocab; c++) larger += r->logits[c] > r->best[i].logit;
        if (larger > i || r->logits[r->best[i].id] != r->best[i].logit)
            HR_FAIL(HR_ERR_INTERNAL, "hr_top_k is wrong: place %zu of %zu, %zu logits are larger", i, r->k, larger);
    }
    return HR_OK;
}

static void body_top(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) hr_top_k(r->logits, r->vocab, r->k, r->best);
}

static hr_status setup_top(const void *context, const int64_t *args, void **out) {
    (void)context;
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->vocab = (size_t)args[0], r->k = (size_t)args[1];
    r->logits = hr_bench_floats(r->vocab, 51);
    r->best = malloc(r->k * sizeof *r->best);
    hr_status status = r->logits && r->best ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory");
    if (status == HR_OK) {
        body_top(r, 1);
        status = check(r);
    }
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static hr_bench_cost cost(const void *context) {
    return (hr_bench_cost){.items = (double)((const run *)context)->vocab, .item = "logits/s"};
}

/* ---- hr_engine_sample: a tiny model with the vocabulary of a large one ---- */

static hr_status open_engine(run *r) {
    char spec[96];
    snprintf(spec, sizeof spec, "synth:tiny:layers=1:vocab=%zu", r->vocab);
    HR_TRY(hr_model_load(spec, &(hr_load_options){.threads = 1}, &r->model));
    hr_engine_config config = hr_engine_config_default();
    config.threads = 1, config.pin = false, config.max_seqs = 1, config.ctx = 64, config.ubatch = config.batch = 8;
    HR_TRY(hr_engine_create(r->model, &config, &r->engine));
    return hr_engine_prefill(r->engine, 0, (const int32_t[]){1, 2, 3}, 3, true);
}

static hr_status setup_engine(const void *context, const int64_t *args, void **out) {
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->vocab = (size_t)args[0], r->how = *(const hr_sampling *)context, r->rng = 1;
    const hr_status status = open_engine(r);
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static void body_engine(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) hr_engine_sample(r->engine, 0, &r->how, &r->rng);
}

void hr_bench_register_sample(bool smoke) {
    static const char *const names[] = {"vocab", "k"};
    static const int64_t top[][2] = {{49152, 1}, {49152, 40}, {128256, 1}, {128256, 40}, {151936, 1}, {151936, 40}};
    static const int64_t vocabs[] = {49152, 128256, 151936};
    static const struct {
        const char *name;
        hr_sampling how;
    } ways[] = {{"argmax", {.top_p = 1}},
                {"top_k40", {.temperature = 1, .top_k = 40, .top_p = 1}},
                {"top_k40_top_p", {.temperature = 1, .top_k = 40, .top_p = 0.95f}},
                {"all", {.temperature = 1, .top_p = 1}}};
    hr_bench_family f = {.name = "sample/hr_top_k",
                         .arg_names = names,
                         .n_args = 2,
                         .values = top[0],
                         .n_values = smoke ? 2 : 6,
                         .setup = setup_top,
                         .body = body_top,
                         .teardown = teardown,
                         .cost = cost};
    hr_bench_add(&f);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char name[HR_BENCH_NAME];
        snprintf(name, sizeof name, "sample/hr_engine_sample/%s", ways[i].name);
        f.name = name, f.n_args = 1, f.values = vocabs, f.n_values = smoke ? 1 : 3;
        f.context = &ways[i].how, f.context_bytes = sizeof ways[i].how;
        f.setup = setup_engine, f.body = body_engine;
        hr_bench_add(&f);
    }
}
