/* Rounds over all arms in random order, until the ratios to the first arm are known well enough. */
#include "harness/kv/study_arms.h"

#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <math.h>
#include <string.h>

hr_study_budget hr_study_budget_of(bool quick) {
    return quick ? (hr_study_budget){.max_seconds = 1.5, .min_seconds = 0.1, .max_samples = 80}
                 : (hr_study_budget){.max_seconds = 6, .min_seconds = 0.5, .max_samples = 400};
}

static void shuffle(size_t *order, size_t n, uint64_t *rng) {
    for (size_t i = n; i-- > 1;) {
        const size_t j = hr_random(rng) % (i + 1), t = order[i];
        order[i] = order[j], order[j] = t;
    }
}

/* One sample with the misses that it caused. */
static hr_status take(hr_study_session *session, hr_study_sample *sample, void *context, size_t arm, double *ns,
                      double misses[HR_MISSES]) {
    double before[HR_MISSES], after[HR_MISSES];
    if (!session || !session->counters.open) {
        for (int m = 0; m < HR_MISSES; m++) misses[m] = NAN;
        return sample(context, arm, ns);
    }
    hr_counters_read(&session->counters, before);
    HR_TRY(sample(context, arm, ns));
    hr_counters_read(&session->counters, after);
    for (int m = 0; m < HR_MISSES; m++) misses[m] = after[m] - before[m];
    return HR_OK;
}

/* Asks for every arm; true when none needs more. Arm 0 is judged by its times, the others by their ratios to it. */
static bool enough(const hr_study_budget *b, hr_study_series *s, double seconds, double *ratios) {
    const hr_stop_rule rule = {.min_samples = HR_STUDY_LEAST,
                               .max_samples = b->max_samples,
                               .min_seconds = b->min_seconds,
                               .max_seconds = b->max_seconds,
                               .half_width = 0.005};
    bool all = true;
    if (s->n < HR_STUDY_LEAST) return false;
    for (size_t a = 0; a < s->n_arms; a++) {
        for (size_t i = 0; i < s->n; i++) ratios[i] = s->ns[a * s->stride + i] / (a || s->n_arms == 1 ? s->ns[i] : 1);
        if (s->n_arms == 1) memcpy(ratios, s->ns, s->n * sizeof *ratios);
        const hr_stop stop = hr_stop_ask(&rule, ratios, s->n, seconds, NULL);
        s->stop[a] = hr_stop_names[stop];
        all &= stop != HR_STOP_NOT || (a == 0 && s->n_arms > 1);
    }
    return all;
}

hr_status hr_study_interleave(hr_study_session *session, const hr_study_options *options, const hr_study_budget *budget,
                              size_t n_arms, hr_study_sample *sample, void *context, hr_study_series *out) {
    const size_t most = budget->max_samples;
    size_t order[HR_STUDY_ARMS_MAX];
    uint64_t rng = options->seed + 3;
    *out = (hr_study_series){.n_arms = n_arms, .stride = most};
    double *misses = hr_calloc(n_arms * most * HR_MISSES, sizeof *misses), *ratios = hr_calloc(most, sizeof *ratios);
    out->ns = hr_calloc(n_arms * most, sizeof *out->ns);
    hr_status status = misses && ratios && out->ns ? HR_OK : hr_fail(HR_ERR_MEMORY, "kv study: no memory for samples");
    for (size_t a = 0; a < n_arms; a++) order[a] = a;
    for (size_t a = 0; a < n_arms && status == HR_OK; a++) { /* once, so that nothing is met for the first time */
        double ns;
        status = sample(context, a, &ns);
    }
    const uint64_t start = hr_now_ns();
    while (status == HR_OK && out->n < most) {
        shuffle(order, n_arms, &rng);
        for (size_t i = 0; i < n_arms && status == HR_OK; i++) {
            const size_t a = order[i];
            double m[HR_MISSES] = {NAN, NAN};
            status = take(session, sample, context, a, &out->ns[a * most + out->n], m);
            for (int k = 0; k < HR_MISSES; k++) misses[((size_t)k * n_arms + a) * most + out->n] = m[k];
            if (status == HR_OK && options->stop && options->stop())
                status = hr_fail(HR_ERR_INTERRUPTED, "interrupted");
        }
        out->n += status == HR_OK;
        if (status == HR_OK && enough(budget, out, (double)(hr_now_ns() - start) * 1e-9, ratios)) break;
    }
    for (size_t a = 0; a < n_arms && status == HR_OK; a++)
        for (int k = 0; k < HR_MISSES; k++)
            out->misses[a][k] = hr_median(misses + ((size_t)k * n_arms + a) * most, out->n);
    hr_free(misses), hr_free(ratios);
    if (status != HR_OK) hr_study_series_fini(out);
    return status;
}

void hr_study_series_fini(hr_study_series *series) {
    hr_free(series->ns);
    series->ns = NULL;
}
