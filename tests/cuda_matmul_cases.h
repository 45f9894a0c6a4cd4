/* cuda_matmul_cases.h - a row of matrix products for GPUs against products in double precision: all its types of weights, odd shapes, several
 * matrices, bias, addition, gated activation, more tokens than the batch has, logits alone.
 *
 * Tolerances: sums are fp32 in an order of their own, so they may differ from the exact sum by as much as cols / 32 + 64 roundings of
 * the sum of |products| (a lane's chain, then a tree and a few joins; a group's scale and product round too); 2^-24 each. Rows that
 * round weights to bf16 add 2^-9 of the sum of |products|. */
#ifndef HR_CUDA_MATMUL_CASES_H
#define HR_CUDA_MATMUL_CASES_H

#include "tests/cuda_fixture.h"

typedef struct shape_case {
    uint32_t rows[HR_CUDA_MATS], cols, n, live; /* live: tokens of the batch; n: the bound of the launch */
    bool bias, add, logits;
    hr_cuda_glu_kind glu;
    int out; /* hr_act, -1: floats */
} shape_case;

typedef struct run_case {
    hr_cuda_weights w[HR_CUDA_MATS];
    hr_cuda_acts x;
    float *y[HR_CUDA_MATS], *bias[HR_CUDA_MATS], *before[HR_CUDA_MATS];
    double *want[HR_CUDA_MATS], *limit[HR_CUDA_MATS];
    uint32_t n_mats;
    hr_cuda_acts out;
    hr_cuda_test_batch batch;
    hr_cuda_matmul p;
} run_case;

