/* version.h - what this program is: for --version and for the record of a run. */
#ifndef HR_VERSION_H
#define HR_VERSION_H

#define HR_VERSION "0.1.0"

const char *hr_commit(void);   /* short commit, "-dirty" appended when the tree had changes; "unknown" outside git */
int hr_build_number(void);     /* commits up to here */
const char *hr_compiler(void); /* "gcc 12.2.0" */

#endif
