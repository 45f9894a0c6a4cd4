/* bench - the micro-benchmarks of the kernel table. */
#include "bench/bench.h"
#include "engine/engine.h"
#include "engine/pool.h"
#include "hr_commit.h"
#include "kernels/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "bench [--smoke] [--benchmark_...]: every kernel of the table, checked against its reference, then timed\n"
    "\n"
    "  --smoke   each row once on small shapes: what `make bench-smoke` runs\n"
    "  HEADROOM_ROOF=FILE   ceilings, as `headroom roof --json` prints them (default: roof.json beside the program)\n"
    "\n"
    "A name is FAMILY/KERNEL/SHAPE/ARGUMENTS/cold|warm/TYPE.ORDER, as\n"
    "  matmul/gemv_bf16_avx512/llama-3.2-1b.gate/M:1/cold/bf16.rows\n"
    "cold: weights rotate over buffers larger than the caches; warm: they stay. Counters: GB/s and GFLOP/s by the "
    "work\n"
    "that the kernel table states, intensity (flop/byte), share of the measured ceiling; the label is the bound.\n"
    "\n"
    "A new kernel in ten minutes:\n"
    "  1. write it beside its family in kernels/cpu/, with the family's signature (kernels/table.h)\n"
    "  2. add a row to the list at the end of its file, rank 0\n"
    "  3. make bench-smoke          is it right?\n"
    "  4. build/bench --benchmark_filter='NAME|INCUMBENT' --benchmark_repetitions=5      is it fast?\n"
    "  5. make bench-compare BASE=HEAD~1 BENCH_FILTER=NAME      a verdict that survives noise; then raise its rank\n"
    "\n"
    "Google Benchmark's own flags:\n"
    "  --benchmark_list_tests=true      --benchmark_filter=REGEX        --benchmark_min_time=SECONDS\n"
    "  --benchmark_repetitions=N        --benchmark_enable_random_interleaving=true\n"
    "  --benchmark_report_aggregates_only=true   --benchmark_display_aggregates_only=true\n"
    "  --benchmark_format=console|json|csv       --benchmark_out=FILE   --benchmark_out_format=json|console|csv\n"
    "  --benchmark_color=auto|true|false         --benchmark_counters_tabular=true\n"
    "  --benchmark_context=KEY=VALUE,...         --benchmark_time_unit=ns|us|ms|s       --v=LEVEL\n";

static void print_help(void) {
    fputs(help, stdout);
}

/* ---- the pinned thread ---- */

/* A pool of one is the caller, pinned and with denormals flushed: as kernels run in the engine. */
static hr_pool *pinned;

typedef struct job {
    const hr_bench_family *family;
    void *run;
    uint64_t iterations, ns;
} job;

static void time_job(void *context, unsigned thread, unsigned n_threads) {
    (void)thread, (void)n_threads;
    job *j = context;
    const uint64_t start = hr_now_ns();
    j->family->body(j->run, j->iterations);
    j->ns = hr_now_ns() - start;
}

void hr_bench_take_thread(bool own_threads) {
    if (own_threads && pinned) hr_pool_destroy(pinned), pinned = NULL;
    if (!own_threads && !pinned && hr_pool_create(1, true, &pinned) != HR_OK) pinned = NULL;
}

uint64_t hr_bench_time(const hr_bench_family *f, void *run, uint64_t iterations) {
    job j = {f, run, iterations, 0};
    if (!pinned)
        time_job(&j, 0, 1);
    else
        hr_pool_run(pinned, time_job, &j);
    return j.ns;
}

/* ---- start ---- */

/* A row of the table that nobody registers would look as if it had been checked. */
static int missing_rows(void) {
    int missing = 0;
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (!hr_bench_can_run(k) || hr_bench_has(k->name)) continue;
        fprintf(stderr, "bench: row %s of the kernel table has no benchmark\n", k->name);
        missing++;
    }
    return missing;
}

int main(int argc, char **argv) {
    bool smoke = false, timed = false;
    int n = 1;
    char min_time[] = "--benchmark_min_time=0.001";
    char **args = calloc((size_t)argc + 2, sizeof *args);
    if (!args) return 2;
    args[0] = argv[0];
    for (int i = 1; i < argc; i++) {
        timed |= strstr(argv[i], "benchmark_min_time") != NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return 0;
        }
        if (strcmp(argv[i], "--smoke") == 0)
            smoke = true;
        else
            args[n++] = argv[i];
    }
    if (smoke && !timed) args[n++] = min_time;
    hr_bench_context("commit", HR_COMMIT);
    hr_bench_ceilings_load();
#define X(name) hr_bench_register_##name(smoke);
    HR_BENCH_FILES(X)
#undef X
    int status = smoke && missing_rows() ? 1 : 0;
    const int ran = hr_bench_run(n, args, print_help);
    if (ran) status = ran;
    if (pinned) hr_pool_destroy(pinned);
    free(args);
    return status;
}
