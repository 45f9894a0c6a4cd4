/* test_cuda_shim.c - the machine that runs kernels for GPUs on the CPU: what each of its models gives, held against plain C by the
 * CUDA programming guide and the PTX ISA. test_cuda_rules.c has what it finds. */
#include "tests/cuda_fixture.h"
#include "tests/cuda_on_cpu/test_kernels.h"

static hr_cuda_shape shape_of(uint32_t blocks, uint32_t threads, uint32_t smem) {
    return (hr_cuda_shape){{blocks, 1, 1}, {threads, 1, 1}, smem};
}
static void run_io(const char *symbol, const hr_cuda_shape *shape, const void *in, void *out, uint32_t op, uint32_t n) {
    const hr_test_io p = {in, out, op, n};
    hr_cuda_launch(symbol, shape, &p);
}
static uint32_t *random_words(size_t n, uint64_t seed) {
    uint32_t *w = hr_cuda_alloc(n * sizeof *w);
    for (size_t i = 0; i < n; i++) w[i] = (uint32_t)(hr_random(&seed) >> 32);
    return w;
}
static void assert_words(const uint32_t *got, const uint32_t *want, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) {
        if (got[i] == want[i]) continue;
        fail_msg("%s (%s): word %zu of %zu: expected 0x%08x, got 0x%08x, tolerance 0", what, hr_cuda_mode_name(), i, n,
                 want[i], got[i]);
    }
}

/* ---- launches ---- */

static void test_sums_of_rows(void **state) {
    (void)state;
    const size_t rows = 5, cols = 333;
    float *x = hr_cuda_floats(rows * cols, 1), *y = hr_cuda_alloc(rows * sizeof *y);
    double want[5] = {0};
    for (size_t i = 0; i < rows * cols; i++) want[i / cols] += (double)x[i];
    const hr_test_sum p = {x, y, (uint32_t)cols};
    const hr_cuda_shape shape = shape_of((uint32_t)rows, 256, (uint32_t)(4 * cols));
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(y);
        hr_cuda_launch("test_row_sum", &shape, &p);
        /* 333 additions of values below 1: each rounds by half of 2^-24 of a sum below 333. */
        hr_cuda_assert_near(y, want, rows, 0, 333 * 333 * 0x1p-25, "sum of a row");
    }
    hr_cuda_free(x), hr_cuda_free(y);
}

static void test_launches_that_no_gpu_accepts(void **state) {
    (void)state;
    const hr_test_sum p = {NULL, NULL, 0};
    assert_int_equal(hr_shim_params_bytes("test_row_sum"), sizeof p);
    assert_int_equal(hr_shim_params_bytes("no_such_kernel"), 0);
    const hr_cuda_shape good = shape_of(1, 32, 0);
    assert_int_equal(hr_shim_launch("no_such_kernel", &good, &p), 1);
    const hr_cuda_shape bad[] = {
        {{0, 1, 1}, {32, 1, 1}, 0},        {{1, 65536, 1}, {32, 1, 1}, 0},  {{1, 1, 65536}, {32, 1, 1}, 0},
        {{1u << 31, 1, 1}, {32, 1, 1}, 0}, {{1, 1, 1}, {0, 1, 1}, 0},       {{1, 1, 1}, {288, 1, 1}, 0},
        {{1, 1, 1}, {1, 1, 65}, 0},        {{1, 1, 1}, {32, 1, 1}, 232449},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hr_shim_launch("test_row_sum", &bad[i], &p) != 2) fail_msg("shape %zu: expected 2", i);
}

/* Every kernel of the program has a row that launches it, and every row a kernel. */
static void test_every_row_has_its_kernel(void **state) {
    (void)state;
    for (size_t i = 0; hr_cuda_kernel_at(i); i++) {
        const hr_kernel *k = hr_cuda_kernel_at(i);
        if (hr_shim_params_bytes(k->fn.cuda.symbol) == 0) fail_msg("row %s: no kernel %s", k->name, k->fn.cuda.symbol);
    }
}

