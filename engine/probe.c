#include "engine/probe.h"

#include "engine/nvtx.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

const char *const hr_phase_names[HR_PHASE_COUNT] = {"prefill", "decode"};

static void update(hr_probe *p) {
    p->on = p->capacity || p->nvtx || p->planted;
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
    HR_TRY(plant_all(p));
    p->nvtx = hr_nvtx_open();
    update(p);
    return HR_OK;
}

hr_status hr_probe_record(hr_probe *p, size_t capacity) {
    p->capacity = p->n = p->lost = 0;
    update(p);
    if (capacity > p->space) {
        hr_free(p->records);
        p->space = 0;
        p->records = hr_calloc(capacity, sizeof *p->records);
        if (!p->records) HR_FAIL(HR_ERR_MEMORY, "out of memory for records of %zu ops", capacity);
        memset(p->records, 0xff, capacity * sizeof *p->records); /* touched before the timed region */
        p->space = capacity;
    }
    p->capacity = capacity;
    update(p);
    return HR_OK;
}

void hr_probe_fini(hr_probe *p) {
    hr_free(p->records);
    memset(p, 0, sizeof *p);
}

void hr_probe_enter_(hr_probe *p, hr_op op, int layer, const char *kernel, hr_work work) {
    hr_op_record *r = &p->current;
    r->op = op, r->layer = (int16_t)layer, r->kernel = kernel;
    r->bytes = work.bytes, r->flops = work.flops, r->unit = work.unit;
    if (p->nvtx) hr_nvtx_push(HR_NVTX_OP, HR_NVTX_NAME_OPS + op, work.bytes);
    r->start_ns = hr_now_ns();
}

void hr_probe_leave_(hr_probe *p) {
    hr_op_record *r = &p->current;
    r->end_ns = hr_now_ns();
    if (p->plant[r->op] > 0) {
        uint64_t until = r->end_ns + (uint64_t)(p->plant[r->op] * (double)(r->end_ns - r->start_ns));
        while (r->end_ns < until) r->end_ns = hr_now_ns();
    }
    if (p->nvtx) hr_nvtx_pop();
    if (p->n < p->capacity)
        p->records[p->n++] = *r;
    else if (p->capacity)
        p->lost++;
}

void hr_probe_pass_begin(hr_probe *p, hr_phase phase, uint32_t tokens) {
    p->current.phase = phase, p->current.tokens = tokens;
    if (p->nvtx) hr_nvtx_push(HR_NVTX_PHASE, HR_NVTX_NAME_PHASES + phase, tokens);
}

void hr_probe_pass_end(hr_probe *p) {
    if (p->nvtx) hr_nvtx_pop();
}

void hr_probe_layer_begin(hr_probe *p, int layer) {
    if (p->nvtx) hr_nvtx_push(HR_NVTX_LAYER, HR_NVTX_NAME_LAYER, (uint64_t)layer);
}

void hr_probe_layer_end(hr_probe *p) {
    if (p->nvtx) hr_nvtx_pop();
}
