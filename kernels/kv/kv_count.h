/* kv_count.h - counting what walks over runs touch: looks at the run function, 64-byte lines, 4 KiB pages.
 *
 * Whoever walks runs reports the rows that it takes by hr_kv_took. In kernels that is nothing, but for attn_counted.c, which
 * compiles the generic bodies with HR_KV_COUNT; elsewhere, where copies cost more than a test, it counts when a count was
 * begun on this thread. */
#ifndef HR_KV_COUNT_H
#define HR_KV_COUNT_H

#include "kernels/kv/kv_run.h"

typedef struct hr_kv_counts {
    uint64_t runs;  /* pieces of equally spaced rows, one call of the run function each */
    uint64_t lines; /* different 64-byte lines that the rows lie on */
    uint64_t pages; /* different 4 KiB pages */
} hr_kv_counts;

/* From here to hr_kv_count_end this thread counts. ERR_INTERNAL when it does so already, ERR_MEMORY from end when there was
 * none to remember the pages. */
hr_status hr_kv_count_begin(void);
hr_status hr_kv_count_end(hr_kv_counts *out);

extern _Thread_local bool hr_kv_counting;

/* n rows of a run are taken, in the planes whose bits (1 << HR_KV_K ...) are set and that exist: one run. */
void hr_kv_count_rows(const hr_kv_geom *g, const hr_kv_rows *run, unsigned planes, uint32_t n);

static inline void hr_kv_took(const hr_kv_geom *g, const hr_kv_rows *run, unsigned planes, uint32_t n) {
    if (__builtin_expect(hr_kv_counting, 0)) hr_kv_count_rows(g, run, planes, n);
}

#ifdef HR_KV_COUNT
#define HR_KV_TOOK(g, run, planes, n) hr_kv_took(g, run, planes, n)
#else
#define HR_KV_TOOK(g, run, planes, n) ((void)0)
#endif

#endif
