/* shim_switch.hpp - fibers: stacks of their own in one thread of the system, and the way from one to another. */
#ifndef HR_SHIM_SWITCH_HPP
#define HR_SHIM_SWITCH_HPP

#include <stddef.h>
#include <stdint.h>

namespace hr_shim {

/* The host is one too: all zero, set up by fibers_enter. */
struct fiber {
    void *sp;                        /* where it goes on; what it saved lies there */
    char *stack;                     /* lowest byte, above a page that nobody may touch */
    void *fake_stack, *race_context; /* AddressSanitizer's, ThreadSanitizer's */
};
enum { MAX_FIBERS = 1024 };

/* Before the first fiber of a block runs. Blocks that follow each other take turns between two sets of stacks and of contexts of
 * ThreadSanitizer, so that what they do is not in an order for it. */
void fibers_enter(fiber *host, unsigned count);
/* Fiber i of the block starts at entry, which never returns, when it is switched to. */
void fiber_prepare(fiber *f, unsigned i, void (*entry)());
/* From the running one, which comes back when somebody switches to it; `ends`: it never does. */
void fiber_switch(fiber *from, fiber *to, bool ends);
/* First thing in a fiber. */
void fiber_started();
/* Whether the address lies in the page below a stack. */
bool fiber_overflow(const void *address);

/* ---- for ThreadSanitizer, else nothing: see shim_races.cpp ---- */

/* Lanes `mask` of a warp, or the whole block (warp MAX_FIBERS / 32), meet: all that they did before arriving is before all that they
 * do after going on. races_met: the last one has come. */
void *races_arrive(unsigned warp, uint32_t mask);
void races_met(unsigned warp, uint32_t mask);
void races_go_on(void *meeting);
void races_block();  /* before each block */
void races_launch(); /* the host, before each block; it knows nothing of what blocks before did */
void races_start();  /* in a fiber: what the host did before the launch is before it */
void races_end();    /* in a fiber: what it did is before what the host does after races_join */
void races_join();

} // namespace hr_shim

#endif
