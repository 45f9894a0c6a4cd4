/* A request whose decode steps are watched and not watched in turns: a burst of other work, or a machine that changes its
 * state, meets both alike. What is drawn at random is which step of each two is watched. */
#include "harness/observe/observe_steps.h"

#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <math.h>

static const hr_sampling greedy = {.temperature = 0, .top_p = 1};

hr_status hr_turns_init(const hr_observe_options *o, hr_engine *engine, hr_turns *t) {
    const hr_cell_config *c = o->cell;
    const size_t passes = (size_t)c->isl / (size_t)(c->ubatch > 0 ? c->ubatch : 512) + 2;
    *t = (hr_turns){.engine = engine,
                    .isl = (size_t)c->isl,
                    .steps = (size_t)hr_cell_steps(c),
                    .vocab = o->info->vocab,
                    .records = passes * (24 * (size_t)o->info->n_layers + 16), /* more than a pass has ops */
                    .rng = o->seed + 5};
    t->prompt = hr_calloc(t->isl, sizeof *t->prompt);
    t->ns = hr_calloc(t->steps + 2, sizeof *t->ns);
    if (t->prompt && t->ns) return HR_OK;
    hr_turns_fini(t);
    HR_FAIL(HR_ERR_MEMORY, "no memory for a prompt of %zu tokens", t->isl);
}

void hr_turns_fini(hr_turns *t) {
    hr_free(t->prompt), hr_free(t->ns);
    t->prompt = NULL, t->ns = NULL;
}

/* One step; the recorder is turned before the clock starts. */
static hr_status step(hr_turns *t, bool recorded, int32_t *token, double *ns) {
    const uint32_t seq = 0;
    uint64_t unused = 0;
    HR_TRY(hr_engine_record(t->engine, recorded ? t->records : 0));
    const uint64_t start = hr_now_ns();
    HR_TRY(hr_engine_decode(t->engine, &seq, token, 1));
    *token = hr_engine_sample(t->engine, 0, &greedy, &unused);
    *ns = (double)(hr_now_ns() - start);
    return HR_OK;
}

static hr_status request(hr_turns *t, bool prefill_recorded, bool records, double *ttft_ms, double step_ms[2]) {
    const size_t half = t->steps / 2;
    uint64_t unused = 0;
    for (size_t i = 0; i < t->isl; i++) t->prompt[i] = (int32_t)(hr_random(&t->rng) % t->vocab);
    hr_engine_seq_cut(t->engine, 0, 0);
    HR_TRY(hr_engine_record(t->engine, prefill_recorded ? t->records : 0));
    const uint64_t start = hr_now_ns();
    HR_TRY(hr_engine_prefill(t->engine, 0, t->prompt, t->isl, true));
    int32_t token = hr_engine_sample(t->engine, 0, &greedy, &unused);
    *ttft_ms = (double)(hr_now_ns() - start) * 1e-6;
    for (size_t i = 0; i < half; i++) {
        const bool first = hr_random(&t->rng) >> 32 & 1;
        for (int k = 0; k < 2; k++) {
            const bool watched = first ^ (k == 1);
            HR_TRY(step(t, watched && records, &token, &t->ns[watched * half + i]));
        }
    }
    for (int k = 0; k < 2; k++) step_ms[k] = half ? hr_median(t->ns + (size_t)k * half, half) * 1e-6 : NAN;
    return HR_OK;
}

hr_status hr_turns_request(hr_turns *t, bool prefill_recorded, bool records, double *ttft_ms, double step_ms[2]) {
    const hr_status status = request(t, prefill_recorded, records, ttft_ms, step_ms);
    const hr_status off = hr_engine_record(t->engine, 0);
    return status == HR_OK ? off : status;
}
