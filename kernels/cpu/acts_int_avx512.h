/* acts_int_avx512.h - int8 activations laid out for the integer kernels. Include it from *_avx512.c files only. */
#ifndef HR_ACTS_INT_AVX512_H
#define HR_ACTS_INT_AVX512_H

#include "kernels/cpu/int_tiles.h"
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/table.h"

/* Tokens t0 .. t0 + have - 1 as an area of `width` (at most 16), zero past the last: x [hr_int_area]. */
void hr_int_tile_pack_avx512(const hr_acts *a, size_t t0, size_t have, size_t width, int32_t *x);

#endif
