/* test_kernels.cu - kernels of the tests of the machine itself (test_cuda_shim.c): none is in the program. */
#include "kernels/cuda/cu.h"
#include "tests/cuda_on_cpu/test_kernels.h"

/* Sums of rows, one block a row: dynamic shared memory, a barrier, a warp sum. */
HR_KERNEL(test_row_sum, 256, hr_test_sum, p) {
    HR_SHARED(float, sums, [8]);
    HR_SHARED_DYNAMIC(float, row);
    for (unsigned i = threadIdx.x; i < p.cols; i += blockDim.x) row[i] = p.x[(size_t)blockIdx.x * p.cols + i];
    __syncthreads();
    float sum = 0;
    for (unsigned i = threadIdx.x; i < p.cols; i += blockDim.x) sum += row[p.cols - 1 - i];
    sum = hr_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = hr_warp_sum(threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) p.y[blockIdx.x] = sum;
    }
}

/* ---- warps ---- */

__device__ static uint32_t warp_op(const hr_test_warp &p, uint32_t v) {
    switch (p.op) {
    case HR_TEST_SHFL:
        return __shfl_sync(p.mask, v, (int)p.arg, (int)p.width);
    case HR_TEST_SHFL_XOR:
        return __shfl_xor_sync(p.mask, v, (int)p.arg, (int)p.width);
    case HR_TEST_SHFL_UP:
        return __shfl_up_sync(p.mask, v, p.arg, (int)p.width);
    case HR_TEST_SHFL_DOWN:
        return __shfl_down_sync(p.mask, v, p.arg, (int)p.width);
    case HR_TEST_SHFL_64: {
        const uint64_t got = __shfl_sync(p.mask, (uint64_t)v << 32 | (uint32_t)~v, (int)p.arg, (int)p.width);
        return (uint32_t)got == ~(uint32_t)(got >> 32) ? (uint32_t)(got >> 32) : 0xbadu;
    }
    case HR_TEST_BALLOT:
        return __ballot_sync(p.mask, v & 1);
    case HR_TEST_ANY:
        return (uint32_t)__any_sync(p.mask, v & 1);
    case HR_TEST_ALL:
        return (uint32_t)__all_sync(p.mask, v & 1);
    case HR_TEST_MATCH:
        return __match_any_sync(p.mask, v % 4);
    case HR_TEST_ADD:
        return __reduce_add_sync(p.mask, v);
    case HR_TEST_MIN:
        return (uint32_t)__reduce_min_sync(p.mask, (int)v);
    case HR_TEST_MAX:
        return (uint32_t)__reduce_max_sync(p.mask, (int)v);
    case HR_TEST_UMIN:
        return __reduce_min_sync(p.mask, v);
    case HR_TEST_UMAX:
        return __reduce_max_sync(p.mask, v);
    case HR_TEST_AND:
        return __reduce_and_sync(p.mask, v);
    case HR_TEST_OR:
        return __reduce_or_sync(p.mask, v);
    default:
        return __reduce_xor_sync(p.mask, v);
    }
}

HR_KERNEL(test_warp, 64, hr_test_warp, p) {
    const unsigned lane = threadIdx.x % 32;
    if (!(p.mask & p.callers & 1u << lane)) return;
    p.out[threadIdx.x] = warp_op(p, p.in[threadIdx.x]);
}

HR_KERNEL(test_leave, 64, hr_test_io, p) {
    const unsigned *in = static_cast<const unsigned *>(p.in);
    unsigned *out = static_cast<unsigned *>(p.out);
    if (threadIdx.x % 3 == 0) return; /* those who left are not waited for */
    __syncthreads();
    const unsigned sum = __reduce_add_sync(0xffffffffu, in[threadIdx.x]);
    if (threadIdx.x % 3 == 1) return;
    out[threadIdx.x] = sum;
    __syncwarp();
    __syncthreads();
}

/* ---- blocks and blocks beside blocks ---- */

