/* test_model.c - synthetic models and model files: shapes, values, quantization, and what is refused by name. */
#include "tests/hr_test.h"

#include "engine/model/model.h"
#include "engine/model/synth.h"
#include "engine/model/weights.h"
#include "kernels/base/memory.h"
#include "tests/gguf_writer.h"
#include "tests/real_model.h"

#include <sys/stat.h>
#include <unistd.h>

static hr_model *load(const char *spec, hr_quant quant, unsigned threads) {
    hr_model *model;
    if (hr_model_load(spec, &(hr_load_options){.quant = quant, .threads = threads}, &model) != HR_OK)
        fail_msg("%s: %s", spec, hr_error());
    return model;
}

static void expect_fails(const char *spec, hr_quant quant, hr_status expected, const char *word) {
    hr_model *model;
    hr_status status = hr_model_load(spec, &(hr_load_options){.quant = quant, .threads = 1}, &model);
    if (status != expected || !strstr(hr_error(), word))
        fail_msg("%s: expected status %d and '%s', got %d and '%s'", spec, expected, word, status, hr_error());
    assert_null(model);
}

/* All matrices of a model, embed and head first. */
static size_t mats_of(const hr_model *m, const hr_mat *out[], size_t max) {
    size_t n = 0;
    out[n++] = &m->embed, out[n++] = &m->head;
    for (uint32_t i = 0; i < m->hp.n_layers && n + 7 <= max; i++) {
        const hr_layer *l = &m->layers[i];
        const hr_mat *all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < 7; k++) out[n++] = all[k];
    }
    return n;
}

/* ---- synthetic ---------------------------------------------------------------------------------------------------- */

static void published_shapes(void **state) {
    (void)state;
    /* Parameters as the model cards and the files' own counts give them; matrix bytes: cli.md's contract. */
    static const struct {
        const char *spec;
        uint64_t params;
        bool tied;
        const char *type;
    } want[] = {
        {"synth:smollm2-135m", 134515008, true, "llama 135M BF16"},
        {"synth:llama-3.2-1b", 1235814400, true, "llama 1B BF16"},
        {"synth:llama-3.2-3b", 3212749824, true, "llama 3B BF16"},
        {"synth:llama-3.1-8b", 8030261248, false, "llama 8B BF16"},
        {"synth:llama-2-7b", 6738415616, false, "llama 7B BF16"},
        {"synth:mistral-7b", 7248023552, false, "llama 7B BF16"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        hr_model_info info;
        assert_int_equal(hr_model_peek(want[i].spec, HR_QUANT_NATIVE, HR_ORDER_ROWS, &info), HR_OK);
        assert_int_equal(info.n_params, want[i].params);
        assert_int_equal(info.tied, want[i].tied);
        assert_string_equal(info.type, want[i].type);
        assert_true(info.synthetic && info.file_bytes == info.weight_bytes);
    }
    /* 16 layers of 60,817,408 and a table of 128256 x 2048, counted once; vectors are 33 x 2048 floats. */
    static const struct {
        hr_quant quant;
        uint64_t matrices;
    } bytes[] = {{HR_QUANT_BF16, 2471493632},
                 {HR_QUANT_INT8, 1312980992},
                 {HR_QUANT_INT4, 695107584},
                 {HR_QUANT_F32, 4942987264}};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        hr_model_info info;
        assert_int_equal(hr_model_peek("synth:llama-3.2-1b", bytes[i].quant, HR_ORDER_ROWS, &info), HR_OK);
        assert_int_equal(info.weight_bytes - 33 * 2048 * 4, bytes[i].matrices);
    }
}

static void shapes_are_listed(void **state) {
    (void)state;
    json_t *list = hr_model_shapes();
    size_t n = 0;
    for (const char *const *name = hr_model_shape_names(); *name; name++, n++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, n), "name")), *name);
    assert_int_equal(json_array_size(list), n);
    json_decref(list);
}

