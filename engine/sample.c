#include "engine/sample.h"

#include "kernels/base/random.h"

#include <math.h>
#include <string.h>

/* Uniform in [0, 1), 53 bits. */
static double uniform(uint64_t *rng) {
    return (double)(hr_random(rng) >> 11) * 0x1p-53;
}

int32_t hr_argmax(const float *logits, size_t n) {
    enum { LANES = 8 }; /* independent maxima, so that the compiler may use vectors; a comparison with NaN is false */
    float best[LANES];
    for (int j = 0; j < LANES; j++) best[j] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) best[j] = logits[i + j] > best[j] ? logits[i + j] : best[j];
    for (; i < n; i++) best[0] = logits[i] > best[0] ? logits[i] : best[0];
    for (int j = 1; j < LANES; j++) best[0] = best[j] > best[0] ? best[j] : best[0];
    for (i = 0; i < n; i++)
        if (logits[i] == best[0]) return (int32_t)i;
    return 0;
}

double hr_logsumexp(const float *logits, size_t n) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i])) return NAN;
        if (logits[i] > max) max = logits[i];
    }
    if (isinf(max)) return max;
    for (size_t i = 0; i < n; i++) sum += exp(logits[i] - max);
    return max + log(sum);
}

/* ---- the k largest: a heap of k with the worst on top */

