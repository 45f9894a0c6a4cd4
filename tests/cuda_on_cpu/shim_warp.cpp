/* shim_warp.cpp - what the operations of a warp give each lane. */
#include "tests/cuda_on_cpu/shim_machine.hpp"

#include <string.h>

namespace hr_shim {

template <class T> static T value(const lane &l) {
    T v;
    memcpy(&v, l.in, sizeof v);
    return v;
}
template <class T> static void give(lane *l, T v) {
    memcpy(l->out, &v, sizeof v);
}

static void syncwarp(lane *, uint32_t) {}

/* A value from a lane that takes no part is undefined: poison. */
static void shuffle_lanes(lane lanes[32], uint32_t mask) {
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        const unsigned source = value<shuffle_in>(lanes[i]).source;
        give(&lanes[i], mask >> source & 1 ? value<shuffle_in>(lanes[source]).value : UINT64_MAX);
    }
}

static void ballot(lane lanes[32], uint32_t mask) {
    uint32_t set = 0;
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1) set |= value<uint32_t>(lanes[i]) << i;
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1) give(&lanes[i], set);
}

static void match_any(lane lanes[32], uint32_t mask) {
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        uint32_t equal = 0;
        for (unsigned j = 0; j < 32; j++)
            if ((mask >> j & 1) && value<uint64_t>(lanes[j]) == value<uint64_t>(lanes[i])) equal |= 1u << j;
        give(&lanes[i], equal);
    }
}

template <class T, T (*JOIN)(T, T)> static void reduce(lane lanes[32], uint32_t mask) {
    const unsigned first = (unsigned)__builtin_ctz(mask);
    T result = value<T>(lanes[first]);
    for (unsigned i = first + 1; i < 32; i++)
        if (mask >> i & 1) result = JOIN(result, value<T>(lanes[i]));
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1) give(&lanes[i], result);
}
template <class T> static T add(T a, T b) {
    return a + b;
}
template <class T> static T lower(T a, T b) {
    return b < a ? b : a;
}
template <class T> static T higher(T a, T b) {
    return a < b ? b : a;
}
static uint32_t bits_and(uint32_t a, uint32_t b) {
    return a & b;
}
static uint32_t bits_or(uint32_t a, uint32_t b) {
    return a | b;
}
static uint32_t bits_xor(uint32_t a, uint32_t b) {
    return a ^ b;
}

const warp_op op_syncwarp = {"__syncwarp", syncwarp, false, true};
const warp_op op_shuffle = {"a shuffle", shuffle_lanes, false, false};
const warp_op op_ballot = {"a vote", ballot, false, false};
const warp_op op_match_any = {"__match_any_sync", match_any, false, false};
const warp_op op_add = {"__reduce_add_sync", reduce<uint32_t, add>, false, false};
const warp_op op_min_s32 = {"__reduce_min_sync", reduce<int32_t, lower>, false, false};
const warp_op op_max_s32 = {"__reduce_max_sync", reduce<int32_t, higher>, false, false};
const warp_op op_min_u32 = {"__reduce_min_sync", reduce<uint32_t, lower>, false, false};
const warp_op op_max_u32 = {"__reduce_max_sync", reduce<uint32_t, higher>, false, false};
const warp_op op_and = {"__reduce_and_sync", reduce<uint32_t, bits_and>, false, false};
const warp_op op_or = {"__reduce_or_sync", reduce<uint32_t, bits_or>, false, false};
const warp_op op_xor = {"__reduce_xor_sync", reduce<uint32_t, bits_xor>, false, false};

} // namespace hr_shim
