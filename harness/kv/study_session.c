#include "harness/kv/study_session.h"

#include "harness/kv/study_arms.h"
#include "harness/stats/stats.h"
#include "harness/sweep/derive.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum { LINE = 64 };

/* ---- emptied caches ---- */

typedef struct flush_job {
    hr_study_session *s;
    uint64_t sum[64]; /* so that no read is left out */
} flush_job;

static void flush_share(void *context, unsigned thread) {
    flush_job *j = context;
    const size_t n = j->s->flush_bytes / j->s->threads / LINE * LINE;
    const uint8_t *p = j->s->flush + thread * n;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i += LINE) sum += p[i];
    j->sum[thread % 64] = sum;
}

void hr_study_flush(hr_study_session *s) {
    flush_job j = {.s = s};
    hr_gang_run(s->gang, s->threads, flush_share, &j);
}

/* ---- the machine's state ---- */

hr_status hr_study_state_before(hr_study_session *s) {
    return hr_roofs_state(s->roofs, 0, &s->before);
}

hr_status hr_study_state_after(hr_study_session *s, json_t *rows, size_t first) {
    hr_state after;
    HR_TRY(hr_roofs_state(s->roofs, 0, &after));
    const char *class_name = hr_state_class(&s->before, &after);
    const bool changed = (class_name && !strcmp(class_name, "mixed")) || hr_state_drifted(&s->before, &after, 0);
    for (size_t i = first; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        json_object_set_new(row, "handoff_ns", hr_real_or_null(s->before.handoff_ns));
        json_object_set_new(row, "read_gb_s_before", hr_real_or_null(s->before.read_gb_s));
        json_object_set_new(row, "read_gb_s_after", hr_real_or_null(after.read_gb_s));
        json_object_set_new(row, "state_class", class_name ? json_string(class_name) : json_null());
        json_object_set_new(row, "flags", changed ? json_pack("[s]", "state_changed") : json_array());
    }
    return HR_OK;
}

/* ---- the session ---- */

static hr_status set_up(const hr_study_options *o, hr_study_session *s) {
    HR_TRY(hr_machine_get(&s->machine));
    HR_TRY(hr_cpus_get(&s->cpus));
    s->threads = o->threads ? o->threads : s->machine.cores;
    if (s->threads > s->cpus.n) s->threads = s->cpus.n;
    HR_TRY(hr_roofs_create(s->threads, &s->roofs));
    hr_roofs_stop_when(s->roofs, o->stop);
    HR_TRY(hr_gang_create(s->cpus.ids, s->threads, &s->gang));
    HR_TRY(hr_counters_init(&s->counters, s->gang, s->threads));
    HR_TRY(hr_roofs_llc(s->roofs, &s->llc_bytes));
    if (s->machine.l3_bytes > s->llc_bytes) s->llc_bytes = s->machine.l3_bytes;
    if (!s->llc_bytes) s->llc_bytes = (uint64_t)32 << 20;
    s->flush_bytes = 2 * s->llc_bytes;
    s->flush = hr_pages_alloc(s->flush_bytes, true);
    if (!s->flush)
        HR_FAIL(HR_ERR_MEMORY, "kv study: no memory for %zu MiB that empty the caches", s->flush_bytes >> 20);
    memset(s->flush, 1, s->flush_bytes);
    return HR_OK;
}

hr_status hr_study_session_create(const hr_study_options *options, hr_study_session **out) {
    hr_study_session *s = hr_calloc(1, sizeof *s);
    if (!s) HR_FAIL(HR_ERR_MEMORY, "kv study: out of memory");
    const hr_status status = set_up(options, s);
    if (status == HR_OK)
        *out = s;
    else
        hr_study_session_destroy(s);
    return status;
}

void hr_study_session_destroy(hr_study_session *s) {
    if (!s) return;
    hr_study_arms_destroy(s->arms);
    hr_counters_fini(&s->counters);
    hr_gang_destroy(s->gang);
    hr_roofs_destroy(s->roofs);
    hr_pages_free(s->flush, s->flush_bytes);
    hr_cpus_fini(&s->cpus);
    hr_free(s);
}
