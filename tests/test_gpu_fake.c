/* The stand-in for the CUDA driver keeps its promises: work runs when it is waited for, arguments are checked, captures are as
 * strict as the driver's, nothing is lost from the counts, faults strike where they were ordered. */
#include "tests/gpu_fixture.h"

#include "engine/cuda/driver.h"
#include "kernels/cuda/cuda_params.h"
#include "kernels/table.h"

#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000 }; /* values of the arrays that tests add */

static const hr_driver *d;
static const hr_kernel *add_row;
static CUfunction add_function;
static CUstream stream;

#define OK(call)       assert_int_equal(d->call, CUDA_SUCCESS)
#define IS(call, code) assert_int_equal(d->call, code)

/* ---- arrays x += y on the device ---- */

typedef struct arrays {
    CUdeviceptr x, y, batch;
    float *host; /* pinned, [N] */
    hr_cuda_add params;
} arrays;

static void put(CUdeviceptr to, const void *from, size_t n) {
    OK(cuMemcpyHtoDAsync(to, from, n, stream)); /* pageable: taken at once */
}
static void fill(CUdeviceptr to, float value) {
    float all[N];
    for (int i = 0; i < N; i++) all[i] = value;
    put(to, all, sizeof all);
}
static float first(CUdeviceptr from) {
    float v;
    OK(cuMemcpyDtoHAsync(&v, from, sizeof v, stream)); /* pageable: waits */
    return v;
}

static void make_arrays(arrays *a) {
    const hr_cuda_batch batch = {.n = 1};
    OK(cuMemAlloc(&a->x, sizeof(float[N])));
    OK(cuMemAlloc(&a->y, sizeof(float[N])));
    OK(cuMemAlloc(&a->batch, sizeof batch));
    OK(cuMemAllocHost((void **)&a->host, sizeof(float[N])));
    put(a->batch, &batch, sizeof batch);
    fill(a->x, 1);
    fill(a->y, 2);
    a->params = (hr_cuda_add){(const hr_cuda_batch *)a->batch, (float *)a->x, (const float *)a->y, 1, N};
}
static void free_arrays(arrays *a) {
    OK(cuMemFree(a->x));
    OK(cuMemFree(a->y));
    OK(cuMemFree(a->batch));
    OK(cuMemFreeHost(a->host));
}
static CUresult launch_shape(const hr_cuda_shape *s, hr_cuda_add *params) {
    void *list[] = {params};
    return d->cuLaunchKernel(add_function, s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2],
                             s->smem, stream, list, NULL);
}
static hr_cuda_shape add_shape(hr_cuda_add *params) {
    const hr_cuda_caps caps = {9, 0, 132, 227 << 10, 0};
    hr_cuda_shape s;
    add_row->fn.cuda.shape(params, &caps, &s);
    return s;
}
static CUresult add(hr_cuda_add *params) {
    const hr_cuda_shape s = add_shape(params);
    return launch_shape(&s, params);
}

static void open_driver(void) {
    gpu_use_fakes();
    assert_int_equal(hr_driver_open(&d), HR_OK);
    assert_int_equal(hr_driver_context(0, NULL, NULL), HR_OK);
    add_row = hr_kernel_choose(&(hr_kernel_query){.family = HR_FAM_ADD, .cuda = true, .n = 1});
    assert_non_null(add_row);
    assert_int_equal(hr_driver_function(add_row->fn.cuda.symbol, &add_function), HR_OK);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}
static int setup(void **state) {
    (void)state;
    open_driver();
    return 0;
}

/* ---- when work runs ---- */

static void work_waits(void **state) {
    (void)state;
    arrays a;
    make_arrays(&a);
    assert_int_equal(gpu_counts().queued, 3);
    a.host[0] = 10;
    OK(cuMemcpyHtoDAsync(a.x, a.host, sizeof(float), stream));
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    OK(cuMemcpyDtoHAsync(a.host + 1, a.x, sizeof(float), stream));
    a.host[0] = 20, a.host[1] = -1; /* too early: pinned memory is read when the copy runs */
    const uint64_t kernels = gpu_counts().kernels;
    assert_true(a.host[1] == -1);
    OK(cuStreamSynchronize(stream));
    assert_true(a.host[1] == 22);
    assert_int_equal(gpu_counts().kernels, kernels + 1);
    assert_int_equal(gpu_counts().queued, 0);
    free_arrays(&a);
}

