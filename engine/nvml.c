/* The management library of NVIDIA's driver.
 *
 * Source of names, argument types, units and bits: NVML API Reference. The ABI of these functions has been stable since they
 * came; those that are newer are optional. */
#include "engine/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hr_nvml_device {
    char opaque; /* nvmlDevice_t points to something of the library's */
};

enum { DONE = 0, NO_PERMISSION = 4 };                                  /* nvmlReturn_t */
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };                               /* nvmlClockType_t */
enum { SENSOR_GPU = 0 };                                               /* nvmlTemperatureSensors_t */
enum { POLICY_POWER = 0, POLICY_THERMAL = 1, POLICY_BOARD = 3 };       /* nvmlPerfPolicyType_t */
enum { SLOWING = 0x04 | 0x08 | 0x20 | 0x40 | 0x80, REASON_COUNT = 9 }; /* power cap; hardware, heat, heat, brake */

typedef struct utilization {
    unsigned gpu, memory;
} utilization;
typedef struct violation {
    unsigned long long at, ns;
} violation;

/* clang-format off */
#define NVML_LIST(X)                                                                                   \
    X(init, "nvmlInit_v2", (void))                                                                     \
    X(driver, "nvmlSystemGetDriverVersion", (char *, unsigned))                                        \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                                    \
    X(by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned, hr_nvml_device **))                        \
    X(by_uuid, "nvmlDeviceGetHandleByUUID", (const char *, hr_nvml_device **))                         \
    X(name, "nvmlDeviceGetName", (hr_nvml_device *, char *, unsigned))                                 \
    X(uuid, "nvmlDeviceGetUUID", (hr_nvml_device *, char *, unsigned))                                 \
    X(persistence, "nvmlDeviceGetPersistenceMode", (hr_nvml_device *, int *))                          \
    X(ecc, "nvmlDeviceGetEccMode", (hr_nvml_device *, int *, int *))                                   \
    X(clock, "nvmlDeviceGetClockInfo", (hr_nvml_device *, int, unsigned *))                            \
    X(max_clock, "nvmlDeviceGetMaxClockInfo", (hr_nvml_device *, int, unsigned *))                     \
    X(busy, "nvmlDeviceGetUtilizationRates", (hr_nvml_device *, utilization *))                        \
    X(power, "nvmlDeviceGetPowerUsage", (hr_nvml_device *, unsigned *))                                \
    X(temperature, "nvmlDeviceGetTemperature", (hr_nvml_device *, int, unsigned *))
#define NVML_OPTIONAL(X)                                                                               \
    X(reasons, "nvmlDeviceGetCurrentClocksEventReasons", (hr_nvml_device *, unsigned long long *))     \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", (hr_nvml_device *, unsigned long long *))         \
    X(violations, "nvmlDeviceGetViolationStatus", (hr_nvml_device *, int, violation *))                \
    X(limit, "nvmlDeviceGetEnforcedPowerLimit", (hr_nvml_device *, unsigned *))                        \
    X(default_limit, "nvmlDeviceGetPowerManagementDefaultLimit", (hr_nvml_device *, unsigned *))       \
    X(limits, "nvmlDeviceGetPowerManagementLimitConstraints", (hr_nvml_device *, unsigned *, unsigned *)) \
    X(set_limit, "nvmlDeviceSetPowerManagementLimit", (hr_nvml_device *, unsigned))
/* clang-format on */

typedef struct nvml {
#define X(field, symbol, arguments) int(*field) arguments;
    NVML_LIST(X)
    NVML_OPTIONAL(X)
#undef X
    const char *(*error_text)(int);
} nvml;

static nvml nv;
static _Atomic pid_t owner; /* the process that initialized it last */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char unavailable[256]; /* "" when the library answered */

