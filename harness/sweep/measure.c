#include "harness/sweep/measure.h"

#include "harness/sweep/bench_input.h"
#include "harness/sweep/op_fold.h"
#include "harness/sweep/recorded.h"
#include "harness/sweep/series.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { RECORDED = 5, WARMUPS_MAX = 20 };
/* Warm-up of a slow cell ends after this share of the time that the cell may take. */
static const double WARMUP_SHARE = 0.2;
static const double CLOCK_REDUCED = 0.85; /* of the fastest spin seen: the sample is flagged */

/* One repetition as it was timed; all times are hr_now_ns. */
typedef struct repetition {
    uint64_t start, end;
    uint64_t decode_start;
    uint64_t *begun, *prefilled, *first; /* [seqs] prefill begins, logits are there, first token is there */
    uint64_t *step_end;                  /* [steps] */
} repetition;

struct hr_bench {
    const hr_model *model;
    hr_engine *engine;
    hr_cell_config cell;
    hr_measure_options options;
    char name[256]; /* of the range around the samples; "": none */
    size_t seqs, steps, n_prompt;
    hr_input input;
    uint64_t n_prompts;  /* drawn so far */
    int32_t *prompts;    /* [seqs][n_prompt] */
    int32_t *fed;        /* [steps][seqs] tokens of tg and pg; isl: [seqs] the last sampled ones */
    uint32_t *ids;       /* [seqs] 0, 1, 2, ... */
    const char **slices; /* [seqs] text of each request, with --prompt on isl rows */
    size_t *slice_bytes; /* [seqs] */
    repetition rep;
    double *times;       /* [1 + steps] of one request, for its metrics */
    hr_bench_series out; /* series.h */
    hr_op_fold *ops;
    size_t record_capacity;
    hr_throttle *throttle;  /* of a GPU, or NULL */
    uint64_t n_repetitions; /* since the samples began, kept or not */
    uint64_t timed_allocations;
    double best_spin_ns;
    long page_faults, ctx_switches;
    hr_recorded *recorded; /* [RECORDED] */
    size_t n_recorded;
    bool alternating; /* the repetition that runs is recorded, every other step of it */
    double *ratios;   /* [steps] */
    double good;
};

/* ---- the four kinds of repetition: only what is timed -------------------------------------------------------- */

static hr_status run_pp(hr_bench *b, repetition *r) {
    r->begun[0] = r->start;
    HR_TRY(hr_engine_prefill(b->engine, 0, b->prompts, b->n_prompt, true));
    r->prefilled[0] = r->first[0] = hr_now_ns();
    return HR_OK;
}

/* In a recorded repetition every other step is recorded, so that each has neighbours that are not. */
static bool is_recorded(const hr_bench *b, size_t step) {
    return (step + b->n_recorded) % 2 == 0;
}

static void before_step(hr_bench *b, size_t step) {
    if (b->alternating) hr_engine_record_pause(b->engine, !is_recorded(b, step));
}

static hr_status run_steps(hr_bench *b, repetition *r) {
    r->decode_start = hr_now_ns();
    for (size_t i = 0; i < b->steps; i++) {
        before_step(b, i);
        HR_TRY(hr_engine_decode(b->engine, b->ids, b->fed + i * b->seqs, b->seqs));
        r->step_end[i] = hr_now_ns();
    }
    return HR_OK;
}

static hr_status run_pg(hr_bench *b, repetition *r) {
    for (size_t s = 0; s < b->seqs; s++) {
        r->begun[s] = hr_now_ns();
        HR_TRY(hr_engine_prefill(b->engine, (uint32_t)s, b->prompts + s * b->n_prompt, b->n_prompt, true));
        r->prefilled[s] = r->first[s] = hr_now_ns();
    }
    return run_steps(b, r);
}

static hr_status tokenize_request(hr_bench *b, size_t s) {
    int32_t *ids;
    size_t n;
    HR_TRY(hr_tokenize(b->input.tokenizer, b->slices[s], b->slice_bytes[s], true, false, &ids, &n));
    memcpy(b->prompts + s * b->n_prompt, ids, b->n_prompt * sizeof *ids); /* the slice gives at least n_prompt */
    hr_free(ids);
    return HR_OK;
}

