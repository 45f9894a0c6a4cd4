/* The state probes. Everything that is measured here is short (a few milliseconds) and repeated, and the best is kept: a
 * virtual machine loses time slices to its neighbours, and a peak must not be lower than what a kernel measured beside it
 * reaches. */
#include "harness/roof/roofs_state.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* A peak is what plain reading keeps up for LONG_NS, in the best of several such reads. Reads of under a millisecond rank
 * the ways to read, but are no peak: against the best such moment of the probes beside it, plain reading of the weights of
 * a model (2.5 GB), time after time, reached 67 to 82 % on a virtual machine with its cores on two dies (Zen 5), where
 * neighbours take their part of each die's memory, and 90 to 94 % with both on one. Runs of 8 ms it never exceeded. */
enum { RANK_NS = 16000000, LONG_NS = 8000000, READ_NS = 48000000, MIN_LONG = 4, FLOP_SHOTS = 6, CLOCK_SHOTS = 3 };
static const size_t MIB = (size_t)1 << 20;

/* ---- jobs of the gang -------------------------------------------------------------------------------------------- */

typedef struct read_job {
    void *const *buffers;
    const hr_reader *reader;
    size_t offset, bytes;
    long passes;
    _Atomic uint64_t sum; /* keeps the result alive */
} read_job;

static void do_read(void *context, unsigned thread) {
    read_job *job = context;
    const char *p = (const char *)job->buffers[thread] + job->offset;
    uint64_t sum = 0;
    for (long i = 0; i < job->passes; i++) sum ^= job->reader->kernels->read(p, job->bytes, job->reader->pattern);
    atomic_fetch_xor_explicit(&job->sum, sum, memory_order_relaxed);
}

double hr_roofs_read(hr_roofs *r, unsigned threads, const hr_reader *reader, size_t offset, size_t bytes, long passes) {
    read_job job = {.buffers = r->buffers, .reader = reader, .offset = offset, .bytes = bytes, .passes = passes};
    uint64_t ns = hr_gang_run(r->gang, threads, do_read, &job);
    return (double)bytes * (double)passes * threads / (double)ns;
}

double hr_roofs_read_next(hr_roofs *r, unsigned threads, const hr_reader *reader, size_t bytes) {
    if (r->cursor + bytes > r->bytes) r->cursor = 0;
    double gb_s = hr_roofs_read(r, threads, reader, r->cursor, bytes, 1);
    r->cursor += bytes;
    return gb_s;
}

typedef struct compute_call {
    const hr_roof_form *form;
    long loops;
    _Atomic uint64_t ops;
} compute_call;

static void do_compute(void *context, unsigned thread) {
    compute_call *call = context;
    (void)thread;
    atomic_fetch_add_explicit(&call->ops, (uint64_t)call->form->run(call->loops), memory_order_relaxed);
}

double hr_roofs_compute(hr_roofs *r, unsigned threads, const hr_filler *filler) {
    compute_call call = {.form = filler->form, .loops = filler->loops};
    uint64_t ns = hr_gang_run(r->gang, threads, do_compute, &call);
    return (double)atomic_load(&call.ops) / (double)ns;
}

/* Two threads take turns at one cache line. The lower quartile of short batches: a batch
 * in which one of them lost its CPU is long. */
enum { BATCH = 500, BATCHES = 44, HANDOFF_NS = 12000000, SPINS_PER_LOOK = 4096 };
typedef struct handoff_job {
    char apart0[128];
    _Atomic unsigned turn;
    char apart1[128];
    _Atomic bool stop;
    uint64_t deadline;
    double batch_ns[BATCHES]; /* per handoff */
    unsigned n;
} handoff_job;

static bool wait_turn(handoff_job *job, unsigned thread) {
    for (unsigned spins = 0; (atomic_load_explicit(&job->turn, memory_order_acquire) & 1) != thread;)
        if (++spins % SPINS_PER_LOOK == 0) {
            if (hr_now_ns() > job->deadline) atomic_store_explicit(&job->stop, true, memory_order_relaxed);
            if (atomic_load_explicit(&job->stop, memory_order_relaxed)) return false;
        }
    return true;
}

