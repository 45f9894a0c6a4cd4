/* nvtx.h - NVTX ranges in the domain `headroom` as the engine emits them; engine.h has what the harness may use. Without
 * the toolkit's headers at build, and without a tool attached at run time, hr_nvtx_attached is false and no function here
 * may be called. */
#ifndef HR_NVTX_H
#define HR_NVTX_H

#include "engine/engine.h"

hr_nvtx_level hr_nvtx_get_level(void);
/* Registers "layer 0" .. "layer n - 1"; those beyond what there is room for share the name "layer". */
void hr_nvtx_name_layers(uint32_t n);
/* Payloads: tokens of the pass for phases and layers, bytes for ops. */
void hr_nvtx_push_phase(hr_phase phase, uint64_t tokens);
void hr_nvtx_push_layer(uint32_t layer, uint64_t tokens);
void hr_nvtx_push_op(hr_op op, hr_phase phase, uint64_t bytes);
void hr_nvtx_push_capture(void); /* whatever the level is */
void hr_nvtx_pop(void);

#endif
