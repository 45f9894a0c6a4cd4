#include "harness/sweep/worker.h"

#include "harness/sweep/derive.h"
#include "harness/sweep/gpu_around.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct worker {
    int socket;
    const hr_measure_options *options;
    hr_model *model;
    char spec[512];
    hr_load_options loaded; /* how */
    hr_engine *engine;
    hr_engine_config opened; /* of engine */
    hr_bench *bench;
    hr_cell_config cell;
    unsigned units;                        /* of the cell's work: bit set of hr_unit */
    int64_t power_limit_w;                 /* that this worker has set; 0: none */
    int limited;                           /* the device */
    uint64_t rss_base, rss_load, rss_peak; /* bytes of RssAnon: at start, after loading, highest of this cell */
    uint64_t said_ns;                      /* last progress message */
    int crash_at, hang_at;                 /* for tests: cell at which to die or to stop answering; -1: none */
} worker;

/* Anonymous memory of this process in bytes; 0 where /proc does not say. */
static uint64_t rss_anon(void) {
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1) break;
    fclose(f);
    return (uint64_t)kib * 1024;
}

/* What was there when the worker began belongs to the parent: probe buffers, the store. */
static uint64_t rss_own(const worker *w) {
    const uint64_t now = rss_anon();
    return now > w->rss_base ? now - w->rss_base : 0;
}

static void rss_sample(worker *w) {
    const uint64_t now = rss_own(w);
    if (now > w->rss_peak) w->rss_peak = now;
}

static bool send_all(int fd, const char *text, size_t n) {
    while (n) {
        const ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        text += sent, n -= (size_t)sent;
    }
    return true;
}

static bool say(int fd, json_t *message) {
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    const bool sent = text && send_all(fd, text, strlen(text)) && send_all(fd, "\n", 1);
    free(text); /* jansson's own memory */
    return sent;
}

static void on_load(double share, void *context) {
    worker *w = context;
    const uint64_t now = hr_now_ns();
    if (now - w->said_ns < 200000000u) return;
    w->said_ns = now;
    say(w->socket, json_pack("{s:f}", "progress", share));
}

static bool same_forces(const hr_engine_config *a, const hr_engine_config *b) {
    char one[HR_FORCES_TEXT], other[HR_FORCES_TEXT];
    return !strcmp(hr_kernel_forces_text(a, one), hr_kernel_forces_text(b, other));
}

static bool same_engine(const hr_engine_config *a, const hr_engine_config *b) {
    return a->threads == b->threads && a->isa == b->isa && a->act == b->act && a->kv_layout == b->kv_layout &&
           a->page_size == b->page_size && a->k_type == b->k_type && a->v_type == b->v_type &&
           a->max_seqs == b->max_seqs && a->ctx == b->ctx && a->ubatch == b->ubatch && a->batch == b->batch &&
           a->flash == b->flash && a->pin == b->pin && a->huge_pages == b->huge_pages && a->fusion == b->fusion &&
           a->kv_alloc == b->kv_alloc && a->kv_budget_pct == b->kv_budget_pct && a->kv_threshold == b->kv_threshold &&
           a->kv_compact == b->kv_compact && a->device == b->device && a->graphs == b->graphs &&
           a->memory == b->memory && a->cublaslt == b->cublaslt && same_forces(a, b);
}

static void close_engine(worker *w) {
    hr_bench_destroy(w->bench), hr_engine_destroy(w->engine);
    w->bench = NULL, w->engine = NULL;
}

static bool same_weights(const hr_load_options *a, const hr_load_options *b) {
    return a->quant == b->quant && a->order == b->order && a->copy == b->copy && a->huge_pages == b->huge_pages &&
           a->on_device == b->on_device;
}

static hr_status open_model(worker *w) {
    hr_load_options load = hr_cell_load_options(&w->cell);
    load.progress = on_load, load.context = w;
    if (w->model && !strcmp(w->spec, w->cell.model) && same_weights(&load, &w->loaded)) return HR_OK;
    close_engine(w);
    hr_model_destroy(w->model);
    w->model = NULL;
    HR_TRY(hr_model_load(w->cell.model, &load, &w->model));
    snprintf(w->spec, sizeof w->spec, "%s", w->cell.model);
    w->loaded = load;
    w->rss_load = rss_own(w);
    return HR_OK;
}

static hr_status open_engine(worker *w) {
    const hr_engine_config want = hr_cell_engine_config(&w->cell, hr_model_get_info(w->model)->ctx);
    if (w->engine && same_engine(&want, &w->opened)) return HR_OK;
    close_engine(w);
    HR_TRY(hr_engine_create(w->model, &want, &w->engine));
    w->opened = want;
    return HR_OK;
}

