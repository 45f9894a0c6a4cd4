/* Sizes of the areas of hr_acts.tiles: [dwords of k][tile], a dword being a float or two bf16; int8: int_tiles.h. */
#include "kernels/base/memory.h"
#include "kernels/cpu/int_tiles.h"
#include "kernels/table.h"

size_t hr_acts_tile_bytes(hr_act type, uint32_t tile, size_t k) {
    if (type == HR_ACT_INT8 || type == HR_ACT_INT8_ROW) return 4 * hr_int_area((k + 31) / 32, tile);
    return hr_align_up(k, 64) * (type == HR_ACT_F32 ? 4 : 2) * tile;
}
