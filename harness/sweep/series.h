/* series.h - the values of a cell that grow with its samples, each with the number of the sample it belongs to, so that
 * a flagged sample can be left out of every distribution at the end. */
#ifndef HR_SERIES_H
#define HR_SERIES_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* id, public name of its distribution (NULL: none). On a GPU: DEVICE, ms of the last pass by its own clock; SLOWED, 1 for a
 * sample while something slowed it. */
#define HR_SERIES_LIST(X)            \
    X(SAMPLE, NULL)                  \
    X(CLOCK, NULL)                   \
    X(STEP, NULL)                    \
    X(DEVICE, NULL)                  \
    X(SLOWED, NULL)                  \
    X(TTFT, "ttft_ms")               \
    X(QUEUE, "ttft_queue_ms")        \
    X(PREFILL, "ttft_prefill_ms")    \
    X(FIRST, "ttft_first_sample_ms") \
    X(TPOT, "tpot_excl_first_ms")    \
    X(ITL, "itl_step_ms")            \
    X(E2E, "e2e_ms")

typedef enum hr_series_id {
#define X(id, name) HR_SERIES_##id,
    HR_SERIES_LIST(X)
#undef X
        HR_SERIES_COUNT
} hr_series_id;

typedef struct hr_series {
    double *v;
    uint32_t *sample; /* [n] */
    size_t n, capacity;
} hr_series;

typedef struct hr_bench_series {
    hr_series of[HR_SERIES_COUNT];
    bool *flagged; /* [of[SAMPLE].n]; NULL before hr_bench_series_flags */
} hr_bench_series;

/* Allocates now and then: never inside a timed region. */
hr_status hr_series_put(hr_series *series, double value, uint32_t sample);
/* Makes the flags, none set. */
hr_status hr_bench_series_flags(hr_bench_series *all);
/* Puts samples_ns, sample_flags, the distributions, prefill_ms, step_ms and device_ms into `out`; samples_ttft_ms and the like, a
 * median of each repetition, flagged or not, null where it has no value; by_repetition has TTFT and TPOT once more, as
 * distributions of the medians of repetitions. */
hr_status hr_bench_series_json(const hr_bench_series *all, json_t *out);
/* Frees everything and leaves it empty. */
void hr_bench_series_reset(hr_bench_series *all);

#endif
