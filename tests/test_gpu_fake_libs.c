/* The stand-ins for cuBLASLt, NVML and CUPTI: what they compute and tell, and that they refuse what the libraries refuse. */
#include "tests/gpu_fixture.h"

#include "engine/cuda/cublaslt_library.h"
#include "engine/cuda/cupti_activity.h"
#include "engine/cuda/cupti_library.h"
#include "engine/cuda/driver.h"
#include "engine/engine.h"
#include "engine/nvml.h"

static const hr_driver *d;
static const hr_cublaslt_library *lt;
static CUstream stream;

#define CU(call) assert_int_equal(d->call, CUDA_SUCCESS)
#define LT(call) assert_int_equal(lt->call, CUBLAS_STATUS_SUCCESS)

static int setup(void **state) {
    (void)state;
    gpu_use_fakes();
    hr_gpu_want_kernel_times(true); /* before the driver is opened */
    if (hr_driver_open(&d) != HR_OK || hr_driver_context(0, NULL, NULL) != HR_OK ||
        hr_cublaslt_library_open(&lt) != HR_OK) {
        print_error("%s\n", hr_error());
        return -1;
    }
    return d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? 0 : -1;
}

/* ---- products ---- */

/* Small integers: exact in every type, and so are their sums. */
static double value(size_t i, uint64_t seed) {
    return (double)((i * 2654435761u + seed) >> 7 & 7) - 3;
}
static void put(void *to, cudaDataType_t type, size_t i, double v) {
    static const uint8_t e4m3[8] = {0xc4, 0xc0, 0xb8, 0, 0x38, 0x40, 0x44, 0x48}; /* -3 .. 4 */
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (type == CUDA_R_32F)
        ((float *)to)[i] = f;
    else if (type == CUDA_R_16BF)
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    else if (type == CUDA_R_16F)
        ((_Float16 *)to)[i] = (_Float16)f;
    else if (type == CUDA_R_8F_E4M3)
        ((uint8_t *)to)[i] = e4m3[(int)v + 3];
    else if (type == CUDA_R_8I)
        ((int8_t *)to)[i] = (int8_t)v;
    else
        ((int32_t *)to)[i] = (int32_t)v;
}
static double get(const void *from, cudaDataType_t type, size_t i) {
    float f;
    if (type == CUDA_R_32F) return ((const float *)from)[i];
    if (type == CUDA_R_16F) return (double)((const _Float16 *)from)[i];
    if (type == CUDA_R_32I) return ((const int32_t *)from)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&f, &bits, 4);
    return f;
}

enum { M = 32, N = 16, K = 48, LDA = 64, LDD = 48 };

typedef struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t ways[8];
    CUdeviceptr pa, pb, pc, space;
    cudaDataType_t in, out;
    int found;
    bool integer;
} product;

