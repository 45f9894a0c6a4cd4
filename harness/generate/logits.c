#include "harness/generate/logits.h"

#include "engine/engine.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

hr_status hr_logits_top(const float *logits, size_t n, size_t k, json_t **out) {
    if (k > n) k = n;
    hr_candidate *top = hr_malloc(hr_mul(k, sizeof *top));
    json_t *list = json_array();
    if (!top || !list) {
        hr_free(top);
        json_decref(list);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the largest logits");
    }
    k = hr_top_k(logits, n, k, top);
    for (size_t i = 0; i < k; i++) {
        json_t *pair = json_array();
        json_array_append_new(pair, json_integer(top[i].id));
        json_array_append_new(pair, hr_real_or_null((double)top[i].logit));
        json_array_append_new(list, pair);
    }
    hr_free(top);
    *out = list;
    return HR_OK;
}
