/* attn.cuh - what the kernels of attention share: where the rows of K and V of a position lie, their elements as floats, scores,
 * and results. Every address comes from hr_kv_run; positions that are gone are never asked for. */
#ifndef HR_ATTN_CUH
#define HR_ATTN_CUH

#include "kernels/cuda/cu.h"
#include "kernels/cuda/cuda_params.h"

/* One KV head of one layer of a sequence; all in registers. */
struct attn_head {
    const hr_kv_seq *kv;
    const hr_kv_geom *g;
    uint32_t layer, head;
    uint32_t k_type, v_type;     /* as their bytes are read: V of i4kc is q4_0 */
    uint32_t closed;             /* K from this position on lies in the open group, as bf16 */
    uint32_t gone_from, gone_to; /* never read */
};

/* Positions that one query sees: first..last, less those gone. */
struct attn_seen {
    uint32_t first, last;
};

__device__ static inline attn_head attn_head_of(const hr_cuda_segment *s, uint32_t layer, uint32_t head) {
    attn_head h;
    h.kv = &s->kv, h.g = s->kv.g, h.layer = layer, h.head = head;
    h.k_type = h.g->type[0], h.v_type = h.g->type[1] == HR_I4KC ? HR_Q4_0 : h.g->type[1];
    h.closed = h.k_type == HR_I4KC ? hr_kv_closed(h.g, s->pos0 + s->n) : UINT32_MAX;
    h.gone_from = s->kv.gone_from, h.gone_to = s->kv.gone_to;
    return h;
}
__device__ static inline attn_seen attn_seen_from(uint32_t pos, uint32_t window) {
    attn_seen s;
    s.last = pos, s.first = window && pos + 1 > window ? pos + 1 - window : 0;
    return s;
}
__device__ static inline bool attn_is_gone(const attn_head &h, uint32_t pos) {
    return pos >= h.gone_from && pos < h.gone_to;
}
__device__ static inline bool attn_sees(const attn_head &h, const attn_seen &s, uint32_t pos) {
    return pos >= s.first && pos <= s.last && !attn_is_gone(h, pos);
}

/* The type of K at a position. */
__device__ static inline uint32_t attn_k_type(const attn_head &h, uint32_t pos) {
    return pos >= h.closed ? (uint32_t)HR_BF16 : h.k_type;
}

/* Where a row lies. scales: its share of the scale plane, its own scales or (K of i4kc) a part of its group's; NULL without. */
struct attn_row {
    const uint8_t *at;
    const uint16_t *scales;
};
__device__ static inline attn_row attn_k_row(const attn_head &h, uint32_t pos) {
    attn_row r;
    if (pos >= h.closed) {
        r.at = (const uint8_t *)hr_kv_open_row(h.kv, h.layer, h.head, pos), r.scales = NULL;
    } else {
        const hr_kv_rows run = hr_kv_run(h.kv, h.layer, h.head, pos);
        r.at = run.at[HR_KV_K], r.scales = (const uint16_t *)(const void *)run.at[HR_KV_KS];
    }
    return r;
}
__device__ static inline attn_row attn_v_row(const attn_head &h, uint32_t pos) {
    const hr_kv_rows run = hr_kv_run(h.kv, h.layer, h.head, pos);
    attn_row r;
    r.at = run.at[HR_KV_V], r.scales = (const uint16_t *)(const void *)run.at[HR_KV_VS];
    return r;
}

/* ---- elements ---- */

__device__ static inline float attn_f16(uint32_t h) {
    return __half2float(__ushort_as_half((unsigned short)h));
}
__device__ static inline float attn_bits(uint32_t u) {
    return __uint_as_float(u);
}
__device__ static inline uint16_t attn_to_bf16(float x) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
/* Two as bf16, `low` in the lower half. */
__device__ static inline uint32_t attn_pack(float low, float high) {
    return (uint32_t)attn_to_bf16(low) | (uint32_t)attn_to_bf16(high) << 16;
}

