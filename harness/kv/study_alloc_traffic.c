/* Requests by a distribution: lengths, what the client asks for, and tokens that are a function of their place. */
#include "harness/kv/study_alloc.h"

#include "kernels/base/random.h"

#include <math.h>
#include <stdio.h>

static const double Z95 = 1.6448536269514722; /* the normal distribution's 95th percentile */

hr_traffic_spec hr_traffic_chat(uint32_t concurrency, uint32_t n_requests, double scale, uint64_t seed) {
    return (hr_traffic_spec){.concurrency = concurrency,
                             .n_requests = n_requests,
                             .ctx = (uint32_t)(2048 * scale),
                             .prompt_median = 100 * scale,
                             .prompt_p95 = 500 * scale,
                             .output_median = 210 * scale,
                             .output_p95 = 1050 * scale,
                             .prefix_share = 0.5,
                             .prefix_len = (uint32_t)(256 * scale),
                             .n_prefixes = 4,
                             .seed = seed};
}

/* (0, 1]: a logarithm may be taken. */
static double uniform(uint64_t *rng) {
    return ((double)(hr_random(rng) >> 11) + 1) * 0x1p-53;
}

/* A whole number in [1, most] by the log-normal distribution of that median and P95 (Box and Muller's normal). */
static uint32_t log_normal(double median, double p95, uint32_t most, uint64_t *rng) {
    const double z = sqrt(-2 * log(uniform(rng))) * cos(2 * M_PI * uniform(rng));
    const double v = floor(median * exp(log(p95 / median) / Z95 * z) + 0.5);
    return v < 1 ? 1 : v > most ? most : (uint32_t)v;
}

static uint32_t power_of_two(uint32_t n) {
    uint32_t p = 1;
    while (p < n) p *= 2;
    return p;
}

void hr_traffic_make(const hr_traffic_spec *s, hr_traffic_request *out) {
    uint64_t rng = s->seed ^ 0x7261666669637421u;
    for (uint32_t r = 0; r < s->n_requests; r++) {
        hr_traffic_request *q = &out[r];
        const bool prefixed = uniform(&rng) <= s->prefix_share && s->n_prefixes;
        q->prefix = prefixed ? 1 + (uint32_t)(hr_random(&rng) % s->n_prefixes) : 0;
        const uint32_t before = prefixed ? s->prefix_len : 0, most = s->ctx * 3 / 4 - before;
        q->n_prompt = before + log_normal(s->prompt_median, s->prompt_p95, most, &rng);
        const uint32_t room = s->ctx - q->n_prompt;
        q->n_output = log_normal(s->output_median, s->output_p95, room, &rng);
        q->max_output = power_of_two(q->n_output);
        if (q->max_output > room) q->max_output = room;
    }
}

int32_t hr_traffic_token(const hr_traffic_spec *s, const hr_traffic_request *q, uint32_t r, uint32_t i,
                         uint32_t vocab) {
    const bool common = q->prefix && i < s->prefix_len;
    const uint64_t text = common ? q->prefix : (uint64_t)s->n_prefixes + 1 + r;
    return (int32_t)(hr_mix64(s->seed + HR_GOLDEN * (text << 32 | i)) % vocab);
}

double hr_traffic_demand(const hr_traffic_spec *s, const hr_traffic_request *requests) {
    double sum = 0;
    for (uint32_t r = 0; r < s->n_requests; r++) sum += (double)requests[r].n_prompt + requests[r].max_output;
    return s->n_requests ? sum * s->concurrency / s->n_requests : 0;
}

void hr_traffic_text(const hr_traffic_spec *s, char *out, size_t n) {
    snprintf(
        out, n,
        "log-normal, median/P95 tokens: prompt %.4g/%.4g, output %.4g/%.4g; %.3g %% of the prompts after one of %u "
        "prefixes of %u; context %u",
        s->prompt_median, s->prompt_p95, s->output_median, s->output_p95, 100 * s->prefix_share, s->n_prefixes,
        s->prefix_len, s->ctx);
}
