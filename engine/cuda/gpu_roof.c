/* gpu_roof.c - the roof of a GPU: rates of reading, writing and copying by size, the levels found in them, peaks of arithmetic.
 *
 * Every figure is the best way's: all ways are tried, the best is then measured SHOTS times. On a simulated device everything
 * runs once on a few kilobytes, so that the path is tested; the figures mean nothing. */
#include "engine/cuda/gpu_lt.h"
#include "engine/cuda/gpu_probe.h"
#include "kernels/base/knees.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of 20 samples the 6th and the 15th bound the median with 95.9 %: sum of C(20, k) / 2^20 over k = 6..14. */
enum { SHOTS = 20, CI_LO = 5, CI_HI = 14, LAUNCHES = 64 };
static const size_t MIB = (size_t)1 << 20;
static const double SHOT_NS = 3e6, TRY_NS = 1e6;

typedef struct plan {
    hr_gpu_probe probe;
    bool quick;
    void (*progress)(double share, void *context);
    void *context;
    double done, steps;
    json_t *out;
    hr_curve curve; /* of reading */
    double dram_gb_s, peak[HR_GPU_LOADS];
} plan;

static const char *const unit_names[HR_GPU_LOADS] = {
    [HR_GPU_FP32] = "fp32", [HR_GPU_BF16] = "bf16", [HR_GPU_INT8] = "int8", [HR_GPU_FP8] = "fp8"};

static void tick(plan *p) {
    p->done++;
    if (p->progress) p->progress(fmin(1, p->done / p->steps), p->context);
}

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "roof: no memory for the results");
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* {..., median, ci95_lo, ci95_hi, max}; steals row. */
static hr_status add_row(json_t *rows, json_t *row, double samples[SHOTS], double *median) {
    qsort(samples, SHOTS, sizeof *samples, ascending);
    *median = 0.5 * (samples[SHOTS / 2 - 1] + samples[SHOTS / 2]);
    json_t *values = json_pack("{s:f, s:f, s:f, s:f}", "median", *median, "ci95_lo", samples[CI_LO], "ci95_hi",
                               samples[CI_HI], "max", samples[SHOTS - 1]);
    const bool ok = row && values && !json_object_update(row, values) && !json_array_append(rows, row);
    json_decref(values), json_decref(row);
    return ok ? HR_OK : no_memory();
}

/* Rate of one way, of passes so many that it takes about `ns`. */
static hr_status rate_of(plan *p, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, double ns, double *rate) {
    uint32_t passes;
    double took, work;
    HR_TRY(hr_gpu_probe_passes(&p->probe, load, way, bytes, ns, &passes));
    HR_TRY(hr_gpu_probe_run(&p->probe, load, way, bytes, passes, &took, &work));
    *rate = work / took;
    return HR_OK;
}

static hr_status best_way(plan *p, hr_gpu_load load, size_t bytes, const hr_gpu_way **best) {
    unsigned n;
    const hr_gpu_way *ways = hr_gpu_ways(load, &n);
    double most = 0;
    if (p->quick && n > 4) n = 4;
    *best = ways;
    for (unsigned i = 0; i < n; i++) {
        double rate;
        HR_TRY(rate_of(p, load, &ways[i], bytes, TRY_NS, &rate));
        if (rate > most) most = rate, *best = &ways[i];
    }
    return HR_OK;
}

