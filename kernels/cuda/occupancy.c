#include "kernels/cuda/occupancy.h"

const char *const hr_occupancy_bounds[] = {"warps", "blocks", "registers", "shared memory", "does not fit"};

typedef struct sm_row {
    uint32_t major, minor;
    uint32_t warps, blocks, shared_kib, shared_block_kib;
} sm_row;

bool hr_sm_limits_of(uint32_t major, uint32_t minor, hr_sm_limits *out) {
    static const sm_row rows[] = {
        {8, 0, 64, 32, 164, 163},  {8, 6, 48, 16, 100, 99},   {8, 9, 48, 24, 100, 99},  {9, 0, 64, 32, 228, 227},
        {10, 0, 64, 32, 228, 227}, {10, 3, 64, 32, 228, 227}, {12, 0, 48, 24, 100, 99},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].major != major || rows[i].minor != minor) continue;
        *out = (hr_sm_limits){.warps = rows[i].warps,
                              .blocks = rows[i].blocks,
                              .registers = 65536,
                              .shared = rows[i].shared_kib * 1024,
                              .shared_block = rows[i].shared_block_kib * 1024,
                              .register_unit = 256,
                              .warp_unit = 4,
                              .shared_unit = 128,
                              .shared_system = 1024,
                              .registers_thread = 255,
                              .threads_block = 1024};
        return true;
    }
    return false;
}

static uint32_t round_up(uint32_t n, uint32_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Registers are given to warps, and warps to the four parts of a multiprocessor, each with a quarter of the registers. */
static uint32_t blocks_by_registers(const hr_sm_limits *sm, uint32_t warps, uint32_t registers) {
    if (registers == 0) return sm->blocks;
    const uint32_t of_warp = round_up(registers * 32, sm->register_unit);
    const uint32_t warps_held = sm->registers / of_warp / sm->warp_unit * sm->warp_unit;
    return warps_held / warps;
}

hr_occupancy hr_occupancy_of(const hr_sm_limits *sm, uint32_t threads, uint32_t registers, uint32_t shared) {
    const uint32_t warps = (threads + 31) / 32;
    const hr_occupancy none = {.bound = HR_OCCUPANCY_NONE};
    if (warps == 0 || threads > sm->threads_block || registers > sm->registers_thread || shared > sm->shared_block)
        return none;
    const uint32_t by[] = {
        [HR_OCCUPANCY_WARPS] = sm->warps / warps,
        [HR_OCCUPANCY_BLOCKS] = sm->blocks,
        [HR_OCCUPANCY_REGISTERS] = blocks_by_registers(sm, warps, registers),
        [HR_OCCUPANCY_SHARED] = sm->shared / round_up(shared + sm->shared_system, sm->shared_unit),
    };
    hr_occupancy o = {.blocks = by[HR_OCCUPANCY_WARPS], .bound = HR_OCCUPANCY_WARPS};
    for (uint32_t i = 1; i < sizeof by / sizeof *by; i++)
        if (by[i] < o.blocks) o.blocks = by[i], o.bound = (hr_occupancy_bound)i;
    if (o.blocks == 0) return none;
    o.warps = o.blocks * warps;
    o.share = (double)o.warps / sm->warps;
    return o;
}
