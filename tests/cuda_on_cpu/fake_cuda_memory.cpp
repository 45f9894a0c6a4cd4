// fake_cuda_memory.cpp - where memory of devices lies, and who may touch it.
//
// Addresses come from one range that is only ever used once, so that freed memory stays out of reach. An allocation ends (to
// 256 bytes) where its pages end, with a guard page behind and before. Device memory has no access rights but while queued
// work runs; a fault tells which rule was broken, in one line, and ends the process.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HR_GUARDED_BY_ASAN 1
#else
#define HR_GUARDED_BY_ASAN                 0
#define ASAN_POISON_MEMORY_REGION(at, n)   ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

namespace fake {

// A place that no other memory of the process is near, where the sanitizer lets one choose.
#if defined(__SANITIZE_THREAD__)
static void *const wanted = nullptr;
#else
static void *const wanted = (void *)0x200000000000;
#endif
enum : uintptr_t {
    PAGE = 4096,
    HUGE_PAGE = (uintptr_t)2 << 20,
    ALIGN = 256,
    ADDRESSES = (uintptr_t)1 << 40,
    HOST_FROM = 0x500000000000,
    SMALL = 1 << 20
};

static struct {
    uintptr_t begin = 0, next = 0;
    std::map<uintptr_t, region> regions, freed; // by begin
    int depth = 0;                              // of windows
    const char *doing = "";
    struct sigaction before;
} &memory = *new std::remove_reference_t<decltype(memory)>;

void die(int status, const char *format, ...) {
    char line[512];
    int n = snprintf(line, sizeof line, "fake CUDA: ");
    va_list args;
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (write(2, line, (size_t)n) < 0) _exit(status);
    _exit(status);
}

static uintptr_t up(uintptr_t v, uintptr_t to) {
    return (v + to - 1) / to * to;
}

// ---- faults ----

static const region *around(const std::map<uintptr_t, region> &in, uintptr_t at) { // the last that begins at or before
    auto next = in.upper_bound(at);
    return next == in.begin() ? nullptr : &std::prev(next)->second;
}

static void describe(uintptr_t at, char *out, size_t n) {
    const region *live = around(memory.regions, at), *freed = around(memory.freed, at);
    if (live && at < live->begin + live->bytes)
        snprintf(out, n, "byte %zu of %zu bytes of device memory", (size_t)(at - live->begin), live->bytes);
    else if (freed && at < freed->begin + freed->bytes)
        snprintf(out, n, "byte %zu of %zu bytes that were freed", (size_t)(at - freed->begin), freed->bytes);
    else if (live && at < live->pages + live->pages_bytes + PAGE)
        snprintf(out, n, "%zu bytes behind the end of %zu bytes", (size_t)(at - live->begin - live->bytes),
                 live->bytes);
    else {
        const auto next = memory.regions.upper_bound(at);
        if (next != memory.regions.end() && next->second.pages - at <= PAGE)
            snprintf(out, n, "%zu bytes before %zu bytes", (size_t)(next->first - at), next->second.bytes);
        else
            snprintf(out, n, "no memory of the device");
    }
}

static bool is_mine(const struct sigaction &a);

// What is no memory of ours may be the end of a fiber's stack: the shim's handler is asked first.
static bool ask_before(int number, siginfo_t *info, void *context) {
    static uintptr_t asked = 0;
    const uintptr_t at = (uintptr_t)info->si_addr;
    if (!(memory.before.sa_flags & SA_SIGINFO) || is_mine(memory.before) || asked == at) return false;
    asked = at;
    memory.before.sa_sigaction(number, info, context);
    return true; // the instruction runs again
}

static void on_fault(int number, siginfo_t *info, void *context) {
    static thread_local bool inside = false;
    const uintptr_t at = (uintptr_t)info->si_addr;
    const bool ours = at - memory.begin < ADDRESSES;
    if (!inside && !ours && memory.depth && ask_before(number, info, context)) return;
    if (!inside && (ours || memory.depth)) {
        inside = true;
        char where[128];
        describe(at, where, sizeof where);
        if (memory.depth) die(HR_FAKE_CUDA_KERNEL_ACCESS, "%s touched 0x%zx: %s", memory.doing, (size_t)at, where);
        die(HR_FAKE_CUDA_HOST_ACCESS, "the host touched 0x%zx: %s", (size_t)at, where);
    }
    const struct sigaction &before = memory.before;
    if (inside || (!(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)) {
        signal(number, SIG_DFL); // the instruction runs again, and ends the process
        return;
    }
    inside = true;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    inside = false;
}

static bool is_mine(const struct sigaction &a) {
    return (a.sa_flags & SA_SIGINFO) && a.sa_sigaction == on_fault;
}

// Test runners set handlers of their own in between.
static void catch_faults() {
    struct sigaction now, mine = {};
    if (sigaction(SIGSEGV, nullptr, &now) || is_mine(now)) return;
    memory.before = now;
    mine.sa_sigaction = on_fault;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &mine, nullptr);
}

void memory_start() {
    void *at = mmap(wanted, ADDRESSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die(2, "no addresses: %s", strerror(errno));
    memory.begin = memory.next = (uintptr_t)at;
    catch_faults();
}

// ---- windows ----

static void protect(const region &r, int how) {
    if (mprotect((void *)r.pages, r.pages_bytes, how)) die(2, "mprotect: %s", strerror(errno));
}

static bool hidden(const region &r) { // from the host
    return r.kind == kind::DEVICE || (r.kind == kind::MAPPED && r.open);
}

// Bytes of the pages before and behind a region are NaN as everything that nobody wrote.
static void check_margins(const region &r) {
    if (HR_GUARDED_BY_ASAN || r.kind == kind::MAPPED) return;
    for (uintptr_t at = r.pages; at < r.pages + r.pages_bytes; at++) {
        if (at == r.begin) at += r.bytes;
        if (at >= r.pages + r.pages_bytes) break;
        if (*(unsigned char *)at == 0xff) continue;
        char where[128];
        if (at < r.begin)
            snprintf(where, sizeof where, "%zu bytes before", (size_t)(r.begin - at));
        else
            snprintf(where, sizeof where, "%zu bytes behind the end of", (size_t)(at - r.begin - r.bytes));
        die(HR_FAKE_CUDA_KERNEL_ACCESS, "%s, or what ran before it, wrote %s %zu bytes of memory",
            *memory.doing ? memory.doing : "the host", where, r.bytes);
    }
}

window::window(const char *doing) {
    memory.doing = doing;
    if (memory.depth++ || !the().set.protect) return;
    catch_faults();
    for (const auto &r : memory.regions)
        if (hidden(r.second)) protect(r.second, PROT_READ | PROT_WRITE);
}

window::~window() {
    if (memory.depth > 1 || !the().set.protect) {
        memory.depth--;
        return;
    }
    for (const auto &r : memory.regions) {
        if (r.second.kind == kind::DEVICE) check_margins(r.second);
        if (hidden(r.second)) protect(r.second, PROT_NONE);
    }
    memory.depth = 0;
    memory.doing = "";
    catch_faults();
}

void now_doing(const char *what) {
    memory.doing = what;
}

// ---- regions ----

uintptr_t take_addresses(size_t bytes, size_t align) {
    const uintptr_t at = up(memory.next + PAGE, align < PAGE ? PAGE : align), end = at + up(bytes, PAGE) + PAGE;
    if (bytes >= ADDRESSES || end > memory.begin + ADDRESSES) return 0;
    memory.next = end;
    return at;
}

void drop_pages(uintptr_t at, size_t bytes) {
    ASAN_UNPOISON_MEMORY_REGION((void *)at, bytes);
    if (mmap((void *)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        die(2, "mmap: %s", strerror(errno));
}

// Pages of NaN that cost nothing before they are written: of one file, mapped again and again.
static bool map_nan(uintptr_t pages, size_t bytes) {
    static const int file = [] {
        const int fd = memfd_create("nan", MFD_CLOEXEC);
        const std::vector<unsigned char> nan(HUGE_PAGE, 0xff);
        return fd >= 0 && write(fd, nan.data(), nan.size()) == (ssize_t)nan.size() ? fd : -1;
    }();
    for (uintptr_t at = pages; file >= 0 && at < pages + bytes; at += HUGE_PAGE) {
        const size_t left = pages + bytes - at, n = left < HUGE_PAGE ? left : (size_t)HUGE_PAGE;
        if (mmap((void *)at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) return false;
    }
    return file >= 0;
}

const region *make_region(enum kind k, device *owner, size_t bytes) {
    const size_t aligned = up(bytes, ALIGN), pages_bytes = up(aligned, PAGE);
    const bool huge = pages_bytes >= 2 * HUGE_PAGE; // few page faults where the kernel grants it
    const uintptr_t pages = take_addresses(pages_bytes, huge ? HUGE_PAGE : PAGE);
    if (!pages || mprotect((void *)pages, pages_bytes, PROT_READ | PROT_WRITE)) return nullptr;
    const bool lazy = huge && k == kind::PINNED && map_nan(pages, pages_bytes); // staging: most of it stays untouched
    if (huge && !lazy) madvise((void *)pages, pages_bytes, MADV_HUGEPAGE);
    const region r = {pages + pages_bytes - aligned, bytes, k, owner, pages, pages_bytes, false};
    if (!lazy) memset((void *)pages, 0xff, pages_bytes);
    ASAN_POISON_MEMORY_REGION((void *)pages, r.begin - pages);
    ASAN_POISON_MEMORY_REGION((void *)(r.begin + bytes), aligned - bytes);
    if (hidden(r) && the().set.protect && !memory.depth) protect(r, PROT_NONE);
    add_region(r);
    return region_at(r.begin);
}

void add_region(const region &r) {
    memory.regions[r.begin] = r;
    catch_faults();
}

void open_region(uintptr_t begin) {
    region &r = memory.regions.at(begin);
    r.open = true;
    if (!the().set.protect) protect(r, PROT_READ | PROT_WRITE);
}

void drop_region(uintptr_t begin) {
    const region r = memory.regions.at(begin);
    if (r.kind != kind::MAPPED) {
        if (hidden(r) && the().set.protect) protect(r, PROT_READ);
        check_margins(r);
    }
    drop_pages(r.pages, r.pages_bytes);
    memory.freed[begin] = r;
    memory.regions.erase(begin);
}

const region *region_of(uintptr_t at) {
    const region *r = around(memory.regions, at);
    return r && at - r->begin < r->bytes ? r : nullptr;
}

const region *region_at(uintptr_t begin) {
    const auto at = memory.regions.find(begin);
    return at == memory.regions.end() ? nullptr : &at->second;
}

bool is_reachable(const device *d, uintptr_t at, size_t bytes) {
    while (bytes) {
        const region *r = region_of(at);
        if (!r || (hidden(*r) && r->owner != d) || (r->kind == kind::MAPPED && !r->open)) return false;
        const size_t here = r->bytes - (at - r->begin), n = here < bytes ? here : bytes;
        at += n, bytes -= n;
    }
    return true;
}

bool is_on_device(uintptr_t at) {
    const region *r = region_of(at);
    return r && (r->kind == kind::DEVICE || r->kind == kind::MAPPED);
}

void each_region(void (*f)(const region &, void *), void *context) {
    for (const auto &r : memory.regions) f(r.second, context);
}

// Numbers are rarely addresses of pages that exist; those of programs, heaps, libraries and stacks lie above HOST_FROM. A small
// number beside four bytes of padding that nobody set is none.
void refuse_host_pointers(const char *what, const void *words, size_t bytes) {
    if (!the().set.hostptr || ((uintptr_t)words & 7)) return;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uintptr_t v;
        unsigned char there;
        memcpy(&v, (const char *)words + i, 8);
        if (v < HOST_FROM || v >> 47 || v - memory.begin < ADDRESSES || (uint32_t)v < SMALL) continue;
        if (mincore((void *)(v / PAGE * PAGE), 1, &there)) continue;
        die(HR_FAKE_CUDA_KERNEL_ACCESS, "%s: byte %zu holds 0x%zx, a pointer to memory of the host", what, i,
            (size_t)v);
    }
}

} // namespace fake
