/* The table of rules. README.md explains the conditions; a test holds both together. */
#include "harness/advice/advice_rules.h"

static const char *const by_threads[] = {"n_threads", NULL};
static const char *const by_page[] = {"page_size", NULL};
static const char *const by_seqs[] = {"n_seqs",  "isl",     "osl",      "n_prompt", "n_gen",
                                      "n_depth", "n_batch", "n_ubatch", NULL};
static const char *const by_quant[] = {"quant", "act", NULL};

/* clang-format off */
const hr_rule hr_rule_table[] = {
    /* times */
    {.id = "ttft-rising", .asks = "do repetitions take longer and longer?", .fn = hr_rule_ttft_rising, .timed = true,
     .columns = "sample.ns sample.flags samples_ttft_ms samples_flags clock_ratio",
     .source = "trend of Mann and Kendall, slope of Theil and Sen",
     .live = "fixture: nothing makes a sound machine slower at will"},
    {.id = "tpot-unstable", .asks = "do equal steps take different times?", .fn = hr_rule_tpot_unstable, .timed = true,
     .columns = "tpot_excl_first_ms itl_step_ms", .source = "troubleshooting lists of serving engines",
     .live = "fixture: it takes a neighbour"},
    {.id = "noise", .asks = "did measuring end before the median was known?", .fn = hr_rule_noise, .timed = true,
     .columns = "stop_reason noise_rel", .source = "the stop rule",
     .live = "fixture: whether it converges is a matter of the machine"},
    {.id = "gaps", .asks = "is time spent in no op?", .fn = hr_rule_gaps, .timed = true,
     .columns = "recorded.on_ns recorded.op_ns recorded.probe_ns", .source = "explain: gap",
     .live = "fixture: it is a share of a time"},
    {.id = "imbalance", .asks = "do threads wait for each other?", .fn = hr_rule_imbalance, .timed = true,
     .columns = "op.n op.mean_ns op.imbalance_ns op.handoff_ns n_threads", .source = "explain: barrier",
     .live = "fixture: it is a share of a time"},
    /* the roof */
    {.id = "low-utilisation", .asks = "is a phase far under its roof?", .fn = hr_rule_low_utilisation, .timed = true,
     .columns = "roof_fraction bound prefill_roof_fraction prefill_bound", .source = "roofline",
     .live = "fixture: it is a share of a time"},
    {.id = "over-roof", .asks = "is a cell faster than its roof?", .fn = hr_rule_over_roof, .timed = true,
     .columns = "flags mbu mfu roof_fraction", .source = "roofline",
     .live = "fixture: it takes a wrong ceiling"},
    {.id = "cache-resident", .asks = "does the model stay in the last-level cache?", .fn = hr_rule_cache_resident,
     .columns = "cache_resident bytes_weights", .source = "size sweep of the roof",
     .live = "-m synth:tiny"},
    /* kernels */
    {.id = "tile-decode", .asks = "does a kernel for many tokens serve decode?", .fn = hr_rule_tile_decode,
     .columns = "kernels n_seqs", .source = "claim tile-decode: 1.35 times the time of the decode kernel (Zen 5)",
     .live = "--kernel down=panel_gemm_i4g32_int8_avx512"},
    {.id = "isa-low", .asks = "does the machine know better instructions?", .fn = hr_rule_isa_low,
     .columns = "isa machine.isas", .source = "checklists of builds", .live = "--isa generic"},
    /* KV and attention */
    {.id = "kv-align", .asks = "do rows of K start off 128 bytes?", .fn = hr_rule_kv_align,
     .columns = "kv_row_bytes kv_layout page_size", .source = "claim align-128", .live = "-ctk q8_0"},
    {.id = "page-size", .asks = "are pages too small for whole reads?", .fn = hr_rule_page_size,
     .columns = "kv_row_bytes page_size kv_layout",
     .source = "KV study: pages of one token take 2.2 to 3.1 times head's time, of 16 1.3 (Zen 5)",
     .live = "--kv-layout paged --page-size 1"},
    {.id = "kv-reserved", .asks = "is far more KV reserved than used?", .fn = hr_rule_kv_reserved,
     .columns = "kv_bytes_reserved kv_bytes_needed machine.memory_bytes", .source = "claim alloc-waste",
     .live = "-n 4 --seqs 64"},
    {.id = "softmax", .asks = "is softmax computed in less than f32?", .fn = hr_rule_softmax, .columns = "softmax",
     .source = "claim softmax-fp32", .live = "fixture: every attention kernel here sums in f32"},
    {.id = "flash-off", .asks = "is flash attention off at a long context?", .fn = hr_rule_flash_off,
     .columns = "flash_attn isl osl n_prompt n_gen n_depth op.median_ns op.n",
     .source = "claims flash-256 to flash-2048", .live = "-fa 0 --isl 1024"},
    /* how it was measured */
    {.id = "micro-batch", .asks = "is the prompt cut too small?", .fn = hr_rule_micro_batch,
     .columns = "n_ubatch n_batch n_prompt isl", .source = "troubleshooting lists of serving engines", .live = "-p 128 -ub 16"},
    {.id = "no-warmup", .asks = "was nothing run before measuring?", .fn = hr_rule_no_warmup,
     .columns = "warmups page_faults", .source = "benchmark checklists", .live = "--no-warmup"},
    /* pairs of cells */
    {.id = "threads-idle", .asks = "are fewer threads as fast?", .fn = hr_rule_threads_idle, .without = by_threads,
     .timed = true, .columns = "n_threads state_class and the interval of the time", .source = "claim threads",
     .live = "fixture: which is faster is a matter of times"},
    {.id = "page-larger", .asks = "are larger pages faster?", .fn = hr_rule_page_larger, .without = by_page, .timed = true,
     .columns = "page_size state_class and the interval of the time", .source = "KV study",
     .live = "fixture: which is faster is a matter of times"},
    {.id = "batch", .asks = "how many sequences would use the arithmetic?", .fn = hr_rule_batch, .without = by_seqs, .timed = true,
     .columns = "n_seqs bound mbu mfu bytes_weights bytes_step roof_fraction intensity_flop_byte",
     .source = "roofline", .live = "-n 4 with one sequence"},
    {.id = "quant-slow", .asks = "is a quantization slower than its bytes allow?", .fn = hr_rule_quant_slow,
     .without = by_quant, .timed = true, .columns = "quant bytes_step bound state_class and the interval of the time",
     .source = "claim quant-speed", .live = "fixture: which is faster is a matter of times"},
    /* the machine */
    {.id = "threads", .asks = "more threads than cores?", .fn = hr_rule_threads, .columns = "n_threads machine.cores",
     .source = "checklists of builds", .live = "-t 8 on fewer cores"},
    {.id = "huge-pages", .asks = "does much memory lie in small pages?", .fn = hr_rule_huge_pages,
     .columns = "huge_pages rss_peak_bytes", .source = "read ceilings with and without", .live = "--huge-pages 0"},
    {.id = "paging", .asks = "page faults while the clock runs?", .fn = hr_rule_paging, .timed = true,
     .columns = "page_faults warmups samples_ns", .source = "benchmark checklists",
     .live = "fixture: what a first run leaves untouched is up to the system"},
    {.id = "memory-tight", .asks = "does a cell nearly fill the memory?", .fn = hr_rule_memory_tight,
     .columns = "rss_peak_bytes machine.memory_bytes", .source = "checklists of capacity",
     .live = "fixture: it would have to fill the machine"},
    {.id = "neighbour", .asks = "did other work run beside?", .fn = hr_rule_neighbour, .timed = true,
     .columns = "psi_cpu_some_pct flags ctx_switches samples_ns", .source = "pressure stall information of the kernel",
     .live = "fixture: it takes a neighbour"},
    {.id = "throttled", .asks = "was the clock low?", .fn = hr_rule_throttled, .timed = true, .columns = "clock_ratio flags",
     .source = "the clock check beside each cell", .live = "fixture: it takes heat or a power limit"},
    {.id = "state-mixed", .asks = "did the machine change its state?", .fn = hr_rule_state_mixed, .timed = true,
     .columns = "state_class read_gb_s_before read_gb_s_after handoff_ns", .source = "probes beside each cell",
     .live = "fixture: the host decides"},
    {.id = "handoff-far", .asks = "do joins cross from die to die?", .fn = hr_rule_handoff_far, .timed = true,
     .columns = "state_class handoff_ns n_threads recorded.n_jobs recorded.on_ns", .source = "probes beside each cell",
     .live = "fixture: the host decides"},
    {.id = "governor", .asks = "does the clock follow the load?", .fn = hr_rule_governor, .once = true,
     .columns = "machine.governor", .source = "benchmark checklists", .live = "fixture: a setting of the machine"},
    {.id = NULL},
};
/* clang-format on */

json_t *hr_advice_rules(void) {
    json_t *rows = json_array();
    for (const hr_rule *r = hr_rule_table; r->id && rows; r++) {
        json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s}", "rule", r->id, "asks", r->asks, "columns", r->columns,
                                "source", r->source, "live", r->live);
        if (!row || json_array_append_new(rows, row)) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}
