/* Every call of the CUDA driver fails in turn, from opening an engine to closing it: for want of memory, by a launch that failed
 * (at the call, or when the work runs), by a lost device. Each time one function of the engine says so in one line, nothing is
 * left behind, and the process goes on: with the next engine where the error passes, with a clear refusal where it stays.
 *
 * Of every function the first, the middle and the last call fail, in the first of the ways below that calls it; calls that only the first engine of a process makes fail in
 * processes of their own. */
#include "tests/gpu_fixture.h"

#include "engine/engine.h"
#include "kernels/base/memory.h"

#include <sys/wait.h>
#include <unistd.h>

#define SPEC "synth:tiny:layers=1:dim=64:heads=2:kv_heads=1:head_dim=32:ffn=96:vocab=64:ctx=128:seed=9"
enum { VOCAB = 64, PROMPT = 20 };

/* ---- what an engine is put through ---- */

/* How an engine is opened: what its calls are depends on that. */
typedef struct way {
    const char *name;
    hr_gpu_memory memory;
    hr_act act;
    hr_kv_layout layout;
    bool graphs, records;
} way;
static const way ways[] = {
    {"graphs, paged", HR_GPU_DEVICE, HR_ACT_BF16, HR_KV_PAGED, true, false},
    {"compressible memory, recorded", HR_GPU_COMPRESSIBLE, HR_ACT_F32, HR_KV_HEAD, false, true},
    {"managed memory", HR_GPU_MANAGED, HR_ACT_BF16, HR_KV_TOKEN, true, false},
    {"pinned memory", HR_GPU_PINNED, HR_ACT_BF16, HR_KV_BLOCK, false, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct outcome {
    hr_status status;  /* of the first function that failed */
    const char *stage; /* which */
    char message[1024];
    float logits[VOCAB]; /* of the last step; all stages went well */
    uint64_t told;       /* calls of the driver until the last function that returns a status had done so */
} outcome;

static bool went(outcome *o, hr_status status, const char *stage) {
    o->told = gpu_driver()->calls();
    if (status == HR_OK) return true;
    o->status = status, o->stage = stage;
    snprintf(o->message, sizeof o->message, "%s", hr_error());
    return false;
}

static bool stages(hr_engine *e, outcome *o) {
    static float all[PROMPT * VOCAB];
    int32_t tokens[PROMPT];
    const hr_sampling greedy = {.top_p = 1}, draw = {.temperature = 1, .top_k = 20, .top_p = 1};
    uint64_t rng = 3;
    for (int i = 0; i < PROMPT; i++) tokens[i] = (i * 7 + 1) % VOCAB;
    if (!went(o, hr_engine_prefill(e, 0, tokens, PROMPT, true), "prefill")) return false;
    for (int i = 0; i < 3; i++)
        if (!went(o, hr_engine_decode(e, (uint32_t[]){0}, tokens + i, 1), "decode")) return false;
    hr_engine_sample(e, 0, &greedy, &rng);
    hr_engine_sample(e, 0, &draw, &rng);
    if (!went(o, hr_engine_logits(e, 0) ? HR_OK : HR_ERR_INTERNAL, "logits")) return false;
    if (!went(o, hr_engine_seq_fork(e, 0, 1, 16), "fork")) return false;
    if (!went(o, hr_engine_decode(e, (uint32_t[]){0, 1}, tokens, 2), "decode of two")) return false;
    if (!went(o, hr_engine_prefill_all(e, 2, tokens, PROMPT, all), "prefill of all logits")) return false;
    if (!went(o, hr_engine_decode(e, (uint32_t[]){1}, tokens, 1), "last decode")) return false;
    const float *logits = hr_engine_logits(e, 0);
    if (!went(o, logits ? HR_OK : HR_ERR_INTERNAL, "last logits")) return false;
    memcpy(o->logits, logits, sizeof o->logits);
    return true;
}

/* Opens, runs and closes. After a failure the engine is used once more: it may refuse, and it must stand. */
static void run(const hr_model *m, const way *w, outcome *o) {
    hr_engine *e = NULL;
    hr_engine_config c = hr_engine_config_default();
    c.threads = 1, c.pin = false, c.huge_pages = false, c.max_seqs = 3, c.ctx = 96, c.ubatch = 16, c.device = 0;
    c.act = w->act, c.kv_layout = w->layout, c.memory = w->memory, c.graphs = w->graphs;
    c.k_type = c.v_type = w->act == HR_ACT_F32 ? HR_F32 : HR_BF16;
    *o = (outcome){.status = HR_OK, .stage = ""};
    if (!went(o, hr_engine_create(m, &c, &e), "create")) {
        if (e) fail_msg("%s: an engine that was not created was returned", w->name);
        return;
    }
    if (w->records && !went(o, hr_engine_record(e, 500), "record")) fail_msg("%s", o->message);
    if (!stages(e, o)) {
        hr_engine_decode(e, (uint32_t[]){0}, (int32_t[]){1}, 1);
        hr_engine_logits(e, 0);
    }
    hr_engine_destroy(e);
}

static hr_model *load(void) {
    hr_model *m = NULL;
    const hr_load_options o = {.quant = HR_QUANT_BF16, .threads = 1};
    if (hr_model_load(SPEC, &o, &m) != HR_OK) fail_msg("%s: %s", SPEC, hr_error());
    return m;
}

/* ---- one fault ---- */

/* Releasing calls: that they failed need not be told. */
static bool is_release(const char *function) {
    static const char *const names[] = {"cuMemFree",        "cuMemFreeHost",      "cuEventDestroy", "cuStreamDestroy",
                                        "cuGraphDestroy",   "cuGraphExecDestroy", "cuModuleUnload", "cuMemUnmap",
                                        "cuMemAddressFree", "cuMemRelease"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(function, names[i])) return true;
    return false;
}

typedef struct fault {
    const char *function;
    unsigned nth;
    CUresult code;
    bool late;
    bool must_tell;
} fault;

static bool stays(CUresult code) {
    return code == CUDA_ERROR_LAUNCH_FAILED || code == CUDA_ERROR_DEVICE_UNAVAILABLE;
}
static const char *name_of(CUresult code) {
    return code == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
           : code == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                              : "CUDA_ERROR_DEVICE_UNAVAILABLE";
}

/* One line that names the device and what the driver said. */
static void check_message(const outcome *o, const fault *f, const char *where) {
    const bool memory = o->status == HR_ERR_MEMORY && strstr(o->message, "memory");
    if (!o->message[0] || strchr(o->message, '\n') || !strstr(o->message, "cuda:0") ||
        !(memory || strstr(o->message, name_of(f->code))))
        fail_msg("%s: %s says \"%s\": expected one line with cuda:0 and %s", where, o->stage, o->message,
                 name_of(f->code));
    if (f->code == CUDA_ERROR_OUT_OF_MEMORY && o->status != HR_ERR_MEMORY && !strstr(o->stage, "logits"))
        fail_msg("%s: %s: expected status %d, got %d: %s", where, o->stage, HR_ERR_MEMORY, (int)o->status, o->message);
}

static void strike(const hr_model *m, const way *w, const fault *f) {
    const gpu_fake *fake = gpu_driver();
    const hr_fake_cuda_counts before = gpu_counts();
    outcome o;
    char spec[128], where[256];
    snprintf(spec, sizeof spec, "%s:%u:%d%s", f->function, f->nth, (int)f->code, f->late ? ":late" : "");
    snprintf(where, sizeof where, "%s, %s", w->name, spec);
    assert_int_equal(fake->arm(spec), 0);
    run(m, w, &o);
    if (fake->struck() != 1) fail_msg("%s: expected one failure, got %llu", where, (unsigned long long)fake->struck());
    if (f->must_tell && o.status == HR_OK) fail_msg("%s: nobody told", where);
    if (o.status != HR_OK) check_message(&o, f, where);
    hr_fake_cuda_counts after = gpu_counts();
    gpu_assert_same(&before, &after, where);
    if (!stays(f->code)) return;
    fake->arm(NULL);
    run(m, w, &o); /* the context is of no use any more */
    if (o.status == HR_OK || strcmp(o.stage, "create")) fail_msg("%s: an engine opened on a ruined device", where);
    check_message(&o, f, where);
    fake->revive();
    after = gpu_counts();
    gpu_assert_same(&before, &after, where);
}

static void check_recovers(const hr_model *m, const way *w, const outcome *sound, const char *after) {
    outcome o;
    gpu_driver()->arm(NULL);
    run(m, w, &o);
    if (o.status != HR_OK) fail_msg("%s, after %s failed: %s: %s", w->name, after, o.stage, o.message);
    for (int i = 0; i < VOCAB; i++)
        if (o.logits[i] != sound->logits[i])
            fail_msg("%s, after %s failed: logit %d: expected %.9g, got %.9g, tolerance 0", w->name, after, i,
                     (double)sound->logits[i], (double)o.logits[i]);
}

/* ---- all faults ---- */

enum { FUNCTIONS = 96 };
typedef struct calls {
    struct called {
        const char *function;
        unsigned n;
        uint64_t at[3]; /* index of the first, the middle and the last call */
    } all[FUNCTIONS];
    size_t n;
} calls;

static struct called *find(calls *c, const char *function) {
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->all[i].function, function)) return &c->all[i];
    assert_true(c->n < FUNCTIONS);
    c->all[c->n] = (struct called){.function = function};
    return &c->all[c->n++];
}

