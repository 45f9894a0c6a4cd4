/* gpu_machine.h - a GPU as results name the machine that they were measured on. */
#ifndef HR_GPU_MACHINE_JSON_H
#define HR_GPU_MACHINE_JSON_H

#include "engine/engine.h"
#include "harness/roof/roof.h"

/* {device, machine_class, name, uuid, memory_bytes, ...}. New reference; NULL when out of memory. */
json_t *hr_gpu_json(int device, const hr_device_info *info);
/* The machine of results of that GPU alone: that of the CPU, with the class of the GPU, `cpu_class` and `gpus`. New reference; NULL
 * when out of memory. */
json_t *hr_gpu_machine_json(int device, const hr_device_info *info, const hr_machine *cpu);

#endif
