/* study_session.h - what the points of a study share: pinned threads, probes of the machine's state, memory that empties the
 * caches, counters, and the caches (arms) of the last shape. */
#ifndef HR_STUDY_SESSION_H
#define HR_STUDY_SESSION_H

#include "harness/kv/study_counters.h"
#include "harness/kv/study_part.h"

struct hr_study_arms;

struct hr_study_session {
    hr_machine machine;
    hr_cpus cpus;
    unsigned threads;
    hr_gang *gang;
    hr_roofs *roofs;
    uint64_t llc_bytes; /* as the knee of the size sweep, or as reported, the larger */
    hr_counters counters;
    uint8_t *flush; /* [flush_bytes] twice the last-level cache */
    size_t flush_bytes;
    hr_state before;            /* of the point that is measured */
    struct hr_study_arms *arms; /* of the last shape; NULL: none */
};

hr_status hr_study_session_create(const hr_study_options *options, hr_study_session **out);
void hr_study_session_destroy(hr_study_session *session);

/* All threads read memory of twice the last-level cache: what was in the caches and TLBs before is gone. */
void hr_study_flush(hr_study_session *session);

/* The machine's state before a point; after it, which also puts handoff_ns, read_gb_s_before, read_gb_s_after, state_class
 * and flags into `rows` from the first on. */
hr_status hr_study_state_before(hr_study_session *session);
hr_status hr_study_state_after(hr_study_session *session, json_t *rows, size_t first);

#endif
