/* shim_device.hpp - CUDA C++ for g++: included by the compiler before every .cu that is built for the CPU.
 *
 * Here stand keywords, indices, shared memory, kernels and barriers; shim_warp.hpp has what a warp does together, shim_math.hpp
 * arithmetic, shim_atomic.hpp atomic operations and fences, shim_ptx.hpp the models of the instructions of kernels/cuda/cu.h.
 * Storage types and conversions are NVIDIA's own (cuda_fp16.h, cuda_bf16.h work on the host). */
#ifndef HR_SHIM_DEVICE_HPP
#define HR_SHIM_DEVICE_HPP

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/cuda_on_cpu/shim_machine.hpp"

/* ---- keywords ---- */

#undef __device__
#undef __host__
#undef __global__
#undef __constant__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __global__                  static_assert(false, "a kernel is made by HR_KERNEL");
#define __shared__                  static_assert(false, "shared memory is made by HR_SHARED");
#define __builtin_assume(condition) ((void)0)

/* ---- where a thread is ---- */

#define threadIdx (hr_shim::self->index)
#define blockIdx  (hr_shim::block.index)
#define blockDim  (hr_shim::block.dim)
#define gridDim   (hr_shim::block.grid)
static constexpr int warpSize = 32;

/* ---- shared memory and kernels: the macros of cu.h ---- */

#define HR_SHARED(type, name, extent)    \
    static char name##_key;              \
    typedef type name##_shared_t extent; \
    name##_shared_t &name = *static_cast<name##_shared_t *>(hr_shim::shared(&name##_key, sizeof(name##_shared_t)))
#define HR_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(hr_shim::block.dynamic)

#define HR_KERNEL(name, threads, params, p)                                                                     \
    static void name(const params &p);                                                                          \
    static_assert(sizeof(params) <= 4096 && (threads) <= 1024, "more than a launch can carry");                 \
    static const hr_shim::kernel name##_kernel(#name, threads, sizeof(params),                                  \
                                               [](const void *p_) { name(*static_cast<const params *>(p_)); }); \
    static void name(const params &p)
#define HR_KERNEL_OF(name, threads, params, body) \
    HR_KERNEL(name, threads, params, p) {         \
        body(p);                                  \
    }

/* ---- barriers ---- */

#define __syncthreads()        ((void)hr_shim::block_wait(hr_shim::barrier::plain, false, __FILE__, __LINE__))
#define __syncthreads_count(p) hr_shim::block_wait(hr_shim::barrier::count, (p) != 0, __FILE__, __LINE__)
#define __syncthreads_and(p)   hr_shim::block_wait(hr_shim::barrier::all, (p) != 0, __FILE__, __LINE__)
#define __syncthreads_or(p)    hr_shim::block_wait(hr_shim::barrier::any, (p) != 0, __FILE__, __LINE__)

#include "tests/cuda_on_cpu/shim_atomic.hpp"
#include "tests/cuda_on_cpu/shim_math.hpp"
#include "tests/cuda_on_cpu/shim_ptx.hpp"
#include "tests/cuda_on_cpu/shim_warp.hpp"

#endif
