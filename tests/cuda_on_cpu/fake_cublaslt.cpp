// fake_cublaslt.cpp - the stand-in for cuBLASLt: plain products on the host, queued into streams of the fake driver.
//
// It computes what the library would, in fp32 (int32 for int8), for the types that the library has. It refuses, with a line on
// stderr that says why, what the library refuses and what it would compute wrongly: layouts that do not fit each other, buffers
// that end too early, pointers less aligned than the preference said (256 bytes where it said nothing), a workspace smaller
// than the chosen way needs. The workspace is overwritten with NaN while a product runs.
//
// Environment: HR_FAKE_CUBLASLT_FAIL=FUNCTION:N:STATUS lets the Nth call of a function return that status; "none" lets the
// search find nothing. hr_fake_cublaslt_live tells how many objects there are.
#include "tests/cuda_on_cpu/fake_cuda.h"

#include <cublasLt.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum : size_t { SPACE = (size_t)1 << 20, WAYS = 3, ALIGNMENT = 256 };
enum : uint64_t { LAYOUT = 0x6c61796f7574, DESC = 0x64657363, PREFERENCE = 0x70726566, ALGO = 0x616c676f };

struct layout {
    uint64_t tag;
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};
struct desc {
    uint64_t tag;
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t op_a, op_b;
};
struct preference {
    uint64_t tag, space;
    uint32_t align[4];
};
// In the opaque words of an algorithm: for which product it is.
struct algo {
    uint64_t tag, way, space, m, n, k;
    uint32_t align[2]; // packed: bytes of A, B, C, D as logarithms
};

std::atomic<int> live;

cublasStatus_t refuse(cublasStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
cublasStatus_t refuse(cublasStatus_t status, const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "fake cuBLASLt: %s\n", line);
    return status;
}

// ---- faults ----

cublasStatus_t fault(const char *function) {
    static std::mutex lock;
    static std::map<std::string, int> counts;
    const std::lock_guard<std::mutex> held(lock);
    const int nth = ++counts[function];
    const char *armed = getenv("HR_FAKE_CUBLASLT_FAIL");
    char name[64];
    int at = 0, status = 0;
    if (!armed || sscanf(armed, "%63[^:]:%d:%d", name, &at, &status) != 3) return CUBLAS_STATUS_SUCCESS;
    return nth == at && !strcmp(name, function) ? (cublasStatus_t)status : CUBLAS_STATUS_SUCCESS;
}
#define HR_LT_ENTER(function)                                 \
    do {                                                      \
        const cublasStatus_t status_ = fault(#function);      \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_; \
    } while (0)

// ---- elements ----

size_t bytes_of(cudaDataType_t type) {
    switch (type) {
    case CUDA_R_32F:
    case CUDA_R_32I:
        return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
        return 2;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
        return 1;
    default:
        return 0;
    }
}

float from_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
uint32_t to_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}

float small_float(uint32_t v, int exponent_bits, int mantissa_bits, int bias, bool has_infinity) {
    const uint32_t mantissa = v & ((1u << mantissa_bits) - 1),
                   exponent = v >> mantissa_bits & ((1u << exponent_bits) - 1);
    const float sign = v >> (exponent_bits + mantissa_bits) & 1 ? -1.0f : 1.0f;
    const bool top = exponent == (1u << exponent_bits) - 1;
    if (top && has_infinity) return mantissa ? from_bits(0x7fc00000) : sign * from_bits(0x7f800000);
    if (top && mantissa == (1u << mantissa_bits) - 1) return from_bits(0x7fc00000); // the one NaN of e4m3
    const float fraction = (float)mantissa / (float)(1u << mantissa_bits);
    const int power = exponent ? (int)exponent - bias : 1 - bias;
    return sign * __builtin_ldexpf(exponent ? 1 + fraction : fraction, power);
}

float load(const void *from, cudaDataType_t type, size_t i) {
    switch (type) {
    case CUDA_R_32F:
        return ((const float *)from)[i];
    case CUDA_R_16BF:
        return from_bits((uint32_t)((const uint16_t *)from)[i] << 16);
    case CUDA_R_16F:
        return small_float(((const uint16_t *)from)[i], 5, 10, 15, true);
    case CUDA_R_8F_E4M3:
        return small_float(((const uint8_t *)from)[i], 4, 3, 7, false);
    case CUDA_R_8I:
        return ((const int8_t *)from)[i];
    default:
        return (float)((const int32_t *)from)[i];
    }
}

void store(void *to, cudaDataType_t type, size_t i, float v) {
    if (type == CUDA_R_32F) {
        ((float *)to)[i] = v;
    } else if (type == CUDA_R_16BF) {
        const uint32_t b = to_bits(v), rounded = b + 0x7fff + (b >> 16 & 1);
        ((uint16_t *)to)[i] = v != v ? 0x7fff : (uint16_t)(rounded >> 16);
    } else {
        _Float16 h = (_Float16)v;
        memcpy((uint16_t *)to + i, &h, 2);
    }
}

