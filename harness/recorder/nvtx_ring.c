/* Records of events as they come: the hot path of the recorder.
 *
 * Invariants
 * 1. A thread writes its own chunks and stack alone, between entering (busy = 1) and leaving (busy = 0).
 * 2. Who enters looks at `stopped` after it said busy; who stops says so, makes all threads see it (membarrier), and then
 *    waits for busy = 0. So an entering thread needs no fence of its own, and after stop nobody writes.
 * 3. A pushed range lives on the stack until its pop, which writes the one record: what a ring drops is whole ranges.
 * 4. A chunk is touched when it is mapped, so that recording meets no page fault; the first are small, for programs with
 *    many threads, and the largest small enough that mapping one costs tens of microseconds. */
#include "harness/recorder/nvtx_record.h"
#include "kernels/base/clock.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CHUNK_FIRST = 16 << 10, CHUNK_MOST = 512 << 10, STACK_BYTES = HR_REC_DEPTH * sizeof(hr_rec) };

static _Thread_local hr_rec_thread *self;
static _Atomic bool stopped = true, stopped_early;
static _Atomic size_t chunk_bytes, refused;
static size_t chunk_limit, chunk_most;
static pthread_key_t at_thread_end;

static hr_rec_thread *_Atomic threads[HR_REC_THREADS];
static _Atomic uint32_t n_threads;

/* Spans that are open. Free places are a stack of indices + 1 whose head carries a count, so that a head which was taken
 * and came back is no match. */
static hr_rec_span *spans;
static _Atomic uint32_t n_spans;
static _Atomic uint64_t free_spans;
static _Atomic uint32_t span_round;

static void *map(size_t bytes, int flags) {
    void *out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return out == MAP_FAILED ? NULL : out;
}

/* Recording ends here for good; what there is will be written. */
static void out_of_memory(void) {
    hr_rec_warn("out of memory for records; recording stops here");
    atomic_store(&stopped_early, true);
    atomic_store(&stopped, true);
}

/* ---- a thread's memory ------------------------------------------------------------------------------------------- */

static hr_rec_chunk *chunk_map(size_t bytes) {
    hr_rec_chunk *chunk = map(bytes, MAP_POPULATE);
    if (!chunk) return NULL;
    *chunk = (hr_rec_chunk){.bytes = bytes, .space = (uint32_t)((bytes - sizeof *chunk) / sizeof chunk->records[0])};
    return chunk;
}

/* Takes the thread's oldest chunk for new records. */
static hr_rec_chunk *chunk_recycle(hr_rec_thread *t) {
    hr_rec_chunk *chunk = t->oldest;
    t->oldest = chunk->next;
    t->dropped += chunk->n;
    chunk->next = NULL, chunk->n = 0;
    return chunk;
}

static bool chunk_next(hr_rec_thread *t) {
    size_t bytes = t->newest ? 2 * t->newest->bytes : CHUNK_FIRST;
    if (bytes > chunk_most) bytes = chunk_most;
    if (t->newest) t->newest->n = (uint32_t)(t->at - t->newest->records);
    /* A thread's first one is had even without room. */
    const bool room = atomic_fetch_add(&chunk_bytes, bytes) + bytes <= chunk_limit || !t->oldest;
    if (!room) atomic_fetch_sub(&chunk_bytes, bytes);
    hr_rec_chunk *chunk = room ? chunk_map(bytes) : chunk_recycle(t);
    if (!chunk) return out_of_memory(), false;
    if (t->oldest)
        t->newest->next = chunk;
    else
        t->oldest = chunk;
    t->newest = chunk;
    t->at = chunk->records, t->end = chunk->records + chunk->space;
    return true;
}

static inline hr_rec *slot(hr_rec_thread *t) {
    if (__builtin_expect(t->at == t->end, 0) && !chunk_next(t)) {
        atomic_fetch_add(&refused, 1);
        return NULL;
    }
    return t->at++;
}

static hr_rec_thread *thread_make(void) {
    if (atomic_load(&stopped)) return NULL;
    if (atomic_load(&n_threads) >= HR_REC_THREADS) return atomic_fetch_add(&refused, 1), NULL;
    const size_t bytes = (sizeof(hr_rec_thread) + 63) & ~(size_t)63;
    char *memory = map(bytes, 0);
    char *hot = memory ? map(STACK_BYTES + HR_REC_NAMES_SEEN * sizeof(void *), MAP_POPULATE) : NULL;
    hr_rec_thread *t = (hr_rec_thread *)memory;
    if (!hot || !(t->stack = (hr_rec *)hot, chunk_next(t))) {
        if (hot) munmap(hot, STACK_BYTES + HR_REC_NAMES_SEEN * sizeof(void *));
        if (memory) munmap(memory, bytes);
        out_of_memory();
        return NULL;
    }
    t->seen = (const hr_rec_name **)(hot + STACK_BYTES);
    t->tid = syscall(SYS_gettid);
    prctl(PR_GET_NAME, t->name);
    t->index = atomic_fetch_add(&n_threads, 1);
    if (t->index >= HR_REC_THREADS) {
        atomic_store(&n_threads, HR_REC_THREADS);
        return NULL;
    }
    atomic_store(&threads[t->index], t);
    pthread_setspecific(at_thread_end, t);
    return self = t;
}

