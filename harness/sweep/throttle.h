/* throttle.h - what a GPU says of itself beside the samples of a cell: clocks, temperature, power and energy, whether something
 * slowed it, and what is done then.
 *
 * Every look stands between two repetitions, never in one. A repetition counts as throttled when the driver names a reason that
 * slows it (heat, power, hardware), when it counted time with lowered clocks since the look before, or when the clock is far
 * below the best of the cell. */
#ifndef HR_THROTTLE_H
#define HR_THROTTLE_H

#include "engine/engine.h"
#include <stdatomic.h>

typedef enum hr_on_throttle { HR_THROTTLE_FLAG, HR_THROTTLE_WAIT, HR_THROTTLE_STOP, HR_THROTTLE_COUNT } hr_on_throttle;
extern const char *const hr_on_throttle_names[HR_THROTTLE_COUNT + 1]; /* "flag", "wait", "stop", NULL */

typedef hr_status hr_gpu_look(int device, unsigned units, hr_gpu_state *out); /* hr_gpu_state_get, or a test's own */
typedef struct hr_throttle_options {
    hr_on_throttle policy;
    double cool_down_s;
    const atomic_bool *stop; /* NULL, or: ends a rest */
    hr_gpu_look *look;       /* NULL: hr_gpu_state_get */
} hr_throttle_options;

/* What becomes of the repetition that was just run. */
typedef enum hr_throttle_verdict {
    HR_SAMPLE_KEEP,
    HR_SAMPLE_FLAG,
    HR_SAMPLE_REPEAT, /* it is no sample; the rest is over */
    HR_SAMPLE_STOP    /* flagged, and the last of the cell */
} hr_throttle_verdict;

typedef struct hr_throttle hr_throttle;
hr_status hr_throttle_create(int device, const hr_throttle_options *options, hr_throttle **out);
void hr_throttle_destroy(hr_throttle *throttle);
/* Before the first repetition of the samples: energy counts from here. */
void hr_throttle_begin(hr_throttle *throttle);
/* After a repetition that may become a sample; rests here under `wait`, at most a few times a cell. */
hr_throttle_verdict hr_throttle_after(hr_throttle *throttle);
/* After the last repetition. tokens: of all since begin, whether they became samples or not. Puts into `out` what is known:
 *   power_w, energy_mj (a token; needs some tenths of a second), sm_mhz, memory_mhz, temperature_c (medians of the looks),
 *   power_limit_w, clock_reasons (of all looks, "" when there was none) */
hr_status hr_throttle_end(hr_throttle *throttle, double tokens, json_t *out);

#endif