static void specs_change_the_shape(void **state) {
    (void)state;
    hr_model_info a, b;
    assert_int_equal(
        hr_model_peek("synth:tiny:layers=4:heads=8:kv_heads=4:head_dim=64:dim=512", HR_QUANT_NATIVE, HR_ORDER_ROWS, &a),
        HR_OK);
    assert_true(a.n_layers == 4 && a.n_heads == 8 && a.n_kv_heads == 4 && a.head_dim == 64 && a.dim == 512);
    assert_string_equal(a.name, "tiny");
    assert_int_equal(hr_model_peek("synth:tiny:dim=512", HR_QUANT_NATIVE, HR_ORDER_ROWS, &a), HR_OK);
    assert_int_equal(a.head_dim, 128); /* dim / heads */
    assert_int_equal(hr_model_peek("synth:tiny:layers=4:seed=0", HR_QUANT_INT8, HR_ORDER_ROWS, &a), HR_OK);
    assert_int_equal(hr_model_peek("synth:tiny", HR_QUANT_NATIVE, HR_ORDER_ROWS, &b), HR_OK);
    assert_string_equal(a.hash, b.hash); /* the same weights, however they are written */
    assert_int_equal(hr_model_peek("synth:tiny:seed=1", HR_QUANT_NATIVE, HR_ORDER_ROWS, &b), HR_OK);
    assert_string_not_equal(a.hash, b.hash);
    assert_int_equal(hr_model_peek("synth:tiny:ctx=4096", HR_QUANT_NATIVE, HR_ORDER_ROWS, &b), HR_OK);
    assert_string_not_equal(a.hash, b.hash);
}

static void bad_specs_are_named(void **state) {
    (void)state;
    static const struct {
        const char *spec, *word;
    } bad[] = {
        {"synth:nope", "known are: tiny, smollm2-135m"},
        {"synth:", "known are"},
        {"synth:tiny:", "unknown key ''"},
        {"synth:tiny:layer=3", "unknown key 'layer'; keys are: layers"},
        {"synth:tiny:layers", "'layers' needs a value"},
        {"synth:tiny:layers=", "layers= is no whole number"},
        {"synth:tiny:layers=-1", "layers=-1 is no whole number"},
        {"synth:tiny:layers=4x", "layers=4x is no whole number"},
        {"synth:tiny:layers=99999999999999999999", "is no whole number up to"},
        {"synth:tiny:layers=4294967296", "is no whole number up to 4294967295"},
        {"synth:tiny:layers=0", "layers is 0"},
        {"synth:tiny:layers=4:layers=5", "'layers' stands twice"},
        {"synth:tiny:heads=3", "dim 256 over 3 heads"},
        {"synth:tiny:heads=0", "heads is 0"},
        {"synth:tiny:kv_heads=3", "heads 4 is no multiple of kv_heads 3"},
        {"synth:tiny:head_dim=7", "even number"},
        {"synth:tiny:vocab=4000000000", "vocab is 4000000000"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_fails(bad[i].spec, HR_QUANT_NATIVE, HR_ERR_INPUT, bad[i].word);
    expect_fails("synth:tiny:ffn=100", HR_QUANT_INT8, HR_ERR_INPUT, "blk.0.ffn_down.weight cannot become int8");
    hr_model_destroy(load("synth:tiny:ffn=100", HR_QUANT_NATIVE, 1));
}

static void weights_do_not_depend_on_threads(void **state) {
    (void)state;
    hr_model *one = load("synth:tiny:vocab=1000", HR_QUANT_INT4, 1),
             *five = load("synth:tiny:vocab=1000", HR_QUANT_INT4, 5);
    hr_model *other = load("synth:tiny:vocab=1000:seed=1", HR_QUANT_INT4, 2);
    const hr_mat *a[64], *b[64], *c[64];
    size_t n = mats_of(one, a, 64);
    assert_int_equal(n, 30);
    mats_of(five, b, 64), mats_of(other, c, 64);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = a[i]->rows * hr_row_bytes(a[i]->dtype, a[i]->cols);
        size_t scales = a[i]->rows * hr_row_scales(a[i]->dtype, a[i]->cols) * 2;
        assert_memory_equal(a[i]->data, b[i]->data, bytes);
        assert_memory_equal(a[i]->scales, b[i]->scales, scales);
        assert_memory_not_equal(a[i]->data, c[i]->data, bytes);
    }
    hr_model_destroy(one), hr_model_destroy(five), hr_model_destroy(other);
}

/* The moments of n uniform values: the mean of n values strays by std / sqrt(n), their variance by its relative
 * sqrt(0.8 / n); six of these deviations are allowed. */
static void values_are_scaled(void **state) {
    (void)state;
    hr_model *m = load("synth:tiny", HR_QUANT_F32, 2);
    const hr_mat *mats[64];
    size_t n_mats = mats_of(m, mats, 64);
    for (size_t k = 0; k < n_mats; k++) {
        const float *x = mats[k]->data;
        double n = (double)(mats[k]->rows * mats[k]->cols), sum = 0, square = 0;
        bool residual = k >= 2 && ((k - 2) % 7 == 3 || (k - 2) % 7 == 6);
        double std = 1 / sqrt((double)mats[k]->cols) * (residual ? 1 / sqrt(2 * 4) : 1);
        for (size_t i = 0; i < (size_t)n; i++) {
            assert_true(isnormal(x[i])); /* finite, not 0, not denormal */
            sum += x[i], square += (double)x[i] * x[i];
        }
        if (fabs(sum / n) > 6 * std / sqrt(n) || fabs(square / n / (std * std) - 1) > 6 * sqrt(0.8 / n))
            fail_msg("matrix %zu: mean %g, std %g, expected 0 and %g", k, sum / n, sqrt(square / n), std);
    }
    for (uint32_t i = 0; i < m->hp.dim; i++) {
        assert_true(m->output_norm[i] >= 0.9f && m->output_norm[i] <= 1.1f);
        assert_true(m->layers[3].ffn_norm[i] >= 0.9f && m->layers[3].ffn_norm[i] <= 1.1f);
    }
    assert_ptr_not_equal(m->head.data, m->embed.data);
    assert_null(m->layers[0].bq);
    assert_int_equal(m->info.weight_bytes, (uint64_t)m->info.n_params * 4);
    hr_model_destroy(m);
}

/* Uniform values within +-a have power a^2 / 3. A step d gives d^2 / 12: int8 steps of a / 127 make 1.6e-5, int4 of
 * a / 7 5.1e-3. bf16 is off by at most 2^-8 of a value: mean square at most 2^-16 / 3 = 5.1e-6; f16 2^-22 / 3 = 8e-8. */
static void quantization_errors(void **state) {
    (void)state;
    static const struct {
        hr_quant quant;
        double limit;
    } cases[] = {{HR_QUANT_INT8, 1.7e-5},
                 {HR_QUANT_INT4, 5.3e-3},
                 {HR_QUANT_BF16, 5.1e-6},
                 {HR_QUANT_F16, 8e-8},
                 {HR_QUANT_NATIVE, 5.1e-6}};
    hr_model *exact = load("synth:tiny", HR_QUANT_F32, 2);
    const hr_mat *a[64], *b[64];
    size_t n = mats_of(exact, a, 64);
    float row[1024];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        hr_model *m = load("synth:tiny", cases[k].quant, 2);
        mats_of(m, b, 64);
        for (size_t i = 0; i < n; i++) {
            double error = 0, power = 0;
            for (size_t r = 0; r < a[i]->rows; r++) {
                const float *want = (const float *)a[i]->data + r * a[i]->cols;
                hr_mat_row_f32(b[i], r, row);
                for (size_t c = 0; c < a[i]->cols; c++) {
                    double d = (double)row[c] - (double)want[c];
                    error += d * d, power += (double)want[c] * (double)want[c];
                }
            }
            if (!(error <= cases[k].limit * power) || error == 0)
                fail_msg("%s, matrix %zu: NMSE %g, limit %g", hr_quant_name(cases[k].quant), i, error / power,
                         cases[k].limit);
        }
        hr_model_destroy(m);
    }
    hr_model_destroy(exact);
}

