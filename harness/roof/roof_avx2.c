/* 256-bit forms. Without a dot-product unit int8 is vpmaddubsw (pairs, 16 bits), vpmaddwd by ones (32 bits), vpaddd: 64
 * operations in three instructions. Small factors (4-bit weights: 16 * 2 * 8 * 127 < 32768) allow 16 products to be
 * added in 16 bits before they are widened, so that form bounds what any kernel can do. No bf16 unit. */
#include <immintrin.h>

#define HR_VEC                   __m256i
#define HR_VEC_ZERO              _mm256_setzero_si256()
#define HR_VEC_XOR(acc, address) __asm__("vpxor %1,%0,%0" : "+x"(acc) : "m"(*(const char(*)[sizeof(HR_VEC)])(address)))
#define HR_VEC_FOLD(acc)         fold(acc)
static inline unsigned long long fold(__m256i v) {
    unsigned long long w[4];
    _mm256_storeu_si256((__m256i *)w, v);
    return w[0] ^ w[1] ^ w[2] ^ w[3];
}
#include "harness/roof/roof_patterns.h"

#define ALL_YMM                                                                                                \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
        "xmm13", "xmm14", "xmm15"
#define ZERO_ALL                                                                                    \
    ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tvpxor %%xmm\\r,%%xmm\\r,%%xmm\\r\n\t.endr\n\t" \
    ".p2align 6\n1:\n\t"
#define LOOP(name, body, ops)                                                        \
    static double name(long loops) {                                                 \
        long n = loops;                                                              \
        __asm__ volatile(ZERO_ALL body "dec %0\n\tjnz 1b" : "+r"(n)::ALL_YMM, "cc"); \
        return (double)loops * (ops);                                                \
    }

#define FMA(list) ".irp r," list "\n\tvfmadd231ps %%ymm14,%%ymm15,%%ymm\\r\n\t.endr\n\t"
LOOP(fp32_ymm12, FMA("0,1,2,3,4,5,6,7,8,9,10,11") FMA("0,1,2,3,4,5,6,7,8,9,10,11"), 24 * 16)
LOOP(fp32_ymm14, FMA("0,1,2,3,4,5,6,7,8,9,10,11,12,13"), 14 * 16)

#define MADD(t, acc)                                                                      \
    "vpmaddubsw %%ymm14,%%ymm15,%%ymm" t "\n\tvpmaddwd %%ymm13,%%ymm" t ",%%ymm" t "\n\t" \
    "vpaddd %%ymm" t ",%%ymm" acc ",%%ymm" acc "\n\t"
LOOP(int8_wide, MADD("0", "6") MADD("1", "7") MADD("2", "8") MADD("3", "9") MADD("4", "10") MADD("5", "11"), 6 * 64)

/* t: 16 products of pairs added in 16 bits, then widened into acc; u is a temporary. */
#define MADD16(t, u, acc)                                                                            \
    "vpmaddubsw %%ymm14,%%ymm15,%%ymm" t "\n\t.rept 15\n\tvpmaddubsw %%ymm14,%%ymm15,%%ymm" u "\n\t" \
    "vpaddw %%ymm" u ",%%ymm" t ",%%ymm" t "\n\t.endr\n\tvpmaddwd %%ymm13,%%ymm" t ",%%ymm" t "\n\t" \
    "vpaddd %%ymm" t ",%%ymm" acc ",%%ymm" acc "\n\t"
LOOP(int8_narrow, MADD16("0", "4", "8") MADD16("1", "5", "9") MADD16("2", "6", "10") MADD16("3", "7", "11"),
     4 * 16 * 64)

static const hr_roof_form fp32[] = {{"fma ymm 12", 0, fp32_ymm12}, {"fma ymm 14", 0, fp32_ymm14}, {NULL, 0, NULL}};
static const hr_roof_form int8[] = {
    {"vpmaddubsw ymm", 0, int8_wide}, {"vpmaddubsw ymm 16-bit sums", 0, int8_narrow}, {NULL, 0, NULL}};

const hr_roof_kernels hr_roof_avx2 = {HR_ISA_AVX2, read_pattern, N_PATTERNS, pattern_list, {fp32, NULL, int8}};
