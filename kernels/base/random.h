/* random.h - splitmix64 (Steele, Lea, Flood 2014): the project's one generator, the same bits on every machine. */
#ifndef HR_RANDOM_H
#define HR_RANDOM_H

#include "kernels/base/both.h"
#include <stdint.h>

#define HR_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 over the golden ratio: the step of the counter */

/* The finalizer: a bijection that makes successive counters look random. */
HR_BOTH static inline uint64_t hr_mix64(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The next 64 random bits. */
HR_BOTH static inline uint64_t hr_random(uint64_t *state) {
    return hr_mix64(*state += HR_GOLDEN);
}

#endif