static hr_step_work prefill_work(const worker *w) {
    const size_t depth = w->cell.depth > 0 ? (size_t)w->cell.depth : 0;
    return hr_engine_prefill_work(w->engine, (size_t)w->cell.n_prompt, depth);
}

static hr_step_work decode_work(const worker *w) {
    const size_t seqs = w->cell.n_seqs > 0 ? (size_t)w->cell.n_seqs : 1;
    return hr_engine_decode_work(w->engine, seqs, hr_cell_mean_context(&w->cell));
}

static bool stopped(const worker *w) {
    return w->options->stop && atomic_load(w->options->stop);
}

/* The limit of the driver is the machine's, so it is given back before the worker ends. */
static hr_status limit_power(worker *w, int64_t watts, int device) {
    if (watts == w->power_limit_w) return HR_OK;
    HR_TRY(hr_gpu_power_limit(device, (double)watts));
    w->power_limit_w = watts, w->limited = device;
    return HR_OK;
}

static hr_status prepare(worker *w, const json_t *request, json_t **out) {
    const int index = (int)json_integer_value(json_object_get(request, "index"));
    hr_bench_destroy(w->bench);
    w->bench = NULL;
    w->rss_peak = 0;
    HR_TRY(hr_cell_config_parse(json_object_get(request, "cell"), &w->cell));
    if (index == w->crash_at) raise(SIGKILL);
    while (index == w->hang_at && !stopped(w)) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    HR_TRY(limit_power(w, w->cell.power_limit_w, hr_cell_device(&w->cell)));
    HR_TRY(open_model(w));
    HR_TRY(open_engine(w));
    rss_sample(w);
    HR_TRY(hr_bench_create(w->model, w->engine, &w->cell, w->options, &w->bench));
    rss_sample(w);
    unsigned units = 1u << HR_UNIT_FP32;
    hr_step_work work[2] = {{0}, {0}};
    if (w->cell.n_prompt) work[0] = prefill_work(w);
    if (hr_cell_steps(&w->cell)) work[1] = decode_work(w);
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        if (work[0].flops[u] || work[1].flops[u]) units |= 1u << u;
    w->units = units;
    const hr_engine_facts facts = hr_engine_get_facts(w->engine);
    *out = json_pack("{s:s, s:i, s:i, s:i, s:i, s:b, s:s?}", "status", "ok", "units", (int)units, "act", (int)facts.act,
                     "isa", (int)facts.isa, "threads", (int)facts.threads, "graphs", (int)facts.graphs, "gemm",
                     facts.gemm);
    return *out ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for an answer");
}

static json_t *kernels(const worker *w) {
    size_t pass = (size_t)w->cell.n_prompt;
    if (w->cell.ubatch > 0 && (size_t)w->cell.ubatch < pass) pass = (size_t)w->cell.ubatch;
    if (w->cell.batch > 0 && (size_t)w->cell.batch < pass) pass = (size_t)w->cell.batch;
    const size_t seqs = w->cell.n_seqs > 0 ? (size_t)w->cell.n_seqs : 1;
    json_t *prefill = pass ? hr_engine_kernels(w->engine, HR_PHASE_PREFILL, pass) : json_object();
    json_t *decode = hr_cell_steps(&w->cell) ? hr_engine_kernels(w->engine, HR_PHASE_DECODE, seqs) : json_object();
    return json_pack("{s:o, s:o}", "prefill", prefill, "decode", decode);
}

/* Bytes that a K row of one head takes in its type, scales apart; null where the type cannot hold it. */
static json_t *kv_row_bytes(const worker *w) {
    const hr_model_info *info = hr_model_get_info(w->model);
    hr_kv_geom g;
    if (hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, info->head_dim, w->cell.k_type, w->cell.v_type, 1, 0) != HR_OK)
        return json_null();
    return json_integer((json_int_t)g.row_bytes[HR_KV_K]);
}

/* The samples of a GPU's cell, between two looks at its state; then its counters, where nothing else listens to them. */
static hr_status run_on_gpu(worker *w, json_t **out) {
    const int device = hr_cell_device(&w->cell);
    const bool watched = w->options->capture != HR_CAPTURE_NONE || hr_nvtx_attached();
    hr_gpu_state before, after;
    json_t *result = NULL;
    hr_gpu_around_look(device, w->units, &before);
    HR_TRY(hr_bench_run(w->bench, &result));
    hr_gpu_around_look(device, w->units, &after);
    hr_status status = hr_gpu_around_put(result, &before, &after);
    if (status == HR_OK && !watched) status = hr_gpu_around_count(result, device, w->bench);
    if (*hr_gpu_kernel_times_missing())
        json_object_set_new(result, "kernel_times_missing", json_string(hr_gpu_kernel_times_missing()));
    if (status == HR_OK)
        *out = result;
    else
        json_decref(result);
    return status;
}