/* ---- warps ---- */

static uint32_t lane_source(const hr_test_warp *p, uint32_t lane) {
    const uint32_t start = lane / p->width * p->width, end = start + p->width;
    int64_t source = lane;
    if (p->op == HR_TEST_SHFL || p->op == HR_TEST_SHFL_64) source = start + p->arg % p->width;
    if (p->op == HR_TEST_SHFL_XOR) source = lane ^ p->arg;
    if (p->op == HR_TEST_SHFL_DOWN) source = (int64_t)lane + p->arg;
    if (p->op == HR_TEST_SHFL_UP) source = (int64_t)lane - p->arg;
    if (p->op == HR_TEST_SHFL_UP) return source < start ? lane : (uint32_t)source;
    return source >= end ? lane : (uint32_t)source;
}
/* What lane `lane` gets when lanes `takes` take part. */
static uint32_t warp_want(const hr_test_warp *p, const uint32_t *in, uint32_t takes, uint32_t lane) {
    if (p->op <= HR_TEST_SHFL_64) {
        const uint32_t source = lane_source(p, lane);
        return takes >> source & 1 ? in[source] : p->op == HR_TEST_SHFL_64 ? 0xbad : UINT32_MAX;
    }
    uint32_t odd = 0, equal = 0, r = 0;
    bool first = true;
    for (uint32_t i = 0; i < 32; i++) {
        if (!(takes >> i & 1)) continue;
        odd |= (in[i] & 1) << i;
        equal |= (uint32_t)(in[i] % 4 == in[lane] % 4) << i;
        const uint32_t v = in[i];
        if (first)
            r = v;
        else if (p->op == HR_TEST_ADD)
            r += v;
        else if (p->op == HR_TEST_MIN)
            r = (int32_t)v < (int32_t)r ? v : r;
        else if (p->op == HR_TEST_MAX)
            r = (int32_t)v > (int32_t)r ? v : r;
        else if (p->op == HR_TEST_UMIN)
            r = v < r ? v : r;
        else if (p->op == HR_TEST_UMAX)
            r = v > r ? v : r;
        else if (p->op == HR_TEST_AND)
            r &= v;
        else if (p->op == HR_TEST_OR)
            r |= v;
        else if (p->op == HR_TEST_XOR)
            r ^= v;
        first = false;
    }
    if (p->op == HR_TEST_BALLOT) return odd;
    if (p->op == HR_TEST_ANY) return odd != 0;
    if (p->op == HR_TEST_ALL) return odd == takes;
    return p->op == HR_TEST_MATCH ? equal : r;
}

/* Every operation with whole and partial masks, lanes of the mask that have left, and (shuffles) narrow parts; a block of two warps,
 * the second with words of its own. */
static void test_warp_operations(void **state) {
    (void)state;
    static const uint32_t masks[] = {0xffffffffu, 0x0000ffffu, 0xffff0000u, 0x80000001u, 0x00f0a5c3u, 0x00000010u};
    static const uint32_t callers[] = {0xffffffffu, 0xfffefffdu};
    static const uint32_t args[] = {0, 1, 5, 16, 31}, widths[] = {32, 16, 4};
    uint32_t *in = random_words(64, 3), *out = hr_cuda_alloc(64 * sizeof *out);
    for (size_t i = 40; i < 64; i++) in[i] |= 1; /* a warp where nearly all are odd */
    const hr_cuda_shape shape = shape_of(1, 64, 0);
    for (hr_cuda_modes mode = {0}; hr_cuda_next_mode(&mode);) {
        for (uint32_t op = 0; op < HR_TEST_WARP_OPS; op++) {
            const bool shuffle = op <= HR_TEST_SHFL_64;
            for (size_t i = 0; i < 6 * 2 * 5 * 3; i++) {
                const hr_test_warp p = {
                    in, out, op, masks[i % 6], callers[i / 6 % 2], args[i / 12 % 5], widths[i / 60]};
                if (!shuffle && i >= 12) break;
                if (!(p.mask & p.callers)) continue;
                hr_cuda_poison(out);
                hr_cuda_launch("test_warp", &shape, &p);
                for (uint32_t t = 0; t < 64; t++) {
                    const bool calls = p.mask & p.callers & 1u << t % 32;
                    const uint32_t *words = in + t / 32 * 32;
                    const uint32_t want = calls ? warp_want(&p, words, p.mask & p.callers, t % 32) : UINT32_MAX;
                    if (out[t] == want) continue;
                    fail_msg(
                        "operation %u, mask 0x%08x, callers 0x%08x, argument %u, width %u (%s): thread %u: expected "
                        "0x%08x, got 0x%08x",
                        op, p.mask, p.callers, p.arg, p.width, hr_cuda_mode_name(), t, want, out[t]);
                }
            }
        }
    }
    hr_cuda_free(in), hr_cuda_free(out);
}

