/* sample.h - a token from logits. Pure functions over caller's memory. */
#ifndef HR_SAMPLE_H
#define HR_SAMPLE_H

#include "engine/engine.h"

/* Largest logit, lowest id of equals; NaN never wins (all NaN: 0). */
int32_t hr_argmax(const float *logits, size_t n);
/* scratch: [n] hr_candidate. */
int32_t hr_sample(const float *logits, size_t n, const hr_sampling *how, uint64_t *rng, hr_candidate *scratch);
#endif