/* BYTES (1, 2, 4 or a multiple of 8) from memory aligned to as many, at most 16. */
template <int BYTES> __device__ static inline void attn_raw(const uint8_t *p, uint32_t w[(BYTES + 3) / 4]) {
    if constexpr (BYTES == 1) {
        w[0] = *p;
    } else if constexpr (BYTES == 2) {
        w[0] = *(const uint16_t *)(const void *)p;
    } else if constexpr (BYTES == 4) {
        w[0] = *(const uint32_t *)(const void *)p;
    } else if constexpr (BYTES == 8) {
        const uint2 v = *(const uint2 *)(const void *)p;
        w[0] = v.x, w[1] = v.y;
    } else {
        for (int i = 0; i < BYTES / 16; i++) {
            const uint4 v = hr_load16(p + 16 * i);
            w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
        }
    }
}

/* Elements d..d + N - 1 (d a multiple of N; N 1, 2, 4 or 8) of a row in any memory. scales: of the row, or for K of i4kc of
 * its group (kv_open.h), whole and in one piece. */
template <int N>
__device__ static inline void attn_load(uint32_t type, const uint8_t *row, const uint16_t *scales, uint32_t d,
                                        float out[N]) {
    switch (type) {
    case HR_F32: {
        uint32_t w[N];
        attn_raw<4 * N>(row + 4 * (size_t)d, w);
        for (int i = 0; i < N; i++) out[i] = attn_bits(w[i]);
        return;
    }
    case HR_BF16:
    case HR_F16: {
        uint32_t w[(N + 1) / 2];
        attn_raw<2 * N>(row + 2 * (size_t)d, w);
        for (int i = 0; i < N; i++) {
            const uint32_t h = i % 2 ? w[i / 2] >> 16 : w[i / 2] & 0xffff;
            out[i] = type == HR_BF16 ? attn_bits(h << 16) : attn_f16(h);
        }
        return;
    }
    case HR_Q8_0:
    case HR_I8ROW: {
        uint32_t w[(N + 3) / 4];
        attn_raw<N>(row + d, w);
        const float s = attn_f16(scales[type == HR_Q8_0 ? d / 32 : 0]);
        for (int i = 0; i < N; i++) out[i] = (float)(int8_t)(w[i / 4] >> 8 * (i % 4)) * s;
        return;
    }
    default: { /* q4_0, i4kc: element i of 32 in the low half of byte i, i + 16 in the high one */
        uint32_t w[(N + 3) / 4];
        attn_raw<N>(row + d / 32 * 16 + d % 16, w);
        const int shift = d % 32 >= 16 ? 4 : 0;
        const float s = type == HR_Q4_0 ? attn_f16(scales[d / 32]) : 0;
        const uint16_t *channel = scales + hr_kv_channel(d);
        for (int i = 0; i < N; i++) {
            const float level = (float)((int)(w[i / 4] >> (8 * (i % 4) + shift) & 15) - 8);
            out[i] = type == HR_Q4_0 ? level * s : level * attn_f16(channel[i]) + attn_f16(channel[i + 16]);
        }
    }
    }
}

/* ---- scores and results ---- */

/* tanh by one exponential: off by 2^-23 of the cap at most, which is what a score of that size is rounded to. */
__device__ static inline float attn_score(const hr_cuda_attn &p, float dot) {
    const float s = dot * p.scale;
    if (!(p.softcap > 0)) return s;
    return p.softcap * (1 - 2 / (expf(2 * s / p.softcap) + 1));
}

/* Element d of the output of query head `head` in row `row` of the batch. */
__device__ static inline void attn_store(const hr_cuda_attn &p, uint32_t row, uint32_t head, uint32_t d, float x) {
    const size_t column = (size_t)head * p.head_dim + d;
    if (!p.acts.data)
        p.out[(size_t)row * p.ldo + column] = x;
    else if (p.acts.type == HR_ACT_BF16)
        ((uint16_t *)p.acts.data)[(size_t)row * p.acts.ld + column] = attn_to_bf16(x);
    else
        ((float *)p.acts.data)[(size_t)row * p.acts.ld + column] = x;
}
/* The zeros behind the last head of a row of activations, by `threads` threads of which this is number `t`. */
__device__ static inline void attn_store_padding(const hr_cuda_attn &p, uint32_t row, uint32_t t, uint32_t threads) {
    if (!p.acts.data) return;
    for (uint32_t c = p.n_heads * p.head_dim + t; c < p.acts.ld; c += threads) {
        if (p.acts.type == HR_ACT_BF16)
            ((uint16_t *)p.acts.data)[(size_t)row * p.acts.ld + c] = 0;
        else
            ((float *)p.acts.data)[(size_t)row * p.acts.ld + c] = 0;
    }
}

#endif
