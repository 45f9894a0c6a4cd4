/* shim_schedule.cpp - one block: which thread runs, barriers, operations of a warp, and what is said when a rule is broken.
 *
 * A thread runs until it waits: at a barrier of the block, in an operation of its warp, or it has left the kernel. Invariants:
 *  1. A thread that waits or has left is in no queue; a ready one that does not run is in the queue exactly once.
 *  2. Whoever arrives last (or leaves) completes what the others wait for, and makes all of them ready (release).
 *  3. When nobody is ready and somebody waits, nothing can ever complete: a deadlock. */
#include "tests/cuda_on_cpu/shim_schedule.hpp"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace hr_shim {

thread threads[MAX_FIBERS];
unsigned n_threads;
fiber host;
block_view block;
const thread_view *self;

static void (*block_body)();
static unsigned n_live, n_at_barrier;
static uint32_t live[MAX_FIBERS / 32], in_op[MAX_FIBERS / 32]; /* bit sets of lanes, a warp each */

thread *running() {
    return const_cast<thread *>(static_cast<const thread *>(self));
}
uint32_t warp_live() {
    return live[self->warp];
}

/* ---- who runs next ---- */

static uint16_t queue[MAX_FIBERS]; /* a ring of those that are ready */
static unsigned queue_head, queue_count;

static uint16_t *queued(unsigned i) {
    return &queue[(queue_head + i) % MAX_FIBERS];
}

/* Makes these ready, in the order of the mode. */
static void release(thread *const *who, unsigned count) {
    const bool backwards = mode.order == HR_SHIM_DESCENDING || mode.order == HR_SHIM_LIFO;
    for (unsigned i = 0; i < count; i++) {
        thread *t = who[backwards ? count - 1 - i : i];
        t->state = state::ready;
        *queued(queue_count++) = (uint16_t)t->linear;
    }
}

/* NULL: nobody is ready. Random: any; last-in-first-out: one warp runs ahead as far as it can. */
static thread *next_ready() {
    if (queue_count == 0) return nullptr;
    queue_count--;
    if (mode.order == HR_SHIM_LIFO) return &threads[*queued(queue_count)];
    if (mode.order == HR_SHIM_RANDOM) {
        uint16_t *chosen = queued((unsigned)(random_number() % (queue_count + 1)));
        const uint16_t t = *chosen;
        *chosen = *queued(0);
        *queued(0) = t;
    }
    thread *t = &threads[*queued(0)];
    queue_head = (queue_head + 1) % MAX_FIBERS;
    return t;
}

[[noreturn]] static void deadlock();

/* Lets others run until the running thread is ready again. */
static void give_way() {
    thread *me = running(), *next = next_ready();
    if (!next) deadlock();
    if (next == me) return;
    stats.switches++;
    self = next;
    fiber_switch(&me->context, &next->context, false);
}

/* ---- reports ---- */

void die(hr_shim_exit status, const thread *who, const char *what) {
    fprintf(stderr, "cuda shim: kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s\n",
            launched ? launched->symbol : "(none)", block.index.x, block.index.y, block.index.z, who ? who->index.x : 0,
            who ? who->index.y : 0, who ? who->index.z : 0, what);
    fflush(nullptr);
    _exit(status);
}

void misuse(const char *what) {
    die(HR_SHIM_MISUSE, running(), what);
}

static void describe_wait(const thread *t, char *out, size_t bytes) {
    if (t->state == state::at_barrier)
        snprintf(out, bytes, "waits at the barrier of %s:%d", t->file, t->line);
    else
        snprintf(out, bytes, "waits in %s with mask 0x%08x", t->op->name, t->mask);
}

static void deadlock() {
    const thread *first = nullptr, *other = nullptr;
    unsigned waiting = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        const thread *t = &threads[i];
        if (t->state == state::left) continue;
        waiting++;
        if (!first) first = t;
        const bool same =
            t->state == first->state &&
            (t->state == state::at_barrier ? t->line == first->line : t->op == first->op && t->mask == first->mask);
        if (!same && !other) other = t;
    }
    char one[256], two[256] = "the others have left", text[640];
    describe_wait(first, one, sizeof one);
    if (other) describe_wait(other, two, sizeof two);
    if (other)
        snprintf(text, sizeof text, "deadlock of %u of %u threads: it %s, thread (%u,%u,%u) %s", waiting, n_threads,
                 one, other->index.x, other->index.y, other->index.z, two);
    else
        snprintf(text, sizeof text, "deadlock of %u of %u threads: it %s, %s", waiting, n_threads, one, two);
    die(HR_SHIM_DEADLOCK, first, text);
}

/* ---- the barrier of the block ---- */

static void complete_barrier() {
    if (n_at_barrier == 0 || n_at_barrier != n_live) return;
    thread *who[MAX_FIBERS];
    unsigned count = 0;
    int set = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        thread *t = &threads[i];
        if (t->state != state::at_barrier) continue;
        const thread *first = count ? who[0] : t;
        if (t->line != first->line || t->kind != first->kind || strcmp(t->file, first->file) != 0) {
            char one[256], text[640];
            describe_wait(first, one, sizeof one);
            snprintf(text, sizeof text, "divergent barriers: it waits at that of %s:%d, thread (%u,%u,%u) %s", t->file,
                     t->line, first->index.x, first->index.y, first->index.z, one);
            die(HR_SHIM_DIVERGENT_BARRIER, t, text);
        }
        who[count++] = t;
        set += t->predicate;
    }
    const barrier kind = who[0]->kind;
    const int result = kind == barrier::count ? set : kind == barrier::all ? set == (int)count : set > 0;
    for (unsigned i = 0; i < count; i++) who[i]->result = result;
    n_at_barrier = 0;
    stats.barriers++;
    races_met(MAX_FIBERS / 32, 0);
    release(who, count);
}

