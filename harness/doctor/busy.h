/* busy.h - before something is measured: does another process take the CPUs, and what then.
 *
 * The look takes the rest of 0.3 s after hr_busy_begin, so that what is set up between costs nothing. */
#ifndef HR_BUSY_H
#define HR_BUSY_H

#include "harness/doctor/others.h"

typedef enum hr_on_busy { HR_BUSY_WARN, HR_BUSY_FAIL, HR_BUSY_WAIT, HR_BUSY_IGNORE, HR_BUSY_COUNT } hr_on_busy;
extern const char *const hr_on_busy_names[]; /* "warn", "fail", "wait", "ignore"; NULL-ended */

typedef struct hr_busy {
    hr_on_busy on_busy;
    double timeout_s; /* of wait */
    bool progress;    /* may be shown while waiting: hr_output.progress */
    hr_others_look *look;
    uint64_t begun_ns;
    bool looked, busy; /* after hr_busy_end: was there a look, and does a process take over 5 % of a core */
    char warning[256]; /* when busy: one line that names it */
} hr_busy;

/* on_busy, timeout_s and progress may be set until hr_busy_end. */
void hr_busy_begin(hr_busy *busy);
/* OK; ERR_UNSUPPORTED with fail, when busy; ERR_INTERRUPTED while waiting. A system whose processes cannot be seen is no
 * failure: looked is false then. */
hr_status hr_busy_end(hr_busy *busy);
void hr_busy_drop(hr_busy *busy); /* instead of hr_busy_end; nothing after it */

#endif
