/* shim_schedule.hpp - the threads of the running block and who runs next: shared by the sources of the machine. */
#ifndef HR_SHIM_SCHEDULE_HPP
#define HR_SHIM_SCHEDULE_HPP

#include "tests/cuda_on_cpu/shim.h"
#include "tests/cuda_on_cpu/shim_machine.hpp"
#include "tests/cuda_on_cpu/shim_switch.hpp"

namespace hr_shim {

enum class state { ready, at_barrier, in_warp_op, left };

struct pending_copy {
    void *to;
    const void *from;
    uint32_t bytes;
    unsigned group;
};

/* Arrays and no vectors: memory that fibers allocate would be an access of theirs for ThreadSanitizer. */
enum { MAX_COPIES = 256 };

struct thread : thread_view {
    fiber context;
    hr_shim::state state;
    /* in_warp_op */
    const warp_op *op;
    uint32_t mask;
    hr_shim::lane io;
    /* at_barrier; result is for when it goes on */
    barrier kind;
    bool predicate;
    int result;
    const char *file;
    int line;
    /* copies that were issued and are not done, oldest first; the group that the next one belongs to */
    pending_copy copies[MAX_COPIES];
    unsigned n_copies, group;
};
extern thread threads[MAX_FIBERS];
extern unsigned n_threads;
extern fiber host;
thread *running();

extern hr_shim_mode mode;
extern hr_shim_stats stats;
extern const kernel *launched; /* NULL: none */
uint64_t random_number();

/* Runs block.index of the launched kernel to its end. */
void run_block(void (*body)());
/* Shared memory of the next block (0: none but static), poisoned. That of blocks before goes back now or in shared_release. */
void shared_begin(size_t dynamic_bytes);
void shared_release();

/* Prints kernel, block, thread (NULL: of none) and what in one line and ends the process. */
[[noreturn]] void die(hr_shim_exit status, const thread *who, const char *what);

} // namespace hr_shim

#endif
