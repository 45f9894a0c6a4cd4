/* fake_cuda.h - what libcuda_fake.so exports beside the driver's own functions: counts, faults, and hooks for the other fakes.
 *
 * The library stands in for libcuda.so.1: same host code, real kernels, run on the CPU by shim.h. It is meant to be less
 * forgiving than the driver:
 *     work of a stream runs when a call must wait for it, never before, so that a missing wait shows as stale data;
 *     device memory is NaN when allocated, has guards on both sides, is never handed out twice, and belongs to queued work
 *     alone: a host that follows a device pointer, a kernel that leaves its memory, or one that is given a pointer to host
 *     memory ends the process with one line and a status below;
 *     all arguments are checked, and every object is counted.
 *
 * Environment, read by cuInit:
 *     HR_FAKE_CUDA        "memory=4G,sms=132,cc=9.0,devices=1,name=...,driver=13000,clock=1980,memory_clock=3201,bus=6144,
 *                         l2=60M,managed=1,compression=1,vmm=1,pinned=4G,protect=1,hostptr=1,order=ascending,seed=1,late=0": what the devices
 *                         are; protect=0 leaves device memory open to the host, hostptr=0 does not look for pointers to host
 *                         memory; order (descending, random, lifo), seed and late: how kernels run (hr_shim_mode)
 *     HR_FAKE_CUDA_FAIL   faults, as hr_fake_cuda_fail takes them
 *     HR_FAKE_CUDA_LEAKS  1: at exit one line on stderr for what is still alive, or "fake CUDA: nothing left" */
#ifndef HR_FAKE_CUDA_H
#define HR_FAKE_CUDA_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HR_FAKE_CUDA_HOST_ACCESS = 92,  /* exit status: the host touched device memory */
    HR_FAKE_CUDA_KERNEL_ACCESS = 93 /* work on the device left its memory, or was given a pointer to host memory */
};

/* ---- counts ---- */

/* What is alive, and what has been done since the start. */
/* clang-format off */
#define HR_FAKE_CUDA_LIVE(X)                                                                                  \
    X(contexts) X(modules) X(memory) X(pinned) X(managed) X(reservations) X(handles) X(mappings) X(streams)   \
    X(events) X(graphs) X(execs)
#define HR_FAKE_CUDA_DONE(X)                                                                                  \
    X(calls) X(launches) X(kernels) X(graph_launches) X(captures) X(copies) X(copied_bytes) X(waits)           \
    X(profiler_starts) X(profiler_stops)
/* clang-format on */
typedef struct hr_fake_cuda_counts {
#define X(name) uint64_t name;
    HR_FAKE_CUDA_LIVE(X) /* objects */
    uint64_t memory_bytes, pinned_bytes, managed_bytes, handle_bytes, peak_bytes,
        queued;          /* queued: work that has not run */
    HR_FAKE_CUDA_DONE(X) /* kernels: launched and replayed */
#undef X
} hr_fake_cuda_counts;
void hr_fake_cuda_stats(hr_fake_cuda_counts *out);

/* ---- faults ---- */

/* Which calls fail from now on; counting starts anew. NULL or "": none. Separated by commas:
 *     FUNCTION:N[:CODE[:late]]   the Nth call of that function (from 1; "cuMemAlloc", without _v2, or
 *                                hr_fake_cuda_enqueue: a product of the fake cuBLASLt) returns CODE, a number or
 *                                "CUDA_ERROR_...", 2 (out of memory) when left out; late: the call succeeds, and its work fails
 *                                when it runs
 *     N:ANY[:CODE]               the Nth call of all
 * Codes that ruin a context (a launch that failed, an illegal address, a lost device, ...) stay: every later call in that
 * context returns it. Releasing calls release all the same. A context that is released and retained anew works again,
 * unless the device was lost (CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_UNKNOWN, CUDA_ERROR_ECC_UNCORRECTABLE).
 * 0; -1: not such a text, and nothing is armed. */
int hr_fake_cuda_fail(const char *what);
/* Calls since hr_fake_cuda_fail: how many; name of number i (from 0), NULL past the end. cuGetError... are not counted. */
uint64_t hr_fake_cuda_calls(void);
const char *hr_fake_cuda_call(uint64_t i);
/* Faults that have struck since then. */
uint64_t hr_fake_cuda_struck(void);
/* Contexts forget what ruined them, lost devices come back, and what is queued is dropped: as in a new process. */
void hr_fake_cuda_revive(void);

/* ---- hooks ---- */

typedef enum hr_fake_cuda_kind {
    HR_FAKE_CUDA_KERNEL,
    HR_FAKE_CUDA_HTOD,
    HR_FAKE_CUDA_DTOH,
    HR_FAKE_CUDA_DTOD,
    HR_FAKE_CUDA_SET
} hr_fake_cuda_kind;
/* Work that ran. Times in ns of CLOCK_REALTIME. */
typedef struct hr_fake_cuda_record {
    hr_fake_cuda_kind kind;
    const char *name; /* of a kernel */
    uint64_t start, end, bytes;
    uint32_t correlation; /* of the call that launched it */
    uint32_t device, stream, graph, grid[3], block[3], smem_dynamic, smem_static, registers; /* graph: 0, or which */
} hr_fake_cuda_record;
typedef struct hr_fake_cuda_observer {
    /* A call that returned, in the thread that made it. */
    void (*called)(void *context, const char *name, uint32_t correlation, uint64_t start, uint64_t end);
    void (*ran)(void *context, const hr_fake_cuda_record *record);
    void *context;
} hr_fake_cuda_observer;
/* One at most; NULL: none. */
void hr_fake_cuda_observe(const hr_fake_cuda_observer *observer);

/* A stand-in of a library puts work into a stream as if it were a kernel: refused, captured, replayed and reported like
 * one. `context` is copied. Each range must lie in memory of the device. */
typedef struct hr_fake_cuda_range {
    const void *at;
    size_t bytes;
} hr_fake_cuda_range;
CUresult hr_fake_cuda_enqueue(CUstream stream, const char *name, void (*run)(const void *context), const void *context,
                              size_t context_bytes, const hr_fake_cuda_range *ranges, unsigned n_ranges);
/* The device of the calling thread's context, -1 none; one number of its description ("sms", "memory", "cc": 90, "ruined"). */
int hr_fake_cuda_device(void);
double hr_fake_cuda_fact(int device, const char *name);

#ifdef __cplusplus
}
#endif

#endif
