/* probe.h - the one point that every op of the engine passes: {phase, layer, op, kernel, tokens, bytes, flops}.
 *
 * Sinks: none (one predictable branch), the in-process recorder, NVTX ranges (built with the headers, a tool attached),
 * and HEADROOM_PLANT, which makes an op slower on purpose. Only the thread that calls the engine passes here; what the
 * team's other threads did comes from the pool, which is watched as long as the recorder is on.
 *
 * Built with HR_NO_PROBES the functions are empty: to measure what they cost while nobody listens. */
#ifndef HR_PROBE_H
#define HR_PROBE_H

#include "engine/engine.h"
#include "engine/pool.h"

/* Newest elements of an array that was sized before: filled until it is full, or, as a ring, over and over. */
typedef struct hr_probe_store {
    char *at;
    size_t element, space, capacity; /* bytes of one; elements there are, that may be filled now (0: off) */
    size_t n, lost, next;            /* filled, without space or overwritten, where the next goes */
    bool ring;
} hr_probe_store;

typedef struct hr_probe {
    bool on;             /* any sink wants ops */
    bool planted;        /* HEADROOM_PLANT */
    hr_nvtx_level level; /* of ranges; none while no tool is attached */
    hr_pool *pool;       /* watched while records are kept; NULL: none */
    hr_probe_store records, spans;
    bool paused;
    double plant[HR_OP_COUNT]; /* share of the op's own time to spin after it */
    hr_op_record current;      /* phase, pass and tokens; the op that runs */
    hr_op_record *kept;        /* where the last op's record is kept; NULL: nowhere */
} hr_probe;

/* Reads HEADROOM_PLANT=OP:X%[,OP:X%] (OP an op class or `all`): ERR_USAGE when it is malformed. */
hr_status hr_probe_init(hr_probe *probe);
/* Space for so many records and spans, touched now; 0 records turn the recorder off and keep the space, so that turning it
 * on and off around a repetition disturbs no cache. */
hr_status hr_probe_record(hr_probe *probe, size_t records, size_t spans, bool ring);
/* Nothing is kept while it is paused, and nothing that was kept is lost. hr_probe_record ends a pause. */
void hr_probe_pause(hr_probe *probe, bool paused);
void hr_probe_reset(hr_probe *probe);
/* Oldest first: a ring is turned until its oldest element is the first. */
const void *hr_probe_read(hr_probe_store *store, size_t *n, size_t *lost);
void hr_probe_fini(hr_probe *probe);

#ifdef HR_NO_PROBES
static inline bool hr_probe_on(const hr_probe *p) {
    (void)p;
    return false;
}
#else
static inline bool hr_probe_on(const hr_probe *p) {
    return __builtin_expect(p->on, 0);
}
#endif

void hr_probe_enter_(hr_probe *probe, hr_op op, int layer, const char *kernel, hr_work work);
void hr_probe_leave_(hr_probe *probe);
void hr_probe_pass_begin_(hr_probe *probe, hr_phase phase, uint32_t tokens);
void hr_probe_range_(hr_probe *probe, hr_nvtx_level level,
                     int layer); /* begins a layer; layer < 0: ends the newest range */

static inline void hr_probe_enter(hr_probe *p, hr_op op, int layer, const char *kernel, hr_work work) {
    if (hr_probe_on(p)) hr_probe_enter_(p, op, layer, kernel, work);
}
static inline void hr_probe_leave(hr_probe *p) {
    if (hr_probe_on(p)) hr_probe_leave_(p);
}

/* The pass and the layer around the ops. */
static inline void hr_probe_pass_begin(hr_probe *p, hr_phase phase, uint32_t tokens) {
    if (hr_probe_on(p)) hr_probe_pass_begin_(p, phase, tokens);
}
static inline void hr_probe_pass_end(hr_probe *p) {
    if (hr_probe_on(p)) hr_probe_range_(p, HR_NVTX_PHASE, -1);
}
static inline void hr_probe_layer_begin(hr_probe *p, int layer) {
    if (hr_probe_on(p)) hr_probe_range_(p, HR_NVTX_LAYER, layer);
}
static inline void hr_probe_layer_end(hr_probe *p) {
    if (hr_probe_on(p)) hr_probe_range_(p, HR_NVTX_LAYER, -1);
}

#endif