static hr_status run_isl(hr_bench *b, repetition *r) {
    static const hr_sampling greedy = {.temperature = 0, .top_p = 1};
    uint64_t rng = 0;
    for (size_t s = 0; s < b->seqs; s++) {
        if (b->options.text) HR_TRY(tokenize_request(b, s));
        r->begun[s] = hr_now_ns();
        HR_TRY(hr_engine_prefill(b->engine, (uint32_t)s, b->prompts + s * b->n_prompt, b->n_prompt, true));
        r->prefilled[s] = hr_now_ns();
        b->fed[s] = hr_engine_sample(b->engine, 0, &greedy, &rng);
        r->first[s] = hr_now_ns();
    }
    r->decode_start = hr_now_ns();
    for (size_t i = 0; i < b->steps; i++) {
        before_step(b, i);
        HR_TRY(hr_engine_decode(b->engine, b->ids, b->fed, b->seqs));
        for (size_t s = 0; s < b->seqs; s++) b->fed[s] = hr_engine_sample(b->engine, s, &greedy, &rng);
        r->step_end[i] = hr_now_ns();
    }
    return HR_OK;
}

/* ---- around a repetition -------------------------------------------------------------------------------------- */

/* New tokens, and every sequence back at its depth. */
static hr_status rewind_cell(hr_bench *b) {
    const uint32_t depth = b->cell.depth > 0 ? (uint32_t)b->cell.depth : 0;
    for (size_t s = 0; s < b->seqs; s++) {
        hr_engine_seq_cut(b->engine, (uint32_t)s, depth);
        if (b->slices) {
            HR_TRY(hr_input_slice(&b->input, b->n_prompts++, b->n_prompt, &b->slices[s], &b->slice_bytes[s]));
        } else if (b->n_prompt) {
            hr_input_tokens(&b->input, b->n_prompts++, b->prompts + s * b->n_prompt, b->n_prompt);
        }
    }
    if (b->cell.kind == HR_CELL_TG || b->cell.kind == HR_CELL_PG)
        hr_input_tokens(&b->input, b->n_prompts++, b->fed, b->steps * b->seqs);
    return HR_OK;
}

/* Tokens in and out of a repetition. */
static uint64_t tokens_of(const hr_bench *b) {
    return (uint64_t)b->seqs * (b->n_prompt + (uint64_t)b->cell.n_gen);
}

static hr_status repeat(hr_bench *b) {
    if (b->options.stop && atomic_load(b->options.stop)) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
    HR_TRY(rewind_cell(b));
    hr_nvtx_begin("request", tokens_of(b));
    struct rusage u0, u1;
    getrusage(RUSAGE_SELF, &u0);
    const uint64_t allocations = hr_alloc_count();
    repetition *r = &b->rep;
    hr_status status = HR_ERR_INTERNAL;
    r->start = r->decode_start = hr_now_ns();
    switch (b->cell.kind) {
    case HR_CELL_PP:
        status = run_pp(b, r);
        break;
    case HR_CELL_TG:
        status = run_steps(b, r);
        break;
    case HR_CELL_PG:
        status = run_pg(b, r);
        break;
    case HR_CELL_ISL:
        status = run_isl(b, r);
        break;
    }
    r->end = hr_now_ns();
    b->n_repetitions++;
    if (!b->slices) b->timed_allocations += hr_alloc_count() - allocations;
    getrusage(RUSAGE_SELF, &u1);
    b->page_faults += u1.ru_minflt - u0.ru_minflt + u1.ru_majflt - u0.ru_majflt;
    b->ctx_switches += u1.ru_nvcsw - u0.ru_nvcsw + u1.ru_nivcsw - u0.ru_nivcsw;
    hr_nvtx_end();
    return status;
}

/* Nanoseconds of a dependent chain of multiplications, the best of three: follows the core's clock alone. */
static double spin_ns(void) {
    uint64_t best = UINT64_MAX;
    for (int k = 0; k < 3; k++) {
        const uint64_t t = hr_now_ns();
        uint64_t x = t | 1;
        for (int i = 0; i < 4000; i++) {
            x *= 0x9e3779b97f4a7c15u;
            __asm__ volatile("" : "+r"(x));
        }
        const uint64_t ns = hr_now_ns() - t;
        if (ns < best) best = ns;
    }
    return (double)best;
}

