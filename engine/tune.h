/* tune.h - what is measured about this CPU before the first engine is opened, and remembered beside the user's caches.
 *
 * The int8 products exist for vectors of 256 and of 512 bits. Which is faster differs between cores with the same
 * instruction set (Zen 4 splits a 512-bit operation in two, Zen 5 does not), so it is measured: a few milliseconds, once
 * a machine. The answer lies in $XDG_CACHE_HOME/headroom or ~/.cache/headroom, one file a CPU, so that a home directory may
 * be shared by machines. A file that cannot be read, is not of this CPU or cannot be written is no error: the measurement
 * is made again. HEADROOM_LANES=256 or 512 decides without measuring. */
#ifndef HR_TUNE_H
#define HR_TUNE_H

#include "engine/engine.h"

/* Rows of the table that differ in lanes alone, for a product of n tokens. */
typedef struct hr_width_pair {
    const hr_kernel *narrow, *wide; /* 256 and 512 bits; NULL: this CPU has no such pair */
} hr_width_pair;
hr_width_pair hr_tune_pair(hr_isa isa, uint32_t n);

/* Giga-operations per second of one thread: the best of alternating runs. ERR_MEMORY. */
hr_status hr_tune_measure(const hr_width_pair *pair, double *narrow_gop_s, double *wide_gop_s);
/* 512 unless 256 is faster by more than 1 %: a tie must not fall differently from day to day. */
uint32_t hr_tune_decide(double narrow_gop_s, double wide_gop_s);

/* ---- tune_cache.c ---- */

/* One line that says which CPU and which kernels the answer is of: vendor, family, model, stepping, microcode, features,
 * and names of the rows. */
void hr_tune_key(const hr_width_pair *pair, char *out, size_t n);
/* The file for that key; false when there is neither XDG_CACHE_HOME nor HOME with an absolute path. */
bool hr_tune_path(const char *key, char *out, size_t n);
/* True when the file is whole and of this key. */
bool hr_tune_load(const char *path, const char *key, hr_tuning *out);
/* Written beside and renamed; folders are made. False: not written. */
bool hr_tune_store(const char *path, const char *key, const hr_tuning *tuning);

#endif
