/* kv_copy.cu - positions of one sequence into another, whatever the layouts' pages are: fork, and cutting a sequence. A block
 * takes 64 positions of one head of one layer; of K in groups (i4kc) one block more makes the open rows. */
#include "kernels/cuda/kv_store.cuh"
#include "kernels/cuda/vec_launch.h"

/* n rows of `row` bytes, equally spaced on both sides, in words of T. */
template <class T>
__device__ static inline void copy_words(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride,
                                         uint32_t row, uint32_t n) {
    const uint32_t words = row / (uint32_t)sizeof(T);
    for (uint32_t i = threadIdx.x; i < n * words; i += blockDim.x) {
        const uint32_t r = i / words, c = i % words;
        reinterpret_cast<T *>(to + r * to_stride)[c] = reinterpret_cast<const T *>(from + r * from_stride)[c];
    }
}
__device__ static inline void copy_rows(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride,
                                        uint32_t row, uint32_t n) {
    const uintptr_t all = (uintptr_t)to | (uintptr_t)from | to_stride | from_stride | row;
    if (all % 16 == 0)
        copy_words<uint4>(to, to_stride, from, from_stride, row, n);
    else if (all % 4 == 0)
        copy_words<uint32_t>(to, to_stride, from, from_stride, row, n);
    else
        copy_words<uint8_t>(to, to_stride, from, from_stride, row, n);
}

__device__ static inline void copy_positions(const hr_kv_seq *source, const hr_kv_seq *target, uint32_t layer,
                                             uint32_t head, uint32_t from, uint32_t to) {
    const uint32_t gone_from = source->gone_from, gone_to = source->gone_to;
    for (uint32_t pos = from, n; pos < to; pos += n) {
        n = to - pos;
        if (pos >= gone_from && pos < gone_to) { /* their pages are gone too */
            n = min(n, gone_to - pos);
            continue;
        }
        if (pos < gone_from && gone_from < gone_to) n = min(n, gone_from - pos);
        const hr_kv_rows a = hr_kv_run(source, layer, head, pos), b = hr_kv_run(target, layer, head, pos);
        n = min(n, min(a.n, b.n));
        for (int x = 0; x < HR_KV_PLANES; x++)
            if (a.at[x]) copy_rows(b.at[x], b.stride[x], a.at[x], a.stride[x], (uint32_t)source->g->row_bytes[x], n);
    }
}

/* What hr_kv_open_at does, for one head: the rows of the last group of a sequence of len positions. */
__device__ static inline void copy_open(const hr_kv_seq *source, const hr_kv_seq *target, uint32_t layer, uint32_t head,
                                        uint32_t len) {
    const uint32_t dim = source->g->head_dim, first = hr_kv_closed(source->g, len);
    const bool was_open = first == hr_kv_closed(source->g, source->len);
    /* one plane: rows that move elsewhere, which is none of its business, or a cut in place */
    if (source->open == target->open && (source != target || was_open)) return;
    for (uint32_t i = threadIdx.x; i < (len - first) * dim; i += blockDim.x) {
        const uint32_t pos = first + i / dim, d = i % dim;
        uint16_t value = 0;
        if (was_open) {
            value = hr_kv_open_row(source, layer, head, pos)[d];
        } else if (pos < source->gone_from || pos >= source->gone_to) {
            const uint8_t *row = hr_kv_run(source, layer, head, pos).at[HR_KV_K];
            const int level = (row[d / 32 * 16 + d % 16] >> (d % 32 >= 16 ? 4 : 0) & 15) - 8;
            const uint32_t word = (uint32_t)hr_kv_channel(d);
            const float step = hr_of_f16(*hr_kv_group_word(source, layer, head, first, word));
            const float centre = hr_of_f16(*hr_kv_group_word(source, layer, head, first, word + 16));
            value = hr_to_bf16(__fadd_rn(__fmul_rn((float)level, step), centre));
        }
        hr_kv_open_row(target, layer, head, pos)[d] = value;
    }
}

HR_KERNEL(kv_copy_cuda, 128, hr_cuda_kv_copy, p) {
    const uint32_t layer = blockIdx.y / p.n_heads, head = blockIdx.y % p.n_heads;
    const uint32_t from = p.from + blockIdx.x * HR_KV_COPY_SPAN;
    if (from >= p.to) { /* the last block of a head */
        if (hr_kv_granule(p.source->g) > 1) copy_open(p.source, p.target, layer, head, p.to);
        return;
    }
    copy_positions(p.source, p.target, layer, head, from, min(p.to, from + HR_KV_COPY_SPAN));
}