static void test_those_who_left_are_not_waited_for(void **state) {
    (void)state;
    uint32_t *in = random_words(64, 4), *out = hr_cuda_alloc(64 * sizeof *out), want[64];
    for (uint32_t t = 0; t < 64; t++) {
        want[t] = t % 3 == 2 ? 0 : UINT32_MAX;
        for (uint32_t i = t / 32 * 32; i < t / 32 * 32 + 32 && t % 3 == 2; i++) want[t] += i % 3 ? in[i] : 0;
    }
    const hr_cuda_shape shape = shape_of(1, 64, 0);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(out);
        run_io("test_leave", &shape, in, out, 0, 0);
        assert_words(out, want, 64, "sums of those who stay");
    }
    hr_cuda_free(in), hr_cuda_free(out);
}

/* ---- blocks ---- */

static void test_block_votes(void **state) {
    (void)state;
    uint32_t *in = random_words(200, 5), *out = hr_cuda_alloc(3 * 200 * sizeof *out),
             *want = hr_malloc(3 * 200 * sizeof *want);
    const hr_cuda_shape shape = shape_of(1, 200, 0);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        for (uint32_t round = 0; round < 3; round++) { /* mixed, all even, all odd */
            uint32_t odd = 0;
            for (size_t i = 0; i < 200; i++) odd += (in[i] = round == 0 ? in[i] : 2 * in[i] + round - 1) & 1;
            for (size_t i = 0; i < 200; i++)
                want[3 * i] = odd, want[3 * i + 1] = odd == 200, want[3 * i + 2] = odd != 0;
            run_io("test_block_votes", &shape, in, out, 0, 0);
            assert_words(out, want, 3 * 200, "votes of a block");
        }
    }
    hr_cuda_free(in), hr_cuda_free(out), hr_free(want);
}

static void test_atomics(void **state) {
    (void)state;
    enum { BLOCKS = 3, THREADS = 96, N = BLOCKS * THREADS };
    uint32_t *out = hr_cuda_alloc(14 * sizeof *out), want[14], product = 5;
    const float half = 0.5f * N;
    for (int i = 0; i < N; i++) product *= 3;
    memcpy(&want[9], &half, 4);
    want[0] = N, want[1] = (uint32_t)(-2 * N), want[2] = (uint32_t)(1 - N), want[3] = N - 1;
    want[4] = 0, want[5] = UINT32_MAX, want[6] = 0 /* x ^ (x + 1) ^ ... over 288 numbers from 0 */, want[7] = 7;
    want[8] = N % 10, want[10] = 0, want[11] = N, want[12] = product;
    want[13] = (6 * 1000 + 5 - (N - 1) % 6) % 6; /* 0, then 5, 4, 3, 2, 1, 0, 5, ... */
    const hr_cuda_shape shape = shape_of(BLOCKS, THREADS, 0);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        memset(out, 0, 14 * sizeof *out);
        out[4] = UINT32_MAX;
        out[12] = 5;
        run_io("test_atomics", &shape, NULL, out, 0, 0);
        assert_words(out, want, 14, "atomic operations");
    }
    hr_cuda_free(out);
}