/* The reference formula, written with its two wavelengths (Llama 3.1: factor 32, low 1, high 4, original 8192). */
static void llama3_rope(void **state) {
    (void)state;
    hr_synth synth;
    assert_int_equal(hr_synth_parse("synth:llama-3.2-1b", &synth), HR_OK);
    double freq[32];
    hr_synth_rope(&synth, freq);
    unsigned kept = 0, cut = 0;
    for (int i = 0; i < 32; i++) {
        double f = pow(500000, -2.0 * i / 64), wavelength = 2 * M_PI / f, want;
        if (wavelength < 8192.0 / 4)
            want = f, kept++;
        else if (wavelength > 8192.0 / 1)
            want = f / 32, cut++;
        else {
            double smooth = (8192 / wavelength - 1) / (4 - 1);
            want = (1 - smooth) * f / 32 + smooth * f;
        }
        if (fabs(freq[i] / want - 1) > 1e-12) fail_msg("frequency %d: expected %g, got %g", i, want, freq[i]);
    }
    assert_true(kept > 10 && cut > 5 && kept + cut < 32);
    hr_model *m = load("synth:llama-2-7b:layers=1:dim=64:heads=2:kv_heads=2:ffn=64:vocab=64", HR_QUANT_NATIVE, 1);
    assert_true(m->rope_freq[0] == 1 && fabs(m->rope_freq[15] - pow(10000, -30.0 / 32)) < 1e-15);
    assert_true(fabs(m->hp.attn_scale - 1 / sqrt(32)) < 1e-7);
    hr_model_destroy(m);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    const char *spec = "synth:llama-3.1-8b:layers=4000"; /* 3.5 TB as f32 */
    hr_model_info info;
    assert_int_equal(hr_model_peek(spec, HR_QUANT_F32, HR_ORDER_ROWS, &info), HR_OK);
    expect_fails(spec, HR_QUANT_F32, HR_ERR_MEMORY, "GB are available");
    char need[64];
    snprintf(need, sizeof need, "need %.2f GB", (double)info.weight_bytes * 1e-9);
    assert_non_null(strstr(hr_error(), need));
}

