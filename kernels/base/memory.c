#include "kernels/base/memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t HUGE_PAGE = (size_t)2 << 20;

static _Atomic uint64_t calls[HR_FAULT_COUNT];
static _Atomic uint64_t fail_at[HR_FAULT_COUNT]; /* value of `calls` at which to fail; 0: never */

void hr_fault_arm(hr_fault kind, uint64_t nth) {
    atomic_store(&fail_at[kind], nth ? atomic_load(&calls[kind]) + nth : 0);
}

bool hr_fault_hit(hr_fault kind) {
    uint64_t call = atomic_fetch_add(&calls[kind], 1) + 1;
    return call == atomic_load_explicit(&fail_at[kind], memory_order_relaxed);
}

uint64_t hr_fault_calls(hr_fault kind) {
    return atomic_load(&calls[kind]);
}
uint64_t hr_alloc_count(void) {
    return hr_fault_calls(HR_FAULT_ALLOC);
}

void *hr_malloc(size_t bytes) {
    if (hr_fault_hit(HR_FAULT_ALLOC) || bytes == SIZE_MAX) return NULL;
    return malloc(bytes ? bytes : 1);
}

void *hr_calloc(size_t count, size_t bytes) {
    size_t total = hr_mul(count, bytes);
    if (hr_fault_hit(HR_FAULT_ALLOC) || total == SIZE_MAX) return NULL;
    return calloc(1, total ? total : 1);
}

void *hr_realloc(void *old, size_t bytes) {
    if (hr_fault_hit(HR_FAULT_ALLOC) || bytes == SIZE_MAX) return NULL;
    return realloc(old, bytes ? bytes : 1);
}

char *hr_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = hr_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

void hr_free(void *memory) {
    free(memory);
}

void *hr_pages_alloc(size_t bytes, bool huge) {
    if (hr_fault_hit(HR_FAULT_ALLOC) || bytes > SIZE_MAX / 2) return NULL;
    size_t want = hr_align_up(bytes ? bytes : 1, HUGE_PAGE);
    char *raw = mmap(NULL, want + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    size_t head = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    if (head) munmap(raw, head);
    munmap(raw + head + want, HUGE_PAGE - head);
    madvise(raw + head, want, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return raw + head;
}

void hr_pages_free(void *memory, size_t bytes) {
    if (memory) munmap(memory, hr_align_up(bytes ? bytes : 1, HUGE_PAGE));
}

uint64_t hr_huge_bytes(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    if (!f) return 0;
    char line[128];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "AnonHugePages: %llu kB", &kib) == 1) break;
    fclose(f);
    return (uint64_t)kib << 10;
}
