/* shim_atomic.hpp - atomic operations and fences. As on the device, an atomic operation alone orders nothing. */
#ifndef HR_SHIM_ATOMIC_HPP
#define HR_SHIM_ATOMIC_HPP

#include "tests/cuda_on_cpu/shim_machine.hpp"

#include <string.h>
#include <type_traits>

static inline void __threadfence() {
    hr_shim::fence();
}
static inline void __threadfence_block() {
    hr_shim::fence();
}
static inline void __threadfence_system() {
    hr_shim::fence();
}

namespace hr_shim {
/* *p becomes change(*p); returns what it was. The builtins are those that ThreadSanitizer knows. */
template <class T, class F> static inline T atomic_change(T *p, F change) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
    using word = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    if ((uintptr_t)p % sizeof(T)) misuse("atomic operation on an address that is not aligned");
    word *at = reinterpret_cast<word *>(p), old = __atomic_load_n(at, __ATOMIC_RELAXED), next;
    T before, after;
    do {
        memcpy(&before, &old, sizeof before);
        after = change(before);
        memcpy(&next, &after, sizeof next);
    } while (!__atomic_compare_exchange_n(at, &old, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    atomic_access(p);
    return before;
}
template <class T> struct same { typedef T type; /* keeps an argument out of deduction: atomicAdd(unsigned *, 1) */ };
} // namespace hr_shim

#define HR_SHIM_ATOMIC(name, expression)                                               \
    template <class T> static inline T name(T *p, typename hr_shim::same<T>::type v) { \
        return hr_shim::atomic_change(p, [=](T old) -> T { return (T)(expression); }); \
    }
HR_SHIM_ATOMIC(atomicAdd, old + v)
HR_SHIM_ATOMIC(atomicSub, old - v)
HR_SHIM_ATOMIC(atomicMin, v < old ? v : old)
HR_SHIM_ATOMIC(atomicMax, old < v ? v : old)
HR_SHIM_ATOMIC(atomicAnd, old &v)
HR_SHIM_ATOMIC(atomicOr, old | v)
HR_SHIM_ATOMIC(atomicXor, old ^ v)
HR_SHIM_ATOMIC(atomicExch, ((void)old, v))
HR_SHIM_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
HR_SHIM_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef HR_SHIM_ATOMIC

template <class T>
static inline T atomicCAS(T *p, typename hr_shim::same<T>::type compare, typename hr_shim::same<T>::type v) {
    return hr_shim::atomic_change(p, [=](T old) -> T { return old == compare ? v : old; });
}

#endif