/* What was called since the faults were set last. */
static void count_calls(calls *out) {
    const gpu_fake *fake = gpu_driver();
    *out = (calls){0};
    for (uint64_t i = 0; i < fake->calls(); i++) find(out, fake->call(i))->n++;
    unsigned seen[FUNCTIONS] = {0};
    for (uint64_t i = 0; i < fake->calls(); i++) {
        struct called *c = find(out, fake->call(i));
        const unsigned nth = ++seen[c - out->all];
        if (nth == 1) c->at[0] = i;
        if (nth == (c->n + 1) / 2) c->at[1] = i;
        if (nth == c->n) c->at[2] = i;
    }
}

static const CUresult codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_DEVICE_UNAVAILABLE};
enum { CODES = sizeof codes / sizeof *codes };

static void strike_with(const hr_model *m, const way *w, const struct called *c, uint64_t told, int place,
                        CUresult code) {
    const bool products =
        !strcmp(c->function, "hr_fake_cuda_enqueue"); /* our own kernels compute what cuBLASLt does not */
    const bool passes = (is_release(c->function) || products) && !stays(code);
    const unsigned nth[3] = {1, (c->n + 1) / 2, c->n};
    strike(m, w, &(fault){c->function, nth[place], code, false, c->at[place] < told && !passes});
}