// ---- products ----

struct product {
    size_t m, n, k;
    layout a, b, c, d;
    cublasOperation_t op_a, op_b;
    const void *pa, *pb, *pc;
    void *pd, *space;
    size_t space_bytes;
    float alpha, beta;
    int32_t alpha_int, beta_int;
    bool integer;
};

size_t element(const layout &l, cublasOperation_t op, size_t row, size_t col) { // of op(matrix)
    return op == CUBLAS_OP_N ? col * (size_t)l.ld + row : row * (size_t)l.ld + col;
}

void multiply(const product &p) {
    std::vector<float> a(p.m * p.k), b(p.n * p.k);
    for (size_t i = 0; i < p.m; i++)
        for (size_t x = 0; x < p.k; x++) a[i * p.k + x] = load(p.pa, p.a.type, element(p.a, p.op_a, i, x));
    for (size_t j = 0; j < p.n; j++)
        for (size_t x = 0; x < p.k; x++) b[j * p.k + x] = load(p.pb, p.b.type, element(p.b, p.op_b, x, j));
    for (size_t j = 0; j < p.n; j++)
        for (size_t i = 0; i < p.m; i++) {
            const float *u = &a[i * p.k], *v = &b[j * p.k];
            float sum = 0;
            for (size_t x = 0; x < p.k; x++) sum += u[x] * v[x];
            const size_t at = element(p.d, CUBLAS_OP_N, i, j);
            sum *= p.alpha;
            if (p.beta != 0) sum += p.beta * load(p.pc, p.c.type, element(p.c, CUBLAS_OP_N, i, j));
            store(p.pd, p.d.type, at, sum);
        }
}

void multiply_integers(const product &p) {
    const auto *a = (const int8_t *)p.pa, *b = (const int8_t *)p.pb;
    const auto *c = (const int32_t *)p.pc;
    for (size_t j = 0; j < p.n; j++)
        for (size_t i = 0; i < p.m; i++) {
            int32_t sum = 0;
            for (size_t x = 0; x < p.k; x++) sum += a[element(p.a, p.op_a, i, x)] * b[element(p.b, p.op_b, x, j)];
            sum *= p.alpha_int;
            if (p.beta_int) sum += p.beta_int * c[element(p.c, CUBLAS_OP_N, i, j)];
            ((int32_t *)p.pd)[element(p.d, CUBLAS_OP_N, i, j)] = sum;
        }
}

void run(const void *context) {
    product p;
    memcpy(&p, context, sizeof p);
    memset(p.space, 0xff, p.space_bytes);
    if (p.integer)
        multiply_integers(p);
    else
        multiply(p);
}

// ---- the fake driver ----

void *driver() {
    static void *library = [] {
        const char *file = getenv("HEADROOM_LIBCUDA");
        return file ? dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : nullptr;
    }();
    return library;
}

int capability() { // 90; 0: no context
    static auto *device = driver() ? (decltype(&hr_fake_cuda_device))dlsym(driver(), "hr_fake_cuda_device") : nullptr;
    static auto *fact = driver() ? (decltype(&hr_fake_cuda_fact))dlsym(driver(), "hr_fake_cuda_fact") : nullptr;
    return device && fact && device() >= 0 ? (int)fact(device(), "cc") : 0;
}

// ---- what fits ----

bool has_types(const desc &o, const layout &a, const layout &b, const layout &c, const layout &d) {
    if (c.type != d.type) return false;
    if (o.compute == CUBLAS_COMPUTE_32I)
        return o.scale == CUDA_R_32I && a.type == CUDA_R_8I && b.type == CUDA_R_8I && d.type == CUDA_R_32I;
    if ((o.compute != CUBLAS_COMPUTE_32F && o.compute != CUBLAS_COMPUTE_32F_FAST_TF32) || o.scale != CUDA_R_32F ||
        a.type != b.type)
        return false;
    switch (a.type) {
    case CUDA_R_32F:
        return d.type == CUDA_R_32F;
    case CUDA_R_16BF:
    case CUDA_R_16F:
        return d.type == a.type || d.type == CUDA_R_32F;
    case CUDA_R_8F_E4M3:
        return d.type == CUDA_R_16BF || d.type == CUDA_R_16F || d.type == CUDA_R_32F;
    default:
        return false;
    }
}

// Rows and columns of op(matrix).
size_t op_rows(const layout &l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.rows : l.cols;
}
size_t op_cols(const layout &l, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? l.cols : l.rows;
}

