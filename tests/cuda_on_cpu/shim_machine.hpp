/* shim_machine.hpp - what the device side (shim_device.hpp, shim_*.hpp) knows of the machine that runs it.
 *
 * Kernels are compiled with sanitizers, the machine is not: what lanes hand to each other here is no access of the program. */
#ifndef HR_SHIM_MACHINE_HPP
#define HR_SHIM_MACHINE_HPP

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

namespace hr_shim {

/* The running thread as it sees itself; the scheduler sets it at every switch. */
struct thread_view {
    uint3 index;     /* threadIdx */
    unsigned linear; /* in the block: x fastest */
    unsigned lane, warp;
};
extern const thread_view *self;

/* The running block. */
struct block_view {
    uint3 index;
    dim3 dim, grid;
    void *dynamic; /* shared memory asked for by the launch; NULL: none */
};
extern block_view block;

/* ---- one operation of a whole warp ---- */

/* What one lane gives and takes; both on its own stack, where it waits. */
struct lane {
    const void *in;
    void *out;
};
struct warp_op {
    const char *name;
    void (*run)(lane lanes[32], uint32_t mask); /* lanes outside of mask are not touched */
    bool whole;         /* needs all 32 lanes: else the mask, less the lanes that left, is enough */
    bool orders_memory; /* what a lane wrote before is seen by the others after */
};
/* Waits until every lane of mask that has not left the kernel has called the same operation with the same mask. */
void warp_wait(const warp_op &op, uint32_t mask, const void *in, void *out);
uint32_t warp_live(); /* lanes of this warp that have not left */

extern const warp_op op_syncwarp, op_shuffle, op_ballot, op_match_any;
extern const warp_op op_add, op_min_s32, op_max_s32, op_min_u32, op_max_u32, op_and, op_or, op_xor;
extern const warp_op op_ldmatrix_x2, op_ldmatrix_x4, op_ldmatrix_x2_trans, op_ldmatrix_x4_trans;
extern const warp_op op_mma_bf16, op_mma_f16, op_mma_s8, op_mma_e4m3;

struct shuffle_in {
    uint32_t source; /* lane */
    uint64_t value;
};
/* Fragments of mma.sync; words of c are floats or int32. */
struct mma_in {
    uint32_t a[4], b[2], c[4];
};

/* ---- the block ---- */

enum class barrier { plain, count, all, any };
/* __syncthreads and its kin: number of threads with predicate, whether all, whether any. */
int block_wait(barrier kind, bool predicate, const char *file, int line);

/* Shared memory of the running block: the same for the same key, poisoned when first asked for; aligned to 128. */
void *shared(const void *key, size_t bytes);
/* Whether these bytes lie in shared memory of the running block. */
bool is_shared(const void *p, size_t bytes);

/* ---- asynchronous copies of the running thread ---- */

/* True: kept until copy_pop gives it; false: the caller copies at once. */
bool copy_keep(void *to, const void *from, uint32_t bytes);
void copy_commit();
/* Takes out the oldest copy of a group that is not among the newest `pending`; false: none is left. */
bool copy_pop(unsigned pending, void **to, const void **from, uint32_t *bytes);

/* ---- memory that is visible beyond the block: for ThreadSanitizer, else nothing ---- */

void fence();                       /* __threadfence, __threadfence_block */
void atomic_access(const void *at); /* after an atomic operation on that word */

/* Prints what, kernel, block and thread in one line and ends the process with status HR_SHIM_MISUSE. */
[[noreturn]] void misuse(const char *what);

/* ---- kernels ---- */

/* A kernel by its symbol; registers itself. */
struct kernel {
    const char *symbol;
    unsigned threads; /* of a block at most */
    size_t params_bytes;
    void (*run)(const void *params);
    const kernel *next;
    kernel(const char *name, unsigned max_threads, size_t bytes, void (*body)(const void *));
};

} // namespace hr_shim

#endif
