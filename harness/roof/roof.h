/* roof.h - this machine's ceilings and its state, measured; independent of the engine.
 *
 * A ceiling is the best of several ways: access patterns, streams a core, prefetch distances, huge pages for reading;
 * vector widths for arithmetic. All threads run together, pinned; rates are from the first start to the last end. */
#ifndef HR_ROOF_H
#define HR_ROOF_H

#include "kernels/table.h"
#include <jansson.h>

typedef struct hr_machine {
    char cpu[128];       /* "AMD EPYC" */
    char class_name[96]; /* "epyc-zen4-2c-24g": CPU family, microarchitecture, cores, memory; safe as a folder name */
    char os[128], governor[32], hypervisor[32];
    unsigned cores, threads, numa_nodes; /* physical cores and hardware threads that the process may use */
    uint64_t memory_bytes, l1d_bytes, l2_bytes, l3_bytes; /* as reported; 0: unknown. Virtual machines report wrong */
    char isas[64];                                        /* "generic avx2 avx512 vnni bf16" */
} hr_machine;
hr_status hr_machine_get(hr_machine *out);
json_t *hr_machine_json(const hr_machine *machine);

/* A few milliseconds each; NaN where the machine cannot. Kept small so that they can stand beside every cell. */
typedef struct hr_state {
    double read_gb_s;  /* DRAM, all threads */
    double handoff_ns; /* core to core, one way; NaN with one CPU */
    double gflop_s[HR_UNIT_COUNT];
    double clock_ghz;   /* dependent-chain proxy */
    double psi_some_us; /* total of /proc/pressure/cpu "some", microseconds since boot; NaN when unavailable */
} hr_state;

typedef struct hr_roofs hr_roofs; /* threads and buffers of the probes */
hr_status hr_roofs_create(unsigned threads, hr_roofs **out);
void hr_roofs_destroy(hr_roofs *roofs);
/* units: bit set of hr_unit to probe. At most about 125 ms. */
hr_status hr_roofs_state(hr_roofs *roofs, unsigned units, hr_state *out);

/* The full sweep: what `roof` prints (cli.md), stored per machine. quick: under 10 s. progress may be NULL. */
hr_status hr_roofs_measure(hr_roofs *roofs, bool quick, void (*progress)(double share, void *context), void *context,
                           json_t **out);
/* Last-level cache in bytes as the knee of a short size sweep (for cache_resident); about 1 s, cached in *roofs. */
hr_status hr_roofs_llc(hr_roofs *roofs, uint64_t *bytes);

/* One-thread kernels, one file per ISA; NULL entries where the ISA has no such unit. */
typedef struct hr_roof_kernels {
    const char *isa;
    /* reads n bytes (a multiple of 4096) once in the given pattern; patterns 0..n_patterns-1 */
    void (*read)(const void *p, size_t n, int pattern);
    int n_patterns;
    /* runs about `loops` inner iterations; returns operations done (a multiply and an add are two) */
    double (*flops[HR_UNIT_COUNT])(long loops);
} hr_roof_kernels;
extern const hr_roof_kernels hr_roof_generic, hr_roof_avx2, hr_roof_avx512;

#endif
