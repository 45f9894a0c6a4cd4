/* gemv_block.cu - few tokens, weights as blocks of a file (Q8_0, Q4_0, Q4_1, Q6_K), which are aligned to 2 bytes alone.
 *
 * Loads of 16 bytes cannot follow such blocks. So each warp copies pieces of two rows, 32 groups of 32 columns at a time, from the 16
 * bytes that they begin in into a ring in shared memory, two pieces ahead, and takes the blocks apart there, a group a lane.
 * Launch as gemv.cuh's; the shared memory of a warp is HR_BLOCK_STAGES * HR_BLOCK_ROWS * stage_bytes. */
#include "kernels/cuda/gemv.cuh"

enum { HR_BLOCK_ROWS = 2, HR_BLOCK_STAGES = 3 };

/* Bytes of 1024 columns, and of the room for them wherever they begin. */
__device__ static uint32_t piece_bytes(int dtype) {
    return (uint32_t)hr_weight_row_bytes(dtype, 1024);
}
__device__ static uint32_t stage_bytes(int dtype) {
    return (piece_bytes(dtype) + 15) / 16 * 16 + 16;
}

/* Starts the copy of one piece of a row; `end` is where the matrix ends. */
__device__ static void copy_piece(unsigned char *to, const uint8_t *from, uint32_t bytes, const uint8_t *end,
                                  uint32_t lane) {
    const uint32_t before = (uint32_t)((uintptr_t)from & 15);
    from -= before;
    for (uint32_t i = 16 * lane; i < before + bytes; i += 16 * 32) {
        const size_t left = (size_t)(end - (from + i));
        hr_cp_async16(to + i, from + i, left < 16 ? (uint32_t)left : 16);
    }
}