/* ---- memory limits ------------------------------------------------------------------------------------------------ */

static char folder[64];

static const char *path_of(const char *name) {
    static char path[2][160];
    static unsigned turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void put(const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s", path_of(name));
    for (char *c = path + strlen(folder) + 1; (c = strchr(c, '/')); c++) *c = 0, mkdir(path, 0700), *c = '/';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hr_test_model_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void memory_limits_are_read(void **state) {
    (void)state;
    assert_true(hr_memory_available("/nonexistent") == UINT64_MAX);
    put("proc/meminfo", "MemTotal:  2000 kB\nMemAvailable:    1000 kB\n");
    assert_int_equal(hr_memory_available(folder), 1000 * 1024);
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/memory.max", "700000\n");
    put("sys/fs/cgroup/a/memory.current", "300000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 9\ninactive_file 60000\nactive_file 40000\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    /* 700000 - (300000 - 100000): files in memory can be dropped */
    assert_int_equal(hr_memory_available(folder), 500000);
    put("sys/fs/cgroup/memory.max", "1000\n");
    assert_int_equal(hr_memory_available(folder), 1000);
    put("proc/self/cgroup", "4:cpu:/x\n7:memory:/v1\n");
    put("sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "5000\n");
    put("sys/fs/cgroup/memory/v1/memory.usage_in_bytes", "9000\n");
    assert_int_equal(hr_memory_available(folder), 0);
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

static const char *model_file(gw *w) {
    gw_write(w, path_of("m.gguf"));
    return path_of("m.gguf");
}

static void file_weights_are_the_writers(void **state) {
    (void)state;
    static const hr_quant quants[] = {HR_QUANT_NATIVE, HR_QUANT_F32, HR_QUANT_BF16};
    for (size_t t = 0; t < 2; t++) {
        gw w = {0};
        gw_llama(&w, t ? GW_T_BF16 : GW_T_F32, t == 0);
        const char *path = model_file(&w);
        for (size_t q = 0; q < 3; q++) {
            hr_model *m = load(path, quants[q], 3);
            float row[GW_FFN];
            const struct {
                const hr_mat *mat;
                const char *name;
            } mats[] = {{&m->embed, "token_embd.weight"},
                        {&m->head, t == 0 ? "token_embd.weight" : "output.weight"},
                        {&m->layers[1].wk, "blk.1.attn_k.weight"},
                        {&m->layers[0].wo, "blk.0.attn_output.weight"},
                        {&m->layers[1].gate, "blk.1.ffn_gate.weight"},
                        {&m->layers[1].down, "blk.1.ffn_down.weight"}};
            for (size_t k = 0; k < sizeof mats / sizeof *mats; k++) {
                for (size_t r = 0; r < mats[k].mat->rows; r++) {
                    hr_mat_row_f32(mats[k].mat, r, row);
                    for (size_t c = 0; c < mats[k].mat->cols; c++)
                        if (row[c] != gw_value(mats[k].name, r * mats[k].mat->cols + c))
                            fail_msg("%s row %zu column %zu differs", mats[k].name, r, c);
                }
            }
            for (size_t i = 0; i < GW_DIM; i++)
                assert_true(m->layers[1].ffn_norm[i] == 1 + gw_value("blk.1.ffn_norm.weight", i) / 8);
            assert_int_equal(m->info.tied, t == 0);
            assert_int_equal(m->embed.data == m->head.data, t == 0);
            assert_string_equal(m->info.type, t ? "llama 67K BF16" : "llama 64K F32");
            assert_true(m->hp.ctx == 128 && m->hp.head_dim == GW_HEAD_DIM && m->hp.rope_dims == GW_HEAD_DIM);
            assert_null(hr_model_tokenizer(m));
            /* native: nothing but the vectors is anonymous */
            if (q == 0) assert_true(m->info.anon_bytes == (2 * GW_LAYERS + 1) * GW_DIM * 4);
            if (q == 0) assert_int_equal(m->info.weight_bytes, m->info.file_bytes);
            hr_model_destroy(m);
        }
    }
}

static void rope_scaling_of_files(void **state) {
    (void)state;
    gw w = {0};
    float divisors[GW_HEAD_DIM / 2];
    for (int i = 0; i < GW_HEAD_DIM / 2; i++) divisors[i] = (float)(1 + i);
    gw_llama(&w, GW_T_F32, true);
    gw_str(&w, "llama.rope.scaling.type", "linear");
    gw_f32(&w, "llama.rope.scaling.factor", 4);
    gw_tensor(&w, "rope_freqs.weight", GW_T_F32, 1, (uint64_t[]){GW_HEAD_DIM / 2}, divisors, sizeof divisors);
    hr_model *m = load(model_file(&w), HR_QUANT_NATIVE, 1);
    for (int i = 0; i < GW_HEAD_DIM / 2; i++) {
        double want = pow(10000, -2.0 * i / GW_HEAD_DIM) / 4 / (1 + i);
        if (fabs(m->rope_freq[i] / want - 1) > 1e-12) fail_msg("frequency %d: %g, not %g", i, m->rope_freq[i], want);
    }
    hr_model_destroy(m);
}

static void with(gw *w, const char *drop, const char *drop2) {
    w->drop[0] = drop, w->drop[1] = drop2;
    gw_llama(w, GW_T_F32, true);
    memset(w->drop, 0, sizeof w->drop);
}

static void m_no_arch(gw *w) {
    with(w, "general.architecture", NULL);
}
static void m_no_layers(gw *w) {
    with(w, "llama.block_count", NULL);
}
static void m_no_eps(gw *w) {
    with(w, "llama.attention.layer_norm_rms_epsilon", NULL);
}
static void m_layers_text(gw *w) {
    with(w, "llama.block_count", NULL), gw_str(w, "llama.block_count", "2");
}
static void m_layers_huge(gw *w) {
    with(w, "llama.block_count", NULL), gw_u32(w, "llama.block_count", UINT32_MAX);
}
static void m_layers_more(gw *w) {
    with(w, "llama.block_count", NULL), gw_u32(w, "llama.block_count", 3);
}
static void m_heads_0(gw *w) {
    with(w, "llama.attention.head_count", NULL), gw_u32(w, "llama.attention.head_count", 0);
}
static void m_kv_heads(gw *w) {
    with(w, "llama.attention.head_count_kv", NULL), gw_u32(w, "llama.attention.head_count_kv", 3);
}
static void m_eps_nan(gw *w) {
    with(w, "llama.attention.layer_norm_rms_epsilon", NULL);
    gw_f32(w, "llama.attention.layer_norm_rms_epsilon", NAN);
}
static void m_base_0(gw *w) {
    with(w, "llama.rope.freq_base", NULL), gw_f32(w, "llama.rope.freq_base", 0);
}
static void m_factor_nan(gw *w) {
    with(w, NULL, NULL), gw_f32(w, "llama.rope.scaling.factor", NAN);
}
static void m_rope_dims(gw *w) {
    with(w, NULL, NULL), gw_u32(w, "llama.rope.dimension_count", 18);
}
static void m_vocab(gw *w) {
    with(w, NULL, NULL), gw_u32(w, "llama.vocab_size", 41);
}
static void m_missing(gw *w) {
    with(w, "blk.1.ffn_up.weight", NULL);
}
static void m_no_embed(gw *w) {
    with(w, "token_embd.weight", NULL);
}
static void m_shape(gw *w) {
    with(w, "blk.0.attn_q.weight", NULL), gw_matrix(w, "blk.0.attn_q.weight", GW_T_F32, GW_DIM, GW_DIM / 2);
}
static void m_swapped(gw *w) {
    with(w, "blk.0.ffn_up.weight", NULL), gw_matrix(w, "blk.0.ffn_up.weight", GW_T_F32, GW_DIM, GW_FFN);
}
static void m_norm_size(gw *w) {
    with(w, "blk.0.ffn_norm.weight", NULL), gw_norm(w, "blk.0.ffn_norm.weight", 32);
}
static void m_norm_nan(gw *w) {
    float x[GW_DIM] = {1, 1, NAN};
    with(w, "output_norm.weight", NULL);
    gw_tensor(w, "output_norm.weight", GW_T_F32, 1, (uint64_t[]){GW_DIM}, x, sizeof x);
}
static void m_mat_inf(gw *w) {
    uint16_t x[GW_DIM * GW_DIM] = {[GW_DIM * (GW_DIM - 1) + 3] = 0x7f80}; /* bf16 infinity in the last row */
    with(w, "blk.1.attn_q.weight", NULL);
    gw_tensor(w, "blk.1.attn_q.weight", GW_T_BF16, 2, (uint64_t[]){GW_DIM, GW_DIM}, x, sizeof x);
}
static void m_mat_nan(gw *w) {
    uint16_t x[GW_DIM * GW_DIM] = {[GW_DIM * 5 + 1] = 0x7e00, [GW_DIM * 60] = 0x7e00}; /* f16, in rows 5 and 60 */
    with(w, "blk.0.attn_q.weight", NULL);
    gw_tensor(w, "blk.0.attn_q.weight", GW_T_F16, 2, (uint64_t[]){GW_DIM, GW_DIM}, x, sizeof x);
}
static void m_eps_negative(gw *w) {
    with(w, "llama.attention.layer_norm_rms_epsilon", NULL), gw_f32(w, "llama.attention.layer_norm_rms_epsilon", -1);
}
static void m_scale_nan(gw *w) {
    uint8_t x[GW_DIM * GW_DIM / 32 * 34] = {0xff, 0x7f}; /* the first block's f16 scale */
    with(w, "blk.1.attn_q.weight", NULL);
    gw_tensor(w, "blk.1.attn_q.weight", GW_T_Q8_0, 2, (uint64_t[]){GW_DIM, GW_DIM}, x, sizeof x);
}
static void m_tokens(gw *w) {
    with(w, "tokenizer.ggml.model", NULL);
    gw_str(w, "tokenizer.ggml.model", "gpt2");
    gw_strs(w, "tokenizer.ggml.tokens", (const char *[]){"a", "b"}, 2);
}
static void m_yarn(gw *w) {
    with(w, NULL, NULL), gw_str(w, "llama.rope.scaling.type", "yarn");
}
static void m_extra(gw *w) {
    with(w, NULL, NULL), gw_norm(w, "blk.0.attn_q.bias", GW_DIM);
}
static void m_arch(gw *w) {
    with(w, "general.architecture", NULL), gw_str(w, "general.architecture", "mamba");
}
static void m_experts(gw *w) {
    with(w, "blk.0.ffn_up.weight", NULL), gw_u32(w, "llama.expert_count", 8), gw_u32(w, "llama.expert_used_count", 2);
}
static void m_type(gw *w) {
    with(w, "blk.0.ffn_up.weight", NULL), gw_matrix(w, "blk.0.ffn_up.weight", GW_T_Q5_0, GW_FFN, GW_DIM);
}

static void broken_models_are_named(void **state) {
    (void)state;
    static const struct {
        void (*build)(gw *w);
        hr_status status;
        const char *word;
    } cases[] = {
        {m_no_arch, HR_ERR_INPUT, "key 'general.architecture' is missing"},
        {m_no_layers, HR_ERR_INPUT, "key 'llama.block_count' is missing"},
        {m_no_eps, HR_ERR_INPUT, "layer_norm_rms_epsilon' is missing"},
        {m_layers_text, HR_ERR_INPUT, "key 'llama.block_count' is of type string"},
        {m_layers_huge, HR_ERR_INPUT, "layers is 4294967295"},
        {m_layers_more, HR_ERR_INPUT, "tensor 'blk.2.attn_q.weight' is missing"},
        {m_heads_0, HR_ERR_INPUT, "heads is 0"},
        {m_kv_heads, HR_ERR_INPUT, "heads 4 is no multiple of kv_heads 3"},
        {m_eps_nan, HR_ERR_INPUT, "epsilon is nan"},
        {m_base_0, HR_ERR_INPUT, "RoPE base is 0"},
        {m_factor_nan, HR_ERR_INPUT, "key 'llama.rope.scaling.factor' is nan"},
        {m_rope_dims, HR_ERR_INPUT, "18 rotated dimensions of a head of 16"},
        {m_vocab, HR_ERR_INPUT, "llama.vocab_size is 41, but token_embd.weight has 40 rows"},
        {m_missing, HR_ERR_INPUT, "tensor 'blk.1.ffn_up.weight' is missing"},
        {m_no_embed, HR_ERR_INPUT, "tensor 'token_embd.weight' is missing"},
        {m_shape, HR_ERR_INPUT, "tensor 'blk.0.attn_q.weight' is 32 x 64, the keys say 64 x 64"},
        {m_swapped, HR_ERR_INPUT, "tensor 'blk.0.ffn_up.weight' is 96 x 64, the keys say 64 x 96"},
        {m_norm_size, HR_ERR_INPUT, "tensor 'blk.0.ffn_norm.weight' has 32 values, the keys say 64"},
        {m_norm_nan, HR_ERR_INPUT, "tensor 'output_norm.weight' holds NaN"},
        {m_mat_inf, HR_ERR_INPUT, "tensor 'blk.1.attn_q.weight'"},
        {m_mat_nan, HR_ERR_INPUT, "tensor 'blk.0.attn_q.weight': row 5 holds NaN"},
        {m_eps_negative, HR_ERR_INPUT, "epsilon is -1"},
        {m_scale_nan, HR_ERR_INPUT, "tensor 'blk.1.attn_q.weight'"},
        {m_tokens, HR_ERR_INPUT, "has 2 tokens, but token_embd.weight has 40 rows"},
        {m_yarn, HR_ERR_UNSUPPORTED, "RoPE scaling 'yarn'"},
        {m_extra, HR_ERR_UNSUPPORTED, "tensor 'blk.0.attn_q.bias' has no place"},
        {m_arch, HR_ERR_UNSUPPORTED, "architecture 'mamba'"},
        {m_experts, HR_ERR_UNSUPPORTED, "llama.expert_count is set, and 1 more"},
        {m_type, HR_ERR_UNSUPPORTED, "tensor type Q5_0 (1 tensors)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw w = {0};
        cases[i].build(&w);
        const char *path = model_file(&w);
        expect_fails(path, HR_QUANT_NATIVE, cases[i].status, cases[i].word);
        assert_non_null(strstr(hr_error(), path));
        expect_fails(path, HR_QUANT_INT8, cases[i].status, cases[i].word);
        assert_non_null(strstr(hr_error(), path));
    }
}

static void inspect_lists_all_at_once(void **state) {
    (void)state;
    gw w = {0};
    w.drop[0] = "blk.0.ffn_up.weight";
    gw_llama(&w, GW_T_F32, true);
    w.drop[0] = NULL;
    gw_matrix(&w, "blk.0.ffn_up.weight", GW_T_Q5_0, GW_FFN, GW_DIM);
    gw_matrix(&w, "blk.0.ffn_x.weight", GW_T_Q4_K, 2, 256);
    gw_str(&w, "llama.rope.scaling.type", "yarn");
    gw_u32(&w, "llama.expert_count", 8);
    json_t *json;
    assert_int_equal(hr_model_inspect(model_file(&w), &json), HR_OK);
    char *text = json_dumps(json_object_get(json, "unsupported"), 0);
    static const char *const words[] = {"yarn", "expert_count", "Q5_0", "Q4_K", "no tokenizer"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i])) fail_msg("inspect does not list %s: %s", words[i], text);
    free(text);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "shape"), "layers")), GW_LAYERS);
    json_decref(json);
    assert_int_equal(hr_model_inspect("synth:tiny", &json), HR_OK);
    assert_int_equal(json_array_size(json_object_get(json, "unsupported")), 0);
    assert_string_equal(json_string_value(json_object_get(json, "format")), "synthetic");
    json_decref(json);
    assert_int_equal(hr_model_inspect(folder, &json), HR_ERR_INPUT);
    assert_null(json);
}

