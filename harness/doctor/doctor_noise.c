/* The noise test: pairs of the same against itself, and what difference the machine would let one find.
 *
 * One shot is a fixed piece of work in every physical core at once: dependent multiplications and a pass over memory,
 * about half the time each, so that a changing clock, a neighbour in the core and one on the memory bus all show. A pair
 * is the median of some shots against the median of as many more right after, as two short runs in a pair of `ab`. Not
 * in it: what differs between processes (placement), which pairs of processes add. */
#include "harness/doctor/doctor_judge.h"

#include "harness/cli/interrupt.h"
#include "harness/roof/gang.h"
#include "harness/roof/limits.h"
#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/pairs.h"
#include "kernels/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static double percent_of(double logarithm) {
    return 100 * expm1(logarithm);
}

double hr_noise_spread_pct(const double *d, size_t n) {
    double *scratch = n ? hr_malloc(hr_mul(n, sizeof *scratch)) : NULL;
    if (!scratch) return NAN;
    memcpy(scratch, d, n * sizeof *d);
    const double middle = hr_median(scratch, n);
    for (size_t i = 0; i < n; i++) scratch[i] = fabs(d[i] - middle);
    const double mad = hr_median(scratch, n);
    hr_free(scratch);
    return percent_of(1.4826 * mad);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double hr_noise_detectable_pct(const double *d, size_t n, size_t pairs) {
    enum { DRAWS = 1000 };
    if (pairs < 6 || pairs > HR_PAIRS_MAX || n < 6) return NAN;
    double *needed = hr_malloc(DRAWS * sizeof *needed), drawn[HR_PAIRS_MAX];
    if (!needed) return NAN;
    uint64_t random = 20240229;
    for (int i = 0; i < DRAWS; i++) {
        for (size_t k = 0; k < pairs; k++) {
            const uint64_t bits = hr_random(&random);
            const double value = d[(bits >> 1) % n];
            drawn[k] = bits & 1 ? value : -value;
        }
        double lo, hi;
        hr_pairs_shift(drawn, pairs, &lo, &hi);
        needed[i] = lo < 0 ? -lo : 0;
    }
    qsort(needed, DRAWS, sizeof *needed, by_value);
    const double power80 = hr_quantile_sorted(needed, DRAWS, 0.8);
    hr_free(needed);
    return percent_of(power80);
}

void hr_judge_noise(double spread_pct, double detectable_pct, size_t pairs, size_t n, hr_finding *out) {
    if (!isfinite(spread_pct) || !isfinite(detectable_pct)) {
        hr_find(out, HR_FIT_UNKNOWN, "only %zu pairs were measured in the time; too few to judge by", n);
        return;
    }
    const hr_fitness fitness = detectable_pct > 5 ? HR_FIT_BAD : detectable_pct > 2 ? HR_FIT_WARN : HR_FIT_OK;
    hr_find(out, fitness,
            "%zu pairs of the same work against itself differ by %.2f %%; %zu pairs of runs find a difference of %.2f "
            "%% or more",
            n, spread_pct, pairs, detectable_pct);
    if (fitness == HR_FIT_OK) return;
    hr_find_fix(out,
                pairs < 40 ? "mend what is warn or bad above, or take more pairs: headroom doctor --pairs %zu"
                           : "mend what is warn or bad above, or wait for a quieter hour",
                2 * pairs < HR_PAIRS_MAX ? 2 * pairs : (size_t)HR_PAIRS_MAX);
}

/* ---- measurement ------------------------------------------------------------------------------------------------- */

enum { SHOTS = 5, LINE = 64, SHOT_NS = 2000000 };
static const size_t BUFFER_EACH = 32u << 20, BUFFERS_ALL = 512u << 20;

typedef struct work {
    unsigned threads;
    uint64_t *memory; /* [threads][words] */
    size_t words;     /* of one thread */
    size_t lines;     /* read in one shot */
    size_t cursor;    /* line where the next shot begins */
    long loops;
    uint64_t *sums; /* [threads][8]: keeps the compiler honest, a cache line each */
} work;

static void one_thread(void *context, unsigned thread) {
    const work *w = context;
    uint64_t x = thread + 1, sum = 0;
    for (long i = 0; i < w->loops; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    const uint64_t *from = w->memory + thread * w->words;
    const size_t all = w->words * 8 / LINE;
    for (size_t i = 0, line = w->cursor; i < w->lines; i++) {
        const uint64_t *p = from + line * (LINE / 8);
        sum += p[0] + p[4];
        if (++line == all) line = 0;
    }
    w->sums[thread * 8] += x + sum;
}

static double shot(hr_gang *gang, work *w) {
    const double ns = (double)hr_gang_run(gang, w->threads, one_thread, w);
    w->cursor = (w->cursor + w->lines) % (w->words * 8 / LINE);
    return ns;
}

/* Half of a shot for each kind of work, from the best of three tries. */
static void calibrate(hr_gang *gang, work *w) {
    double compute = INFINITY, read = INFINITY;
    for (int i = 0; i < 3; i++) {
        w->loops = 200000, w->lines = 0;
        compute = fmin(compute, shot(gang, w));
        w->loops = 0, w->lines = 16384;
        read = fmin(read, shot(gang, w));
    }
    w->loops = (long)fmax(1000, 200000.0 * (SHOT_NS / 2) / compute);
    const double lines = fmax(256, 16384.0 * (SHOT_NS / 2) / read), all = (double)w->words * 8 / LINE;
    w->lines = (size_t)fmin(lines, all);
}

static double run_median(hr_gang *gang, work *w) {
    double times[SHOTS];
    for (int i = 0; i < SHOTS; i++) times[i] = shot(gang, w);
    return hr_median(times, SHOTS);
}

static hr_status measure(hr_gang *gang, work *w, double seconds, double **d, size_t *n) {
    enum { MOST = 4096 };
    if (!(*d = hr_malloc(MOST * sizeof **d))) HR_FAIL(HR_ERR_MEMORY, "no memory for the noise test");
    calibrate(gang, w);
    const uint64_t end = hr_now_ns() + (uint64_t)(seconds * 1e9);
    while (hr_now_ns() < end && *n < MOST) {
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        const double a = run_median(gang, w), b = run_median(gang, w);
        (*d)[(*n)++] = log(b / a);
    }
    return HR_OK;
}

static hr_status allocate(work *w) {
    w->words = BUFFERS_ALL / w->threads < BUFFER_EACH ? BUFFERS_ALL / w->threads : BUFFER_EACH;
    w->words = w->words / 4096 * 4096 / 8;
    w->sums = hr_calloc(w->threads, LINE);
    w->memory = hr_pages_alloc(w->threads * w->words * 8, true);
    if (!w->sums || !w->memory) HR_FAIL(HR_ERR_MEMORY, "no memory for the noise test");
    for (size_t i = 0; i < w->threads * w->words; i += 512) w->memory[i] = i; /* a page each */
    return HR_OK;
}

hr_status hr_noise_measure(double seconds, double **d, size_t *n) {
    *d = NULL, *n = 0;
    hr_cpus cpus;
    hr_gang *gang = NULL;
    HR_TRY(hr_cpus_get(&cpus));
    work w = {.threads = cpus.cores};
    hr_status status = allocate(&w);
    if (status == HR_OK) status = hr_gang_create(cpus.ids, w.threads, &gang);
    if (status == HR_OK) status = measure(gang, &w, seconds, d, n);
    hr_gang_destroy(gang);
    if (w.memory) hr_pages_free(w.memory, w.threads * w.words * 8);
    hr_free(w.sums);
    hr_cpus_fini(&cpus);
    if (status != HR_OK) {
        hr_free(*d);
        *d = NULL, *n = 0;
    }
    return status;
}
