/* 256-bit dot products of int8 in the VEX encoding, for cores that have them without AVX-512. Reading and fp32 are those
 * of roof_avx2.c. Registers hold zeros, as there. */
#include "harness/roof/roof.h"

#define DOT(list) ".irp r," list "\n\t%{vex%} vpdpbusd %%ymm14,%%ymm15,%%ymm\\r\n\t.endr\n\t"

static double int8_ymm12(long loops) {
    long n = loops;
    __asm__ volatile(".irp r,0,1,2,3,4,5,6,7,8,9,10,11,14,15\n\tvpxor %%xmm\\r,%%xmm\\r,%%xmm\\r\n\t.endr\n\t"
                     ".p2align 6\n1:\n\t" DOT("0,1,2,3,4,5,6,7,8,9,10,11")
                         DOT("0,1,2,3,4,5,6,7,8,9,10,11") "dec %0\n\tjnz 1b"
                     : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                       "xmm11", "xmm14", "xmm15", "cc");
    return (double)loops * 24 * 64;
}

static const hr_roof_form int8[] = {{"vpdpbusd ymm 12 (VEX)", HR_CPU_AVXVNNI, int8_ymm12}, {NULL, 0, NULL}};

const hr_roof_kernels hr_roof_avxvnni = {HR_ISA_AVXVNNI, NULL, 0, NULL, {NULL, NULL, int8}};
