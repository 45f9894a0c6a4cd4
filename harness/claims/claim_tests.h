/* claim_tests.h - the tests that the table names, by what they need. */
#ifndef HR_CLAIM_TESTS_H
#define HR_CLAIM_TESTS_H

#include "engine/engine.h"
#include "harness/claims/claims.h"

/* claim_engine.c: whole passes. arg: tokens of the prompt, or as said. */
hr_claim_test hr_test_flash;          /* naive / flash, attention alone */
hr_claim_test hr_test_flash_short;    /* flash / naive, attention alone */
hr_claim_test hr_test_fuse;           /* unfused / fused; arg: the HR_FUSE_* bit */
hr_claim_test hr_test_quant_speed;    /* bf16 / quantized; arg: hr_quant */
hr_claim_test hr_test_parallel;       /* a token alone / a token of a prompt */
hr_claim_test hr_test_prefill_share;  /* % of a prefill; arg: 0 products, 1 attention */
hr_claim_test hr_test_prefill_peak;   /* % of the unit's peak that the products reach */
hr_claim_test hr_test_decode_ceiling; /* % of a ceiling; arg: 0 memory, 1 arithmetic */
hr_claim_test hr_test_intensity;      /* flop / byte of a decode step */
hr_claim_test hr_test_compose;        /* % of a request spent in prefill */
hr_claim_test hr_test_threads;        /* best number of threads, % of the cores */

/* claim_arithmetic.c: no clock. */
hr_claim_test hr_test_quant_memory; /* f16 bytes / quantized bytes; arg: hr_quant */
hr_claim_test hr_test_mbu_example;
hr_claim_test hr_test_kv_size; /* arg 0: GB of 7B at 4096 positions, 1: KiB a token of 8B */
hr_claim_test hr_test_softmax;

/* claim_micro.c: single kernels. */
hr_claim_test hr_test_tile_decode;
hr_claim_test hr_test_restrict;
hr_claim_test hr_test_small_params;

/* claim_kv.c: where KV lies and in which type. */
hr_claim_test hr_test_kv_layout;  /* head / layout, attention of a decode step; arg: hr_kv_layout */
hr_claim_test hr_test_zorder_all; /* head / zorder with small parameters cached, a decode step */
hr_claim_test hr_test_kv_saving;  /* % of the bytes of bf16; arg: bits */
hr_claim_test hr_test_kv_speed;   /* small type / bf16, a decode step; arg: bits */
hr_dtype hr_claim_small_kv(int bits);

/* claim_quality.c: change of perplexity in %, on trained weights. */
hr_claim_test hr_test_kv_quality; /* arg: bits of KV */
hr_claim_test hr_test_quant_loss; /* arg: hr_quant */

/* claim_align.c: moved / aligned. */
hr_claim_test hr_test_align;

/* claim_kv_alloc.c: traffic under the allocators. arg: HR_CLAIM_PER_REQUEST ..., or as said. */
enum { HR_CLAIM_PER_REQUEST, HR_CLAIM_POOL, HR_CLAIM_PAGED, HR_CLAIM_HYBRID };
hr_claim_test hr_test_alloc_waste;  /* % of the memory taken that nobody uses; arg: which */
hr_claim_test hr_test_alloc_p99;    /* P99 of a request's latency over that with pages; arg: which */
hr_claim_test hr_test_alloc_qps;    /* requests a second with pages over those of arg: which */
hr_claim_test hr_test_alloc_cross;  /* time of the pool over time of pages; arg: requests at once */
hr_claim_test hr_test_alloc_hybrid; /* time of the better of pool and pages over time of hybrid */
hr_claim_test hr_test_alloc_batch;  /* largest batch with pages over that per request */
hr_claim_test hr_test_compaction;   /* refusals by fragmentation, % of those without compaction; arg: every N */

/* claim_restrict_avx2.c: y[p][16] += w[p][c][16] x[c], the one with restrict pointers and one without. */
typedef void hr_claim_gemv(const float *w, const float *x, float *y, size_t panels, size_t k);
hr_claim_gemv hr_claim_gemv_plain, hr_claim_gemv_restrict;

#endif
