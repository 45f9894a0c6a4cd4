/* shim_mma.cpp - ldmatrix and mma.sync: which lane holds which element of a matrix (PTX ISA, "Matrix fragments for mma.m16n8k16",
 * "... mma.m16n8k32", "ldmatrix"). With g = lane / 4 and t = lane % 4:
 *     ldmatrix        register m of a lane: row g, columns 2t and 2t + 1 of matrix m; trans: of its transpose
 *     c [16][8]       c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g + 8
 *     a [16][K]       registers hold 32 / bits elements of a row, from column t * (32 / bits): a[0] row g, a[1] row g + 8; a[2], a[3] the same in
 *                     the upper half of the columns
 *     b [K][8]        column g; b[0] as many rows from t * (32 / bits), b[1] in the upper half */
#include "tests/cuda_on_cpu/shim_machine.hpp"

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <string.h>

namespace hr_shim {

/* ---- ldmatrix ---- */

template <unsigned MATRICES, bool TRANS> static void ldmatrix_lanes(lane lanes[32], uint32_t) {
    uint16_t rows[8 * MATRICES][8];
    for (unsigned i = 0; i < 8 * MATRICES; i++) memcpy(rows[i], lanes[i].in, sizeof rows[i]);
    for (unsigned i = 0; i < 32; i++) {
        const unsigned g = i / 4, t = i % 4;
        for (unsigned m = 0; m < MATRICES; m++) {
            const uint16_t(*matrix)[8] = rows + 8 * m;
            const uint32_t low = TRANS ? matrix[2 * t][g] : matrix[g][2 * t];
            const uint32_t high = TRANS ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
            const uint32_t r = high << 16 | low;
            memcpy(static_cast<char *>(lanes[i].out) + 4 * m, &r, 4);
        }
    }
}

const warp_op op_ldmatrix_x2 = {"ldmatrix.x2", ldmatrix_lanes<2, false>, true, false};
const warp_op op_ldmatrix_x4 = {"ldmatrix.x4", ldmatrix_lanes<4, false>, true, false};
const warp_op op_ldmatrix_x2_trans = {"ldmatrix.x2.trans", ldmatrix_lanes<2, true>, true, false};
const warp_op op_ldmatrix_x4_trans = {"ldmatrix.x4.trans", ldmatrix_lanes<4, true>, true, false};

/* ---- mma ---- */

/* Element types: how they are stored, what a sum of their products is. */
struct bf16 {
    typedef uint16_t stored;
    typedef float sum;
    static float value(uint16_t v) {
        const uint32_t u = (uint32_t)v << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        return f;
    }
};
struct f16 {
    typedef uint16_t stored;
    typedef float sum;
    static float value(uint16_t v) { return __half2float(__ushort_as_half(v)); }
};
struct s8 {
    typedef int8_t stored;
    typedef uint32_t sum; /* wraps */
    static uint32_t value(int8_t v) { return (uint32_t)v; }
};
struct e4m3 {
    typedef uint8_t stored;
    typedef float sum;
    static float value(uint8_t v) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3))); }
};

/* c += a b in fp32 (order of k; the hardware's is its own, and it keeps a few more bits) or in int32. */
template <class E> static void mma_lanes(lane lanes[32], uint32_t) {
    typedef typename E::stored stored;
    typedef typename E::sum sum;
    enum { PER_WORD = 4 / sizeof(stored), K = 8 * PER_WORD, HALF = K / 2 };
    sum a[16][K], b[8][K], c[16][8]; /* b by columns */
    for (unsigned i = 0; i < 32; i++) {
        const unsigned g = i / 4, t = i % 4;
        mma_in in;
        memcpy(&in, lanes[i].in, sizeof in);
        for (unsigned r = 0; r < 4; r++) {
            stored v[PER_WORD];
            memcpy(v, &in.a[r], sizeof v);
            for (unsigned e = 0; e < PER_WORD; e++)
                a[g + 8 * (r % 2)][HALF * (r / 2) + PER_WORD * t + e] = E::value(v[e]);
            memcpy(&c[g + 8 * (r / 2)][2 * t + r % 2], &in.c[r], 4);
        }
        for (unsigned r = 0; r < 2; r++) {
            stored v[PER_WORD];
            memcpy(v, &in.b[r], sizeof v);
            for (unsigned e = 0; e < PER_WORD; e++) b[g][HALF * r + PER_WORD * t + e] = E::value(v[e]);
        }
    }
    for (unsigned i = 0; i < 16; i++) {
        for (unsigned j = 0; j < 8; j++) {
            sum s = c[i][j];
            for (unsigned k = 0; k < K; k++) s += a[i][k] * b[j][k];
            c[i][j] = s;
        }
    }
    for (unsigned i = 0; i < 32; i++) {
        const unsigned g = i / 4, t = i % 4;
        for (unsigned r = 0; r < 4; r++)
            memcpy(static_cast<char *>(lanes[i].out) + 4 * r, &c[g + 8 * (r / 2)][2 * t + r % 2], 4);
    }
}

const warp_op op_mma_bf16 = {"mma.bf16", mma_lanes<bf16>, true, false};
const warp_op op_mma_f16 = {"mma.f16", mma_lanes<f16>, true, false};
const warp_op op_mma_s8 = {"mma.s8", mma_lanes<s8>, true, false};
const warp_op op_mma_e4m3 = {"mma.e4m3", mma_lanes<e4m3>, true, false};

} // namespace hr_shim
