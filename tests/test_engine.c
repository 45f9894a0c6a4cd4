/* The engine on a small synthetic model: against an independent forward pass in double precision, and against itself
 * (decode = prefill, batch row = row alone, micro-batches = whole, layouts to the bit), its work and its records. */
#include "tests/hr_test.h"

#include "engine/model/model.h"
#include "engine/probe.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <stdlib.h>

enum { VOCAB = 320, N = 150 };
static const char *const SPEC =
    "synth:tiny:layers=3:dim=192:heads=6:kv_heads=2:head_dim=32:ffn=352:vocab=320:ctx=1024:seed=5";

/* Tolerance of cli.md for f32 weights and KV; what two orders of fp32 sums differ by is some 1e-5. */
static const double EXACT = 1e-3;

static hr_model *load(hr_quant quant) {
    hr_model *m = NULL;
    hr_load_options o = {.quant = quant};
    if (hr_model_load(SPEC, &o, &m) != HR_OK) fail_msg("%s", hr_error());
    return m;
}

static hr_engine_config exact_config(void) {
    hr_engine_config c = hr_engine_config_default();
    c.threads = 2, c.act = HR_ACT_F32, c.k_type = c.v_type = HR_F32, c.ctx = 1024, c.pin = false;
    return c;
}

static hr_engine *open_engine(const hr_model *m, hr_engine_config c) {
    hr_engine *e = NULL;
    if (hr_engine_create(m, &c, &e) != HR_OK) fail_msg("%s", hr_error());
    return e;
}

static void ids(int32_t *out, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = (int32_t)((seed >> 33) % VOCAB);
    }
}

#define OK(call)                                                    \
    do {                                                            \
        if ((call) != HR_OK) fail_msg("%s: %s", #call, hr_error()); \
    } while (0)

/* ---- a forward pass written again, plainly, in double ---- */

static double *dmat(const hr_mat *m) {
    double *w = calloc(m->rows * m->cols, sizeof *w);
    float *row = calloc(m->cols, sizeof *row);
    for (size_t r = 0; r < m->rows; r++) {
        hr_mat_row_f32(m, r, row);
        for (size_t c = 0; c < m->cols; c++) w[r * m->cols + c] = (double)row[c];
    }
    free(row);
    return w;
}

static void dmul(const hr_mat *m, const double *x, size_t n, double *y) {
    double *w = dmat(m);
    for (size_t t = 0; t < n; t++)
        for (size_t r = 0; r < m->rows; r++) {
            double s = 0;
            for (size_t c = 0; c < m->cols; c++) s += w[r * m->cols + c] * x[t * m->cols + c];
            y[t * m->rows + r] = s;
        }
    free(w);
}

static void dnorm(const double *x, const float *w, double eps, size_t dim, size_t n, double *y) {
    for (size_t t = 0; t < n; t++) {
        double s = 0;
        for (size_t i = 0; i < dim; i++) s += x[t * dim + i] * x[t * dim + i];
        for (size_t i = 0; i < dim; i++) y[t * dim + i] = x[t * dim + i] / sqrt(s / (double)dim + eps) * (double)w[i];
    }
}

static void drope(const hr_model *m, double *x, size_t heads, size_t n) {
    const size_t hd = m->hp.head_dim;
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < m->hp.rope_dims / 2; i++) {
                size_t a = m->arch->rope_interleaved ? 2 * i : i;
                size_t b = m->arch->rope_interleaved ? 2 * i + 1 : i + m->hp.rope_dims / 2;
                double *v = x + (t * heads + h) * hd, angle = (double)t * m->rope_freq[i], va = v[a], vb = v[b];
                v[a] = va * cos(angle) - vb * sin(angle), v[b] = va * sin(angle) + vb * cos(angle);
            }
}

