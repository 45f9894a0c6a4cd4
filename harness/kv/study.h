/* study.h - the study of the KV cache: what each layout, operation, type and allocator costs on this machine.
 *
 * A study is a list of points in four parts. A point is measured once, stored as one row at once (so that a study goes on
 * where it stopped), and never measured while another is. Layouts of one point are compared in pairs with `head`: samples
 * are interleaved in random order, and what is judged is the ratio within a pair.
 *
 * Every row: {part, name, key, n, median, ci95_lo, ci95_hi, unit, samples}; unit of times "us", samples in that unit.
 * key: text that is the same for the same point ("decode head=8 dim=64 bf16 ctx=4096 batch=1 cold zorder").
 *
 * part "layouts" (a read of all positions by attention) and "operations" (append, append-chunk, fork, evict, offload,
 * restore, prefill), name = the layout (paged with its page size in page_size), or "contiguous-best": the hand-written kernel:
 *     op            "decode", "prefill", "append", "append-chunk", "fork", "evict", "offload", "restore"
 *     kv_heads head_dim group type_k type_v page_size context batch threads
 *     state         "cold" (caches emptied by other KV before each sample), "warm"
 *     bytes_needed bytes_touched     of rows and scales; of the lines they lie on
 *     gb_s                           bytes_needed / median
 *     vs_head       {median, ci95_lo, ci95_hi, n, verdict}: time / time of head, paired; "slower", "faster",
 *                   "no difference" (whole interval within 2 %), "inconclusive"; null for head
 *     predicted counted   {runs, lines, pages}: by the model of run lengths; by a counting run function. Pages of 4 KiB
 *     llc_misses tlb_misses          a sample, or null; counters: why they are null
 * part "dtypes", name = "K/V" types ("bf16", or "q8_0/bf16" when they differ):
 *     type_k type_v bytes_token (all layers, scales and the mean share of open groups included)
 *     ppl: [{ctx, ppl, delta_pct, model}] or null with ppl_reason; median: decode step at `context`, unit "ms";
 *     vs_bf16 as vs_head
 * part "allocators", name = the allocator:
 *     budget_pct concurrency requests distribution threshold compact_every share_prefix page_size
 *     reserved_bytes used_bytes waste_inside_pct waste_between_pct failed_admissions largest_batch compactions compact_ms
 *     moved_bytes prefix_hits evictions p50_ms p99_ms requests_s; median: wall time of the traffic, unit "ms" */
#ifndef HR_STUDY_H
#define HR_STUDY_H

#include "engine/engine.h"
#include <stdbool.h>

typedef struct hr_study_options {
    bool quick;       /* else the full one */
    const char *part; /* NULL: all */
    const char *db;   /* store, or "none" */
    bool resume;      /* points that the newest unfinished study of this build and machine has are not measured again */
    const char *ppl_model, *ppl_text; /* NULL: perplexity is null with the reason */
    unsigned threads; /* 0: physical cores */
    uint64_t seed;
    bool (*stop)(void);
    void (*progress)(size_t done, size_t total, double left_s, const char *what, void *context);
    void *context;
} hr_study_options;

/* *out, a new reference: {layouts, operations, dtypes, allocators}, each a list of rows, what was measured before an
 * interruption included (then ERR_INTERRUPTED). */
hr_status hr_study_run(const hr_study_options *options, json_t **out);

#endif
