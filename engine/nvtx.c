#include "engine/nvtx.h"

#ifdef HR_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain; /* NULL as long as no tool is attached */
static nvtxStringHandle_t strings[HR_NVTX_NAME_COUNT];
static bool opened;

bool hr_nvtx_open(void) {
    if (opened) return domain != NULL;
    opened = true;
    domain = nvtxDomainCreateA("headroom");
    if (!domain) return false;
    nvtxDomainNameCategoryA(domain, HR_NVTX_PHASE, "phase");
    nvtxDomainNameCategoryA(domain, HR_NVTX_LAYER, "layer");
    nvtxDomainNameCategoryA(domain, HR_NVTX_OP, "op");
    strings[HR_NVTX_NAME_LAYER] = nvtxDomainRegisterStringA(domain, "layer");
    for (int i = 0; i < HR_PHASE_COUNT; i++)
        strings[HR_NVTX_NAME_PHASES + i] = nvtxDomainRegisterStringA(domain, hr_phase_names[i]);
    for (int i = 0; i < HR_OP_COUNT; i++)
        strings[HR_NVTX_NAME_OPS + i] = nvtxDomainRegisterStringA(domain, hr_op_names[i]);
    return true;
}

void hr_nvtx_push(hr_nvtx_level category, unsigned name, uint64_t payload) {
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .category = category,
                                   .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                   .payload.ullValue = payload,
                                   .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
                                   .message.registered = strings[name]};
    nvtxDomainRangePushEx(domain, &event);
}

void hr_nvtx_pop(void) {
    nvtxDomainRangePop(domain);
}
#else
bool hr_nvtx_open(void) {
    return false;
}
void hr_nvtx_push(hr_nvtx_level category, unsigned name, uint64_t payload) {
    (void)category, (void)name, (void)payload;
}
void hr_nvtx_pop(void) {}
#endif