/* Ascending and descending are what they say, at the start and after a barrier; random ones are permutations that depend on the seed. */
static void test_orders(void **state) {
    (void)state;
    enum { BLOCKS = 3, THREADS = 64, N = BLOCKS * THREADS };
    uint32_t *out = hr_cuda_alloc((1 + 2 * N) * sizeof *out), random[2][N];
    const hr_cuda_shape shape = shape_of(BLOCKS, THREADS, 0);
    unsigned n_random = 0;
    for (unsigned m = 0; m < hr_shim_n_modes; m++) {
        const hr_shim_mode mode = hr_cuda_mode_now = hr_shim_modes[m];
        hr_shim_set_mode(&mode);
        memset(out, 0, sizeof *out);
        run_io("test_order", &shape, NULL, out, 0, 0);
        assert_int_equal(out[0], N);
        bool seen[N] = {false};
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t first = out[1 + i], second = out[1 + N + i];
            if (first >= N || seen[first]) fail_msg("%s: two threads ran as number %u", hr_cuda_mode_name(), first);
            seen[first] = true;
            if (mode.order == HR_SHIM_ASCENDING) {
                assert_int_equal(first, i);
                assert_int_equal(second, i % THREADS);
            }
            if (mode.order == HR_SHIM_DESCENDING) {
                assert_int_equal(first, N - 1 - i);
                assert_int_equal(second, THREADS - 1 - i % THREADS);
            }
            if (mode.order == HR_SHIM_RANDOM) random[n_random % 2][i] = first;
        }
        n_random += mode.order == HR_SHIM_RANDOM;
    }
    assert_int_equal(n_random, 2);
    assert_memory_not_equal(random[0], random[1], sizeof random[0]);
    hr_cuda_free(out);
}

static void test_shared_memory_is_poisoned(void **state) {
    (void)state;
    uint32_t *out = hr_cuda_alloc(3 * 64 * sizeof *out), want[3 * 64];
    memset(want, 0xff, sizeof want);
    const hr_cuda_shape shape = shape_of(3, 32, 128);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        memset(out, 0, sizeof want);
        run_io("test_poison", &shape, NULL, out, 0, 0);
        assert_words(out, want, 3 * 64, "shared memory before it is written");
    }
    hr_cuda_free(out);
}

/* ---- arithmetic ---- */

static void want_bits(const uint32_t *v, uint32_t *w) {
    memset(w, 0, HR_TEST_BITS * sizeof *w);
    const uint64_t pair = (uint64_t)v[1] << 32 | v[0];
    for (int i = 0; i < 32; i++) {
        const uint32_t bit = v[0] >> i & 1;
        w[0] += bit;
        if (bit) w[1] = (uint32_t)(31 - i);
        if (bit && w[2] == 0) w[2] = (uint32_t)(i + 1);
        w[3] |= bit << (31 - i);
    }
    if (v[0] == 0) w[1] = 32;
    w[4] = (uint32_t)((uint64_t)v[0] * v[1] >> 32);
    w[5] = (uint32_t)((uint64_t)((int64_t)(int32_t)v[0] * (int32_t)v[1]) >> 32);
    w[7] = w[8] = v[2];
    for (int i = 0; i < 4; i++) {
        const uint32_t selector = v[2] >> (4 * i) & 15, byte = (uint32_t)(pair >> (8 * (selector % 8))) & 255;
        w[6] |= (selector < 8 ? byte : byte >= 128 ? 255u : 0u) << (8 * i);
        const uint32_t a = v[0] >> (8 * i) & 255, b = v[1] >> (8 * i) & 255;
        w[7] += (uint32_t)((int)(int8_t)a * (int)(int8_t)b);
        w[8] += a * b;
        w[11] |= ((a + b) & 255) << (8 * i);
        w[12] |= ((a - b) & 255) << (8 * i);
    }
    w[9] = (uint32_t)(pair << v[2] % 32 >> 32);
    w[10] = (uint32_t)(pair >> v[2] % 32);
    w[13] = (v[0] < v[1] ? v[0] : v[1]) ^ ((int32_t)v[0] > (int32_t)v[1] ? v[0] : v[1]);
}

