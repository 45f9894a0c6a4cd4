/* roofs_state.h - what the files of this folder share about a set of probes. */
#ifndef HR_ROOFS_STATE_H
#define HR_ROOFS_STATE_H

#include "harness/roof/gang.h"
#include "harness/roof/limits.h"
#include "harness/roof/roof.h"

/* One way to read: a pattern of one ISA. */
typedef struct hr_reader {
    const hr_roof_kernels *kernels;
    int pattern;
    double gb_s; /* best seen, from DRAM with all threads */
} hr_reader;

/* One way to compute. */
typedef struct hr_filler {
    const hr_roof_form *form;
    long loops; /* take about a millisecond */
    double gflop_s;
} hr_filler;

enum { HR_MAX_READERS = 64, HR_MAX_FORMS = 8, HR_READ_BEST = 4 };

struct hr_roofs {
    hr_gang *gang;
    hr_cpus cpus;
    unsigned threads;                  /* that read and compute */
    unsigned workers;                  /* threads of the gang: one more than threads when the handoff needs it */
    size_t bytes;                      /* of one thread's buffer */
    void **buffers;                    /* [threads] */
    size_t shot, cursor;               /* bytes a thread reads in one short DRAM probe, and where the next begins */
    hr_reader readers[HR_MAX_READERS]; /* all that the CPU can do */
    unsigned n_readers;
    hr_reader *dram[HR_READ_BEST]; /* the best of them for DRAM, all threads, best first */
    unsigned explored;             /* shots of the state probe that went to all readers in turn */
    hr_filler fillers[HR_UNIT_COUNT][HR_MAX_FORMS];
    unsigned n_fillers[HR_UNIT_COUNT]; /* best first; 0: the machine lacks the unit */
    uint64_t llc;                      /* 0: not measured yet */
    bool (*stop)(void);                /* NULL: never */
};

/* Reads bytes (a multiple of 4096) at offset of each buffer, passes times, in the first `threads` threads; GB/s. */
double hr_roofs_read(hr_roofs *r, unsigned threads, const hr_reader *reader, size_t offset, size_t bytes, long passes);
/* The same for the next part of the buffers in turn, long out of every cache. */
double hr_roofs_read_next(hr_roofs *r, unsigned threads, const hr_reader *reader, size_t bytes);
double hr_roofs_compute(hr_roofs *r, unsigned threads, const hr_filler *filler); /* GFLOP/s */
double hr_roofs_handoff(hr_roofs *r);                                            /* ns one way, NaN with one CPU */
double hr_roofs_clock(hr_roofs *r);                                              /* GHz, the slowest of the threads */

#endif
