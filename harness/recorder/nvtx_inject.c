/* An injection library for NVTX version 3: the loader inside of every module that uses NVTX calls the one exported
 * function, which puts the recorder's functions into the module's table. */
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include "harness/recorder/nvtx_record.h"

#include <pthread.h>
#include <stdlib.h>

enum { RECORD_BYTES_MIN = 96 }; /* of an event in the trace: more records than file space / this are never written */

/* ---- what callers give -> hr_rec_event --------------------------------------------------------------------------- */

/* A handle is what domain_create returned: the number of the domain. NULL is the default domain, number 0. */
static inline uint16_t domain_number(nvtxDomainHandle_t domain) {
    return (uint16_t)(uintptr_t)domain;
}

static void take_payload(hr_rec_event *out, const nvtxEventAttributes_t *event) {
    const int32_t type = event->payloadType;
    double number = 0;
    out->payload_type = HR_REC_UNSIGNED;
    switch (type) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
        out->payload = event->payload.ullValue;
        return;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
        out->payload = event->payload.uiValue;
        return;
    case NVTX_PAYLOAD_TYPE_INT64:
        out->payload = (uint64_t)event->payload.llValue, out->payload_type = HR_REC_SIGNED;
        return;
    case NVTX_PAYLOAD_TYPE_INT32:
        out->payload = (uint64_t)(int64_t)event->payload.iValue, out->payload_type = HR_REC_SIGNED;
        return;
    case NVTX_PAYLOAD_TYPE_DOUBLE:
        number = event->payload.dValue;
        break;
    case NVTX_PAYLOAD_TYPE_FLOAT:
        number = (double)event->payload.fValue;
        break;
    default:
        out->payload_type = HR_REC_NONE;
        return;
    }
    out->payload_type = HR_REC_DOUBLE;
    out->payload = ((union {
                       double from;
                       uint64_t bits;
                   }){.from = number})
                       .bits;
}

static inline hr_rec_event take(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    hr_rec_event out = {.domain = domain_number(domain)};
    if (!event || event->size < sizeof *event) return out; /* older than this layout: an event without a name */
    out.category = event->category;
    if (event->payloadType) take_payload(&out, event);
    if (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
        out.name = (const hr_rec_name *)event->message.registered;
    else if (event->messageType == NVTX_MESSAGE_TYPE_ASCII)
        out.text = event->message.ascii;
    else if (event->messageType == NVTX_MESSAGE_TYPE_UNICODE)
        out.wide = event->message.unicode;
    return out;
}

/* ---- the functions of the table ---------------------------------------------------------------------------------- */

static int NVTX_API domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    const hr_rec_event e = take(domain, event);
    return hr_rec_push(&e);
}
static int NVTX_API domain_pop(nvtxDomainHandle_t domain) {
    return hr_rec_pop(domain_number(domain));
}
static nvtxRangeId_t NVTX_API domain_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    const hr_rec_event e = take(domain, event);
    return hr_rec_span_start(&e);
}
static void NVTX_API domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
    (void)domain;
    hr_rec_span_end(id);
}
static void NVTX_API domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    const hr_rec_event e = take(domain, event);
    hr_rec_mark(&e);
}

static int NVTX_API push_ex(const nvtxEventAttributes_t *event) {
    return domain_push(NULL, event);
}
static int NVTX_API push_a(const char *text) {
    return hr_rec_push(&(hr_rec_event){.text = text});
}
static int NVTX_API push_w(const wchar_t *text) {
    return hr_rec_push(&(hr_rec_event){.wide = text});
}
static int NVTX_API pop(void) {
    return hr_rec_pop(0);
}
static nvtxRangeId_t NVTX_API start_ex(const nvtxEventAttributes_t *event) {
    return domain_start(NULL, event);
}
static nvtxRangeId_t NVTX_API start_a(const char *text) {
    return hr_rec_span_start(&(hr_rec_event){.text = text});
}
static nvtxRangeId_t NVTX_API start_w(const wchar_t *text) {
    return hr_rec_span_start(&(hr_rec_event){.wide = text});
}
static void NVTX_API end(nvtxRangeId_t id) {
    hr_rec_span_end(id);
}
static void NVTX_API mark_ex(const nvtxEventAttributes_t *event) {
    domain_mark(NULL, event);
}
static void NVTX_API mark_a(const char *text) {
    hr_rec_mark(&(hr_rec_event){.text = text});
}
static void NVTX_API mark_w(const wchar_t *text) {
    hr_rec_mark(&(hr_rec_event){.wide = text});
}

