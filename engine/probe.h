/* probe.h - the one point that every op of the engine passes: {phase, layer, op, kernel, tokens, bytes, flops}.
 *
 * Sinks: none (one predictable branch), the in-process recorder, NVTX ranges (built with the headers, a tool attached),
 * and HEADROOM_PLANT, which makes an op slower on purpose. Only the thread that calls the engine passes here. */
#ifndef HR_PROBE_H
#define HR_PROBE_H

#include "engine/engine.h"

typedef struct hr_probe {
    bool on;            /* any sink wants ops */
    bool nvtx, planted; /* these two sinks */
    hr_op_record *records;
    size_t space, capacity, n, lost; /* records there are, that may be filled now (0: off), filled, without space */
    double plant[HR_OP_COUNT];       /* share of the op's own time to spin after it */
    hr_op_record current;            /* phase and tokens of the pass; the op that runs */
} hr_probe;

/* Reads HEADROOM_PLANT=OP:X%[,OP:X%] (OP an op class or `all`): ERR_USAGE when it is malformed. */
hr_status hr_probe_init(hr_probe *probe);
/* Space for `capacity` records, touched now; 0 turns the recorder off and keeps the space, so that turning it on and off
 * around a repetition disturbs no cache. */
hr_status hr_probe_record(hr_probe *probe, size_t capacity);
void hr_probe_fini(hr_probe *probe);

void hr_probe_enter_(hr_probe *probe, hr_op op, int layer, const char *kernel, hr_work work);
void hr_probe_leave_(hr_probe *probe);

static inline void hr_probe_enter(hr_probe *p, hr_op op, int layer, const char *kernel, hr_work work) {
    if (__builtin_expect(p->on, 0)) hr_probe_enter_(p, op, layer, kernel, work);
}
static inline void hr_probe_leave(hr_probe *p) {
    if (__builtin_expect(p->on, 0)) hr_probe_leave_(p);
}

/* The pass and the layer around the ops. */
void hr_probe_pass_begin(hr_probe *probe, hr_phase phase, uint32_t tokens);
void hr_probe_pass_end(hr_probe *probe);
void hr_probe_layer_begin(hr_probe *probe, int layer);
void hr_probe_layer_end(hr_probe *probe);

#endif
