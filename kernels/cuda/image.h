/* image.h - what the compiler made of each kernel: registers, shared memory and the instructions that matter, read from the images
 * that the program holds (fatbin containers of ELF files). Needs no driver and no tool of the toolkit.
 *
 * Attributes and opcodes as `cuobjdump --dump-resource-usage` and `nvdisasm` show them for sm_80, sm_90 and sm_100. */
#ifndef HR_CUDA_IMAGE_H
#define HR_CUDA_IMAGE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_cuda_image {
    const char *name; /* of the source: "gemv_int" */
    const void *data;
} hr_cuda_image;
extern const hr_cuda_image hr_cuda_images[]; /* ended by NULL */

typedef struct hr_cuda_kernel_image {
    char symbol[64];
    uint32_t arch;                     /* 90: sm_90 */
    uint32_t registers, stack, shared; /* a thread, bytes a thread, bytes a block (static) */
    uint32_t threads;                  /* of a block at most, as __launch_bounds__ says */
    /* Instructions: loads of 16 bytes from global memory, asynchronous copies, loads of fragments, tensor products, integer dot
     * products, and accesses to local memory. */
    uint32_t loads16, copies, fragments, mma, dots, local;
} hr_cuda_kernel_image;

/* Calls `each` for every kernel of an image, of one architecture (0: of all), in the image's order. ERR_INPUT names what is broken;
 * `each` may fail, which ends the walk. */
typedef hr_status hr_cuda_image_each(const hr_cuda_kernel_image *k, void *context);
hr_status hr_cuda_image_walk(const hr_cuda_image *image, uint32_t arch, hr_cuda_image_each *each, void *context);
/* The newest architecture of an image that runs on compute capability major.minor (a file for sm_80 runs on 8.x alone); 0: none. */
uint32_t hr_cuda_image_arch(const hr_cuda_image *image, uint32_t major, uint32_t minor);
/* The kernel of a symbol for a device of that capability; looks through all images. False: none. */
bool hr_cuda_image_find(const char *symbol, uint32_t major, uint32_t minor, hr_cuda_kernel_image *out);

#endif
