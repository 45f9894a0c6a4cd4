/* study_ppl.h - the perplexity of a text with each type of the KV cache, on a real model. */
#ifndef HR_STUDY_PPL_H
#define HR_STUDY_PPL_H

#include "harness/kv/study.h"

/* "q8_0" or "q8_0/bf16": K and V. ERR_USAGE for what is no type of a cache. */
hr_status hr_study_types_of(const char *name, hr_dtype *k, hr_dtype *v);

/* *lists, a new reference: for each name [{ctx, ppl, delta_pct, tokens_scored, model}]; delta_pct against names[0] in the same
 * windows. Without a model or text *lists stays NULL and reason says why. */
hr_status hr_study_ppl(const hr_study_options *options, unsigned threads, const char *const *names, size_t n,
                       json_t **lists, char *reason, size_t reason_n);

#endif
