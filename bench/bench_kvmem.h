/* bench_kvmem.h - KV caches for benchmarks: memory of one sequence in any layout, over as many layers as "cold" needs. */
#ifndef HR_BENCH_KVMEM_H
#define HR_BENCH_KVMEM_H

#include "bench/bench.h"

enum { HR_BENCH_PAGE = 16 }; /* positions a page of the layout paged */

typedef struct hr_bench_kv {
    hr_kv_geom geom;
    hr_kv_seq seq;
    uint32_t *table;            /* paged: pages in random order */
    size_t bytes[HR_KV_PLANES]; /* mapped */
} hr_bench_kv;

/* Not written yet. layers: their total is what calls rotate over. */
hr_status hr_bench_kv_init(hr_bench_kv *kv, hr_kv_layout layout, hr_dtype type, uint32_t layers, uint32_t heads,
                           uint32_t dim, uint32_t positions);
/* Random K and V at positions [0, n) of every layer, written by `append`. */
hr_status hr_bench_kv_fill(hr_bench_kv *kv, const hr_kernel *append, uint32_t n);
void hr_bench_kv_fini(hr_bench_kv *kv);
/* Layers that a cold run needs when one call reads `bytes`. */
uint32_t hr_bench_kv_layers(uint64_t bytes);

#endif