static hr_status measure(worker *w, const json_t *request, json_t **out) {
    if (!w->bench) HR_FAIL(HR_ERR_INTERNAL, "the worker was asked to measure before it was given a cell");
    const char *name = json_string_value(json_object_get(request, "name"));
    json_t *result;
    hr_bench_name(w->bench, name ? name : "");
    HR_TRY(w->cell.gpu ? run_on_gpu(w, &result) : hr_bench_run(w->bench, &result));
    rss_sample(w);
    const hr_engine_facts facts = hr_engine_get_facts(w->engine);
    json_object_set_new(result, "status", json_string("ok"));
    if (w->cell.n_prompt) {
        const hr_step_work work = prefill_work(w);
        json_object_set_new(result, "prefill_work", hr_work_json(&work));
    }
    if (hr_cell_steps(&w->cell)) {
        const hr_step_work work = decode_work(w);
        json_object_set_new(result, "decode_work", hr_work_json(&work));
    }
    json_object_set_new(result, "working_set_bytes",
                        json_real((double)hr_model_get_info(w->model)->weight_bytes + (double)facts.kv_bytes_needed));
    json_object_set_new(result, "kernels", kernels(w));
    json_object_set_new(result, "kv_bytes_needed", json_integer((json_int_t)facts.kv_bytes_needed));
    json_object_set_new(result, "kv_bytes_touched", json_integer((json_int_t)facts.kv_bytes_touched));
    json_object_set_new(result, "kv_bytes_reserved", json_integer((json_int_t)facts.kv_bytes));
    json_object_set_new(result, "kv_row_bytes", kv_row_bytes(w));
    json_object_set_new(result, "softmax", json_string("f32")); /* of both kernels, -fa 0 and 1 */
    if (!w->cell.gpu) json_object_set_new(result, "huge_pages", json_boolean(facts.huge_pages));
    const uint64_t peak = w->rss_load > w->rss_peak ? w->rss_load : w->rss_peak;
    json_object_set_new(result, "rss_peak_bytes", peak ? json_integer((json_int_t)peak) : json_null());
    *out = result;
    return HR_OK;
}

/* HEADROOM_FAULT=KIND:N, for tests: the N-th allocation, read or write fails once; crash and hang strike at cell N. */
static void arm_faults(worker *w) {
    const char *text = getenv("HEADROOM_FAULT");
    char kind[16];
    unsigned long n;
    w->crash_at = w->hang_at = -1;
    if (!text || sscanf(text, "%15[a-z]:%lu", kind, &n) != 2) return;
    if (!strcmp(kind, "alloc")) hr_fault_arm(HR_FAULT_ALLOC, n);
    if (!strcmp(kind, "read")) hr_fault_arm(HR_FAULT_READ, n);
    if (!strcmp(kind, "write")) hr_fault_arm(HR_FAULT_WRITE, n);
    if (!strcmp(kind, "crash")) w->crash_at = (int)n;
    if (!strcmp(kind, "hang")) w->hang_at = (int)n;
}

static bool answer(worker *w, const json_t *request) {
    const char *what = json_string_value(json_object_get(request, "do"));
    json_t *out = NULL;
    hr_status status = HR_ERR_INTERNAL;
    if (what && !strcmp(what, "prepare")) status = prepare(w, request, &out);
    if (what && !strcmp(what, "measure")) status = measure(w, request, &out);
    if (status != HR_OK) {
        /* What the engine does not do is skipped, whatever went wrong failed. Memory is given back for the next cell. */
        close_engine(w);
        const char *word = status == HR_ERR_UNSUPPORTED ? "skipped" : "failed";
        out = json_pack("{s:s, s:s}", "status", word, "error", hr_error());
        if (!out) out = json_pack("{s:s, s:s}", "status", word, "error", hr_status_text(status));
    }
    return say(w->socket, out);
}

void hr_worker_serve(int socket, const hr_measure_options *options) {
    worker w = {.socket = socket, .options = options, .rss_base = rss_anon()};
    arm_faults(&w);
    FILE *in = fdopen(dup(socket), "r");
    char *line = NULL;
    size_t capacity = 0;
    while (in && getline(&line, &capacity, in) > 0) {
        json_t *request = json_loads(line, 0, NULL);
        const bool said = answer(&w, request);
        json_decref(request);
        if (!said) break;
    }
    free(line); /* getline's own memory */
    if (in) fclose(in);
    close_engine(&w);
    hr_model_destroy(w.model);
    limit_power(&w, 0, w.limited);
}