static void an_event_waits_for_what_is_before_it(void **state) {
    (void)state;
    arrays a;
    CUevent from, to, untimed;
    float ms = -1;
    make_arrays(&a);
    OK(cuEventCreate(&from, 0));
    OK(cuEventCreate(&to, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventSynchronize(from)); /* never recorded: nothing to wait for */
    IS(cuEventElapsedTime(&ms, from, to), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(from, stream));
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    OK(cuEventRecord(to, stream));
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    IS(cuEventElapsedTime(&ms, from, to), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(to));
    assert_int_equal(gpu_counts().queued, 1);
    OK(cuEventElapsedTime(&ms, from, to));
    assert_true(ms >= 0);
    OK(cuEventRecord(untimed, stream));
    OK(cuEventSynchronize(untimed));
    IS(cuEventElapsedTime(&ms, from, untimed), CUDA_ERROR_INVALID_HANDLE);
    assert_true(first(a.x) == 5);
    OK(cuEventDestroy(from));
    OK(cuEventDestroy(to));
    OK(cuEventDestroy(untimed));
    IS(cuEventRecord(to, stream), CUDA_ERROR_INVALID_HANDLE);
    free_arrays(&a);
}

/* The legacy stream and blocking streams keep the order of calls; others run alone. */
static void streams_keep_their_order(void **state) {
    (void)state;
    CUstream blocking, other;
    CUdeviceptr p, q;
    unsigned char got[2] = {0, 0};
    OK(cuMemAlloc(&p, 1));
    OK(cuMemAlloc(&q, 1));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(cuMemsetD8Async(p, 1, 1, blocking));
    OK(cuMemcpyDtoDAsync(q, p, 1, NULL));
    OK(cuMemsetD8Async(p, 2, 1, other));
    OK(cuMemsetD8Async(q, 9, 1, stream));
    OK(cuStreamSynchronize(other));
    assert_int_equal(gpu_counts().queued, 1); /* that of the stream which is not blocking */
    OK(cuMemcpyDtoHAsync(got, p, 1, other));
    OK(cuMemcpyDtoHAsync(got + 1, q, 1, other));
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 1);
    OK(cuCtxSynchronize());
    assert_int_equal(gpu_counts().queued, 0);
    OK(cuStreamDestroy(other));
    OK(cuStreamDestroy(blocking));
    IS(cuStreamSynchronize(blocking), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamDestroy(blocking), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemFree(p));
    OK(cuMemFree(q));
}

/* ---- memory ---- */

