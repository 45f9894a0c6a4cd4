/* engine_args.h - the single-valued engine axes as a configuration, for every command that opens one engine. */
#ifndef HR_ENGINE_ARGS_H
#define HR_ENGINE_ARGS_H

#include "harness/cli/options.h"

typedef struct hr_engine_args {
    const char *spec; /* -m */
    hr_quant quant;
    hr_order order;          /* --weights */
    bool copy;               /* --mmap 0 */
    unsigned threads;        /* -t; 0: not given */
    int device;              /* --device, -ngl: as hr_engine_config.device */
    hr_engine_config config; /* max_seqs 1; ctx is the caller's to set */
} hr_engine_args;

/* Reads HR_OPTS_AXES and -m. ERR_USAGE for pairs that are not legal, ERR_UNSUPPORTED for what this machine lacks. On a GPU
 * weights are rows, and --weights, --mmap, --huge-pages, --pin do not matter. */
hr_status hr_engine_args_get(const hr_args *args, hr_engine_args *out);

/* More than four threads a CPU is a slip of the finger: ERR_USAGE with the limit. 0 is legal: the cores. */
hr_status hr_threads_check(int64_t threads);

/* The level of a name of --isa; AUTO for "auto" and for no name of one. */
hr_isa hr_isa_parse(const char *name);

#endif
