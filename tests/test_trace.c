/* Traces: of records made by hand, where each number is known, and of requests on a small model, where each event must
 * lie in its parent. */
#include "tests/hr_test.h"

#include "harness/trace/trace.h"
#include "harness/trace/trace_request.h"

#include <jansson.h>

enum { LAYERS = 4, MB = 1000000 };
static const char *const SPEC = "synth:tiny:ctx=1024";

#define OK(call)                                                                        \
    do {                                                                                \
        if ((call) != HR_OK) fail_msg("expected ok of %s, got: %s", #call, hr_error()); \
    } while (0)

/* ---- a trace read back ---- */

static json_t *read_back(const hr_trace *trace, uint64_t *events) {
    char *text;
    size_t bytes;
    uint64_t counted;
    json_error_t error;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    *events = hr_trace_write(trace, stream);
    assert_int_equal(fclose(stream), 0);
    OK(hr_trace_bytes(trace, &counted));
    assert_int_equal(counted, bytes);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("line %d: %s", error.line, error.text);
    free(text);
    return root;
}

typedef struct event {
    const char *category, *name;
    int tid;
    int64_t start, end; /* ns */
    const json_t *args;
} event;

typedef struct events {
    json_t *root;
    event *at; /* [n] those with a duration, in the order of the file */
    size_t n;
} events;

static events events_of(const hr_trace *trace) {
    uint64_t said;
    events e = {.root = read_back(trace, &said)};
    const json_t *list = json_object_get(e.root, "traceEvents");
    size_t i;
    json_t *one;
    e.at = calloc(json_array_size(list), sizeof *e.at);
    assert_non_null(e.at);
    json_array_foreach((json_t *)list, i, one) {
        if (strcmp(json_string_value(json_object_get(one, "ph")), "X") != 0) continue;
        const int64_t start = llround(json_number_value(json_object_get(one, "ts")) * 1000);
        e.at[e.n++] = (event){.category = json_string_value(json_object_get(one, "cat")),
                              .name = json_string_value(json_object_get(one, "name")),
                              .tid = (int)json_integer_value(json_object_get(one, "tid")),
                              .start = start,
                              .end = start + llround(json_number_value(json_object_get(one, "dur")) * 1000),
                              .args = json_object_get(one, "args")};
    }
    assert_int_equal(e.n, said);
    return e;
}

static void events_free(events *e) {
    free(e->at);
    json_decref(e->root);
}

static bool is(const event *e, const char *category) {
    return !strcmp(e->category, category);
}

static size_t count(const events *e, const char *category) {
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++) n += is(&e->at[i], category);
    return n;
}

static size_t count_named(const events *e, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++) n += !strcmp(e->at[i].name, name);
    return n;
}

