/* fuzz_gguf.c - any bytes as a model file: parsed, described, and, when it is sound and small, loaded and converted. */
#include "engine/model/weights.h"
#include "kernels/base/memory.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fill(hr_opened *o, hr_quant quant) {
    static const size_t LIMIT = 1 << 24;
    if (hr_opened_layout(o, quant, quant == HR_QUANT_NATIVE ? HR_ORDER_PANELS : HR_ORDER_ROWS, false) != HR_OK ||
        o->plan.arena_bytes > LIMIT)
        return;
    void *arena = hr_pages_alloc(o->plan.arena_bytes, false);
    hr_load_options options = {.quant = quant, .threads = 1};
    if (arena) hr_plan_fill(&o->plan, arena, "fuzz", &options);
    hr_pages_free(arena, o->plan.arena_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hr_gguf *gguf;
    hr_opened opened;
    if (hr_gguf_parse_memory(data, size, "fuzz", &gguf) != HR_OK) return 0;
    if (hr_model_open_gguf(gguf, &opened) != HR_OK) return 0;
    json_t *json = NULL;
    if (hr_opened_inspect(&opened, &json) == HR_OK) json_decref(json);
    /* inspect adds the tokenizer to the reasons; the weights can be filled when a plan has all its tensors. */
    bool whole = opened.plan.n_mats > 0;
    for (size_t i = 0; i < opened.plan.n_mats; i++) whole &= opened.plan.mats[i].source.data != NULL;
    for (size_t i = 0; i < opened.plan.n_vecs; i++)
        whole &= opened.plan.vecs[i].present || opened.plan.vecs[i].optional;
    if (whole) fill(&opened, HR_QUANT_NATIVE), fill(&opened, HR_QUANT_INT8), fill(&opened, HR_QUANT_F16);
    hr_opened_fini(&opened);
    return 0;
}
