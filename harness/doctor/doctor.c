#include "harness/doctor/doctor.h"

#include "harness/doctor/doctor_check.h"
#include "harness/doctor/doctor_judge.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>

static const hr_check *const themes[] = {hr_checks_cpu, hr_checks_clock, hr_checks_memory, hr_checks_limits,
                                         hr_checks_gpu};
enum { THEMES = sizeof themes / sizeof *themes };
static const double NOISE_SECONDS = 3;

static json_t *finding_json(const char *name, const hr_finding *f) {
    json_t *fix = *f->fix && f->fitness != HR_FIT_OK ? json_string(f->fix) : json_null();
    return json_pack("{s:s, s:s, s:s, s:o}", "name", name, "status", hr_fitness_names[f->fitness], "why", f->why, "fix",
                     fix);
}

static hr_status add(json_t *checks, const char *name, const hr_finding *finding) {
    if (finding->fitness == HR_FIT_ABSENT) return HR_OK;
    if (json_array_append_new(checks, finding_json(name, finding))) HR_FAIL(HR_ERR_MEMORY, "doctor: out of memory");
    return HR_OK;
}

static hr_status noise_test(const hr_doctor_options *options, json_t *checks, double *noise, double *detectable) {
    double *d;
    size_t n;
    HR_TRY(hr_noise_measure(NOISE_SECONDS, &d, &n));
    *noise = hr_noise_spread_pct(d, n);
    *detectable = hr_noise_detectable_pct(d, n, options->pairs);
    hr_free(d);
    hr_finding finding = {0};
    hr_judge_noise(*noise, *detectable, options->pairs, n, &finding);
    return add(checks, "noise", &finding);
}

static hr_status examine(const hr_doctor_options *options, json_t *checks, double *noise, double *detectable) {
    const hr_patient patient = {.root = options->root ? options->root : "", .db = options->db};
    for (size_t t = 0; t < THEMES; t++)
        for (const hr_check *check = themes[t]; check->name; check++) {
            hr_finding finding = {0};
            check->run(&patient, &finding);
            HR_TRY(add(checks, check->name, &finding));
        }
    /* Last, so that what is asked of libraries and disks does not disturb it. */
    return options->noise ? noise_test(options, checks, noise, detectable) : HR_OK;
}

hr_status hr_doctor(const hr_doctor_options *options, json_t **out) {
    double noise = NAN, detectable = NAN;
    json_t *checks = json_array();
    const hr_status status =
        checks ? examine(options, checks, &noise, &detectable) : hr_fail(HR_ERR_MEMORY, "doctor: out of memory");
    *out = NULL;
    if (status == HR_OK)
        *out = json_pack("{s:O, s:o, s:o, s:I}", "checks", checks, "min_detectable_pct", hr_real_or_null(detectable),
                         "noise_pct", hr_real_or_null(noise), "pairs", (json_int_t)options->pairs);
    json_decref(checks);
    return status != HR_OK || *out ? status : hr_fail(HR_ERR_MEMORY, "doctor: out of memory");
}

json_t *hr_doctor_summary(void) {
    const hr_patient patient = {.root = ""};
    json_t *summary = json_object();
    for (size_t t = 0; t < THEMES; t++)
        for (const hr_check *check = themes[t]; check->name; check++) {
            hr_finding finding = {0};
            if (check->slow) continue;
            check->run(&patient, &finding);
            if (finding.fitness != HR_FIT_ABSENT)
                json_object_set_new(summary, check->name, json_string(hr_fitness_names[finding.fitness]));
        }
    return summary;
}