HR_KERNEL(test_block_votes, 256, hr_test_io, p) {
    const int odd = static_cast<const int *>(p.in)[threadIdx.x] & 1;
    int *out = static_cast<int *>(p.out) + 3 * threadIdx.x;
    out[0] = __syncthreads_count(odd);
    out[1] = __syncthreads_and(odd);
    out[2] = __syncthreads_or(odd);
}

HR_KERNEL(test_atomics, 256, hr_test_io, p) {
    int *out = static_cast<int *>(p.out);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(out, 1);
    atomicSub(out + 1, 2);
    atomicMin(out + 2, -i);
    atomicMax(out + 3, i);
    atomicAnd(out + 4, (int)~(1u << i % 32));
    atomicOr(out + 5, (int)(1u << i % 32));
    atomicXor(out + 6, i);
    atomicExch(out + 7, 7);
    atomicInc(reinterpret_cast<unsigned *>(out + 8), 9u);
    atomicAdd(reinterpret_cast<float *>(out + 9), 0.5f);
    atomicAdd(reinterpret_cast<unsigned long long *>(out + 10), 1ull << 32);
    /* out[12]: a product modulo 2^32 by compare and swap. */
    for (int old = 0, seen;; old = seen) {
        seen = atomicCAS(out + 12, old, (int)((unsigned)old * 3u));
        if (seen == old) break;
    }
    atomicDec(reinterpret_cast<unsigned *>(out + 13), 5u);
}

HR_KERNEL(test_order, 64, hr_test_io, p) {
    HR_SHARED(unsigned, count, [2]);
    unsigned *total = static_cast<unsigned *>(p.out), *first = total + 1, *second = first + gridDim.x * blockDim.x;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    first[i] = atomicAdd(total, 1u);
    if (threadIdx.x == 0) count[0] = 0;
    __syncthreads();
    second[i] = atomicAdd(&count[0], 1u);
}

HR_KERNEL(test_poison, 32, hr_test_io, p) {
    HR_SHARED(unsigned, fixed, [32]);
    HR_SHARED_DYNAMIC(unsigned, asked);
    unsigned *out = static_cast<unsigned *>(p.out) + 64 * blockIdx.x;
    out[threadIdx.x] = fixed[threadIdx.x];
    out[32 + threadIdx.x] = asked[threadIdx.x];
    fixed[threadIdx.x] = asked[threadIdx.x] = 1;
}

/* ---- arithmetic ---- */

HR_KERNEL(test_bits, 64, hr_test_io, p) {
    for (unsigned i = threadIdx.x; i < p.n; i += blockDim.x) {
        const unsigned *v = static_cast<const unsigned *>(p.in) + 3 * i;
        unsigned *out = static_cast<unsigned *>(p.out) + HR_TEST_BITS * i;
        out[0] = (unsigned)__popc(v[0]);
        out[1] = (unsigned)__clz((int)v[0]);
        out[2] = (unsigned)__ffs((int)v[0]);
        out[3] = __brev(v[0]);
        out[4] = __umulhi(v[0], v[1]);
        out[5] = (unsigned)__mulhi((int)v[0], (int)v[1]);
        out[6] = __byte_perm(v[0], v[1], v[2]);
        out[7] = (unsigned)__dp4a((int)v[0], (int)v[1], (int)v[2]);
        out[8] = __dp4a(v[0], v[1], v[2]);
        out[9] = __funnelshift_l(v[0], v[1], v[2]);
        out[10] = __funnelshift_r(v[0], v[1], v[2]);
        out[11] = __vadd4(v[0], v[1]);
        out[12] = __vsub4(v[0], v[1]);
        out[13] = min(v[0], v[1]) ^ max((int)v[0], (int)v[1]);
    }
}

HR_KERNEL(test_floats, 64, hr_test_io, p) {
    for (unsigned i = threadIdx.x; i < p.n; i += blockDim.x) {
        const float v = static_cast<const float *>(p.in)[i];
        unsigned *out = static_cast<unsigned *>(p.out) + HR_TEST_FLOATS * i;
        out[0] = (unsigned)__float2int_rn(v);
        out[1] = (unsigned)__float2int_rz(v);
        out[2] = __float2uint_rn(v);
        out[3] = __float_as_uint(__saturatef(v));
        out[4] = __bfloat16_as_ushort(__float2bfloat16(v));
        out[5] = __half_as_ushort(__float2half(v));
        out[6] = __float_as_uint(__half2float(__ushort_as_half((unsigned short)out[5])));
    }
}

