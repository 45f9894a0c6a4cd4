/* device.c - names of devices. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const hr_gpu_memory_names[HR_GPU_MEMORY_COUNT] = {"device", "managed", "pinned", "compressible"};

hr_status hr_device_parse(const char *name, int *out) {
    enum { MOST = 64 };
    if (!strcmp(name, "cpu")) {
        *out = HR_DEVICE_CPU;
        return HR_OK;
    }
    if (!strncmp(name, "cuda", 4)) {
        char *end = (char *)(uintptr_t)name + 4;
        const unsigned long index = *end == ':' && end[1] >= '0' && end[1] <= '9' ? strtoul(end + 1, &end, 10) : 0;
        if (!*end && index < MOST) {
            *out = (int)index;
            return HR_OK;
        }
    }
    HR_FAIL(HR_ERR_USAGE, "there is no device '%s'; known: cpu, cuda:0, cuda:1, ...", name);
}

void hr_device_name(int device, char out[16]) {
    if (device < 0)
        snprintf(out, 16, "cpu");
    else
        snprintf(out, 16, "cuda:%d", device);
}
