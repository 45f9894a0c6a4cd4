/* Part "layouts": attention reads all positions of a batch of sequences. Along three axes from the shape of Llama 3.2 1B
 * (8 KV heads of 64): context, batch, number of heads; each cold and warm. A point is one shape: all layouts in both states. */
#include "harness/kv/study_arms.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct place {
    uint16_t heads, dim;
    uint32_t context, batch;
    bool quick;
} places[] = {
    /* context: from L1 to DRAM */
    {8, 64, 16, 1, false},
    {8, 64, 128, 1, true},
    {8, 64, 512, 1, false},
    {8, 64, 1024, 1, true},
    {8, 64, 4096, 1, true},
    {8, 64, 16384, 1, true},
    {8, 64, 65536, 1, false},
    /* batch */
    {8, 64, 1024, 4, false},
    {8, 64, 1024, 16, true},
    {8, 64, 1024, 64, false},
    {8, 64, 256, 256, false},
    {8, 64, 64, 256, true},
    /* heads */
    {1, 64, 4096, 1, true},
    {2, 64, 4096, 1, true},
    {4, 64, 4096, 1, true},
    {32, 64, 1024, 1, true},
    {32, 64, 4096, 1, false},
    {1, 64, 1024, 16, false},
    {2, 64, 1024, 16, false},
    {4, 64, 1024, 16, false},
    {32, 64, 1024, 16, false},
    /* rows of 128 */
    {8, 128, 1024, 1, false},
    {8, 128, 4096, 1, false},
    {8, 128, 16384, 1, false},
};
enum { PLACES = sizeof places / sizeof *places };

/* Bytes that one arm's cache may take; up to 14 arms live side by side. */
static const uint64_t ARM_QUICK = (uint64_t)80 << 20, ARM_FULL = (uint64_t)400 << 20;
/* A sample lasts at least so long. */
static const double SAMPLE_NS = 1e5;

static const struct place *place_at(const hr_study_options *o, size_t point) {
    for (size_t i = 0; i < PLACES; i++)
        if ((!o->quick || places[i].quick) && point-- == 0) return &places[i];
    return NULL;
}

static size_t points(const hr_study_options *o) {
    size_t n = 0;
    for (size_t i = 0; i < PLACES; i++) n += !o->quick || places[i].quick;
    return n;
}

static hr_study_shape shape_of(const hr_study_options *o, const struct place *p) {
    hr_study_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.heads = p->heads, s.dim = p->dim, s.group = p->heads == 32 ? 1 : 4;
    s.k_type = s.v_type = HR_BF16;
    s.context = p->context, s.batch = p->batch;
    s.layers = hr_study_layers(&s, o->quick ? ARM_QUICK : ARM_FULL);
    return s;
}

static void key_of(const hr_study_shape *s, const char *state, const hr_study_arm_kind *kind, char *out, size_t n) {
    char arm[40];
    hr_study_arm_text(kind, arm, sizeof arm);
    snprintf(out, n, "decode kv_heads=%u head_dim=%u group=%u %s context=%u batch=%u %s %s", s->heads, s->dim, s->group,
             hr_dtypes[s->k_type].name, s->context, s->batch, state, arm);
}

static const char *const states[] = {"cold", "warm"};

static json_t *keys(const hr_study_options *o, size_t point) {
    hr_study_arm_kind kinds[HR_STUDY_ARMS_MAX];
    const hr_study_shape s = shape_of(o, place_at(o, point));
    const size_t n = hr_study_arm_kinds(o->quick, hr_study_best_kernel(s.k_type, s.v_type) != NULL, kinds);
    json_t *list = json_array();
    char key[256];
    for (int state = 0; list && state < 2; state++)
        for (size_t i = 0; i < n; i++) {
            key_of(&s, states[state], &kinds[i], key, sizeof key);
            json_array_append_new(list, json_string(key));
        }
    return list;
}

static double seconds(const hr_study_options *o, size_t point) {
    (void)point;
    return 2 * hr_study_budget_of(o->quick).max_seconds + 1;
}

/* ---- measuring ---- */

typedef struct reading {
    hr_study_session *session;
    hr_study_attend *attend[HR_STUDY_ARMS_MAX];
    uint32_t layers, passes, warm_passes; /* of a warm sample, and of what goes before it */
    bool cold;
    hr_kv_counts counted[HR_STUDY_ARMS_MAX]; /* of one sequence, one layer */
} reading;

/* ns of one layer. Cold: every layer once, each in memory that nobody has read since the caches were emptied. Warm: one
 * layer again and again. */