static void do_handoff(void *context, unsigned thread) {
    handoff_job *job = context;
    uint64_t start = hr_now_ns();
    if (thread == 0) job->deadline = start + HANDOFF_NS;
    for (unsigned batch = 0; batch < BATCHES; batch++) {
        for (unsigned i = 0; i < BATCH / 2; i++) {
            if (!wait_turn(job, thread)) return;
            atomic_fetch_add_explicit(&job->turn, 1, memory_order_release);
        }
        if (thread) continue;
        uint64_t now = hr_now_ns();
        job->batch_ns[job->n++] = (double)(now - start) / BATCH;
        start = now;
        if (now > job->deadline) atomic_store_explicit(&job->stop, true, memory_order_relaxed);
    }
}

static double lower_quartile(double *v, unsigned n) { /* sorts by insertion: n is small */
    for (unsigned i = 1; i < n; i++)
        for (unsigned j = i; j && v[j] < v[j - 1]; j--) {
            double swap = v[j];
            v[j] = v[j - 1], v[j - 1] = swap;
        }
    return n ? v[(n - 1) / 4] : NAN;
}

double hr_roofs_handoff(hr_roofs *r) {
    if (r->workers < 2) return NAN;
    handoff_job job = {.deadline = hr_now_ns() + 4 * (uint64_t)HANDOFF_NS};
    hr_gang_run(r->gang, 2, do_handoff, &job);
    return lower_quartile(job.batch_ns, job.n);
}

/* A chain of dependent multiplications: 3 cycles each on every x86-64 core of the last fifteen years; elsewhere 1-cycle
 * additions. Nothing can overlap, so the time counts cycles. */
enum { CHAIN = 100, CHAIN_LOOPS = 3000 };
#if defined(__x86_64__)
enum { CHAIN_CYCLES = 3 };
#define CHAIN_ASM "imul %0,%0\n\t"
#elif defined(__aarch64__)
enum { CHAIN_CYCLES = 1 };
#define CHAIN_ASM "add %0,%0,%0\n\t"
#else
enum { CHAIN_CYCLES = 0 };
#define CHAIN_ASM ""
#endif

typedef struct clock_job {
    _Atomic uint64_t slowest_ns; /* of each thread's best */
} clock_job;

static void do_clock(void *context, unsigned thread) {
    clock_job *job = context;
    (void)thread;
    uint64_t best = UINT64_MAX, x = 3;
    for (int shot = 0; shot < CLOCK_SHOTS; shot++) {
        uint64_t start = hr_now_ns();
        for (int i = 0; i < CHAIN_LOOPS; i++) __asm__ volatile(".rept 100\n\t" CHAIN_ASM ".endr" : "+r"(x));
        uint64_t ns = hr_now_ns() - start;
        if (ns < best) best = ns;
    }
    uint64_t old = atomic_load(&job->slowest_ns);
    while (best > old && !atomic_compare_exchange_weak(&job->slowest_ns, &old, best)) {
    }
}