static nvtxDomainHandle_t NVTX_API create_a(const char *name) {
    return (nvtxDomainHandle_t)(uintptr_t)hr_rec_domain_of(hr_rec_name_of(name, NULL));
}
static nvtxDomainHandle_t NVTX_API create_w(const wchar_t *name) {
    return (nvtxDomainHandle_t)(uintptr_t)hr_rec_domain_of(hr_rec_wide_name_of(name, NULL));
}
static nvtxStringHandle_t NVTX_API register_a(nvtxDomainHandle_t domain, const char *text) {
    (void)domain;
    return (nvtxStringHandle_t)hr_rec_name_of(text, NULL);
}
static nvtxStringHandle_t NVTX_API register_w(nvtxDomainHandle_t domain, const wchar_t *text) {
    (void)domain;
    return (nvtxStringHandle_t)hr_rec_wide_name_of(text, NULL);
}
static void NVTX_API domain_category_a(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
    hr_rec_name_category(domain_number(domain), category, hr_rec_name_of(name, NULL));
}
static void NVTX_API domain_category_w(nvtxDomainHandle_t domain, uint32_t category, const wchar_t *name) {
    hr_rec_name_category(domain_number(domain), category, hr_rec_wide_name_of(name, NULL));
}
static void NVTX_API category_a(uint32_t category, const char *name) {
    domain_category_a(NULL, category, name);
}
static void NVTX_API category_w(uint32_t category, const wchar_t *name) {
    domain_category_w(NULL, category, name);
}
static void NVTX_API thread_a(uint32_t thread, const char *name) {
    hr_rec_name_thread((long)thread, hr_rec_name_of(name, NULL));
}
static void NVTX_API thread_w(uint32_t thread, const wchar_t *name) {
    hr_rec_name_thread((long)thread, hr_rec_wide_name_of(name, NULL));
}

/* ---- attaching --------------------------------------------------------------------------------------------------- */

typedef struct entry {
    unsigned id;
    NvtxFunctionPointer function;
} entry;
#define ENTRY(id, function) \
    { id, (NvtxFunctionPointer)(function) }

static const entry core[] = {
    ENTRY(NVTX_CBID_CORE_MarkEx, mark_ex),
    ENTRY(NVTX_CBID_CORE_MarkA, mark_a),
    ENTRY(NVTX_CBID_CORE_MarkW, mark_w),
    ENTRY(NVTX_CBID_CORE_RangeStartEx, start_ex),
    ENTRY(NVTX_CBID_CORE_RangeStartA, start_a),
    ENTRY(NVTX_CBID_CORE_RangeStartW, start_w),
    ENTRY(NVTX_CBID_CORE_RangeEnd, end),
    ENTRY(NVTX_CBID_CORE_RangePushEx, push_ex),
    ENTRY(NVTX_CBID_CORE_RangePushA, push_a),
    ENTRY(NVTX_CBID_CORE_RangePushW, push_w),
    ENTRY(NVTX_CBID_CORE_RangePop, pop),
    ENTRY(NVTX_CBID_CORE_NameCategoryA, category_a),
    ENTRY(NVTX_CBID_CORE_NameCategoryW, category_w),
    ENTRY(NVTX_CBID_CORE_NameOsThreadA, thread_a),
    ENTRY(NVTX_CBID_CORE_NameOsThreadW, thread_w),
};
static const entry core2[] = {
    ENTRY(NVTX_CBID_CORE2_DomainMarkEx, domain_mark),
    ENTRY(NVTX_CBID_CORE2_DomainRangeStartEx, domain_start),
    ENTRY(NVTX_CBID_CORE2_DomainRangeEnd, domain_end),
    ENTRY(NVTX_CBID_CORE2_DomainRangePushEx, domain_push),
    ENTRY(NVTX_CBID_CORE2_DomainRangePop, domain_pop),
    ENTRY(NVTX_CBID_CORE2_DomainNameCategoryA, domain_category_a),
    ENTRY(NVTX_CBID_CORE2_DomainNameCategoryW, domain_category_w),
    ENTRY(NVTX_CBID_CORE2_DomainRegisterStringA, register_a),
    ENTRY(NVTX_CBID_CORE2_DomainRegisterStringW, register_w),
    ENTRY(NVTX_CBID_CORE2_DomainCreateA, create_a),
    ENTRY(NVTX_CBID_CORE2_DomainCreateW, create_w),
};

/* A slot may be missing in a module that was built with an older header. */
static bool fill(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module, const entry *entries, size_t n) {
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks->GetModuleFunctionTable(module, &table, &size) || !table) return false;
    for (size_t i = 0; i < n; i++)
        if (entries[i].id < size && table[entries[i].id]) *table[entries[i].id] = entries[i].function;
    return true;
}

static void in_child(void) {
    hr_rec_names_unlock();
    hr_rec_forget();
    hr_rec_settings_forked();
}

static void begin(void) {
    hr_rec_start((size_t)(hr_rec_settings_get()->max_bytes / RECORD_BYTES_MIN * sizeof(hr_rec)));
    pthread_atfork(hr_rec_names_lock, hr_rec_names_unlock, in_child);
    atexit(hr_rec_dump);
    at_quick_exit(hr_rec_dump);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const NvtxExportTableCallbacks *callbacks = get_table ? get_table(NVTX_ETID_CALLBACKS) : NULL;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks) return 0;
    pthread_once(&once, begin);
    if (!fill(callbacks, NVTX_CB_MODULE_CORE, core, sizeof core / sizeof core[0])) return 0;
    fill(callbacks, NVTX_CB_MODULE_CORE2, core2, sizeof core2 / sizeof core2[0]);
    return 1;
}