static double ms(uint64_t from, uint64_t to) {
    return (double)(to - from) * 1e-6;
}

static hr_status keep_request(hr_bench *b, size_t s, uint32_t sample) {
    const repetition *r = &b->rep;
    hr_request_metrics m;
    b->times[0] = ms(r->start, r->first[s]);
    for (size_t i = 0; i < b->steps; i++) b->times[1 + i] = ms(r->start, r->step_end[i]);
    HR_TRY(hr_request_metrics_of(0, b->times, 1 + b->steps, &m));
    hr_series *out = b->out.of;
    HR_TRY(hr_series_put(&out[HR_SERIES_TTFT], m.ttft, sample));
    HR_TRY(hr_series_put(&out[HR_SERIES_QUEUE], ms(r->start, r->begun[s]), sample));
    HR_TRY(hr_series_put(&out[HR_SERIES_PREFILL], ms(r->begun[s], r->prefilled[s]), sample));
    HR_TRY(hr_series_put(&out[HR_SERIES_FIRST], ms(r->prefilled[s], r->first[s]), sample));
    HR_TRY(hr_series_put(&out[HR_SERIES_E2E], m.e2e, sample));
    if (b->steps) HR_TRY(hr_series_put(&out[HR_SERIES_TPOT], m.tpot, sample));
    for (size_t i = 0; i < b->steps; i++)
        HR_TRY(hr_series_put(&out[HR_SERIES_ITL], b->times[i + 1] - b->times[i], sample));
    const bool ttft_met = isnan(b->options.slo_ttft_ms) || m.ttft <= b->options.slo_ttft_ms;
    const bool tpot_met = isnan(b->options.slo_tpot_ms) || isnan(m.tpot) || m.tpot <= b->options.slo_tpot_ms;
    b->good += ttft_met && tpot_met;
    return HR_OK;
}

/* Of the last pass: a step, or a prefill in one pass. */
static hr_status keep_device_time(hr_bench *b, uint32_t sample) {
    const int64_t pass = b->cell.ubatch < b->cell.batch ? b->cell.ubatch : b->cell.batch;
    const double ns = hr_engine_get_facts(b->engine).device_ns;
    if (!(ns > 0) || (!b->steps && b->cell.n_prompt > pass)) return HR_OK;
    return hr_series_put(&b->out.of[HR_SERIES_DEVICE], ns * 1e-6, sample);
}

/* The repetition that was just run becomes sample number `sample`. */
static hr_status keep_sample(hr_bench *b, uint32_t sample, bool slowed) {
    const repetition *r = &b->rep;
    hr_series *out = b->out.of;
    HR_TRY(hr_series_put(&out[HR_SERIES_SAMPLE], (double)(r->end - r->start), sample));
    HR_TRY(hr_series_put(&out[HR_SERIES_SLOWED], slowed, sample));
    if (b->cell.gpu) HR_TRY(keep_device_time(b, sample));
    const double spin = spin_ns();
    if (spin < b->best_spin_ns) b->best_spin_ns = spin;
    HR_TRY(hr_series_put(&out[HR_SERIES_CLOCK], spin, sample));
    if (b->steps) HR_TRY(hr_series_put(&out[HR_SERIES_STEP], ms(r->decode_start, r->end) / (double)b->steps, sample));
    if (b->cell.kind == HR_CELL_ISL) {
        for (size_t s = 0; s < b->seqs; s++) HR_TRY(keep_request(b, s, sample));
        return HR_OK;
    }
    if (b->cell.kind != HR_CELL_TG)
        for (size_t s = 0; s < b->seqs; s++)
            HR_TRY(hr_series_put(&out[HR_SERIES_PREFILL], ms(r->begun[s], r->prefilled[s]), sample));
    if (b->steps) {
        HR_TRY(hr_series_put(&out[HR_SERIES_TPOT], ms(r->decode_start, r->end) / (double)b->steps, sample));
        uint64_t before = r->decode_start;
        for (size_t i = 0; i < b->steps; before = r->step_end[i++])
            HR_TRY(hr_series_put(&out[HR_SERIES_ITL], ms(before, r->step_end[i]), sample));
    }
    return HR_OK;
}

