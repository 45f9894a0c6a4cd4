/* study.h - the study of the KV cache: what each layout, operation, type and allocator costs on this machine.
 *
 * A study is a list of points in four parts. A point is measured once, stored as one row at once (so that a study goes on
 * where it stopped), and never measured while another is. Layouts of one point are compared in pairs with `head`: samples
 * are interleaved in random order, and what is judged is the ratio within a pair.
 *
 * Every row: {part, name, key, n, median, ci95_lo, ci95_hi, unit, samples}; unit of times "us", samples in that unit.
 * key: text that is the same for the same row ("decode kv_heads=8 head_dim=64 group=4 bf16 context=4096 batch=1 cold zorder").
 * `partial`: true in a row that an interruption left without some of its keys; it is measured again by resume.
 * Rows also have {handoff_ns, read_gb_s_before, read_gb_s_after, state_class, flags}
 * as a cell has them (cli.md): the machine's state around the point.
 *
 * part "layouts" (a read of all positions by attention) and "operations" (append, append-chunk, fork, evict, offload,
 * restore, prefill), name = the layout (paged with its page size in page_size), or "contiguous-best": the hand-written kernel:
 *     op            "decode", "prefill", "append", "append-chunk", "fork", "evict", "offload", "restore"
 *     kv_heads head_dim group type_k type_v page_size (null unless paged) context batch threads
 *     layers        of the cache: what stands between two rows of the layout token
 *     tokens        queries of prefill, rows of append-chunk; null for other operations
 *     kernel        the row of the table that ran; null where none did
 *     state         "cold" (caches emptied by other memory before each sample), "warm" (the same memory again and again)
 *     median        us for: decode, prefill: one layer, all sequences of the batch; append, append-chunk: one sequence, all
 *                   layers; fork (of `context` positions), evict (4 sinks and a window of a quarter of the context stay),
 *                   offload, restore: one sequence, all layers
 *     bytes_needed bytes_touched     in that time: of rows and scales; of the lines they lie on (null: not known)
 *     gb_s                           bytes_needed / median; null for fork and evict
 *     freed_bytes                    evict: memory given back; null for the others
 *     vs_head       {median, ci95_lo, ci95_hi, n, verdict}: time / time of head, paired; "slower", "faster",
 *                   "no difference" (whole interval within 2 %), "inconclusive"; null for head
 *     predicted counted   {runs, lines, pages} in that time: by the model of run lengths; by a counting run function, which
 *                   walks one sequence of a batch, times the batch. Lines of 64 bytes, pages of 4 KiB
 *     llc_misses tlb_misses          a sample, or null; counters: why they are null
 * part "dtypes", name = "K/V" types ("bf16", or "q8_0/bf16" when they differ):
 *     model context type_k type_v bytes_token (all layers, scales and the mean share of open groups included)
 *     ppl: [{ctx, ppl, delta_pct, model}] or null with ppl_reason; delta_pct: perplexity over that of bf16 in the same
 *     windows - 1; median: decode step at `context`, unit "ms"; vs_bf16 as vs_head
 * part "allocators", name = the allocator:
 *     model distribution concurrency requests budget_pct (of the demand: the longest lengths of `concurrency` requests)
 *     budget_bytes threshold compact_every share_prefix page_size prepared (room for the median output at admission);
 *                   null where they do not concern the allocator
 *     median        wall time of the traffic, unit "ms"; requests_s; overhead_pct: of it in the simulator's own loop
 *     vs_paged      as vs_head, against plain pages in the same traffic; null for these
 *     reserved_bytes used_bytes waste_inside_pct (of reserved) waste_between_pct (of the budget): means over the steps at
 *                   which requests waited; over all steps when none did
 *     failed_admissions failed_by_pieces (for want of one free piece; pool and hybrid) preemptions compactions compact_ms
 *     moved_bytes prefix_hits evictions: means of a traffic; largest_batch: the largest of all
 *     p50_ms p99_ms of a request from arrival to last token; ttft_p50_ms ttft_p99_ms to the first; token_p50_ms
 *     token_p99_ms of the gaps between tokens, what a preempted request waits included */
#ifndef HR_STUDY_H
#define HR_STUDY_H

#include "engine/engine.h"
#include <stdbool.h>

typedef struct hr_study_options {
    bool quick;       /* else the full one */
    const char *part; /* NULL: all */
    const char *db;   /* store, or "none" */
    bool
        resume; /* rows that the newest unfinished study of this build, machine and options has are taken, not measured */
    const char *ppl_model, *ppl_text; /* NULL: perplexity is null with the reason */
    unsigned threads;                 /* 0: physical cores */
    uint64_t seed;
    const json_t *args; /* what was given, for the record of the run; may be NULL */
    bool (*stop)(void);
    void (*progress)(size_t done, size_t total, double left_s, const char *what, void *context);
    void (*note)(const char *text, void *context); /* one sentence for the user without a full stop; may be NULL */
    void *context;
} hr_study_options;

/* *out, a new reference: {layouts, operations, dtypes, allocators}, each a list of rows, what was measured before an
 * interruption included (then ERR_INTERRUPTED). A point that cannot be measured costs its rows and is named in *failed
 * (hr_malloc'ed text, NULL when all went well; may be NULL). */
hr_status hr_study_run(const hr_study_options *options, json_t **out, char **failed);

/* One paragraph: what to use on this machine and why, out of the rows of a study alone. hr_malloc'ed; NULL: out of memory. */
char *hr_study_advice(const json_t *study);

#endif
