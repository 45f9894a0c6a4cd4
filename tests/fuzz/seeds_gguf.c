/* seeds_gguf.c - writes the seed corpus of fuzz_gguf: cc -I. tests/fuzz/seeds_gguf.c -lm -o seeds && ./seeds tests/fuzz/corpus_gguf */
#include "tests/gguf_writer.h"

static const char *folder;

static void save(gw *w, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gw_write(w, path);
}

/* One layer, dim 32, 2 heads of 16, ffn 32, vocabulary 4: all of it in a few KB. */
static void one_layer(gw *w, uint32_t type, const char *tokenizer) {
    gw_str(w, "general.architecture", "llama");
    gw_u32(w, "llama.block_count", 1);
    gw_u32(w, "llama.context_length", 64);
    gw_u32(w, "llama.embedding_length", 32);
    gw_u32(w, "llama.feed_forward_length", 32);
    gw_u32(w, "llama.attention.head_count", 2);
    gw_u32(w, "llama.attention.head_count_kv", 1);
    gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gw_str(w, "tokenizer.ggml.model", tokenizer);
    gw_matrix(w, "token_embd.weight", type, 4, 32);
    gw_norm(w, "output_norm.weight", 32);
    gw_norm(w, "blk.0.attn_norm.weight", 32);
    gw_matrix(w, "blk.0.attn_q.weight", type, 32, 32);
    gw_matrix(w, "blk.0.attn_k.weight", type, 16, 32);
    gw_matrix(w, "blk.0.attn_v.weight", type, 16, 32);
    gw_matrix(w, "blk.0.attn_output.weight", type, 32, 32);
    gw_norm(w, "blk.0.ffn_norm.weight", 32);
    gw_matrix(w, "blk.0.ffn_gate.weight", type, 32, 32);
    gw_matrix(w, "blk.0.ffn_up.weight", type, 32, 32);
    gw_matrix(w, "blk.0.ffn_down.weight", type, 32, 32);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    gw w = {0};
    gw_raw(&w, "u8", GW_U8, "\1", 1), gw_raw(&w, "i64", GW_I64, "\1\0\0\0\0\0\0", 8);
    gw_raw(&w, "f64", GW_F64, "\0\0\0\0\0\0\xf0?", 8), gw_bool(&w, "b", true);
    gw_ints(&w, "ints", (int32_t[]){1, 2, 3}, 3), gw_strs(&w, "texts", (const char *[]){"a", "bc"}, 2);
    gw_u32(&w, "general.alignment", 64), gw_u32(&w, "split.count", 1);
    save(&w, "keys.bin");
    one_layer(&w, GW_T_Q4_0, "no_vocab");
    save(&w, "q4_0.bin");
    one_layer(&w, GW_T_Q4_1, "no_vocab");
    gw_str(&w, "llama.rope.scaling.type", "linear"), gw_f32(&w, "llama.rope.scaling.factor", 2);
    gw_tensor(&w, "rope_freqs.weight", GW_T_F32, 1, (uint64_t[]){8}, (float[]){1, 1, 1, 1, 2, 2, 2, 2}, 32);
    save(&w, "rope.bin");
    one_layer(&w, GW_T_Q8_0, "gpt2");
    gw_str(&w, "tokenizer.ggml.pre", "gpt-2");
    gw_strs(&w, "tokenizer.ggml.tokens", (const char *[]){"a", "b", "ab", "<e>"}, 4);
    gw_ints(&w, "tokenizer.ggml.token_type", (int32_t[]){1, 1, 1, 3}, 4);
    gw_strs(&w, "tokenizer.ggml.merges", (const char *[]){"a b"}, 1);
    gw_u32(&w, "tokenizer.ggml.eos_token_id", 3);
    save(&w, "vocab.bin");
    gw_str(&w, "general.architecture", "llama"), gw_u32(&w, "llama.expert_count", 8);
    gw_str(&w, "llama.rope.scaling.type", "yarn");
    gw_matrix(&w, "x.weight", GW_T_Q4_K, 1, 256);
    save(&w, "unsupported.bin");
    return 0;
}
