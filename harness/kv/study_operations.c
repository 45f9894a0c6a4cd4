/* Part "operations": what is done with a sequence beside reading all of it. A point is one operation on one shape: all layouts,
 * cold and warm. Everything but prefill is the work of one thread, as it is in the engine. */
#include "harness/kv/study_arms.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 256, QUERIES = 128, SINKS = 4, ROOM = 256, TOKENS = 32 /* of a warm sample of append */ };

static const struct place {
    uint16_t heads, dim;
    uint32_t context;
    bool quick;
} places[] = {
    {8, 64, 2048, true}, {8, 64, 256, false}, {8, 64, 16384, false}, {1, 64, 4096, false}, {32, 64, 2048, false},
};
enum { PLACES = sizeof places / sizeof *places };

static const uint64_t ARM_QUICK = (uint64_t)100 << 20, ARM_FULL = (uint64_t)400 << 20;

/* One operation of one arm: `run` is timed, `ready` goes before it and `undo` after it. They are run by thread 0. */
typedef struct op_run op_run;
typedef struct operation {
    const char *name;
    hr_kv_op predicted; /* as what */
    uint32_t tokens;    /* 0: none */
    hr_status (*ready)(op_run *r);
    hr_status (*run)(op_run *r);
    hr_status (*undo)(op_run *r);
} operation;

struct op_run {
    hr_study_session *session;
    const hr_study_arms *arms;
    const operation *op;
    bool cold;
    hr_kv_cache *cache; /* of the arm that is sampled */
    size_t arm;
    uint32_t repeat; /* tokens of append */
    const hr_kernel *append;
    hr_study_attend *attend[HR_STUDY_ARMS_MAX]; /* prefill */
    uint8_t *saved, *out;                       /* [saved_bytes] */
    size_t saved_bytes;
    double freed[HR_STUDY_ARMS_MAX];         /* evict: bytes */
    bool counting;                           /* appends walk by the counting kernel */
    hr_kv_counts counted[HR_STUDY_ARMS_MAX]; /* of one sequence */
    hr_status (*job)(op_run *r);
    hr_status status; /* of the job */
};

/* ---- the operations ---- */

static hr_status append_rows(op_run *r, uint32_t from, uint32_t n) {
    const hr_study_shape *s = &r->arms->shape;
    const size_t ld = (size_t)s->heads * s->dim;
    HR_TRY(hr_kv_cache_reserve(r->cache, 0, from + n));
    const hr_kv_seq *view = hr_kv_cache_view(r->cache, 0);
    hr_kv_append_fn *append = r->counting ? hr_kv_append_counted : r->append->fn.kv_append;
    for (uint32_t l = 0; l < s->layers; l++)
        append(view, l, from, r->arms->rows, ld, r->arms->rows + HR_STUDY_ROWS * ld, ld, 0, n, 0, s->heads);
    return HR_OK;
}

static hr_status append_one(op_run *r) {
    for (uint32_t i = 0; i < r->repeat; i++) HR_TRY(append_rows(r, r->arms->shape.context + i, 1));
    return HR_OK;
}

static hr_status append_chunk(op_run *r) {
    return append_rows(r, r->arms->shape.context, CHUNK);
}

static hr_status cut_back(op_run *r) {
    hr_kv_cache_cut(r->cache, 0, r->arms->shape.context);
    return HR_OK;
}

static hr_status fork_all(op_run *r) {
    return hr_kv_cache_fork(r->cache, 0, 1, r->arms->shape.context);
}

static hr_status close_fork(op_run *r) {
    return hr_kv_cache_close(r->cache, 1);
}

static hr_status offload(op_run *r) {
    hr_kv_cache_save(r->cache, 0, r->out);
    return HR_OK;
}

static hr_status open_empty(op_run *r) {
    const hr_kv_request request = {0};
    HR_TRY(hr_kv_cache_close(r->cache, 0));
    return hr_kv_cache_open(r->cache, 0, &request, NULL);
}

