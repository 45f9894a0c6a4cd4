// fake_nvml.cpp - the stand-in for NVIDIA's management library: one device for each of the fake driver, under the same UUID.
//
// Environment, read anew at every call, so that a test can change it while it runs:
//     HR_FAKE_NVML       "power=350,limit=700,min=200,max=700,default=700,temperature=45,sm=1980,max_sm=1980,memory=3201,
//                        reasons=0,slowed=0,busy=0,devices=1,root=1": watts, degrees, MHz, bits, seconds. "A/B/C" instead of
//                        a number: A at the first call that asks for it, then B, then C, which stays
//     HR_FAKE_NVML_FAIL  "nvmlInit_v2:9,nvmlDeviceGetPowerUsage:3": functions that always return a code (3: not supported)
// root=0: nobody may set the power limit. Energy is power times the time since the library was initialized.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>

namespace {

enum { DONE = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7 };

struct utilization {
    unsigned gpu, memory;
};
struct violation {
    unsigned long long at, ns;
};
struct device {
    unsigned index;
};

device devices[64];
std::recursive_mutex lock;
pid_t owner;
double start;
double limit_w = -1; // that was set
struct sequence {
    std::string text;
    unsigned at;
};
std::map<std::string, sequence> asked; // where a key is in "A/B/C"

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The value of KEY in "A=1,KEY=2/3".
bool find(const char *list, const char *key, char *out, size_t n) {
    const size_t length = strlen(key);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        if (strncmp(at, key, length) || (at[length] != '=' && at[length] != ':')) continue;
        const char *value = at + length + 1;
        const size_t bytes = strcspn(value, ",");
        snprintf(out, n, "%.*s", (int)bytes, value);
        return true;
    }
    return false;
}

double fact(const char *key, double usual) {
    char text[256];
    if (!find(getenv("HR_FAKE_NVML"), key, text, sizeof text)) return usual;
    sequence &s = asked[key];
    if (s.text != text) s = {text, 0};
    const char *at = text;
    for (unsigned i = s.at++; i && strchr(at, '/'); i--) at = strchr(at, '/') + 1;
    return at[0] == '0' && at[1] == 'x' ? (double)strtoull(at, nullptr, 16) : strtod(at, nullptr);
}

