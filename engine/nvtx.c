#include "engine/nvtx.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

const char *const hr_nvtx_level_names[HR_NVTX_LEVEL_COUNT] = {"none", "cell", "phase", "layer", "op"};

static hr_nvtx_level level = HR_NVTX_OP;

void hr_nvtx_set_level(hr_nvtx_level wanted) {
    level = wanted;
}

hr_nvtx_level hr_nvtx_get_level(void) {
    return level;
}

static char op_names[HR_OP_COUNT][HR_PHASE_COUNT][24];

static void make_op_names(void) {
    for (int op = 0; op < HR_OP_COUNT; op++)
        for (int phase = 0; phase < HR_PHASE_COUNT; phase++)
            snprintf(op_names[op][phase], sizeof op_names[op][phase], "%s:%s", hr_op_names[op], hr_phase_names[phase]);
}

const char *hr_op_range_name(hr_op op, hr_phase phase) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_op_names);
    return op_names[op][phase];
}

#ifdef HR_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

enum { LAYERS_MOST = 256, NAMED_MOST = 64, NAME_BYTES = 200 };

static nvtxDomainHandle_t domain; /* NULL as long as no tool is attached */
static nvtxStringHandle_t phases[HR_PHASE_COUNT], ops[HR_OP_COUNT][HR_PHASE_COUNT], any_layer, layers[LAYERS_MOST];
static uint32_t n_layers;
static struct {
    char text[NAME_BYTES];
    nvtxStringHandle_t handle;
} named[NAMED_MOST];
static size_t n_named;

bool hr_nvtx_built(void) {
    return true;
}

static void open_domain(void) {
    domain = nvtxDomainCreateA("headroom");
    if (!domain) return;
    for (uint32_t i = HR_NVTX_CELL; i < HR_NVTX_LEVEL_COUNT; i++)
        nvtxDomainNameCategoryA(domain, i, hr_nvtx_level_names[i]);
    any_layer = nvtxDomainRegisterStringA(domain, "layer");
    for (int phase = 0; phase < HR_PHASE_COUNT; phase++) {
        phases[phase] = nvtxDomainRegisterStringA(domain, hr_phase_names[phase]);
        for (int op = 0; op < HR_OP_COUNT; op++)
            ops[op][phase] = nvtxDomainRegisterStringA(domain, hr_op_range_name((hr_op)op, (hr_phase)phase));
    }
}

bool hr_nvtx_attached(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_domain);
    return domain != NULL;
}

static void push(hr_nvtx_level category, nvtxStringHandle_t name, uint64_t payload) {
    const nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .category = category,
                                         .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                         .payload.ullValue = payload,
                                         .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
                                         .message.registered = name};
    nvtxDomainRangePushEx(domain, &event);
}

void hr_nvtx_name_layers(uint32_t n) {
    char text[24];
    for (; n_layers < n && n_layers < LAYERS_MOST; n_layers++) {
        snprintf(text, sizeof text, "layer %u", n_layers);
        layers[n_layers] = nvtxDomainRegisterStringA(domain, text);
    }
}

void hr_nvtx_push_phase(hr_phase phase, uint64_t tokens) {
    push(HR_NVTX_PHASE, phases[phase], tokens);
}

void hr_nvtx_push_layer(uint32_t layer, uint64_t tokens) {
    push(HR_NVTX_LAYER, layer < n_layers ? layers[layer] : any_layer, tokens);
}

void hr_nvtx_push_op(hr_op op, hr_phase phase, uint64_t bytes) {
    push(HR_NVTX_OP, ops[op][phase], bytes);
}

void hr_nvtx_pop(void) {
    nvtxDomainRangePop(domain);
}

/* A name beyond the table's room is registered each time: rare, and only slower. */
static nvtxStringHandle_t handle_of(const char *name) {
    for (size_t i = 0; i < n_named; i++)
        if (!strcmp(named[i].text, name)) return named[i].handle;
    const nvtxStringHandle_t handle = nvtxDomainRegisterStringA(domain, name);
    if (n_named < NAMED_MOST && strlen(name) < NAME_BYTES) {
        strcpy(named[n_named].text, name);
        named[n_named++].handle = handle;
    }
    return handle;
}

void hr_nvtx_begin(const char *name, uint64_t payload) {
    if (hr_nvtx_attached() && level >= HR_NVTX_CELL) push(HR_NVTX_CELL, handle_of(name), payload);
}

void hr_nvtx_end(void) {
    if (hr_nvtx_attached() && level >= HR_NVTX_CELL) hr_nvtx_pop();
}

void hr_nvtx_push_capture(void) {
    push(HR_NVTX_CELL, handle_of("capture"), 0);
}
#else
bool hr_nvtx_built(void) {
    return false;
}
bool hr_nvtx_attached(void) {
    return false;
}
void hr_nvtx_begin(const char *name, uint64_t payload) {
    (void)name, (void)payload;
}
void hr_nvtx_end(void) {}
void hr_nvtx_name_layers(uint32_t n) {
    (void)n;
}
void hr_nvtx_push_phase(hr_phase phase, uint64_t tokens) {
    (void)phase, (void)tokens;
}
void hr_nvtx_push_layer(uint32_t layer, uint64_t tokens) {
    (void)layer, (void)tokens;
}
void hr_nvtx_push_op(hr_op op, hr_phase phase, uint64_t bytes) {
    (void)op, (void)phase, (void)bytes;
}
void hr_nvtx_push_capture(void) {}
void hr_nvtx_pop(void) {}
#endif
