/* option_groups.h - the flags that several subcommands share, each written once.
 *
 * The engine's axes exist twice: one value (generate, perplexity, ...) and, with _list, comma lists and ranges (sweep).
 * Both come from one text in option_groups.c. A subcommand's list of options is made of the macros below:
 *     static const hr_opt *const options[] = {HR_OPTS_MODEL, HR_OPTS_AXES, HR_OPTS_OUTPUT, NULL}; */
#ifndef HR_OPTION_GROUPS_H
#define HR_OPTION_GROUPS_H

#include "harness/cli/options.h"

/* Single-valued and _list. Names and aliases are those of cli.md; either may be given to hr_args_*. */
extern const hr_opt hr_opt_model, hr_opt_model_list;            /* --model -m */
extern const hr_opt hr_opt_depth_list;                          /* --n-depth -d */
extern const hr_opt hr_opt_n_prompt_list, hr_opt_n_gen_list;    /* --n-prompt -p, --n-gen -n */
extern const hr_opt hr_opt_pg;                                  /* -pg */
extern const hr_opt hr_opt_isl, hr_opt_isl_list;                /* --isl */
extern const hr_opt hr_opt_osl, hr_opt_osl_list;                /* --osl */
extern const hr_opt hr_opt_seqs_list;                           /* --seqs -npl */
extern const hr_opt hr_opt_batch, hr_opt_batch_list;            /* --batch-size -b */
extern const hr_opt hr_opt_ubatch, hr_opt_ubatch_list;          /* --ubatch-size -ub */
extern const hr_opt hr_opt_quant, hr_opt_quant_list;            /* --quant */
extern const hr_opt hr_opt_act, hr_opt_act_list;                /* --act */
extern const hr_opt hr_opt_type_k, hr_opt_type_k_list;          /* --cache-type-k -ctk */
extern const hr_opt hr_opt_type_v, hr_opt_type_v_list;          /* --cache-type-v -ctv */
extern const hr_opt hr_opt_kv_layout, hr_opt_kv_layout_list;    /* --kv-layout */
extern const hr_opt hr_opt_page_size, hr_opt_page_size_list;    /* --page-size */
extern const hr_opt hr_opt_kv_alloc, hr_opt_kv_alloc_list;      /* --kv-alloc; no default: what the layout needs */
extern const hr_opt hr_opt_kv_budget;                           /* --kv-budget: percent of the demand */
extern const hr_opt hr_opt_kv_threshold, hr_opt_kv_compact;     /* --kv-threshold, --kv-compact */
extern const hr_opt hr_opt_flash, hr_opt_flash_list;            /* --flash-attn -fa */
extern const hr_opt hr_opt_fusion, hr_opt_fusion_list;          /* --fusion */
extern const hr_opt hr_opt_kernel;                              /* --kernel */
extern const hr_opt hr_opt_weights, hr_opt_weights_list;        /* --weights */
extern const hr_opt hr_opt_threads, hr_opt_threads_list;        /* --threads -t; no default: physical cores */
extern const hr_opt hr_opt_isa, hr_opt_isa_list;                /* --isa */
extern const hr_opt hr_opt_mmap, hr_opt_huge_pages, hr_opt_pin; /* --mmap -mmp, --huge-pages, --pin: 0 or 1 */
extern const hr_opt hr_opt_device, hr_opt_device_list;          /* --device */
extern const hr_opt hr_opt_gpu_layers, hr_opt_gpu_layers_list;  /* --n-gpu-layers -ngl; no default: as --device says */

/* GPUs alone */
extern const hr_opt hr_opt_graphs, hr_opt_graphs_list;         /* --graphs */
extern const hr_opt hr_opt_gpu_memory, hr_opt_gpu_memory_list; /* --gpu-memory */
extern const hr_opt hr_opt_gemm, hr_opt_gemm_list;             /* --gemm; no default: what the device makes best */
extern const hr_opt hr_opt_power_limit_list;                   /* --power-limit; no default: as it is */
extern const hr_opt hr_opt_on_throttle, hr_opt_cool_down;      /* --on-throttle, --cool-down (throttle.h) */
extern const hr_opt hr_opt_kernel_times;                       /* --kernel-times */

/* Measuring: --repetitions -r, --max-time, --seed, --prompt */
extern const hr_opt hr_opt_repetitions, hr_opt_time_limit, hr_opt_max_time, hr_opt_seed, hr_opt_prompt;
/* Measuring, before the first cell (busy.h): --on-busy, --busy-timeout */
extern const hr_opt hr_opt_on_busy, hr_opt_busy_timeout;

extern const hr_opt hr_opt_output, hr_opt_output_err; /* --output -o, -oe; no default: table or md */
extern const hr_opt hr_opt_json, hr_opt_out, hr_opt_db;
extern const hr_opt hr_opt_quiet, hr_opt_verbose, hr_opt_no_progress;
extern const hr_opt hr_opt_config, hr_opt_print_config; /* handled by the parser and by main */

/* One value each: the engine of one run. */
#define HR_OPTS_AXES                                                                                              \
    &hr_opt_quant, &hr_opt_act, &hr_opt_type_k, &hr_opt_type_v, &hr_opt_kv_layout, &hr_opt_page_size,             \
        &hr_opt_kv_alloc, &hr_opt_flash, &hr_opt_fusion, &hr_opt_weights, &hr_opt_batch, &hr_opt_ubatch,          \
        &hr_opt_threads, &hr_opt_isa, &hr_opt_device, &hr_opt_gpu_layers, &hr_opt_mmap, &hr_opt_huge_pages,       \
        &hr_opt_pin, &hr_opt_kernel, &hr_opt_kv_budget, &hr_opt_kv_threshold, &hr_opt_kv_compact, &hr_opt_graphs, \
        &hr_opt_gpu_memory, &hr_opt_gemm, &hr_opt_kernel_times
/* Lists: the axes of a sweep, model and row kinds included. */
#define HR_OPTS_AXES_SWEEP                                                                                             \
    &hr_opt_model_list, &hr_opt_n_prompt_list, &hr_opt_n_gen_list, &hr_opt_pg, &hr_opt_isl_list, &hr_opt_osl_list,     \
        &hr_opt_depth_list, &hr_opt_seqs_list, &hr_opt_batch_list, &hr_opt_ubatch_list, &hr_opt_quant_list,            \
        &hr_opt_act_list, &hr_opt_type_k_list, &hr_opt_type_v_list, &hr_opt_kv_layout_list, &hr_opt_page_size_list,    \
        &hr_opt_kv_alloc_list, &hr_opt_flash_list, &hr_opt_fusion_list, &hr_opt_weights_list, &hr_opt_threads_list,    \
        &hr_opt_isa_list, &hr_opt_device_list, &hr_opt_gpu_layers_list, &hr_opt_mmap, &hr_opt_huge_pages, &hr_opt_pin, \
        &hr_opt_kernel, &hr_opt_kv_budget, &hr_opt_kv_threshold, &hr_opt_kv_compact, &hr_opt_graphs_list,              \
        &hr_opt_gpu_memory_list, &hr_opt_gemm_list, &hr_opt_power_limit_list, &hr_opt_on_throttle, &hr_opt_cool_down,  \
        &hr_opt_kernel_times
/* Results and messages. Commands that touch the store add &hr_opt_db. */
#define HR_OPTS_OUTPUT \
    &hr_opt_output, &hr_opt_output_err, &hr_opt_json, &hr_opt_out, &hr_opt_quiet, &hr_opt_verbose, &hr_opt_no_progress
#define HR_OPTS_CONFIG &hr_opt_config, &hr_opt_print_config

#endif
