/* logits.h - what is said about a row of logits: the largest, as JSON. */
#ifndef HR_LOGITS_H
#define HR_LOGITS_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stddef.h>

/* [[id, value], ...] of the k largest, best first, the lower id first of equals; NaN is null and last. New reference. */
hr_status hr_logits_top(const float *logits, size_t n, size_t k, json_t **out);
#endif