/* Of the repetition that was just run, one request and one step. */
static hr_phase_times phase_times(const hr_bench *b) {
    const repetition *r = &b->rep;
    double prefill = 0;
    for (size_t s = 0; s < b->seqs; s++) prefill += (double)(r->first[s] - r->begun[s]);
    return (hr_phase_times){
        {[HR_PHASE_PREFILL] = b->cell.kind == HR_CELL_TG ? NAN : prefill / (double)b->seqs,
         [HR_PHASE_DECODE] = b->steps ? (double)(r->end - r->decode_start) / (double)b->steps : NAN}};
}

/* Fewer steps than these are recorded all. */
enum { ALTERNATE_STEPS = 4 };

static double step_ns(const repetition *r, size_t i) {
    return (double)(r->step_end[i] - (i ? r->step_end[i - 1] : r->decode_start));
}

/* Of a recorded step: on_ns is the mean of those, off_ns what it would be by the median ratio of each to its neighbours: what
 * the machine does meanwhile meets both alike. */
static void fold_alternating(const hr_bench *b, hr_recorded *kept) {
    const repetition *r = &b->rep;
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < b->steps; i++) {
        if (!is_recorded(b, i)) continue;
        const double before = i ? step_ns(r, i - 1) : NAN, after = i + 1 < b->steps ? step_ns(r, i + 1) : NAN;
        const double beside = isnan(before) ? after : isnan(after) ? before : (before + after) / 2;
        b->ratios[n++] = step_ns(r, i) / beside;
        sum += step_ns(r, i);
    }
    kept->n[HR_PHASE_DECODE] = n;
    kept->on.ns[HR_PHASE_DECODE] = sum / (double)n;
    kept->off.ns[HR_PHASE_DECODE] = sum / (double)n / hr_median(b->ratios, n);
}

/* One repetition with the recorder on. after_sample: right after a sample without it, and the pair gives the cost of
 * observing where its steps cannot. */
static hr_status record_one(hr_bench *b, bool after_sample) {
    hr_recorded kept = {
        .n = {[HR_PHASE_PREFILL] = b->cell.kind == HR_CELL_TG ? 0 : b->seqs, [HR_PHASE_DECODE] = b->steps},
        .off = {{NAN, NAN}}};
    if (after_sample) kept.off = phase_times(b);
    HR_TRY(hr_engine_record(b->engine, b->record_capacity));
    hr_engine_record_reset(b->engine);
    const long faults = b->page_faults, switches = b->ctx_switches;
    b->alternating = b->steps >= ALTERNATE_STEPS;
    const hr_status status = repeat(b);
    const bool alternated = b->alternating;
    b->alternating = false;
    HR_TRY(status);
    b->page_faults = faults, b->ctx_switches = switches;
    size_t n, lost;
    const hr_op_record *records = hr_engine_records(b->engine, &n, &lost);
    if (!lost) {
        HR_TRY(hr_op_fold_add(b->ops, records, n));
        hr_recorded_fold(&kept, records, n);
        kept.on = phase_times(b);
        if (alternated) fold_alternating(b, &kept);
        b->recorded[b->n_recorded++] = kept;
    } else {
        b->record_capacity = (n + lost) + (n + lost) / 8; /* the next one has room */
    }
    return hr_engine_record(b->engine, 0);
}

/* ---- the cell --------------------------------------------------------------------------------------------------- */

static size_t recorded_wanted(const hr_bench *b) {
    const size_t fixed = b->options.rule.fixed;
    return fixed && fixed < RECORDED ? fixed : RECORDED;
}

static hr_status warm_up(hr_bench *b, size_t *n) {
    double times[WARMUPS_MAX];
    const uint64_t start = hr_now_ns();
    *n = 0;
    while (*n < WARMUPS_MAX && !b->options.no_warmup) {
        HR_TRY(repeat(b));
        times[(*n)++] = (double)(b->rep.end - b->rep.start);
        const double seconds = (double)(hr_now_ns() - start) * 1e-9;
        if (hr_warm(times, *n) || seconds > WARMUP_SHARE * b->options.rule.max_seconds) break;
    }
    b->page_faults = b->ctx_switches = 0;
    return HR_OK;
}

/* More than this many tries with too small a record would mean a count that grows by itself. */
enum { RECORD_TRIES = 3 * RECORDED };