static hr_status sample(void *context, size_t arm, double *ns) {
    reading *r = context;
    if (r->cold) {
        hr_study_flush(r->session);
        *ns = hr_study_attend_run(r->attend[arm], r->layers, 0, false) / r->layers;
    } else {
        hr_study_attend_run(r->attend[arm], r->warm_passes, r->layers / 2, true);
        *ns = hr_study_attend_run(r->attend[arm], r->passes, r->layers / 2, true) / r->passes;
    }
    return HR_OK;
}

static json_t *row_of(const hr_study_arms *arms, const reading *r, const hr_study_series *s, size_t i) {
    const hr_study_arm_kind *kind = &arms->kinds[i];
    const hr_study_shape *shape = &arms->shape;
    char key[256];
    double *us = hr_malloc(hr_mul(s->n, sizeof *us));
    if (!us) return NULL;
    for (size_t k = 0; k < s->n; k++) us[k] = s->ns[i * s->stride + k] * 1e-3;
    key_of(shape, states[!r->cold], kind, key, sizeof key);
    json_t *row = hr_study_row("layouts", kind->name, key, us, s->n, "us");
    hr_free(us);
    const double bytes = (double)hr_study_row_bytes(arms) * shape->context * shape->batch;
    hr_study_put_shape(row, "decode", arms, i, r->session->threads);
    json_object_set_new(row, "tokens", json_null());
    json_object_set_new(row, "kernel", json_string(hr_study_attend_kernel(r->attend[i])));
    json_object_set_new(row, "state", json_string(states[!r->cold]));
    hr_study_put_bytes(row, bytes);
    hr_study_put_touched(row, arms, i, (hr_kv_op_shape){.op = HR_KV_OP_DECODE, .len = shape->context}, &r->counted[i],
                         shape->batch);
    hr_study_put_series(row, &r->session->counters, s, i);
    return row;
}

static hr_status measure_state(const hr_study_options *o, const hr_study_arms *arms, reading *r, json_t *rows) {
    const hr_study_budget budget = hr_study_budget_of(o->quick);
    hr_study_series series;
    if (!r->cold) { /* passes by the time of one */
        const double bytes = (double)hr_study_row_bytes(arms) * arms->shape.context * arms->shape.batch;
        r->warm_passes = bytes < 4e6 ? 2 : 1;
        hr_study_attend_run(r->attend[0], 2, 0, true);
        const double once = hr_study_attend_run(r->attend[0], 2, 0, true) / 2;
        r->passes = (uint32_t)fmin(5000, fmax(1, ceil(SAMPLE_NS / once)));
    }
    HR_TRY(hr_study_interleave(r->session, o, &budget, arms->n, sample, r, &series));
    for (size_t i = 0; i < arms->n; i++) json_array_append_new(rows, row_of(arms, r, &series, i));
    hr_study_series_fini(&series);
    return HR_OK;
}

static hr_status measure_both(const hr_study_options *o, const hr_study_arms *arms, reading *r, json_t *rows) {
    for (size_t i = 0; i < arms->n; i++) {
        const hr_kernel *best =
            arms->kinds[i].best ? hr_study_best_kernel(arms->shape.k_type, arms->shape.v_type) : NULL;
        HR_TRY(hr_study_attend_create(r->session, arms, i, 1, best, &r->attend[i]));
        if (best)
            r->counted[i] = r->counted[0]; /* it walks no runs: its rows are those of head */
        else
            HR_TRY(hr_study_attend_count(r->attend[i], &r->counted[i]));
    }
    for (int state = 0; state < 2; state++) {
        const size_t first = json_array_size(rows);
        r->cold = state == 0;
        HR_TRY(hr_study_state_before(r->session));
        HR_TRY(measure_state(o, arms, r, rows));
        HR_TRY(hr_study_state_after(r->session, rows, first));
    }
    return HR_OK;
}

static hr_status measure(hr_study_session *session, const hr_study_options *o, size_t point, json_t *rows) {
    const hr_study_shape shape = shape_of(o, place_at(o, point));
    hr_study_arms *arms;
    HR_TRY(hr_study_arms_get(session, &shape, o->quick, &arms));
    reading r = {.session = session, .layers = shape.layers};
    const hr_status status = measure_both(o, arms, &r, rows);
    for (size_t i = 0; i < arms->n; i++) hr_study_attend_destroy(r.attend[i]);
    return status;
}

const hr_study_part hr_study_layouts = {"layouts", points, keys, seconds, measure};
