/* device.h - GPUs as the harness sees them: which there are, what they are, how they are measured. Part of engine.h.
 *
 * All libraries (libcuda, libcublasLt, libcupti, libnvidia-ml) are opened when they are first wanted; HEADROOM_LIBCUDA,
 * HEADROOM_LIBCUBLASLT, HEADROOM_LIBCUPTI and HEADROOM_LIBNVML name others. What is missing is one line and "unavailable". */
#ifndef HR_DEVICE_H
#define HR_DEVICE_H

#include "kernels/table.h"
#include <jansson.h>

enum { HR_GPU_SURVEY_MAX = 16 };
enum { HR_DEVICE_CPU = -1 }; /* of hr_engine_config.device; else the ordinal of a GPU */

/* "cpu", "cuda", "cuda:1". ERR_USAGE with the nearest spelling. */
hr_status hr_device_parse(const char *name, int *out);
void hr_device_name(int device, char out[16]); /* "cpu", "cuda:0" */

typedef struct hr_device_info {
    char name[96];       /* "NVIDIA H200" */
    char class_name[64]; /* "h200-132sm-141g": safe as a folder name */
    char uuid[48];       /* of NVML's spelling: "GPU-..." ; "" unknown */
    uint64_t memory_bytes, free_bytes, l2_bytes;
    uint32_t major, minor, sms, clock_mhz, memory_clock_mhz, memory_bus_bits, smem_optin;
    uint32_t driver;            /* 13000: the CUDA version that the driver serves */
    double datasheet_read_gb_s; /* from clock and bus; NaN: unknown */
    bool simulated;             /* a driver that runs kernels on the CPU: times mean nothing */
} hr_device_info;
/* Asked in a process of its own, so that the caller stays without a CUDA context and may fork; kept after the first time.
 * ERR_UNSUPPORTED says in one line what is missing (build, driver, device): "cuda:0: ...". */
hr_status hr_device_get_info(int device, hr_device_info *out);
/* Devices there are; 0 where there is no driver. */
unsigned hr_device_count(void);

/* ---- state and ceilings: in the process that has the context -------------------------------------------------------- */

/* What NVML and short probes say of a GPU now; NaN and 0 bits where they do not. */
typedef struct hr_gpu_state {
    double read_gb_s;              /* device memory, a few milliseconds */
    double gflop_s[HR_UNIT_COUNT]; /* of the units asked for */
    double sm_mhz, memory_mhz, temperature_c, power_w;
    double power_limit_w;
    double energy_j; /* since the driver was loaded */
    double
        slowed_s; /* the same: time with clocks lowered by power or heat. A difference over a run misses nothing between */
    uint64_t reasons; /* clock event reasons of NVML */
    bool throttled;   /* one of them slows what is measured (thermal, power, hardware) */
} hr_gpu_state;
/* units: bit set of hr_unit to probe; 0 probes nothing. At most 100 ms on a real GPU. */
hr_status hr_gpu_state_get(int device, unsigned units, hr_gpu_state *out);
/* ";"-joined names of reasons: "sw_power_cap;hw_thermal". */
void hr_gpu_reasons_text(uint64_t reasons, char *out, size_t n);

/* The roof of a GPU in the keys of `roof` (cli.md), `machine` apart: read_gb_s with levels L2 and DRAM, write_gb_s and copy_gb_s (read
 * and written bytes) beside it; gflop_s by unit, fp8 where the device has it, of the best way; gflop_s_ways: each unit by own
 * instructions and by cuBLASLt (or cublaslt_missing, why not); `sweep` by size; llc_bytes from the knee of it; launch_us; device,
 * simulated. New reference. */
hr_status hr_gpu_roofs_measure(int device, bool quick, void (*progress)(double share, void *context), void *context,
                               json_t **out);

/* What a pass of counters says of the last hr_gpu_counters_begin .. _end; NaN: not collected. */
typedef struct hr_gpu_counters {
    double time_ns, dram_read_bytes, dram_write_bytes, sm_mhz, tensor_pct, l2_hit_pct, warps_active_pct;
} hr_gpu_counters;
/* Range Profiler of CUPTI around work that `run` does, as often as passes are needed: never timed. ERR_UNSUPPORTED, in one
 * line, when counters may not be read (permission, another subscriber, old driver): the caller goes on without them. */
hr_status hr_gpu_counters_measure(int device, hr_status (*run)(void *context), void *context, hr_gpu_counters *out);

/* What the management library says of every GPU, without a context and in any build; -1 and "": unknown. */
typedef struct hr_gpu_listed {
    char name[64], uuid[48];
    int persistence, ecc;             /* 0, 1 */
    int sm_mhz, max_sm_mhz, busy_pct; /* now; at most; share of time in which a kernel ran */
    int64_t reasons;                  /* clock event reasons */
    double power_w, power_limit_w;
} hr_gpu_listed;
typedef struct hr_gpu_survey {
    char driver[64]; /* "570.86.15" */
    unsigned n;
    hr_gpu_listed devices[HR_GPU_SURVEY_MAX];
} hr_gpu_survey;
/* ERR_UNSUPPORTED in one line. */
hr_status hr_gpu_survey_get(hr_gpu_survey *out);

/* Times of single kernels by CUPTI in the records of ops, instead of events. Before the first use of a GPU in the process. */
void hr_gpu_want_kernel_times(bool wanted);
/* Why there are none though they were wanted, in one line; "" when there are, or none were wanted. */
const char *hr_gpu_kernel_times_missing(void);

/* Power limit in watts, where permitted; ERR_UNSUPPORTED else. 0 restores the default. */
hr_status hr_gpu_power_limit(int device, double watts);

#endif
