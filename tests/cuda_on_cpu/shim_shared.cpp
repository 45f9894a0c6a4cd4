/* shim_shared.cpp - shared memory: each array an allocation of its own for each block, so that sanitizers know its bounds and that no
 * block sees what another left; all bits set before its first use: NaN as a float of any width. */
#include "tests/cuda_on_cpu/shim_schedule.hpp"

#include <stdlib.h>
#include <vector>

#ifdef HR_SHIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace hr_shim {

struct piece {
    const void *key; /* NULL: the dynamic part */
    char *data;
    size_t bytes;
};
enum { STATIC_LIMIT = 48 << 10, MAX_PIECES = 64 };
static piece pieces[MAX_PIECES]; /* of the running block */
static unsigned n_pieces;
static std::vector<char *> released; /* of those that ended: given back when ThreadSanitizer knows them to be over */

static char *allocate(size_t bytes) {
    void *p = nullptr;
    if (posix_memalign(&p, 128, bytes)) die(HR_SHIM_NO_MEMORY, running(), "no memory for its shared memory");
    char *c = static_cast<char *>(p);
    for (size_t i = 0; i < bytes; i++) c[i] = (char)0xff;
    return c;
}

#ifdef HR_SHIM_TSAN
/* An allocation is a write: it is the host's, and before all that the threads do. */
static char tag;
static char *allocate_as_host(size_t bytes) {
    void *me = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(host.race_context, __tsan_switch_to_fiber_no_sync);
    char *data = allocate(bytes);
    __tsan_release(&tag);
    __tsan_switch_to_fiber(me, __tsan_switch_to_fiber_no_sync);
    return data;
}
static void know_allocation() {
    __tsan_acquire(&tag);
}
#else
static char *allocate_as_host(size_t bytes) {
    return allocate(bytes);
}
static void know_allocation() {}
#endif

void *shared(const void *key, size_t bytes) {
    size_t total = bytes;
    for (unsigned i = 0; i < n_pieces; i++) {
        if (pieces[i].key == key) {
            know_allocation();
            return pieces[i].data;
        }
        if (pieces[i].key) total += pieces[i].bytes;
    }
    if (total > STATIC_LIMIT) misuse("more than 48 KiB of static shared memory");
    if (n_pieces == MAX_PIECES) misuse("more than 64 arrays in shared memory");
    char *data = allocate_as_host(bytes);
    know_allocation();
    pieces[n_pieces++] = {key, data, bytes};
    return data;
}

bool is_shared(const void *p, size_t bytes) {
    const char *c = static_cast<const char *>(p);
    for (unsigned i = 0; i < n_pieces; i++)
        if (c >= pieces[i].data && c + bytes <= pieces[i].data + pieces[i].bytes) return true;
    return false;
}

void shared_begin(size_t dynamic_bytes) {
    for (unsigned i = 0; i < n_pieces; i++) released.push_back(pieces[i].data);
    n_pieces = 0;
#ifndef HR_SHIM_TSAN
    shared_release();
#endif
    block.dynamic = nullptr;
    if (dynamic_bytes == 0) return;
    block.dynamic = allocate(dynamic_bytes);
    pieces[n_pieces++] = {nullptr, static_cast<char *>(block.dynamic), dynamic_bytes};
}

void shared_release() {
    for (char *p : released) free(p);
    released.clear();
}

} // namespace hr_shim
