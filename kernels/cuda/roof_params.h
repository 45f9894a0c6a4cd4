/* roof_params.h - what the kernels of roof.cu are given: loads of one kind, to find the ceilings of a GPU. */
#ifndef HR_ROOF_PARAMS_H
#define HR_ROOF_PARAMS_H

#include "kernels/base/both.h"

#include <stdint.h>

/* roof_read_U, roof_write_U, roof_copy_U: n words of 16 bytes, U at once in each thread, `passes` times. Blocks of any number of
 * threads, any grid. Reading: sums[block] = sum of all 32-bit words that the block read, modulo 2^32, over all passes, so that
 * a test can tell that each was read. Writing: words of thread t become hr_roof_word(4 t + 0..3, seed), which costs nothing to make;
 * roof_fill: word i becomes hr_roof_word(4 i + 0..3, seed), once. */
typedef struct hr_cuda_roof_memory {
    const void *from; /* [n][16] bytes; read, copy */
    void *to;         /* [n][16] bytes; write, copy */
    uint32_t *sums;   /* [grid]; read */
    uint64_t n;
    uint32_t passes, seed;
} hr_cuda_roof_memory;

/* roof_fma_fp32, roof_mma_bf16, roof_mma_s8, roof_mma_e4m3: `loops` rounds of HR_ROOF_CHAINS independent chains in each thread
 * (fma: HR_ROOF_FMAS steps a chain and round) or warp (mma: one step). sums[block] = bits of a sum over the accumulators of
 * its first warp: c as float, or int32 for s8. mma: lane l takes its fragments a[4], b[2] from operands[l][6]; fma: x = c * m + y
 * with m, y = operands[0][0..1] as floats. */
typedef struct hr_cuda_roof_compute {
    const uint32_t *operands; /* [32][6] */
    uint32_t *sums;           /* [grid] */
    uint32_t loops, unused;   /* no byte is padding, which nobody sets */
} hr_cuda_roof_compute;
enum { HR_ROOF_CHAINS = 8, HR_ROOF_FMAS = 8, HR_ROOF_THREADS = 1024 };

/* roof_empty: nothing; how long a launch takes. */
typedef struct hr_cuda_roof_empty {
    uint32_t nothing;
} hr_cuda_roof_empty;

/* Words in which no two are alike, and that are numbers of ordinary size in every type: as bf16 0.5 to 2, as fp32 about 1, as e4m3
 * at most 1.875, either sign; on zeros, infinities and NaN arithmetic needs less power. The bits are those of the finalizer
 * of MurmurHash3. */
HR_BOTH static inline uint32_t hr_roof_word(uint64_t i, uint32_t seed) {
    uint32_t x = (uint32_t)i ^ (uint32_t)(i >> 32) ^ seed;
    x ^= x >> 16, x *= 0x85ebca6bu;
    x ^= x >> 13, x *= 0xc2b2ae35u;
    return ((x ^ x >> 16) & 0x80bf80bfu) | 0x3f003f00u;
}

#endif
