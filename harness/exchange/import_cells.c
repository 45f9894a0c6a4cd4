/* Cells of other tools: joined where a file has one twice, and completed by what follows from their samples. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <string.h>

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while reading results");
}

bool hr_cell_flag(json_t *cell, const char *flag) {
    json_t *flags = json_object_get(cell, "flags"), *item;
    size_t i;
    json_array_foreach(flags, i, item) if (!strcmp(json_string_value(item), flag)) return true;
    return json_array_append_new(flags, json_string(flag)) == 0;
}

void hr_moments(const json_t *samples, double *mean, double *stddev) {
    const size_t n = json_array_size(samples);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += json_number_value(json_array_get(samples, i));
    *mean = n ? sum / (double)n : NAN;
    for (size_t i = 0; i < n; i++) {
        const double d = json_number_value(json_array_get(samples, i)) - *mean;
        squares += d * d;
    }
    *stddev = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

/* ---- one cell, several rows ---- */

static bool has_samples(const json_t *cell) {
    return json_array_size(json_object_get(cell, "samples_ns")) > 0;
}

/* Averages of two rows are no average of both: they are made again out of the samples. */
static hr_status join(hr_import *im, size_t place, size_t row, const json_t *cell) {
    static const char *const averages[] = {"avg_ns", "stddev_ns", "avg_ts", "stddev_ts"};
    static const char *const lists[] = {"samples_ns", "samples_ts"};
    json_t *first = json_array_get(im->cells, place);
    const size_t from = (size_t)json_integer_value(json_array_get(im->from, place));
    const char *a = hr_word(first, "build_commit"), *b = hr_word(cell, "build_commit");
    if (strcmp(a, b))
        return hr_import_fail(
            im, row,
            "the same cell as %s %zu, of another build (%.40s, %.40s): a file is one run; split it by "
            "build_commit",
            im->place, im->at[from], a, b);
    if (!has_samples(first) || !has_samples(cell)) {
        if (!hr_note(im->notes, "%s %zu: the same cell as %s %zu, and not both have samples to join: left out",
                     im->place, im->at[row], im->place, im->at[from]))
            return no_memory();
        return HR_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        json_t *into = json_object_get(first, lists[i]), *more = json_object_get(cell, lists[i]);
        const bool both = json_is_array(into) && json_is_array(more);
        if (both ? json_array_extend(into, more) : json_object_set_new(first, lists[i], json_null()))
            return no_memory();
    }
    for (size_t i = 0; i < sizeof averages / sizeof *averages; i++)
        json_object_set_new(first, averages[i], json_null());
    return hr_note(im->notes, "%s %zu: the same cell as %s %zu: their samples are joined", im->place, im->at[row],
                   im->place, im->at[from])
               ? HR_OK
               : no_memory();
}

hr_status hr_import_take(hr_import *im, size_t row, json_t *cell, json_t *extras) {
    const char *id = hr_word(cell, "cell_id");
    const json_t *place = json_object_get(im->index, id);
    if (place) {
        const hr_status status = join(im, (size_t)json_integer_value(place), row, cell);
        json_decref(cell), json_decref(extras);
        return status;
    }
    bool ok = json_object_set_new(im->index, id, json_integer((json_int_t)json_array_size(im->cells))) == 0;
    ok = json_array_append_new(im->from, json_integer((json_int_t)row)) == 0 && ok;
    if (json_object_size(extras)) ok = json_object_set(im->foreign, id, extras) == 0 && ok;
    json_decref(extras);
    ok = json_array_append_new(im->cells, cell) == 0 && ok;
    return ok ? HR_OK : no_memory();
}

/* ---- what follows from samples ---- */

static bool set(json_t *cell, const char *key, double value) {
    return json_object_set_new(cell, key, hr_real_or_null(value)) == 0;
}

static hr_status put_dist(json_t *cell, const char *key, const double *ms, size_t n) {
    json_t *dist = hr_dist_json(ms, n);
    if (!dist) return no_memory();
    if (json_array_size(json_object_get(dist, "weak")) && !hr_cell_flag(cell, "weak_percentile")) {
        json_decref(dist);
        return no_memory();
    }
    return json_object_set_new(cell, key, dist) == 0 ? HR_OK : no_memory();
}

/* ms: times of repetitions; scratch is reordered. */
static hr_status put_times(json_t *cell, double *ms, size_t n, double prompt, double gen) {
    bool ok = true;
    if (prompt > 0 && gen > 0) {
        ok = set(cell, "output_tok_s", gen * 1e3 / hr_median(ms, n));
    } else if (prompt > 0) {
        HR_TRY(put_dist(cell, "ttft_prefill_ms", ms, n));
        const double median = hr_median(ms, n);
        ok = set(cell, "prefill_tok_s", prompt * 1e3 / median) && set(cell, "prefill_req_s_device", 1e3 / median);
    } else if (gen > 0) {
        for (size_t i = 0; i < n; i++) ms[i] /= gen;
        HR_TRY(put_dist(cell, "tpot_excl_first_ms", ms, n));
        const double rate = 1e3 / hr_median(ms, n);
        ok = set(cell, "decode_tok_s", rate) && set(cell, "decode_tok_s_device", rate) &&
             set(cell, "per_user_tok_s", rate);
    }
    return ok ? HR_OK : no_memory();
}

/* Rates of repetitions where the file has none. */
static bool put_rates(json_t *cell, const json_t *samples, double tokens) {
    json_t *rates = json_array();
    bool ok = rates != NULL;
    for (size_t i = 0; ok && i < json_array_size(samples); i++)
        ok = json_array_append_new(rates, json_real(tokens * 1e9 / json_number_value(json_array_get(samples, i)))) == 0;
    return json_object_set_new(cell, "samples_ts", rates) == 0 && ok;
}

hr_status hr_import_derive(json_t *cell) {
    const json_t *samples = json_object_get(cell, "samples_ns");
    const size_t n = json_array_size(samples);
    double mean, stddev;
    const double prompt = fmax(0, hr_num(cell, "n_prompt")), gen = fmax(0, hr_num(cell, "n_gen"));
    if (!n) {
        json_object_set_new(cell, "samples_ns", json_null());
        json_object_set_new(cell, "samples_ts", json_null());
        return hr_cell_flag(cell, "no_samples") ? HR_OK : no_memory();
    }
    bool ok = true;
    if (json_is_null(json_object_get(cell, "avg_ns"))) {
        hr_moments(samples, &mean, &stddev);
        ok = set(cell, "avg_ns", mean) && set(cell, "stddev_ns", stddev);
    }
    if (n == 1) ok = set(cell, "stddev_ns", NAN) && set(cell, "stddev_ts", NAN) && ok;
    if (prompt + gen > 0) {
        if (json_is_null(json_object_get(cell, "samples_ts"))) ok = put_rates(cell, samples, prompt + gen) && ok;
        if (json_is_null(json_object_get(cell, "avg_ts"))) {
            hr_moments(json_object_get(cell, "samples_ts"), &mean, &stddev);
            ok = set(cell, "avg_ts", mean) && set(cell, "stddev_ts", stddev) && ok;
        }
    }
    double *ms = ok ? hr_malloc(hr_mul(n, sizeof *ms)) : NULL;
    if (!ms) return no_memory();
    for (size_t i = 0; i < n; i++) ms[i] = json_number_value(json_array_get(samples, i)) * 1e-6;
    const hr_status status = put_times(cell, ms, n, prompt, gen);
    hr_free(ms);
    return status;
}