// What a function returns before it does anything.
int door(const char *function) {
    char code[16];
    if (find(getenv("HR_FAKE_NVML_FAIL"), function, code, sizeof code)) return atoi(code);
    return strcmp(function, "nvmlInit_v2") && owner != getpid() ? UNINITIALIZED : DONE;
}
#define HR_NVML_ENTER(function)                             \
    const std::lock_guard<std::recursive_mutex> held(lock); \
    if (const int refused = door(#function)) return refused

unsigned count() {
    const double n = fact("devices", 1);
    return n < 0 ? 0 : n > 64 ? 64 : (unsigned)n;
}

int uuid_of(unsigned index, char *out, unsigned n) { // as the fake driver makes them
    char text[48];
    int at = snprintf(text, sizeof text, "GPU");
    for (unsigned i = 0; i < 16; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%02x",
                       i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (0xfa + 17 * i + index) & 0xff);
    if (n <= (unsigned)at) return TOO_SMALL;
    snprintf(out, n, "%s", text);
    return DONE;
}

int give(unsigned *out, double value) {
    if (!out) return INVALID;
    *out = (unsigned)value;
    return DONE;
}

double limit() {
    return limit_w >= 0 ? limit_w : fact("limit", 700);
}

} // namespace

#define API extern "C" __attribute__((visibility("default")))
API int nvmlInit_v2(void) {
    HR_NVML_ENTER(nvmlInit_v2);
    owner = getpid();
    start = now();
    for (unsigned i = 0; i < 64; i++) devices[i].index = i;
    return DONE;
}
API int nvmlShutdown(void) {
    HR_NVML_ENTER(nvmlShutdown);
    owner = 0;
    return DONE;
}
API const char *nvmlErrorString(int code) {
    switch (code) {
    case UNINITIALIZED:
        return "Uninitialized";
    case INVALID:
        return "Invalid Argument";
    case NOT_SUPPORTED:
        return "Not Supported";
    case NO_PERMISSION:
        return "Insufficient Permissions";
    case NOT_FOUND:
        return "Not Found";
    case 9:
        return "Driver Not Loaded";
    case 15:
        return "GPU is lost";
    default:
        return "Unknown Error";
    }
}
API int nvmlSystemGetDriverVersion(char *out, unsigned n) {
    HR_NVML_ENTER(nvmlSystemGetDriverVersion);
    snprintf(out, n, "580.00.fake");
    return DONE;
}
API int nvmlDeviceGetCount_v2(unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetCount_v2);
    return give(out, count());
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
    HR_NVML_ENTER(nvmlDeviceGetHandleByIndex_v2);
    if (index >= count() || !out) return INVALID;
    *out = &devices[index];
    return DONE;
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, device **out) {
    HR_NVML_ENTER(nvmlDeviceGetHandleByUUID);
    for (unsigned i = 0; i < count(); i++) {
        char mine[48];
        uuid_of(i, mine, sizeof mine);
        if (strcmp(mine, uuid)) continue;
        *out = &devices[i];
        return DONE;
    }
    return NOT_FOUND;
}
API int nvmlDeviceGetName(device *d, char *out, unsigned n) {
    HR_NVML_ENTER(nvmlDeviceGetName);
    (void)d;
    snprintf(out, n, "Headroom simulated GPU");
    return DONE;
}
API int nvmlDeviceGetUUID(device *d, char *out, unsigned n) {
    HR_NVML_ENTER(nvmlDeviceGetUUID);
    return uuid_of(d->index, out, n);
}
API int nvmlDeviceGetPersistenceMode(device *d, int *out) {
    HR_NVML_ENTER(nvmlDeviceGetPersistenceMode);
    (void)d;
    *out = (int)fact("persistence", 1);
    return DONE;
}
API int nvmlDeviceGetEccMode(device *d, int *now_on, int *pending) {
    HR_NVML_ENTER(nvmlDeviceGetEccMode);
    (void)d;
    *now_on = *pending = (int)fact("ecc", 1);
    return DONE;
}
API int nvmlDeviceGetClockInfo(device *d, int which, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetClockInfo);
    (void)d;
    return which == 2                 ? give(out, fact("memory", 3201))
           : which == 0 || which == 1 ? give(out, fact("sm", 1980))
                                      : INVALID;
}
API int nvmlDeviceGetMaxClockInfo(device *d, int which, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetMaxClockInfo);
    (void)d;
    return which == 2 ? give(out, fact("memory", 3201)) : give(out, fact("max_sm", 1980));
}
API int nvmlDeviceGetUtilizationRates(device *d, utilization *out) {
    HR_NVML_ENTER(nvmlDeviceGetUtilizationRates);
    (void)d;
    *out = {(unsigned)fact("busy", 0), 0};
    return DONE;
}
API int nvmlDeviceGetPowerUsage(device *d, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetPowerUsage);
    (void)d;
    return give(out, 1e3 * fact("power", 350));
}
API int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetTemperature);
    (void)d;
    return sensor ? INVALID : give(out, fact("temperature", 45));
}
static int reasons(unsigned long long *out) {
    *out = (unsigned long long)fact("reasons", 0);
    return DONE;
}
API int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *out) {
    HR_NVML_ENTER(nvmlDeviceGetCurrentClocksEventReasons);
    (void)d;
    return reasons(out);
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *out) {
    HR_NVML_ENTER(nvmlDeviceGetCurrentClocksThrottleReasons);
    (void)d;
    return reasons(out);
}
API int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *out) { // millijoules
    HR_NVML_ENTER(nvmlDeviceGetTotalEnergyConsumption);
    (void)d;
    *out = (unsigned long long)(1e6 + 1e3 * fact("power", 350) * (now() - start));
    return DONE;
}
API int nvmlDeviceGetViolationStatus(device *d, int policy, violation *out) {
    HR_NVML_ENTER(nvmlDeviceGetViolationStatus);
    (void)d;
    *out = {(unsigned long long)(1e6 * now()), policy == 0 ? (unsigned long long)(1e9 * fact("slowed", 0)) : 0};
    return DONE;
}
API int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetEnforcedPowerLimit);
    (void)d;
    return give(out, 1e3 * limit());
}
API int nvmlDeviceGetPowerManagementLimit(device *d, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetPowerManagementLimit);
    (void)d;
    return give(out, 1e3 * limit());
}
API int nvmlDeviceGetPowerManagementDefaultLimit(device *d, unsigned *out) {
    HR_NVML_ENTER(nvmlDeviceGetPowerManagementDefaultLimit);
    (void)d;
    return give(out, 1e3 * fact("default", 700));
}
API int nvmlDeviceGetPowerManagementLimitConstraints(device *d, unsigned *least, unsigned *most) {
    HR_NVML_ENTER(nvmlDeviceGetPowerManagementLimitConstraints);
    (void)d;
    return give(least, 1e3 * fact("min", 200)) ? INVALID : give(most, 1e3 * fact("max", 700));
}
API int nvmlDeviceSetPowerManagementLimit(device *d, unsigned milliwatts) {
    HR_NVML_ENTER(nvmlDeviceSetPowerManagementLimit);
    (void)d;
    if (!fact("root", 1)) return NO_PERMISSION;
    if (milliwatts < 1e3 * fact("min", 200) || milliwatts > 1e3 * fact("max", 700)) return INVALID;
    limit_w = milliwatts * 1e-3;
    return DONE;
}
