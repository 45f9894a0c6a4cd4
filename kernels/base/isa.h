/* isa.h - what this CPU can do, found once by CPUID, and the level that kernels may use. */
#ifndef HR_ISA_H
#define HR_ISA_H

#include "kernels/base/status.h"
#include <stdbool.h>

/* Levels of --isa, lowest first. avxvnni is AVX2 with the VEX form of VNNI; avx512 means F, BW, VL and DQ, with VNNI and
 * BF16 as features of their own. A CPU may have avx512 and not avxvnni (Zen 4): rows of avxvnni need HR_CPU_AVXVNNI. */
typedef enum hr_isa {
    HR_ISA_GENERIC,
    HR_ISA_AVX2,
    HR_ISA_AVXVNNI,
    HR_ISA_AVX512,
    HR_ISA_COUNT,
    HR_ISA_AUTO = HR_ISA_COUNT
} hr_isa;

/* Bits a kernel may need beside its level. */
enum { HR_CPU_VNNI = 1, HR_CPU_BF16 = 2, HR_CPU_AVXVNNI = 4 };

const char *hr_isa_name(hr_isa isa); /* "generic", "avx2", "avxvnni", "avx512", "auto" */
hr_isa hr_isa_best(void);            /* of this CPU and operating system */
unsigned hr_cpu_features(void);      /* HR_CPU_* of this CPU */
/* AUTO becomes the best; a level that the CPU lacks is ERR_UNSUPPORTED. */
hr_status hr_isa_resolve(hr_isa wanted, hr_isa *out);

#endif
