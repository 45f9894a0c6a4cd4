/* cupti_counters.h - sets of hardware counters, and how many passes a chip needs for them. What a caller wants is
 * hr_gpu_counters_measure (device.h). */
#ifndef HR_CUPTI_COUNTERS_H
#define HR_CUPTI_COUNTERS_H

#include "engine/device.h"

/* field of hr_gpu_counters, metric of CUPTI. The first five take one pass on GA100, GH100 and GB100, all seven take two. */
/* clang-format off */
#define HR_COUNTER_LIST(X)                                                              \
    X(time_ns, "gpu__time_duration.sum")                                                \
    X(dram_read_bytes, "dram__bytes_read.sum")                                          \
    X(dram_write_bytes, "dram__bytes_write.sum")                                        \
    X(sm_mhz, "sm__cycles_elapsed.avg.per_second")                                      \
    X(tensor_pct, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")    \
    X(l2_hit_pct, "lts__t_sector_hit_rate.pct")                                         \
    X(warps_active_pct, "sm__warps_active.avg.pct_of_peak_sustained_active")
/* clang-format on */
enum { HR_COUNTERS_ONE_PASS = 5, HR_COUNTERS_ALL = 7 };

/* Passes for the first n counters on a chip of CUPTI's name ("GH100"), by its host functions, which need neither a driver nor a
 * GPU. *mask: bit set of those that the chip has, the others are left out. ERR_UNSUPPORTED. */
hr_status hr_counters_passes(const char *chip, unsigned n, unsigned *passes, unsigned *mask);

#endif
