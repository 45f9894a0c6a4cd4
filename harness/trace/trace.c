#include "harness/trace/trace.h"

#include <string.h>

enum { CALLER_TID = 1, FACTS_MOST = 32 };

/* ---- which passes are kept ---- */

/* Drops the records before `first`, and the jobs of passes before its own. */
static void keep_from(hr_trace *t, size_t first) {
    t->records += first, t->n_records -= first;
    t->ops_dropped += first;
    if (!t->n_records) return;
    const uint32_t pass = t->records[0].pass;
    for (size_t i = 0; i < t->n_spans; i++) {
        const uint32_t of = t->spans[i].pass;
        t->jobs_dropped += of >= t->first_pass && of < pass;
    }
    t->first_pass = pass;
}

/* Index of the first record of the pass behind that of record i; n_records when there is none. */
static size_t next_pass(const hr_trace *t, size_t i) {
    const uint32_t pass = t->records[i].pass;
    while (i < t->n_records && t->records[i].pass == pass) i++;
    return i;
}

/* A pass begins with its embedding: of one that does not, the beginning is lost. The only one stays as it is. */
static void drop_cut_pass(hr_trace *t) {
    if (!t->n_records) return;
    const size_t next = t->records[0].op == HR_OP_EMBED ? 0 : next_pass(t, 0);
    keep_from(t, next < t->n_records ? next : 0);
}

/* Where jobs were overwritten, passes of which some are lost go too. */
static void drop_passes_without_jobs(hr_trace *t) {
    uint32_t oldest = UINT32_MAX;
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].pass < oldest) oldest = t->spans[i].pass;
    size_t first = 0;
    while (first < t->n_records && t->records[first].pass <= oldest) first = next_pass(t, first);
    if (first < t->n_records) keep_from(t, first);
}

void hr_trace_init(hr_trace *t, const hr_op_record *records, size_t n_records, size_t ops_lost,
                   const hr_thread_span *spans, size_t n_spans, size_t jobs_lost) {
    *t = (hr_trace){.records = records,
                    .n_records = n_records,
                    .spans = spans,
                    .n_spans = n_spans,
                    .ops_dropped = ops_lost,
                    .jobs_dropped = jobs_lost,
                    .threads = 1};
    if (n_records) t->start_ns = records[0].start_ns, t->end_ns = records[n_records - 1].end_ns;
    if (ops_lost) drop_cut_pass(t);
    if (jobs_lost && n_spans) drop_passes_without_jobs(t);
}

/* ---- events ---- */

typedef struct writer {
    hr_chrome chrome;
    uint64_t events;
} writer;

typedef struct work {
    uint64_t bytes, flops;
} work;

static work sum_of(const hr_op_record *ops, size_t n) {
    work sum = {0};
    for (size_t i = 0; i < n; i++) sum.bytes += ops[i].bytes, sum.flops += ops[i].flops;
    return sum;
}

static void put_event(writer *w, const char *category, const char *name, long tid, uint64_t start, uint64_t end,
                      const hr_chrome_arg *args, size_t n) {
    hr_chrome_event(&w->chrome, category, name, tid, start, end, args, n);
    w->events++;
}

/* The first argument is the layer; what stands outside the layers has none. */
static void put_layered(writer *w, const char *category, const char *name, long tid, uint64_t start, uint64_t end,
                        const hr_chrome_arg *args, size_t n, int layer) {
    const size_t skipped = layer < 0 ? 1 : 0;
    put_event(w, category, name, tid, start, end, args + skipped, n - skipped);
}

static void put_op(writer *w, const hr_op_record *r) {
    const hr_chrome_arg args[] = {{.key = "layer", .number = (uint64_t)r->layer},
                                  {.key = "bytes", .number = r->bytes},
                                  {.key = "flops", .number = r->flops},
                                  {.key = "tokens", .number = r->tokens},
                                  {.key = "kernel", .text = r->kernel ? r->kernel : ""}};
    put_layered(w, "op", hr_op_range_name(r->op, r->phase), CALLER_TID, r->start_ns, r->end_ns, args, 5, r->layer);
}

static void put_layer(writer *w, const hr_op_record *ops, size_t n) {
    char name[24];
    const work sum = sum_of(ops, n);
    const hr_chrome_arg args[] = {{.key = "layer", .number = (uint64_t)ops[0].layer},
                                  {.key = "bytes", .number = sum.bytes},
                                  {.key = "flops", .number = sum.flops},
                                  {.key = "tokens", .number = ops[0].tokens}};
    snprintf(name, sizeof name, "layer %d", ops[0].layer);
    put_event(w, "layer", name, CALLER_TID, ops[0].start_ns, ops[n - 1].end_ns, args, 4);
}

