/* cupti_library.h - CUPTI, opened at run time: HEADROOM_LIBCUPTI, else libcupti.so.13 where the loader or the toolkit has it. */
#ifndef HR_CUPTI_LIBRARY_H
#define HR_CUPTI_LIBRARY_H

#include "kernels/base/status.h"

#include <stddef.h>

typedef struct hr_cupti_symbol {
    const char *name;
    void *to; /* of a function pointer */
} hr_cupti_symbol;
/* Fills n function pointers. The library stays open. ERR_UNSUPPORTED in one line: not there, or too old (what it lacks). */
hr_status hr_cupti_load(const hr_cupti_symbol *symbols, size_t n);
/* HR_OK for 0, else ERR_UNSUPPORTED: what failed, CUPTI's text for the code, and what helps, in one line. */
hr_status hr_cupti_check(int result, const char *what);
/* The name of an environment variable by which another tool (nsys, ncu) is known to have been put into this process; NULL. */
const char *hr_cupti_other_tool(void);

#endif
