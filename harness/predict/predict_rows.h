/* predict_rows.h - kernels for GPUs as rows: occupancy and the time at a datasheet's roof. Predicted, never measured. */
#ifndef HR_PREDICT_ROWS_H
#define HR_PREDICT_ROWS_H

#include "kernels/predict.h"
#include <jansson.h>

/* [{op, name, dtype, act, n, grid, block, registers, shared_bytes, blocks_sm, warps_sm, occupancy, bound, waves, bytes, flops, roof_us,
 * roof_bound, predicted: true}]; null where a launch is not known (predict.h). New reference. */
hr_status hr_predict_rows(const hr_gpu_sheet *gpu, json_t **out);
/* The sheet of a GPU that a driver calls `name`, with its own number of multiprocessors and memory bandwidth (sms 0 and NaN: the
 * sheet's). False: no sheet is known. */
bool hr_predict_sheet(const char *name, uint32_t sms, double read_gb_s, hr_gpu_sheet *out);
/* What the rows are of, in one sentence. */
extern const char hr_predict_caption[];

#endif