double hr_roofs_clock(hr_roofs *r) {
    if (CHAIN_CYCLES == 0) return NAN;
    clock_job job = {0};
    hr_gang_run(r->gang, r->threads, do_clock, &job);
    return (double)CHAIN_CYCLES * CHAIN * CHAIN_LOOPS / (double)job.slowest_ns;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

typedef struct fill_job {
    void *const *buffers;
    size_t bytes;
} fill_job;

/* By the thread that will read it, so that it lies near; no two pages alike, so that none is merged with another. */
static void do_fill(void *context, unsigned thread) {
    const fill_job *job = context;
    uint64_t *p = job->buffers[thread], x = 0x9e3779b97f4a7c15u * (thread + 1);
    for (size_t i = 0; i < job->bytes / 8; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        p[i] = x;
    }
}

static bool usable(const hr_roof_kernels *k) {
    return k->isa <= hr_isa_best();
}

static const hr_roof_kernels *const all_kernels[] = {
#if defined(__x86_64__)
    &hr_roof_avx512, &hr_roof_avxvnni, &hr_roof_avx2,
#endif
    &hr_roof_generic};
enum { N_KERNELS = sizeof all_kernels / sizeof *all_kernels };

/* Wider loads than a file's are never slower, but 256 bits may be as good as 512 and easier on the core: the two best
 * ISAs are tried. */
static void list_ways(hr_roofs *r) {
    unsigned isas = 0;
    for (int k = 0; k < N_KERNELS; k++) {
        if (!usable(all_kernels[k])) continue;
        if (all_kernels[k]->n_patterns && isas++ < 2)
            for (int p = 0; p < all_kernels[k]->n_patterns && r->n_readers < HR_MAX_READERS; p++)
                r->readers[r->n_readers++] = (hr_reader){all_kernels[k], p, 0};
        for (int u = 0; u < HR_UNIT_COUNT; u++)
            for (const hr_roof_form *f = all_kernels[k]->forms[u]; f && f->name; f++)
                if (!(f->needs & ~hr_cpu_features()) && r->n_fillers[u] < HR_MAX_FORMS)
                    r->fillers[u][r->n_fillers[u]++] = (hr_filler){f, 1000, 0};
    }
}

static void sort_fillers(hr_filler *v, unsigned n) {
    for (unsigned i = 1; i < n; i++)
        for (unsigned j = i; j && v[j].gflop_s > v[j - 1].gflop_s; j--) {
            hr_filler swap = v[j];
            v[j] = v[j - 1], v[j - 1] = swap;
        }
}

/* Rounds go over all ways, so that a change of the machine's state meets all of them. */
static void try_fillers(hr_roofs *r, int u) {
    for (int round = 0; round < 4; round++)
        for (unsigned i = 0; i < r->n_fillers[u]; i++) {
            hr_filler *f = &r->fillers[u][i];
            double rate = hr_roofs_compute(r, r->threads, f);
            if (round == 0) { /* only to learn how many loops make a millisecond */
                double ops_a_loop = f->form->run(1);
                f->loops = (long)fmax(1000, rate / r->threads * 1e6 / ops_a_loop);
            } else if (rate > f->gflop_s)
                f->gflop_s = rate;
        }
    sort_fillers(r->fillers[u], r->n_fillers[u]);
}

/* The HR_READ_BEST fastest readers so far, best first. */
static void rank_readers(hr_roofs *r) {
    hr_reader *best[HR_READ_BEST];
    for (unsigned b = 0; b < HR_READ_BEST; b++) {
        best[b] = NULL;
        for (unsigned i = 0; i < r->n_readers; i++) {
            hr_reader *c = &r->readers[i];
            bool taken = false;
            for (unsigned j = 0; j < b; j++) taken |= best[j] == c;
            if (!taken && (!best[b] || c->gb_s > best[b]->gb_s)) best[b] = c;
        }
        if (best[b]) r->dram[b] = best[b];
    }
}

static double try_reader(hr_roofs *r, hr_reader *reader, size_t bytes) {
    double rate = hr_roofs_read_next(r, r->threads, reader, bytes);
    if (rate > reader->gb_s) reader->gb_s = rate;
    return rate;
}

static void try_readers(hr_roofs *r) {
    size_t piece = r->shot < 8 * MIB ? r->shot : 8 * MIB;
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < r->n_readers; i++) try_reader(r, &r->readers[i], piece);
    rank_readers(r);
}

/* Four times the reported last-level cache, at least 256 MiB a thread, in all at most an eighth of the memory. */
static size_t buffer_bytes(const hr_roofs *r) {
    uint64_t memory = hr_memory_total(), limit = hr_cgroup_memory("");
    if (limit < memory || !memory) memory = limit;
    uint64_t want = 4 * r->cpus.cache[2] / r->threads, most = memory / 8 / r->threads;
    if (want < 256 * MIB) want = 256 * MIB;
    if (want > most) want = most;
    return want < 4 * MIB ? 4 * MIB : want / (2 * MIB) * (2 * MIB);
}

static hr_status make_buffers(hr_roofs *r) {
    r->bytes = buffer_bytes(r);
    r->buffers = hr_calloc(r->threads, sizeof *r->buffers);
    for (unsigned i = 0; r->buffers && i < r->threads; i++)
        if (!(r->buffers[i] = hr_pages_alloc(r->bytes, true)))
            HR_FAIL(HR_ERR_MEMORY, "probes: no memory for %u buffers of %zu MiB; use fewer threads with -t", r->threads,
                    r->bytes / MIB);
    if (!r->buffers) HR_FAIL(HR_ERR_MEMORY, "probes: no memory for the list of %u buffers", r->threads);
    for (unsigned i = 0; i < r->threads; i++) madvise(r->buffers[i], r->bytes, MADV_DONTFORK); /* no part of a worker */
    fill_job job = {r->buffers, r->bytes};
    hr_gang_run(r->gang, r->threads, do_fill, &job);
    /* not a round number: parts of it that are read side by side then lie in different DRAM banks */
    r->shot = r->bytes / 8 < 30 * MIB ? r->bytes / 8 / 4096 * 4096 : 30 * MIB + 4 * 4096;
    return HR_OK;
}

