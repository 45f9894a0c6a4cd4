/* shim.h - how a C file gives families of benchmarks to Google Benchmark. shim.cc is the only C++ file of the project.
 *
 * A family is one name, argument names and a list of argument values; each set of values is one benchmark, named
 *     NAME/ARG:VALUE/.../SUFFIX        as matmul/gemv_bf16_avx512/llama-3.2-1b.gate/M:1/cold/bf16.rows
 * Its life: setup once (which checks the result before anything is timed), body as often as Google Benchmark asks,
 * teardown when another benchmark starts. A setup that fails is an error of that benchmark alone, and the program ends
 * with exit status 1; ERR_MEMORY and ERR_UNSUPPORTED say what this machine lacks and do not. */
#ifndef HR_SHIM_H
#define HR_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/base/status.h"

enum { HR_BENCH_ARGS = 4, HR_BENCH_COUNTERS = 8, HR_BENCH_NAME = 200 };

/* What one iteration costs. bytes, flops and unit come from hr_work_* of the kernel table; 0: the table says nothing. */
typedef struct hr_bench_cost {
    uint64_t bytes, flops;
    int unit; /* hr_unit of the flops */
    uint64_t
        moved; /* bytes written or moved, where there are no `bytes`: they have no ceiling, so a rate without a share */
    size_t resident;  /* bytes that every iteration reads again (warm); 0: from beyond the caches (cold) */
    double items;     /* what is counted where there are neither bytes nor flops; 0: nothing */
    const char *item; /* counter of that rate, "token/s" */
} hr_bench_cost;

typedef struct hr_bench_family {
    const char *name;             /* "matmul/gemv_bf16_avx512/llama-3.2-1b.gate" */
    const char *const *arg_names; /* [n_args] */
    size_t n_args;                /* 0..HR_BENCH_ARGS */
    const int64_t *values;        /* [n_values][n_args] */
    size_t n_values;              /* without arguments: 1 */
    const char *suffix;           /* "cold/bf16.rows", NULL */
    const void *context;          /* copied */
    size_t context_bytes;
    bool own_threads; /* the body brings threads of its own; else it runs in one pinned thread, denormals flushed */
    hr_status (*setup)(const void *context, const int64_t *args, void **run);
    void (*body)(void *run, uint64_t iterations);
    void (*teardown)(void *run);
    hr_bench_cost (*cost)(const void *run);
} hr_bench_family;

/* Everything of *f but its functions is copied. */
void hr_bench_add(const hr_bench_family *f);
/* Whether some benchmark's name has this part between slashes. */
bool hr_bench_has(const char *part);
/* A line of the context of the output. */
void hr_bench_context(const char *key, const char *value);
/* Runs what the --benchmark_* flags say; the exit status: 0, 1 (a setup failed, nothing fits the filter, stdout could
 * not be written), 2 (flags). */
int hr_bench_run(int argc, char **argv, void (*print_help)(void));

/* ---- what the shim asks of the C side */

typedef struct hr_bench_counter {
    const char *name;
    double value; /* finite */
} hr_bench_counter;
typedef struct hr_bench_result {
    size_t n;
    hr_bench_counter counters[HR_BENCH_COUNTERS];
    const char *label; /* the bound; "" */
} hr_bench_result;
/* Rates and shares of ceilings of an iteration that took `seconds`. */
hr_bench_result hr_bench_result_of(const hr_bench_cost *cost, bool own_threads, double seconds);
/* Before the setup of a benchmark: takes the pinned thread, or gives it up for families with threads of their own. */
void hr_bench_take_thread(bool own_threads);
/* Runs body(run, iterations) in the pinned thread (or as it is, own_threads); returns nanoseconds. */
uint64_t hr_bench_time(const hr_bench_family *f, void *run, uint64_t iterations);

#ifdef __cplusplus
}
#endif
#endif