static hr_status sample(plan *p, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, double samples[SHOTS]) {
    uint32_t passes;
    HR_TRY(hr_gpu_probe_passes(&p->probe, load, way, bytes, SHOT_NS, &passes));
    for (int i = 0; i < SHOTS; i++) {
        double ns, work;
        HR_TRY(hr_gpu_probe_run(&p->probe, load, way, bytes, passes, &ns, &work));
        samples[i] = work / ns;
    }
    return HR_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Sizes two an octave up to the whole buffer; each by the two ways that are best guesses. */
static hr_status sweep(plan *p) {
    unsigned n;
    const hr_gpu_way *ways = hr_gpu_ways(HR_GPU_READ, &n);
    json_t *points = json_array();
    if (!points || json_object_set_new(p->out, "sweep", points)) return no_memory();
    const size_t first = p->probe.info.simulated ? 4096 : MIB;
    for (unsigned i = 0; p->curve.n < HR_CURVE_MAX; i++) {
        const size_t bytes = (size_t)((double)first * pow(2, i / 2.0)) / 4096 * 4096;
        if (bytes > p->probe.bytes) break;
        if (p->curve.n && bytes == p->curve.bytes[p->curve.n - 1]) continue; /* whole pages */
        double best = 0;
        for (unsigned w = 0; w < 2; w++) {
            double rate;
            HR_TRY(rate_of(p, HR_GPU_READ, &ways[w], bytes, TRY_NS, &rate));
            best = fmax(best, rate);
        }
        p->curve.bytes[p->curve.n] = bytes, p->curve.gb_s[p->curve.n++] = best;
        if (json_array_append_new(points, json_pack("{s:I, s:n, s:n, s:f}", "bytes", (json_int_t)bytes,
                                                    "bytes_per_thread", "threads", "gb_s", best)))
            return no_memory();
        tick(p);
    }
    return HR_OK;
}

static hr_status level(plan *p, hr_gpu_load load, const char *name, size_t bytes, json_t *rows, double *median) {
    const hr_gpu_way *way;
    double samples[SHOTS];
    char pattern[96];
    HR_TRY(best_way(p, load, bytes, &way));
    HR_TRY(sample(p, load, way, bytes, samples));
    hr_gpu_way_name(way, pattern, sizeof pattern);
    tick(p);
    return add_row(rows,
                   json_pack("{s:s, s:I, s:n, s:n, s:s}", "level", name, "bytes", (json_int_t)bytes, "bytes_per_thread",
                             "threads", "pattern", pattern),
                   samples, median);
}

/* Where the second-level cache is fastest; a copy needs twice the room. */
static size_t cache_bytes(const plan *p) {
    const size_t whole = p->probe.info.l2_bytes;
    size_t at = p->probe.bytes / 2;
    double most = 0;
    for (unsigned i = 0; i < p->curve.n; i++)
        if (p->curve.bytes[i] <= whole / 2 && p->curve.gb_s[i] > most) most = p->curve.gb_s[i], at = p->curve.bytes[i];
    return at;
}

static hr_status memory(plan *p) {
    static const char *const keys[] = {
        [HR_GPU_READ] = "read_gb_s", [HR_GPU_WRITE] = "write_gb_s", [HR_GPU_COPY] = "copy_gb_s"};
    const size_t cached = cache_bytes(p);
    for (int load = HR_GPU_READ; load <= HR_GPU_COPY; load++) {
        double median;
        json_t *rows = json_array();
        if (!rows || json_object_set_new(p->out, keys[load], rows)) return no_memory();
        HR_TRY(
            level(p, (hr_gpu_load)load, "L2", load == HR_GPU_COPY ? cached / 2 / 4096 * 4096 : cached, rows, &median));
        HR_TRY(level(p, (hr_gpu_load)load, "DRAM", p->probe.bytes, rows, &median));
        if (load == HR_GPU_READ) p->dram_gb_s = median;
    }
    return HR_OK;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static bool has(const plan *p, hr_gpu_load load) {
    return load != HR_GPU_FP8 || p->probe.info.major > 8 || (p->probe.info.major == 8 && p->probe.info.minor >= 9);
}

static hr_status unit(plan *p, hr_gpu_load load, json_t *ways) {
    const hr_gpu_way *way;
    double samples[SHOTS], median;
    char pattern[96];
    HR_TRY(best_way(p, load, 0, &way));
    HR_TRY(sample(p, load, way, 0, samples));
    hr_gpu_way_name(way, pattern, sizeof pattern);
    HR_TRY(add_row(ways,
                   json_pack("{s:s, s:s, s:n, s:s}", "unit", unit_names[load], "by",
                             load == HR_GPU_FP32 ? "fma" : "mma", "threads", "pattern", pattern),
                   samples, &median));
    tick(p);
    return HR_OK;
}

/* The same by cuBLASLt; what cannot be had there is no row, and the reason stands in the result. */
static hr_status unit_by_library(plan *p, hr_gpu_load load, json_t *ways) {
    hr_gpu_lt *lt;
    double samples[SHOTS], ns, work, median;
    char pattern[96];
    hr_status status = hr_gpu_lt_create(&p->probe, load, &(hr_gpu_product){0}, &lt);
    if (status == HR_ERR_UNSUPPORTED)
        return json_object_set_new(p->out, "cublaslt_missing", json_string(hr_error())) ? no_memory() : HR_OK;
    HR_TRY(status);
    status = hr_gpu_lt_run(lt, &p->probe, 1, &ns, &work);
    const uint32_t times = p->probe.info.simulated ? 1 : (uint32_t)fmax(1, SHOT_NS / ns);
    for (int i = 0; i < SHOTS && status == HR_OK; i++) {
        status = hr_gpu_lt_run(lt, &p->probe, times, &ns, &work);
        samples[i] = work / ns;
    }
    const hr_gpu_product product = hr_gpu_lt_product(lt);
    snprintf(pattern, sizeof pattern, "%u x %u x %u", product.rows, product.cols, product.n);
    hr_gpu_lt_destroy(lt);
    HR_TRY(status);
    tick(p);
    return add_row(
        ways,
        json_pack("{s:s, s:s, s:n, s:s}", "unit", unit_names[load], "by", "cublasLt", "threads", "pattern", pattern),
        samples, &median);
}

/* One row a unit: that of the way with the highest median. */
static hr_status best_rows(plan *p, const json_t *ways) {
    json_t *rows = json_array(), *ridge = json_object();
    if (!rows || !ridge || json_object_set_new(p->out, "gflop_s", rows) ||
        json_object_set_new(p->out, "ridge_flop_byte", ridge))
        return no_memory();
    for (int load = HR_GPU_FP32; load < HR_GPU_LOADS; load++) {
        json_t *best = NULL, *row;
        size_t i;
        json_array_foreach(ways, i, row) {
            if (strcmp(json_string_value(json_object_get(row, "unit")), unit_names[load])) continue;
            const double rate = json_real_value(json_object_get(row, "median"));
            if (rate > p->peak[load]) p->peak[load] = rate, best = row;
        }
        if (!best) continue;
        if (json_array_append(rows, best) ||
            json_object_set_new(ridge, unit_names[load], json_real(p->peak[load] / p->dram_gb_s)))
            return no_memory();
    }
    return HR_OK;
}

static hr_status arithmetic(plan *p) {
    json_t *ways = json_array();
    if (!ways || json_object_set_new(p->out, "gflop_s_ways", ways)) return no_memory();
    for (int load = HR_GPU_FP32; load < HR_GPU_LOADS; load++)
        if (has(p, (hr_gpu_load)load)) {
            HR_TRY(unit(p, (hr_gpu_load)load, ways));
            HR_TRY(unit_by_library(p, (hr_gpu_load)load, ways));
        }
    return best_rows(p, ways);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Time from one launch to the next when nothing else is in the way. */
static hr_status launch_us(plan *p, double *us) {
    const hr_driver *d = p->probe.driver;
    hr_cuda_roof_empty nothing = {0};
    void *arguments[] = {&nothing};
    CUfunction function;
    HR_TRY(hr_driver_function("roof_empty", &function));
    *us = INFINITY;
    for (int shot = 0; shot < 5; shot++) {
        float ms = 0;
        HR_CU(d, cuEventRecord(p->probe.begin, p->probe.stream));
        for (int i = 0; i < LAUNCHES; i++)
            HR_CU(d, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, p->probe.stream, arguments, NULL));
        HR_CU(d, cuEventRecord(p->probe.end, p->probe.stream));
        HR_CU(d, cuEventSynchronize(p->probe.end));
        HR_CU(d, cuEventElapsedTime(&ms, p->probe.begin, p->probe.end));
        *us = fmin(*us, (double)ms * 1e3 / LAUNCHES);
    }
    return HR_OK;
}

static json_t *number_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static hr_status finish(plan *p, int device) {
    const hr_device_info *info = &p->probe.info;
    char name[16];
    double us;
    HR_TRY(launch_us(p, &us));
    hr_device_name(device, name);
    const size_t knee = hr_knee_last(&p->curve);
    json_t *last = json_pack("{s:s, s:b, s:I, s:o, s:n, s:f, s:o}", "device", name, "simulated", info->simulated,
                             "llc_bytes", (json_int_t)(knee ? knee : info->l2_bytes), "clock_ghz",
                             info->clock_mhz ? json_real(info->clock_mhz * 1e-3) : json_null(), "handoff_ns",
                             "launch_us", us, "datasheet_read_gb_s", number_or_null(info->datasheet_read_gb_s));
    const bool ok = last && !json_object_update(p->out, last);
    json_decref(last);
    return ok ? HR_OK : no_memory();
}

static hr_status measure(plan *p, int device) {
    hr_device_info info;
    HR_TRY(hr_device_get_info(device, &info));
    /* 40 times the largest second-level cache so far: what of it stays there between passes does not count */
    const size_t most = info.simulated ? 32 * 1024 : (size_t)4096 * MIB, least = info.simulated ? 4096 : 512 * MIB;
    p->steps = 40;
    p->out = json_object();
    if (!p->out) return no_memory();
    HR_TRY(hr_gpu_probe_open(device, most, least, true, &p->probe));
    HR_TRY(sweep(p));
    HR_TRY(memory(p));
    HR_TRY(arithmetic(p));
    return finish(p, device);
}

hr_status hr_gpu_roofs_measure(int device, bool quick, void (*progress)(double share, void *context), void *context,
                               json_t **out) {
    plan p = {.quick = quick, .progress = progress, .context = context};
    hr_status status = measure(&p, device);
    hr_gpu_probe_close(&p.probe);
    if (status == HR_OK) {
        if (progress) progress(1, context);
        *out = p.out;
        return HR_OK;
    }
    json_decref(p.out);
    char name[16];
    hr_device_name(device, name);
    return strncmp(hr_error(), name, strlen(name)) ? hr_fail_prefix(status, name) : status;
}