static void test_integer_arithmetic(void **state) {
    (void)state;
    enum { N = 200 };
    uint32_t *in = random_words(3 * N, 6), *out = hr_cuda_alloc(N * HR_TEST_BITS * sizeof *out), want[N * HR_TEST_BITS];
    for (uint32_t i = 0; i < 33; i++) in[3 * i] = i == 32 ? 0 : 1u << i; /* single bits and none */
    for (uint32_t i = 0; i < N; i++) want_bits(in + 3 * i, want + HR_TEST_BITS * i);
    const hr_cuda_shape shape = shape_of(1, 64, 0);
    run_io("test_bits", &shape, in, out, 0, N);
    assert_words(out, want, N * HR_TEST_BITS, "integer arithmetic");
    hr_cuda_free(in), hr_cuda_free(out);
}

static void test_conversions(void **state) {
    (void)state;
    static const float special[] = {0.0f,   -0.0f,  0.5f,     1.5f,     2.5f,  -0.5f,   -1.5f, 0.49999997f, 1e10f,
                                    -1e10f, 3e9f,   65504.0f, 65520.0f, 1e-8f, 6.1e-5f, -2.0f, INFINITY,    -INFINITY,
                                    0.25f,  0.999f, 1.001f,   1e38f,    3e38f, 1e-40f,  -1e-7f};
    enum { SPECIAL = sizeof special / sizeof *special, N = 300 };
    float *in = hr_cuda_floats(N, 7);
    for (size_t i = 0; i < N; i++) in[i] = i < SPECIAL ? special[i] : in[i] * (i % 2 ? 1000.0f : 2.0f);
    uint32_t *out = hr_cuda_alloc(N * HR_TEST_FLOATS * sizeof *out), want[N * HR_TEST_FLOATS];
    for (size_t i = 0; i < N; i++) {
        const double v = (double)in[i], rounded = nearbyint(v);
        uint32_t *w = want + HR_TEST_FLOATS * i;
        w[0] = (uint32_t)(int32_t)fmax(INT32_MIN, fmin(INT32_MAX, rounded));
        w[1] = (uint32_t)(int32_t)fmax(INT32_MIN, fmin(INT32_MAX, trunc(v)));
        w[2] = (uint32_t)fmax(0, fmin(UINT32_MAX, rounded));
        const float saturated = v > 0 ? v < 1 ? in[i] : 1.0f : 0.0f;
        memcpy(&w[3], &saturated, 4);
        w[4] = hr_f32_to_bf16(in[i]);
        w[5] = hr_f32_to_f16(in[i]);
        const float back = hr_f16_to_f32((uint16_t)w[5]);
        memcpy(&w[6], &back, 4);
    }
    const hr_cuda_shape shape = shape_of(1, 64, 0);
    run_io("test_floats", &shape, in, out, 0, N);
    assert_words(out, want, N * HR_TEST_FLOATS, "conversions");
    hr_cuda_free(in), hr_cuda_free(out);
}

/* ---- instructions of cu.h ---- */

static void test_copies_fill_with_zero(void **state) {
    (void)state;
    uint8_t *in = (uint8_t *)random_words(17 * 4, 8), *out = hr_cuda_alloc(17 * 16), want[17 * 16] = {0};
    for (size_t i = 0; i < 17; i++) memcpy(want + 16 * i, in + 16 * i, i);
    const hr_cuda_shape shape = shape_of(1, 32, 0);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(out);
        run_io("test_copy_bytes", &shape, in, out, 0, 0);
        hr_cuda_assert_bytes(out, want, sizeof want, "copies of 0..16 bytes");
    }
    hr_cuda_free(in), hr_cuda_free(out);
}