static bool resolve(void *library, const char *symbol, void *to) {
    void *found = dlsym(library, symbol);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

static const char *error_text(int error) {
    const char *text = nv.error_text ? nv.error_text(error) : NULL;
    return text ? text : "no text";
}

static void open_library(void) {
    const char *file = getenv("HEADROOM_LIBNVML");
    if (!file || !*file) file = "libnvidia-ml.so.1";
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(unavailable, sizeof unavailable, "there is no management library of NVIDIA's driver here (%.128s)",
                 file);
        return;
    }
    const char *lacks = NULL;
#define X(field, symbol, arguments) \
    if (!resolve(library, symbol, &nv.field) && !lacks) lacks = symbol;
    NVML_LIST(X)
#undef X
#define X(field, symbol, arguments) resolve(library, symbol, &nv.field);
    NVML_OPTIONAL(X)
#undef X
    if (!nv.reasons)
        resolve(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &nv.reasons); /* its name before 535 */
    resolve(library, "nvmlErrorString", &nv.error_text);
    if (lacks) snprintf(unavailable, sizeof unavailable, "%.128s lacks %s: the NVIDIA driver is too old", file, lacks);
}

/* A process that was forked from one that had opened the library initializes it again. */
static hr_status open_nvml(void) {
    pthread_once(&once, open_library);
    if (!*unavailable && atomic_exchange(&owner, getpid()) != getpid()) {
        const int error = nv.init();
        if (error != DONE)
            snprintf(unavailable, sizeof unavailable, "nvmlInit_v2: %.128s (%d)", error_text(error), error);
    }
    if (*unavailable) HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: %s", unavailable);
    return HR_OK;
}

/* ---- one device -------------------------------------------------------------------------------------------------- */

void hr_nvml_uuid(const unsigned char u[16], char out[48]) {
    snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

hr_status hr_nvml_find(const char *uuid, hr_nvml_device **out) {
    HR_TRY(open_nvml());
    int error = nv.by_uuid(uuid, out);
    if (error != DONE && !strncmp(uuid, "GPU-", 4)) { /* CUDA does not tell the two apart */
        char slice[64];
        snprintf(slice, sizeof slice, "MIG-%.58s", uuid + 4);
        if (nv.by_uuid(slice, out) == DONE) error = DONE;
    }
    if (error != DONE) HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: no device %s: %s (%d)", uuid, error_text(error), error);
    return HR_OK;
}

typedef int get_unsigned(hr_nvml_device *, unsigned *);

static double scaled(get_unsigned *get, hr_nvml_device *device, double scale) {
    unsigned value;
    return get && get(device, &value) == DONE ? value * scale : NAN;
}

static double megahertz(hr_nvml_device *device, int which) {
    unsigned mhz;
    return nv.clock(device, which, &mhz) == DONE ? mhz : NAN;
}

/* Counters of time since the driver was loaded, one a cause; causes may overlap, so the largest is what can be told. */
static double slowed_s(hr_nvml_device *device) {
    static const int policies[] = {POLICY_POWER, POLICY_THERMAL, POLICY_BOARD};
    double most = NAN;
    for (size_t i = 0; nv.violations && i < sizeof policies / sizeof *policies; i++) {
        violation v = {0};
        if (nv.violations(device, policies[i], &v) == DONE) most = fmax(most, (double)v.ns * 1e-9);
    }
    return most;
}

void hr_nvml_read(hr_nvml_device *device, hr_gpu_state *out) {
    unsigned long long value;
    unsigned celsius;
    out->sm_mhz = megahertz(device, CLOCK_SM);
    out->memory_mhz = megahertz(device, CLOCK_MEMORY);
    out->temperature_c = nv.temperature(device, SENSOR_GPU, &celsius) == DONE ? celsius : NAN;
    out->power_w = scaled(nv.power, device, 1e-3);
    out->power_limit_w = scaled(nv.limit, device, 1e-3);
    out->energy_j = nv.energy && nv.energy(device, &value) == DONE ? (double)value * 1e-3 : NAN;
    out->slowed_s = slowed_s(device);
    out->reasons = nv.reasons && nv.reasons(device, &value) == DONE ? value : 0;
    out->throttled = (out->reasons & SLOWING) != 0;
}

hr_status hr_nvml_set_power_limit(hr_nvml_device *device, double watts) {
    unsigned least = 0, most = 0, usual = 0;
    if (!nv.set_limit || !nv.limits || nv.limits(device, &least, &most) != DONE)
        HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: the power limit of this GPU cannot be set");
    if (watts == 0 && (!nv.default_limit || nv.default_limit(device, &usual) != DONE))
        HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: this GPU does not tell its default power limit; give it in watts");
    const double milliwatts = watts == 0 ? usual : watts * 1e3;
    if (!(milliwatts >= least && milliwatts <= most))
        HR_FAIL(HR_ERR_USAGE, "a power limit of %g W: this GPU takes %g to %g W", watts, least * 1e-3, most * 1e-3);
    const int error = nv.set_limit(device, (unsigned)lround(milliwatts));
    if (error == NO_PERMISSION)
        HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: only root may set the power limit; sudo nvidia-smi -pl %.0f sets it before",
                milliwatts * 1e-3);
    if (error != DONE)
        HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: the power limit of %.0f W was refused: %s (%d)", milliwatts * 1e-3,
                error_text(error), error);
    return HR_OK;
}