/* All places and codes. */
static void strike_function(const hr_model *m, const way *w, const struct called *c, uint64_t told) {
    const bool launches = !strcmp(c->function, "hr_fake_cuda_enqueue") || !strcmp(c->function, "cuLaunchKernel") ||
                          !strcmp(c->function, "cuGraphLaunch");
    const unsigned nth[3] = {1, (c->n + 1) / 2, c->n};
    for (int i = 0; i < 3; i++) {
        if ((i && nth[i] == nth[i - 1]) || (hr_test_quick() && i != 1 && c->n > 2)) continue;
        for (int code = 0; code < CODES; code++) strike_with(m, w, c, told, i, codes[code]);
        if (launches) strike(m, w, &(fault){c->function, nth[i], CUDA_ERROR_LAUNCH_FAILED, true, true});
    }
}

/* Functions that an earlier way did not call fail at all places with all codes, the others at one with one. */
static void strike_way(const hr_model *m, const way *w, calls *before) {
    outcome first, sound;
    calls now;
    run(m, w, &first); /* functions of kernels are looked up once a process */
    if (first.status != HR_OK) fail_msg("%s: %s: %s", w->name, first.stage, first.message);
    gpu_driver()->arm(NULL);
    run(m, w, &sound);
    assert_memory_equal(first.logits, sound.logits, sizeof sound.logits);
    count_calls(&now);
    assert_true(now.n > 10);
    for (size_t f = 0; f < now.n; f++) {
        const struct called *c = &now.all[f];
        struct called *known = find(before, c->function);
        if (!known->n) {
            strike_function(m, w, c, sound.told);
            check_recovers(m, w, &sound, c->function);
        } else if (!hr_test_quick()) {
            strike_with(m, w, c, sound.told, 1, codes[f % CODES]);
        }
        known->n = 1;
    }
    check_recovers(m, w, &sound, "all");
}