static bool is_better(hr_candidate a, hr_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(hr_candidate *heap, size_t n, size_t i) {
    hr_candidate moved = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_better(heap[child], heap[child + 1])) child++;
        if (!is_better(moved, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void make_heap(hr_candidate *heap, size_t n) {
    for (size_t j = n / 2; j-- > 0;) sift_down(heap, n, j);
}

/* The worst goes to the end, again and again: best first. */
static void sort_heap(hr_candidate *heap, size_t n) {
    for (size_t end = n; end-- > 1;) {
        hr_candidate worst = heap[0];
        heap[0] = heap[end];
        heap[end] = worst;
        sift_down(heap, end, 0);
    }
}

size_t hr_top_k(const float *logits, size_t n, size_t k, hr_candidate *out) {
    if (k > n) k = n;
    if (k == 0) return 0;
    for (size_t i = 0; i < n; i++) {
        hr_candidate c = {isnan(logits[i]) ? -INFINITY : logits[i], (int32_t)i};
        if (i < k) {
            out[i] = c;
            if (i + 1 == k) make_heap(out, k);
        } else if (c.logit > out[0].logit) { /* of equals the earlier id stays */
            out[0] = c;
            sift_down(out, k, 0);
        }
    }
    sort_heap(out, k);
    return k;
}

static float largest_of(const float *x, size_t n) {
    float best = -INFINITY;
    for (size_t i = 0; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

static void keep_one(hr_kept *kept, hr_candidate c) {
    if (kept->n < kept->k) {
        kept->at[kept->n++] = c;
        if (kept->n == kept->k) make_heap(kept->at, kept->k);
    } else if (is_better(c, kept->at[0])) {
        kept->at[0] = c;
        sift_down(kept->at, kept->k, 0);
    }
}

void hr_kept_add(hr_kept *kept, const float *logits, size_t n, int32_t id0) {
    enum { BLOCK = 64 };
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = n - i < BLOCK ? n - i : BLOCK;
        if (kept->n == kept->k && largest_of(logits + i, m) < kept->at[0].logit) continue;
        for (size_t j = i; j < i + m; j++)
            keep_one(kept, (hr_candidate){isnan(logits[j]) ? -INFINITY : logits[j], id0 + (int32_t)j});
    }
}

/* ---- drawing */

/* Weight of a logit against the largest one, which weighs 1. */
static double weight(float logit, float max, double temperature) {
    if (!(logit > -INFINITY)) return 0; /* NaN too */
    return exp(((double)logit - max) / temperature);
}

/* From all n, in order of id; the cut of min-p needs no order. */
static int32_t draw_unsorted(const float *logits, size_t n, float max, const hr_sampling *how, uint64_t *rng,
                             hr_candidate *scratch) {
    double sum = 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        double w = weight(logits[i], max, how->temperature);
        if (w == 0 || w < how->min_p) continue;
        scratch[kept++] = (hr_candidate){(float)w, (int32_t)i};
        sum += (float)w;
    }
    double left = uniform(rng) * sum;
    for (size_t i = 0; i < kept; i++)
        if ((left -= scratch[i].logit) < 0) return scratch[i].id;
    return kept ? scratch[kept - 1].id : hr_argmax(logits, n); /* rounding, or min_p above 1 */
}

/* From candidates sorted best first, whose weights sum to `total`. */
static int32_t draw_sorted(const hr_candidate *sorted, size_t n, double total, const hr_sampling *how, uint64_t *rng) {
    float max = sorted[0].logit;
    double sum = 0;
    size_t kept = 0;
    while (kept < n) { /* the fewest that reach top_p, at least one */
        double w = weight(sorted[kept].logit, max, how->temperature);
        if (kept && (w < how->min_p || sum >= how->top_p * total)) break;
        sum += w;
        kept++;
    }
    double left = uniform(rng) * sum;
    for (size_t i = 0; i < kept; i++)
        if ((left -= weight(sorted[i].logit, max, how->temperature)) < 0) return sorted[i].id;
    return sorted[kept - 1].id;
}

static double sum_of(const hr_candidate *c, size_t n, float max, double temperature) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += weight(c[i].logit, max, temperature);
    return sum;
}

int32_t hr_sample(const float *logits, size_t n, const hr_sampling *how, uint64_t *rng, hr_candidate *scratch) {
    int32_t best = hr_argmax(logits, n);
    if (n == 0 || !(how->temperature > 0) || !isfinite(logits[best])) return best;
    float max = logits[best];
    size_t k = how->top_k > 0 && (size_t)how->top_k < n ? (size_t)how->top_k : n;
    if (k < n) {
        k = hr_top_k(logits, n, k, scratch);
        return draw_sorted(scratch, k, sum_of(scratch, k, max, how->temperature), how, rng);
    }
    if (!(how->top_p < 1)) return draw_unsorted(logits, n, max, how, rng, scratch);
    double total = 0;
    for (size_t i = 0; i < n; i++) total += weight(logits[i], max, how->temperature);
    /* The nucleus is small as a rule: sort only as many as it takes. */
    for (k = 128;; k *= 8) {
        size_t got = hr_top_k(logits, n, k, scratch);
        if (got == n || sum_of(scratch, got, max, how->temperature) >= how->top_p * total)
            return draw_sorted(scratch, got, total, how, rng);
    }
}

int32_t hr_sample_kept(const hr_kept *kept, size_t parts, size_t stride, size_t vocab, const hr_sampling *how,
                       uint64_t *rng, hr_candidate *scratch) {
    const bool greedy = !(how->temperature > 0);
    const size_t k = greedy ? 1 : how->top_k > 0 ? (size_t)how->top_k : vocab;
    hr_kept best;
    if (k > HR_KEEP_MAX || k >= vocab) return -1;
    hr_kept_init(&best, (uint32_t)k);
    for (size_t p = 0; p < parts; p++) {
        const hr_kept *part = &kept[p * stride];
        if (part->k < k) return -1;
        for (size_t i = 0; i < part->n; i++) keep_one(&best, part->at[i]);
    }
    if (best.n < k) return -1;
    memcpy(scratch, best.at, k * sizeof *scratch);
    sort_heap(scratch, k);
    if (!isfinite(scratch[0].logit)) return -1;
    return greedy ? scratch[0].id
                  : draw_sorted(scratch, k, sum_of(scratch, k, scratch[0].logit, how->temperature), how, rng);
}