static inline double hr_case_glu_value(hr_cuda_glu_kind kind, double gate, double up) {
    if (kind == HR_CUDA_GLU_SILU) return gate / (1 + exp(-gate)) * up;
    return 0.5 * gate * (1 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up;
}

/* Exact value of one output, before anything is added, and how far fp32 may be from it. */
static inline double hr_case_exact(const run_case *r, uint32_t m, uint32_t row, uint32_t t, double relative,
                                   double *limit) {
    const size_t cols = r->w[m].m.cols;
    const float *w = r->w[m].values + row * cols;
    double sum = 0, size = 0;
    for (size_t c = 0; c < cols; c++) {
        const double v = (double)w[c] * hr_cuda_act_value(&r->x, t, c);
        sum += v, size += fabs(v);
    }
    if (r->bias[m]) sum += (double)r->bias[m][row], size += fabs((double)r->bias[m][row]);
    *limit = relative * size + 1e-7;
    return sum;
}

static inline void hr_case_expect(run_case *r, const shape_case *s, double relative) {
    for (uint32_t m = 0; m < (s->glu ? 1 : r->n_mats); m++) {
        const uint32_t rows = s->rows[m];
        for (uint32_t t = 0; t < s->live; t++)
            for (uint32_t row = 0; row < rows; row++) {
                const size_t i = (size_t)t * rows + row;
                double limit, up_limit = 0;
                double v = hr_case_exact(r, m, row, t, relative, &limit);
                if (s->glu) { /* |act'| is below 1.13; exp and tanh of fp32 within a few units */
                    const double up = hr_case_exact(r, 1, row, t, relative, &up_limit);
                    const double gated = hr_case_glu_value(s->glu, v, up);
                    limit = 1.13 * limit * fabs(up) + fabs(hr_case_glu_value(s->glu, v, 1)) * up_limit +
                            limit * up_limit + 1e-6 * fabs(gated) + 1e-6 * fabs(up);
                    v = gated;
                }
                if (s->add) v += (double)r->before[m][i];
                r->want[m][i] = v;
                r->limit[m][i] = limit + ldexp(fabs(v), -23);
            }
    }
}

static inline void hr_case_make_case(run_case *r, const shape_case *s, hr_dtype dtype, hr_act act) {
    uint64_t seed = s->cols + 1000 * s->rows[0] + dtype;
    const uint32_t pos0 = 0;
    *r = (run_case){0};
    for (; r->n_mats < HR_CUDA_MATS && s->rows[r->n_mats]; r->n_mats++) {
        const uint32_t m = r->n_mats;
        const size_t outputs = (size_t)s->n * s->rows[m];
        r->w[m] = hr_cuda_make_weights(dtype, s->rows[m], s->cols, seed++);
        r->y[m] = hr_cuda_alloc(outputs * sizeof(float));
        r->before[m] = hr_cuda_floats(outputs, seed++);
        r->bias[m] = s->bias ? hr_cuda_floats(s->rows[m], seed++) : NULL;
        r->want[m] = hr_calloc(outputs, sizeof(double));
        r->limit[m] = hr_calloc(outputs, sizeof(double));
    }
    float *x = hr_cuda_floats((size_t)s->n * s->cols, seed++);
    r->x = hr_cuda_make_acts(act, x, s->n, s->cols);
    hr_cuda_free(x);
    r->batch = hr_cuda_make_batch(1, s->n, &pos0, 100, 1);
    r->batch.b->n = s->logits ? 1 : s->live;
    r->batch.b->n_logits = s->logits ? s->live : 1;
    if (s->out >= 0) r->out = hr_cuda_alloc_acts((hr_act)s->out, s->n, s->rows[0]);
    r->p = (hr_cuda_matmul){.batch = r->batch.b,
                            .x = r->x,
                            .out = r->out,
                            .workspace = hr_cuda_workspace(),
                            .n_mats = r->n_mats,
                            .n = s->n,
                            .glu = s->glu,
                            .add = s->add,
                            .logits = s->logits};
    for (uint32_t m = 0; m < r->n_mats; m++) {
        r->p.w[m] = r->w[m].m;
        r->p.y[m] = s->glu && (m || s->out >= 0) ? NULL : r->y[m];
        r->p.bias[m] = r->bias[m];
        r->p.ldy[m] = s->rows[m];
    }
}

static inline void hr_case_free_case(run_case *r) {
    for (uint32_t m = 0; m < r->n_mats; m++) {
        hr_cuda_free_weights(&r->w[m]);
        hr_cuda_free(r->y[m]), hr_cuda_free(r->bias[m]), hr_cuda_free(r->before[m]);
        hr_free(r->want[m]), hr_free(r->limit[m]);
    }
    hr_cuda_free_acts(&r->x), hr_cuda_free_acts(&r->out);
    hr_cuda_free_batch(&r->batch);
}

static inline void hr_case_check_value(double got, const run_case *r, const shape_case *s, uint32_t m, size_t i,
                                       double limit, const char *what) {
    if (fabs(got - r->want[m][i]) <= limit) return;
    fail_msg("%s (%s): matrix %u [%u][%u] n %u of %u: token %zu row %zu: expected %.9g, got %.9g, tolerance %.3g", what,
             hr_cuda_mode_name(), m, s->rows[m], s->cols, s->live, s->n, i / s->rows[m], i % s->rows[m], r->want[m][i],
             got, limit);
}

/* Outputs of live tokens are what they should be, and those of others as they were. */
static inline void hr_case_check(const run_case *r, const shape_case *s, const char *what) {
    for (uint32_t m = 0; m < (s->glu ? 1 : r->n_mats) && s->out < 0; m++) {
        const size_t live = (size_t)s->live * s->rows[m];
        for (size_t i = 0; i < live; i++) hr_case_check_value((double)r->y[m][i], r, s, m, i, r->limit[m][i], what);
        for (size_t i = live; i < (size_t)s->n * s->rows[m]; i++) {
            if (memcmp(&r->y[m][i], &(uint32_t){0xffffffffu}, 4) == 0) continue;
            fail_msg("%s (%s): output %zu of a token that the batch does not have was written", what,
                     hr_cuda_mode_name(), i);
        }
    }
    if (s->out < 0) return;
    for (size_t t = 0; t < s->live; t++)
        for (size_t c = 0; c < r->out.ld; c++) {
            const double got = hr_cuda_act_value(&r->out, t, c);
            if (c < s->rows[0]) {
                const size_t i = t * s->rows[0] + c;
                hr_case_check_value(got, r, s, 0, i,
                                    r->limit[0][i] + (s->out == HR_ACT_BF16 ? ldexp(fabs(r->want[0][i]), -8) : 0),
                                    what);
            } else if (got != 0)
                fail_msg("%s (%s): activation %zu past the last of token %zu is %g, not 0", what, hr_cuda_mode_name(),
                         c, t, got);
        }
}

static inline void hr_case_run(const hr_kernel *row, const shape_case *s, hr_dtype dtype, bool all_modes) {
    run_case r;
    hr_case_make_case(&r, s, dtype, (hr_act)row->act);
    const bool rounds = row->unit == HR_UNIT_BF16 && dtype != HR_BF16;
    hr_case_expect(&r, s, ldexp(s->cols / 32.0 + 64, -24) + (rounds ? ldexp(1, -9) : 0));
    char what[96];
    snprintf(what, sizeof what, "%s of %s", row->name, hr_dtypes[dtype].name);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        for (uint32_t i = 0; i < r.n_mats; i++) {
            hr_cuda_poison(r.y[i]);
            if (s->add) memcpy(r.y[i], r.before[i], (size_t)s->live * s->rows[i] * sizeof(float));
        }
        if (r.out.data) hr_cuda_poison(r.out.data);
        hr_cuda_matmul p = r.p;
        hr_cuda_run(row, &p);
        hr_case_check(&r, s, what);
        if (!all_modes) break;
    }
    hr_case_free_case(&r);
}

/* Whether an earlier row of the table has the same kernel. */
static inline bool hr_case_is_again(const hr_kernel *row) {
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_cuda_kernel_at(i)) != row; i++)
        if (strcmp(k->fn.cuda.symbol, row->fn.cuda.symbol) == 0) return true;
    return false;
}

/* The first type of a kernel in all modes and cases; the others, whose order of threads is the same code, in one mode and some of the
 * cases, another for each type and row. */
static inline void hr_case_run_row(const hr_kernel *row, const shape_case *cases, size_t n_cases) {
    static size_t turn;
    bool first = !hr_case_is_again(row);
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        if (!(row->dtypes >> t & 1)) continue;
        const size_t some = hr_test_quick() ? 1 : 2, from = turn++;
        for (size_t i = 0; i < n_cases; i++) {
            if (!first && (i + from) % n_cases >= some) continue;
            shape_case s = cases[i];
            s.cols = (s.cols + hr_dtypes[t].block_elems - 1) / hr_dtypes[t].block_elems * hr_dtypes[t].block_elems;
            if (s.n < row->n_min) s.n = s.live = row->n_min;
            if (row->n_max && s.n > row->n_max) {
                s.n = row->n_max;
                s.live = s.live < s.n ? s.live : s.n;
            }
            hr_case_run(row, &s, (hr_dtype)t, first);
        }
        first = false;
    }
}

#endif
