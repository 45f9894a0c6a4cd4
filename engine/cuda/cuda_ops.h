/* cuda_ops.h - what the table of the backend names, by file: opening (cuda_engine.c), passes and their results (cuda_pass.c). */
#ifndef HR_CUDA_OPS_H
#define HR_CUDA_OPS_H

#include "engine/cuda/cuda_state.h"

hr_status hr_cuda_open(hr_engine *e);
void hr_cuda_close(hr_engine *e);
size_t hr_cuda_run_bytes(const hr_sizes *sizes);
void hr_cuda_facts(const hr_engine *e, hr_engine_facts *out);

hr_status hr_cuda_begin(hr_pass *p);
hr_status hr_cuda_end(hr_pass *p);
const float *hr_cuda_logits(hr_engine *e, size_t i);
int32_t hr_cuda_sample_row(hr_engine *e, size_t i, const hr_sampling *how, uint64_t *rng);

/* The block that a pass begins with: structs of the batch (one for each HR_CUDA_HEAD_ROWS of logits), then the rows of logits, at
 * places that do not depend on the pass; then the rest. */
size_t hr_cuda_block_bytes(const hr_sizes *sizes, uint32_t rows);
/* Rows of logits in the block, on the device. */
const uint32_t *hr_cuda_logit_rows(const hr_cuda *g);

#endif