static void dattention(const hr_model *m, const double *q, const double *k, const double *v, size_t n, double *out) {
    const size_t H = m->hp.n_heads, K = m->hp.n_kv_heads, hd = m->hp.head_dim;
    double *s = calloc(n, sizeof *s);
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < H; h++) {
            double max = -INFINITY, sum = 0, *o = out + (t * H + h) * hd;
            const size_t g = h / (H / K);
            for (size_t p = 0; p <= t; p++) {
                s[p] = 0;
                for (size_t i = 0; i < hd; i++) s[p] += q[(t * H + h) * hd + i] * k[(p * K + g) * hd + i];
                s[p] /= sqrt((double)hd);
                max = fmax(max, s[p]);
            }
            for (size_t p = 0; p <= t; p++) sum += s[p] = exp(s[p] - max);
            for (size_t i = 0; i < hd; i++) {
                o[i] = 0;
                for (size_t p = 0; p <= t; p++) o[i] += s[p] / sum * v[(p * K + g) * hd + i];
            }
        }
    free(s);
}

/* Logits of all n tokens, as floats. */
static void reference(const hr_model *m, const int32_t *tokens, size_t n, float *logits) {
    const size_t dim = m->hp.dim, Q = m->hp.n_heads * m->hp.head_dim, K = m->hp.n_kv_heads * m->hp.head_dim;
    double *x = calloc(n * dim, 8), *h = calloc(n * dim, 8), *q = calloc(n * Q, 8), *k = calloc(n * K, 8),
           *v = calloc(n * K, 8), *a = calloc(n * Q, 8), *g = calloc(n * m->hp.ffn, 8), *u = calloc(n * m->hp.ffn, 8),
           *y = calloc(n * (dim > VOCAB ? dim : VOCAB), 8), *e = dmat(&m->embed);
    for (size_t t = 0; t < n; t++) memcpy(x + t * dim, e + (size_t)tokens[t] * dim, dim * 8);
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        const hr_layer *w = &m->layers[l];
        dnorm(x, w->attn_norm, (double)m->hp.rms_eps, dim, n, h);
        dmul(&w->wq, h, n, q), dmul(&w->wk, h, n, k), dmul(&w->wv, h, n, v);
        drope(m, q, m->hp.n_heads, n), drope(m, k, m->hp.n_kv_heads, n);
        dattention(m, q, k, v, n, a);
        dmul(&w->wo, a, n, y);
        for (size_t i = 0; i < n * dim; i++) x[i] += y[i];
        dnorm(x, w->ffn_norm, (double)m->hp.rms_eps, dim, n, h);
        dmul(&w->gate, h, n, g), dmul(&w->up, h, n, u);
        for (size_t i = 0; i < n * m->hp.ffn; i++) g[i] = g[i] / (1 + exp(-g[i])) * u[i];
        dmul(&w->down, g, n, y);
        for (size_t i = 0; i < n * dim; i++) x[i] += y[i];
    }
    dnorm(x, m->output_norm, (double)m->hp.rms_eps, dim, n, h);
    dmul(&m->head, h, n, y);
    for (size_t i = 0; i < n * VOCAB; i++) logits[i] = (float)y[i];
    free(x), free(h), free(q), free(k), free(v), free(a), free(g), free(u), free(y), free(e);
}

static void forward_agrees_with_double_precision(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_F32);
    int32_t tokens[N];
    ids(tokens, N, 1);
    float *want = calloc(N * VOCAB, sizeof *want), *got = calloc(N * VOCAB, sizeof *got);
    reference(m, tokens, N, want);
    hr_isa runs;
    for (int isa = HR_ISA_GENERIC; isa <= (int)hr_isa_best(); isa++)
        for (int flash = 0; flash < 2; flash++) {
            if (hr_isa_resolve((hr_isa)isa, &runs) != HR_OK) continue; /* avx512 without avxvnni */
            hr_engine_config c = exact_config();
            c.isa = (hr_isa)isa, c.flash = flash;
            hr_engine *e = open_engine(m, c);
            OK(hr_engine_prefill_all(e, 0, tokens, N, got));
            /* fp32 against fp64 through three layers; llama.cpp is within 6e-5 on thirty layers */
            hr_assert_near(got, want, N * VOCAB, 1e-4, hr_isa_name((hr_isa)isa));
            hr_engine_destroy(e);
        }
    free(want), free(got);
    hr_model_destroy(m);
}

