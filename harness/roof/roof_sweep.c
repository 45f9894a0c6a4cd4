/* The full measurement: reading rate over the working set, the levels found in it, and the peak of each unit. */
#include "harness/roof/roofs_state.h"
#include "harness/stats/stats.h"
#include "kernels/base/knees.h"

#include <math.h>
#include <string.h>

enum { PAGE = 4096, MAX_COUNTS = 16, MAX_SAMPLES = 31 };
static const size_t KIB = 1024, MIB = (size_t)1 << 20;

static const char *const level_names[] = {"L1", "L2", "L3", "DRAM"};
enum { L1, L2, L3, DRAM, LEVELS };

typedef struct plan {
    hr_roofs *r;
    unsigned counts[MAX_COUNTS], n_counts; /* threads: 1, 2, 4, ..., all */
    unsigned rounds, samples;
    unsigned n_readers; /* of `readers`, tried at each size */
    const hr_reader *readers[HR_MAX_READERS];
    void (*progress)(double share, void *context);
    void *context;
    double done, steps;
    size_t level_bytes[LEVELS]; /* of a thread, well inside the level; 0: the machine has no such level */
    double dram_gb_s;           /* all threads, median */
    double gflop_s[HR_UNIT_COUNT];
    json_t *out, *reads, *flops, *points;
} plan;