static hr_status sample_all(hr_bench *b, hr_stop *stop, double *noise) {
    const uint64_t start = hr_now_ns();
    const hr_series *samples = &b->out.of[HR_SERIES_SAMPLE];
    size_t tries = 0;
    for (*stop = HR_STOP_NOT; *stop == HR_STOP_NOT;) {
        HR_TRY(repeat(b));
        const hr_throttle_verdict verdict = b->throttle ? hr_throttle_after(b->throttle) : HR_SAMPLE_KEEP;
        if (verdict == HR_SAMPLE_REPEAT) continue;
        HR_TRY(keep_sample(b, (uint32_t)samples->n, verdict != HR_SAMPLE_KEEP));
        if (b->n_recorded < recorded_wanted(b) && tries++ < RECORD_TRIES) HR_TRY(record_one(b, true));
        const double seconds = (double)(hr_now_ns() - start) * 1e-9;
        *stop = hr_stop_ask(&b->options.rule, samples->v, samples->n, seconds, noise);
        if (verdict == HR_SAMPLE_STOP) *stop = HR_STOP_THROTTLED;
    }
    while (b->n_recorded < recorded_wanted(b) && tries++ < RECORD_TRIES) { /* when time ran out after a few samples */
        const double seconds = (double)(hr_now_ns() - start) * 1e-9;
        if (b->n_recorded && *stop != HR_STOP_FIXED && seconds > b->options.rule.max_seconds) break;
        HR_TRY(record_one(b, false));
    }
    return HR_OK;
}

/* What a profiler is to see: the cell, in it the capture without the warm-up. Both end, whatever fails in them. */
static hr_status run_in_ranges(hr_bench *b, size_t *warmups, hr_stop *stop, double *noise) {
    const bool captured = b->options.capture != HR_CAPTURE_NONE;
    if (*b->name) hr_nvtx_begin(b->name, 0);
    hr_status status = warm_up(b, warmups);
    b->n_repetitions = 0;
    if (status == HR_OK && b->throttle) hr_throttle_begin(b->throttle);
    if (status == HR_OK) {
        if (captured) hr_capture_begin();
        status = sample_all(b, stop, noise);
        if (captured) hr_capture_end();
    }
    if (*b->name) hr_nvtx_end();
    return status;
}

/* By the clock of what ran the model. */
static bool was_slowed(const hr_bench *b, size_t sample) {
    if (b->cell.gpu) return b->out.of[HR_SERIES_SLOWED].v[sample] > 0;
    return b->best_spin_ns / b->out.of[HR_SERIES_CLOCK].v[sample] < CLOCK_REDUCED;
}

/* True when most were slowed: then the reduced clock is the state of this cell, and all samples share it. */
static bool flag_reduced_clock(hr_bench *b, hr_stop *stop) {
    const size_t n = b->out.of[HR_SERIES_CLOCK].n;
    size_t reduced = 0;
    for (size_t i = 0; i < n; i++) reduced += was_slowed(b, i);
    if (2 * reduced > n) {
        *stop = HR_STOP_THROTTLED;
        return true;
    }
    for (size_t i = 0; i < n; i++) b->out.flagged[i] = was_slowed(b, i);
    return false;
}

/* What the GPU said meanwhile; energy of a token of the row's own kind. */
static hr_status put_gpu(hr_bench *b, bool slowed, json_t *json) {
    if (!b->throttle) return HR_OK;
    const double once = b->cell.kind == HR_CELL_PP ? (double)b->n_prompt : (double)b->cell.n_gen * (double)b->seqs;
    if (slowed) json_object_set_new(json, "throttled", json_true());
    return hr_throttle_end(b->throttle, once * (double)b->n_repetitions, json);
}

static void put_number(json_t *out, const char *key, double value) {
    json_object_set_new(out, key, hr_real_or_null(value));
}

