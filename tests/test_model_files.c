/* test_model_files.c - model files: weights as the writer made them, what is broken or not supported, named in one line. */
#include "tests/model_fixture.h"

#include "tests/real_model.h"

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
        cmocka_unit_test(file_weights_are_the_writers), cmocka_unit_test(rope_scaling_of_files),
        cmocka_unit_test(broken_models_are_named),      cmocka_unit_test(inspect_lists_all_at_once),
        cmocka_unit_test(hostile_names_stay_one_line),  cmocka_unit_test(real_model),
    };
    return cmocka_run_group_tests_name("model files", tests, make_folder, remove_folder);
}
