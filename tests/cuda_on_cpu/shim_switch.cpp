/* shim_switch.cpp - the way from one fiber to another: what a call leaves to the callee is saved on the stack, then the stack
 * pointer is the other's. (ucontext also saves the signal mask, by a system call at every switch: 90 times slower.) */
#include "tests/cuda_on_cpu/shim_switch.hpp"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef HR_SHIM_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HR_SHIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
asm(".text\n"
    ".globl hr_shim_switch\n"
    ".hidden hr_shim_switch\n"
    ".type hr_shim_switch,@function\n"
    "hr_shim_switch:\n" /* (void **save, void *to) */
    "    push %rbp\n"
    "    push %rbx\n"
    "    push %r12\n"
    "    push %r13\n"
    "    push %r14\n"
    "    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n"
    "    pop %r14\n"
    "    pop %r13\n"
    "    pop %r12\n"
    "    pop %rbx\n"
    "    pop %rbp\n"
    "    ret\n"
    ".size hr_shim_switch, .-hr_shim_switch\n");
enum { SAVED_WORDS = 6 };
#elif defined(__aarch64__)
asm(".text\n"
    ".globl hr_shim_switch\n"
    ".hidden hr_shim_switch\n"
    ".type hr_shim_switch,%function\n"
    "hr_shim_switch:\n"
    "    stp x29, x30, [sp, #-160]!\n"
    "    stp x19, x20, [sp, #16]\n"
    "    stp x21, x22, [sp, #32]\n"
    "    stp x23, x24, [sp, #48]\n"
    "    stp x25, x26, [sp, #64]\n"
    "    stp x27, x28, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n"
    "    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x2, sp\n"
    "    str x2, [x0]\n"
    "    mov sp, x1\n"
    "    ldp x19, x20, [sp, #16]\n"
    "    ldp x21, x22, [sp, #32]\n"
    "    ldp x23, x24, [sp, #48]\n"
    "    ldp x25, x26, [sp, #64]\n"
    "    ldp x27, x28, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n"
    "    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    ldp x29, x30, [sp], #160\n"
    "    ret\n"
    ".size hr_shim_switch, .-hr_shim_switch\n");
enum { SAVED_WORDS = 20 };
#else
#error "no switch between fibers for this processor"
#endif
extern "C" void hr_shim_switch(void **save, void *to);

namespace hr_shim {

#if defined(HR_SHIM_ASAN) || defined(HR_SHIM_TSAN)
enum { STACK_BYTES = 256 << 10 }; /* frames are several times as large */
#else
enum { STACK_BYTES = 64 << 10 };
#endif
enum { GUARD_BYTES = 4096, SETS = 2 };
static char *stacks; /* [SETS][MAX_FIBERS][GUARD_BYTES + STACK_BYTES] */
static unsigned set;

static void make_stacks() {
    const size_t bytes = (size_t)SETS * MAX_FIBERS * (GUARD_BYTES + STACK_BYTES);
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "cuda shim: no %zu bytes of address space for the stacks of fibers\n", bytes);
        _exit(91);
    }
    stacks = static_cast<char *>(p);
    for (size_t at = 0; at < bytes; at += GUARD_BYTES + STACK_BYTES) mprotect(stacks + at, GUARD_BYTES, PROT_NONE);
}

bool fiber_overflow(const void *address) {
    const size_t at = (size_t)(static_cast<const char *>(address) - stacks), one = GUARD_BYTES + STACK_BYTES;
    return stacks && at < SETS * MAX_FIBERS * one && at % one < GUARD_BYTES;
}

#ifdef HR_SHIM_TSAN
static void *race_contexts[SETS][MAX_FIBERS];
#endif

#ifdef HR_SHIM_ASAN
/* The host's stack, which AddressSanitizer tells the first fiber that runs. */
static const void *host_bottom;
static size_t host_bytes;
static bool from_host;
#endif

void fibers_enter(fiber *host, unsigned count) {
    if (!stacks) make_stacks();
    set = (set + 1) % SETS;
#ifdef HR_SHIM_ASAN
    from_host = true;
#endif
#ifdef HR_SHIM_TSAN
    host->race_context = __tsan_get_current_fiber();
    for (unsigned i = 0; i < count; i++)
        if (!race_contexts[set][i]) race_contexts[set][i] = __tsan_create_fiber(0);
#else
    (void)host;
    (void)count;
#endif
}

void fiber_prepare(fiber *f, unsigned i, void (*entry)()) {
    f->stack = stacks + ((size_t)set * MAX_FIBERS + i) * (GUARD_BYTES + STACK_BYTES) + GUARD_BYTES;
    f->fake_stack = nullptr;
#ifdef HR_SHIM_TSAN
    f->race_context = race_contexts[set][i];
#endif
    /* Stacks lie a power of two apart: without these steps all fibers would share one set of each cache. */
    char *top = f->stack + STACK_BYTES - 256 * (i % 16);
    void **sp = reinterpret_cast<void **>(top);
    *--sp = nullptr; /* the entry is called, as it seems, by nobody */
#ifdef __aarch64__
    sp -= SAVED_WORDS + 1;
    for (unsigned k = 0; k < SAVED_WORDS; k++) sp[k] = nullptr;
    sp[1] = reinterpret_cast<void *>(entry);
#else
    *--sp = reinterpret_cast<void *>(entry);
    for (unsigned k = 0; k < SAVED_WORDS; k++) *--sp = nullptr;
#endif
    f->sp = sp;
}

void fiber_switch(fiber *from, fiber *to, bool ends) {
#ifdef HR_SHIM_TSAN
    __tsan_switch_to_fiber(to->race_context, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef HR_SHIM_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake_stack, to->stack ? to->stack : host_bottom,
                                   to->stack ? (size_t)STACK_BYTES : host_bytes);
    hr_shim_switch(&from->sp, to->sp);
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#else
    (void)ends;
    hr_shim_switch(&from->sp, to->sp);
#endif
}

void fiber_started() {
#ifdef HR_SHIM_ASAN
    __sanitizer_finish_switch_fiber(nullptr, from_host ? &host_bottom : nullptr, from_host ? &host_bytes : nullptr);
    from_host = false;
#endif
}

} // namespace hr_shim
