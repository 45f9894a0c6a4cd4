/* attn_counted.c - the generic attention and append once more, in which every run that they walk is counted (kv_count.h).
 * Its rows are in no list of table.c: nothing chooses them. */
#define HR_KV_COUNT
#include "kernels/cpu/simd_generic.h"

#include "kernels/cpu/attn_body.h"
#include "kernels/cpu/kv_append_body.h"

const hr_kernel hr_kernels_attn_counted[] = {HR_ATTN_KERNELS("counted", HR_ISA_GENERIC, -1)};

void hr_attn_counted(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_flash(a, unit0, unit1, scratch);
}

void hr_kv_append_counted(const hr_kv_seq *s, uint32_t layer, uint32_t pos0, const float *k, size_t ldk, const float *v,
                          size_t ldv, size_t t0, size_t t1, uint32_t head0, uint32_t head1) {
    kv_append(s, layer, pos0, k, ldk, v, ldv, t0, t1, head0, head1);
}
