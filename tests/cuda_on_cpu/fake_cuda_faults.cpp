// fake_cuda_faults.cpp - which call fails, names of errors, and which of them stay.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake {

// Code, text of cuGetErrorString.
static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define E(name, text) {name, #name, text},
    E(CUDA_SUCCESS, "no error") E(CUDA_ERROR_INVALID_VALUE, "invalid argument") E(
        CUDA_ERROR_OUT_OF_MEMORY, "out of memory") E(CUDA_ERROR_NOT_INITIALIZED,
                                                     "initialization error") E(CUDA_ERROR_DEINITIALIZED,
                                                                               "driver shutting down")
        E(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable") E(
            CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected") E(CUDA_ERROR_INVALID_DEVICE,
                                                                          "invalid device ordinal")
            E(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid") E(
                CUDA_ERROR_INVALID_CONTEXT, "invalid device context") E(CUDA_ERROR_MAP_FAILED,
                                                                        "mapping of buffer object failed")
                E(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device") E(
                    CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered") E(CUDA_ERROR_CONTAINED,
                                                                                           "memory error contained")
                    E(CUDA_ERROR_INVALID_PTX,
                      "a PTX JIT compilation failed") E(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                                        "the provided PTX was compiled with an unsupported toolchain")
                        E(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS") E(
                            CUDA_ERROR_INVALID_HANDLE,
                            "invalid resource handle") E(CUDA_ERROR_ILLEGAL_STATE,
                                                         "the operation cannot be performed in the present state")
                            E(CUDA_ERROR_NOT_FOUND, "named symbol not found") E(
                                CUDA_ERROR_NOT_READY, "device not ready") E(CUDA_ERROR_ILLEGAL_ADDRESS,
                                                                            "an illegal memory access was encountered")
                                E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch") E(
                                    CUDA_ERROR_LAUNCH_TIMEOUT,
                                    "the launch timed out and was terminated") E(CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                                                                 "context is destroyed")
                                    E(CUDA_ERROR_ASSERT, "device-side assert triggered") E(
                                        CUDA_ERROR_HARDWARE_STACK_ERROR,
                                        "hardware stack error") E(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                                                  "an illegal instruction was encountered")
                                        E(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address") E(
                                            CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                            "operation not supported on global/shared address space")
                                            E(CUDA_ERROR_INVALID_PC, "invalid program counter") E(
                                                CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")
                                                E(CUDA_ERROR_NOT_PERMITTED, "operation not permitted") E(
                                                    CUDA_ERROR_NOT_SUPPORTED,
                                                    "operation not supported") E(CUDA_ERROR_SYSTEM_NOT_READY,
                                                                                 "system not yet initialized")
                                                    E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                                                      "system has unsupported display driver / cuda driver combination")
                                                        E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                                          "operation not permitted when stream is capturing")
                                                            E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                                                              "operation failed due to a previous error during capture")
                                                                E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                                                  "operation would make the legacy stream depend on a "
                                                                  "capturing blocking stream")
                                                                    E(CUDA_ERROR_CAPTURED_EVENT,
                                                                      "operation not permitted on an event last "
                                                                      "recorded in a capturing stream")
                                                                        E(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                                                                          "attempt to terminate a thread-local capture "
                                                                          "sequence from another thread")
                                                                            E(CUDA_ERROR_UNKNOWN, "unknown error")
#undef E
};

const char *error_name(CUresult code) {
    for (const auto &e : errors)
        if (e.code == code) return e.name;
    return nullptr;
}

bool loses(CUresult code) {
    return code == CUDA_ERROR_DEVICE_UNAVAILABLE || code == CUDA_ERROR_UNKNOWN || code == CUDA_ERROR_ECC_UNCORRECTABLE;
}

bool ruins(CUresult code) {
    switch (code) {
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return loses(code);
    }
}

// ---- what is armed ----

struct fault {
    std::string function; // "": any
    uint64_t nth;
    strike does;
};
static struct {
    std::vector<fault> faults;
    std::vector<const char *> calls;
    std::map<std::string, uint64_t> counts;
    uint64_t struck = 0;
} &armed = *new std::remove_reference_t<decltype(armed)>;

static bool read_code(const std::string &text, CUresult *out) {
    for (const auto &e : errors)
        if (text == e.name) {
            *out = e.code;
            return true;
        }
    char *end;
    *out = (CUresult)strtol(text.c_str(), &end, 10);
    return !text.empty() && !*end && *out > 0;
}

static bool read_fault(const std::string &text, fault *out) {
    std::vector<std::string> parts(1);
    for (const char c : text)
        if (c == ':')
            parts.emplace_back();
        else
            parts.back() += c;
    if (parts.size() < 2 || parts.size() > 4) return false;
    const bool any = parts[1] == "ANY";
    char *end;
    const std::string &number = parts[any ? 0 : 1];
    *out = {any ? "" : parts[0], strtoull(number.c_str(), &end, 10), {CUDA_ERROR_OUT_OF_MEMORY, false}};
    if (number.empty() || *end || !out->nth ||
        (!any && parts[0].compare(0, 2, "cu") && parts[0] != "hr_fake_cuda_enqueue"))
        return false;
    if (parts.size() > 2 && !read_code(parts[2], &out->does.code)) return false;
    if (parts.size() > 3 && (any || parts[3] != "late")) return false;
    out->does.late = parts.size() > 3;
    return true;
}

static int arm(const char *what) {
    armed.faults.clear(), armed.calls.clear(), armed.counts.clear();
    armed.struck = 0;
    for (std::string rest = what ? what : ""; !rest.empty();) {
        const size_t comma = rest.find(',');
        fault f;
        if (!read_fault(rest.substr(0, comma), &f)) {
            armed.faults.clear();
            return -1;
        }
        armed.faults.push_back(f);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return 0;
}

void faults_from_environment() {
    static bool read = false;
    const char *what = read ? nullptr : getenv("HR_FAKE_CUDA_FAIL");
    read = true;
    if (what && arm(what)) die(2, "HR_FAKE_CUDA_FAIL: \"%s\" is not FUNCTION:N[:CODE[:late]] or N:ANY[:CODE]", what);
}

strike next_fault(const char *function) {
    const uint64_t nth = ++armed.counts[function];
    armed.calls.push_back(function);
    for (const fault &f : armed.faults)
        if (f.function.empty() ? f.nth == armed.calls.size() : f.function == function && f.nth == nth) {
            armed.struck++;
            return f.does;
        }
    return {CUDA_SUCCESS, false};
}

} // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuGetErrorString(CUresult code, const char **out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    for (const auto &e : errors)
        if (e.code == code) *out = e.text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int hr_fake_cuda_fail(const char *what) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    return arm(what);
}

uint64_t hr_fake_cuda_calls(void) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    return armed.calls.size();
}

const char *hr_fake_cuda_call(uint64_t i) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    return i < armed.calls.size() ? armed.calls[i] : nullptr;
}

uint64_t hr_fake_cuda_struck(void) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    return armed.struck;
}

} // extern "C"