int block_wait(barrier kind, bool predicate, const char *file, int line) {
    thread *me = running();
    me->state = state::at_barrier;
    me->kind = kind;
    me->predicate = predicate;
    me->file = file;
    me->line = line;
    n_at_barrier++;
    void *meeting = races_arrive(MAX_FIBERS / 32, 0);
    complete_barrier();
    give_way();
    races_go_on(meeting);
    return me->result;
}

/* ---- operations of a warp ---- */

/* Completes the operation that these lanes wait for, if all that it needs are there. */
static void complete_op(unsigned warp, uint32_t mask, const warp_op *op) {
    const uint32_t needed = mask & live[warp];
    if (needed == 0 || (in_op[warp] & needed) != needed) return;
    thread *who[32], *first = nullptr;
    lane lanes[32] = {};
    unsigned count = 0;
    for (unsigned i = 0; i < 32; i++) {
        if (!(needed >> i & 1)) continue;
        thread *t = &threads[32 * warp + i];
        if (t->mask != mask) return; /* that lane must come out of what it waits for first */
        if (!first) first = t;
        if (t->op != op) {
            char text[256];
            snprintf(text, sizeof text, "divergent warp: it waits in %s, another lane of mask 0x%08x in %s",
                     t->op->name, mask, t->op == first->op ? op->name : first->op->name);
            die(HR_SHIM_DIVERGENT_WARP, t, text);
        }
        who[count++] = t;
        lanes[i] = t->io;
    }
    if (op->whole && needed != 0xffffffffu) {
        char text[256];
        snprintf(text, sizeof text, "%s needs all 32 lanes; here are 0x%08x", op->name, needed);
        die(HR_SHIM_DIVERGENT_WARP, first, text);
    }
    op->run(lanes, needed);
    in_op[warp] &= ~needed;
    stats.warp_ops++;
    if (op->orders_memory) races_met(warp, mask);
    release(who, count);
}

void warp_wait(const warp_op &op, uint32_t mask, const void *in, void *out) {
    thread *me = running();
    if (!(mask >> me->lane & 1)) {
        char text[256];
        snprintf(text, sizeof text, "%s with mask 0x%08x, which lacks its own lane %u", op.name, mask, me->lane);
        die(HR_SHIM_MISUSE, me, text);
    }
    me->state = state::in_warp_op;
    me->op = &op;
    me->mask = mask;
    me->io = {in, out};
    in_op[me->warp] |= 1u << me->lane;
    void *meeting = op.orders_memory ? races_arrive(me->warp, mask) : nullptr;
    complete_op(me->warp, mask, &op);
    give_way();
    if (op.orders_memory) races_go_on(meeting);
}

/* ---- the life of a block ---- */

static void finish_copies() {
    void *to;
    const void *from;
    uint32_t bytes;
    copy_commit();
    while (copy_pop(0, &to, &from, &bytes)) {
        uint8_t *target = static_cast<uint8_t *>(to);
        for (uint32_t i = 0; i < 16; i++) target[i] = i < bytes ? static_cast<const uint8_t *>(from)[i] : 0;
    }
}

static void thread_main() {
    fiber_started();
    races_start();
    block_body();
    thread *me = running();
    finish_copies();
    races_end();
    me->state = state::left;
    n_live--;
    live[me->warp] &= ~(1u << me->lane);
    complete_barrier();
    for (uint32_t waiting = in_op[me->warp]; waiting; waiting &= waiting - 1) {
        const thread *t = &threads[32 * me->warp + (unsigned)__builtin_ctz(waiting)];
        if (t->state == state::in_warp_op) complete_op(me->warp, t->mask, t->op);
    }
    thread *next = next_ready();
    if (!next && n_live) deadlock();
    self = next;
    fiber_switch(&me->context, next ? &next->context : &host, true);
    __builtin_trap();
}

void run_block(void (*body)()) {
    thread *who[MAX_FIBERS];
    block_body = body;
    n_live = n_threads;
    n_at_barrier = queue_head = queue_count = 0;
    memset(live, 0, sizeof live);
    memset(in_op, 0, sizeof in_op);
    fibers_enter(&host, n_threads);
    for (unsigned i = 0; i < n_threads; i++) {
        thread *t = who[i] = &threads[i];
        t->linear = i;
        t->lane = i % 32;
        t->warp = i / 32;
        t->index.x = i % block.dim.x;
        t->index.y = i / block.dim.x % block.dim.y;
        t->index.z = i / (block.dim.x * block.dim.y);
        t->n_copies = t->group = 0;
        live[t->warp] |= 1u << t->lane;
        fiber_prepare(&t->context, i, thread_main);
    }
    races_block();
    races_launch();
    release(who, n_threads);
    stats.blocks++;
    thread *first = next_ready();
    self = first;
    fiber_switch(&host, &first->context, false);
    self = nullptr;
}

} // namespace hr_shim
