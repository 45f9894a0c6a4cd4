/* What every machine has: SSE2 on x86-64, plain C elsewhere. There is no fused multiply-add: multiplies and adds are
 * independent streams, the most that any kernel can overlap. An int8 product is widened to 16 bits and done by pmaddwd.
 */
#include "kernels/base/status.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

#define HR_VEC                   __m128i
#define HR_VEC_ZERO              _mm_setzero_si128()
#define HR_VEC_XOR(acc, address) __asm__("pxor %1,%0" : "+x"(acc) : "m"(*(const char(*)[sizeof(HR_VEC)])(address)))
#define HR_VEC_FOLD(acc)         ((uint64_t)_mm_cvtsi128_si64(acc) ^ (uint64_t)_mm_cvtsi128_si64(_mm_srli_si128(acc, 8)))
#include "harness/roof/roof_patterns.h"

#define LOOP(name, mul, add, ops)                                                                                   \
    static double name(long loops) {                                                                                \
        long n = loops;                                                                                             \
        __asm__ volatile(                                                                                           \
            ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tpxor %%xmm\\r,%%xmm\\r\n\t.endr\n\t.p2align 6\n1:\n\t" \
            ".rept 2\n\t.irp r,0,1,2,3,4,5,6\n\t" mul " %%xmm14,%%xmm\\r\n\t.endr\n\t"                              \
            ".irp r,7,8,9,10,11,12,13\n\t" add " %%xmm15,%%xmm\\r\n\t.endr\n\t.endr\n\t"                            \
            "dec %0\n\tjnz 1b"                                                                                      \
            : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",     \
              "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");                                                   \
        return (double)loops * (ops);                                                                               \
    }
/* mulps and addps: 4 operations each; pmaddwd 8 products and 4 adds, paddd 4 adds */
LOOP(fp32_sse2, "mulps", "addps", 2 * 7 * 8)
LOOP(int8_sse2, "pmaddwd", "paddd", 2 * 7 * 16)

static const hr_roof_form fp32[] = {{"mulps addps", 0, fp32_sse2}, {NULL, 0, NULL}};
static const hr_roof_form int8[] = {{"pmaddwd paddd", 0, int8_sse2}, {NULL, 0, NULL}};

#else

#include "harness/roof/roof_patterns.h"

enum { LANES = 64 };
/* The barrier makes the compiler believe that the factors may change, so that no iteration can be left out. */
static double fp32_c(long loops) {
    float acc[LANES] = {0}, a[LANES] = {0}, b[LANES] = {0};
    for (long n = 0; n < loops; n++) {
        for (int i = 0; i < LANES; i++) acc[i] += a[i] * b[i];
        __asm__ volatile("" ::"r"(acc), "r"(a), "r"(b) : "memory");
    }
    return (double)loops * LANES * 2;
}
static double int8_c(long loops) {
    int32_t acc[LANES] = {0};
    int8_t a[LANES] = {0}, b[LANES] = {0};
    for (long n = 0; n < loops; n++) {
        for (int i = 0; i < LANES; i++) acc[i] += a[i] * b[i];
        __asm__ volatile("" ::"r"(acc), "r"(a), "r"(b) : "memory");
    }
    return (double)loops * LANES * 2;
}
static const hr_roof_form fp32[] = {{"multiply add", 0, fp32_c}, {NULL, 0, NULL}};
static const hr_roof_form int8[] = {{"multiply add", 0, int8_c}, {NULL, 0, NULL}};

#endif

const hr_roof_kernels hr_roof_generic = {HR_ISA_GENERIC, read_pattern, N_PATTERNS, pattern_list, {fp32, NULL, int8}};
