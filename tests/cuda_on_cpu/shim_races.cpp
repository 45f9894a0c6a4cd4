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

void races_order(fiber *now, fiber *const *who, unsigned count, unsigned warp, uint32_t mask) {
    /* Those who meet at a tag are ordered after all who met there before: so one for each set of threads that meets. */
    static char tags[2][MAX_FIBERS / 32 + 1][61];
    void *tag = &tags[stats.blocks % 2][warp][mask % 61];
    for (unsigned i = 0; i < count; i++) {
        __tsan_switch_to_fiber(who[i]->race_context, __tsan_switch_to_fiber_no_sync);
        __tsan_release(tag);
    }
    for (unsigned i = 0; i < count; i++) {
        __tsan_switch_to_fiber(who[i]->race_context, __tsan_switch_to_fiber_no_sync);
        __tsan_acquire(tag);
    }
    __tsan_switch_to_fiber(now->race_context, __tsan_switch_to_fiber_no_sync);
}

void fence() {
    thread *me = running();
    for (unsigned i = 0; i < me->n_touched && i < MAX_TOUCHED; i++) __tsan_acquire(const_cast<void *>(me->touched[i]));
    me->n_touched = 0;
    me->fenced = true;
}

void atomic_access(const void *at) {
    thread *me = running();
    if (me->fenced) __tsan_release(const_cast<void *>(at));
    me->touched[me->n_touched++ % MAX_TOUCHED] = at;
}
#else
void races_launch() {}
void races_start() {}
void races_end() {}
void races_join() {}
void races_order(fiber *, fiber *const *, unsigned, unsigned, uint32_t) {}
void fence() {}
void atomic_access(const void *) {}
#endif

} // namespace hr_shim
