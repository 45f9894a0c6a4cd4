/* shim_ptx.hpp - the instructions of kernels/cuda/cu.h as the PTX ISA describes them. */
#ifndef HR_SHIM_PTX_HPP
#define HR_SHIM_PTX_HPP

#include "tests/cuda_on_cpu/shim_machine.hpp"

#include <string.h>

/* ---- cp.async: happens when it is issued, or as late as it may: when it is waited for ---- */

namespace hr_shim {
/* Compiled with the kernel, so that sanitizers see the kernel read and write. */
static inline void copy_now(void *to, const void *from, uint32_t bytes) {
    uint8_t *target = static_cast<uint8_t *>(to);
    const uint8_t *source = static_cast<const uint8_t *>(from);
    for (uint32_t i = 0; i < bytes; i++) target[i] = source[i];
    for (uint32_t i = bytes; i < 16; i++) target[i] = 0;
}
static inline void copy_wait(unsigned pending) {
    void *to;
    const void *from;
    uint32_t bytes;
    while (copy_pop(pending, &to, &from, &bytes)) copy_now(to, from, bytes);
}
} // namespace hr_shim

static inline void hr_cp_async16(void *to, const void *from, uint32_t bytes = 16) {
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) hr_shim::misuse("cp.async: an address is not aligned to 16");
    if (bytes > 16) hr_shim::misuse("cp.async: more than 16 bytes to read");
    if (!hr_shim::is_shared(to, 16)) hr_shim::misuse("cp.async: the target is no shared memory of the block");
    if (bytes && hr_shim::is_shared(from, bytes)) hr_shim::misuse("cp.async: the source is shared memory");
    if (!hr_shim::copy_keep(to, from, bytes)) hr_shim::copy_now(to, from, bytes);
}
static inline void hr_cp_async_commit() {
    hr_shim::copy_commit();
}
template <int N> static inline void hr_cp_async_wait() {
    hr_shim::copy_wait(N);
}

/* ---- ldmatrix: every lane that gives a row reads it itself ---- */

namespace hr_shim {
static inline void ldmatrix(const warp_op &op, unsigned rows, uint32_t *r, const void *row) {
    uint16_t values[8] = {0};
    if (self->lane < rows) {
        if ((uintptr_t)row % 16) misuse("ldmatrix: the address of a row is not aligned to 16");
        if (!is_shared(row, 16)) misuse("ldmatrix: a row lies outside of the shared memory of the block");
        for (unsigned i = 0; i < 8; i++) values[i] = static_cast<const uint16_t *>(row)[i];
    }
    warp_wait(op, 0xffffffffu, values, r);
}
} // namespace hr_shim

static inline void hr_ldmatrix_x4(uint32_t r[4], const void *row) {
    hr_shim::ldmatrix(hr_shim::op_ldmatrix_x4, 32, r, row);
}
static inline void hr_ldmatrix_x2(uint32_t r[2], const void *row) {
    hr_shim::ldmatrix(hr_shim::op_ldmatrix_x2, 16, r, row);
}
static inline void hr_ldmatrix_x4_trans(uint32_t r[4], const void *row) {
    hr_shim::ldmatrix(hr_shim::op_ldmatrix_x4_trans, 32, r, row);
}
static inline void hr_ldmatrix_x2_trans(uint32_t r[2], const void *row) {
    hr_shim::ldmatrix(hr_shim::op_ldmatrix_x2_trans, 16, r, row);
}

/* ---- mma.sync ---- */

namespace hr_shim {
template <class C> static inline void mma(const warp_op &op, C c[4], const uint32_t a[4], const uint32_t b[2]) {
    static_assert(sizeof(C) == 4);
    mma_in in;
    memcpy(in.a, a, sizeof in.a);
    memcpy(in.b, b, sizeof in.b);
    memcpy(in.c, c, sizeof in.c);
    warp_wait(op, 0xffffffffu, &in, c);
}
} // namespace hr_shim

static inline void hr_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    hr_shim::mma(hr_shim::op_mma_bf16, c, a, b);
}
static inline void hr_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    hr_shim::mma(hr_shim::op_mma_f16, c, a, b);
}
static inline void hr_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2]) {
    hr_shim::mma(hr_shim::op_mma_s8, c, a, b);
}
static inline void hr_mma_e4m3(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    hr_shim::mma(hr_shim::op_mma_e4m3, c, a, b);
}

#endif