/* Early: all are there at once; late: waiting for all but the newest N brings exactly the older ones. */
static void test_waiting_for_groups(void **state) {
    (void)state;
    uint8_t *in = (uint8_t *)random_words(3 * 4, 9), *out = hr_cuda_alloc(12 * 16), want[12 * 16];
    const hr_cuda_shape shape = shape_of(1, 32, 0);
    for (unsigned m = 0; m < hr_shim_n_modes; m++) {
        hr_cuda_mode_now = hr_shim_modes[m];
        hr_shim_set_mode(&hr_cuda_mode_now);
        for (size_t i = 0; i < 12; i++) {
            if (i % 3 < i / 3 || !hr_cuda_mode_now.copies_late)
                memcpy(want + 16 * i, in + 16 * (i % 3), 16);
            else
                memset(want + 16 * i, 0xff, 16); /* poison */
        }
        run_io("test_copy_groups", &shape, in, out, 0, 0);
        hr_cuda_assert_bytes(out, want, sizeof want, "groups of copies");
    }
    hr_cuda_free(in), hr_cuda_free(out);
}

/* PTX ISA, ldmatrix: thread t receives elements 2 (t % 4) and the next of row t / 4 of each matrix, or, .trans, of its transpose. */
static void test_ldmatrix(void **state) {
    (void)state;
    uint16_t *in = (uint16_t *)random_words(32 * 4, 10);
    uint32_t *out = hr_cuda_alloc(4 * 32 * 4 * sizeof *out), want[4 * 32 * 4];
    memset(want, 0xff, sizeof want);
    for (uint32_t kind = 0; kind < 4; kind++) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            for (uint32_t m = 0; m < (kind % 2 ? 4u : 2u); m++) {
                uint32_t element[2];
                for (uint32_t e = 0; e < 2; e++) {
                    const uint32_t row = lane / 4, column = 2 * (lane % 4) + e;
                    element[e] = kind < 2 ? in[8 * (8 * m + row) + column] : in[8 * (8 * m + column) + row];
                }
                want[128 * kind + 4 * lane + m] = element[0] | element[1] << 16;
            }
        }
    }
    const hr_cuda_shape shape = shape_of(1, 32, 0);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(out);
        run_io("test_ldmatrix", &shape, in, out, 0, 0);
        assert_words(out, want, 4 * 32 * 4, "ldmatrix");
    }
    hr_cuda_free(in), hr_cuda_free(out);
}

static float e4m3_value(uint8_t v) {
    const int exponent = v >> 3 & 15, mantissa = v & 7;
    const float size = exponent ? ldexpf(1.0f + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
    return (v & 127) == 127 ? NAN : v & 128 ? -size : size;
}
/* Element of a type that is `bytes` wide, as the products see it. */
static double element_value(hr_test_mma type, const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, 2);
    if (type == HR_TEST_BF16) return (double)hr_bf16_to_f32(half);
    if (type == HR_TEST_F16) return (double)hr_f16_to_f32(half);
    return type == HR_TEST_S8 ? (double)(int8_t)*p : (double)e4m3_value(*p);
}
static void random_element(hr_test_mma type, uint8_t *p, uint64_t *seed) {
    const float v = hr_cuda_random(seed);
    const uint16_t half = type == HR_TEST_BF16 ? hr_f32_to_bf16(v) : hr_f32_to_f16(v);
    memcpy(p, &half, 2);
    if (type < HR_TEST_S8) return;
    do *p = (uint8_t)(hr_random(seed) >> 32);
    while (type == HR_TEST_E4M3 && (*p & 127) == 127); /* NaN */
}

