#include "harness/sweep/gpu_machine.h"
#include "harness/stats/stats.h"

json_t *hr_gpu_json(int device, const hr_device_info *i) {
    char name[16];
    hr_device_name(device, name);
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:b}", "device", name,
                     "machine_class", i->class_name, "name", i->name, "uuid", i->uuid, "memory_bytes",
                     (json_int_t)i->memory_bytes, "l2_bytes", (json_int_t)i->l2_bytes, "compute_major", (int)i->major,
                     "compute_minor", (int)i->minor, "sms", (int)i->sms, "clock_mhz", (int)i->clock_mhz,
                     "memory_clock_mhz", (int)i->memory_clock_mhz, "memory_bus_bits", (int)i->memory_bus_bits, "driver",
                     (int)i->driver, "datasheet_read_gb_s", hr_real_or_null(i->datasheet_read_gb_s), "simulated",
                     (int)i->simulated);
}

json_t *hr_gpu_machine_json(int device, const hr_device_info *info, const hr_machine *cpu) {
    json_t *machine = hr_machine_json(cpu), *gpu = hr_gpu_json(device, info);
    const bool ok = machine && gpu && !json_object_set_new(machine, "machine_class", json_string(info->class_name)) &&
                    !json_object_set_new(machine, "cpu_class", json_string(cpu->class_name)) &&
                    !json_object_set_new(machine, "gpus", json_pack("[O]", gpu));
    json_decref(gpu);
    if (ok) return machine;
    json_decref(machine);
    return NULL;
}