/* sums[r][t] += the products of 32 columns from k on. */
template <int ACT, int T>
__device__ __forceinline__ void products(const hr_weight32 (&w)[HR_BLOCK_ROWS], const hr_cuda_acts &x,
                                         const uint32_t (&token)[T], uint32_t k, float (&sums)[HR_BLOCK_ROWS * T]) {
    if constexpr (ACT == HR_ACT_INT8) {
        const uint32_t per_token = x.type == HR_ACT_INT8 ? x.ld / 32 : 1, group = x.type == HR_ACT_INT8 ? k / 32 : 0;
        hr_unrolled<T>([&](int t) {
            const int8_t *at = static_cast<const int8_t *>(x.data) + (token[t] * x.ld + k);
            const uint4 a = hr_load16(at), b = hr_load16(at + 16);
            const uint32_t q[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            int total = 0;
            hr_unrolled<8>([&](int i) { total = __dp4a(0x01010101, (int)q[i], total); });
            const float d = x.d[token[t] * per_token + group];
            hr_unrolled<HR_BLOCK_ROWS>([&](int r) {
                int low = 0, high = 0;
                hr_unrolled<4>([&](int i) {
                    low = __dp4a((int)w[r].q[i], (int)q[i], low);
                    high = __dp4a((int)w[r].q[4 + i], (int)q[4 + i], high);
                });
                const float sum = (float)low * w[r].scale[0] + (float)high * w[r].scale[1] + w[r].min * (float)total;
                sums[r * T + t] += sum * d;
            });
        });
    } else {
        constexpr int STEP = ACT == HR_ACT_F32 ? 4 : 8;
        hr_unrolled<32 / STEP>([&](int step) {
            float v[HR_BLOCK_ROWS][STEP];
            hr_unrolled<HR_BLOCK_ROWS>([&](int r) {
                hr_unrolled<STEP>([&](int i) {
                    const int c = STEP * step + i;
                    v[r][i] = hr_byte_float(w[r].q[c / 4] ^ 0x80808080u, c % 4) * w[r].scale[c / 16] + w[r].min;
                });
            });
            hr_unrolled<T>([&](int t) {
                float a[STEP];
                hr_gemv_act<STEP>(x, token[t] * x.ld + k + STEP * step, a);
                hr_unrolled<HR_BLOCK_ROWS>([&](int r) {
                    hr_unrolled<STEP>([&](int i) { sums[r * T + t] = fmaf(v[r][i], a[i], sums[r * T + t]); });
                });
            });
        });
    }
}

template <int ACT, int T> __device__ __forceinline__ void gemv_block(const hr_cuda_matmul &p) {
    HR_SHARED_DYNAMIC(unsigned char, area);
    const int dtype = p.w[0].dtype;
    const uint32_t lane = threadIdx.x, group = blockIdx.x * blockDim.z + threadIdx.z,
                   groups = (uint32_t)(p.w[0].cols / 32);
    const uint32_t parts = blockDim.y * gridDim.y, part = blockIdx.y * blockDim.y + threadIdx.y;
    const uint32_t piece = piece_bytes(dtype), stage = stage_bytes(dtype), pieces = (groups + 31) / 32;
    const uint32_t row_bytes = (uint32_t)hr_weight_row_bytes(dtype, p.w[0].cols);
    const hr_gemv_rows<HR_BLOCK_ROWS> rows(p, group, dtype, dtype);
    unsigned char *mine = area + (threadIdx.z * blockDim.y + threadIdx.y) * HR_BLOCK_STAGES * HR_BLOCK_ROWS * stage;
    const uint32_t n = hr_matmul_tokens(p);
    if (blockIdx.z * T >= n) return;
    uint32_t token[T];
    float sums[HR_BLOCK_ROWS * T] = {};
    hr_unrolled<T>([&](int t) { token[t] = min(blockIdx.z * T + t, n - 1); });

    const auto copy = [&](uint32_t c, uint32_t slot) { /* a group of copies also where there is nothing left to copy */
                                                       if (c < pieces)
                                                           hr_unrolled<HR_BLOCK_ROWS>([&](int r) {
                                                               copy_piece(mine + (slot * HR_BLOCK_ROWS + r) * stage,
                                                                          rows.data[r] + (size_t)c * piece,
                                                                          min(piece, row_bytes - c * piece),
                                                                          rows.end[r], lane);
                                                           });
                                                       hr_cp_async_commit();
    };
    uint32_t slot = 0;
    for (uint32_t s = 0; s + 1 < HR_BLOCK_STAGES; s++) copy(part + s * parts, s);
    for (uint32_t c = part; c < pieces; c += parts) {
        hr_cp_async_wait<HR_BLOCK_STAGES - 2>();
        __syncwarp(); /* copies of all lanes are there, and nobody reads the slot that is filled next */
        copy(c + (HR_BLOCK_STAGES - 1) * parts, (slot + HR_BLOCK_STAGES - 1) % HR_BLOCK_STAGES);
        if (32 * c + lane < groups) {
            hr_weight32 w[HR_BLOCK_ROWS];
            hr_unrolled<HR_BLOCK_ROWS>([&](int r) {
                const uint32_t before = (uint32_t)((uintptr_t)(rows.data[r] + (size_t)c * piece) & 15);
                hr_block32_load(dtype, mine + (slot * HR_BLOCK_ROWS + r) * stage + before, lane, &w[r]);
            });
            products<ACT, T>(w, p.x, token, 32 * (32 * c + lane), sums);
        }
        slot = (slot + 1) % HR_BLOCK_STAGES;
    }
    hr_gemv_finish<T, HR_BLOCK_ROWS>(p, rows, group, n, sums);
}

#define GEMV_BLOCK(name, act, tokens, blocks)                  \
    HR_KERNEL_RESIDENT(name, 256, blocks, hr_cuda_matmul, p) { \
        gemv_block<act, tokens>(p);                            \
    }
GEMV_BLOCK(gemv_block_f32_1, HR_ACT_F32, 1, 2)
GEMV_BLOCK(gemv_block_f32_4, HR_ACT_F32, 4, 1)
GEMV_BLOCK(gemv_block_f32_8, HR_ACT_F32, 8, 1)
GEMV_BLOCK(gemv_block_bf16_1, HR_ACT_BF16, 1, 2)
GEMV_BLOCK(gemv_block_bf16_4, HR_ACT_BF16, 4, 2)
GEMV_BLOCK(gemv_block_bf16_8, HR_ACT_BF16, 8, 1)
GEMV_BLOCK(gemv_block_int8_1, HR_ACT_INT8, 1, 2)
GEMV_BLOCK(gemv_block_int8_4, HR_ACT_INT8, 4, 2)
GEMV_BLOCK(gemv_block_int8_8, HR_ACT_INT8, 8, 1)