static inline void leave(hr_rec_thread *t) {
    atomic_store_explicit(&t->busy, 0, memory_order_release);
}

/* NULL: nothing is recorded. */
static inline hr_rec_thread *enter(void) {
    hr_rec_thread *t = self;
    if (__builtin_expect(!t, 0) && !(t = thread_make())) return NULL;
    atomic_store_explicit(&t->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(!atomic_load_explicit(&stopped, memory_order_acquire), 1)) return t;
    leave(t);
    return NULL;
}

/* What the thread has left open ends with it; of its memory stay the records. */
static void thread_end(void *arg) {
    hr_rec_thread *t = arg;
    const uint64_t now = hr_now_ns();
    self = NULL;
    atomic_store_explicit(&t->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&stopped, memory_order_acquire)) {
        while (t->depth) {
            hr_rec *r = slot(t);
            if (!r) break;
            *r = t->stack[--t->depth];
            r->end_ns = now, r->open = 1;
        }
        munmap(t->stack, STACK_BYTES + HR_REC_NAMES_SEEN * sizeof(void *));
        t->stack = NULL, t->seen = NULL;
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const size_t used = ((size_t)((char *)t->at - (char *)t->newest) + page - 1) / page * page;
        if (used < t->newest->bytes) {
            munmap((char *)t->newest + used, t->newest->bytes - used);
            atomic_fetch_sub(&chunk_bytes, t->newest->bytes - used);
            t->newest->bytes = used;
            t->end = t->at;
        }
    }
    leave(t);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static inline void fill(hr_rec_thread *t, hr_rec *r, const hr_rec_event *event, hr_rec_kind kind) {
    const hr_rec_name *name = event->name;
    if (!name) name = event->wide ? hr_rec_wide_name_of(event->wide, t->seen) : hr_rec_name_of(event->text, t->seen);
    r->payload = event->payload, r->name = name->id, r->category = event->category;
    r->thread = t->index, r->domain = event->domain, r->kind = (uint8_t)kind;
    r->payload_type = event->payload_type & 15, r->open = 0;
}

int hr_rec_push(const hr_rec_event *event) {
    hr_rec_thread *t = enter();
    if (!t) return -2;
    uint32_t below = t->depth;
    if (below == HR_REC_DEPTH) {
        t->too_deep++;
        atomic_fetch_add(&refused, 1);
        leave(t);
        return HR_REC_DEPTH;
    }
    hr_rec *r = &t->stack[below];
    fill(t, r, event, HR_REC_RANGE);
    /* Levels are those of the domain: one more than that of its newest open range. */
    while (below && t->stack[below - 1].domain != event->domain) below--;
    const uint64_t level = below ? t->stack[below - 1].end_ns + 1 : 0;
    r->end_ns = level;
    t->depth++;
    r->start_ns = hr_now_ns();
    leave(t);
    return (int)level;
}

int hr_rec_pop(uint16_t domain) {
    const uint64_t now = hr_now_ns();
    hr_rec_thread *t = enter();
    if (!t) return -2;
    int level = -1;
    uint32_t at = t->depth;
    while (at && t->stack[at - 1].domain != domain) at--;
    if (t->too_deep) {
        t->too_deep--;
        level = HR_REC_DEPTH;
    } else if (!at) {
        t->unmatched++;
    } else {
        const hr_rec *range = &t->stack[at - 1];
        level = (int)range->end_ns;
        hr_rec *r = slot(t);
        if (r) *r = *range, r->end_ns = now;
        if (at < t->depth) memmove(&t->stack[at - 1], &t->stack[at], (t->depth - at) * sizeof *range);
        t->depth--;
    }
    leave(t);
    return level;
}

void hr_rec_mark(const hr_rec_event *event) {
    hr_rec_thread *t = enter();
    if (!t) return;
    hr_rec *r = slot(t);
    if (r) {
        fill(t, r, event, HR_REC_MARK);
        r->start_ns = r->end_ns = hr_now_ns();
    }
    leave(t);
}

/* ---- spans: started and ended by any threads --------------------------------------------------------------------- */

