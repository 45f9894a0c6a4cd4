#include "harness/cli/device_args.h"

#include <string.h>

static hr_status add(hr_devices *list, int device) {
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] == device) return HR_OK;
    if (list->n == HR_DEVICES_MAX) HR_FAIL(HR_ERR_USAGE, "--device: more than %d devices", HR_DEVICES_MAX);
    list->v[list->n++] = device;
    return HR_OK;
}

static hr_status by_name(const hr_args *args, hr_devices *out) {
    size_t n;
    const char *const *names = hr_args_texts(args, "--device", &n);
    for (size_t i = 0; i < n; i++) {
        int device;
        HR_TRY(hr_device_parse(names[i], &device));
        HR_TRY(add(out, device));
    }
    return HR_OK;
}

static bool any(const hr_devices *list, bool gpu) {
    for (size_t i = 0; i < list->n; i++)
        if ((list->v[i] >= 0) == gpu) return true;
    return false;
}

/* Layers say CPU or GPU; which GPU, --device says. */
static hr_status check_layers(const int64_t *layers, size_t n, const hr_devices *named) {
    for (int gpu = 0; gpu < 2; gpu++) {
        int64_t example = -1;
        bool asked = false;
        for (size_t i = 0; i < n && !asked; i++)
            if ((layers[i] != 0) == gpu) asked = true, example = layers[i];
        if (asked == any(named, gpu)) continue;
        if (asked)
            HR_FAIL(HR_ERR_USAGE, "-ngl %lld means %s, and --device names none: leave one of the two out",
                    (long long)example, gpu ? "all layers on a GPU" : "the CPU");
        HR_FAIL(HR_ERR_USAGE, "--device names %s, and -ngl %lld means %s: leave one of the two out",
                gpu ? "a GPU" : "the CPU", (long long)layers[0], gpu ? "the CPU" : "all layers on a GPU");
    }
    return HR_OK;
}

hr_status hr_device_args(const hr_args *args, hr_devices *out) {
    size_t n = 0;
    const int64_t *layers = hr_args_ints(args, "--n-gpu-layers", &n);
    *out = (hr_devices){0};
    if (n && !hr_args_given(args, "--device")) {
        for (size_t i = 0; i < n; i++) HR_TRY(add(out, layers[i] ? 0 : HR_DEVICE_CPU));
        return HR_OK;
    }
    HR_TRY(by_name(args, out));
    return n ? check_layers(layers, n, out) : HR_OK;
}

hr_status hr_devices_check(const hr_devices *devices) {
    hr_device_info info;
    for (size_t i = 0; i < devices->n; i++)
        if (devices->v[i] >= 0) HR_TRY(hr_device_get_info((int)devices->v[i], &info));
    return HR_OK;
}

hr_gpu_memory hr_gpu_memory_of(const char *name) {
    int i = 0;
    while (i < HR_GPU_MEMORY_COUNT - 1 && strcmp(name, hr_gpu_memory_names[i])) i++;
    return (hr_gpu_memory)i;
}

bool hr_gemm_is_cublaslt(const char *given, const hr_device_info *info) {
    return given ? strcmp(given, "own") != 0 : !info->simulated;
}