/* A [K][M] transposed, B [K][N], C [M][N], as bytes on the device. */
static cublasStatus_t make(product *p, cudaDataType_t in, cudaDataType_t out, cublasComputeType_t compute) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint64_t space = 4 << 20;
    *p = (product){.in = in, .out = out, .integer = compute == CUBLAS_COMPUTE_32I};
    LT(cublasLtCreate(&p->handle));
    LT(cublasLtMatmulDescCreate(&p->desc, compute, p->integer ? CUDA_R_32I : CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    LT(cublasLtMatrixLayoutCreate(&p->a, in, K, M, LDA));
    LT(cublasLtMatrixLayoutCreate(&p->b, in, K, N, LDA));
    LT(cublasLtMatrixLayoutCreate(&p->c, out, M, N, LDD));
    LT(cublasLtMatmulPreferenceCreate(&p->preference));
    LT(cublasLtMatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space,
                                            sizeof space));
    CU(cuMemAlloc(&p->pa, (size_t)LDA * M * 4));
    CU(cuMemAlloc(&p->pb, (size_t)LDA * N * 4));
    CU(cuMemAlloc(&p->pc, (size_t)LDD * N * 4));
    CU(cuMemAlloc(&p->space, space));
    return lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->a, p->b, p->c, p->c, p->preference, 8, p->ways,
                                              &p->found);
}
static void destroy(product *p) {
    LT(cublasLtMatmulPreferenceDestroy(p->preference));
    LT(cublasLtMatrixLayoutDestroy(p->a));
    LT(cublasLtMatrixLayoutDestroy(p->b));
    LT(cublasLtMatrixLayoutDestroy(p->c));
    LT(cublasLtMatmulDescDestroy(p->desc));
    LT(cublasLtDestroy(p->handle));
    CU(cuMemFree(p->pa));
    CU(cuMemFree(p->pb));
    CU(cuMemFree(p->pc));
    CU(cuMemFree(p->space));
}
static void upload(CUdeviceptr to, cudaDataType_t type, size_t n, uint64_t seed) {
    static _Alignas(64) uint8_t host[LDA * M * 4];
    for (size_t i = 0; i < n; i++) put(host, type, i, value(i, seed));
    CU(cuMemcpyHtoDAsync(to, host, n * 4 < sizeof host ? n * 4 : sizeof host, stream));
}
static cublasStatus_t multiply(const product *p, CUdeviceptr a, int way, size_t space, int beta) {
    const float one = 1, plus = (float)beta;
    const int32_t one_int = 1, plus_int = beta;
    return lt->cublasLtMatmul(p->handle, p->desc, p->integer ? (const void *)&one_int : &one, (const void *)a, p->a,
                              (const void *)p->pb, p->b, p->integer ? (const void *)&plus_int : &plus,
                              (const void *)p->pc, p->c, (void *)p->pc, p->c, &p->ways[way].algo, (void *)p->space,
                              space, (cudaStream_t)stream);
}

