/* mapfile.h - a whole regular file mapped read-only. */
#ifndef HR_MAPFILE_H
#define HR_MAPFILE_H

#include "kernels/base/status.h"
#include <stddef.h>

typedef struct hr_mapfile {
    const void *data; /* [size], page aligned */
    size_t size;
} hr_mapfile;

/* ERR_IO when the system refuses (open, fstat, mmap: each a point where tests inject HR_FAULT_READ), ERR_INPUT for what
 * is no regular file or is empty; the message names the path. Never blocks on a pipe. */
hr_status hr_mapfile_open(const char *path, hr_mapfile *out);
void hr_mapfile_close(hr_mapfile *file);

#endif
