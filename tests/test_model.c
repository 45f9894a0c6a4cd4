/* test_model.c - synthetic models: shapes, values, quantization, what is refused by name, and the memory that is left. */
#include "tests/model_fixture.h"

#include "engine/model/synth.h"

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

static void put(const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s", path_of(name));
    for (char *c = path + strlen(folder) + 1; (c = strchr(c, '/')); c++) *c = 0, mkdir(path, 0700), *c = '/';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
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
    };
    return cmocka_run_group_tests_name("model", tests, make_folder, remove_folder);
}