/* Fragments by the formulas of the PTX ISA ("Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k32"): element i of a lane of
 *     a: row = group, or group + 8 for i of the odd quarters; column = e * (lane % 4) + i % e, + K / 2 in the upper half of i
 *     b: row = e * (lane % 4) + i % e, + K / 2 in the upper half; column = group
 *     c: row = group, + 8 for i >= 2; column = 2 (lane % 4) + i % 2
 * with group = lane / 4 and e elements a register. */
static void check_mma(hr_test_mma type) {
    static const char *const names[] = {"mma bf16", "mma f16", "mma s8", "mma e4m3"};
    const uint32_t bytes = type < HR_TEST_S8 ? 2 : 1, e = 4 / bytes, k = 8 * e;
    uint64_t seed = 11 + (uint64_t)type;
    uint8_t a[16 * 32 * 2], b[32 * 8 * 2];
    for (uint32_t i = 0; i < 16 * k; i++) random_element(type, a + bytes * i, &seed);
    for (uint32_t i = 0; i < k * 8; i++) random_element(type, b + bytes * i, &seed);
    hr_test_fragments *f = hr_cuda_alloc(32 * sizeof *f);
    double want[128], room = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint32_t group = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < 4 * e; i++) {
            const uint32_t row = group + (i / e % 2 ? 8 : 0), column = e * t + i % e + (i >= 2 * e ? k / 2 : 0);
            memcpy((uint8_t *)f[lane].a + bytes * i, a + bytes * (row * k + column), bytes);
        }
        for (uint32_t i = 0; i < 2 * e; i++) {
            const uint32_t row = e * t + i % e + (i >= e ? k / 2 : 0);
            memcpy((uint8_t *)f[lane].b + bytes * i, b + bytes * (row * 8 + group), bytes);
        }
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t row = group + (i >= 2 ? 8 : 0), column = 2 * t + i % 2;
            const float c = hr_cuda_random(&seed);
            const int32_t c_int = (int32_t)(1000 * c);
            memcpy(&f[lane].c[i], type == HR_TEST_S8 ? (const void *)&c_int : (const void *)&c, 4);
            double sum = type == HR_TEST_S8 ? (double)c_int : (double)c, size = fabs(sum);
            for (uint32_t j = 0; j < k; j++) {
                const double product =
                    element_value(type, a + bytes * (row * k + j)) * element_value(type, b + bytes * (j * 8 + column));
                sum += product, size += fabs(product);
            }
            want[4 * lane + i] = sum;
            room = fmax(room, size);
        }
    }
    uint32_t *out = hr_cuda_alloc(32 * 4 * sizeof *out);
    float got[128];
    const hr_cuda_shape shape = shape_of(1, 32, 0);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(out);
        run_io("test_mma", &shape, f, out, type, 0);
        for (size_t i = 0; i < 128; i++) {
            if (type == HR_TEST_S8)
                got[i] = (float)(int32_t)out[i];
            else
                memcpy(&got[i], &out[i], 4);
        }
        /* k additions in fp32 round by 2^-24 of the sum of magnitudes at most; integers below 2^24 are exact. */
        hr_cuda_assert_near(got, want, 128, 0, type == HR_TEST_S8 ? 0 : k * room * 0x1p-24, names[type]);
    }
    hr_cuda_free(f), hr_cuda_free(out);
}
static void test_mma(void **state) {
    (void)state;
    for (hr_test_mma type = 0; type < HR_TEST_MMAS; type++) check_mma(type);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_rows),
        cmocka_unit_test(test_launches_that_no_gpu_accepts),
        cmocka_unit_test(test_every_row_has_its_kernel),
        cmocka_unit_test(test_warp_operations),
        cmocka_unit_test(test_those_who_left_are_not_waited_for),
        cmocka_unit_test(test_block_votes),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_shared_memory_is_poisoned),
        cmocka_unit_test(test_integer_arithmetic),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_copies_fill_with_zero),
        cmocka_unit_test(test_waiting_for_groups),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_mma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