static void check_product(const product *p, int way, int beta) {
    static _Alignas(64) uint8_t got[LDD * N * 4];
    upload(p->pa, p->in, (size_t)LDA * M, 1);
    upload(p->pb, p->in, (size_t)LDA * N, 2);
    upload(p->pc, p->out, (size_t)LDD * N, 3);
    const uint64_t before = gpu_counts().queued;
    assert_int_equal(multiply(p, p->pa, way, p->ways[way].workspaceSize, beta), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(gpu_counts().queued, before + 1); /* it waits like any kernel */
    CU(cuMemcpyDtoHAsync(got, p->pc, sizeof got, stream));
    for (size_t j = 0; j < N; j++)
        for (size_t i = 0; i < M; i++) {
            double want = beta * value(j * LDD + i, 3);
            for (size_t k = 0; k < K; k++) want += value(i * LDA + k, 1) * value(j * LDA + k, 2);
            /* sums are whole numbers below 2^9: exact but for bf16 results, which keep eight bits of them */
            const double limit = p->out == CUDA_R_16BF ? fabs(want) / 256 : 0;
            const double g = get(got, p->out, j * LDD + i);
            if (fabs(g - want) > limit)
                fail_msg("types %d, %d: row %zu column %zu: expected %g, got %g, tolerance %g", (int)p->in, (int)p->out,
                         i, j, want, g, limit);
        }
}

static void products_are_products(void **state) {
    (void)state;
    static const struct {
        cudaDataType_t in, out;
        cublasComputeType_t compute;
    } types[] = {{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},      {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                 {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F},    {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F},
                 {CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F}, {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I}};
    const hr_fake_cuda_counts before = gpu_counts();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        product p;
        assert_int_equal(make(&p, types[t].in, types[t].out, types[t].compute), CUBLAS_STATUS_SUCCESS);
        assert_in_range(p.found, 1, 8);
        for (int way = 0; way < p.found; way++) check_product(&p, way, way & 1);
        destroy(&p);
    }
    CU(cuStreamSynchronize(stream));
    const hr_fake_cuda_counts after = gpu_counts();
    gpu_assert_same(&before, &after, "products");
    int (*live)(void) = NULL;
    void *library = dlopen(getenv("HEADROOM_LIBCUBLASLT"), RTLD_NOW | RTLD_LOCAL);
    *(void **)&live = gpu_symbol(library, "hr_fake_cublaslt_live");
    assert_int_equal(live(), 0);
    dlclose(library);
}

static void wrong_products_are_refused(void **state) {
    (void)state;
    product p, other;
    cublasLtMatrixLayout_t wrong;
    int found = -1;
    assert_int_equal(make(&p, CUDA_R_16BF, CUDA_R_32I, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
    destroy(&p);
    assert_int_equal(make(&other, CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(make(&p, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(lt->cublasLtMatrixLayoutCreate(&wrong, CUDA_R_16BF, 32, 8, 31), CUBLAS_STATUS_INVALID_VALUE);
    LT(cublasLtMatrixLayoutCreate(&wrong, CUDA_R_16BF, K + 1, N, LDA));
    assert_int_equal(
        lt->cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.a, wrong, p.c, p.c, p.preference, 8, p.ways, &found),
        CUBLAS_STATUS_INVALID_VALUE);
    LT(cublasLtMatrixLayoutDestroy(wrong));
    assert_int_equal(multiply(&p, p.pa, 0, p.ways[0].workspaceSize - 1, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply(&p, p.pa + 64, 0, 4 << 20, 0), CUBLAS_STATUS_NOT_SUPPORTED); /* 256 were promised */
    assert_int_equal(multiply(&p, p.pa + 4352, 0, 4 << 20, 0),
                     CUBLAS_STATUS_EXECUTION_FAILED); /* reaches beyond its memory */
    p.ways[0] = (cublasLtMatmulHeuristicResult_t){0};
    assert_int_equal(multiply(&p, p.pa, 0, 4 << 20, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(lt->cublasLtMatmulDescDestroy((cublasLtMatmulDesc_t)p.a), CUBLAS_STATUS_INVALID_VALUE);
    setenv("HR_FAKE_CUBLASLT_FAIL", "none", 1);
    LT(cublasLtMatmulAlgoGetHeuristic(p.handle, p.desc, p.a, p.b, p.c, p.c, p.preference, 8, p.ways, &found));
    assert_int_equal(found, 0);
    unsetenv("HR_FAKE_CUBLASLT_FAIL");
    destroy(&p);
    destroy(&other);
}

/* An engine whose products of many tokens the library computes gives the logits of our own kernels: both round to bf16 what
 * goes in and sum in fp32, in another order, so that few activations round the other way (2^-8 each): 1e-4 of the power. */
static void an_engine_takes_the_library(void **state) {
    (void)state;
    enum { VOCAB = 64, TOKENS = 40 };
    hr_model *m = NULL;
    static float logits[2][TOKENS * VOCAB];
    const hr_load_options o = {.quant = HR_QUANT_BF16, .threads = 1};
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = (i * 11 + 2) % VOCAB;
    if (hr_model_load("synth:tiny:layers=2:dim=64:heads=2:kv_heads=1:head_dim=32:ffn=96:vocab=64:ctx=128:seed=9", &o,
                      &m) != HR_OK)
        fail_msg("%s", hr_error());
    for (int by_library = 0; by_library < 2; by_library++) {
        hr_engine *e = NULL;
        hr_engine_config c = hr_engine_config_default();
        c.threads = 1, c.pin = false, c.max_seqs = 1, c.ctx = 64, c.ubatch = 32, c.device = 0, c.act = HR_ACT_BF16;
        c.cublaslt = by_library;
        const uint64_t before = gpu_counts().launches;
        if (hr_engine_create(m, &c, &e) != HR_OK) fail_msg("%s", hr_error());
        if (hr_engine_prefill_all(e, 0, tokens, TOKENS, logits[by_library]) != HR_OK) fail_msg("%s", hr_error());
        const hr_engine_facts facts = hr_engine_get_facts(e);
        assert_string_equal(facts.gemm, by_library ? "cublasLt" : "own");
        assert_null(facts.gemm_why); /* none of its products was refused */
        assert_true(gpu_counts().launches > before);
        hr_engine_destroy(e);
    }
    hr_assert_nmse(logits[1], logits[0], TOKENS * VOCAB, 1e-4, "logits by cuBLASLt");
    hr_model_destroy(m);
}

/* ---- NVML ---- */

static void nvml_tells_what_is_set(void **state) {
    (void)state;
    hr_device_info info;
    hr_nvml_device *device = NULL;
    hr_gpu_state s = {0};
    assert_int_equal(hr_device_get_info(0, &info), HR_OK);
    if (hr_nvml_find(info.uuid, &device) != HR_OK) fail_msg("%s", hr_error());
    setenv("HR_FAKE_NVML", "power=123.5,temperature=71,sm=1200,memory=3000,limit=600,reasons=0/0x4/0x20,slowed=1.5", 1);
    hr_nvml_read(device, &s);
    assert_true(s.power_w == 123.5 && s.temperature_c == 71 && s.sm_mhz == 1200 && s.memory_mhz == 3000);
    assert_true(s.power_limit_w == 600 && s.slowed_s == 1.5 && !s.throttled && s.energy_j >= 1000);
    hr_nvml_read(device, &s);
    assert_int_equal(s.reasons, 4);
    assert_true(s.throttled);
    hr_nvml_read(device, &s);
    hr_nvml_read(device, &s);
    assert_int_equal(s.reasons, 0x20);
    setenv("HR_FAKE_NVML_FAIL", "nvmlDeviceGetPowerUsage:3,nvmlDeviceGetTotalEnergyConsumption:3", 1);
    hr_nvml_read(device, &s);
    assert_true(isnan(s.power_w) && isnan(s.energy_j) && s.temperature_c == 71);
    unsetenv("HR_FAKE_NVML_FAIL");
    setenv("HR_FAKE_NVML", "root=0", 1);
    assert_int_equal(hr_nvml_set_power_limit(device, 500), HR_ERR_UNSUPPORTED);
    assert_int_equal(hr_nvml_set_power_limit(device, 5000), HR_ERR_USAGE);
    setenv("HR_FAKE_NVML", "default=650", 1);
    assert_int_equal(hr_nvml_set_power_limit(device, 500), HR_OK);
    hr_nvml_read(device, &s);
    assert_true(s.power_limit_w == 500);
    assert_int_equal(hr_nvml_set_power_limit(device, 0), HR_OK);
    hr_nvml_read(device, &s);
    assert_true(s.power_limit_w == 650);
    unsetenv("HR_FAKE_NVML");
    assert_int_equal(hr_nvml_find("GPU-00000000-0000-0000-0000-000000000000", &device), HR_ERR_UNSUPPORTED);
}

/* ---- CUPTI ---- */

static void copy_twice(CUdeviceptr at, uint64_t id) {
    hr_cupti_push(id);
    CU(cuMemcpyDtoDAsync(at, at + 512, 512, stream));
    CU(cuMemcpyDtoDAsync(at + 512, at, 512, stream));
    hr_cupti_pop();
}

static void activity_is_joined_to_calls(void **state) {
    (void)state;
    CUdeviceptr at;
    hr_kernel_time first, second, none;
    product p;
    assert_true(hr_cupti_ready());
    CU(cuMemAlloc(&at, 1024));
    assert_int_equal(make(&p, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_SUCCESS);
    copy_twice(at, 1); /* nobody records yet */
    CU(cuStreamSynchronize(stream));
    assert_int_equal(hr_cupti_start(), HR_OK);
    copy_twice(at, 70);
    hr_cupti_push(71);
    assert_int_equal(multiply(&p, p.pa, 0, 4 << 20, 0), CUBLAS_STATUS_SUCCESS);
    hr_cupti_pop();
    CU(cuMemcpyDtoDAsync(at, at + 512, 512, stream)); /* of no id */
    CU(cuStreamSynchronize(stream));
    assert_int_equal(hr_cupti_stop(), HR_OK);
    assert_true(hr_cupti_find(70, &first) && hr_cupti_find(71, &second) && !hr_cupti_find(1, &none));
    assert_int_equal(first.copies, 2);
    assert_int_equal(first.kernels, 0);
    assert_int_equal(second.kernels, 1);
    assert_true(first.start_ns <= first.end_ns && first.end_ns <= second.start_ns);
    size_t n;
    const hr_kernel_span *spans = hr_cupti_spans(&n);
    assert_int_equal(n, 4);
    assert_string_equal(spans[2].name, "fake_cublaslt_gemm");
    assert_int_equal(spans[3].id, 0);
    destroy(&p);
    CU(cuMemFree(at));
}

typedef struct counted {
    CUdeviceptr at;
    int runs;
} counted;
static hr_status run_copies(void *context) {
    counted *c = context;
    c->runs++;
    copy_twice(c->at, 5);
    return HR_OK;
}

static void counters_are_collected_or_refused(void **state) {
    (void)state;
    static const char *const refusals[] = {"cuptiProfilerInitialize:15",
                                           "cuptiDeviceGetChipName:2",
                                           "cuptiProfilerHostInitialize:46",
                                           "cuptiProfilerHostGetConfigImageSize:7",
                                           "cuptiProfilerHostGetConfigImage:8",
                                           "cuptiRangeProfilerEnable:35",
                                           "cuptiRangeProfilerGetCounterDataSize:8",
                                           "cuptiRangeProfilerCounterDataImageInitialize:1",
                                           "cuptiRangeProfilerSetConfig:33",
                                           "cuptiRangeProfilerStart:26",
                                           "cuptiRangeProfilerStart:26:2",
                                           "cuptiRangeProfilerPushRange:7",
                                           "cuptiRangeProfilerPopRange:7",
                                           "cuptiRangeProfilerStop:9",
                                           "cuptiRangeProfilerDecodeData:9",
                                           "cuptiRangeProfilerGetCounterDataInfo:1",
                                           "cuptiProfilerHostEvaluateToGpuValues:16"};
    const hr_fake_cuda_counts before = gpu_counts();
    hr_gpu_counters c;
    counted work = {0};
    int (*live)(void) = NULL;
    const hr_cupti_symbol symbol = {"hr_fake_cupti_live", &live};
    assert_int_equal(hr_cupti_load(&symbol, 1), HR_OK);
    CU(cuMemAlloc(&work.at, 1024));
    setenv("HR_FAKE_CUPTI", "sm__cycles_elapsed.avg.per_second=1.5e9", 1);
    if (hr_gpu_counters_measure(0, run_copies, &work, &c) != HR_OK) fail_msg("%s", hr_error());
    assert_int_equal(work.runs, 2); /* seven counters take two passes */
    assert_true(c.time_ns >= 0 && c.dram_read_bytes == 1024 && c.dram_write_bytes == 1024 && c.sm_mhz == 1500);
    assert_int_equal(live(), 0);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        setenv("HR_FAKE_CUPTI_FAIL", refusals[i], 1);
        const hr_status status = hr_gpu_counters_measure(0, run_copies, &work, &c);
        const size_t n = strcspn(refusals[i], ":");
        if (status != HR_ERR_UNSUPPORTED ||
            (!strncmp(hr_error(), "counters: ", 10) && !memmem(hr_error(), strlen(hr_error()), refusals[i], n)))
            fail_msg("%s: expected a refusal that names it, got %d: %s", refusals[i], (int)status, hr_error());
        assert_true(isnan(c.time_ns) && isnan(c.l2_hit_pct));
        if (live()) fail_msg("%s: %d objects of CUPTI are left", refusals[i], live());
    }
    unsetenv("HR_FAKE_CUPTI_FAIL");
    setenv("HR_FAKE_CUPTI", "ranges_dropped=1", 1);
    assert_int_equal(hr_gpu_counters_measure(0, run_copies, &work, &c), HR_ERR_UNSUPPORTED);
    unsetenv("HR_FAKE_CUPTI");
    CU(cuMemFree(work.at));
    const hr_fake_cuda_counts after = gpu_counts();
    gpu_assert_same(&before, &after, "counters");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_products),       cmocka_unit_test(wrong_products_are_refused),
        cmocka_unit_test(an_engine_takes_the_library), cmocka_unit_test(nvml_tells_what_is_set),
        cmocka_unit_test(activity_is_joined_to_calls), cmocka_unit_test(counters_are_collected_or_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
