#include "engine/probe.h"

#include "engine/nvtx.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const hr_phase_names[HR_PHASE_COUNT] = {"prefill", "decode"};

static void update(hr_probe *p) {
    p->on = (p->records.capacity && !p->paused) || p->level >= HR_NVTX_PHASE || p->planted;
}

/* "attention:300%": the op's place in plant[], or all of them. */
static hr_status plant_one(hr_probe *p, const char *text, size_t n) {
    const char *colon = memchr(text, ':', n);
    char *end = NULL;
    double percent = colon ? strtod(colon + 1, &end) : -1;
    if (!colon || end == colon + 1 || *end != '%' || end + 1 != text + n || !(percent >= 0 && percent <= 1e6))
        HR_FAIL(HR_ERR_USAGE, "HEADROOM_PLANT: '%.*s' is not OP:X%%, as attention:300%%", (int)n, text);
    size_t name = (size_t)(colon - text);
    bool all = name == 3 && !memcmp(text, "all", 3), found = all;
    for (int op = 0; op < HR_OP_COUNT; op++) {
        if (!all && (strlen(hr_op_names[op]) != name || memcmp(text, hr_op_names[op], name) != 0)) continue;
        p->plant[op] = percent / 100, found = true;
    }
    if (!found) HR_FAIL(HR_ERR_USAGE, "HEADROOM_PLANT: no op class '%.*s'; 'all' or one as attention", (int)name, text);
    p->planted = true;
    return HR_OK;
}

static hr_status plant_all(hr_probe *p) {
    const char *text = getenv("HEADROOM_PLANT");
    while (text && *text) {
        size_t n = strcspn(text, ",");
        HR_TRY(plant_one(p, text, n));
        text += n + (text[n] == ',');
    }
    return HR_OK;
}

hr_status hr_plant_check(void) {
    hr_probe unused = {0};
    return plant_all(&unused);
}

hr_status hr_probe_init(hr_probe *p) {
    memset(p, 0, sizeof *p);
    p->records.element = sizeof(hr_op_record), p->spans.element = sizeof(hr_thread_span);
    HR_TRY(plant_all(p));
    p->level = hr_nvtx_attached() ? hr_nvtx_get_level() : HR_NVTX_NONE;
    update(p);
    return HR_OK;
}

/* ---- where records go ---- */

static hr_status make_room(hr_probe_store *s, size_t capacity, bool ring) {
    s->n = s->lost = s->next = s->capacity = 0, s->ring = ring;
    if (capacity > s->space) {
        hr_free(s->at);
        s->space = 0;
        s->at = hr_calloc(capacity, s->element);
        if (!s->at) HR_FAIL(HR_ERR_MEMORY, "out of memory for records of %zu ops", capacity);
        memset(s->at, 0xff, capacity * s->element); /* touched before the timed region */
        s->space = capacity;
    }
    s->capacity = capacity;
    return HR_OK;
}

/* NULL: no space. */
static void *next_element(hr_probe_store *s) {
    if (s->n < s->capacity) return s->at + s->n++ * s->element;
    s->lost += s->capacity > 0;
    if (!s->ring || !s->capacity) return NULL;
    char *at = s->at + s->next * s->element;
    s->next = s->next + 1 < s->capacity ? s->next + 1 : 0;
    return at;
}

/* Elements from..end - 1 in the opposite order. */
static void turn_round(hr_probe_store *s, size_t from, size_t end) {
    char swap[sizeof(hr_op_record)];
    for (; from + 1 < end; from++) {
        char *a = s->at + from * s->element, *b = s->at + --end * s->element;
        memcpy(swap, a, s->element), memcpy(a, b, s->element), memcpy(b, swap, s->element);
    }
}

const void *hr_probe_read(hr_probe_store *s, size_t *n, size_t *lost) {
    if (s->next) {
        turn_round(s, 0, s->next), turn_round(s, s->next, s->n), turn_round(s, 0, s->n);
        s->next = 0;
    }
    *n = s->n;
    if (lost) *lost = s->lost;
    return s->at;
}

void hr_probe_reset(hr_probe *p) {
    p->records.n = p->records.lost = p->records.next = 0;
    p->spans.n = p->spans.lost = p->spans.next = 0;
}

/* ---- what the team did within an op ---- */

