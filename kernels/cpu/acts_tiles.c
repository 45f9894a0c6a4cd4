/* Sizes of the areas of hr_acts.tiles: [dwords of k][tile]. A dword is a float, two bf16 or four int8. */
#include "kernels/base/memory.h"
#include "kernels/table.h"

size_t hr_acts_tile_bytes(hr_act type, uint32_t tile, size_t k) {
    const size_t size = type == HR_ACT_F32 ? 4 : type == HR_ACT_BF16 ? 2 : 1;
    return hr_align_up(k, 64) * size * tile;
}
