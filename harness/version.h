/* version.h - what this program is: for --version, for the record of a run, and to start it again. */
#ifndef HR_VERSION_H
#define HR_VERSION_H

#include "kernels/base/status.h"
#include <stddef.h>

#define HR_VERSION "0.1.0"

const char *hr_commit(void);   /* short commit, "-dirty" appended when the tree had changes; "unknown" outside git */
int hr_build_number(void);     /* commits up to here */
const char *hr_compiler(void); /* "gcc 12.2.0" */
/* The path of the running program, in out [n]. ERR_IO where the system does not say it, or it is longer. */
hr_status hr_program_path(char *out, size_t n);

#endif
