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
/* The fields above, class_name as "machine_class"; what is unknown is null. New reference, NULL when out of memory. */
json_t *hr_machine_json(const hr_machine *machine);

/* A few milliseconds each; NaN where the machine cannot. Kept small so that they can stand beside every cell. */
typedef struct hr_state {
    double read_gb_s;  /* DRAM, all threads: kept up for some 8 ms, or for the length of the buffers */
    double handoff_ns; /* core to core, one way; NaN with one CPU */
    double gflop_s[HR_UNIT_COUNT];
    double clock_ghz;   /* dependent-chain proxy */
    double psi_some_us; /* total of /proc/pressure/cpu "some", microseconds since boot; NaN when unavailable */
} hr_state;

typedef struct hr_roofs hr_roofs; /* threads and buffers of the probes */
/* threads 0: the physical cores; more than the CPUs that the caller may use: so many as there are. Create it before an
 * engine pins the calling thread. The buffers are filled here, which takes some tenths of a second. Between probes the
 * threads sleep and cost nothing. One caller at a time. */
hr_status hr_roofs_create(unsigned threads, hr_roofs **out);
void hr_roofs_destroy(hr_roofs *roofs);
unsigned hr_roofs_threads(const hr_roofs *roofs);
/* units: bit set of hr_unit to probe (1u << HR_UNIT_INT8), the others are NaN. At most about 125 ms on an idle machine.
 * Rates are the best of several short probes: peaks for a ratio must not be beaten by what is measured beside them. */
hr_status hr_roofs_state(hr_roofs *roofs, unsigned units, hr_state *out);

/* Total of /proc/pressure/cpu "some" in microseconds since boot; NaN when unavailable. */
double hr_psi_some_us(void);

/* The full sweep: what `roof` prints (cli.md), stored per machine; beside its keys `pattern` in the rows of
 * read_gb_s and gflop_s, the way that was fastest; `sweep`: [{bytes_per_thread, threads, gb_s}], the best rate at each
 * working set; and `datasheet_read_gb_s`, null where no datasheet is known. quick: under 10 s. progress may be NULL; *out is a new reference. */
hr_status hr_roofs_measure(hr_roofs *roofs, bool quick, void (*progress)(double share, void *context), void *context,
                           json_t **out);
/* Last-level cache in bytes, of all threads together, as the knee of a short size sweep (for cache_resident); under a
 * second, cached in *roofs. */
hr_status hr_roofs_llc(hr_roofs *roofs, uint64_t *bytes);
/* Asked between the reads of hr_roofs_llc; true ends it with ERR_INTERRUPTED. */
void hr_roofs_stop_when(hr_roofs *roofs, bool (*stop)(void));

/* One way to keep an arithmetic unit busy: an instruction, a vector width, a number of accumulators. */
typedef struct hr_roof_form {
    const char *name;          /* NULL ends a list */
    unsigned needs;            /* HR_CPU_* beside the level of the file */
    double (*run)(long loops); /* returns the operations done (a multiply and an add are two) */
} hr_roof_form;

/* One way to walk through memory. */
typedef struct hr_roof_pattern {
    unsigned streams; /* read side by side */
    unsigned ahead;   /* bytes of software prefetch in each, 0: none */
    bool near, keep;  /* streams in neighbouring pages (else in equal parts); prefetcht0 (else prefetchnta) */
    unsigned bits;    /* of a load */
} hr_roof_pattern;
/* "4 streams, prefetchnta 1024, 512-bit" */
void hr_roof_pattern_name(const hr_roof_pattern *pattern, char *out, size_t n);

/* One-thread kernels, one file per ISA. A file may have no ways to read (n_patterns 0) or to compute (NULL). */
typedef struct hr_roof_kernels {
    hr_isa isa;
    /* Reads n bytes (a multiple of 4096, p on a cache line) once in the given pattern, 0..n_patterns-1; returns the
     * exclusive or of all its 64-bit words, so that a test can tell that each line was read, once. */
    uint64_t (*read)(const void *p, size_t n, int pattern);
    int n_patterns;
    const hr_roof_pattern *patterns;          /* [n_patterns] */
    const hr_roof_form *forms[HR_UNIT_COUNT]; /* NULL where the ISA has no such unit */
} hr_roof_kernels;
extern const hr_roof_kernels hr_roof_generic, hr_roof_avx2, hr_roof_avxvnni, hr_roof_avx512;

#endif
