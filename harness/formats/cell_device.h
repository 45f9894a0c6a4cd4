/* cell_device.h - where a stored cell ran, and of which class of machine it is: a run on a CPU and GPUs has cells of several. */
#ifndef HR_CELL_DEVICE_H
#define HR_CELL_DEVICE_H

#include "harness/formats/json_get.h"
#include <stdbool.h>
#include <string.h>

static inline bool hr_cell_on_gpu(const json_t *cell) {
    return !strncmp(hr_word(cell, "device"), "cuda", 4);
}

/* What a run's machine (hr_store_machine) says of the GPU of a cell; NULL: nothing, or the cell ran on the CPU. */
static inline const json_t *hr_cell_gpu(const json_t *cell, const json_t *machine) {
    const json_t *gpus = json_object_get(machine, "gpus");
    for (size_t i = 0; hr_cell_on_gpu(cell) && i < json_array_size(gpus); i++)
        if (!strcmp(hr_word(json_array_get(gpus, i), "device"), hr_word(cell, "device")))
            return json_array_get(gpus, i);
    return NULL;
}

/* Class of the machine or GPU that a cell ran on; "" unknown. Borrowed from the machine. */
static inline const char *hr_cell_class(const json_t *cell, const json_t *machine) {
    const char *gpu = hr_word(hr_cell_gpu(cell, machine), "machine_class"), *cpu = hr_word(machine, "cpu_class");
    if (*gpu) return gpu;
    return *cpu && !hr_cell_on_gpu(cell) ? cpu : hr_word(machine, "machine_class");
}

#endif
