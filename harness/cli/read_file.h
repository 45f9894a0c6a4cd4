/* read_file.h - a whole file or stdin in memory, for texts and lists of ids. */
#ifndef HR_READ_FILE_H
#define HR_READ_FILE_H

#include "kernels/base/status.h"
#include <stddef.h>

/* path "-": stdin. *text has a NUL behind its n bytes; hr_free it. At most 256 MiB. Messages begin with the path. */
hr_status hr_read_file(const char *path, char **text, size_t *n);

/* What the user named with --ppl-model and --ppl-text (NULL: nothing), looked at before anything is measured: ERR_INPUT
 * where it cannot be read or is no model. */
hr_status hr_check_ppl_files(const char *model, const char *text);

#endif