/* Names that are no UTF-8, or hold a newline, still make one line and strict JSON. */
static void hostile_names_stay_one_line(void **state) {
    (void)state;
    gw w = {0};
    w.drop[0] = "general.name";
    gw_llama(&w, GW_T_F32, true);
    w.drop[0] = NULL;
    gw_str(&w, "general.name", "a\nb\xff\xfe");
    gw_tensor(&w, "bad\n\xff", GW_T_F32, 1, (uint64_t[]){8}, NULL, 32);
    const char *path = model_file(&w);
    expect_fails(path, HR_QUANT_NATIVE, HR_ERR_UNSUPPORTED, "'bad");
    assert_null(strchr(hr_error(), '\n'));
    json_t *json;
    assert_int_equal(hr_model_inspect(path, &json), HR_OK);
    assert_string_equal(json_string_value(json_object_get(json, "name")), "a?b??");
    json_decref(json);
}

/* Each n-th allocation and each n-th read fails once, for a mapped and a converted model. */
static void every_fault_is_survived(void **state) {
    (void)state;
    gw w = {0};
    gw_llama(&w, GW_T_F32, true);
    const char *specs[] = {model_file(&w), "synth:tiny:layers=1"};
    static const hr_quant quants[] = {HR_QUANT_NATIVE, HR_QUANT_INT8};
    for (unsigned turn = 0; turn < 8; turn++) {
        hr_fault kind = turn & 1 ? HR_FAULT_READ : HR_FAULT_ALLOC;
        const char *spec = specs[turn >> 1 & 1];
        hr_load_options options = {.quant = quants[turn >> 2], .threads = 1};
        hr_model *m;
        uint64_t before = hr_fault_calls(kind), failed = 0;
        assert_int_equal(hr_model_load(spec, &options, &m), HR_OK);
        hr_model_destroy(m);
        uint64_t calls = hr_fault_calls(kind) - before;
        for (uint64_t i = 1; i <= calls; i++) {
            hr_fault_arm(kind, i);
            hr_status status = hr_model_load(spec, &options, &m);
            hr_fault_arm(kind, 0);
            if (status == HR_OK)
                hr_model_destroy(m);
            else {
                failed++;
                assert_null(m);
                if (status != (kind == HR_FAULT_ALLOC ? HR_ERR_MEMORY : HR_ERR_IO))
                    fail_msg("%s: fault %llu of kind %d: status %d, '%s'", spec, (unsigned long long)i, kind, status,
                             hr_error());
            }
        }
        /* Every allocation matters; of the reads the file's three (open, fstat, mmap), not the memory figures. */
        assert_int_equal(failed, kind == HR_FAULT_ALLOC ? calls : turn >> 1 & 1 ? 0 : 3);
    }
}