static int64_t arg(const event *e, const char *key) {
    const json_t *value = json_object_get(e->args, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* The last event before i in the file whose category is one of the two and that holds event i. */
static const event *holder(const events *e, size_t i, const char *category, const char *or_else) {
    for (size_t k = i; k-- > 0;) {
        const event *p = &e->at[k];
        if (!is(p, category) && !is(p, or_else)) continue;
        if (p->start <= e->at[i].start && e->at[i].end <= p->end) return p;
    }
    return NULL;
}

static void assert_nested(const events *e) {
    for (size_t i = 0; i < e->n; i++) {
        const event *x = &e->at[i], *in = x;
        const bool sample = !strncmp(x->name, "sample:", 7);
        if (is(x, "phase") || sample) in = holder(e, i, "cell", "cell");
        if (is(x, "layer")) in = holder(e, i, "phase", "phase");
        if (is(x, "op") && !sample) {
            const char *parent = arg(x, "layer") >= 0 ? "layer" : "phase";
            in = holder(e, i, parent, parent);
            if (in && is(in, "layer")) assert_int_equal(arg(in, "layer"), arg(x, "layer"));
        }
        if (is(x, "worker")) {
            in = holder(e, i, "op", "op");
            if (in) assert_string_equal(in->name, x->name);
            assert_true(x->tid > 1);
        } else {
            assert_int_equal(x->tid, 1);
        }
        if (!in)
            fail_msg("event %zu, %s '%s' at %lld..%lld ns, lies in no parent", i, x->category, x->name,
                     (long long)x->start, (long long)x->end);
        assert_true(x->start <= x->end);
    }
    /* on the calling thread nothing overlaps what is not its parent: a sibling begins when the one before has ended */
    static const char *const levels[] = {"phase", "layer", "op"};
    for (size_t k = 0; k < 3; k++) {
        int64_t end = 0;
        for (size_t i = 0; i < e->n; i++) {
            if (!is(&e->at[i], levels[k])) continue;
            assert_true(e->at[i].start >= end);
            end = e->at[i].end;
        }
    }
}

/* ---- requests on a model ---- */

typedef struct opened {
    hr_model *model;
    hr_engine *engine;
    hr_trace_request request;
} opened;

static opened open_request(unsigned threads, uint32_t isl, uint32_t osl, uint32_t seqs, uint32_t ubatch) {
    opened o = {0};
    hr_engine_config c = hr_engine_config_default();
    OK(hr_model_load(SPEC, &(hr_load_options){.quant = HR_QUANT_BF16, .threads = 1}, &o.model));
    c.threads = threads, c.max_seqs = seqs, c.ctx = isl + osl, c.ubatch = ubatch, c.pin = false;
    OK(hr_engine_create(o.model, &c, &o.engine));
    o.request = (hr_trace_request){.engine = o.engine,
                                   .vocab = hr_model_get_info(o.model)->vocab,
                                   .isl = isl,
                                   .osl = osl,
                                   .seqs = seqs,
                                   .batch = c.batch,
                                   .ubatch = c.ubatch};
    return o;
}

static void close_request(opened *o) {
    hr_engine_destroy(o->engine);
    hr_model_destroy(o->model);
}

static hr_trace run(const opened *o, uint64_t max_bytes) {
    hr_trace trace;
    bool whole;
    OK(hr_trace_request_run(&o->request, max_bytes, &trace, &whole));
    assert_true(whole);
    return trace;
}

static void assert_products_have_work(const events *e) {
    static const char *const products[] = {"qkv:", "out:", "gate_up:", "down:", "head:"};
    for (size_t i = 0; i < e->n; i++)
        for (size_t k = 0; is(&e->at[i], "op") && k < 5; k++)
            if (!strncmp(e->at[i].name, products[k], strlen(products[k]))) {
                assert_true(arg(&e->at[i], "bytes") > 0);
                assert_true(arg(&e->at[i], "flops") > 0);
                assert_non_null(json_object_get(e->at[i].args, "kernel"));
            }
}

/* One prefill and osl - 1 steps; ops of a pass with all fusions: embed, five in each layer, norm, head, and a sample. */
static void a_request_is_all_there(void **state) {
    (void)state;
    enum { ISL = 48, OSL = 6, OPS = 1 + 5 * LAYERS + 2 + 1 };
    opened o = open_request(1, ISL, OSL, 1, 512);
    hr_trace trace = run(&o, 190 * MB);
    events e = events_of(&trace);
    assert_int_equal(count(&e, "cell"), 1);
    assert_int_equal(count(&e, "phase"), OSL);
    assert_int_equal(count_named(&e, "prefill"), 1);
    assert_int_equal(count_named(&e, "decode"), OSL - 1);
    assert_int_equal(count(&e, "layer"), LAYERS * OSL);
    assert_int_equal(count_named(&e, "layer 3"), OSL);
    assert_int_equal(count(&e, "op"), OPS * OSL);
    assert_int_equal(count_named(&e, "down:decode"), LAYERS * (OSL - 1));
    assert_int_equal(count_named(&e, "sample:prefill"), 1);
    assert_int_equal(count_named(&e, "sample:decode"), OSL - 1);
    assert_int_equal(count(&e, "worker"), 0);
    assert_string_equal(e.at[0].name, "request");
    assert_int_equal(arg(&e.at[1], "tokens"), ISL);
    assert_int_equal(trace.ops_dropped + trace.jobs_dropped, 0);
    assert_nested(&e);
    assert_products_have_work(&e);
    events_free(&e);
    close_request(&o);
}

/* Work of a phase and of a layer is the sum of its ops. */
static void work_adds_up(void **state) {
    (void)state;
    opened o = open_request(1, 20, 3, 1, 512);
    hr_trace trace = run(&o, 190 * MB);
    events e = events_of(&trace);
    for (size_t i = 0; i < e.n; i++) {
        const bool layer = is(&e.at[i], "layer");
        if (!layer && !is(&e.at[i], "phase")) continue;
        int64_t bytes = 0, flops = 0;
        for (size_t k = i + 1; k < e.n && e.at[k].start < e.at[i].end; k++)
            if (is(&e.at[k], "op")) bytes += arg(&e.at[k], "bytes"), flops += arg(&e.at[k], "flops");
        assert_int_equal(arg(&e.at[i], "bytes"), bytes);
        assert_int_equal(arg(&e.at[i], "flops"), flops);
    }
    events_free(&e);
    close_request(&o);
}

static void jobs_of_other_threads_lie_in_their_ops(void **state) {
    (void)state;
    enum { TRIES = 200 };
    for (unsigned threads = 2; threads <= 3; threads++) {
        opened o = open_request(threads, 64, 8, 1, 512);
        bool seen[3] = {0};
        /* a helper whose CPU is taken by another process runs nothing: then the next request is looked at */
        for (int i = 0; i < TRIES && !(seen[1] && (threads < 3 || seen[2])); i++) {
            hr_trace trace = run(&o, 190 * MB);
            events e = events_of(&trace);
            size_t jobs;
            hr_engine_thread_spans(o.engine, &jobs, NULL);
            assert_int_equal(count(&e, "worker"), jobs);
            assert_nested(&e);
            for (size_t k = 0; k < e.n; k++)
                if (is(&e.at[k], "worker")) {
                    assert_in_range(e.at[k].tid, 2, threads);
                    seen[e.at[k].tid - 1] = true;
                }
            events_free(&e);
        }
        close_request(&o);
        if (!seen[1] || (threads == 3 && !seen[2])) hr_skip("other processes keep the CPUs of the team busy");
    }
}

static void micro_batches_are_phases(void **state) {
    (void)state;
    opened o = open_request(1, 256, 2, 1, 64);
    hr_trace trace = run(&o, 190 * MB);
    events e = events_of(&trace);
    assert_int_equal(count_named(&e, "prefill"), 4);
    assert_int_equal(count_named(&e, "decode"), 1);
    for (size_t i = 0; i < e.n; i++)
        if (is(&e.at[i], "phase")) assert_int_equal(arg(&e.at[i], "tokens"), strcmp(e.at[i].name, "decode") ? 64 : 1);
    assert_int_equal(count_named(&e, "head:prefill"), 1);
    assert_nested(&e);
    events_free(&e);
    close_request(&o);
}

static void requests_are_decoded_together(void **state) {
    (void)state;
    opened o = open_request(1, 16, 4, 3, 512);
    hr_trace trace = run(&o, 190 * MB);
    events e = events_of(&trace);
    assert_int_equal(count_named(&e, "prefill"), 3);
    assert_int_equal(count_named(&e, "decode"), 3);
    assert_int_equal(count_named(&e, "sample:prefill"), 3);
    assert_int_equal(count_named(&e, "sample:decode"), 9);
    for (size_t i = 0; i < e.n; i++)
        if (!strcmp(e.at[i].name, "decode")) assert_int_equal(arg(&e.at[i], "tokens"), 3);
    assert_nested(&e);
    events_free(&e);
    close_request(&o);
}

/* What the file has no room for is the oldest; the passes that stay are whole. */
static void a_small_file_keeps_the_newest(void **state) {
    (void)state;
    enum { OSL = 400, BYTES = 300000, OPS = 1 + 5 * LAYERS + 2 + 1 };
    opened o = open_request(2, 8, OSL, 1, 512);
    hr_trace trace = run(&o, BYTES);
    const uint64_t newest = trace.records[trace.n_records - 1].end_ns;
    uint64_t bytes;
    OK(hr_trace_fit(&trace, BYTES));
    OK(hr_trace_bytes(&trace, &bytes));
    if (bytes > BYTES || bytes < BYTES * 8 / 10)
        fail_msg("expected 80 %% to 100 %% of %d bytes, got %llu", BYTES, (unsigned long long)bytes);
    assert_int_equal(trace.n_records + trace.ops_dropped, OPS * OSL);
    assert_int_equal(trace.records[trace.n_records - 1].end_ns, newest);
    assert_true(trace.end_ns >= newest && trace.end_ns - newest < 1000000000);
    events e = events_of(&trace);
    assert_int_equal(count_named(&e, "prefill"), 0);
    assert_int_equal(count(&e, "op"), trace.n_records);
    assert_int_equal(count(&e, "op"), OPS * count(&e, "phase"));
    assert_int_equal(count(&e, "layer"), LAYERS * count(&e, "phase"));
    assert_nested(&e);
    const json_t *other = json_object_get(e.root, "otherData");
    assert_int_equal(json_integer_value(json_object_get(other, "ops_dropped")), trace.ops_dropped);
    assert_int_equal(json_integer_value(json_object_get(other, "jobs_dropped")), trace.jobs_dropped);
    events_free(&e);
    close_request(&o);
}

static int asked, stop_at;
static bool stop(void) {
    return ++asked > stop_at;
}

/* A prompt of four micro-batches: the user is heard between them. */
static void a_stopped_prompt_ends_between_its_passes(void **state) {
    (void)state;
    hr_trace trace;
    bool whole = true;
    opened o = open_request(1, 32, 2, 1, 8);
    o.request.stop = stop;
    asked = 0, stop_at = 2; /* in the warm-up, whose prompt would ask four times */
    assert_int_equal(hr_trace_request_run(&o.request, 190 * MB, &trace, &whole), HR_ERR_INTERRUPTED);
    assert_int_equal(asked, 3);
    asked = 0, stop_at = 5 + 3;
    OK(hr_trace_request_run(&o.request, 190 * MB, &trace, &whole));
    assert_false(whole);
    events e = events_of(&trace);
    assert_int_equal(count(&e, "phase"), 3);
    assert_nested(&e);
    events_free(&e);
    close_request(&o);
}

static void a_stopped_request_keeps_what_was_recorded(void **state) {
    (void)state;
    enum { OSL = 10 };
    hr_trace trace;
    bool whole = true;
    opened o = open_request(1, 8, OSL, 1, 512);
    o.request.stop = stop;
    asked = 0, stop_at = OSL - 1; /* in the warm-up */
    assert_int_equal(hr_trace_request_run(&o.request, 190 * MB, &trace, &whole), HR_ERR_INTERRUPTED);
    assert_non_null(strstr(hr_error(), "no trace is written"));
    asked = 0, stop_at = OSL + 4; /* the recorded request has made its prefill and three steps */
    OK(hr_trace_request_run(&o.request, 190 * MB, &trace, &whole));
    assert_false(whole);
    events e = events_of(&trace);
    assert_int_equal(count(&e, "phase"), 4);
    assert_nested(&e);
    events_free(&e);
    asked = 0, stop_at = OSL; /* before its first pass */
    OK(hr_trace_request_run(&o.request, 190 * MB, &trace, &whole));
    assert_false(whole);
    assert_int_equal(trace.n_records, 0);
    json_t *rows;
    OK(hr_trace_summary(&trace, &rows));
    assert_int_equal(json_array_size(rows), 0);
    json_decref(rows);
    e = events_of(&trace);
    assert_int_equal(e.n, 1);
    events_free(&e);
    close_request(&o);
}

/* ---- records made by hand ---- */

enum { PASS_OPS = 5, SECOND = 1000000000 };

/* Pass number `pass`, 1000 ns: embed 100, two layers with down of 300 each, head 200, sample 20 behind; 10 ns between. */
static void make_pass(hr_op_record *out, uint32_t pass, hr_phase phase) {
    static const struct {
        hr_op op;
        int16_t layer;
        uint64_t ns, bytes, flops;
    } ops[PASS_OPS] = {{HR_OP_EMBED, -1, 100, 50, 0},
                       {HR_OP_DOWN, 0, 300, 600, 1200},
                       {HR_OP_DOWN, 1, 330, 600, 1200},
                       {HR_OP_HEAD, -1, 200, 400, 800},
                       {HR_OP_SAMPLE, -1, 20, 0, 0}};
    uint64_t at = SECOND + 1000 * pass;
    for (size_t i = 0; i < PASS_OPS; i++) {
        out[i] = (hr_op_record){.phase = phase,
                                .op = ops[i].op,
                                .layer = ops[i].layer,
                                .kernel = "k",
                                .tokens = 1,
                                .pass = pass,
                                .start_ns = at,
                                .end_ns = at + ops[i].ns,
                                .bytes = ops[i].bytes,
                                .flops = ops[i].flops};
        at += ops[i].ns + 10;
    }
}

static void make_passes(hr_op_record *out, size_t n) {
    for (size_t i = 0; i < n; i++) make_pass(out + i * PASS_OPS, (uint32_t)i, i ? HR_PHASE_DECODE : HR_PHASE_PREFILL);
}

static hr_thread_span job_of(const hr_op_record *r, uint16_t thread) {
    return (hr_thread_span){.start_ns = r->start_ns + 1,
                            .end_ns = r->end_ns - 1,
                            .pass = r->pass,
                            .layer = r->layer,
                            .op = (uint8_t)r->op,
                            .phase = (uint8_t)r->phase,
                            .thread = thread};
}

static void a_pass_without_its_beginning_is_left_out(void **state) {
    (void)state;
    enum { PASSES = 4 };
    hr_op_record records[PASSES * PASS_OPS];
    hr_thread_span spans[PASSES];
    hr_trace trace;
    make_passes(records, PASSES);
    for (size_t i = 0; i < PASSES; i++) spans[i] = job_of(&records[i * PASS_OPS + 1], 1);
    for (size_t cut = 0; cut <= PASS_OPS; cut++) {
        hr_trace_init(&trace, records + cut, PASSES * PASS_OPS - cut, 7 + cut, spans, PASSES, 0);
        const size_t gone = cut ? 1 : 0; /* passes */
        assert_int_equal(trace.n_records, (PASSES - gone) * PASS_OPS);
        assert_int_equal(trace.ops_dropped, 7 + gone * PASS_OPS);
        assert_int_equal(trace.jobs_dropped, gone);
        events e = events_of(&trace);
        assert_int_equal(count(&e, "phase"), PASSES - gone);
        assert_int_equal(count(&e, "worker"), PASSES - gone);
        assert_nested(&e);
        events_free(&e);
    }
    /* nothing was lost: all stays, whatever it begins with */
    hr_trace_init(&trace, records + 1, PASS_OPS, 0, NULL, 0, 0);
    assert_int_equal(trace.n_records, PASS_OPS);
    /* a ring that is shorter than a pass */
    hr_trace_init(&trace, records + 1, 2, 9, NULL, 0, 0);
    assert_int_equal(trace.n_records, 2);
    assert_int_equal(trace.ops_dropped, 9);
}

static void passes_whose_jobs_are_lost_are_left_out(void **state) {
    (void)state;
    enum { PASSES = 4 };
    hr_op_record records[PASSES * PASS_OPS];
    hr_trace trace;
    make_passes(records, PASSES);
    const hr_thread_span spans[] = {job_of(&records[2 * PASS_OPS + 2], 2), job_of(&records[3 * PASS_OPS + 1], 1),
                                    job_of(&records[3 * PASS_OPS + 2], 2), job_of(&records[1 * PASS_OPS + 2], 1)};
    hr_trace_init(&trace, records, PASSES * PASS_OPS, 0, spans, 4, 10);
    assert_int_equal(trace.n_records, 2 * PASS_OPS); /* the oldest job there is belongs to pass 1 */
    assert_int_equal(trace.ops_dropped, 2 * PASS_OPS);
    assert_int_equal(trace.jobs_dropped, 11);
    assert_int_equal(trace.records[0].pass, 2);
    events e = events_of(&trace);
    assert_int_equal(count(&e, "worker"), 3);
    events_free(&e);
}

static void a_file_is_cut_to_any_size(void **state) {
    (void)state;
    enum { PASSES = 300 };
    hr_op_record *records = calloc(PASSES * PASS_OPS, sizeof *records);
    hr_thread_span *spans = calloc(PASSES, sizeof *spans);
    assert_true(records && spans);
    make_passes(records, PASSES);
    for (size_t i = 0; i < PASSES; i++) spans[i] = job_of(&records[i * PASS_OPS + 1], 1);
    hr_trace all;
    uint64_t whole, bytes;
    hr_trace_init(&all, records, PASSES * PASS_OPS, 0, spans, PASSES, 0);
    OK(hr_trace_bytes(&all, &whole));
    for (uint64_t most = 1; most < whole + whole / 7; most += whole / 7) {
        hr_trace trace = all;
        OK(hr_trace_fit(&trace, most));
        OK(hr_trace_bytes(&trace, &bytes));
        if (bytes > most && trace.n_records > PASS_OPS)
            fail_msg("expected at most %llu bytes or one pass, got %llu and %zu ops", (unsigned long long)most,
                     (unsigned long long)bytes, trace.n_records);
        assert_true(trace.n_records >= PASS_OPS);
        assert_int_equal(trace.n_records % PASS_OPS, 0);
        assert_int_equal(trace.n_records + trace.ops_dropped, PASSES * PASS_OPS);
        assert_int_equal(trace.jobs_dropped * PASS_OPS, trace.ops_dropped);
        assert_int_equal(trace.ops_dropped == 0, most >= whole);
        assert_ptr_equal(trace.records + trace.n_records, records + PASSES * PASS_OPS);
    }
    free(records);
    free(spans);
}

static double number(const json_t *rows, size_t row, const char *key) {
    const json_t *value = json_object_get(json_array_get(rows, row), key);
    if (!json_is_number(value)) fail_msg("row %zu: no number %s", row, key);
    return json_number_value(value);
}

static void assert_number(const json_t *rows, size_t row, const char *key, double want) {
    const double got = number(rows, row, key);
    if (fabs(got - want) > 1e-9 * fmax(1, fabs(want)))
        fail_msg("row %zu %s: expected %.12g, got %.12g", row, key, want, got);
}

static void the_summary_is_arithmetic(void **state) {
    (void)state;
    static const char *const names[] = {"embed:prefill",  "down:prefill",  "head:prefill",
                                        "sample:prefill", "embed:decode",  "down:decode",
                                        "head:decode",    "sample:decode", "between ops"};
    enum { PASSES = 3, N = sizeof names / sizeof *names };
    hr_op_record records[PASSES * PASS_OPS];
    hr_trace trace;
    json_t *rows;
    double share = 0;
    make_passes(records, PASSES);
    records[7].end_ns -= 30; /* down of pass 1, layer 1: 300 */
    records[7].imbalance_ns = 2000000, records[11].handoff_ns = 500000;
    hr_trace_init(&trace, records, PASSES * PASS_OPS, 0, NULL, 0, 0);
    OK(hr_trace_summary(&trace, &rows));
    assert_int_equal(json_array_size(rows), N);
    for (size_t i = 0; i < N; i++) {
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, i), "name")), names[i]);
        share += number(rows, i, "share_pct");
    }
    if (fabs(share - 100) > 1e-9) fail_msg("shares: expected 100 %%, got %.12g", share);
    const double span = 2 * 1000 + 990; /* from the first op's start to the end of the last sample */
    assert_int_equal(records[14].end_ns - records[0].start_ns, (uint64_t)span);
    assert_number(rows, 5, "calls", 4);
    assert_number(rows, 5, "total_ms", (300 + 300 + 300 + 330) * 1e-6);
    assert_number(rows, 5, "mean_us", 1230 / 4 * 1e-3 + 0.0005);
    assert_number(rows, 5, "median_us", 0.3);
    assert_number(rows, 5, "share_pct", 1230 / span * 100);
    assert_number(rows, 5, "gb_s", 2400. / 1230);
    assert_number(rows, 5, "gop_s", 4800. / 1230);
    assert_number(rows, 5, "imbalance_ms", 2);
    assert_number(rows, 5, "handoff_ms", 0.5);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "gop_s")));
    assert_true(json_is_null(json_object_get(json_array_get(rows, 3), "gb_s")));
    assert_number(rows, 8, "total_ms", (span - 3 * 950 + 30) * 1e-6);
    for (size_t i = 0; hr_trace_summary_keys[i]; i++)
        if (!json_object_get(json_array_get(rows, 0), hr_trace_summary_keys[i]))
            fail_msg("no key %s", hr_trace_summary_keys[i]);
    json_decref(rows);
}