hr_status hr_bench_run(hr_bench *b, json_t **out) {
    size_t warmups;
    hr_stop stop;
    double noise = NAN;
    hr_bench_series_reset(&b->out);
    hr_op_fold_destroy(b->ops);
    b->ops = NULL;
    HR_TRY(hr_op_fold_create(&b->ops));
    b->best_spin_ns = INFINITY, b->n_recorded = 0, b->good = 0, b->timed_allocations = 0;
    const hr_record_cost cost = hr_engine_record_cost();
    HR_TRY(run_in_ranges(b, &warmups, &stop, &noise));
    HR_TRY(hr_bench_series_flags(&b->out));
    const bool slowed = flag_reduced_clock(b, &stop);

    json_t *json = json_object(), *ops = NULL, *recorded = NULL;
    if (!json) HR_FAIL(HR_ERR_MEMORY, "no memory for the result of a cell");
    hr_status status = hr_bench_series_json(&b->out, json);
    if (status == HR_OK) status = put_gpu(b, slowed, json);
    if (status == HR_OK) status = hr_op_fold_rows(b->ops, &ops);
    if (status == HR_OK) status = hr_recorded_rows(b->recorded, b->n_recorded, cost, &recorded);
    if (status != HR_OK) {
        json_decref(json), json_decref(ops);
        return status;
    }
    double pairs[RECORDED], op_share = 0;
    size_t n_pairs = 0;
    const size_t whole[HR_PHASE_COUNT] = {[HR_PHASE_PREFILL] = b->seqs, [HR_PHASE_DECODE] = b->steps};
    for (size_t i = 0; i < b->n_recorded; i++) {
        const double overhead = hr_recorded_overhead_pct(&b->recorded[i], whole);
        if (isfinite(overhead)) pairs[n_pairs++] = overhead;
        op_share += hr_recorded_op_share(&b->recorded[i]);
    }
    json_object_set_new(json, "ops", ops);
    json_object_set_new(json, "recorded", recorded);
    json_object_set_new(json, "stop_reason", json_string(hr_stop_names[stop]));
    put_number(json, "noise_rel", noise);
    json_object_set_new(json, "warmups", json_integer((json_int_t)warmups));
    put_number(json, "probe_overhead_pct", n_pairs ? hr_median(pairs, n_pairs) : NAN);
    put_number(json, "op_sum_share", b->n_recorded ? op_share / (double)b->n_recorded : NAN);
    json_object_set_new(json, "timed_allocations", json_integer((json_int_t)b->timed_allocations));
    json_object_set_new(json, "page_faults", json_integer(b->page_faults));
    json_object_set_new(json, "ctx_switches", json_integer(b->ctx_switches));
    const bool slo = !isnan(b->options.slo_ttft_ms) || !isnan(b->options.slo_tpot_ms);
    if (slo && b->cell.kind == HR_CELL_ISL) put_number(json, "good", b->good);
    *out = json;
    return HR_OK;
}

hr_status hr_bench_once(hr_bench *b, hr_phase_times *out) {
    HR_TRY(repeat(b));
    *out = phase_times(b);
    return HR_OK;
}

hr_status hr_bench_step(void *context) {
    hr_bench *b = context;
    const uint32_t at = b->steps            ? (uint32_t)hr_cell_mean_context(&b->cell)
                        : b->cell.depth > 0 ? (uint32_t)b->cell.depth
                                            : 0;
    for (size_t s = 0; s < b->seqs; s++) hr_engine_seq_cut(b->engine, (uint32_t)s, at);
    return b->steps ? hr_engine_decode(b->engine, b->ids, b->fed, b->seqs)
                    : hr_engine_prefill(b->engine, 0, b->prompts, b->n_prompt, true);
}

/* Ops of one repetition, generously: a forward pass has fewer than 24 ops a layer and 16 around the layers. */
static size_t ops_of(const hr_bench *b) {
    const hr_model_info *info = hr_model_get_info(b->model);
    const size_t batch = b->cell.batch > 0 ? (size_t)b->cell.batch : 2048;
    size_t ubatch = b->cell.ubatch > 0 ? (size_t)b->cell.ubatch : 512;
    if (ubatch > batch) ubatch = batch;
    const size_t prefill = b->n_prompt ? b->seqs * (b->n_prompt / ubatch + b->n_prompt / batch + 1) : 0;
    return (prefill + b->steps) * (24 * (size_t)info->n_layers + 16 + b->seqs);
}

static hr_status fill_depth(hr_bench *b) {
    if (b->cell.depth <= 0) return HR_OK;
    const size_t n = (size_t)b->cell.depth;
    int32_t *tokens = hr_malloc(hr_mul(n, sizeof *tokens));
    if (!tokens) HR_FAIL(HR_ERR_MEMORY, "no memory for a prompt of %zu tokens", n);
    hr_status status = HR_OK;
    for (size_t s = 0; s < b->seqs && status == HR_OK; s++) {
        hr_input_tokens(&b->input, b->n_prompts++, tokens, n);
        status = hr_engine_prefill(b->engine, (uint32_t)s, tokens, n, false);
    }
    hr_free(tokens);
    return status;
}

