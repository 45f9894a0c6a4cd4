/* roof_patterns.h - the reading patterns, written once for all vector widths.
 *
 * The including file defines HR_VEC (a vector type), HR_VEC_XOR(acc, address) (acc ^= the vector there, in one
 * instruction), HR_VEC_FOLD(acc) (the exclusive or of its 64-bit words) and HR_VEC_ZERO; without them it reads 64-bit
 * words in plain C. What limits a core's reading rate is the number of misses in flight; which of these patterns keeps
 * most of them depends on the prefetchers of the core and on the memory behind it, so all are tried. */
#ifndef HR_ROOF_PATTERNS_H
#define HR_ROOF_PATTERNS_H

#include "harness/roof/roof.h"

#include <string.h>

#ifndef HR_VEC
#define HR_VEC      uint64_t
#define HR_VEC_ZERO 0
#define HR_VEC_XOR(acc, address) \
    do {                         \
        uint64_t w_;             \
        memcpy(&w_, address, 8); \
        acc ^= w_;               \
    } while (0)
#define HR_VEC_FOLD(acc) (acc)
#endif

/* X(streams, near, ahead, keep): streams read side by side; near: in neighbouring pages, else in equal parts of the
 * whole; ahead: bytes of software prefetch within a stream, 0: none; keep: the prefetched lines may stay in all caches
 * (prefetcht0), else they shall pass them by (prefetchnta). On a Zen 5 virtual machine two threads reach the same best with
 * most of these (54 GB/s of 50 to 55), one thread more with four streams and prefetchnta (47 GB/s of 40 to 47). */
/* clang-format off */
#define HR_ROOF_PATTERNS(X)                                                                      \
    X(1, 0, 0, 1) X(1, 0, 512, 1) X(1, 0, 1024, 1) X(1, 0, 2048, 1) X(1, 0, 4096, 1)             \
    X(1, 0, 8192, 1) X(1, 0, 16384, 1) X(2, 0, 0, 1) X(2, 0, 1024, 1) X(2, 0, 4096, 1)           \
    X(4, 0, 0, 1) X(4, 0, 1024, 1) X(4, 0, 4096, 1) X(8, 0, 0, 1) X(2, 1, 0, 1) X(2, 1, 8192, 1) \
    X(4, 1, 0, 1) X(4, 1, 16384, 1) X(8, 1, 0, 1) X(1, 0, 2048, 0) X(2, 0, 1024, 0)              \
    X(2, 0, 4096, 0) X(4, 0, 1024, 0) X(4, 0, 2048, 0) X(8, 0, 1024, 0)
/* clang-format on */

enum { HR_ROOF_STEP = 256, HR_ROOF_PAGE = 4096, HR_VECS = HR_ROOF_STEP / sizeof(HR_VEC) };
enum { HR_ACCS = HR_VECS < 8 ? HR_VECS : 8 };

static inline __attribute__((always_inline)) void step(HR_VEC acc[HR_ACCS], const char *p, size_t ahead, bool keep) {
    for (size_t line = 0; ahead && line < HR_ROOF_STEP; line += 64)
        if (keep)
            __builtin_prefetch(p + ahead + line, 0, 3);
        else
            __builtin_prefetch(p + ahead + line, 0, 0);
#pragma GCC unroll 16
    for (size_t v = 0; v < HR_VECS; v++) HR_VEC_XOR(acc[v % HR_ACCS], p + v * sizeof(HR_VEC));
}

static inline __attribute__((always_inline)) uint64_t walk(const char *p, size_t n, size_t streams, bool near,
                                                           size_t ahead, bool keep) {
    HR_VEC acc[HR_ACCS];
#pragma GCC unroll 16
    for (size_t a = 0; a < HR_ACCS; a++) acc[a] = HR_VEC_ZERO;
    size_t stride = near ? HR_ROOF_PAGE : n / streams, block = stride * streams;
    size_t at = 0;
    for (; block && at + block <= n; at += block)
        for (size_t i = 0; i < stride; i += HR_ROOF_STEP)
#pragma GCC unroll 8
            for (size_t s = 0; s < streams; s++) step(acc, p + at + s * stride + i, ahead, keep);
    for (; at < n; at += HR_ROOF_STEP) step(acc, p + at, ahead, keep);
    uint64_t sum = 0;
#pragma GCC unroll 16
    for (size_t a = 0; a < HR_ACCS; a++) sum ^= HR_VEC_FOLD(acc[a]);
    return sum;
}

#define X(streams, near, ahead, keep)                                                     \
    static uint64_t read_##streams##_##near##_##ahead##_##keep(const char *p, size_t n) { \
        return walk(p, n, streams, near, ahead, keep);                                    \
    }
HR_ROOF_PATTERNS(X)
#undef X

static uint64_t (*const read_table[])(const char *, size_t) = {
#define X(streams, near, ahead, keep) read_##streams##_##near##_##ahead##_##keep,
    HR_ROOF_PATTERNS(X)
#undef X
};
enum { N_PATTERNS = sizeof read_table / sizeof *read_table };

static const hr_roof_pattern pattern_list[N_PATTERNS] = {
#define X(streams, near, ahead, keep) {streams, ahead, near, keep, 8 * sizeof(HR_VEC)},
    HR_ROOF_PATTERNS(X)
#undef X
};

static uint64_t read_pattern(const void *p, size_t n, int pattern) {
    return read_table[pattern](p, n);
}

#endif