/* ---- all devices ------------------------------------------------------------------------------------------------- */

static void list(unsigned i, hr_gpu_listed *out) {
    *out = (hr_gpu_listed){.persistence = -1,
                           .ecc = -1,
                           .sm_mhz = -1,
                           .max_sm_mhz = -1,
                           .busy_pct = -1,
                           .reasons = -1,
                           .power_w = NAN,
                           .power_limit_w = NAN};
    hr_nvml_device *device;
    unsigned mhz;
    unsigned long long reasons;
    utilization busy;
    int pending;
    if (nv.by_index(i, &device) != DONE) return;
    if (nv.name(device, out->name, sizeof out->name) != DONE) *out->name = 0;
    if (nv.uuid(device, out->uuid, sizeof out->uuid) != DONE) *out->uuid = 0;
    if (nv.persistence(device, &out->persistence) != DONE) out->persistence = -1;
    if (nv.ecc(device, &out->ecc, &pending) != DONE) out->ecc = -1;
    if (nv.clock(device, CLOCK_SM, &mhz) == DONE) out->sm_mhz = (int)mhz;
    if (nv.max_clock(device, CLOCK_SM, &mhz) == DONE) out->max_sm_mhz = (int)mhz;
    if (nv.busy(device, &busy) == DONE) out->busy_pct = (int)busy.gpu;
    if (nv.reasons && nv.reasons(device, &reasons) == DONE) out->reasons = (int64_t)(reasons & INT64_MAX);
    out->power_w = scaled(nv.power, device, 1e-3);
    out->power_limit_w = scaled(nv.limit, device, 1e-3);
}

hr_status hr_gpu_survey_get(hr_gpu_survey *out) {
    unsigned count;
    *out = (hr_gpu_survey){0};
    HR_TRY(open_nvml());
    if (nv.driver(out->driver, sizeof out->driver) != DONE) *out->driver = 0;
    const int error = nv.count(&count);
    if (error != DONE) HR_FAIL(HR_ERR_UNSUPPORTED, "NVML: nvmlDeviceGetCount_v2: %s (%d)", error_text(error), error);
    out->n = count < HR_GPU_SURVEY_MAX ? count : HR_GPU_SURVEY_MAX;
    for (unsigned i = 0; i < out->n; i++) list(i, &out->devices[i]);
    return HR_OK;
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

void hr_gpu_reasons_text(uint64_t reasons, char *out, size_t n) {
    static const char *const names[REASON_COUNT] = {"gpu_idle",    "clocks_set",     "sw_power_cap",
                                                    "hw_slowdown", "sync_boost",     "sw_thermal",
                                                    "hw_thermal",  "hw_power_brake", "display_clocks"};
    size_t at = 0;
    if (n) *out = 0;
    for (unsigned bit = 0; bit < 64 && at < n; bit++) {
        if (!(reasons >> bit & 1)) continue;
        char number[24];
        snprintf(number, sizeof number, "0x%llx", 1ull << bit);
        const int put = snprintf(out + at, n - at, "%s%s", at ? ";" : "", bit < REASON_COUNT ? names[bit] : number);
        at += (size_t)put;
    }
}