static hr_status make_buffers(hr_bench *b) {
    const size_t S = b->seqs, steps = b->steps;
    b->prompts = hr_calloc(hr_mul(S, b->n_prompt), sizeof *b->prompts);
    b->fed = hr_calloc(hr_mul(S, steps ? steps : 1), sizeof *b->fed);
    b->ids = hr_calloc(S, sizeof *b->ids);
    b->rep.begun = hr_calloc(S, sizeof(uint64_t));
    b->rep.prefilled = hr_calloc(S, sizeof(uint64_t));
    b->rep.first = hr_calloc(S, sizeof(uint64_t));
    b->rep.step_end = hr_calloc(steps, sizeof(uint64_t));
    b->times = hr_calloc(1 + steps, sizeof *b->times);
    b->recorded = hr_calloc(RECORDED, sizeof *b->recorded);
    b->ratios = hr_calloc(steps + 1, sizeof *b->ratios);
    bool whole = b->prompts && b->fed && b->ids && b->rep.begun && b->rep.prefilled && b->rep.first &&
                 b->rep.step_end && b->times && b->recorded && b->ratios;
    if (b->options.text && b->cell.kind == HR_CELL_ISL) {
        b->slices = hr_calloc(S, sizeof *b->slices);
        b->slice_bytes = hr_calloc(S, sizeof *b->slice_bytes);
        whole &= b->slices && b->slice_bytes;
    }
    if (!whole) HR_FAIL(HR_ERR_MEMORY, "no memory for the buffers of a cell of %zu sequences", S);
    for (size_t s = 0; s < S; s++) b->ids[s] = (uint32_t)s;
    return HR_OK;
}

static hr_status set_up(hr_bench *b) {
    const size_t longest =
        b->cell.depth > 0 && (size_t)b->cell.depth > b->n_prompt ? (size_t)b->cell.depth : b->n_prompt;
    HR_TRY(hr_input_init(&b->input, b->model, b->options.text, b->options.text_bytes, b->options.seed, longest));
    HR_TRY(make_buffers(b));
    b->record_capacity = ops_of(b);
    if (b->cell.gpu) HR_TRY(hr_throttle_create(hr_cell_device(&b->cell), &b->options.throttle, &b->throttle));
    for (size_t s = 0; s < b->seqs; s++) hr_engine_seq_cut(b->engine, (uint32_t)s, 0);
    return fill_depth(b);
}

hr_status hr_bench_create(const hr_model *model, hr_engine *engine, const hr_cell_config *cell,
                          const hr_measure_options *options, hr_bench **out) {
    hr_bench *b = hr_calloc(1, sizeof *b);
    if (!b) HR_FAIL(HR_ERR_MEMORY, "no memory for a cell");
    b->model = model, b->engine = engine, b->cell = *cell, b->options = *options;
    b->seqs = cell->n_seqs > 0 ? (size_t)cell->n_seqs : 1;
    b->steps = (size_t)hr_cell_steps(cell);
    b->n_prompt = (size_t)cell->n_prompt;
    const hr_status status = set_up(b);
    if (status != HR_OK) {
        hr_bench_destroy(b);
        return status;
    }
    *out = b;
    return HR_OK;
}

void hr_bench_name(hr_bench *b, const char *name) {
    snprintf(b->name, sizeof b->name, "%s", name);
}

void hr_bench_destroy(hr_bench *b) {
    if (!b) return;
    hr_input_fini(&b->input);
    hr_free(b->prompts), hr_free(b->fed), hr_free(b->ids), hr_free(b->times), hr_free(b->recorded), hr_free(b->ratios);
    hr_free(b->rep.begun), hr_free(b->rep.prefilled), hr_free(b->rep.first), hr_free(b->rep.step_end);
    hr_free((void *)b->slices), hr_free(b->slice_bytes);
    hr_bench_series_reset(&b->out);
    hr_op_fold_destroy(b->ops);
    hr_throttle_destroy(b->throttle);
    hr_free(b);
}
