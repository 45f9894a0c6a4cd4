/* rows_vec.c - rows of the kernel table for GPUs, and the shape of their launches. */
#include "kernels/cuda/cuda_params.h"
#include "kernels/table.h"

const hr_kernel hr_kernels_cuda_vec[] = {{.name = NULL}};
