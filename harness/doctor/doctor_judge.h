/* doctor_judge.h - verdicts on what was measured or asked of a library, apart from how it was found out. */
#ifndef HR_DOCTOR_JUDGE_H
#define HR_DOCTOR_JUDGE_H

#include "engine/engine.h"
#include "harness/doctor/doctor_check.h"
#include "harness/doctor/others.h"

void hr_judge_timer(double ns, double step_ns, hr_finding *out);
/* folder: where results go, as shown; network: a file system that other machines write to as well. */
void hr_judge_disk(const char *folder, double free_bytes, bool writable, bool network, hr_finding *out);
void hr_judge_others(const hr_others *others, double seconds, hr_finding *out);

/* ---- the noise test */

/* A/A differences: logarithms of time over time of the same kernel, one a pair. 1.4826 times their median absolute
 * deviation (the standard deviation, were they normal), in percent. NaN for n = 0. */
double hr_noise_spread_pct(const double *d, size_t n);
/* The smallest slowdown, in percent, that `pairs` pairs find in 80 of 100 cases: the 80th percentile, over many draws of
 * `pairs` differences from d with random signs (A/A has no direction), of the distance from the true shift to the lower
 * end of the 95 % Hodges-Lehmann interval. A slowdown larger than this distance puts the interval wholly beyond zero,
 * which is what a verdict asks for. Repeatable: the draws come from a fixed seed.
 * NaN when pairs < 6 (no such interval), pairs > HR_PAIRS_MAX or n < 6. */
double hr_noise_detectable_pct(const double *d, size_t n, size_t pairs);
void hr_judge_noise(double spread_pct, double detectable_pct, size_t pairs, size_t n, hr_finding *out);
/* Some seconds of A/A pairs on all physical cores: *d[*n], hr_free it. ERR_MEMORY, ERR_INTERRUPTED. */
hr_status hr_noise_measure(double seconds, double **d, size_t *n);

/* ---- GPUs; -1 and "" are unknown. The worst device is the one that is told of. */

typedef struct hr_gpu_facts {
    bool on_pci;     /* a display device of NVIDIA's is on the bus */
    char driver[64]; /* version; "": no driver */
    bool asked;      /* the management library answered */
    int n;           /* devices */
    hr_gpu_listed devices[HR_GPU_SURVEY_MAX];
    int cuda;       /* 12040: what the driver supports */
    int admin_only; /* counters of kernels are for administrators */
    bool admin;     /* this process is one */
} hr_gpu_facts;
typedef void hr_gpu_judge(const hr_gpu_facts *facts, hr_finding *out);
hr_gpu_judge hr_judge_gpu_driver, hr_judge_gpu_clocks, hr_judge_gpu_persistence, hr_judge_gpu_ecc,
    hr_judge_gpu_counters, hr_judge_gpu_cuda, hr_judge_gpu_others;
/* From files alone: on_pci, driver, admin_only, admin. */
void hr_gpu_facts_of_files(const hr_patient *p, hr_gpu_facts *out);

#endif
