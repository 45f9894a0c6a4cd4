/* The claims. Where a published figure is one number, the effect may fall short of it by a tenth; a range counts as
 * published. */
#include "engine/engine.h"
#include "harness/claims/claim_tests.h"

#include <math.h>
#include <string.h>

#define AT_LEAST(v) \
    { HR_RULE_AT_LEAST, (v), 0, NAN }
#define AT_MOST(v) \
    { HR_RULE_AT_MOST, 0, (v), NAN }
#define BETWEEN(a, b) \
    { HR_RULE_BETWEEN, (a), (b), NAN }
#define EFFECT(factor) \
    { HR_RULE_AT_LEAST, 1 + 0.9 * ((factor)-1), 0, 1 }
#define ANY_EFFECT \
    { HR_RULE_AT_LEAST, 1.02, 0, 1 }
#define NO_RULE \
    { HR_RULE_AT_LEAST, 0, 0, NAN }

#define KV_STUDY "belongs to the study of KV layouts and allocators, which this program does not have yet"

const hr_claim hr_claim_table[] = {
    {"flash-256", "flash attention is faster than one that materializes scores, 256 tokens", "1.33 x (A100: 12 / 9 ms)",
     "x", EFFECT(1.33), hr_test_flash, 256, "the same question on the CPU"},
    {"flash-1024", "the same, 1024 tokens", "2.98 x (A100: 185 / 62 ms)", "x", EFFECT(2.98), hr_test_flash, 1024,
     "the same question on the CPU"},
    {"flash-2048", "the same, 2048 tokens", "3.45 x (A100: 738 / 214 ms)", "x", EFFECT(3.45), hr_test_flash, 2048,
     "the same question on the CPU"},
    {"flash-short", "below 512 tokens the naive attention may be faster", "crossover near 512", "x", ANY_EFFECT,
     hr_test_flash_short, 128, "time of flash over time of naive"},
    {"flash-tile", "the best attention tile depends on the machine", "-", "-", NO_RULE, NULL, 0,
     "one machine cannot show a difference between machines; the tile of this build is fixed"},
    {"fuse-qkv", "norm + QKV + RoPE fused", "2 x (1.8 -> 0.9 ms)", "x", EFFECT(2), hr_test_fuse, HR_FUSE_QKV,
     "time unfused over time fused"},
    {"fuse-head", "output projection + sampling fused", "1.75 x (2.1 -> 1.2 ms)", "x", EFFECT(1.75), hr_test_fuse,
     HR_FUSE_HEAD_SAMPLE, "time unfused over time fused"},
    {"fuse-ffn", "norm + GEMM + activation in one: instructions per cycle", "+15 to 20 %", "x", EFFECT(1.15),
     hr_test_fuse, HR_FUSE_GATE_UP,
     "as latency, which the instructions per cycle are to lower: time unfused over time fused"},
    {"zorder", "Z-order KV, small parameters cached, restrict together: bandwidth use, latency",
     "45 -> 68 %, 5.2 -> 3.7 ms (A100)", "-", NO_RULE, NULL, 0, "Z-order " KV_STUDY},
    {"small-params", "small parameters cached (published with Z-order and restrict)",
     "5.2 -> 3.7 ms for the three (A100)", "x", ANY_EFFECT, hr_test_small_params, 0,
     "the same question on the CPU; any effect over 2 % counts"},
    {"restrict", "restrict pointers (published with Z-order and small parameters)",
     "5.2 -> 3.7 ms for the three (A100)", "x", ANY_EFFECT, hr_test_restrict, 0,
     "the same question on the CPU; any effect over 2 % counts"},
    {"layout-token", "KV as [pos, layer, head, dim] instead of [layer, head, pos, dim]", "latency -8 to -12 %", "-",
     NO_RULE, NULL, 0, KV_STUDY},
    {"alloc-frag", "fragmentation of per-request, pool and paged KV at 100 requests", "35 % / < 5 % / 8 %", "-",
     NO_RULE, NULL, 0, KV_STUDY},
    {"alloc-p99", "P99 latency of the three allocators", "128 / 89 / 76 ms", "-", NO_RULE, NULL, 0, KV_STUDY},
    {"alloc-qps", "requests per second of the three allocators", "520 / 780 / 850", "-", NO_RULE, NULL, 0, KV_STUDY},
    {"alloc-cross", "paging wins above this many requests; a hybrid is best", "50", "-", NO_RULE, NULL, 0, KV_STUDY},
    {"alloc-waste", "KV memory wasted by reserving the maximum; largest batch with pages", "60 to 80 %; 10 -> 25", "-",
     NO_RULE, NULL, 0, KV_STUDY},
    {"compaction", "compaction every 1000 requests removes out-of-memory by fragmentation", "-", "-", NO_RULE, NULL, 0,
     KV_STUDY},
    {"kv-size", "KV of a 7B model (MHA, f16) at 4096 positions", "about 2 GB", "GB", BETWEEN(1.8, 2.2), hr_test_kv_size,
     0, "arithmetic; 8 GB at 2048 needs a model of 4 MB a token"},
    {"kv-size-token", "KV of one token", "128 KB", "KiB", BETWEEN(121.6, 134.4), hr_test_kv_size, 1,
     "arithmetic: 8 KV heads of 128, 32 layers, f16; with one KV head a query head it is four times that"},
    {"kv-int8", "int8 KV saves memory, quality almost unchanged", "30 to 40 %", "-", NO_RULE, NULL, 0, KV_STUDY},
    {"kv-4bit", "4-bit per-channel KV: memory, slow-down", "-35 %, < 3 %", "-", NO_RULE, NULL, 0, KV_STUDY},
    {"quant-speed", "INT8 weights against 16-bit ones, speed", "1.5 to 2 x", "x", EFFECT(1.5), hr_test_quant_speed,
     HR_QUANT_INT8, "time of bf16 over time of int8"},
    {"quant-speed-int4", "INT4 weights against 16-bit ones, speed", "3 to 4 x", "x", EFFECT(3), hr_test_quant_speed,
     HR_QUANT_INT4, "time of bf16 over time of int4"},
    {"quant-loss", "quality lost by INT8 and INT4", "about 3 %, 5 to 10 %", "-", NO_RULE, NULL, 0,
     "needs trained weights, and the claims run on random ones; `make quality` holds the loss of each quantization to "
     "bounds"},
    {"quant-memory", "memory of FP16 over INT8", "2 x (5800 / 2900 MB)", "x", BETWEEN(1.9, 2.1), hr_test_quant_memory,
     HR_QUANT_INT8, "arithmetic on the 7B shape"},
    {"quant-memory-int4", "memory of FP16 over INT4", "4 x (5800 / 1450 MB)", "x", BETWEEN(3.8, 4.2),
     hr_test_quant_memory, HR_QUANT_INT4, "arithmetic on the 7B shape"},
    {"prefill-parallel", "prefill of 2048 tokens together against one by one", "about 40 x", "x", EFFECT(40),
     hr_test_parallel, 2048, "time a token alone over time a token of the prompt"},
    {"prefill-split", "share of prefill time in matrix products (8B, 2048)", "72 %", "%", BETWEEN(65, 79),
     hr_test_prefill_share, 0, "of the recorded ops"},
    {"prefill-split-attention", "share of prefill time in attention (8B, 2048)", "23 %", "%", BETWEEN(20.7, 25.3),
     hr_test_prefill_share, 1, "of the recorded ops"},
    {"prefill-peak", "prefill GEMM reaches this share of the peak", "75 to 85 %", "%", AT_LEAST(75),
     hr_test_prefill_peak, 0, "against the peak measured beside it"},
    {"decode-bandwidth", "decode's share of the bandwidth", "> 90 %", "%", AT_LEAST(90), hr_test_decode_ceiling, 0,
     "against the read bandwidth measured beside it"},
    {"decode-bandwidth-compute", "decode's share of the compute peak", "< 30 %", "%", AT_MOST(30),
     hr_test_decode_ceiling, 1, "against the peak measured beside it"},
    {"decode-memory-share", "share of a decode step spent in memory access", "65 %", "%", BETWEEN(58.5, 71.5),
     hr_test_decode_ceiling, 0,
     "as the time that the bytes take at the measured bandwidth: less than this cannot be spent"},
    {"intensity", "arithmetic intensity of a decode step", "< 10 flop/byte", "flop/byte", AT_MOST(10),
     hr_test_intensity, 0, "arithmetic"},
    {"compose-512", "prefill's share of a request, 512 tokens in, 128 out", "18 %", "%", BETWEEN(16.2, 19.8),
     hr_test_compose, 512, "TTFT over E2E"},
    {"compose-2048", "prefill's share of a request, 2048 tokens in, 128 out", "43 %", "%", BETWEEN(38.7, 47.3),
     hr_test_compose, 2048, "TTFT over E2E"},
    {"mbu-example", "MBU of a 7B f16 model at 23 ms a token on 600 GB/s", "100 %", "%", BETWEEN(95, 105),
     hr_test_mbu_example, 0, "arithmetic"},
    {"l2-hit", "a cache hit rate of 60 % improves decode", "-", "-", NO_RULE, NULL, 0,
     "needs hardware counters of the cache, which virtual machines close"},
    {"threads", "best thread count for decode", "50 to 70 % of the physical cores", "%", BETWEEN(50, 70),
     hr_test_threads, 0, "the fastest count of each round"},
    {"tile-decode", "a large GEMM tile hurts decode", "-", "x", ANY_EFFECT, hr_test_tile_decode, 0,
     "time of the prefill kernel with its tile over time of the decode kernel"},
    {"align-128", "KV rows aligned to less than 128 bytes hurt", "-", "-", NO_RULE, NULL, 0, KV_STUDY},
    {"softmax-fp32",
     "softmax in less than fp32 loses accuracy",
     "-",
     "x",
     {HR_RULE_AT_LEAST, 2, 0, 1},
     hr_test_softmax,
     0,
     "error of bf16 over error of fp32, exact values by double"},
    {.id = NULL}};

bool hr_claim_named(const hr_claim *claim, const char *word) {
    const size_t n = strlen(word);
    return n && !strncmp(claim->id, word, n) && (claim->id[n] == 0 || claim->id[n] == '-');
}
