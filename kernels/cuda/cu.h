/* cu.h - what a kernel for GPUs is written in: the only header of CUDA that a .cu file includes.
 *
 * The same source is compiled by nvcc for GPUs and by g++ for the CPU (HR_CUDA_ON_CPU: tests/cuda_on_cpu, whose header the compiler is
 * told to include first), where every thread is a fiber and the instructions below are models. Rules that make it possible:
 *     shared memory through HR_SHARED and HR_SHARED_DYNAMIC, a kernel through HR_KERNEL;
 *     arithmetic in fp32; bf16 and f16 are stored and converted;
 *     every PTX instruction stands here; no cooperative groups, no wmma fragments, no grid-wide waiting. */
#ifndef HR_CU_H
#define HR_CU_H

#ifndef HR_CUDA_ON_CPU
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* HR_SHARED(float, sums, [32][4]); */
#define HR_SHARED(type, name, extent) __shared__ __align__(16) type name extent
/* HR_SHARED_DYNAMIC(char, area); 128-byte aligned */
#define HR_SHARED_DYNAMIC(type, name)                             \
    extern __shared__ __align__(128) unsigned char hr_dynamic_[]; \
    type *name = reinterpret_cast<type *>(hr_dynamic_)
/* HR_KERNEL(gemv_bf16, 256, hr_cuda_matmul, p) { ... }: threads of a block at most, the struct of the family, its name. */
#define HR_KERNEL(name, threads, params, p) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ params p)
/* With at least `blocks` of its blocks on a multiprocessor at a time: what the compiler may spend on registers. Without that it
 * can prefer to spill. */
#define HR_KERNEL_RESIDENT(name, threads, blocks, params, p) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ params p)
/* Of a template: HR_KERNEL_OF(gemv_bf16, 256, hr_cuda_matmul, (gemv<HR_BF16>)) makes the symbol. */
#define HR_KERNEL_OF(name, threads, params, body) \
    HR_KERNEL(name, threads, params, p) {         \
        body(p);                                  \
    }

/* ---- PTX, each with its model in tests/cuda_on_cpu ---- */

__device__ static inline uint32_t hr_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* 16 bytes from global to shared memory, past L1; both aligned to 16. `bytes` 0..16 are read, the rest becomes zero. */
__device__ static inline void hr_cp_async16(void *to, const void *from, uint32_t bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(hr_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ static inline void hr_cp_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
/* Waits until at most N groups of this thread are under way. */
template <int N> __device__ static inline void hr_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}
/* 8x8 matrices of 16 bits; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ static inline void hr_ldmatrix_x4(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(hr_shared_address(row))
                 : "memory");
}
__device__ static inline void hr_ldmatrix_x2(uint32_t r[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(hr_shared_address(row))
                 : "memory");
}
__device__ static inline void hr_ldmatrix_x4_trans(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(hr_shared_address(row))
                 : "memory");
}
__device__ static inline void hr_ldmatrix_x2_trans(uint32_t r[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(hr_shared_address(row))
                 : "memory");
}
/* c[16][8] += a[16][16] b[16][8]; fragments as the PTX ISA has them, c in fp32. */
__device__ static inline void hr_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ static inline void hr_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* c[16][8] += a[16][32] b[32][8] of int8, c in int32. */
__device__ static inline void hr_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
/* The same with e4m3, c in fp32; sm_89 and later. */
__device__ static inline void hr_mma_e4m3(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
/* 16 bytes from the second-level cache or beyond it, past L1. */
__device__ static inline uint4 hr_load16_l2(const void *p) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];\n" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
#else
#define HR_KERNEL_RESIDENT(name, threads, blocks, params, p) HR_KERNEL(name, threads, params, p)
#define hr_load16_l2                                         hr_load16
#endif /* HR_CUDA_ON_CPU */

/* 16 bytes at once. */
__device__ static inline uint4 hr_load16(const void *p) {
    return *reinterpret_cast<const uint4 *>(p);
}

__device__ static inline float hr_warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
__device__ static inline float hr_warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

#endif
