/* shim_warp.hpp - what the lanes of a warp do together: shuffles, votes, reductions, __syncwarp. */
#ifndef HR_SHIM_WARP_HPP
#define HR_SHIM_WARP_HPP

#include "tests/cuda_on_cpu/shim_machine.hpp"

#include <string.h>
#include <type_traits>

static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    hr_shim::warp_wait(hr_shim::op_syncwarp, mask, nullptr, nullptr);
}
static inline unsigned __activemask() {
    return hr_shim::warp_live(); /* the widest set that the hardware may give */
}

/* ---- shuffles: values of up to 8 bytes ---- */

namespace hr_shim {
template <class T> static inline T shuffle(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    shuffle_in in = {source & 31, 0};
    memcpy(&in.value, &value, sizeof value);
    uint64_t out = 0;
    warp_wait(op_shuffle, mask, &in, &out);
    memcpy(&value, &out, sizeof value);
    return value;
}
/* The first lane of the part of `width` lanes that this one belongs to. */
static inline unsigned segment_start(int width) {
    return self->lane & ~((unsigned)width - 1);
}
} // namespace hr_shim

template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    return hr_shim::shuffle(mask, value, hr_shim::segment_start(width) + ((unsigned)source & ((unsigned)width - 1)));
}
/* A source past the own part is an error of up, down and xor that gives a lane its own value. */
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    const unsigned lane = hr_shim::self->lane, source = lane ^ (unsigned)lanes;
    return hr_shim::shuffle(mask, value, source < hr_shim::segment_start(width) + (unsigned)width ? source : lane);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
    const unsigned lane = hr_shim::self->lane, source = lane + lanes;
    return hr_shim::shuffle(mask, value, source < hr_shim::segment_start(width) + (unsigned)width ? source : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
    const unsigned lane = hr_shim::self->lane;
    return hr_shim::shuffle(mask, value, lane >= hr_shim::segment_start(width) + lanes ? lane - lanes : lane);
}

/* ---- votes ---- */

static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const uint32_t in = predicate != 0;
    uint32_t out = 0;
    hr_shim::warp_wait(hr_shim::op_ballot, mask, &in, &out);
    return out;
}
static inline int __any_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, !predicate) == 0;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value) {
    static_assert(sizeof(T) <= 8);
    uint64_t in = 0;
    uint32_t out = 0;
    memcpy(&in, &value, sizeof value);
    hr_shim::warp_wait(hr_shim::op_match_any, mask, &in, &out);
    return out;
}

/* ---- reductions of 32-bit integers ---- */

namespace hr_shim {
static inline uint32_t reduce(const warp_op &op, unsigned mask, uint32_t value) {
    uint32_t out = 0;
    warp_wait(op, mask, &value, &out);
    return out;
}
} // namespace hr_shim

static inline unsigned __reduce_add_sync(unsigned mask, unsigned v) {
    return hr_shim::reduce(hr_shim::op_add, mask, v);
}
static inline int __reduce_add_sync(unsigned mask, int v) {
    return (int)hr_shim::reduce(hr_shim::op_add, mask, (uint32_t)v);
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v) {
    return hr_shim::reduce(hr_shim::op_min_u32, mask, v);
}
static inline int __reduce_min_sync(unsigned mask, int v) {
    return (int)hr_shim::reduce(hr_shim::op_min_s32, mask, (uint32_t)v);
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v) {
    return hr_shim::reduce(hr_shim::op_max_u32, mask, v);
}
static inline int __reduce_max_sync(unsigned mask, int v) {
    return (int)hr_shim::reduce(hr_shim::op_max_s32, mask, (uint32_t)v);
}
static inline unsigned __reduce_and_sync(unsigned mask, unsigned v) {
    return hr_shim::reduce(hr_shim::op_and, mask, v);
}
static inline unsigned __reduce_or_sync(unsigned mask, unsigned v) {
    return hr_shim::reduce(hr_shim::op_or, mask, v);
}
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned v) {
    return hr_shim::reduce(hr_shim::op_xor, mask, v);
}

#endif
