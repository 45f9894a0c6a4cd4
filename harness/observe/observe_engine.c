/* Pairs inside this process, on one loaded model: whole requests by the loops of the sweep where each needs an engine of its
 * own, else requests whose steps are watched in turns. */
#include "harness/observe/observe.h"
#include "harness/observe/observe_steps.h"
#include "harness/stats/stats.h"
#include "harness/sweep/measure.h"
#include "kernels/base/random.h"

#include <math.h>

typedef struct stand {
    hr_engine *engine;
    hr_bench *bench;
} stand;

static void close_stand(stand *s) {
    hr_bench_destroy(s->bench), hr_engine_destroy(s->engine);
    *s = (stand){0};
}

/* One run; NaN stays where the cell has no such time. */
static hr_status run(const hr_observe_options *o, const stand *s, double ms[HR_OBSERVE_METRICS]) {
    enum { MOST = 64 };
    double all[HR_OBSERVE_METRICS][MOST] = {0};
    const size_t n = o->repetitions < MOST ? o->repetitions : MOST;
    for (size_t i = 0; i < n; i++) {
        hr_phase_times times;
        HR_TRY(hr_bench_once(s->bench, &times));
        all[HR_OBSERVE_TTFT][i] = times.ns[HR_PHASE_PREFILL] * 1e-6;
        all[HR_OBSERVE_TPOT][i] = times.ns[HR_PHASE_DECODE] * 1e-6;
    }
    for (int m = 0; m < HR_OBSERVE_METRICS; m++) ms[m] = isnan(all[m][0]) ? NAN : hr_median(all[m], n);
    return HR_OK;
}

static hr_status open_stand(const hr_observe_options *o, const hr_model *model, hr_nvtx_level level, stand *s) {
    const hr_engine_config config = hr_cell_engine_config(o->cell, hr_model_get_info(model)->ctx);
    const hr_measure_options measure = {.rule = {.fixed = 1, .max_seconds = 1e9},
                                        .no_warmup = true,
                                        .seed = o->seed,
                                        .slo_ttft_ms = NAN,
                                        .slo_tpot_ms = NAN};
    double unused[HR_OBSERVE_METRICS];
    *s = (stand){0};
    hr_nvtx_set_level(level);
    hr_status status = hr_engine_create(model, &config, &s->engine);
    if (status == HR_OK) status = hr_bench_create(model, s->engine, o->cell, &measure, &s->bench);
    if (status == HR_OK) status = run(o, s, unused); /* nothing is met for the first time */
    if (status != HR_OK) close_stand(s);
    return status;
}

/* An engine takes the level when it is opened: each run has its own, so that where its memory lies is no part of the
 * difference. */
static hr_status run_at_level(const hr_observe_options *o, const hr_model *model, bool ranges,
                              double ms[HR_OBSERVE_METRICS]) {
    stand s;
    HR_TRY(open_stand(o, model, ranges ? HR_NVTX_OP : HR_NVTX_NONE, &s));
    const hr_status status = run(o, &s, ms);
    close_stand(&s);
    return status;
}

static hr_status check(hr_watch watch) {
    if (watch != HR_WATCH_NVTX) return HR_OK;
    if (!hr_nvtx_built()) HR_FAIL(HR_ERR_UNSUPPORTED, "this build has no NVTX: its headers were not there");
    if (hr_nvtx_attached()) HR_FAIL(HR_ERR_UNSUPPORTED, "a tool is attached to this process; run without it");
    return HR_OK;
}

static hr_status take_pairs(const hr_observe_options *o, const hr_model *model, hr_watch watch,
                            hr_observe_pairs *pairs) {
    uint64_t rng = o->seed + 11 + (uint64_t)watch;
    for (; pairs->n < o->pairs; pairs->n++) {
        const int first = (int)(hr_random(&rng) >> 32 & 1);
        HR_TRY(hr_observe_next(o, watch, pairs->n));
        for (int i = 0; i < 2; i++) {
            const bool watched = first ^ i;
            double ms[HR_OBSERVE_METRICS];
            HR_TRY(run_at_level(o, model, watched, ms));
            for (int m = 0; m < HR_OBSERVE_METRICS; m++) pairs->ms[m][watched][pairs->n] = ms[m];
        }
    }
    return HR_OK;
}

/* Two runs of requests; the prefills of one of them are recorded, and in both every other step. */
static hr_status take_turns(const hr_observe_options *o, hr_watch watch, hr_turns *turns, hr_observe_pairs *pairs) {
    enum { MOST = 64 };
    const bool records = watch == HR_WATCH_RECORDER;
    const size_t repetitions = o->repetitions < MOST ? o->repetitions : MOST;
    uint64_t rng = o->seed + 11 + (uint64_t)watch;
    for (; pairs->n < o->pairs; pairs->n++) {
        const int first = (int)(hr_random(&rng) >> 32 & 1);
        double ttft[2][MOST], steps[2][2 * MOST];
        size_t n = 0;
        HR_TRY(hr_observe_next(o, watch, pairs->n));
        for (int i = 0; i < 2; i++)
            for (size_t k = 0; k < repetitions; k++, n++) {
                const bool watched = first ^ i;
                double step_ms[2];
                HR_TRY(hr_turns_request(turns, watched && records, records, &ttft[watched][k], step_ms));
                steps[0][n] = step_ms[0], steps[1][n] = step_ms[1];
            }
        for (int w = 0; w < 2; w++) {
            pairs->ms[HR_OBSERVE_TTFT][w][pairs->n] = hr_median(ttft[w], repetitions);
            pairs->ms[HR_OBSERVE_TPOT][w][pairs->n] = isnan(steps[w][0]) ? NAN : hr_median(steps[w], n);
        }
    }
    return HR_OK;
}

static hr_status in_turns(const hr_observe_options *o, const hr_model *model, hr_watch watch, hr_observe_pairs *pairs) {
    const hr_engine_config config = hr_cell_engine_config(o->cell, hr_model_get_info(model)->ctx);
    hr_engine *engine;
    hr_turns turns;
    double ttft_ms, step_ms[2];
    hr_nvtx_set_level(HR_NVTX_NONE);
    HR_TRY(hr_engine_create(model, &config, &engine));
    hr_status status = hr_turns_init(o, engine, &turns);
    if (status == HR_OK) {
        status = hr_turns_request(&turns, true, true, &ttft_ms, step_ms); /* nothing is met for the first time */
        if (status == HR_OK) status = take_turns(o, watch, &turns, pairs);
        hr_turns_fini(&turns);
    }
    hr_engine_destroy(engine);
    return status;
}

hr_status hr_observe_engine(const hr_observe_options *o, const hr_model *model, hr_watch watch,
                            hr_observe_pairs *pairs) {
    HR_TRY(check(watch));
    const hr_status status =
        watch == HR_WATCH_NVTX ? take_pairs(o, model, watch, pairs) : in_turns(o, model, watch, pairs);
    hr_nvtx_set_level(HR_NVTX_OP);
    return status;
}
