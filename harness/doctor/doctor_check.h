/* doctor_check.h - what the checks of this folder share: a finding, reading files of the patient, lists of CPUs.
 *
 * Every file is read below `root`, so that made-up machines can be looked at; what a file holds is not trusted: at most
 * 64 KiB of it are read, and what is not printable ASCII becomes '?'. */
#ifndef HR_DOCTOR_CHECK_H
#define HR_DOCTOR_CHECK_H

#include "harness/doctor/doctor.h"
#include <stdint.h>

typedef enum hr_fitness { HR_FIT_OK, HR_FIT_WARN, HR_FIT_BAD, HR_FIT_UNKNOWN, HR_FIT_ABSENT, HR_FIT_COUNT } hr_fitness;
extern const char *const hr_fitness_names[HR_FIT_COUNT]; /* "ok", "warn", "bad", "unknown", "absent" */

typedef struct hr_finding {
    hr_fitness fitness; /* ABSENT: the check does not concern this machine and is not shown */
    char why[400];      /* one sentence with the value found */
    char fix[400];      /* the command that mends it, "": none */
} hr_finding;

typedef struct hr_patient {
    const char *root; /* "": this machine */
    const char *db;   /* NULL: none */
} hr_patient;

typedef void hr_check_fn(const hr_patient *p, hr_finding *out);
typedef struct hr_check {
    const char *name; /* NULL ends a list; lower case and '_': it is a key of what is stored with runs */
    hr_check_fn *run;
    bool slow; /* measures, or loads a library: left out of the summary */
} hr_check;
extern const hr_check hr_checks_cpu[], hr_checks_clock[], hr_checks_memory[], hr_checks_limits[], hr_checks_gpu[];

void hr_find(hr_finding *out, hr_fitness fitness, const char *why, ...) __attribute__((format(printf, 3, 4)));
void hr_find_fix(hr_finding *out, const char *fix, ...) __attribute__((format(printf, 2, 3)));

/* ---- files of the patient; paths without the root, as "/proc/meminfo" */

/* Up to 64 KiB with a NUL behind; NULL when there is none, it is empty or cannot be read. hr_free it. */
char *hr_doctor_text(const hr_patient *p, const char *path);
/* The first line without surrounding blanks; false when that is nothing. out is "" then. */
bool hr_doctor_line(const hr_patient *p, const char *path, char *out, size_t size);
/* The number at the start of the first line; false when there is none. */
bool hr_doctor_number(const hr_patient *p, const char *path, double *out);
/* The text behind `key` and ':' or blanks in the first line that begins with it. */
bool hr_doctor_value(const hr_patient *p, const char *path, const char *key, char *out, size_t size);
bool hr_doctor_exists(const hr_patient *p, const char *path);
/* Whether the CPU says that a hypervisor runs it (flags of /proc/cpuinfo). */
bool hr_doctor_is_virtual(const hr_patient *p);
/* Whether the process holds a capability, by its bit number in /proc/self/status. */
bool hr_doctor_capable(const hr_patient *p, unsigned bit);
/* "/some avg10" of a file of /proc/pressure, in percent; false when it cannot be read. */
bool hr_doctor_pressure(const hr_patient *p, const char *path, double *avg10);

/* ---- lists of CPUs: "0-3,8" */

enum { HR_CPU_LIMIT = 4096 };
typedef struct hr_cpu_list {
    uint64_t bits[HR_CPU_LIMIT / 64];
    unsigned n;
} hr_cpu_list;
bool hr_cpu_list_parse(const char *text, hr_cpu_list *out); /* false: no such list; an empty text is an empty list */
bool hr_cpu_list_has(const hr_cpu_list *list, unsigned cpu);
/* CPUs that the process may use, by /proc/self/status. */
bool hr_doctor_allowed(const hr_patient *p, hr_cpu_list *out);

#endif