/* Index + 1 of a place, 0: none. */
static uint32_t span_take(void) {
    uint64_t head = atomic_load(&free_spans);
    while ((uint32_t)head) {
        const uint64_t next = ((head >> 32) + 1) << 32 | atomic_load(&spans[(uint32_t)head - 1].next_free);
        if (atomic_compare_exchange_weak(&free_spans, &head, next)) return (uint32_t)head;
    }
    uint32_t fresh = atomic_load(&n_spans);
    while (fresh < HR_REC_SPANS)
        if (atomic_compare_exchange_weak(&n_spans, &fresh, fresh + 1)) return fresh + 1;
    return 0;
}

static void span_give(uint32_t place) {
    uint64_t head = atomic_load(&free_spans), next;
    do {
        atomic_store(&spans[place - 1].next_free, (uint32_t)head);
        next = ((head >> 32) + 1) << 32 | place;
    } while (!atomic_compare_exchange_weak(&free_spans, &head, next));
}

uint64_t hr_rec_span_start(const hr_rec_event *event) {
    hr_rec_thread *t = enter();
    if (!t) return 0;
    uint64_t id = 0;
    const uint32_t place = span_take();
    if (place) {
        hr_rec_span *span = &spans[place - 1];
        fill(t, &span->record, event, HR_REC_SPAN);
        id = (uint64_t)(atomic_fetch_add(&span_round, 1) + 1) << 32 | place;
        span->record.start_ns = hr_now_ns();
        atomic_store_explicit(&span->id, id, memory_order_release);
    } else {
        atomic_fetch_add(&refused, 1);
    }
    leave(t);
    return id;
}

void hr_rec_span_end(uint64_t id) {
    const uint64_t now = hr_now_ns();
    hr_rec_thread *t = enter();
    if (!t) return;
    const uint32_t place = (uint32_t)id;
    hr_rec_span *span = place && place <= HR_REC_SPANS ? &spans[place - 1] : NULL;
    uint64_t expected = id;
    if (span && atomic_compare_exchange_strong(&span->id, &expected, 0)) {
        hr_rec *r = slot(t);
        if (r) *r = span->record, r->end_ns = now;
        span_give(place);
    } else {
        t->unmatched++;
    }
    leave(t);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

void hr_rec_start(size_t bytes) {
    chunk_limit = bytes;
    chunk_most = bytes / 8 / 4096 * 4096;
    if (chunk_most < CHUNK_FIRST) chunk_most = CHUNK_FIRST;
    if (chunk_most > CHUNK_MOST) chunk_most = CHUNK_MOST;
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    spans = map(sizeof *spans * HR_REC_SPANS, MAP_NORESERVE);
    if (!spans || pthread_key_create(&at_thread_end, thread_end) != 0)
        out_of_memory();
    else
        atomic_store(&stopped, false);
}

void hr_rec_stop(void) {
    atomic_store(&stopped, true);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    const uint64_t give_up = hr_now_ns() + 1000000000u;
    for (uint32_t i = 0; i < hr_rec_threads(); i++) {
        hr_rec_thread *t = hr_rec_thread_at(i);
        /* This thread itself may be inside, under a signal's handler. */
        while (t && t != self && atomic_load_explicit(&t->busy, memory_order_acquire) && hr_now_ns() < give_up)
            usleep(50);
        if (t && t->newest) t->newest->n = (uint32_t)(t->at - t->newest->records);
    }
}

void hr_rec_forget(void) {
    self = NULL;
    if (spans) memset(spans, 0, sizeof *spans * atomic_load(&n_spans));
    atomic_store(&n_spans, 0);
    atomic_store(&free_spans, 0);
    /* The parent's records stay mapped: pages that are shared as long as nobody writes them. */
    for (uint32_t i = hr_rec_threads(); i > 0; i--) atomic_store(&threads[i - 1], NULL);
    atomic_store(&n_threads, 0);
    atomic_store(&chunk_bytes, 0);
    atomic_store(&refused, 0);
    pthread_setspecific(at_thread_end, NULL);
}

uint32_t hr_rec_threads(void) {
    const uint32_t n = atomic_load(&n_threads);
    return n < HR_REC_THREADS ? n : HR_REC_THREADS;
}

hr_rec_thread *hr_rec_thread_at(uint32_t index) {
    return atomic_load(&threads[index]);
}

uint32_t hr_rec_spans(void) {
    return atomic_load(&n_spans);
}

hr_rec_span *hr_rec_span_at(uint32_t index) {
    return &spans[index];
}

uint64_t hr_rec_refused(void) {
    return atomic_load(&refused);
}

bool hr_rec_stopped_early(void) {
    return atomic_load(&stopped_early);
}
