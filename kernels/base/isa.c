#include "kernels/base/isa.h"

static const char *const names[] = {"generic", "avx2", "avxvnni", "avx512", "auto"};

const char *hr_isa_name(hr_isa isa) {
    return (unsigned)isa <= HR_ISA_AUTO ? names[isa] : "unknown";
}

#if defined(__x86_64__)
#include <cpuid.h>

/* By CPUID, for clang's builtin does not know f16c; that the system saves the registers is part of avx2's answer. */
static bool has_f16c(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

hr_isa hr_isa_best(void) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return HR_ISA_GENERIC;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return HR_ISA_AVX512;
    return has_avx_vnni() ? HR_ISA_AVXVNNI : HR_ISA_AVX2;
}

unsigned hr_cpu_features(void) {
    return (__builtin_cpu_supports("avx512vnni") ? HR_CPU_VNNI : 0) |
           (__builtin_cpu_supports("avx512bf16") ? HR_CPU_BF16 : 0) |
           (__builtin_cpu_supports("avx2") && has_avx_vnni() ? HR_CPU_AVXVNNI : 0);
}
#else
hr_isa hr_isa_best(void) {
    return HR_ISA_GENERIC;
}
unsigned hr_cpu_features(void) {
    return 0;
}
#endif

hr_status hr_isa_resolve(hr_isa wanted, hr_isa *out) {
    hr_isa best = hr_isa_best();
    const bool lacks_vnni = wanted == HR_ISA_AVXVNNI && !(hr_cpu_features() & HR_CPU_AVXVNNI);
    if (wanted != HR_ISA_AUTO && (wanted > best || lacks_vnni))
        HR_FAIL(HR_ERR_UNSUPPORTED, "--isa %s: this CPU has no %s; its best is %s", hr_isa_name(wanted),
                hr_isa_name(wanted), hr_isa_name(best));
    *out = wanted == HR_ISA_AUTO ? best : wanted;
    return HR_OK;
}
