/* cuda_record.c - times of ops on a GPU: an event before and one after each op, turned into records when the pass has ended.
 *
 * While the recorder is on nothing is replayed from graphs, so that every op has its launches. A record is kept by the probe as on
 * the CPU, with the times at which the host launched; here its place is remembered, and after the wait its times become those of
 * the device: those of its events, counted from one that the host saw pass; or, where kernel times were wanted and CUPTI gives
 * them, from the start of its first kernel to the end of its last one, which leaves the gaps between ops out. Ops that HEADROOM_PLANT makes slower wait for
 * the device, as their own time is what is added. */
#include "engine/cuda/cuda_state.h"
#include "engine/cuda/cupti_activity.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <string.h>

typedef struct timed {
    hr_op_record *record; /* where the probe keeps it; NULL: nowhere */
    uint64_t id;          /* to CUPTI */
    CUevent from, to;
} timed;

typedef struct hr_cuda_events {
    CUevent base;
    uint64_t base_ns; /* on the host's clock */
    timed *ops;       /* [capacity] events are made once */
    size_t capacity, n;
} hr_cuda_events;

static _Atomic uint64_t last_id; /* of ops, over all engines of the process */

/* Joined or not, an op of a layer leaves at most so many records; and those outside the layers. */
enum { RECORDS_A_LAYER = 12, RECORDS_BESIDE = 8 };

bool hr_cuda_recording(const hr_engine *e) {
    return hr_probe_on(&e->probe) && e->probe.records.capacity && !e->probe.paused;
}

static hr_status make_events(hr_cuda *g, size_t capacity) {
    hr_cuda_events *all = g->events = hr_calloc(1, sizeof *all);
    if (!all) HR_FAIL(HR_ERR_MEMORY, "out of memory for events");
    all->ops = hr_calloc(capacity + 1, sizeof *all->ops); /* the last stays empty: close looks one further */
    if (!all->ops) HR_FAIL(HR_ERR_MEMORY, "out of memory for events of %zu ops", capacity);
    HR_CU(g->d, cuEventCreate(&all->base, CU_EVENT_DEFAULT));
    for (; all->capacity < capacity; all->capacity++) {
        HR_CU(g->d, cuEventCreate(&all->ops[all->capacity].from, CU_EVENT_DEFAULT));
        HR_CU(g->d, cuEventCreate(&all->ops[all->capacity].to, CU_EVENT_DEFAULT));
    }
    return HR_OK;
}

void hr_cuda_record_close(hr_cuda *g) {
    hr_cuda_events *all = g->events;
    if (!all) return;
    if (all->base) g->d->cuEventDestroy(all->base);
    for (size_t i = 0; all->ops && i <= all->capacity; i++) { /* of one that was not finished too */
        const bool there = i < all->capacity || all->ops[i].from;
        if (!there) break;
        g->d->cuEventDestroy(all->ops[i].from);
        if (all->ops[i].to) g->d->cuEventDestroy(all->ops[i].to);
    }
    hr_free(all->ops);
    hr_free(all);
    g->events = NULL;
}

void hr_cuda_record_begin(hr_engine *e) {
    hr_cuda *g = e->cuda;
    if (!hr_cuda_recording(e)) hr_cupti_stop();
    if (!hr_cuda_recording(e) || g->status != HR_OK) return;
    (void)hr_cupti_start(); /* refused: ops have the times of events */
    if (!g->events) hr_cuda_keep(g, make_events(g, (size_t)RECORDS_A_LAYER * e->model->hp.n_layers + RECORDS_BESIDE));
    if (g->status != HR_OK) return;
    g->events->n = 0;
    (void)HR_CUDA_DO(g, cuEventRecord(g->events->base, g->stream));
    hr_cuda_wait(g);
    g->events->base_ns = hr_now_ns();
}

static timed *next_of(hr_cuda *g) {
    hr_cuda_events *all = g->events;
    return all && all->n < all->capacity ? &all->ops[all->n] : NULL;
}

void hr_cuda_enter(hr_pass *p, hr_op op, const char *kernel, hr_work work) {
    hr_cuda *g = p->e->cuda;
    hr_probe *probe = &p->e->probe;
    hr_probe_enter(probe, op, hr_pass_layer(p), kernel, work);
    if (!hr_cuda_recording(p->e)) return;
    timed *t = next_of(g);
    if (!t) return;
    t->id = ++last_id;
    (void)HR_CUDA_DO(g, cuEventRecord(t->from, g->stream));
    hr_cupti_push(t->id);
}

void hr_cuda_leave(hr_pass *p) {
    hr_cuda *g = p->e->cuda;
    hr_probe *probe = &p->e->probe;
    timed *t = hr_cuda_recording(p->e) ? next_of(g) : NULL;
    if (t) {
        hr_cupti_pop();
        (void)HR_CUDA_DO(g, cuEventRecord(t->to, g->stream));
    }
    if (probe->planted) hr_cuda_wait(g);
    probe->kept = NULL;
    hr_probe_leave(probe);
    if (!t) return;
    t->record = probe->kept;
    g->events->n++;
}

/* Nanoseconds from the base to an event. */
static uint64_t since_base(hr_cuda *g, CUevent event) {
    float ms = 0;
    if (!HR_CUDA_DO(g, cuEventElapsedTime(&ms, g->events->base, event))) return 0;
    return ms > 0 ? (uint64_t)((double)ms * 1e6 + 0.5) : 0;
}

/* The host may have been put off its CPU before it read its clock; but nothing ended later than now. */
static void correct_base(hr_cuda *g) {
    const uint64_t now = hr_now_ns(), all = g->events->n ? since_base(g, g->events->ops[g->events->n - 1].to) : 0;
    if (g->events->base_ns + all > now) g->events->base_ns = now - all;
}

static void take_event_times(hr_cuda *g) {
    correct_base(g);
    for (size_t i = 0; i < g->events->n && g->status == HR_OK; i++) {
        const timed *t = &g->events->ops[i];
        if (!t->record) continue;
        t->record->start_ns = g->events->base_ns + since_base(g, t->from);
        t->record->end_ns = g->events->base_ns + since_base(g, t->to);
    }
}

/* False when CUPTI has none at all. An op that launched nothing takes no time, where the one before it ended. */
static bool take_kernel_times(hr_cuda *g) {
    hr_kernel_time k;
    uint64_t at = g->events->base_ns;
    bool any = false;
    if (!hr_cupti_ready() || hr_cupti_collect() != HR_OK) return false;
    for (size_t i = 0; i < g->events->n && !any; i++) any = hr_cupti_find(g->events->ops[i].id, &k);
    for (size_t i = 0; i < g->events->n && any; i++) {
        const timed *t = &g->events->ops[i];
        if (!hr_cupti_find(t->id, &k)) k.start_ns = k.end_ns = at;
        at = k.end_ns;
        if (t->record) t->record->start_ns = k.start_ns, t->record->end_ns = k.end_ns;
    }
    return any;
}

void hr_cuda_record_end(hr_engine *e) {
    hr_cuda *g = e->cuda;
    if (!g->events || !hr_cuda_recording(e) || e->probe.planted) return;
    if (g->status == HR_OK && !take_kernel_times(g)) take_event_times(g);
    g->events->n = 0;
}
