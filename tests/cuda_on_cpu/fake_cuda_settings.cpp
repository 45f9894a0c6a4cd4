// fake_cuda_settings.cpp - what the devices are: HR_FAKE_CUDA, and the attributes that follow from it.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <cstdlib>

namespace fake {

int settings::smem_optin() const { // KiB a block may have, by compute capability
    const int cc = 10 * major + minor, kib = cc == 80 || cc == 87                  ? 163
                                             : cc == 86 || cc == 89 || major == 12 ? 99
                                                                                   : 227;
    return kib << 10;
}

static double number_of(const char *text) {
    char *end;
    const double v = strtod(text, &end);
    return v * (*end == 'T'   ? 1099511627776.0
                : *end == 'G' ? 1073741824.0
                : *end == 'M' ? 1048576.0
                : *end == 'K' ? 1024.0
                              : 1);
}

static hr_shim_order order_of(const std::string &name) {
    static const char *const names[] = {"ascending", "descending", "random", "lifo"};
    for (int i = 0; i < 4; i++)
        if (name == names[i]) return (hr_shim_order)i;
    die(2, "HR_FAKE_CUDA: order is ascending, descending, random or lifo");
}

static bool set_number(settings *s, const std::string &key, double v) {
    const struct {
        const char *key;
        size_t *size;
        int *number;
        bool *yes;
    } all[] = {{"memory", &s->memory, nullptr, nullptr},
               {"pinned", &s->pinned, nullptr, nullptr},
               {"l2", &s->l2, nullptr, nullptr},
               {"seed", &s->seed, nullptr, nullptr},
               {"devices", nullptr, &s->devices, nullptr},
               {"sms", nullptr, &s->sms, nullptr},
               {"driver", nullptr, &s->driver, nullptr},
               {"clock", nullptr, &s->clock_mhz, nullptr},
               {"memory_clock", nullptr, &s->memory_clock_mhz, nullptr},
               {"bus", nullptr, &s->bus_bits, nullptr},
               {"managed", nullptr, nullptr, &s->managed},
               {"compression", nullptr, nullptr, &s->compression},
               {"vmm", nullptr, nullptr, &s->vmm},
               {"protect", nullptr, nullptr, &s->protect},
               {"hostptr", nullptr, nullptr, &s->hostptr},
               {"late", nullptr, nullptr, &s->late}};
    for (const auto &a : all) {
        if (key != a.key) continue;
        if (a.size) *a.size = (size_t)v;
        if (a.number) *a.number = (int)v;
        if (a.yes) *a.yes = v != 0;
        return true;
    }
    return false;
}

static void set(settings *s, const std::string &key, const char *value) {
    const double v = number_of(value);
    if (key == "name")
        s->name = value;
    else if (key == "order")
        s->order = order_of(value);
    else if (key == "cc")
        s->major = (int)v, s->minor = (int)(10 * v + 0.5) % 10;
    else if (!set_number(s, key, v))
        die(2, "HR_FAKE_CUDA: there is no \"%s\"", key.c_str());
}

settings read_settings() {
    settings s;
    const char *from = getenv("HR_FAKE_CUDA");
    for (std::string rest = from ? from : ""; !rest.empty();) {
        const size_t comma = rest.find(','), equals = rest.find('=');
        const std::string item = rest.substr(0, comma);
        if (equals == std::string::npos || equals > item.size())
            die(2, "HR_FAKE_CUDA: \"%s\" is not KEY=VALUE", item.c_str());
        set(&s, item.substr(0, equals), item.substr(equals + 1).c_str());
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return s;
}

hr_shim_mode settings::mode() const {
    return {order, seed, late};
}

CUresult attribute(const settings &s, CUdevice_attribute which, int ordinal, int *out) {
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        *out = 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        *out = 64;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        *out = 2147483647;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        *out = 65535;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        *out = 48 << 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *out = s.smem_optin();
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *out = s.smem_optin() + 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        *out = 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        *out = 64 << 10;
        break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        *out = 32;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        *out = 65536;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        *out = 2048;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        *out = 32;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *out = s.sms;
        break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *out = s.clock_mhz * 1000;
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        *out = s.memory_clock_mhz * 1000;
        break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        *out = s.bus_bits;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *out = (int)s.l2;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *out = s.major;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *out = s.minor;
        break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *out = 1 + ordinal;
        break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        *out = 3;
        break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        *out = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        *out = s.managed;
        break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *out = s.vmm;
        break;
    case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
        *out = s.vmm && s.compression;
        break;
    default: // what this device does not have
        *out = 0;
        return (int)which > 0 && which < CU_DEVICE_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

} // namespace fake
