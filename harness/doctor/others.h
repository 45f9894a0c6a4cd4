/* others.h - what other processes take of the CPUs while this one waits.
 *
 * Two looks at /proc with some time between. Not counted: this process and its descendants. What no process that is seen
 * accounts for (one that ended between the looks, one outside of this container) is the difference to the CPU time of
 * /proc/stat, and is told of without a name. Times there come in ticks of 10 ms: with 0.3 s, 3 % of a core a tick. */
#ifndef HR_OTHERS_H
#define HR_OTHERS_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_others {
    double percent;         /* of one core, all together */
    double largest_percent; /* of the largest */
    char name[64];          /* its command; printable ASCII */
    int pid;                /* 0: not seen by name */
} hr_others;

typedef struct hr_others_look hr_others_look;
/* root: "" or a folder with proc/ of a made-up machine. */
hr_status hr_others_begin(const char *root, hr_others_look **out);
/* Looks again and compares; `self` is the process that does not count (with its descendants), `seconds` what has passed (0:
 * as the clock says). Frees the first look. root may be another folder: the machine later. */
hr_status hr_others_end(hr_others_look *begun, const char *root, int self, double seconds, hr_others *out);
void hr_others_drop(hr_others_look *begun);

enum { HR_OTHERS_BUSY_PCT = 5 }; /* of a core, by one process: another one is at work */

#endif
