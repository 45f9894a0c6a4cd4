/* Panels of quantized weights with int8 tokens, AVX2. Without vpdpbusd: nibbles (at most 15) by maddubs, whose sums of
 * 32 columns fit 16 bits (8 * 2 * 15 * 127 = 30480); bytes as even and odd 16-bit words by madd, for maddubs on bytes
 * saturates. */
#include "kernels/cpu/panel_int_avx2.h"

void hr_panel_int8_avx2(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    panel_products(m, row0, row1, scratch);
}