static void see_job(void *context, const hr_pool_span *spans, unsigned threads, uint64_t end_ns) {
    hr_probe *p = context;
    hr_op_record *r = &p->current;
    uint64_t most = 0, sum = 0;
    for (unsigned i = 0; i < threads; i++) {
        const uint64_t ns = spans[i].end_ns - spans[i].start_ns;
        sum += ns;
        if (ns > most) most = ns;
        hr_thread_span *s = i && ns && p->spans.capacity ? next_element(&p->spans) : NULL;
        if (s)
            *s = (hr_thread_span){.start_ns = spans[i].start_ns,
                                  .end_ns = spans[i].end_ns,
                                  .pass = r->pass,
                                  .layer = r->layer,
                                  .op = (uint8_t)r->op,
                                  .phase = (uint8_t)r->phase,
                                  .thread = (uint16_t)i};
    }
    const uint64_t wall = end_ns - spans[0].start_ns;
    r->jobs++;
    r->imbalance_ns += most - sum / threads;
    r->handoff_ns += wall > most ? wall - most : 0;
}

static void watch_team(hr_probe *p) {
    if (p->pool) hr_pool_set_watch(p->pool, p->records.capacity && !p->paused ? see_job : NULL, p);
    update(p);
}

void hr_probe_pause(hr_probe *p, bool paused) {
    p->paused = paused;
    watch_team(p);
}

hr_status hr_probe_record(hr_probe *p, size_t records, size_t spans, bool ring) {
    hr_status status = make_room(&p->records, records, ring);
    if (status == HR_OK) status = make_room(&p->spans, spans, ring);
    if (status != HR_OK) p->records.capacity = p->spans.capacity = 0;
    p->paused = false;
    watch_team(p);
    return status;
}

void hr_probe_fini(hr_probe *p) {
    hr_free(p->records.at), hr_free(p->spans.at);
    memset(p, 0, sizeof *p);
}

/* ---- ops and the ranges around them ---- */

void hr_probe_enter_(hr_probe *p, hr_op op, int layer, const char *kernel, hr_work work) {
    hr_op_record *r = &p->current;
    r->op = op, r->layer = (int16_t)layer, r->kernel = kernel;
    r->bytes = work.bytes, r->flops = work.flops, r->unit = work.unit;
    r->jobs = 0, r->imbalance_ns = r->handoff_ns = 0;
    if (p->level >= HR_NVTX_OP) hr_nvtx_push_op(op, r->phase, work.bytes);
    r->start_ns = hr_now_ns();
}

void hr_probe_leave_(hr_probe *p) {
    hr_op_record *r = &p->current;
    r->end_ns = hr_now_ns();
    if (p->plant[r->op] > 0) {
        uint64_t until = r->end_ns + (uint64_t)(p->plant[r->op] * (double)(r->end_ns - r->start_ns));
        while (r->end_ns < until) r->end_ns = hr_now_ns();
    }
    if (p->level >= HR_NVTX_OP) hr_nvtx_pop();
    hr_op_record *kept = p->paused ? NULL : next_element(&p->records);
    if (kept) *kept = *r;
    p->kept = kept;
}

void hr_probe_pass_begin_(hr_probe *p, hr_phase phase, uint32_t tokens) {
    p->current.phase = phase, p->current.tokens = tokens, p->current.pass++;
    if (p->level >= HR_NVTX_PHASE) hr_nvtx_push_phase(phase, tokens);
}

void hr_probe_range_(hr_probe *p, hr_nvtx_level level, int layer) {
    if (p->level < level) return;
    if (layer < 0)
        hr_nvtx_pop();
    else
        hr_nvtx_push_layer((uint32_t)layer, p->current.tokens);
}

/* ---- what recording costs ---- */

/* The least of several rounds: what a thread that is put off its CPU adds is not the probe's. */
hr_record_cost hr_engine_record_cost(void) {
    enum { ROUNDS = 20, OPS = 64 };
    static _Thread_local hr_op_record room[OPS];
    double op = INFINITY, clock = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        hr_probe p = {.on = true,
                      .records = {.at = (char *)room, .element = sizeof *room, .space = OPS, .capacity = OPS}};
        const uint64_t start = hr_now_ns();
        for (int i = 0; i < OPS; i++) {
            hr_probe_enter_(&p, HR_OP_DOWN, i, "", (hr_work){.bytes = 1});
            hr_probe_leave_(&p);
        }
        const uint64_t middle = hr_now_ns();
        uint64_t sum = 0;
        for (int i = 0; i < OPS; i++) sum ^= hr_now_ns();
        __asm__ volatile("" ::"r"(sum));
        const uint64_t end = hr_now_ns();
        op = fmin(op, (double)(middle - start) / OPS), clock = fmin(clock, (double)(end - middle) / OPS);
    }
    /* a job: the helper's two clock reads, the caller's one at the end, and the sums of see_job */
    return (hr_record_cost){.op_ns = op, .job_ns = 3.5 * clock};
}