static void memory_is_nan_and_counted(void **state) {
    (void)state;
    const hr_fake_cuda_counts before = gpu_counts();
    size_t left, total, then;
    CUdeviceptr p, too_much = 0;
    float v[4];
    OK(cuMemGetInfo(&left, &total));
    OK(cuMemAlloc(&p, sizeof v));
    assert_int_equal(p % 256, 0);
    OK(cuMemGetInfo(&then, &total));
    assert_int_equal(left - then, 512);
    OK(cuMemcpyDtoHAsync(v, p, sizeof v, stream));
    for (int i = 0; i < 4; i++) assert_true(isnan(v[i]));
    IS(cuMemAlloc(&too_much, total), CUDA_ERROR_OUT_OF_MEMORY);
    IS(cuMemAlloc(&too_much, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    IS(cuMemAlloc(&too_much, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(gpu_counts().memory, before.memory + 1);
    assert_int_equal(gpu_counts().memory_bytes, before.memory_bytes + sizeof v);
    IS(cuMemFree(p + 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(p));
    IS(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(0));
    const hr_fake_cuda_counts after = gpu_counts();
    gpu_assert_same(&before, &after, "memory");
}

static void copies_are_bounded(void **state) {
    (void)state;
    CUdeviceptr p, q, gone;
    void *pinned;
    unsigned char host[64] = {0};
    OK(cuMemAlloc(&p, 64));
    OK(cuMemAlloc(&q, 32));
    OK(cuMemAlloc(&gone, 64));
    OK(cuMemFree(gone));
    OK(cuMemAllocHost(&pinned, 16));
    IS(cuMemcpyHtoDAsync(p, host, 65, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync(p + 1, host, 64, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync(p - 1, host, 1, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync(gone, host, 1, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync(p, pinned, 17, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync(p, (const void *)q, 1, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync((CUdeviceptr)host, host, 1, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyDtoHAsync(host, p + 60, 5, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyDtoHAsync((void *)q, p, 1, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyDtoDAsync(q, p, 33, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyDtoDAsync(p, q, 33, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemsetD8Async(q, 0, 33, stream), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoDAsync(p, host, 1, (CUstream)host), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemcpyHtoDAsync(p, host, 64, stream));
    OK(cuMemcpyHtoDAsync(p, host, 0, stream));
    OK(cuMemcpyDtoDAsync(q, p + 32, 32, stream));
    OK(cuMemFree(p)); /* waits */
    assert_int_equal(gpu_counts().queued, 0);
    OK(cuMemFree(q));
    IS(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(pinned));
    IS(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
}

static void pinned_and_managed_are_seen_by_both(void **state) {
    (void)state;
    arrays a;
    float *pinned;
    CUdeviceptr managed, seen;
    make_arrays(&a);
    OK(cuMemHostAlloc((void **)&pinned, sizeof(float[N]), CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&seen, pinned, 0));
    OK(cuMemAllocManaged(&managed, sizeof(float[N]), CU_MEM_ATTACH_GLOBAL));
    for (int i = 0; i < N; i++) pinned[i] = 3, ((float *)managed)[i] = 4;
    a.params.x = (float *)managed, a.params.y = (const float *)seen;
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    assert_true(((float *)managed)[0] == 4);
    OK(cuStreamSynchronize(stream));
    assert_true(((float *)managed)[N - 1] == 7);
    IS(cuMemHostGetDevicePointer(&seen, &a, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(gpu_counts().managed, 1);
    OK(cuMemFree(managed));
    OK(cuMemFreeHost(pinned));
    free_arrays(&a);
}

static CUmemAllocationProp device_memory(void) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
}

static void memory_is_mapped_by_hand(void **state) {
    (void)state;
    const hr_fake_cuda_counts before = gpu_counts();
    CUmemAllocationProp prop = device_memory();
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h[2];
    CUdeviceptr at, again;
    size_t unit;
    prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemAddressReserve(&at, 2 * unit, 0, 0, 0));
    OK(cuMemAddressReserve(&again, unit, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMemCreate(&h[i], unit, &prop, 0));
        OK(cuMemMap(at + (size_t)i * unit, unit, 0, h[i], 0));
    }
    IS(cuMemMap(at, unit, 0, h[1], 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemCreate(&h[0], unit + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemsetD8Async(at, 1, 1, stream), CUDA_ERROR_INVALID_VALUE); /* nobody may touch it yet */
    OK(cuMemSetAccess(at, 2 * unit, &access, 1));
    OK(cuMemsetD8Async(at, 1, 2 * unit, stream)); /* across both */
    IS(cuMemsetD8Async(at, 1, 2 * unit + 1, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8Async(at + unit, 7, 1, stream));
    IS(cuMemAddressFree(at, 2 * unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, 2 * unit)); /* waits */
    OK(cuMemRelease(h[0]));
    OK(cuMemMap(again, unit, 0, h[1], 0));
    OK(cuMemRelease(h[1]));
    OK(cuMemSetAccess(again, unit, &access, 1));
    unsigned char got[2];
    OK(cuMemcpyDtoHAsync(got, again, 2, stream));
    assert_int_equal(got[0], 7); /* contents follow the handle */
    assert_int_equal(got[1], 1);
    assert_int_equal(gpu_counts().handle_bytes, before.handle_bytes + unit);
    OK(cuMemUnmap(again, unit));
    OK(cuMemAddressFree(at, 2 * unit));
    OK(cuMemAddressFree(again, unit));
    const hr_fake_cuda_counts after = gpu_counts();
    gpu_assert_same(&before, &after, "mapped memory");
}

/* ---- kernels ---- */

static void launches_are_checked(void **state) {
    (void)state;
    arrays a;
    make_arrays(&a);
    static const struct {
        hr_cuda_shape shape;
        CUresult want;
    } all[] = {
        {{{1, 1, 1}, {32, 1, 1}, 48 << 10}, CUDA_SUCCESS},
        {{{0, 1, 1}, {32, 1, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 65536, 1}, {32, 1, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 1, 65536}, {32, 1, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{2147483648u, 1, 1}, {32, 1, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 1, 1}, {0, 1, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 1, 1}, {1025, 1, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 1, 1}, {1, 1, 65}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 1, 1}, {64, 32, 1}, 0}, CUDA_ERROR_INVALID_VALUE},
        {{{1, 1, 1}, {1024, 1, 1}, 0}, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES}, /* its bounds say less */
        {{{1, 1, 1}, {32, 1, 1}, (48 << 10) + 1}, CUDA_ERROR_INVALID_VALUE},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const CUresult got = launch_shape(&all[i].shape, &a.params);
        if (got != all[i].want) fail_msg("launch %zu: expected %d, got %d", i, (int)all[i].want, (int)got);
    }
    const hr_cuda_shape big = {{1, 1, 1}, {32, 1, 1}, 100 << 10};
    IS(cuFuncSetAttribute(add_function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
       CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncSetAttribute(add_function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
    assert_int_equal(launch_shape(&big, &a.params), CUDA_SUCCESS);
    OK(cuStreamSynchronize(stream));
    OK(cuFuncSetAttribute(add_function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 48 << 10));
    assert_int_equal(launch_shape(&big, &a.params), CUDA_ERROR_INVALID_VALUE);
    void *list[] = {&a.params};
    IS(cuLaunchKernel((CUfunction)&a, 1, 1, 1, 32, 1, 1, 0, stream, list, NULL), CUDA_ERROR_INVALID_HANDLE);
    IS(cuLaunchKernel(add_function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    free_arrays(&a);
}

static void a_parameter_is_copied_at_the_call(void **state) {
    (void)state;
    arrays a;
    make_arrays(&a);
    size_t bytes = sizeof a.params;
    void *packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &a.params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END};
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    OK(cuLaunchKernel(add_function, 1, 1, 1, 256, 1, 1, 0, stream, NULL, packed));
    memset(&a.params, 0xff, sizeof a.params);
    OK(cuStreamSynchronize(stream));
    assert_true(first(a.x) == 5);
    bytes--;
    IS(cuLaunchKernel(add_function, 1, 1, 1, 256, 1, 1, 0, stream, NULL, packed), CUDA_ERROR_INVALID_VALUE);
    free_arrays(&a);
}

static void modules_are_images(void **state) {
    (void)state;
    const hr_fake_cuda_counts before = gpu_counts();
    static const uint64_t text[64] = {0x7478657420746f6e};
    CUmodule module = NULL;
    CUfunction f = NULL;
    int value = -1, images = 0, holders = 0;
    IS(cuModuleLoadData(&module, text), CUDA_ERROR_INVALID_IMAGE);
    for (; hr_cuda_images[images].name; images++) {
        OK(cuModuleLoadData(&module, hr_cuda_images[images].data));
        IS(cuModuleGetFunction(&f, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
        if (d->cuModuleGetFunction(&f, module, add_row->fn.cuda.symbol) == CUDA_SUCCESS) {
            holders++;
            OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
            assert_in_range(value, 1, 255);
            OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
            assert_in_range(value, 32, 1023);
            OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
            assert_int_equal(value, 0);
        }
        OK(cuModuleUnload(module));
        IS(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    }
    assert_true(images > 0);
    assert_int_equal(holders, 1); /* a kernel is in the image of its source alone */
    assert_int_equal(gpu_counts().modules, before.modules);
}

/* ---- graphs ---- */

static void a_graph_is_replayed(void **state) {
    (void)state;
    const hr_fake_cuda_counts before = gpu_counts();
    arrays a;
    CUgraph graph;
    CUgraphExec exec;
    make_arrays(&a);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    OK(cuMemcpyDtoHAsync(a.host, a.x, sizeof(float), stream));
    const float *y = a.params.y;
    memset(&a.params, 0, sizeof a.params); /* the graph has a copy */
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    IS(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    for (int i = 1; i <= 3; i++) {
        a.host[0] = -1;
        OK(cuGraphLaunch(exec, stream));
        assert_true(a.host[0] == -1);
        OK(cuStreamSynchronize(stream));
        assert_true(a.host[0] == 1 + 2 * i);
    }
    fill((CUdeviceptr)y, 10); /* what parameters point to is read at every launch */
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec)); /* what was launched still runs */
    OK(cuStreamSynchronize(stream));
    assert_true(a.host[0] == 17);
    IS(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
    free_arrays(&a);
    const hr_fake_cuda_counts after = gpu_counts();
    gpu_assert_same(&before, &after, "graphs");
}

/* What a capture does not allow: `what` is the call, the capture is lost, and the stream works again afterwards. */
static void expect_forbidden(const char *what, CUresult got, CUresult want) {
    CUgraph graph = (CUgraph)&graph;
    if (got != want) fail_msg("%s while a stream captures: expected %d, got %d", what, (int)want, (int)got);
    IS(cuMemsetD8Async(0, 0, 0, stream), CUDA_SUCCESS);
    IS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void a_capture_forbids(void **state) {
    (void)state;
    arrays a;
    CUgraph graph;
    CUdeviceptr p;
    CUevent event;
    CUstream blocking;
    CUmodule module;
    void *host;
    float pageable[N] = {0};
    make_arrays(&a);
    OK(cuEventCreate(&event, 0));
    OK(cuStreamSynchronize(stream));
    IS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    IS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    const CUresult no = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    expect_forbidden("cuMemAlloc", d->cuMemAlloc(&p, 4), no);
    expect_forbidden("cuMemAllocHost", d->cuMemAllocHost(&host, 4), no);
    expect_forbidden("cuModuleLoadData", d->cuModuleLoadData(&module, hr_cuda_images[0].data), no);
    expect_forbidden("cuStreamSynchronize", d->cuStreamSynchronize(stream), no);
    expect_forbidden("cuCtxSynchronize", d->cuCtxSynchronize(), no);
    expect_forbidden("a pageable copy", d->cuMemcpyHtoDAsync(a.x, pageable, sizeof pageable, stream), no);
    expect_forbidden("a pageable copy", d->cuMemcpyDtoHAsync(pageable, a.x, sizeof pageable, stream), no);
    OK(cuEventRecord(event, stream));
    expect_forbidden("cuEventSynchronize", d->cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&p, 4));
    OK(cuMemFree(p));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(cuMemsetD8Async(a.x, 0, 4, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    IS(cuMemsetD8Async(a.x, 0, 4, blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    IS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamDestroy(blocking));
    OK(cuEventDestroy(event));
    free_arrays(&a);
}

/* ---- faults ---- */

static void faults_strike_once(void **state) {
    (void)state;
    const gpu_fake *fake = gpu_driver();
    static const char *const wrong[] = {
        "cuMemAlloc",     "cuMemAlloc:0",         "cuMemAlloc:x",         ":3",   "malloc:1", "3", "ANY:3",
        "cuMemAlloc:1:0", "cuMemAlloc:1:NO_SUCH", "cuMemAlloc:1:2:later", "0:ANY"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (fake->arm(wrong[i]) != -1) fail_msg("\"%s\" was taken", wrong[i]);
    CUdeviceptr p[3];
    assert_int_equal(fake->arm("cuMemAlloc:2,cuMemFree:1:CUDA_ERROR_INVALID_VALUE"), 0);
    OK(cuMemAlloc(&p[0], 4));
    IS(cuMemAlloc(&p[1], 4), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p[2], 4));
    const uint64_t memory = gpu_counts().memory;
    IS(cuMemFree(p[0]), CUDA_ERROR_INVALID_VALUE); /* and yet it is free */
    assert_int_equal(gpu_counts().memory, memory - 1);
    OK(cuMemFree(p[2]));
    assert_int_equal(fake->struck(), 2);
    assert_int_equal(fake->calls(), 5);
    assert_string_equal(fake->call(3), "cuMemFree");
    assert_null(fake->call(5));
    assert_int_equal(fake->arm("2:ANY:801"), 0);
    OK(cuMemFree(0));
    IS(cuMemFree(0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemFree(0));
    assert_int_equal(fake->arm(NULL), 0);
}

static void a_failed_launch_stays(void **state) {
    (void)state;
    const gpu_fake *fake = gpu_driver();
    arrays a;
    make_arrays(&a);
    assert_int_equal(fake->arm("cuLaunchKernel:2:719:late"), 0);
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    assert_int_equal(add(&a.params), CUDA_SUCCESS); /* it fails when it runs */
    assert_int_equal(add(&a.params), CUDA_SUCCESS);
    const uint64_t kernels = gpu_counts().kernels;
    IS(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(gpu_counts().kernels, kernels + 1);
    assert_int_equal(gpu_counts().queued, 0);
    size_t left, total;
    IS(cuMemGetInfo(&left, &total), CUDA_ERROR_LAUNCH_FAILED);
    IS(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    const uint64_t memory = gpu_counts().memory;
    IS(cuMemFree(a.x), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(gpu_counts().memory, memory - 1);
    fake->revive();
    OK(cuMemAlloc(&a.x, 4));
    assert_int_equal(fake->arm("cuMemAlloc:1:46"), 0); /* a lost device */
    CUdeviceptr p;
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_DEVICE_UNAVAILABLE);
    IS(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    fake->revive();
    assert_int_equal(fake->arm(NULL), 0);
    free_arrays(&a);
}

/* ---- what ends a process, and what needs one of its own ---- */

static int child_touches_device(void) {
    arrays a;
    make_arrays(&a);
    OK(cuStreamSynchronize(stream));
    return ((volatile float *)a.x)[1] == 1 ? 1 : 2;
}
static int child_kernel_leaves(void) {
    arrays a;
    make_arrays(&a);
    a.params.dim = N + 4096;
    return add(&a.params) || d->cuStreamSynchronize(stream) ? 1 : 2;
}
static int child_kernel_writes_behind(void) { /* into what is left of the page */
    const hr_kernel *row = hr_kernel_choose(&(hr_kernel_query){.family = HR_FAM_SAMPLE, .cuda = true, .n = 1});
    const hr_cuda_caps caps = {9, 0, 132, 227 << 10, 1 << 20};
    const hr_cuda_batch batch = {.n = 1, .n_logits = 1};
    CUdeviceptr workspace;
    CUfunction f;
    hr_cuda_shape s;
    arrays a;
    make_arrays(&a);
    OK(cuMemAlloc(&workspace, caps.workspace));
    OK(cuMemsetD8Async(workspace, 0, caps.workspace, stream));
    put(a.batch, &batch, sizeof batch);
    hr_cuda_sample p = {.batch = a.params.batch,
                        .logits = a.params.x,
                        .out = (int32_t *)a.y + N,
                        .workspace = (void *)workspace,
                        .n = 1,
                        .vocab = N};
    row->fn.cuda.shape(&p, &caps, &s);
    void *list[] = {&p};
    if (hr_driver_function(row->fn.cuda.symbol, &f)) return 3;
    OK(cuLaunchKernel(f, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2], s.smem, stream, list,
                      NULL));
    return d->cuStreamSynchronize(stream) ? 1 : 2;
}
static int child_kernel_uses_freed(void) {
    arrays a;
    make_arrays(&a);
    OK(cuMemFree(a.y));
    return add(&a.params) || d->cuStreamSynchronize(stream) ? 1 : 2;
}
static int child_host_pointer(void) {
    static float y[N];
    arrays a;
    make_arrays(&a);
    a.params.y = y;
    return add(&a.params) ? 1 : 2;
}
static int child_host_pointer_inside(void) {
    arrays a;
    make_arrays(&a);
    static int32_t token;
    const hr_cuda_batch batch = {.n = 1, .tokens = &token};
    put(a.batch, &batch, sizeof batch);
    return d->cuStreamSynchronize(stream) ? 1 : 2;
}
static int child_forks(void) { /* a child of a process with a context has none */
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) _exit(d->cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 7 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
static int child_releases(void) { /* the last release frees all, and mends what was ruined */
    arrays a;
    CUcontext again;
    make_arrays(&a);
    OK(cuStreamSynchronize(stream));
    gpu_driver()->arm("cuLaunchKernel:1:700");
    if (add(&a.params) != CUDA_ERROR_ILLEGAL_ADDRESS) return 1;
    if (d->cuDevicePrimaryCtxRelease(0) != CUDA_ERROR_ILLEGAL_ADDRESS) return 2;
    const hr_fake_cuda_counts c = gpu_counts();
    if (c.contexts || c.memory || c.pinned || c.streams || c.modules) return 3;
    if (d->cuMemAlloc(&a.x, 4) != CUDA_ERROR_CONTEXT_IS_DESTROYED) return 4;
    if (d->cuDevicePrimaryCtxRetain(&again, 0) || d->cuCtxSetCurrent(again) || d->cuMemAlloc(&a.x, 4)) return 5;
    return 7;
}
static int child_no_device(void) {
    return hr_driver_open(&d) == HR_ERR_UNSUPPORTED && strstr(hr_error(), "CUDA_ERROR_NO_DEVICE") ? 7 : 1;
}
static int child_no_image(void) {
    if (hr_driver_open(&d) || hr_driver_context(0, NULL, NULL)) return 1;
    return hr_driver_function(add_row->fn.cuda.symbol, &add_function) == HR_ERR_UNSUPPORTED &&
                   strstr(hr_error(), "CUDA_ERROR_NO_BINARY_FOR_GPU")
               ? 7
               : 2;
}
static int child_adds(void) { /* in whatever order kernels run */
    arrays a;
    make_arrays(&a);
    return add(&a.params) == CUDA_SUCCESS && first(a.x) == 3 ? 7 : 1;
}
static int child_leaves_all(void) {
    arrays a;
    make_arrays(&a);
    exit(7);
}

/* Lines that children print go to stderr. */
static const struct child {
    const char *name;
    int (*run)(void);
    bool opens;
    const char *variable, *value;
    int want; /* exit status */
    const char *says;
} children[] = {
    {"touches_device", child_touches_device, true, NULL, NULL, HR_FAKE_CUDA_HOST_ACCESS, "the host touched 0x"},
    {"touches_open_device", child_touches_device, true, "HR_FAKE_CUDA", "protect=0", 1, ""},
    {"kernel_leaves", child_kernel_leaves, true, NULL, NULL, HR_FAKE_CUDA_KERNEL_ACCESS,
     "behind the end of 4000 bytes"},
    {"kernel_writes_behind", child_kernel_writes_behind, true, NULL, NULL, HR_FAKE_CUDA_KERNEL_ACCESS,
     "bytes behind the end of 4000 bytes"},
    {"kernel_uses_freed", child_kernel_uses_freed, true, NULL, NULL, HR_FAKE_CUDA_KERNEL_ACCESS,
     "of 4000 bytes that were freed"},
    {"host_pointer", child_host_pointer, true, NULL, NULL, HR_FAKE_CUDA_KERNEL_ACCESS, "byte 16 holds 0x"},
    {"host_pointer_inside", child_host_pointer_inside, true, NULL, NULL, HR_FAKE_CUDA_KERNEL_ACCESS,
     "a copy to the device: byte 16 holds 0x"},
    {"host_pointer_allowed", child_host_pointer, true, "HR_FAKE_CUDA", "hostptr=0", 2, ""},
    {"forks", child_forks, true, NULL, NULL, 7, ""},
    {"releases", child_releases, true, NULL, NULL, 7, ""},
    {"no_device", child_no_device, false, "HR_FAKE_CUDA", "devices=0", 7, ""},
    {"no_image", child_no_image, false, "HR_FAKE_CUDA", "cc=7.5", 7, ""},
    {"wrong_word", child_no_device, false, "HR_FAKE_CUDA", "memry=4G", 2, "there is no \"memry\""},
    {"wrong_fault", child_no_device, false, "HR_FAKE_CUDA_FAIL", "cuMemAlloc", 2, "HR_FAKE_CUDA_FAIL"},
    {"other_order", child_adds, true, "HR_FAKE_CUDA", "order=lifo,late=1,seed=3", 7, ""},
    {"no_such_order", child_no_device, false, "HR_FAKE_CUDA", "order=up", 2, "order is"},
    {"fails_early", child_no_device, false, "HR_FAKE_CUDA_FAIL", "cuInit:1:100", 7, ""},
    {"leaves_all", child_leaves_all, true, "HR_FAKE_CUDA_LEAKS", "1", 7,
     " modules, 3 memory, 1 pinned, 1 streams (8056 bytes)"},
};

/* A process of its own for each, with what it printed on stderr. */
static void run_child(const struct child *c, char *said, size_t n, int *status) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (c->variable) setenv(c->variable, c->value, 1);
        dup2(ends[1], 2);
        execl("/proc/self/exe", "test_gpu_fake", c->name, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t more; got < n - 1 && (more = read(ends[0], said + got, n - 1 - got)) > 0;) got += (size_t)more;
    said[got] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
}

static void broken_rules_end_the_process(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        const struct child *c = &children[i];
        char said[4096];
        int status;
        run_child(c, said, sizeof said, &status);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != c->want || !strstr(said, c->says)) {
#if defined(__SANITIZE_ADDRESS__)
            /* what is left of a page is poisoned, so that the sanitizer speaks first */
            if (strstr(said, "AddressSanitizer") && c->want == HR_FAKE_CUDA_KERNEL_ACCESS) continue;
#endif
            fail_msg("%s: expected status %d and \"%s\", got %s %d and \"%s\"", c->name, c->want, c->says,
                     WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), said);
        }
    }
}

static void nothing_is_left(void **state) {
    (void)state;
    OK(cuStreamDestroy(stream));
    const hr_fake_cuda_counts c = gpu_counts(), none = {0};
    gpu_assert_same(&none, &c, "all tests");
    assert_int_equal(c.contexts, 1);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof children / sizeof *children; i++) {
        if (strcmp(argv[1], children[i].name)) continue;
        gpu_use_fakes();
        add_row = hr_kernel_choose(&(hr_kernel_query){.family = HR_FAM_ADD, .cuda = true, .n = 1});
        if (children[i].opens) open_driver();
        return children[i].run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_waits),
        cmocka_unit_test(an_event_waits_for_what_is_before_it),
        cmocka_unit_test(streams_keep_their_order),
        cmocka_unit_test(memory_is_nan_and_counted),
        cmocka_unit_test(copies_are_bounded),
        cmocka_unit_test(pinned_and_managed_are_seen_by_both),
        cmocka_unit_test(memory_is_mapped_by_hand),
        cmocka_unit_test(launches_are_checked),
        cmocka_unit_test(a_parameter_is_copied_at_the_call),
        cmocka_unit_test(modules_are_images),
        cmocka_unit_test(a_graph_is_replayed),
        cmocka_unit_test(a_capture_forbids),
        cmocka_unit_test(faults_strike_once),
        cmocka_unit_test(a_failed_launch_stays),
        cmocka_unit_test(broken_rules_end_the_process),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