/* ---- against itself ---- */

static void decode_and_micro_batches_agree_with_prefill(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_F32);
    int32_t tokens[N];
    ids(tokens, N, 2);
    float whole[VOCAB];
    hr_engine *e = open_engine(m, exact_config());
    OK(hr_engine_prefill(e, 0, tokens, N, true));
    memcpy(whole, hr_engine_logits(e, 0), sizeof whole);
    hr_engine_seq_cut(e, 0, 0);
    for (uint32_t i = 0; i < N; i++) OK(hr_engine_decode(e, &(uint32_t){0}, &tokens[i], 1));
    hr_assert_near(hr_engine_logits(e, 0), whole, VOCAB, EXACT, "decode one by one");
    assert_int_equal(hr_engine_seq_len(e, 0), N);
    hr_engine_destroy(e);
    static const uint32_t micro[] = {1, 7, 64, 149};
    for (size_t i = 0; i < sizeof micro / sizeof *micro; i++) {
        hr_engine_config c = exact_config();
        c.ubatch = micro[i], c.batch = 100;
        e = open_engine(m, c);
        OK(hr_engine_prefill(e, 0, tokens, N, true));
        hr_assert_near(hr_engine_logits(e, 0), whole, VOCAB, EXACT, "micro-batches");
        hr_engine_destroy(e);
    }
    hr_model_destroy(m);
}

static void a_batch_row_is_the_row_alone(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_F32);
    enum { SEQS = 9 };
    hr_engine_config c = exact_config();
    c.max_seqs = SEQS;
    hr_engine *e = open_engine(m, c), *alone = open_engine(m, exact_config());
    int32_t tokens[N], step[SEQS];
    uint32_t seqs[SEQS];
    ids(tokens, N, 3);
    for (uint32_t s = 0; s < SEQS; s++) {
        OK(hr_engine_prefill(e, s, tokens + s, 5 + 13 * s, false));
        seqs[s] = SEQS - 1 - s, step[s] = tokens[s];
    }
    OK(hr_engine_decode(e, seqs, step, SEQS));
    for (uint32_t i = 0; i < SEQS; i++) {
        hr_engine_seq_cut(alone, 0, 0);
        OK(hr_engine_prefill(alone, 0, tokens + seqs[i], 5 + 13 * seqs[i], false));
        OK(hr_engine_decode(alone, &(uint32_t){0}, &step[i], 1));
        hr_assert_near(hr_engine_logits(e, i), hr_engine_logits(alone, 0), VOCAB, EXACT, "batch row");
    }
    hr_engine_destroy(e), hr_engine_destroy(alone);
    hr_model_destroy(m);
}

/* Every other type: stated tolerance. Rounding activations or KV to 8 bits moves a logit by some per cent of the
 * spread; the bound is on the error relative to the spread of the logits. */
static void other_types_stay_close_to_exact(void **state) {
    (void)state;
    int32_t tokens[N];
    ids(tokens, N, 4);
    float *want = calloc(N * VOCAB, sizeof *want), *got = calloc(N * VOCAB, sizeof *got);
    static const struct {
        hr_quant quant;
        hr_dtype kv;
        double nmse;
    } rows[] = {{HR_QUANT_BF16, HR_BF16, 1e-3}, {HR_QUANT_F16, HR_F16, 1e-3},  {HR_QUANT_INT8, HR_BF16, 2e-3},
                {HR_QUANT_INT8, HR_Q8_0, 2e-3}, {HR_QUANT_INT4, HR_BF16, 0.2}, {HR_QUANT_F32, HR_Q4_0, 0.1}};
    hr_model *m = load(HR_QUANT_F32);
    hr_engine *e = open_engine(m, exact_config());
    OK(hr_engine_prefill_all(e, 0, tokens, N, want));
    hr_engine_destroy(e), hr_model_destroy(m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        m = load(rows[i].quant);
        hr_engine_config c = exact_config();
        c.act = -1, c.k_type = c.v_type = rows[i].kv;
        e = open_engine(m, c);
        OK(hr_engine_prefill_all(e, 0, tokens, N, got));
        hr_assert_nmse(got, want, N * VOCAB, rows[i].nmse, hr_quant_name(rows[i].quant));
        hr_engine_destroy(e), hr_model_destroy(m);
    }
    free(want), free(got);
}

