#include "harness/kv/study_ppl.h"

#include "harness/cli/read_file.h"
#include "harness/formats/json_get.h"
#include "harness/generate/perplexity.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static const uint32_t few[] = {512, 1024, 0}, many[] = {512, 2048, 4096, 0}; /* contexts */
enum { TOKENS_QUICK = 1024, TOKENS_FULL = 16384 };

hr_status hr_study_types_of(const char *name, hr_dtype *k, hr_dtype *v) {
    char first[16];
    const char *slash = strchr(name, '/');
    snprintf(first, sizeof first, "%.*s", (int)strcspn(name, "/"), name);
    HR_TRY(hr_kv_type_parse(first, k));
    return hr_kv_type_parse(slash ? slash + 1 : first, v);
}

typedef struct text {
    const hr_study_options *options;
    unsigned threads;
    hr_model *model;
    int32_t *ids;
    size_t n_ids;
    int32_t bos;
    cpu_set_t cpus;
} text;

static hr_status open_text(text *t) {
    const hr_load_options load = {.order = HR_ORDER_PANELS, .huge_pages = true, .threads = t->threads};
    char *bytes = NULL;
    size_t n = 0;
    HR_TRY(hr_model_load(t->options->ppl_model, &load, &t->model));
    const hr_tokenizer *tokenizer = hr_model_tokenizer(t->model);
    if (!tokenizer) HR_FAIL(HR_ERR_UNSUPPORTED, "%s has no tokenizer", t->options->ppl_model);
    t->bos = hr_tokenizer_adds_bos(tokenizer) ? hr_tokenizer_bos(tokenizer) : -1;
    HR_TRY(hr_read_file(t->options->ppl_text, &bytes, &n));
    const hr_status status = hr_tokenize(tokenizer, bytes, n, true, false, &t->ids, &t->n_ids);
    hr_free(bytes);
    return status;
}

static hr_status one(text *t, const char *name, uint32_t ctx, hr_perplexity *out) {
    const hr_model_info *info = hr_model_get_info(t->model);
    const size_t most = t->options->quick ? TOKENS_QUICK : TOKENS_FULL;
    hr_engine_config config = hr_engine_config_default();
    hr_engine *engine;
    HR_TRY(hr_study_types_of(name, &config.k_type, &config.v_type));
    config.ctx = ctx, config.threads = t->threads;
    sched_setaffinity(0, sizeof t->cpus, &t->cpus);
    HR_TRY(hr_engine_create(t->model, &config, &engine));
    const hr_perplexity_input input = {.engine = engine,
                                       .tokens = t->ids,
                                       .n_tokens = t->n_ids < most ? t->n_ids : most,
                                       .ctx = ctx,
                                       .vocab = info->vocab,
                                       .bos = t->bos,
                                       .stop = t->options->stop};
    const hr_status status = hr_perplexity_of(&input, out);
    hr_engine_destroy(engine);
    return status;
}

/* The name of the file, without its folders. */
static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static hr_status all(text *t, const char *const *names, size_t n, json_t *lists) {
    const uint32_t *contexts = t->options->quick ? few : many;
    for (size_t i = 0; i < n; i++) json_array_append_new(lists, json_array());
    for (int c = 0; contexts[c]; c++) {
        if (contexts[c] > hr_model_get_info(t->model)->ctx || contexts[c] > t->n_ids) break;
        double base = 0;
        for (size_t i = 0; i < n; i++) {
            hr_perplexity p;
            HR_TRY(one(t, names[i], contexts[c], &p));
            if (i == 0) base = p.ppl;
            json_array_append_new(json_array_get(lists, i),
                                  json_pack("{s:i, s:o, s:o, s:I, s:s}", "ctx", (int)contexts[c], "ppl",
                                            hr_real_or_null(p.ppl), "delta_pct",
                                            hr_real_or_null(100 * (p.ppl / base - 1)), "tokens_scored",
                                            (json_int_t)p.tokens_scored, "model", file_of(t->options->ppl_model)));
        }
    }
    return HR_OK;
}

hr_status hr_study_ppl(const hr_study_options *o, unsigned threads, const char *const *names, size_t n, json_t **lists,
                       char *reason, size_t reason_n) {
    *lists = NULL;
    reason[0] = 0;
    if (!o->ppl_model || !o->ppl_text) {
        snprintf(reason, reason_n, "no %s; give one with --ppl-%s", o->ppl_model ? "text" : "real model",
                 o->ppl_model ? "text" : "model");
        return HR_OK;
    }
    text t = {.options = o, .threads = threads};
    sched_getaffinity(0, sizeof t.cpus, &t.cpus);
    json_t *out = json_array();
    hr_status status = out ? open_text(&t) : hr_fail(HR_ERR_MEMORY, "kv study: out of memory");
    if (status == HR_OK) status = all(&t, names, n, out);
    hr_free(t.ids);
    hr_model_destroy(t.model);
    sched_setaffinity(0, sizeof t.cpus, &t.cpus);
    if (status == HR_OK) {
        *lists = out;
        return HR_OK;
    }
    json_decref(out);
    if (status == HR_ERR_INTERRUPTED) return status;
    snprintf(reason, reason_n, "%s", hr_error()); /* the steps are worth keeping without it */
    return HR_OK;
}