/* ---- instructions of cu.h ---- */

HR_KERNEL(test_copy_bytes, 32, hr_test_io, p) {
    HR_SHARED(uint4, tile, [17]);
    if (threadIdx.x >= 17) return;
    tile[threadIdx.x] = make_uint4(1, 2, 3, 4);
    hr_cp_async16(&tile[threadIdx.x], static_cast<const uint4 *>(p.in) + threadIdx.x, threadIdx.x);
    hr_cp_async_commit();
    hr_cp_async_wait<0>();
    static_cast<uint4 *>(p.out)[threadIdx.x] = tile[threadIdx.x];
}

HR_KERNEL(test_copy_groups, 32, hr_test_io, p) {
    HR_SHARED(uint4, tile, [3]);
    if (threadIdx.x) return;
    uint4 *out = static_cast<uint4 *>(p.out);
    for (int g = 0; g < 3; g++) {
        hr_cp_async16(&tile[g], static_cast<const uint4 *>(p.in) + g);
        hr_cp_async_commit();
    }
    for (int i = 0; i < 3; i++) out[i] = tile[i];
    hr_cp_async_wait<2>();
    for (int i = 0; i < 3; i++) out[3 + i] = tile[i];
    hr_cp_async_wait<1>();
    for (int i = 0; i < 3; i++) out[6 + i] = tile[i];
    hr_cp_async_wait<0>();
    for (int i = 0; i < 3; i++) out[9 + i] = tile[i];
}

HR_KERNEL(test_ldmatrix, 32, hr_test_io, p) {
    HR_SHARED(uint16_t, rows, [32][8]);
    const unsigned lane = threadIdx.x;
    for (unsigned i = 0; i < 8; i++) rows[lane][i] = static_cast<const uint16_t *>(p.in)[8 * lane + i];
    __syncwarp();
    unsigned *out = static_cast<unsigned *>(p.out) + 4 * lane;
    uint32_t r[4];
    hr_ldmatrix_x2(r, rows[lane % 16]);
    for (unsigned i = 0; i < 2; i++) out[i] = r[i];
    hr_ldmatrix_x4(r, rows[lane]);
    for (unsigned i = 0; i < 4; i++) out[128 + i] = r[i];
    hr_ldmatrix_x2_trans(r, rows[lane % 16]);
    for (unsigned i = 0; i < 2; i++) out[256 + i] = r[i];
    hr_ldmatrix_x4_trans(r, rows[lane]);
    for (unsigned i = 0; i < 4; i++) out[384 + i] = r[i];
}

HR_KERNEL(test_mma, 32, hr_test_io, p) {
    hr_test_fragments f = static_cast<const hr_test_fragments *>(p.in)[threadIdx.x];
    float *c = reinterpret_cast<float *>(f.c);
    if (p.op == HR_TEST_BF16) hr_mma_bf16(c, f.a, f.b);
    if (p.op == HR_TEST_F16) hr_mma_f16(c, f.a, f.b);
    if (p.op == HR_TEST_S8) hr_mma_s8(reinterpret_cast<int32_t *>(f.c), f.a, f.b);
    if (p.op == HR_TEST_E4M3) hr_mma_e4m3(c, f.a, f.b);
    for (unsigned i = 0; i < 4; i++) static_cast<unsigned *>(p.out)[4 * threadIdx.x + i] = f.c[i];
}

/* ---- rules that are broken, and the same done rightly ---- */

__device__ static unsigned recurse(unsigned *p, unsigned depth) {
    volatile unsigned frame[64];
    frame[depth % 64] = *p;
    return depth == UINT32_MAX ? 0 : recurse(p, depth + 1) + frame[depth % 64];
}

