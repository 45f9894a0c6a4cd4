/* load.c - hr_model_load: opens, asks whether it fits, brings the weights into memory, attaches the tokenizer. */
#include "engine/model/weights.h"
#include "kernels/base/memory.h"

#include <inttypes.h>
#include <sys/mman.h>

/* What a loaded model holds on to. */
typedef struct owner {
    hr_gguf *gguf; /* NULL when no matrix lies in the file */
    void *arena;
    size_t arena_bytes;
} owner;

static hr_status refuse_unsupported(const hr_opened *o) {
    size_t n = json_array_size(o->reasons.list);
    if (!n) return HR_OK;
    const char *file = o->model->info.filename, *first = json_string_value(json_array_get(o->reasons.list, 0));
    if (n == 1) HR_FAIL(HR_ERR_UNSUPPORTED, "%s: not supported: %s", file, first);
    HR_FAIL(HR_ERR_UNSUPPORTED, "%s: not supported: %s, and %zu more (inspect -m lists all)", file, first, n - 1);
}

static hr_status check_memory(const hr_opened *o) {
    /* A mapping that is kept must stay in memory; one that is packed or converted is dropped behind. */
    const uint64_t need = o->plan.keep_file ? o->plan.weight_bytes : o->plan.arena_bytes;
    const uint64_t available = hr_memory_available("");
    if (need <= available) return HR_OK;
    HR_FAIL(HR_ERR_MEMORY,
            "%s: its weights need %.2f GB of memory, %.2f GB are available; use a smaller --quant or model",
            o->model->info.filename, (double)need * 1e-9, (double)available * 1e-9);
}

static hr_status attach_tokenizer(hr_opened *o) {
    hr_model *model = o->model;
    char why[256];
    if (!o->gguf) return hr_tokenizer_create_bytes(model->hp.vocab, &model->tokenizer);
    return hr_gguf_tokenizer(o->gguf, model->hp.vocab, &model->tokenizer, why, sizeof why);
}

static hr_status load_weights(hr_opened *o, const hr_load_options *options) {
    hr_model *model = o->model;
    owner *own = hr_calloc(1, sizeof *own);
    if (!own) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", model->info.filename);
    model->owner = own;
    /* Huge pages for weights; the few vectors beside a mapped file do not deserve one. */
    own->arena = hr_pages_alloc(o->plan.arena_bytes, options->huge_pages && !o->plan.keep_file);
    own->arena_bytes = o->plan.arena_bytes;
    if (!own->arena)
        HR_FAIL(HR_ERR_MEMORY, "%s: cannot get %.2f GB of memory for its weights; use a smaller --quant or model",
                model->info.filename, (double)own->arena_bytes * 1e-9);
    if (o->plan.keep_file) madvise((void *)(uintptr_t)o->gguf->map.data, o->gguf->map.size, MADV_WILLNEED);
    const uint64_t huge = hr_huge_bytes();
    HR_TRY(hr_plan_fill(&o->plan, own->arena, model->info.filename, options));
    model->huge_pages = hr_huge_bytes() > huge;
    if (model->info.tied) model->head = model->embed;
    if (o->plan.keep_file) own->gguf = o->gguf, o->gguf = NULL;
    return HR_OK;
}

/* Who makes the matrices later needs to know how. */
static hr_status list_unmade(hr_opened *o) {
    hr_model *model = o->model;
    if (!o->plan.unmade) return HR_OK;
    model->unmade = hr_calloc(o->plan.n_mats, sizeof *model->unmade);
    if (!model->unmade) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", model->info.filename);
    model->n_unmade = o->plan.n_mats;
    for (size_t i = 0; i < o->plan.n_mats; i++) {
        const hr_plan_mat *m = &o->plan.mats[i];
        model->unmade[i] = (hr_unmade){m->slot, m->draw.key, m->draw.center, m->draw.std};
    }
    return HR_OK;
}

static hr_status load(hr_opened *o, const hr_load_options *options) {
    HR_TRY(refuse_unsupported(o));
    const hr_order order = options->on_device ? HR_ORDER_ROWS : options->order;
    o->plan.unmade = options->on_device && o->model->info.synthetic;
    HR_TRY(hr_opened_layout(o, options->quant, order, options->copy));
    HR_TRY(check_memory(o));
    HR_TRY(attach_tokenizer(o));
    HR_TRY(load_weights(o, options));
    return list_unmade(o);
}

hr_status hr_model_load(const char *spec, const hr_load_options *options, hr_model **out) {
    hr_opened o;
    *out = NULL;
    HR_TRY(hr_model_open(spec, &o));
    hr_status status = load(&o, options);
    if (status == HR_OK) *out = o.model, o.model = NULL;
    hr_opened_fini(&o);
    return status;
}

hr_status hr_model_peek(const char *spec, hr_quant quant, hr_order order, hr_model_info *out) {
    hr_opened o;
    HR_TRY(hr_model_open(spec, &o));
    hr_status status = refuse_unsupported(&o);
    if (status == HR_OK) status = hr_opened_layout(&o, quant, order, false);
    if (status == HR_OK) *out = o.model->info;
    hr_opened_fini(&o);
    return status;
}

void hr_model_destroy(hr_model *model) {
    if (!model) return;
    owner *own = model->owner;
    if (own) {
        hr_gguf_close(own->gguf);
        hr_pages_free(own->arena, own->arena_bytes);
        hr_free(own);
    }
    if (model->tokenizer) hr_tokenizer_destroy(model->tokenizer);
    hr_free((void *)(uintptr_t)model->rope_freq);
    hr_free(model->unmade);
    hr_free(model->layers);
    hr_free(model);
}

const hr_model_info *hr_model_get_info(const hr_model *model) {
    return &model->info;
}
const hr_tokenizer *hr_model_tokenizer(const hr_model *model) {
    return model->tokenizer;
}