static hr_status restore(op_run *r) {
    return hr_kv_cache_load(r->cache, 0, r->saved, r->arms->shape.context, 0, 0);
}

static hr_status evict(op_run *r) {
    return hr_kv_cache_evict(r->cache, 0, SINKS, r->arms->shape.context / 4);
}

/* A sequence of full length again. Its rows are what lies there: finite, and nobody reads them. */
static hr_status refill(op_run *r) {
    HR_TRY(hr_kv_cache_close(r->cache, 0));
    return hr_kv_cache_reserve(r->cache, 0, r->arms->shape.context);
}

/* evict and restore leave other places behind, so they come last */
static const operation operations[] = {
    {"prefill", HR_KV_OP_PREFILL, QUERIES, NULL, NULL, NULL},
    {"append", HR_KV_OP_APPEND, 1, NULL, append_one, cut_back},
    {"append-chunk", HR_KV_OP_APPEND, CHUNK, NULL, append_chunk, cut_back},
    {"fork", HR_KV_OP_FORK, 0, NULL, fork_all, close_fork},
    {"offload", HR_KV_OP_SAVE, 0, NULL, offload, NULL},
    {"evict", HR_KV_OP_EVICT, 0, NULL, evict, refill},
    {"restore", HR_KV_OP_SAVE, 0, open_empty, restore, NULL},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static bool is(const operation *op, const char *name) {
    return !strcmp(op->name, name);
}

/* ---- points ---- */

static const struct place *place_at(const hr_study_options *o, size_t n) {
    for (size_t i = 0; i < PLACES; i++)
        if ((!o->quick || places[i].quick) && n-- == 0) return &places[i];
    return NULL;
}

static size_t points(const hr_study_options *o) {
    size_t n = 0;
    for (size_t i = 0; i < PLACES; i++) n += !o->quick || places[i].quick;
    return n * OPERATIONS;
}

static hr_study_shape shape_of(const hr_study_options *o, size_t point) {
    const struct place *p = place_at(o, point / OPERATIONS);
    hr_study_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.heads = p->heads, s.dim = p->dim, s.group = p->heads == 32 ? 1 : 4;
    s.k_type = s.v_type = HR_BF16;
    s.context = p->context, s.batch = 1, s.room = ROOM, s.spare = 1;
    s.layers = hr_study_layers(&s, o->quick ? ARM_QUICK : ARM_FULL);
    return s;
}

static void key_of(const hr_study_shape *s, const operation *op, bool cold, const hr_study_arm_kind *kind, char *out,
                   size_t n) {
    char arm[40];
    hr_study_arm_text(kind, arm, sizeof arm);
    snprintf(out, n, "%s kv_heads=%u head_dim=%u group=%u %s context=%u batch=1 tokens=%u %s %s", op->name, s->heads,
             s->dim, s->group, hr_dtypes[s->k_type].name, s->context, op->tokens, cold ? "cold" : "warm", arm);
}

static json_t *keys(const hr_study_options *o, size_t point) {
    hr_study_arm_kind kinds[HR_STUDY_ARMS_MAX];
    const hr_study_shape s = shape_of(o, point);
    const size_t n = hr_study_arm_kinds(o->quick, false, kinds);
    json_t *list = json_array();
    char key[256];
    for (int state = 0; list && state < 2; state++)
        for (size_t i = 0; i < n; i++) {
            key_of(&s, &operations[point % OPERATIONS], state == 0, &kinds[i], key, sizeof key);
            json_array_append_new(list, json_string(key));
        }
    return list;
}

static double seconds(const hr_study_options *o, size_t point) {
    (void)point;
    return 2 * hr_study_budget_of(o->quick).max_seconds + 0.5;
}

/* ---- measuring ---- */

static void do_job(void *context, unsigned thread) {
    op_run *r = context;
    if (thread == 0) r->status = r->job(r);
}

/* In thread 0 of the gang; *ns may be NULL. The message of a failure belongs to that thread, so it is said anew. */
static hr_status in_thread(op_run *r, hr_status (*job)(op_run *r), double *ns) {
    if (!job) return HR_OK;
    r->job = job;
    const double time = (double)hr_gang_run(r->session->gang, 1, do_job, r);
    if (ns) *ns = time;
    if (r->status == HR_OK) return HR_OK;
    char arm[40];
    hr_study_arm_text(&r->arms->kinds[r->arm], arm, sizeof arm);
    HR_FAIL(r->status, "kv study: %s of layout %s: %s", r->op->name, arm, hr_status_text(r->status));
}

static hr_status once(op_run *r, double *ns) {
    HR_TRY(in_thread(r, r->op->ready, NULL));
    if (r->cold) hr_study_flush(r->session);
    const double before = is(r->op, "evict") ? (double)hr_kv_cache_stats(r->cache).reserved_bytes : 0;
    HR_TRY(in_thread(r, r->op->run, ns));
    if (is(r->op, "evict")) r->freed[r->arm] = before - (double)hr_kv_cache_stats(r->cache).reserved_bytes;
    return in_thread(r, r->op->undo, NULL);
}

static hr_status sample(void *context, size_t arm, double *ns) {
    op_run *r = context;
    const uint32_t layers = r->arms->shape.layers;
    r->arm = arm, r->cache = r->arms->caches[arm];
    if (r->attend[arm]) { /* prefill: one layer */
        if (r->cold)
            hr_study_flush(r->session);
        else
            hr_study_attend_run(r->attend[arm], 1, layers / 2, true);
        *ns = hr_study_attend_run(r->attend[arm], 1, layers / 2, true);
        return HR_OK;
    }
    r->repeat = r->cold ? 1 : TOKENS;
    double unused;
    if (!r->cold) HR_TRY(once(r, &unused));
    HR_TRY(once(r, ns));
    if (is(r->op, "append")) *ns /= r->repeat;
    return HR_OK;
}

/* Bytes of rows that an operation reads or writes; NaN where it moves none by itself. */
static double bytes_of(const op_run *r) {
    const hr_study_shape *s = &r->arms->shape;
    const double row = (double)hr_study_row_bytes(r->arms);
    if (is(r->op, "prefill")) return row * s->context;
    if (is(r->op, "append") || is(r->op, "append-chunk")) return row * s->layers * r->op->tokens;
    if (is(r->op, "offload") || is(r->op, "restore")) return row * s->layers * s->context;
    return NAN;
}

static json_t *row_of(const op_run *r, const hr_study_series *s, size_t i) {
    const hr_study_arm_kind *kind = &r->arms->kinds[i];
    char key[256];
    double *us = hr_malloc(hr_mul(s->n, sizeof *us));
    if (!us) return NULL;
    for (size_t k = 0; k < s->n; k++) us[k] = s->ns[i * s->stride + k] * 1e-3;
    key_of(&r->arms->shape, r->op, r->cold, kind, key, sizeof key);
    json_t *row = hr_study_row("operations", kind->name, key, us, s->n, "us");
    hr_free(us);
    const char *kernel = r->attend[i] ? hr_study_attend_kernel(r->attend[i]) : NULL;
    if (r->op->predicted == HR_KV_OP_APPEND) kernel = r->append->name;
    hr_study_put_shape(row, r->op->name, r->arms, i, r->attend[i] ? r->session->threads : 1);
    json_object_set_new(row, "tokens", r->op->tokens ? json_integer(r->op->tokens) : json_null());
    json_object_set_new(row, "kernel", kernel ? json_string(kernel) : json_null());
    json_object_set_new(row, "state", json_string(r->cold ? "cold" : "warm"));
    const bool append = r->op->predicted == HR_KV_OP_APPEND;
    hr_study_put_bytes(row, bytes_of(r));
    hr_study_put_touched(row, r->arms, i,
                         (hr_kv_op_shape){.op = r->op->predicted,
                                          .len = r->arms->shape.context + (append ? r->op->tokens : 0),
                                          .n_q = r->op->tokens,
                                          .group = r->arms->shape.group},
                         &r->counted[i], 1);
    if (is(r->op, "evict")) json_object_set_new(row, "freed_bytes", json_integer((json_int_t)r->freed[i]));
    hr_study_put_series(row, &r->session->counters, s, i);
    return row;
}

static hr_status set_up(op_run *r, size_t n) {
    const hr_study_shape *s = &r->arms->shape;
    r->append = hr_study_kernel(HR_FAM_KV_APPEND, s->k_type, s->v_type, r->op->tokens ? r->op->tokens : 1);
    for (size_t i = 0; i < n && is(r->op, "prefill"); i++)
        HR_TRY(hr_study_attend_create(r->session, r->arms, i, QUERIES, NULL, &r->attend[i]));
    if (!is(r->op, "offload") && !is(r->op, "restore")) return HR_OK;
    r->saved_bytes = hr_kv_cache_saved_bytes(r->arms->caches[0], 0); /* the same bytes from every layout */
    r->saved = hr_pages_alloc(r->saved_bytes, true), r->out = hr_pages_alloc(r->saved_bytes, true);
    if (!r->saved || !r->out)
        HR_FAIL(HR_ERR_MEMORY, "kv study: no memory for %zu MiB off-loaded", r->saved_bytes >> 20);
    hr_kv_cache_save(r->arms->caches[0], 0, r->saved);
    return HR_OK;
}

/* The operation once more, walked by what counts, in this thread. */
static hr_status count(op_run *r, size_t arm) {
    r->arm = arm, r->cache = r->arms->caches[arm];
    if (r->attend[arm]) return hr_study_attend_count(r->attend[arm], &r->counted[arm]);
    if (r->op->ready) HR_TRY(r->op->ready(r));
    r->counting = true, r->repeat = 1;
    HR_TRY(hr_kv_count_begin());
    const hr_status status = r->op->run(r), ended = hr_kv_count_end(&r->counted[arm]);
    r->counting = false;
    HR_TRY(status);
    HR_TRY(ended);
    return r->op->undo ? r->op->undo(r) : HR_OK;
}

static hr_status measure_both(const hr_study_options *o, op_run *r, size_t n, json_t *rows) {
    const hr_study_budget budget = hr_study_budget_of(o->quick);
    HR_TRY(set_up(r, n));
    for (size_t i = 0; i < n; i++) HR_TRY(count(r, i));
    for (int state = 0; state < 2; state++) {
        const size_t first = json_array_size(rows);
        hr_study_series series;
        r->cold = state == 0;
        HR_TRY(hr_study_state_before(r->session));
        HR_TRY(hr_study_interleave(r->session, o, &budget, n, sample, r, &series));
        for (size_t i = 0; i < n; i++) json_array_append_new(rows, row_of(r, &series, i));
        hr_study_series_fini(&series);
        HR_TRY(hr_study_state_after(r->session, rows, first));
    }
    return HR_OK;
}

static hr_status measure(hr_study_session *session, const hr_study_options *o, size_t point, json_t *rows) {
    const hr_study_shape shape = shape_of(o, point);
    hr_study_arm_kind kinds[HR_STUDY_ARMS_MAX];
    hr_study_arms *arms;
    HR_TRY(hr_study_arms_get(session, &shape, o->quick, &arms));
    op_run r = {.session = session, .arms = arms, .op = &operations[point % OPERATIONS]};
    const hr_status status = measure_both(o, &r, hr_study_arm_kinds(o->quick, false, kinds), rows);
    for (size_t i = 0; i < HR_STUDY_ARMS_MAX; i++) hr_study_attend_destroy(r.attend[i]);
    if (r.saved) hr_pages_free(r.saved, r.saved_bytes);
    if (r.out) hr_pages_free(r.out, r.saved_bytes);
    if (status != HR_OK) { /* a sequence may be left half done */
        hr_study_arms_destroy(session->arms);
        session->arms = NULL;
    }
    return status;
}

const hr_study_part hr_study_operations = {"operations", points, keys, seconds, measure};
