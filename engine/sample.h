/* sample.h - a token from logits. Pure functions over caller's memory. */
#ifndef HR_SAMPLE_H
#define HR_SAMPLE_H

#include "engine/engine.h"

/* Largest logit, lowest id of equals; NaN never wins (all NaN: 0). */
int32_t hr_argmax(const float *logits, size_t n);
/* The best of logits that come in parts, in any order of parts. */
enum { HR_KEEP_MAX = 64 };
typedef struct hr_kept {
    uint32_t n, k;                /* there are, may be at most */
    hr_candidate at[HR_KEEP_MAX]; /* [n]; when n = k a heap with the worst on top */
} hr_kept;
static inline void hr_kept_init(hr_kept *kept, uint32_t k) {
    kept->n = 0, kept->k = k;
}
/* Logits of ids id0 .. id0 + n - 1. */
void hr_kept_add(hr_kept *kept, const float *logits, size_t n, int32_t id0);
/* hr_sample from the best of `parts` parts of one row of `vocab` logits, each `stride` after the other: the same token and
 * the same use of rng. -1 when they do not suffice (more are asked for than were kept; no finite logit): rng untouched. */
int32_t hr_sample_kept(const hr_kept *kept, size_t parts, size_t stride, size_t vocab, const hr_sampling *how,
                       uint64_t *rng, hr_candidate *scratch);
/* scratch: [n] hr_candidate. */
int32_t hr_sample(const float *logits, size_t n, const hr_sampling *how, uint64_t *rng, hr_candidate *scratch);
#endif