/* Two layers of the same number in passes side by side, and layers without a gap, are not mixed up. */
static void layers_end_with_their_pass(void **state) {
    (void)state;
    hr_op_record records[2];
    hr_trace trace;
    for (uint32_t i = 0; i < 2; i++)
        records[i] = (hr_op_record){.phase = HR_PHASE_DECODE,
                                    .op = HR_OP_DOWN,
                                    .layer = 0,
                                    .tokens = 1,
                                    .pass = i,
                                    .start_ns = 100 * i,
                                    .end_ns = 100 * i + 100};
    hr_trace_init(&trace, records, 2, 0, NULL, 0, 0);
    events e = events_of(&trace);
    assert_int_equal(count(&e, "phase"), 2);
    assert_int_equal(count(&e, "layer"), 2);
    assert_nested(&e);
    assert_string_equal(json_string_value(json_object_get(e.at[3].args, "kernel")), "");
    events_free(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_all_there),
        cmocka_unit_test(work_adds_up),
        cmocka_unit_test(jobs_of_other_threads_lie_in_their_ops),
        cmocka_unit_test(micro_batches_are_phases),
        cmocka_unit_test(requests_are_decoded_together),
        cmocka_unit_test(a_small_file_keeps_the_newest),
        cmocka_unit_test(a_stopped_request_keeps_what_was_recorded),
        cmocka_unit_test(a_stopped_prompt_ends_between_its_passes),
        cmocka_unit_test(a_pass_without_its_beginning_is_left_out),
        cmocka_unit_test(passes_whose_jobs_are_lost_are_left_out),
        cmocka_unit_test(a_file_is_cut_to_any_size),
        cmocka_unit_test(the_summary_is_arithmetic),
        cmocka_unit_test(layers_end_with_their_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
