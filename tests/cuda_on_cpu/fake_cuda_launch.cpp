// fake_cuda_launch.cpp - modules, functions, launches of kernels.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <cstring>

namespace fake {

static bool fits_a_grid(const unsigned grid[3], const unsigned block[3]) {
    return grid[0] && grid[1] && grid[2] && grid[0] <= 2147483647u && grid[1] <= 65535 && grid[2] <= 65535 &&
           block[0] && block[1] && block[2] && block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 &&
           (uint64_t)block[0] * block[1] * block[2] <= 1024;
}

static CUresult check_launch(const function &f, const unsigned grid[3], const unsigned block[3], unsigned smem) {
    if (!fits_a_grid(grid, block)) return CUDA_ERROR_INVALID_VALUE;
    if (block[0] * block[1] * block[2] > f.max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (smem > f.max_dynamic || smem + f.smem_static > (unsigned)the().set.smem_optin())
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// The one parameter, from a list of pointers or from a packed buffer. NULL: neither.
static const void *parameter(const function &f, void **list, void **extra) {
    if (list) return extra ? nullptr : list[0];
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return nullptr;
    }
    return bytes == f.params_bytes ? buffer : nullptr;
}

} // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule *out, const void *image) {
    HR_ENTER(cuModuleLoadData, CONTEXT | UNSAFE);
    if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
    auto m = std::make_shared<module>();
    m->owner = in.dev;
    const CUresult result = read_fatbin(image, the().set, m.get());
    if (result) return result;
    *out = the().modules.add(std::move(m));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle) {
    HR_ENTER(cuModuleUnload, CONTEXT | UNSAFE | RELEASES);
    const auto m = the().modules.find(handle);
    if (!m || m->owner != in.dev) return in.end(CUDA_ERROR_INVALID_HANDLE);
    const CUresult ruined = wait_for_all(in.dev);
    for (const auto &f : m->functions) the().functions.remove(f.second);
    the().modules.remove(handle);
    return in.end(ruined);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *symbol) {
    HR_ENTER(cuModuleGetFunction, CONTEXT);
    const auto m = the().modules.find(handle);
    if (!out || !symbol) return CUDA_ERROR_INVALID_VALUE;
    if (!m || m->owner != in.dev) return CUDA_ERROR_INVALID_HANDLE;
    const size_t bytes = hr_shim_params_bytes(symbol);
    if (!bytes || (m->readable && !m->kernels.count(symbol))) return CUDA_ERROR_NOT_FOUND;
    if (!m->functions.count(symbol)) {
        const image_kernel k = m->readable ? m->kernels[symbol] : image_kernel();
        const uint32_t dynamic = k.smem_static < 48u << 10 ? (48u << 10) - k.smem_static : 0;
        m->functions[symbol] = the().functions.add(std::make_shared<function>(
            function{in.dev, symbol, bytes, k.registers, k.smem_static, k.max_threads, k.local_bytes, dynamic}));
    }
    *out = m->functions[symbol];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int *out, CUfunction_attribute which, CUfunction handle) {
    HR_ENTER(cuFuncGetAttribute, CONTEXT);
    const auto f = the().functions.find(handle);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = (int)f->max_threads;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *out = (int)f->smem_static;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *out = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *out = (int)f->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *out = (int)f->registers;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *out = 10 * the().set.major + the().set.minor;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *out = (int)f->max_dynamic;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *out = -1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
    HR_ENTER(cuFuncSetAttribute, CONTEXT);
    const auto f = the().functions.find(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    if (value < 0 || value + (int)f->smem_static > the().set.smem_optin()) return CUDA_ERROR_INVALID_VALUE;
    f->max_dynamic = (uint32_t)value;
    return CUDA_SUCCESS;
}

// The parameter is copied at the call.
CUresult CUDAAPI cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                unsigned bz, unsigned smem, CUstream where, void **params, void **extra) {
    HR_ENTER(cuLaunchKernel, CONTEXT);
    const auto f = the().functions.find(handle);
    const auto s = stream_of(in.dev, where);
    if (!f || f->owner != in.dev || !s) return CUDA_ERROR_INVALID_HANDLE;
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    const auto *given = (const unsigned char *)parameter(*f, params, extra);
    const CUresult result = given ? check_launch(*f, grid, block, smem) : CUDA_ERROR_INVALID_VALUE;
    if (result) return result;
    operation op{};
    op.what = operation::KERNEL, op.kind = HR_FAKE_CUDA_KERNEL, op.name = f->symbol;
    for (int i = 0; i < 3; i++) op.shape.grid[i] = grid[i], op.shape.block[i] = block[i];
    op.shape.smem = smem, op.smem_static = f->smem_static, op.registers = f->registers;
    op.data.assign(given, given + f->params_bytes);
    refuse_host_pointers(f->symbol.c_str(), op.data.data(), op.data.size());
    the().done.launches++;
    return put(in, s, std::move(op));
}

} // extern "C"