static void every_call_fails(void **state) {
    (void)state;
    hr_model *m = load();
    calls before = {0};
    for (int i = 0; i < WAYS; i++) strike_way(m, &ways[i], &before);
    hr_model_destroy(m);
}

/* ---- the first engine of a process ---- */

/* A process that the driver fails: says what went wrong, and opens an engine afterwards where that can be. */
static int child(int argc, char **argv) {
    hr_model *m = load();
    outcome o;
    (void)argc;
    const int code = atoi(argv[2]);
    run(m, &ways[0], &o);
    fprintf(stderr, "%s: %s\n", o.stage, o.message);
    const bool told = o.status != HR_OK;
    run(m, &ways[0], &o);
    hr_model_destroy(m);
    if (!told) return 3;
    /* before there is a context nothing can stay */
    return o.status == HR_OK || (stays((CUresult)code) && !strcmp(o.stage, "create")) ? 0 : 4;
}

static void fail_in_a_child(const char *function, unsigned nth, CUresult code) {
    char spec[128], number[16], said[4096];
    int ends[2], status;
    snprintf(spec, sizeof spec, "%s:%u:%d", function, nth, (int)code);
    snprintf(number, sizeof number, "%d", (int)code);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("HR_FAKE_CUDA_FAIL", spec, 1);
        dup2(ends[1], 2);
        execl("/proc/self/exe", "test_gpu_faults", "child", number, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t more; n < sizeof said - 1 && (more = read(ends[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)more;
    said[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    const bool clear = strstr(said, "create: ") == said && strstr(said, "cuda:0") && strstr(said, name_of(code)) &&
                       strchr(said, '\n') == said + n - 1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) || !clear)
        fail_msg("%s: expected status 0 and one line of create with %s, got %s %d and \"%s\"", spec, name_of(code),
                 WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                 said);
}

static calls first_calls;

static void calls_of_the_first_engine_fail(void **state) {
    (void)state;
    hr_model *m = load();
    calls later;
    outcome o;
    gpu_driver()->arm(NULL);
    run(m, &ways[0], &o);
    count_calls(&later);
    hr_model_destroy(m);
    int n = 0;
    for (size_t i = 0; i < first_calls.n; i++) {
        const struct called *c = &first_calls.all[i];
        if (c->n == find(&later, c->function)->n) continue;
        n++;
        fail_in_a_child(c->function, 1, CUDA_ERROR_OUT_OF_MEMORY);
        if (c->n > 1 && !hr_test_quick()) fail_in_a_child(c->function, c->n, CUDA_ERROR_OUT_OF_MEMORY);
        fail_in_a_child(c->function, 1, CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
    assert_true(n >= 5); /* cuInit, cuDeviceGet, the context, modules, functions */
}

static int setup(void **state) {
    (void)state;
    outcome o;
    hr_model *m = load();
    gpu_use_fakes();
    run(m, &ways[0], &o);
    if (o.status != HR_OK) print_error("%s: %s\n", o.stage, o.message);
    count_calls(&first_calls);
    hr_model_destroy(m);
    return o.status == HR_OK ? 0 : -1;
}

int main(int argc, char **argv) {
    gpu_use_fakes();
    if (argc > 2 && !strcmp(argv[1], "child")) return child(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(calls_of_the_first_engine_fail),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
