/* observe_steps.h - a request whose decode steps are recorded and not recorded in turns. */
#ifndef HR_OBSERVE_STEPS_H
#define HR_OBSERVE_STEPS_H

#include "harness/observe/observe.h"

typedef struct hr_turns {
    hr_engine *engine;
    size_t isl, steps, vocab, records;
    int32_t *prompt; /* [isl] */
    double *ns;      /* [2][steps / 2]: not watched, watched */
    uint64_t rng;
} hr_turns;

hr_status hr_turns_init(const hr_observe_options *options, hr_engine *engine, hr_turns *turns);
void hr_turns_fini(hr_turns *turns);
/* One request of new tokens: its TTFT with the recorder on or off, and the medians of the steps [0] that nobody watched
 * and [1] that the recorder saw (with `records`; else nobody watched them either). NaN: fewer than two steps. */
hr_status hr_turns_request(hr_turns *turns, bool prefill_recorded, bool records, double *ttft_ms, double step_ms[2]);

#endif
