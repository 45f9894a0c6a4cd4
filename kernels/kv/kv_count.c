/* kv_count.c - the pages and lines of one count: a table of pages by open addressing, each with 64 bits for its lines. */
#include "kernels/kv/kv_count.h"

#include "kernels/base/memory.h"
#include "kernels/base/random.h"

enum { PAGE_BITS = 12, LINE_BITS = 6, FIRST_SLOTS = 1 << 10 };

typedef struct entry {
    uintptr_t page; /* address / 4096; 0: free */
    uint64_t lines;
} entry;

_Thread_local bool hr_kv_counting;
static _Thread_local struct count {
    entry *slots; /* [n], a power of two */
    size_t n, used;
    uint64_t runs;
    bool failed;
} count;

static entry *find(entry *slots, size_t n, uintptr_t page) {
    size_t i = (size_t)hr_mix64(page) & (n - 1);
    while (slots[i].page && slots[i].page != page) i = (i + 1) & (n - 1);
    return &slots[i];
}

static void grow(void) {
    entry *slots = hr_calloc(2 * count.n, sizeof *slots);
    if (!slots) {
        count.failed = true;
        return;
    }
    for (size_t i = 0; i < count.n; i++)
        if (count.slots[i].page) *find(slots, 2 * count.n, count.slots[i].page) = count.slots[i];
    hr_free(count.slots);
    count.slots = slots, count.n *= 2;
}

/* Bytes [at, end) were touched. */
static void touch(uintptr_t at, uintptr_t end) {
    while (at < end && !count.failed) {
        const uintptr_t page = at >> PAGE_BITS, next = (page + 1) << PAGE_BITS, stop = end < next ? end : next;
        const unsigned first = at >> LINE_BITS & 63, n = (unsigned)(((stop - 1) >> LINE_BITS & 63) - first + 1);
        entry *e = find(count.slots, count.n, page);
        if (!e->page) e->page = page, count.used++;
        e->lines |= (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << first;
        if (2 * count.used > count.n) grow();
        at = stop;
    }
}

hr_status hr_kv_count_begin(void) {
    if (hr_kv_counting) HR_FAIL(HR_ERR_INTERNAL, "lines of KV are counted already");
    entry *slots = hr_calloc(FIRST_SLOTS, sizeof *slots);
    if (!slots) HR_FAIL(HR_ERR_MEMORY, "out of memory for counting lines of KV");
    count = (struct count){.slots = slots, .n = FIRST_SLOTS};
    hr_kv_counting = true;
    return HR_OK;
}

hr_status hr_kv_count_end(hr_kv_counts *out) {
    *out = (hr_kv_counts){.runs = count.runs, .pages = count.used};
    for (size_t i = 0; i < count.n; i++) out->lines += (uint64_t)__builtin_popcountll(count.slots[i].lines);
    hr_free(count.slots);
    const bool failed = count.failed;
    count = (struct count){0};
    hr_kv_counting = false;
    if (failed) HR_FAIL(HR_ERR_MEMORY, "out of memory for counting lines of KV");
    return HR_OK;
}

void hr_kv_count_rows(const hr_kv_geom *g, const hr_kv_rows *run, unsigned planes, uint32_t n) {
    count.runs++;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        if (!(planes >> x & 1) || !run->at[x] || !n) continue;
        const uintptr_t at = (uintptr_t)run->at[x];
        const size_t row = g->row_bytes[x];
        if (run->stride[x] == row) {
            touch(at, at + n * row);
        } else {
            for (uint32_t i = 0; i < n; i++) touch(at + i * run->stride[x], at + i * run->stride[x] + row);
        }
    }
}
