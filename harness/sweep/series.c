#include "harness/sweep/series.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>

static const char *const names[HR_SERIES_COUNT] = {
#define X(id, name) [HR_SERIES_##id] = name,
    HR_SERIES_LIST(X)
#undef X
};

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "no memory for the samples of a cell");
}

hr_status hr_series_put(hr_series *s, double value, uint32_t sample) {
    if (s->n == s->capacity) {
        const size_t capacity = s->capacity ? s->capacity * 2 : 64;
        double *v = hr_realloc(s->v, hr_mul(capacity, sizeof *v));
        if (v) s->v = v;
        uint32_t *of = hr_realloc(s->sample, hr_mul(capacity, sizeof *of));
        if (of) s->sample = of;
        if (!v || !of) return no_memory();
        s->capacity = capacity;
    }
    s->v[s->n] = value, s->sample[s->n++] = sample;
    return HR_OK;
}

hr_status hr_bench_series_flags(hr_bench_series *all) {
    hr_free(all->flagged);
    all->flagged = hr_calloc(all->of[HR_SERIES_SAMPLE].n + 1, sizeof *all->flagged);
    return all->flagged ? HR_OK : no_memory();
}

/* The values of samples that are not flagged, into out [s->n]; returns how many. */
static size_t unflagged(const hr_bench_series *all, const hr_series *s, double *out) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!all->flagged || !all->flagged[s->sample[i]]) out[n++] = s->v[i];
    return n;
}

static hr_status put_dist(const hr_bench_series *all, int id, double *scratch, json_t *out) {
    const size_t n = unflagged(all, &all->of[id], scratch);
    if (!n) return HR_OK;
    if (names[id] && json_object_set_new(out, names[id], hr_dist_json(scratch, n))) return no_memory();
    const char *median = id == HR_SERIES_STEP      ? "step_ms"
                         : id == HR_SERIES_PREFILL ? "prefill_ms"
                         : id == HR_SERIES_DEVICE  ? "device_ms"
                                                   : NULL;
    if (median) json_object_set_new(out, median, json_real(hr_median(scratch, n)));
    return HR_OK;
}

/* Requests of one repetition wait for each other: what is independent is the repetition. Its median, one a sample that
 * is not flagged; values of a sample stand together. */
static hr_status put_repetitions(const hr_bench_series *all, int id, double *scratch, json_t *out) {
    const hr_series *s = &all->of[id];
    double *medians = hr_malloc(hr_mul(s->n + 1, sizeof *medians));
    if (!medians) return no_memory();
    size_t n = 0;
    for (size_t i = 0, end; i < s->n; i = end) {
        for (end = i; end < s->n && s->sample[end] == s->sample[i]; end++) scratch[end - i] = s->v[end];
        if (!all->flagged || !all->flagged[s->sample[i]]) medians[n++] = hr_median(scratch, end - i);
    }
    json_t *dist = n ? hr_dist_json(medians, n) : json_null();
    hr_free(medians);
    return json_object_set_new(out, names[id], dist) ? no_memory() : HR_OK;
}

static hr_status put_all_repetitions(const hr_bench_series *all, double *scratch, json_t *out) {
    static const int ids[] = {HR_SERIES_TTFT, HR_SERIES_TPOT};
    json_t *by = json_object();
    hr_status status = by ? HR_OK : no_memory();
    for (size_t i = 0; i < sizeof ids / sizeof *ids && status == HR_OK; i++)
        if (all->of[ids[i]].n) status = put_repetitions(all, ids[i], scratch, by);
    if (status == HR_OK && json_object_set(out, "by_repetition", by)) status = no_memory();
    json_decref(by);
    return status;
}

/* One value a repetition, in order. */
static hr_status put_raw(const hr_bench_series *all, int id, const char *key, double *scratch, json_t *out) {
    const hr_series *s = &all->of[id];
    json_t *list = json_array();
    bool ok = list != NULL;
    size_t i = 0;
    for (size_t sample = 0; ok && sample < all->of[HR_SERIES_SAMPLE].n; sample++) {
        size_t n = 0;
        for (; i < s->n && s->sample[i] == sample; i++) scratch[n++] = s->v[i];
        ok = json_array_append_new(list, hr_real_or_null(n ? hr_median(scratch, n) : NAN)) == 0;
    }
    ok = ok && json_object_set(out, key, list) == 0;
    json_decref(list);
    return ok ? HR_OK : no_memory();
}

static hr_status put_all_raw(const hr_bench_series *all, double *scratch, json_t *out) {
    static const struct {
        int id;
        const char *key;
    } raw[] = {{HR_SERIES_TTFT, "samples_ttft_ms"},
               {HR_SERIES_TPOT, "samples_tpot_ms"},
               {HR_SERIES_E2E, "samples_e2e_ms"},
               {HR_SERIES_PREFILL, "samples_prefill_ms"}};
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++)
        if (all->of[raw[i].id].n) HR_TRY(put_raw(all, raw[i].id, raw[i].key, scratch, out));
    return HR_OK;
}

hr_status hr_bench_series_json(const hr_bench_series *all, json_t *out) {
    size_t most = 1;
    for (int id = 0; id < HR_SERIES_COUNT; id++)
        if (all->of[id].n > most) most = all->of[id].n;
    double *scratch = hr_malloc(hr_mul(most, sizeof *scratch));
    if (!scratch) return no_memory();
    hr_status status = HR_OK;
    for (int id = 0; id < HR_SERIES_COUNT && status == HR_OK; id++)
        if (names[id] || id == HR_SERIES_STEP || id == HR_SERIES_DEVICE) status = put_dist(all, id, scratch, out);
    if (status == HR_OK) status = put_all_repetitions(all, scratch, out);
    if (status == HR_OK) status = put_all_raw(all, scratch, out);
    hr_free(scratch);
    if (status != HR_OK) return status;

    json_t *samples = json_array(), *flags = json_array();
    const hr_series *s = &all->of[HR_SERIES_SAMPLE];
    for (size_t i = 0; i < s->n; i++) {
        json_array_append_new(samples, json_integer((json_int_t)s->v[i]));
        json_array_append_new(flags, all->flagged && all->flagged[i] ? json_string("throttled") : json_null());
    }
    if (json_object_set_new(out, "samples_ns", samples) | json_object_set_new(out, "sample_flags", flags))
        return no_memory();
    return HR_OK;
}

void hr_bench_series_reset(hr_bench_series *all) {
    for (int id = 0; id < HR_SERIES_COUNT; id++) hr_free(all->of[id].v), hr_free(all->of[id].sample);
    hr_free(all->flagged);
    *all = (hr_bench_series){0};
}