/* Each lane takes its neighbour's word from shared memory, forth and back. */
template <bool ACROSS_WARPS, bool RIGHT> __device__ static void exchange(unsigned *out) {
    HR_SHARED(unsigned, words, [64]);
    const unsigned i = threadIdx.x, from = ACROSS_WARPS ? 63 - i : i ^ 1;
    words[i] = i;
    if (ACROSS_WARPS && RIGHT)
        __syncthreads();
    else if (ACROSS_WARPS || RIGHT)
        __syncwarp();
    out[64 * blockIdx.x + i] = words[from];
}

/* The last block to come adds what the others left. */
template <bool FENCE> __device__ static void join(unsigned *out) {
    HR_SHARED(bool, last, [1]);
    unsigned *count = out, *parts = out + 1;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = blockIdx.x;
        if (FENCE) __threadfence();
        last[0] = atomicAdd(count, 1u) == gridDim.x - 1;
        if (FENCE) __threadfence();
    }
    __syncthreads();
    if (!last[0] || threadIdx.x) return;
    unsigned sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += parts[i];
    *count = sum;
}

HR_KERNEL(test_broken, 64, hr_test_io, p) {
    HR_SHARED(uint4, tile, [32]);
    const unsigned i = threadIdx.x, lane = i % 32;
    unsigned *out = static_cast<unsigned *>(p.out);
    const unsigned *in = static_cast<const unsigned *>(p.in);
    uint32_t a[4] = {0}, b[2] = {0};
    float c[4] = {0};
    switch (p.op) {
    case HR_TEST_BARRIER_IN_HALF:
        if (lane < 16) __syncthreads();
        __syncwarp();
        break;
    case HR_TEST_TWO_BARRIERS:
        if (i < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case HR_TEST_TWO_OPS:
        if (lane < 16)
            __syncwarp();
        else
            out[i] = __ballot_sync(0xffffffffu, 1);
        break;
    case HR_TEST_MISSING_LANE:
        if (lane != 5)
            out[i] = __ballot_sync(0xffffffffu, 1);
        else
            __syncthreads();
        break;
    case HR_TEST_NOT_IN_MASK:
        out[i] = __ballot_sync(0xfffffffeu, 1);
        break;
    case HR_TEST_HALF_MMA:
        if (lane < 16) return;
        hr_mma_bf16(c, a, b);
        break;
    case HR_TEST_COPY_UNALIGNED:
        hr_cp_async16(&tile[lane], reinterpret_cast<const char *>(in) + 8);
        break;
    case HR_TEST_COPY_TO_GLOBAL:
        hr_cp_async16(out, in);
        break;
    case HR_TEST_LDMATRIX_GLOBAL:
        hr_ldmatrix_x4(a, in);
        break;
    case HR_TEST_ATOMIC_UNALIGNED:
        atomicAdd(reinterpret_cast<unsigned *>(reinterpret_cast<char *>(out) + 2), 1u);
        break;
    case HR_TEST_STACK:
        out[i] = recurse(out, 0);
        break;
    case HR_TEST_TRAP:
        __trap();
        break;
    case HR_TEST_SHARED_TOO_LARGE: {
        HR_SHARED(char, large, [(48 << 10) + 4 - sizeof tile]);
        large[i] = 0;
        break;
    }
    case HR_TEST_READ_SHARED_BEHIND:
        out[i] = reinterpret_cast<unsigned *>(tile)[i + 65];
        break;
    case HR_TEST_READ_BEHIND:
        out[i] = in[i + 1];
        break;
    case HR_TEST_WRITE_BEHIND:
        out[i + 1] = 1;
        break;
    case HR_TEST_RACE_IN_WARP:
        exchange<false, false>(out);
        break;
    case HR_TEST_RACE_IN_BLOCK:
        exchange<true, false>(out);
        break;
    case HR_TEST_RACE_OF_BLOCKS:
        out[i] = i;
        break;
    case HR_TEST_NO_FENCE:
        join<false>(out);
        break;
    case HR_TEST_RIGHT_WARP:
        exchange<false, true>(out);
        break;
    case HR_TEST_RIGHT_BLOCK:
        exchange<true, true>(out);
        break;
    case HR_TEST_RIGHT_FENCE:
        join<true>(out);
        break;
    default:
        break;
    }
}
