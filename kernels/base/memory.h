/* memory.h - every allocation of the program goes through here, so that it can be counted and made to fail.
 *
 * hr_malloc and its kin are for small and long-lived things. hr_pages are for weights, KV and run state: 2 MiB aligned,
 * zeroed, huge pages asked for. Both count; tests arm a fault to make the n-th call fail. */
#ifndef HR_MEMORY_H
#define HR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL when out of memory (or when a fault is armed); never NULL for a size of 0. Free with hr_free. */
void *hr_malloc(size_t bytes);
void *hr_calloc(size_t count, size_t bytes); /* NULL also when the product overflows */
void *hr_realloc(void *old, size_t bytes);   /* old stays valid when NULL is returned */
char *hr_strdup(const char *text);
void hr_free(void *memory);

/* A mapping of at least `bytes`, 2 MiB aligned, zero-filled, with or (madvise) without huge pages. NULL on failure. Not touched here: the first writer decides where it lies. hr_pages_free takes the same byte count. */
void *hr_pages_alloc(size_t bytes, bool huge);
void hr_pages_free(void *memory, size_t bytes);
/* Bytes of huge pages that the process holds; 0 where the kernel does not say. */
uint64_t hr_huge_bytes(void);

/* Allocations (malloc, calloc, realloc, strdup, pages) made by the process so far. */
uint64_t hr_alloc_count(void);

/* a * b, or SIZE_MAX when it overflows (which every allocator here refuses). */
static inline size_t hr_mul(size_t a, size_t b) {
    size_t r;
    return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}
static inline size_t hr_align_up(size_t n, size_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

/* Fault injection for tests: the n-th call from now (1 = the next) of that kind fails once; 0 disarms. */
typedef enum hr_fault { HR_FAULT_ALLOC, HR_FAULT_READ, HR_FAULT_WRITE, HR_FAULT_COUNT } hr_fault;
void hr_fault_arm(hr_fault kind, uint64_t nth);
bool hr_fault_hit(hr_fault kind);       /* called by the wrappers at each call; true: fail now */
uint64_t hr_fault_calls(hr_fault kind); /* calls of that kind so far, to know how many faults to try */

#endif
