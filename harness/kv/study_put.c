/* What the rows of layouts and operations have in common. */
#include "harness/kv/study_arms.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"

#include <math.h>

void hr_study_put_shape(json_t *row, const char *op, const hr_study_arms *arms, size_t arm, unsigned threads) {
    const hr_study_shape *s = &arms->shape;
    const uint32_t page = arms->kinds[arm].page;
    json_t *more =
        json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:o, s:i, s:i, s:i, s:i}", "op", op, "kv_heads", (int)s->heads,
                  "head_dim", (int)s->dim, "group", (int)s->group, "type_k", hr_dtypes[s->k_type].name, "type_v",
                  hr_dtypes[s->v_type].name, "page_size", page ? json_integer(page) : json_null(), "context",
                  (int)s->context, "batch", (int)s->batch, "threads", (int)threads, "layers", (int)s->layers);
    json_object_update(row, more);
    json_decref(more);
}

static json_t *whole_or_null(double value) {
    return isfinite(value) ? json_integer((json_int_t)llround(value)) : json_null();
}

void hr_study_put_bytes(json_t *row, double needed) {
    const double us = hr_num(row, "median");
    json_object_set_new(row, "bytes_needed", whole_or_null(needed));
    json_object_set_new(row, "gb_s", hr_real_or_null(needed / us * 1e-3));
    json_object_set_new(row, "freed_bytes", json_null());
}

void hr_study_put_touched(json_t *row, const hr_study_arms *arms, size_t arm, hr_kv_op_shape shape,
                          const hr_kv_counts *counted, uint32_t sequences) {
    enum { LINE = 64 };
    const hr_study_shape *s = &arms->shape;
    const uint32_t page = arms->kinds[arm].page, capacity = s->context + s->room;
    if (page && arms->kinds[arm].layout != HR_KV_PAGED_IDENTITY)
        shape.pool_pages = (s->batch + s->spare) * ((capacity + page - 1) / page);
    const hr_kv_prediction p = hr_kv_predict(hr_kv_cache_view(arms->caches[arm], 0)->g, &shape);
    json_object_set_new(row, "predicted",
                        json_pack("{s:o, s:o, s:o}", "runs", hr_real_or_null(p.runs * sequences), "lines",
                                  hr_real_or_null(p.lines * sequences), "pages", hr_real_or_null(p.pages * sequences)));
    json_object_set_new(row, "counted",
                        counted ? json_pack("{s:I, s:I, s:I}", "runs", (json_int_t)(counted->runs * sequences), "lines",
                                            (json_int_t)(counted->lines * sequences), "pages",
                                            (json_int_t)(counted->pages * sequences))
                                : json_null());
    json_object_set_new(row, "bytes_touched", whole_or_null(counted ? (double)counted->lines * LINE * sequences : NAN));
}

void hr_study_put_series(json_t *row, const hr_counters *counters, const hr_study_series *s, size_t arm) {
    json_object_set_new(row, "stop_reason", json_string(s->stop[arm] ? s->stop[arm] : ""));
    json_object_set_new(row, "vs_head", arm ? hr_study_ratio(s->ns + arm * s->stride, s->ns, s->n) : json_null());
    hr_counters_put(counters, s->misses[arm], row);
}