static hr_status set_up(hr_roofs *r, unsigned threads) {
    HR_TRY(hr_cpus_get(&r->cpus));
    r->threads = threads ? threads : r->cpus.cores;
    if (r->threads > r->cpus.n) r->threads = r->cpus.n;
    r->workers = r->threads == 1 && r->cpus.n > 1 ? 2 : r->threads;
    HR_TRY(hr_gang_create(r->cpus.ids, r->workers, &r->gang));
    HR_TRY(make_buffers(r));
    list_ways(r);
    for (int u = 0; u < HR_UNIT_COUNT; u++) try_fillers(r, u);
    try_readers(r);
    return HR_OK;
}

hr_status hr_roofs_create(unsigned threads, hr_roofs **out) {
    hr_roofs *r = hr_calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "probes: out of memory");
    hr_status status = set_up(r, threads);
    if (status != HR_OK)
        hr_roofs_destroy(r);
    else
        *out = r;
    return status;
}

void hr_roofs_destroy(hr_roofs *r) {
    if (!r) return;
    hr_gang_destroy(r->gang);
    for (unsigned i = 0; r->buffers && i < r->threads; i++) hr_pages_free(r->buffers[i], r->bytes);
    hr_free(r->buffers);
    hr_cpus_fini(&r->cpus);
    hr_free(r);
}

void hr_roof_pattern_name(const hr_roof_pattern *p, char *out, size_t n) {
    char ahead[48] = "no prefetch";
    if (p->ahead) snprintf(ahead, sizeof ahead, "prefetch%s %u", p->keep ? "t0" : "nta", p->ahead);
    snprintf(out, n, "%u stream%s%s, %s, %u-bit", p->streams, p->streams == 1 ? "" : "s",
             p->near ? " in neighbouring pages" : "", ahead, p->bits);
}

unsigned hr_roofs_threads(const hr_roofs *r) {
    return r->threads;
}

void hr_roofs_stop_when(hr_roofs *r, bool (*stop)(void)) {
    r->stop = stop;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

double hr_psi_some_us(void) {
    FILE *f = fopen("/proc/pressure/cpu", "r");
    if (!f) return NAN;
    double total = NAN;
    if (fscanf(f, "some avg10=%*f avg60=%*f avg300=%*f total=%lf", &total) != 1) total = NAN;
    fclose(f);
    return total;
}

/* Two of three short reads go to the ways that were best so far, the third to the others in turn: what is best changes with
 * the machine's state, and the first trial is short. Returns the best rate. */
static double rank_now(hr_roofs *r) {
    double best = 0;
    const uint64_t start = hr_now_ns();
    for (unsigned shot = 0; shot < 3 || hr_now_ns() - start < RANK_NS; shot++) {
        bool explore = shot % 3 == 2;
        hr_reader *reader = explore ? &r->readers[r->explored++ % r->n_readers] : r->dram[shot / 3 % HR_READ_BEST];
        best = fmax(best, try_reader(r, reader, r->shot));
    }
    rank_readers(r);
    return best;
}

static double dram_now(hr_roofs *r) {
    const double wanted = rank_now(r) * LONG_NS / r->threads; /* bytes a thread; GB/s x ns */
    size_t bytes = wanted < (double)r->bytes ? (size_t)wanted / 4096 * 4096 : r->bytes;
    if (bytes < r->shot) bytes = r->shot;
    double best = 0;
    const uint64_t start = hr_now_ns();
    for (unsigned shot = 0; shot < MIN_LONG || hr_now_ns() - start < READ_NS; shot++)
        best = fmax(best, hr_roofs_read_next(r, r->threads, r->dram[shot % HR_READ_BEST], bytes));
    return best;
}

hr_status hr_roofs_state(hr_roofs *r, unsigned units, hr_state *out) {
    out->psi_some_us = hr_psi_some_us();
    out->read_gb_s = dram_now(r);
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        out->gflop_s[u] = NAN;
        if (!(units & (1u << u)) || !r->n_fillers[u]) continue;
        double best = 0;
        unsigned forms = r->n_fillers[u] < 2 ? 1 : 2;
        for (unsigned shot = 0; shot < FLOP_SHOTS; shot++)
            best = fmax(best, hr_roofs_compute(r, r->threads, &r->fillers[u][shot % forms]));
        out->gflop_s[u] = best;
    }
    out->handoff_ns = hr_roofs_handoff(r);
    out->clock_ghz = hr_roofs_clock(r);
    return HR_OK;
}
