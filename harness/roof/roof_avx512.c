/* 512-bit forms, and 256-bit forms of the dot products: on cores that split a 512-bit operation in two, either may be
 * the faster. All registers hold zeros: no denormals, no NaNs, and no data for which a kernel could be faster. The loops
 * are assembly because compilers have put register copies into loops of intrinsics, which made the "ceiling" lower than
 * what a real kernel reached. */
#include <immintrin.h>

#define HR_VEC                   __m512i
#define HR_VEC_ZERO              _mm512_setzero_si512()
#define HR_VEC_XOR(acc, address) __asm__("vpxorq %1,%0,%0" : "+v"(acc) : "m"(*(const char(*)[sizeof(HR_VEC)])(address)))
#define HR_VEC_FOLD(acc)         fold(acc)
static inline unsigned long long fold(__m512i v) {
    unsigned long long w[8], sum = 0;
    _mm512_storeu_si512(w, v);
    for (int i = 0; i < 8; i++) sum ^= w[i];
    return sum;
}
#include "harness/roof/roof_patterns.h"

#define R12 "0,1,2,3,4,5,6,7,8,9,10,11"
#define R24 R12 ",12,13,14,15,16,17,18,19,20,21,22,23"

/* `count` instructions an inner iteration, each into an accumulator of its own (twice each, for twelve). */
#define FORM(name, op, reg, list, times, count, ops)                                                                 \
    static double name(long loops) {                                                                                 \
        long n = loops;                                                                                              \
        __asm__ volatile(".irp r," list ",30,31\n\tvpxorq %%zmm\\r,%%zmm\\r,%%zmm\\r\n\t.endr\n\t"                   \
                         ".p2align 6\n1:\n\t"                                                                        \
                         ".rept " #times "\n\t.irp r," list "\n\t" op " %%" reg "30,%%" reg "31,%%" reg              \
                         "\\r\n\t.endr\n\t.endr\n\t"                                                                 \
                         "dec %0\n\tjnz 1b"                                                                          \
                         : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",  \
                           "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", \
                           "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31", "cc");                              \
        return (double)loops * (count) * (ops);                                                                      \
    }
FORM(fp32_zmm12, "vfmadd231ps", "zmm", R12, 2, 24, 32)
FORM(fp32_zmm24, "vfmadd231ps", "zmm", R24, 1, 24, 32)
FORM(fp32_ymm24, "vfmadd231ps", "ymm", R24, 1, 24, 16)
FORM(bf16_zmm12, "vdpbf16ps", "zmm", R12, 2, 24, 64)
FORM(bf16_zmm24, "vdpbf16ps", "zmm", R24, 1, 24, 64)
FORM(bf16_ymm24, "vdpbf16ps", "ymm", R24, 1, 24, 32)
FORM(int8_zmm12, "vpdpbusd", "zmm", R12, 2, 24, 128)
FORM(int8_zmm24, "vpdpbusd", "zmm", R24, 1, 24, 128)
FORM(int8_ymm24, "vpdpbusd", "ymm", R24, 1, 24, 64)

static const hr_roof_form fp32[] = {
    {"fma zmm 12", 0, fp32_zmm12}, {"fma zmm 24", 0, fp32_zmm24}, {"fma ymm 24", 0, fp32_ymm24}, {NULL, 0, NULL}};
static const hr_roof_form bf16[] = {{"vdpbf16ps zmm 12", HR_CPU_BF16, bf16_zmm12},
                                    {"vdpbf16ps zmm 24", HR_CPU_BF16, bf16_zmm24},
                                    {"vdpbf16ps ymm 24", HR_CPU_BF16, bf16_ymm24},
                                    {NULL, 0, NULL}};
static const hr_roof_form int8[] = {{"vpdpbusd zmm 12", HR_CPU_VNNI, int8_zmm12},
                                    {"vpdpbusd zmm 24", HR_CPU_VNNI, int8_zmm24},
                                    {"vpdpbusd ymm 24", HR_CPU_VNNI, int8_ymm24},
                                    {NULL, 0, NULL}};

const hr_roof_kernels hr_roof_avx512 = {HR_ISA_AVX512, read_pattern, N_PATTERNS, pattern_list, {fp32, bf16, int8}};