/* Parents stand before what they hold: readers take them in this order where both begin at the same time. */
static void put_pass(writer *w, const hr_op_record *ops, size_t n) {
    const work sum = sum_of(ops, n);
    const hr_chrome_arg args[] = {{.key = "tokens", .number = ops[0].tokens},
                                  {.key = "bytes", .number = sum.bytes},
                                  {.key = "flops", .number = sum.flops}};
    put_event(w, "phase", hr_phase_names[ops[0].phase], CALLER_TID, ops[0].start_ns, ops[n - 1].end_ns, args, 3);
    for (size_t i = 0; i < n; i++) {
        size_t end = i;
        while (end < n && ops[end].layer == ops[i].layer) end++;
        if (ops[i].layer >= 0) put_layer(w, ops + i, end - i);
        for (; i < end; i++) put_op(w, ops + i);
        i--;
    }
}

static void put_records(writer *w, const hr_trace *t) {
    for (size_t i = 0; i < t->n_records;) {
        const size_t end = next_pass(t, i);
        size_t ops = i; /* without what samples from it */
        while (ops < end && t->records[ops].op != HR_OP_SAMPLE) ops++;
        if (ops > i) put_pass(w, t->records + i, ops - i);
        for (i = ops; i < end; i++) put_op(w, t->records + i);
    }
}

static void put_spans(writer *w, const hr_trace *t) {
    for (size_t i = 0; i < t->n_spans; i++) {
        const hr_thread_span *s = &t->spans[i];
        const hr_chrome_arg layer = {.key = "layer", .number = (uint64_t)s->layer};
        if (s->pass >= t->first_pass)
            put_layered(w, "worker", hr_op_range_name((hr_op)s->op, (hr_phase)s->phase), CALLER_TID + s->thread,
                        s->start_ns, s->end_ns, &layer, 1, s->layer);
    }
}

static void put_threads(writer *w, const hr_trace *t) {
    char name[40];
    hr_chrome_thread(&w->chrome, CALLER_TID, "thread 0 (calls the engine)");
    for (unsigned i = 1; i < t->threads; i++) {
        snprintf(name, sizeof name, "thread %u", i);
        hr_chrome_thread(&w->chrome, CALLER_TID + (long)i, name);
    }
}

uint64_t hr_trace_write(const hr_trace *t, FILE *stream) {
    enum { PID = 1 }; /* one process: its number would only differ from run to run */
    hr_chrome_arg other[FACTS_MOST + 2] = {{.key = "ops_dropped", .number = t->ops_dropped},
                                           {.key = "jobs_dropped", .number = t->jobs_dropped}};
    const size_t n_facts = t->n_facts < FACTS_MOST ? t->n_facts : FACTS_MOST;
    writer w = {.events = 0};
    hr_chrome_begin(&w.chrome, stream, PID, t->start_ns, t->process ? t->process : "headroom");
    put_threads(&w, t);
    put_event(&w, "cell", "request", CALLER_TID, t->start_ns, t->end_ns, NULL, 0);
    put_records(&w, t);
    put_spans(&w, t);
    for (size_t i = 0; i < n_facts; i++) other[2 + i] = t->facts[i];
    hr_chrome_end(&w.chrome, other, 2 + n_facts);
    return w.events;
}

/* ---- size ---- */

static ssize_t count(void *context, const char *bytes, size_t n) {
    (void)bytes;
    *(uint64_t *)context += n;
    return (ssize_t)n;
}

hr_status hr_trace_bytes(const hr_trace *t, uint64_t *out) {
    *out = 0;
    FILE *stream = fopencookie(out, "wb", (cookie_io_functions_t){.write = count});
    if (!stream) HR_FAIL(HR_ERR_MEMORY, "out of memory while the size of the trace was counted");
    hr_trace_write(t, stream);
    fclose(stream);
    return HR_OK;
}

hr_status hr_trace_fit(hr_trace *t, uint64_t max_bytes) {
    uint64_t bytes;
    for (;;) {
        HR_TRY(hr_trace_bytes(t, &bytes));
        if (bytes <= max_bytes || !t->n_records) return HR_OK;
        /* Events are alike: as large a share of them as the file is too large, and at least one pass. */
        const size_t too_many = (size_t)((double)t->n_records * (1 - (double)max_bytes / (double)bytes));
        size_t first = 0, next = next_pass(t, 0);
        while (next < t->n_records && (first == 0 || first < too_many)) first = next, next = next_pass(t, next);
        if (first == 0) return HR_OK;
        keep_from(t, first);
    }
}
