/* Attention over a cache by all threads, as the engine runs it: units shared out by number, split units merged behind a
 * barrier. */
#include "harness/kv/study_arms.h"

#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

enum { SPINS_BEFORE_YIELD = 20000 };

struct hr_study_attend {
    hr_study_session *session;
    const hr_kernel *attn, *merge;
    hr_study_shape shape;
    hr_attn *calls; /* [layers][batch] */
    size_t units;   /* of a call */
    bool split;
    float *q, *out; /* [batch][n_q][heads * group * dim] */
    float *partial; /* [batch][partial_floats] */
    char *scratch;  /* [threads][scratch_bytes] */
    size_t q_bytes, partial_floats, partial_bytes, scratch_bytes;
    uint32_t passes, first;
    bool stay;
    char apart[64];
    _Atomic uint32_t arrived;
};

/* All threads have come here `times` times. */
static void meet(hr_study_attend *a, uint32_t times) {
    const uint32_t want = times * a->session->threads;
    atomic_fetch_add_explicit(&a->arrived, 1, memory_order_acq_rel);
    for (unsigned spins = 0; atomic_load_explicit(&a->arrived, memory_order_acquire) < want; spins++)
        if (spins < SPINS_BEFORE_YIELD)
            hr_cpu_relax();
        else
            sched_yield();
}

static void attend_share(void *context, unsigned thread) {
    hr_study_attend *a = context;
    const hr_study_shape *s = &a->shape;
    const unsigned n = a->session->threads;
    const size_t all = a->units * s->batch, u0 = all * thread / n, u1 = all * (thread + 1) / n;
    const size_t merges = (size_t)s->batch * s->heads, m0 = merges * thread / n, m1 = merges * (thread + 1) / n;
    char *scratch = a->scratch + thread * a->scratch_bytes;
    for (uint32_t p = 0; p < a->passes; p++) {
        const hr_attn *calls = a->calls + (size_t)(a->stay ? a->first : (a->first + p) % s->layers) * s->batch;
        for (size_t u = u0; u < u1;) {
            const size_t seq = u / a->units, from = u % a->units, left = u1 - u;
            const size_t to = from + left < a->units ? from + left : a->units;
            a->attn->fn.attn(&calls[seq], from, to, scratch);
            u += to - from;
        }
        if (!a->split) continue;
        meet(a, 2 * p + 1);
        for (size_t m = m0; m < m1; m++) a->merge->fn.attn_merge(&calls[m / s->heads], m % s->heads, m % s->heads + 1);
        meet(a, 2 * p + 2);
    }
}

double hr_study_attend_run(hr_study_attend *a, uint32_t passes, uint32_t first, bool stay) {
    a->passes = passes, a->first = first, a->stay = stay;
    atomic_store(&a->arrived, 0);
    return (double)hr_gang_run(a->session->gang, a->session->threads, attend_share, a);
}

static hr_status set_up(hr_study_attend *a, const hr_study_arms *arms, size_t arm, uint32_t n_q) {
    const hr_study_shape *s = &a->shape;
    const uint32_t heads = s->heads * s->group;
    const size_t ld = (size_t)heads * s->dim;
    uint64_t rng = 5;
    a->q_bytes = s->batch * n_q * ld * sizeof(float);
    a->partial_floats = hr_attn_partial_floats(heads, s->heads, s->dim, s->context);
    a->partial_bytes = s->batch * a->partial_floats * sizeof(float);
    a->scratch_bytes = hr_align_up(hr_attn_scratch(s->dim, s->group, s->context, true), 4096);
    a->calls = hr_calloc((size_t)s->layers * s->batch, sizeof *a->calls);
    a->q = hr_pages_alloc(a->q_bytes, true);
    a->out = hr_pages_alloc(a->q_bytes, true);
    a->partial = hr_pages_alloc(a->partial_bytes, true);
    a->scratch = hr_pages_alloc(a->scratch_bytes * a->session->threads, true);
    if (!a->calls || !a->q || !a->out || !a->partial || !a->scratch)
        HR_FAIL(HR_ERR_MEMORY, "kv study: no memory for attention over %u sequences", s->batch);
    for (size_t i = 0; i < s->batch * n_q * ld; i++)
        a->q[i] = (float)((double)(hr_random(&rng) >> 11) / 4503599627370496.0 - 1);
    for (size_t i = 0; i < (size_t)s->layers * s->batch; i++) {
        const size_t seq = i % s->batch;
        hr_attn *c = &a->calls[i];
        *c = (hr_attn){.kv = hr_kv_cache_view(arms->caches[arm], (uint32_t)seq),
                       .layer = (uint32_t)(i / s->batch),
                       .n_heads = heads,
                       .n_kv_heads = s->heads,
                       .head_dim = s->dim,
                       .n_q = n_q,
                       .pos0 = s->context - n_q,
                       .q = a->q + seq * n_q * ld,
                       .out = a->out + seq * n_q * ld,
                       .ldq = ld,
                       .ldo = ld,
                       .scale = 1 / sqrtf((float)s->dim)};
        a->split = hr_attn_is_split(c);
        if (a->split) c->partial = a->partial + seq * a->partial_floats;
    }
    a->units = hr_attn_units(&a->calls[0]);
    return HR_OK;
}

hr_status hr_study_attend_create(hr_study_session *session, const hr_study_arms *arms, size_t arm, uint32_t n_q,
                                 const hr_kernel *kernel, hr_study_attend **out) {
    hr_study_attend *a = hr_calloc(1, sizeof *a);
    if (!a) HR_FAIL(HR_ERR_MEMORY, "kv study: out of memory");
    a->session = session, a->shape = arms->shape;
    a->attn = kernel ? kernel : hr_study_kernel(HR_FAM_ATTN, a->shape.k_type, a->shape.v_type, n_q);
    a->merge = hr_study_kernel(HR_FAM_ATTN_MERGE, a->shape.k_type, a->shape.v_type, n_q);
    const hr_status status = set_up(a, arms, arm, n_q);
    if (status == HR_OK)
        *out = a;
    else
        hr_study_attend_destroy(a);
    return status;
}

hr_status hr_study_attend_count(hr_study_attend *a, hr_kv_counts *out) {
    HR_TRY(hr_kv_count_begin());
    hr_attn_counted(&a->calls[0], 0, a->units, a->scratch);
    return hr_kv_count_end(out);
}

void hr_study_attend_destroy(hr_study_attend *a) {
    if (!a) return;
    if (a->q) hr_pages_free(a->q, a->q_bytes);
    if (a->out) hr_pages_free(a->out, a->q_bytes);
    if (a->partial) hr_pages_free(a->partial, a->partial_bytes);
    if (a->scratch) hr_pages_free(a->scratch, a->scratch_bytes * a->session->threads);
    hr_free(a->calls);
    hr_free(a);
}

const char *hr_study_attend_kernel(const hr_study_attend *a) {
    return a->attn->name;
}