static void tick(plan *p) {
    p->done++;
    if (p->progress) p->progress(fmin(1, p->done / p->steps), p->context);
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

/* Rate of reading the same bytes again and again: what a cache still holds is read from it. */
static double read_again(hr_roofs *r, unsigned threads, const hr_reader *reader, size_t bytes) {
    const size_t enough = 48 * MIB; /* a thread; 0.2 ms in L1, 3 ms in DRAM */
    long passes = bytes < enough ? (long)(enough / bytes) : 1;
    if (bytes < r->bytes) hr_roofs_read(r, threads, reader, 0, bytes, 1);
    return hr_roofs_read(r, threads, reader, 0, bytes, passes);
}

static size_t whole_pages(double bytes) {
    size_t n = (size_t)(bytes / PAGE + 0.5) * PAGE;
    return n < PAGE ? PAGE : n;
}

/* Geometric sizes, `per_octave` in an octave. */
static void set_sizes(hr_curve *c, size_t first, size_t last, unsigned per_octave) {
    memset(c, 0, sizeof *c);
    for (unsigned i = 0; c->n < HR_CURVE_MAX; i++) {
        size_t bytes = whole_pages((double)first * pow(2, (double)i / per_octave));
        if (bytes > last) break;
        c->bytes[c->n++] = bytes;
    }
}

/* As read_again, for sizes of many milliseconds: timed part by part, and of each part the shortest time counts, so that
 * a time slice lost to another process spoils one part of one round. */
static double read_again_in_parts(hr_roofs *r, size_t bytes) {
    enum { PARTS = 64 };
    const hr_reader *const ways[] = {r->dram[0], &r->readers[0], r->dram[1]};
    double best[PARTS] = {0}, ns = 0;
    size_t parts = bytes / (8 * MIB) + 1;
    if (parts > PARTS) parts = PARTS;
    size_t part = bytes / parts / PAGE * PAGE;
    long passes = parts > 1 ? 1 : (long)(8 * MIB / part) + 1; /* a single part may be read again at once */
    unsigned rounds = bytes > 32 * MIB ? 3 : 6;
    hr_roofs_read(r, r->threads, r->dram[0], 0, part * parts, 1);
    for (unsigned round = 0; round < rounds; round++)
        for (size_t i = 0; i < parts; i++)
            best[i] = fmax(best[i], hr_roofs_read(r, r->threads, ways[round % 3], i * part, part, passes));
    for (size_t i = 0; i < parts; i++) ns += (double)part / best[i];
    return (double)(part * parts) / ns;
}

/* The last-level cache, all threads together, in quarter octaves from where no core's own cache reaches. */
hr_status hr_roofs_llc(hr_roofs *r, uint64_t *bytes) {
    if (!r->llc) {
        hr_curve curve;
        set_sizes(&curve, 512 * KIB, r->bytes / 2, 4);
        for (unsigned i = 0; i < curve.n; i++) {
            if (r->stop && r->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
            curve.gb_s[i] = read_again_in_parts(r, curve.bytes[i]);
        }
        r->llc = (uint64_t)hr_knee_last(&curve) * r->threads;
        if (!r->llc) r->llc = r->cpus.cache[2] ? r->cpus.cache[2] : r->cpus.cache[1] * r->threads;
    }
    *bytes = r->llc;
    return HR_OK;
}

/* Far beyond the caches a part of the bytes at a time, in turn: the same rate as a whole pass, without the time slices
 * that a long pass loses to other processes. */
static double read_part(hr_roofs *r, unsigned threads, const hr_reader *reader, size_t bytes, size_t *at) {
    size_t parts = (bytes + r->shot - 1) / r->shot, part = bytes / parts / PAGE * PAGE;
    if (*at + part > bytes) *at = 0;
    double gb_s = hr_roofs_read(r, threads, reader, *at, part, 1);
    *at += part;
    return gb_s;
}

static hr_status sweep_sizes(plan *p, unsigned threads, hr_curve *curve) {
    uint64_t llc;
    HR_TRY(hr_roofs_llc(p->r, &llc));
    set_sizes(curve, 16 * KIB, p->r->bytes, 2);
    for (unsigned i = 0; i < curve->n; i++) {
        size_t bytes = curve->bytes[i], at = 0;
        bool beyond = bytes > 4 * llc / threads;
        if (beyond) hr_roofs_read(p->r, threads, p->readers[0], 0, bytes, 1);
        for (unsigned round = 0; round < p->rounds; round++)
            for (unsigned w = 0; w < p->n_readers; w++) {
                double rate = beyond ? read_part(p->r, threads, p->readers[w], bytes, &at)
                                     : read_again(p->r, threads, p->readers[w], bytes);
                curve->gb_s[i] = fmax(curve->gb_s[i], rate);
            }
        json_t *point = json_pack("{s:I, s:I, s:f}", "bytes_per_thread", (json_int_t)bytes, "threads",
                                  (json_int_t)threads, "gb_s", curve->gb_s[i]);
        if (json_array_append_new(p->points, point)) HR_FAIL(HR_ERR_MEMORY, "roof: no memory for the results");
        tick(p);
    }
    return HR_OK;
}

/* The knee near the size that the system reports, which is right for the caches of a core, or in the range of all known
 * cores. */
static size_t core_cache(const hr_curve *curve, uint64_t hint, size_t lo, size_t hi) {
    size_t knee = hint ? hr_knee_within(curve, hint / 2, hint * 2) : hr_knee_within(curve, lo, hi);
    return knee ? knee : hint;
}

static hr_status find_levels(plan *p, const hr_curve *one_thread) {
    uint64_t llc;
    HR_TRY(hr_roofs_llc(p->r, &llc));
    size_t l1 = core_cache(one_thread, p->r->cpus.cache[0], 16 * KIB, 256 * KIB);
    size_t l2 = core_cache(one_thread, p->r->cpus.cache[1], 128 * KIB, 8 * MIB);
    double l3 = (double)llc / p->r->threads;
    if (l1) p->level_bytes[L1] = whole_pages((double)l1 / 2);
    if (l2 > 2 * l1) p->level_bytes[L2] = whole_pages((double)l2 / 2);
    double inner = (double)(l2 ? l2 : l1 ? l1 : 256 * KIB);
    if (l3 > 1.5 * inner) p->level_bytes[L3] = whole_pages(sqrt(l3 * inner));
    p->level_bytes[DRAM] = p->r->bytes;
    return HR_OK;
}

/* One sample of a level: DRAM in turn through the whole buffer, a cache again and again. */
static double read_level(plan *p, unsigned threads, int level, const hr_reader *reader) {
    return level == DRAM ? hr_roofs_read_next(p->r, threads, reader, p->r->shot)
                         : read_again(p->r, threads, reader, p->level_bytes[level]);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

/* {..., median, ci95_lo, ci95_hi} of the samples, which are put in order. */
static hr_status add_row(json_t *rows, json_t *row, double *samples, unsigned n, double *median) {
    size_t lo = 0, hi = 0;
    *median = hr_median(samples, n);
    bool bounded = hr_median_ci_ranks(n, &lo, &hi);
    for (unsigned i = 1; i < n; i++) /* the median leaves no particular order */
        for (unsigned j = i; j && samples[j] < samples[j - 1]; j--) {
            double swap = samples[j];
            samples[j] = samples[j - 1], samples[j - 1] = swap;
        }
    if (!row || json_object_set_new(row, "median", json_real(*median)) ||
        json_object_set_new(row, "ci95_lo", bounded ? json_real(samples[lo]) : json_null()) ||
        json_object_set_new(row, "ci95_hi", bounded ? json_real(samples[hi]) : json_null()) ||
        json_array_append(rows, row)) {
        json_decref(row);
        HR_FAIL(HR_ERR_MEMORY, "roof: no memory for the results");
    }
    json_decref(row);
    return HR_OK;
}

static hr_status measure_level(plan *p, unsigned threads, int level) {
    if (!p->level_bytes[level]) return HR_OK;
    const hr_reader *best = p->readers[0];
    double best_rate = 0, samples[MAX_SAMPLES], median;
    for (unsigned round = 0; round < p->rounds; round++)
        for (unsigned w = 0; w < p->n_readers; w++) {
            double rate = read_level(p, threads, level, p->readers[w]);
            if (rate > best_rate) best_rate = rate, best = p->readers[w];
        }
    for (unsigned i = 0; i < p->samples; i++) samples[i] = read_level(p, threads, level, best);
    char pattern[96];
    hr_roof_pattern_name(&best->kernels->patterns[best->pattern], pattern, sizeof pattern);
    json_t *row = json_pack("{s:s, s:I, s:I, s:s}", "level", level_names[level], "bytes_per_thread",
                            (json_int_t)p->level_bytes[level], "threads", (json_int_t)threads, "pattern", pattern);
    HR_TRY(add_row(p->reads, row, samples, p->samples, &median));
    if (level == DRAM && threads == p->r->threads) p->dram_gb_s = median;
    tick(p);
    return HR_OK;
}

static hr_status measure_unit(plan *p, unsigned threads, int unit) {
    hr_roofs *r = p->r;
    if (!r->n_fillers[unit]) return HR_OK;
    unsigned best = 0;
    double best_rate = 0, samples[MAX_SAMPLES], median;
    for (unsigned round = 0; round < p->rounds; round++)
        for (unsigned i = 0; i < r->n_fillers[unit]; i++) {
            double rate = hr_roofs_compute(r, threads, &r->fillers[unit][i]);
            if (rate > best_rate) best_rate = rate, best = i;
        }
    for (unsigned i = 0; i < p->samples; i++) samples[i] = hr_roofs_compute(r, threads, &r->fillers[unit][best]);
    json_t *row = json_pack("{s:s, s:I, s:s}", "unit", hr_unit_names[unit], "threads", (json_int_t)threads, "pattern",
                            r->fillers[unit][best].form->name);
    HR_TRY(add_row(p->flops, row, samples, p->samples, &median));
    if (threads == r->threads) p->gflop_s[unit] = median;
    tick(p);
    return HR_OK;
}

static hr_status finish(plan *p) {
    double handoff[5], clock = 0, median = NAN;
    unsigned n = sizeof handoff / sizeof *handoff, got = 0;
    for (unsigned i = 0; i < n; i++) {
        double ns = hr_roofs_handoff(p->r), ghz = hr_roofs_clock(p->r);
        if (isfinite(ns)) handoff[got++] = ns;
        if (!(ghz <= clock)) clock = ghz;
    }
    if (got) median = hr_median(handoff, got);
    json_t *ridge = json_object();
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        if (p->gflop_s[u] > 0)
            json_object_set_new(ridge, hr_unit_names[u], hr_real_or_null(p->gflop_s[u] / p->dram_gb_s));
    hr_machine machine;
    HR_TRY(hr_machine_get(&machine));
    uint64_t llc;
    HR_TRY(hr_roofs_llc(p->r, &llc));
    json_t *last = json_pack("{s:o, s:o, s:o, s:o, s:o, s:n}", "machine", hr_machine_json(&machine), "ridge_flop_byte",
                             ridge, "llc_bytes", llc ? json_integer((json_int_t)llc) : json_null(), "clock_ghz",
                             hr_real_or_null(clock), "handoff_ns", hr_real_or_null(median), "datasheet_read_gb_s");
    bool failed = !last || json_object_update(p->out, last);
    json_decref(last);
    if (failed) HR_FAIL(HR_ERR_MEMORY, "roof: no memory for the results");
    return HR_OK;
}

static void make_plan(plan *p, bool quick) {
    hr_roofs *r = p->r;
    for (unsigned t = 1; t < r->threads && p->n_counts < MAX_COUNTS - 1; t *= 2)
        if (!quick || t == 1) p->counts[p->n_counts++] = t;
    p->counts[p->n_counts++] = r->threads;
    p->rounds = 2, p->samples = quick ? 11 : 25;
    for (unsigned i = 0; i < r->n_readers; i++) /* quick: single streams (caches) and what is best for DRAM */
        if (!quick || i == 0 || r->readers[i].pattern == 0) p->readers[p->n_readers++] = &r->readers[i];
    for (unsigned i = 0; quick && i < HR_READ_BEST; i++) p->readers[p->n_readers++] = r->dram[i];
    hr_curve sizes;
    set_sizes(&sizes, 16 * KIB, r->bytes, 2);
    p->steps = (double)p->n_counts * (sizes.n + (double)LEVELS + (double)HR_UNIT_COUNT) + 1;
}

static hr_status measure(plan *p) {
    hr_curve first = {0}, curve;
    p->out = json_object();
    p->reads = json_array(), p->flops = json_array(), p->points = json_array();
    if (json_object_set_new(p->out, "read_gb_s", p->reads) || json_object_set_new(p->out, "gflop_s", p->flops) ||
        json_object_set_new(p->out, "sweep", p->points))
        HR_FAIL(HR_ERR_MEMORY, "roof: no memory for the results");
    for (unsigned c = 0; c < p->n_counts; c++) {
        HR_TRY(sweep_sizes(p, p->counts[c], &curve));
        if (c == 0) first = curve;
    }
    HR_TRY(find_levels(p, &first));
    tick(p);
    for (unsigned c = 0; c < p->n_counts; c++) {
        for (int level = 0; level < LEVELS; level++) HR_TRY(measure_level(p, p->counts[c], level));
        for (int unit = 0; unit < HR_UNIT_COUNT; unit++) HR_TRY(measure_unit(p, p->counts[c], unit));
    }
    return finish(p);
}

hr_status hr_roofs_measure(hr_roofs *r, bool quick, void (*progress)(double share, void *context), void *context,
                           json_t **out) {
    plan p = {.r = r, .progress = progress, .context = context};
    make_plan(&p, quick);
    hr_status status = measure(&p);
    if (status != HR_OK)
        json_decref(p.out);
    else
        *out = p.out;
    return status;
}