static void layouts_give_the_same_bits(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_BF16);
    enum { LONG = 700 };
    static int32_t tokens[LONG];
    ids(tokens, LONG, 6);
    static float want[VOCAB];
    static const hr_dtype types[] = {HR_BF16, HR_Q8_0};
    for (size_t t = 0; t < 2; t++)
        for (int layout = 0, first = 1; layout < HR_KV_LAYOUT_COUNT; layout++)
            for (uint32_t page = 1; page <= (hr_kv_is_paged(layout) ? 256u : 1u); page *= 4) {
                hr_engine_config c = exact_config();
                c.act = -1, c.k_type = c.v_type = types[t], c.kv_layout = (hr_kv_layout)layout;
                c.page_size = page, c.max_seqs = 2;
                hr_engine *e = open_engine(m, c);
                /* two sequences in turns and a cut, so that pages of one do not follow each other */
                OK(hr_engine_prefill(e, 0, tokens, 300, false));
                OK(hr_engine_prefill(e, 1, tokens, 90, false));
                hr_engine_seq_cut(e, 0, 37);
                OK(hr_engine_prefill(e, 1, tokens + 90, 100, false));
                OK(hr_engine_prefill(e, 0, tokens + 37, LONG - 37, false));
                for (int i = 0; i < 3; i++)
                    OK(hr_engine_decode(e, (uint32_t[]){1, 0}, (int32_t[]){tokens[i], tokens[i + 5]}, 2));
                if (first) memcpy(want, hr_engine_logits(e, 1), sizeof want);
                if (memcmp(want, hr_engine_logits(e, 1), sizeof want) != 0)
                    fail_msg("%s, page size %u: logits differ in bits from head",
                             hr_kv_layout_name((hr_kv_layout)layout), page);
                first = 0;
                hr_engine_destroy(e);
            }
    hr_model_destroy(m);
}

/* ---- contract ---- */

static void bad_calls_change_nothing(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_BF16);
    hr_engine_config c = exact_config();
    c.ctx = 16;
    hr_engine *e = open_engine(m, c);
    int32_t tokens[32];
    ids(tokens, 32, 7);
    assert_int_equal(hr_engine_prefill(e, 0, tokens, 17, true), HR_ERR_INPUT);
    assert_int_equal(hr_engine_prefill(e, 1, tokens, 1, true), HR_ERR_INPUT);
    tokens[3] = VOCAB;
    assert_int_equal(hr_engine_prefill(e, 0, tokens, 8, true), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "token 3"));
    tokens[3] = -1;
    assert_int_equal(hr_engine_prefill(e, 0, tokens, 8, true), HR_ERR_INPUT);
    assert_int_equal(hr_engine_seq_len(e, 0), 0);
    assert_int_equal(hr_engine_decode(e, (uint32_t[]){0, 0}, (int32_t[]){1, 1}, 2), HR_ERR_INPUT);
    hr_engine_destroy(e);
    c.ctx = 1025;
    assert_int_equal(hr_engine_create(m, &c, &e), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "1024"));
    hr_model_destroy(m);
}