cublasStatus_t check(const desc *o, const layout *a, const layout *b, const layout *c, const layout *d) {
    if (!o || o->tag != DESC || !a || a->tag != LAYOUT || !b || b->tag != LAYOUT || !c || c->tag != LAYOUT || !d ||
        d->tag != LAYOUT)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "not a descriptor, or one that was destroyed");
    const size_t m = op_rows(*a, o->op_a), k = op_cols(*a, o->op_a), n = op_cols(*b, o->op_b);
    if (op_rows(*b, o->op_b) != k || d->rows != m || d->cols != n || c->rows != m || c->cols != n)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "op(A) is %zu x %zu, op(B) %zu x %zu, C %zu x %zu, D %zu x %zu", m,
                      k, op_rows(*b, o->op_b), n, (size_t)c->rows, (size_t)c->cols, (size_t)d->rows, (size_t)d->cols);
    if (!has_types(*o, *a, *b, *c, *d))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no such product: types %d %d %d %d, compute %d, scale %d",
                      (int)a->type, (int)b->type, (int)c->type, (int)d->type, (int)o->compute, (int)o->scale);
    if (a->type == CUDA_R_8F_E4M3 && capability() < 89)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no fp8 below compute capability 8.9");
    const bool narrow = bytes_of(a->type) == 1, transposed = o->op_a == CUBLAS_OP_T && o->op_b == CUBLAS_OP_N;
    const unsigned unit = a->type == CUDA_R_8I ? 4 : 16;
    if (narrow && (!transposed || m % unit || k % unit || a->ld % unit || b->ld % unit))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                      "8-bit products want A transposed and multiples of %u: %zu x %zu x %zu", unit, m, n, k);
    return CUBLAS_STATUS_SUCCESS;
}

size_t bytes_spanned(const layout &l) {
    return ((l.cols - 1) * (size_t)l.ld + l.rows) * bytes_of(l.type);
}

cublasStatus_t enqueue(CUstream stream, const product &p) {
    static auto *put = driver() ? (decltype(&hr_fake_cuda_enqueue))dlsym(driver(), "hr_fake_cuda_enqueue") : nullptr;
    if (!put) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "the fake driver (HEADROOM_LIBCUDA) is not loaded");
    const hr_fake_cuda_range ranges[] = {{p.pa, bytes_spanned(p.a)},
                                         {p.pb, bytes_spanned(p.b)},
                                         {p.pc, bytes_spanned(p.c)},
                                         {p.pd, bytes_spanned(p.d)},
                                         {p.space, p.space_bytes}};
    const CUresult result = put(stream, "fake_cublaslt_gemm", run, &p, sizeof p, ranges, p.space_bytes ? 5 : 4);
    if (result == CUDA_SUCCESS) return CUBLAS_STATUS_SUCCESS;
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "the product of %zu x %zu x %zu: CUDA error %d%s", p.m, p.n, p.k,
                  (int)result, result == CUDA_ERROR_INVALID_VALUE ? " (a matrix reaches beyond its memory)" : "");
}

unsigned log2_of(uint32_t v) {
    return v ? 31 - (unsigned)__builtin_clz(v) : 0;
}

