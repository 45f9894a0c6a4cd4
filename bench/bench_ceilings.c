/* Rates of a benchmark and its share of the ceilings that `headroom roof` measured. */
#include "bench/bench.h"
#include "engine/engine.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CURVE_MAX = 128 };

/* Of one thread, as all families with a share run in one. 0: not measured. */
static struct ceilings {
    double gflop_s[HR_UNIT_COUNT];
    double dram_gb_s;
    size_t n; /* of the curve of reading rate over working set */
    size_t bytes[CURVE_MAX];
    double gb_s[CURVE_MAX];
    uint64_t llc;
} ceilings;

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* The upper end of a ceiling's interval: what is measured beside it must not pass it by luck. */
static double best_of(const json_t *row) {
    return fmax(number(row, "median"), number(row, "ci95_hi"));
}

static bool is_of_one_thread(const json_t *row) {
    return json_integer_value(json_object_get(row, "threads")) == 1;
}

static void read_rates(const json_t *roof) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(roof, "gflop_s"), i, row) {
        const char *unit = json_string_value(json_object_get(row, "unit"));
        for (int u = 0; unit && u < HR_UNIT_COUNT; u++)
            if (is_of_one_thread(row) && strcmp(unit, hr_unit_names[u]) == 0) ceilings.gflop_s[u] = best_of(row);
    }
    json_array_foreach(json_object_get(roof, "read_gb_s"), i, row) {
        const char *level = json_string_value(json_object_get(row, "level"));
        if (is_of_one_thread(row) && level && strcmp(level, "DRAM") == 0) ceilings.dram_gb_s = best_of(row);
    }
    json_array_foreach(json_object_get(roof, "sweep"), i, row) {
        if (!is_of_one_thread(row) || ceilings.n == CURVE_MAX) continue;
        ceilings.bytes[ceilings.n] = (size_t)number(row, "bytes_per_thread");
        ceilings.gb_s[ceilings.n++] = number(row, "gb_s");
    }
    ceilings.llc = (uint64_t)number(roof, "llc_bytes");
    for (size_t c = 0; c < ceilings.n; c++) /* the machine's memory may be in a better hour when it is swept */
        if (ceilings.bytes[c] > 4 * ceilings.llc) ceilings.dram_gb_s = fmax(ceilings.dram_gb_s, ceilings.gb_s[c]);
}

static void add_context(const json_t *roof) {
    static const char *const keys[] = {"machine_class", "cpu", "os", "hypervisor", "isas", NULL};
    const json_t *machine = json_object_get(roof, "machine");
    char text[64];
    for (const char *const *k = keys; *k; k++) {
        const char *value = json_string_value(json_object_get(machine, *k));
        if (value) hr_bench_context(*k, value);
    }
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        char key[64];
        snprintf(key, sizeof key, "ceiling_%s_gflop_s", hr_unit_names[u]);
        snprintf(text, sizeof text, "%.1f", ceilings.gflop_s[u]);
        if (ceilings.gflop_s[u] > 0) hr_bench_context(key, text);
    }
    snprintf(text, sizeof text, "%.1f", ceilings.dram_gb_s);
    if (ceilings.dram_gb_s > 0) hr_bench_context("ceiling_dram_gb_s", text);
}

void hr_bench_ceilings_load(void) {
    char beside[4200] = "";
    const char *path = getenv("HEADROOM_ROOF");
    if (!path) {
        const ssize_t n = readlink("/proc/self/exe", beside, 4096);
        char *slash = n > 0 ? strrchr(beside, '/') : NULL;
        strcpy(slash ? slash + 1 : beside, "roof.json");
        path = beside;
    }
    json_error_t error;
    json_t *roof = json_load_file(path, 0, &error);
    if (roof) read_rates(roof);
    if (!roof || ceilings.dram_gb_s <= 0) {
        fprintf(stderr,
                "bench: no ceilings in %s (%.100s): the share of the ceiling is left out; make them with `headroom "
                "roof --quick --json --out %s`\n",
                path, roof ? "no DRAM rate of one thread" : error.text, path);
        hr_bench_context("ceilings", "none");
    } else {
        hr_bench_context("ceilings", path);
    }
    if (roof) add_context(roof);
    json_decref(roof);
}

uint64_t hr_bench_llc(void) {
    const long system = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return ceilings.llc ? ceilings.llc : system > 0 ? (uint64_t)system : 0;
}

size_t hr_bench_cold_bytes(void) {
    const size_t least = (size_t)256 << 20, llc = (size_t)hr_bench_llc();
    return 4 * llc > least ? 4 * llc : least;
}

/* Reading rate at a working set: of the largest measured set that is no larger, as the curve falls. */
static double read_ceiling(size_t resident) {
    if (!resident || !ceilings.n) return ceilings.dram_gb_s;
    size_t at = 0;
    while (at + 1 < ceilings.n && ceilings.bytes[at + 1] <= resident) at++;
    return fmax(ceilings.gb_s[at], ceilings.dram_gb_s);
}

static void put(hr_bench_result *r, const char *name, double value) {
    if (isfinite(value) && value > 0) r->counters[r->n++] = (hr_bench_counter){name, value};
}

hr_bench_result hr_bench_result_of(const hr_bench_cost *cost, bool own_threads, double seconds) {
    hr_bench_result r = {.label = ""};
    const double bytes = (double)cost->bytes, flops = (double)cost->flops;
    put(&r, "bytes", bytes + (double)cost->moved);
    put(&r, "GB/s", (bytes + (double)cost->moved) / seconds / 1e9);
    put(&r, "GFLOP/s", flops / seconds / 1e9);
    if (cost->items > 0) put(&r, cost->item, cost->items / seconds);
    if (cost->bytes && cost->flops) put(&r, "intensity", flops / bytes);
    const double peak = ceilings.gflop_s[cost->unit], read = read_ceiling(cost->resident);
    if (own_threads || (!cost->bytes && !cost->flops) || read <= 0 || (cost->flops && peak <= 0)) return r;
    const double memory = bytes / read / 1e9, compute = cost->flops ? flops / peak / 1e9 : 0;
    put(&r, "share", fmax(memory, compute) / seconds);
    r.label = memory >= compute ? "memory" : "compute";
    return r;
}
