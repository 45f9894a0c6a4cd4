#include "harness/ab/ab_internal.h"

#include "harness/cli/interrupt.h"
#include "harness/cli/progress.h"
#include "harness/formats/json_get.h"
#include "harness/observe/observe_spawn.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <stdio.h>
#include <string.h>

enum { LOST_MAX = 2 };
static const char BUILDS[] = "build/ab"; /* work trees of revisions, below the folder where ab is called */

typedef struct session {
    const hr_ab_options *options;
    char *programs[2];
    char folder[512];
    uint64_t random;
    hr_progress progress;
    hr_ab_cells cells;
    size_t measured, repeated; /* pairs */
    size_t lost;               /* of these, by runs that hung or broke off */
    bool cut;                  /* ended early: by the limit of time, or by too many of those */
    json_t *commits[2];
} session;

static void show(session *s, int side) {
    const hr_ab_options *o = s->options;
    const size_t whole = o->pairs + s->repeated, runs = 2 * s->measured + (size_t)side;
    hr_progress_show(&s->progress, (double)runs / (double)(2 * whole), -1, "pair %zu of %zu%s", s->measured + 1, whole,
                     s->repeated ? " (with repeats)" : "");
}

/* Both runs of a pair; which is first is drawn. */
static hr_status measure_pair(session *s, hr_ab_side sides[2]) {
    static const char *const names[] = {"A", "B"};
    const int first = (int)(hr_random(&s->random) & 1);
    for (int k = 0; k < 2; k++) {
        const int side = k ? !first : first;
        show(s, k);
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        HR_TRY(hr_ab_once(s->options, names[side], s->programs[side], s->folder, &sides[side]));
    }
    return HR_OK;
}

/* A run that hung or broke off costs its pair and no more, unless it happens again and again. */
static hr_status lose_pair(session *s) {
    fprintf(stderr, "headroom: pair %zu: %s; %s\n", s->measured + 1, hr_error(),
            s->lost < LOST_MAX ? "it is repeated" : "no more pairs are measured");
    hr_ab_cells_lose(&s->cells, s->options->pairs, hr_error());
    s->measured++, s->repeated++;
    s->cut = ++s->lost > LOST_MAX;
    return HR_OK;
}

static hr_status one_pair(session *s) {
    hr_ab_side sides[2] = {{0}, {0}};
    bool repeat = false;
    hr_status status = measure_pair(s, sides);
    if (status == HR_ERR_INPUT && s->measured > 0) {
        hr_ab_side_fini(&sides[0]), hr_ab_side_fini(&sides[1]);
        return lose_pair(s);
    }
    if (status == HR_OK && s->measured == 0) {
        status = hr_ab_cells_init(&s->cells, &sides[0], &sides[1], &s->options->rule);
        for (int k = 0; k < 2; k++)
            s->commits[k] = json_incref(json_object_get(json_array_get(sides[k].cells, 0), "build_commit"));
    }
    if (status == HR_OK) status = hr_ab_cells_add(&s->cells, s->options->pairs, &sides[0], &sides[1], &repeat);
    if (status == HR_OK) s->measured++, s->repeated += repeat;
    hr_ab_side_fini(&sides[0]), hr_ab_side_fini(&sides[1]);
    return status;
}

/* Whether another pair, as long as the longest so far, would end after the limit. The clock alone decides, so that no verdict
 * depends on what was measured. */
static bool is_late(const session *s, uint64_t began, uint64_t longest) {
    const double limit = s->options->limit_s;
    return limit > 0 && (double)(hr_now_ns() - began + longest) * 1e-9 > limit;
}

static hr_status all_pairs(session *s) {
    const size_t wanted = s->options->pairs;
    const uint64_t began = hr_now_ns();
    uint64_t longest = 0;
    do {
        const uint64_t start = hr_now_ns();
        HR_TRY(one_pair(s));
        if (s->cut) return HR_OK;
        const uint64_t took = hr_now_ns() - start;
        if (took > longest) longest = took;
        if (is_late(s, began, longest)) {
            s->cut = hr_ab_cells_need(&s->cells, wanted);
            return HR_OK;
        }
    } while (hr_ab_cells_need(&s->cells, wanted) && s->measured < 2 * wanted);
    return HR_OK;
}

static json_t *about(const session *s, int side) {
    return json_pack("{s:s, s:O?}", "program", s->programs[side], "build_commit", s->commits[side]);
}

static hr_status result_of(const session *s, bool interrupted, json_t **out) {
    json_t *r = NULL;
    HR_TRY(hr_ab_cells_result(&s->cells, s->options->pairs, interrupted, &s->options->rule, &r));
    const bool ok = json_object_set_new(r, "pairs", json_integer((json_int_t)s->options->pairs)) == 0 &&
                    json_object_set_new(r, "repeated", json_integer((json_int_t)s->repeated)) == 0 &&
                    json_object_set_new(r, "a", about(s, 0)) == 0 && json_object_set_new(r, "b", about(s, 1)) == 0;
    if (ok && s->cut && s->lost <= LOST_MAX && !s->options->output.quiet)
        fprintf(
            stderr,
            "headroom: the limit of %.0f s ended it after %zu pairs: cells without %zu good ones are inconclusive\n",
            s->options->limit_s, s->measured, s->options->pairs);
    if (ok) {
        *out = r;
        return HR_OK;
    }
    json_decref(r);
    HR_FAIL(HR_ERR_MEMORY, "out of memory while measuring pairs");
}

static hr_status set_up(session *s) {
    const hr_ab_options *o = s->options;
    if (o->pairs < 1 || o->pairs > HR_PAIRS_EXACT)
        HR_FAIL(HR_ERR_USAGE, "%zu pairs: 1 to %d, the exact test takes no more", o->pairs, HR_PAIRS_EXACT);
    HR_TRY(hr_ab_check_args(o->sweep_args));
    HR_TRY(hr_ab_program(o->a, BUILDS, o->output.quiet, &s->programs[0]));
    HR_TRY(hr_ab_program(o->b, BUILDS, o->output.quiet, &s->programs[1]));
    HR_TRY(hr_scratch_make(s->folder, sizeof s->folder));
    s->random = o->seed;
    hr_progress_init(&s->progress, o->output.progress);
    return HR_OK;
}

/* What is whole is kept when it is interrupted, and its message stays. */
hr_status hr_ab_run(const hr_ab_options *options, json_t **out) {
    session s = {.options = options};
    *out = NULL;
    hr_status status = set_up(&s);
    if (status == HR_OK) status = all_pairs(&s);
    hr_progress_clear(&s.progress);
    const bool interrupted = status == HR_ERR_INTERRUPTED;
    if (status == HR_OK || (interrupted && s.measured)) {
        const hr_status made = result_of(&s, interrupted, out);
        status = made != HR_OK ? made : interrupted ? hr_fail(HR_ERR_INTERRUPTED, "interrupted") : HR_OK;
    }
    if (*s.folder) hr_scratch_remove(s.folder);
    hr_ab_cells_fini(&s.cells);
    for (int k = 0; k < 2; k++) hr_free(s.programs[k]), json_decref(s.commits[k]);
    return status;
}