static double last_share;
static void note_share(double share, void *context) {
    (void)context;
    assert_true(share >= last_share && share <= 1);
    last_share = share;
}

static void progress_rises_to_one(void **state) {
    (void)state;
    hr_model *m;
    last_share = 0;
    hr_load_options options = {.quant = HR_QUANT_INT8, .threads = 2, .progress = note_share};
    assert_int_equal(hr_model_load("synth:tiny", &options, &m), HR_OK);
    assert_true(last_share == 1);
    hr_model_destroy(m);
}

static void real_model(void **state) {
    (void)state;
    char reason[256];
    const char *path = hr_real_model(reason, sizeof reason);
    if (!path) hr_skip("%s", reason);
    hr_model *m = load(path, HR_QUANT_NATIVE, 1);
    const hr_model_info *i = hr_model_get_info(m);
    assert_true(i->n_layers == 30 && i->dim == 576 && i->n_heads == 9 && i->n_kv_heads == 3 && i->head_dim == 64);
    assert_true(i->ffn == 1536 && i->vocab == 49152 && i->ctx == 8192 && i->tied);
    assert_string_equal(i->type, "llama 135M Q4_1");
    assert_int_equal(i->n_params, 134515008);
    assert_int_equal(i->weight_bytes, 96576768);
    assert_int_equal(m->layers[29].down.dtype, HR_Q4_1);
    assert_int_equal(m->head.dtype, HR_Q8_0);
    assert_non_null(hr_model_tokenizer(m));
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_shapes),
        cmocka_unit_test(shapes_are_listed),
        cmocka_unit_test(specs_change_the_shape),
        cmocka_unit_test(bad_specs_are_named),
        cmocka_unit_test(weights_do_not_depend_on_threads),
        cmocka_unit_test(values_are_scaled),
        cmocka_unit_test(quantization_errors),
        cmocka_unit_test(llama3_rope),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(memory_limits_are_read),
        cmocka_unit_test(file_weights_are_the_writers),
        cmocka_unit_test(rope_scaling_of_files),
        cmocka_unit_test(broken_models_are_named),
        cmocka_unit_test(inspect_lists_all_at_once),
        cmocka_unit_test(hostile_names_stay_one_line),
        cmocka_unit_test(every_fault_is_survived),
        cmocka_unit_test(progress_rises_to_one),
        cmocka_unit_test(real_model),
    };
    return cmocka_run_group_tests_name("model", tests, make_folder, remove_folder);
}
