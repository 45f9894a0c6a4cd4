/* shim_races.cpp - what is ordered before what, for ThreadSanitizer: every thread of a block is one of its fibers.
 *
 * Ordered are: the host before a launch, a launch before the host, what a barrier or __syncwarp separates, and atomic
 * operations between fences: write, fence, atomic on A; atomic on A, fence, read. Nothing else, so that a race that no order of
 * fibers shows is reported. Blocks that follow each other are in no order (fibers_enter). */
#include "tests/cuda_on_cpu/shim_schedule.hpp"

#ifdef HR_SHIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace hr_shim {

#ifdef HR_SHIM_TSAN
static char start_tag, end_tag;

void races_launch() {
    __tsan_release(&start_tag);
}
void races_start() {
    __tsan_acquire(&start_tag);
}
void races_end() {
    __tsan_release(&end_tag);
}
void races_join() {
    __tsan_acquire(&end_tag);
}

/* Who arrives leaves its past at a tag; who goes on takes all that was left there. Those who meet again use the other tag of two, so
 * that somebody who goes on late does not take what the first to arrive again has left. */
static char tags[2][MAX_FIBERS / 32 + 1][61][2];
static unsigned meetings[MAX_FIBERS / 32 + 1][61];

void *races_arrive(unsigned warp, uint32_t mask) {
    void *tag = &tags[stats.blocks % 2][warp][mask % 61][meetings[warp][mask % 61] % 2];
    __tsan_release(tag);
    return tag;
}
void races_met(unsigned warp, uint32_t mask) {
    meetings[warp][mask % 61]++;
}
void races_go_on(void *meeting) {
    __tsan_acquire(meeting);
}

/* Fences of one kind are in one order, and an atomic operation that sees another puts the fences around them into it; barriers carry
 * that to other threads of the block. So fences and atomic operations count for the whole block. */
static const void *touched[64]; /* words of atomic operations, the newest ones */
static unsigned n_touched;
static bool fenced;

void races_block() {
    n_touched = 0;
    fenced = false;
}
void fence() {
    for (unsigned i = 0; i < n_touched && i < 64; i++) __tsan_acquire(const_cast<void *>(touched[i]));
    fenced = true;
}

void atomic_access(const void *at) {
    if (fenced) __tsan_release(const_cast<void *>(at));
    for (unsigned i = 0; i < n_touched && i < 64; i++)
        if (touched[i] == at) return;
    touched[n_touched++ % 64] = at;
}
#else
void races_launch() {}
void races_start() {}
void races_end() {}
void races_join() {}
void races_block() {}
void *races_arrive(unsigned, uint32_t) {
    return nullptr;
}
void races_met(unsigned, uint32_t) {}
void races_go_on(void *) {}
void fence() {}
void atomic_access(const void *) {}
#endif

} // namespace hr_shim