static void opening_survives_every_failing_allocation(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_BF16);
    hr_engine_config c = exact_config();
    uint64_t before = hr_fault_calls(HR_FAULT_ALLOC);
    hr_engine_destroy(open_engine(m, c));
    uint64_t calls = hr_fault_calls(HR_FAULT_ALLOC) - before;
    assert_true(calls > 3);
    for (uint64_t nth = 1; nth <= calls; nth++) {
        hr_engine *e;
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        assert_int_equal(hr_engine_create(m, &c, &e), HR_ERR_MEMORY);
        assert_null(e);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
    }
    hr_model_destroy(m);
}

static void work_counts_what_the_shape_says(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_BF16);
    hr_engine_config c = exact_config();
    c.act = -1, c.k_type = c.v_type = HR_BF16, c.ubatch = 100;
    hr_engine *e = open_engine(m, c);
    const double matrices = 3 * (192. * 192 * 2 + 2 * 192. * 64 + 3 * 192. * 352), head = 320. * 192;
    /* the head is a table of its own here, so the looked-up rows of the embedding count too: 2 bytes an element */
    const double norms = (2 * 3 + 1) * 192. * 4, row = 192 * 2, kv_row = 2 * 3 * 64 * 2.;
    hr_step_work w = hr_engine_decode_work(e, 2, 99.5);
    assert_int_equal(w.bytes_weights, (uint64_t)(2 * (matrices + head) + norms + 2 * row));
    assert_int_equal(w.bytes_kv_read, (uint64_t)(2 * 100.5 * kv_row));
    assert_int_equal(w.bytes_kv_write, (uint64_t)(2 * kv_row));
    uint64_t flops = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) flops += w.flops[u];
    assert_int_equal(flops, (uint64_t)(2 * 2 * (matrices + head) + 2 * 4 * 192 * 3 * 100.5));
    /* 150 tokens after 10 in passes of 100 and 50: weights twice, head once, causal pairs */
    w = hr_engine_prefill_work(e, 150, 10);
    assert_int_equal(w.bytes_weights, (uint64_t)(2 * (2 * matrices + head) + 2 * 6 * 192 * 4 + 192 * 4 + 150 * row));
    assert_int_equal(w.bytes_kv_read, (uint64_t)((110 + 160) * kv_row));
    assert_int_equal(w.bytes_kv_write, (uint64_t)(150 * kv_row));
    flops = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) flops += w.flops[u];
    assert_int_equal(flops, (uint64_t)(2 * 150 * matrices + 2 * head + 4. * 192 * 3 * (150 * 10 + 150 * 151 / 2)));
    hr_engine_destroy(e);
    hr_model_destroy(m);
}

static void records_of(hr_model *m, unsigned fusion, size_t layer_ops, uint64_t *bytes, uint64_t *flops) {
    hr_engine_config c = exact_config();
    c.act = -1, c.fusion = fusion;
    hr_engine *e = open_engine(m, c);
    int32_t tokens[40];
    ids(tokens, 40, 8);
    const size_t ops = 1 + 3 * layer_ops + 2, space = 2 * ops + 4;
    OK(hr_engine_record(e, space));
    OK(hr_engine_prefill(e, 0, tokens, 40, true));
    size_t n, lost;
    const hr_op_record *r = hr_engine_records(e, &n, &lost);
    assert_int_equal(n, ops);
    assert_int_equal(lost, 0);
    *bytes = *flops = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(r[i].end_ns >= r[i].start_ns && (i == 0 || r[i].start_ns >= r[i - 1].end_ns));
        assert_int_equal(r[i].phase, HR_PHASE_PREFILL);
        assert_int_equal(r[i].tokens, 40);
        assert_non_null(r[i].kernel);
        const bool product = r[i].op == HR_OP_QKV;
        if (product) assert_int_equal(!strncmp(r[i].kernel, "qkv_fused+", 10), (fusion & HR_FUSE_QKV) != 0);
        *bytes += r[i].bytes, *flops += r[i].flops;
    }
    const hr_step_work w = hr_engine_prefill_work(e, 40, 0);
    uint64_t total = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) total += w.flops[u];
    assert_int_equal(*bytes, w.bytes_weights + w.bytes_kv_read + w.bytes_kv_write);
    assert_int_equal(*flops, total);
    hr_engine_record_reset(e);
    for (int i = 0; i < 3; i++) OK(hr_engine_decode(e, &(uint32_t){0}, tokens, 1));
    hr_engine_records(e, &n, &lost);
    assert_int_equal(n, space);
    assert_int_equal(lost, 3 * ops - space);
    hr_engine_destroy(e);
}

