/* shim_math.hpp - arithmetic that CUDA has and C++ has not. Fast variants (__expf) give the exact function: tests allow for both. */
#ifndef HR_SHIM_MATH_HPP
#define HR_SHIM_MATH_HPP

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b) {
    const std::common_type_t<A, B> x = a, y = b;
    return y < x ? y : x;
}
template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b) {
    const std::common_type_t<A, B> x = a, y = b;
    return x < y ? y : x;
}

/* ---- floats ---- */

static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline float __frsqrt_rn(float x) {
    return 1.0f / sqrtf(x);
}
static inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
static inline float __frcp_rn(float x) {
    return 1.0f / x;
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __fma_rn(double a, double b, double c) {
    return fma(a, b, c);
}
static inline float __saturatef(float x) {
    return x > 0 ? x < 1 ? x : 1.0f : 0.0f; /* NaN: 0 */
}
/* glibc declares functions of these names, and defines none. */
#define __expf(x)          expf(x)
#define __exp2f(x)         exp2f(x)
#define __exp10f(x)        exp10f(x)
#define __logf(x)          logf(x)
#define __log2f(x)         log2f(x)
#define __log10f(x)        log10f(x)
#define __powf(x, y)       powf(x, y)
#define __sinf(x)          sinf(x)
#define __cosf(x)          cosf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __tanhf(x)         tanhf(x)

/* ---- bits and conversions ---- */

namespace hr_shim {
template <class To, class From> static inline To bits(From v) {
    static_assert(sizeof(To) == sizeof(From));
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
} // namespace hr_shim

static inline unsigned __float_as_uint(float v) {
    return hr_shim::bits<unsigned>(v);
}
static inline int __float_as_int(float v) {
    return hr_shim::bits<int>(v);
}
static inline float __uint_as_float(unsigned v) {
    return hr_shim::bits<float>(v);
}
static inline float __int_as_float(int v) {
    return hr_shim::bits<float>(v);
}
static inline long long __double_as_longlong(double v) {
    return hr_shim::bits<long long>(v);
}
static inline double __longlong_as_double(long long v) {
    return hr_shim::bits<double>(v);
}
/* Out of range: the nearest value, NaN 0, as cvt does. */
static inline int __float2int_rn(float v) {
    return v != v ? 0 : v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int)rintf(v);
}
static inline int __float2int_rz(float v) {
    return v != v ? 0 : v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int)v;
}
static inline int __float2int_rd(float v) {
    return __float2int_rz(floorf(v));
}
static inline int __float2int_ru(float v) {
    return __float2int_rz(ceilf(v));
}
static inline unsigned __float2uint_rn(float v) {
    return !(v > 0) ? 0 : v >= 0x1p32f ? UINT32_MAX : (unsigned)rintf(v);
}
static inline unsigned __float2uint_rz(float v) {
    return !(v > 0) ? 0 : v >= 0x1p32f ? UINT32_MAX : (unsigned)v;
}
static inline float __int2float_rn(int v) {
    return (float)v;
}
static inline float __uint2float_rn(unsigned v) {
    return (float)v;
}
static inline float __ull2float_rn(unsigned long long v) {
    return (float)v;
}
static inline float __double2float_rn(double v) {
    return (float)v;
}

/* ---- integers ---- */

static inline int __popc(unsigned v) {
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v) {
    return __builtin_popcountll(v);
}
static inline int __clz(int v) {
    return v ? __builtin_clz((unsigned)v) : 32;
}
static inline int __clzll(long long v) {
    return v ? __builtin_clzll((unsigned long long)v) : 64;
}
static inline int __ffs(int v) {
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v) {
    return __builtin_ffsll(v);
}
static inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1u) << (31 - i);
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b) {
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
/* Four bytes of the eight in b:a; with bit 3 of a selector the sign of that byte in all its bits. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selectors) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned selector = selectors >> (4 * i) & 15, byte = (unsigned)(bytes >> (8 * (selector & 7))) & 0xff;
        r |= (selector & 8 ? byte & 0x80 ? 0xffu : 0u : byte) << (8 * i);
    }
    return r;
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c = (int)((unsigned)c + (unsigned)((int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i))));
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
    return c;
}
/* Four bytes at once. */
static inline unsigned __vadd4(unsigned a, unsigned b) {
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
static inline unsigned __vsub4(unsigned a, unsigned b) {
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}

/* ---- loads and stores with a hint for the caches ---- */

template <class T> static inline T __ldg(const T *p) {
    return *p;
}
template <class T> static inline T __ldca(const T *p) {
    return *p;
}
template <class T> static inline T __ldcg(const T *p) {
    return *p;
}
template <class T> static inline T __ldcs(const T *p) {
    return *p;
}
template <class T> static inline T __ldcv(const T *p) {
    return *p;
}
template <class T> static inline T __ldlu(const T *p) {
    return *p;
}
template <class T> static inline void __stcg(T *p, T v) {
    *p = v;
}
template <class T> static inline void __stcs(T *p, T v) {
    *p = v;
}
template <class T> static inline void __stwb(T *p, T v) {
    *p = v;
}
template <class T> static inline void __stwt(T *p, T v) {
    *p = v;
}

/* ---- the rest ---- */

static inline void __nanosleep(unsigned) {}
static inline long long clock64() {
    return 0;
}
#define __trap() hr_shim::misuse("__trap()")

#endif