template <class T> cublasStatus_t destroy(T *object, uint64_t tag) {
    auto *words = (uint64_t *)object;
    if (!words || *words != tag) return refuse(CUBLAS_STATUS_INVALID_VALUE, "destroyed twice, or never made");
    *words = 0;
    live--;
    free(words);
    return CUBLAS_STATUS_SUCCESS;
}
template <class T, class O> cublasStatus_t make(O *out, const T &value) {
    auto *object = (T *)calloc(1, sizeof **out > sizeof(T) ? sizeof **out : sizeof(T));
    if (!object) return CUBLAS_STATUS_ALLOC_FAILED;
    *object = value;
    *out = (O)object;
    live++;
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

extern "C" {

int hr_fake_cublaslt_live(void);
int hr_fake_cublaslt_live(void) {
    return live;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    HR_LT_ENTER(cublasLtCreate);
    if (!out) return CUBLAS_STATUS_INVALID_VALUE;
    live++;
    *out = (cublasLtHandle_t)malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    live--;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    HR_LT_ENTER(cublasLtMatmulDescCreate);
    return make(out, desc{DESC, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    return destroy(d, DESC);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes) {
    HR_LT_ENTER(cublasLtMatmulDescSetAttribute);
    auto *d = (desc *)handle;
    cublasOperation_t op;
    if (!d || d->tag != DESC || !value || bytes != sizeof op) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&op, value, sizeof op);
    if (which == CUBLASLT_MATMUL_DESC_TRANSA)
        d->op_a = op;
    else if (which == CUBLASLT_MATMUL_DESC_TRANSB)
        d->op_b = op;
    else
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "attribute %d of a product is not simulated", (int)which);
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
    HR_LT_ENTER(cublasLtMatrixLayoutCreate);
    if (!out || !bytes_of(type) || !rows || !cols || ld < (int64_t)rows)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a layout of type %d, %llu x %llu, leading dimension %lld",
                      (int)type, (unsigned long long)rows, (unsigned long long)cols, (long long)ld);
    return make(out, layout{LAYOUT, type, rows, cols, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    return destroy(l, LAYOUT);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    HR_LT_ENTER(cublasLtMatmulPreferenceCreate);
    return make(out, preference{PREFERENCE, 0, {ALIGNMENT, ALIGNMENT, ALIGNMENT, ALIGNMENT}});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    return destroy(p, PREFERENCE);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t bytes) {
    HR_LT_ENTER(cublasLtMatmulPreferenceSetAttribute);
    auto *p = (preference *)handle;
    if (!p || p->tag != PREFERENCE || !value) return CUBLAS_STATUS_INVALID_VALUE;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == 8) {
        memcpy(&p->space, value, 8);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (which >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && which <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES &&
        bytes == 4) {
        memcpy(&p->align[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, 4);
        return CUBLAS_STATUS_SUCCESS;
    }
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "preference %d with %zu bytes", (int)which, bytes);
}

// The first way wants a workspace where one is allowed.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t wanted, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *found) {
    HR_LT_ENTER(cublasLtMatmulAlgoGetHeuristic);
    const auto *p = (const preference *)wanted;
    if (!handle || !p || p->tag != PREFERENCE || most <= 0 || !out || !found) return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    const cublasStatus_t fits = check((desc *)o, (layout *)a, (layout *)b, (layout *)c, (layout *)d);
    if (fits != CUBLAS_STATUS_SUCCESS) return fits;
    const char *armed = getenv("HR_FAKE_CUBLASLT_FAIL");
    if (armed && !strcmp(armed, "none")) return CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < most && i < (int)WAYS; i++) {
        const auto *la = (const layout *)a;
        const auto *lb = (const layout *)b;
        const auto *op = (const desc *)o;
        algo way = {
            ALGO,
            (uint64_t)i,
            i ? 0 : (p->space < SPACE ? p->space : SPACE),
            op_rows(*la, op->op_a),
            op_cols(*lb, op->op_b),
            op_cols(*la, op->op_a),
            {log2_of(p->align[0]) | log2_of(p->align[1]) << 8 | log2_of(p->align[2]) << 16 | log2_of(p->align[3]) << 24,
             0}};
        static_assert(sizeof way <= sizeof out[i].algo, "an algorithm is 64 bytes");
        memset(&out[i], 0, sizeof out[i]);
        memcpy(&out[i].algo, &way, sizeof way);
        out[i].workspaceSize = way.space;
        out[i].state = CUBLAS_STATUS_SUCCESS;
        out[i].wavesCount = 1;
        *found = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t o, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *chosen, void *space, size_t space_bytes,
                              cudaStream_t stream) {
    HR_LT_ENTER(cublasLtMatmul);
    algo way;
    if (!handle || !alpha || !beta || !a || !b || !c || !d || !chosen) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t fits = check((desc *)o, (layout *)la, (layout *)lb, (layout *)lc, (layout *)ld);
    if (fits != CUBLAS_STATUS_SUCCESS) return fits;
    memcpy(&way, chosen, sizeof way);
    const desc &op = *(desc *)o;
    product p{};
    p.a = *(layout *)la, p.b = *(layout *)lb, p.c = *(layout *)lc, p.d = *(layout *)ld;
    p.op_a = op.op_a, p.op_b = op.op_b;
    p.m = p.d.rows, p.n = p.d.cols, p.k = op_cols(p.a, p.op_a);
    p.pa = a, p.pb = b, p.pc = c, p.pd = d, p.space = space, p.space_bytes = way.space;
    p.integer = op.compute == CUBLAS_COMPUTE_32I;
    memcpy(p.integer ? (void *)&p.alpha_int : &p.alpha, alpha, 4);
    memcpy(p.integer ? (void *)&p.beta_int : &p.beta, beta, 4);
    if (way.tag != ALGO || way.m != p.m || way.n != p.n || way.k != p.k)
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the way was found for another product than %zu x %zu x %zu", p.m,
                      p.n, p.k);
    const void *at[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        const size_t promised = (size_t)1 << (way.align[0] >> 8 * i & 31);
        if ((uintptr_t)at[i] % promised)
            return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "%c is not aligned to %zu bytes, as the preference said",
                          "ABCD"[i], promised);
    }
    if (space_bytes < way.space || (way.space && ((uintptr_t)space & 15)))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace of %zu bytes, %zu wanted", space_bytes,
                      (size_t)way.space);
    return enqueue((CUstream)stream, p);
}

} // extern "C"
