/* doctor.h - is this machine fit to measure on: each check with its reason and the command that mends it. */
#ifndef HR_DOCTOR_H
#define HR_DOCTOR_H

#include "harness/roof/roof.h"

typedef struct hr_doctor_options {
    const char *root; /* "" or a folder with proc/ and sys/ of a made-up machine, for tests */
    bool noise;       /* the 3-second test */
    size_t pairs;     /* 13: for min_detectable_pct */
    const char *db;   /* where results go: free space; NULL: none */
} hr_doctor_options;
/* {checks: [{name, status: ok|warn|bad|unknown, why, fix}], min_detectable_pct (null without the noise test), noise_pct}. */
hr_status hr_doctor(const hr_doctor_options *options, json_t **out);
/* Without the noise test, some milliseconds: what is stored with every run ({name: status, ...}). */
json_t *hr_doctor_summary(void);
/* CPU share in percent of a core that other processes took over `seconds`, and the largest of them by name. */
hr_status hr_doctor_others(double seconds, double *percent, char name[64], int *pid);

#endif