static void records_are_the_ops_of_the_pass(void **state) {
    (void)state;
    hr_model *m = load(HR_QUANT_BF16);
    uint64_t bytes[2], flops[2];
    /* apart: norm, qkv, rope, append, attention, out, add, norm, gate_up, activation, down, add */
    records_of(m, 0, 12, &bytes[0], &flops[0]);
    records_of(m, HR_FUSE_ALL, 5, &bytes[1], &flops[1]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_int_equal(flops[0], flops[1]);
    records_of(m, HR_FUSE_QKV, 9, &bytes[0], &flops[0]);
    records_of(m, HR_FUSE_OUT_RESIDUAL | HR_FUSE_HEAD_SAMPLE, 10, &bytes[0], &flops[0]);
    hr_model_destroy(m);
}

/* Joined ops do the same arithmetic: logits, KV and samples are the same to the bit. The sum into the residual stream is
 * one rounding at another place where a kernel adds parts of a long row, so it has a tolerance of its own. */
static void fused_ops_give_the_same_bits(void **state) {
    (void)state;
    enum { SEQS = 6, STEPS = 3 };
    static const char *const specs[] = {
        "synth:tiny:layers=2:dim=192:heads=6:kv_heads=2:head_dim=32:ffn=352:vocab=321:ctx=512:seed=5",
        "synth:tiny:layers=2:dim=160:heads=4:kv_heads=2:head_dim=40:ffn=96:vocab=320:ctx=512:seed=6"};
    static const hr_quant quants[] = {HR_QUANT_F32, HR_QUANT_BF16, HR_QUANT_INT8, HR_QUANT_INT4};
    int32_t tokens[N], step[SEQS];
    ids(tokens, N, 9);
    for (size_t spec = 0; spec < 2; spec++)
        for (size_t q = 0; q < 4; q++)
            for (int both = 0; both < 2 * ((int)hr_isa_best() + 1);
                 both++) { /* each ISA with weights in rows and in panels */
                const int isa = both / 2;
                hr_isa runs;
                if (hr_isa_resolve((hr_isa)isa, &runs) != HR_OK) continue;
                hr_model *m = NULL;
                const hr_load_options load = {.quant = quants[q], .order = both & 1 ? HR_ORDER_PANELS : HR_ORDER_ROWS};
                OK(hr_model_load(specs[spec], &load, &m));
                hr_engine *e[3];
                static const unsigned fusion[] = {0, HR_FUSE_ALL & ~HR_FUSE_OUT_RESIDUAL, HR_FUSE_ALL};
                for (int f = 0; f < 3; f++) {
                    hr_engine_config c = exact_config();
                    c.act = -1, c.isa = (hr_isa)isa, c.fusion = fusion[f], c.max_seqs = SEQS, c.ctx = 512;
                    c.threads = f ? 3 : 2;
                    e[f] = open_engine(m, c);
                    for (uint32_t s = 0; s < SEQS; s++) OK(hr_engine_prefill(e[f], s, tokens + s, 9 + 20 * s, true));
                }
                for (size_t n = 1; n <= SEQS; n += n < 3 ? 1 : 3)
                    for (int i = 0; i < STEPS; i++) {
                        uint32_t seqs[SEQS];
                        for (uint32_t s = 0; s < n; s++) seqs[s] = (uint32_t)n - 1 - s, step[s] = tokens[7 * s + i];
                        for (int f = 0; f < 3; f++) OK(hr_engine_decode(e[f], seqs, step, n));
                        const size_t vocab = hr_model_get_info(m)->vocab;
                        for (size_t r = 0; r < n; r++) {
                            const float *want = hr_engine_logits(e[0], r);
                            if (memcmp(want, hr_engine_logits(e[1], r), vocab * sizeof *want))
                                fail_msg("spec %zu, %s, %s: fused logits differ in bits at step %d of %zu tokens", spec,
                                         hr_quant_name(quants[q]), hr_isa_name((hr_isa)isa), i, n);
                            hr_assert_near(hr_engine_logits(e[2], r), want, vocab, 1e-2, "added as stored");
                            const hr_sampling how[] = {{.temperature = 0},
                                                       {.temperature = 0.8f, .top_k = 20, .top_p = 0.9f},
                                                       {.temperature = 0.8f, .top_k = 200, .top_p = 1}};
                            for (int h = 0; h < 3; h++) {
                                uint64_t rng[2] = {r, r};
                                const int32_t a = hr_engine_sample(e[0], r, &how[h], &rng[0]);
                                assert_int_equal(hr_engine_sample(e[1], r, &how[h], &rng[1]), a);
                                assert_true(rng[0] == rng[1]);
                            }
                        }
                    }
                for (int f = 0; f < 3; f++) hr_engine_destroy(e[f]);
                hr_model_destroy(m);
            }
}

static void a_planted_loss_slows_its_op_alone(void **state) {
    (void)state;
    setenv("HEADROOM_PLANT", "gate_up:400%,head:50%", 1);
    hr_probe probe;
    assert_int_equal(hr_probe_init(&probe), HR_OK);
    assert_int_equal(hr_probe_record(&probe, 3, 0, false), HR_OK);
    static const hr_op ops[] = {HR_OP_GATE_UP, HR_OP_HEAD, HR_OP_DOWN};
    uint64_t own[3]; /* at most what the op took by itself */
    for (int i = 0; i < 3; i++) {
        hr_probe_enter(&probe, ops[i], 0, "spin", (hr_work){0});
        uint64_t start = hr_now_ns(), now = start;
        while (now < start + 2000000) now = hr_now_ns();
        own[i] = now - start;
        hr_probe_leave(&probe);
    }
    size_t n, lost;
    const hr_op_record *records = hr_probe_read(&probe.records, &n, &lost);
    assert_int_equal(n, 3);
    assert_true(records[0].end_ns - records[0].start_ns >= 5 * own[0]);
    assert_true(2 * (records[1].end_ns - records[1].start_ns) >= 3 * own[1]);
    assert_true(probe.plant[HR_OP_DOWN] == 0);
    hr_probe_fini(&probe);
    hr_engine *e;
    hr_model *m = load(HR_QUANT_F32);
    static const char *const bad[] = {"attention", "attention:x%", "atention:5%", "attention:5", ":5%", "all:-1%"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("HEADROOM_PLANT", bad[i], 1);
        hr_engine_config c = exact_config();
        assert_int_equal(hr_engine_create(m, &c, &e), HR_ERR_USAGE);
    }
    unsetenv("HEADROOM_PLANT");
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_agrees_with_double_precision),
        cmocka_unit_test(decode_and_micro_batches_agree_with_prefill),
        cmocka_unit_test(a_batch_row_is_the_row_alone),
        cmocka_unit_test(other_types_stay_close_to_exact),
        cmocka_unit_test(layouts_give_the_same_bits),
        cmocka_unit_test(bad_calls_change_nothing),
        cmocka_unit_test(opening_survives_every_failing_allocation),
        cmocka_unit_test(work_counts_what_the_shape_says),
        cmocka_unit_test(records_are_the_ops_of_the_pass),
        cmocka_unit_test(fused_ops_give_the_same_bits),
        cmocka_unit_test(a_planted_loss_slows_its_op_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
