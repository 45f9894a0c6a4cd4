#include "harness/generate/logits.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct candidate {
    float value;
    uint32_t id;
} candidate;

static int better_first(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (isnan(x->value) || isnan(y->value)) {
        if (isnan(x->value) != isnan(y->value)) return isnan(x->value) ? 1 : -1;
    } else if (x->value != y->value) {
        return x->value > y->value ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

hr_status hr_logits_top(const float *logits, size_t n, size_t k, json_t **out) {
    if (k > n) k = n;
    candidate *all = hr_malloc(hr_mul(n, sizeof *all));
    json_t *list = json_array();
    if (!all || !list) {
        hr_free(all);
        json_decref(list);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the largest logits");
    }
    for (size_t i = 0; i < n; i++) all[i] = (candidate){logits[i], (uint32_t)i};
    if (k) qsort(all, n, sizeof *all, better_first);
    for (size_t i = 0; i < k; i++) {
        json_t *pair = json_array();
        json_array_append_new(pair, json_integer(all[i].id));
        json_array_append_new(pair, hr_real_or_null(all[i].value));
        json_array_append_new(list, pair);
    }
    hr_free(all);
    *out = list;
    return HR_OK;
}

double hr_logits_logsumexp(const float *logits, size_t n) {
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if (logits[i] > largest) largest = logits[i];
    if (!isfinite(largest)) return largest;
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}
