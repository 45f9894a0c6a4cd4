/* What to know before believing the figures: repetitions, convergence, the state of the machine, flags. */
#include "harness/report/report_page.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <string.h>

/* Repetitions of the time that counts in a cell. */
double hr_report_samples(const json_t *cell) {
    static const char *const dists[] = {"tpot_excl_first_ms", "ttft_ms", "ttft_prefill_ms"};
    for (size_t i = 0; i < 3; i++) {
        const double n = hr_num(json_object_get(cell, dists[i]), "n");
        if (n > 0) return n;
    }
    return (double)json_array_size(json_object_get(cell, "samples_ns"));
}

void hr_report_noise(const hr_report *r, char *out, size_t size) {
    const size_t all = json_array_size(r->cells);
    size_t noisy = 0, i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) noisy += hr_report_flagged(cell, "noisy_neighbour");
    out[0] = 0;
    if (2 * noisy > all)
        snprintf(out, size, "Other work ran on this machine during %zu of %zu cells: repeat on an idle machine", noisy,
                 all);
}

/* counts[word] += 1 */
static void count(json_t *counts, const char *word) {
    if (*word) json_object_set_new(counts, word, json_integer(json_integer_value(json_object_get(counts, word)) + 1));
}

static void counted(const json_t *counts, char *out, size_t size) {
    const char *word;
    json_t *n;
    size_t at = 0;
    out[0] = 0;
    json_object_foreach((json_t *)counts, word, n) if (at < size) at +=
        (size_t)snprintf(out + at, size - at, "%s%.40s %lld", at ? ", " : "", word, (long long)json_integer_value(n));
}

static void flags(hr_doc *doc, const hr_report *r) {
    static const struct {
        const char *flag, *meaning;
    } known[] = {
        {"over_roof", "faster than the roof allows, so a byte count or a ceiling is wrong: do not use them"},
        {"state_changed", "the machine changed its state during the cell"},
        {"roof_drift",
         "a ceiling differed by over 5 % before and after; the higher counts, so shares are rather too low"},
        {"noisy_neighbour", "other work waited for the CPUs: times are rather too long"},
        {"throttled", "the clock was low"},
        {"cache_resident", "weights and KV fit in the last-level cache: a share of the memory bandwidth says little"},
        {"weak_percentile", "too few samples for the upper percentiles; medians are not concerned"},
        {"simulated", "no real device ran them"},
    };
    const size_t all = json_array_size(r->cells);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        size_t n = 0, i;
        json_t *cell;
        json_array_foreach(r->cells, i, cell) n += hr_report_flagged(cell, known[k].flag);
        if (n) hr_doc_item(doc, known[k].flag, "(%zu of %zu cells): %s.", n, all, known[k].meaning);
    }
}

/* What is seen over all cells. */
typedef struct overview {
    json_t *stops, *states, *builds; /* how many cells of each */
    double fewest, most;             /* repetitions */
    size_t n_few;                    /* cells with too few for an interval */
    double low, high;                /* ceilings of reading beside the cells */
    double *probes;                  /* cost of the recorder in per cent [n_probes] */
    size_t n_probes;
} overview;

static void look_at(const hr_report *r, overview *o) {
    size_t i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        const double n = hr_report_samples(cell), peak = hr_num(cell, "peak_read_gb_s"),
                     probe = hr_num(cell, "probe_overhead_pct");
        const char *state = hr_word(cell, "state_class");
        o->fewest = fmin(o->fewest, n), o->most = fmax(o->most, n), o->n_few += n < 6;
        if (isfinite(peak)) o->low = fmin(o->low, peak), o->high = fmax(o->high, peak);
        if (isfinite(probe) && o->probes) o->probes[o->n_probes++] = fabs(probe);
        count(o->stops, hr_word(cell, "stop_reason"));
        count(o->states, *state ? state : "unknown");
        count(o->builds, hr_word(cell, "build_commit"));
    }
}

static void repetitions(hr_doc *doc, const overview *o, size_t all) {
    char range[80];
    if (o->fewest < o->most)
        snprintf(range, sizeof range, "%.0f to %.0f samples", o->fewest, o->most);
    else
        snprintf(range, sizeof range, "%s", hr_text_of(o->fewest, "sample"));
    if (o->n_few)
        hr_doc_item(
            doc, "Repetitions:",
            "%s a cell; %zu of %zu cells have fewer than 6, from which no 95 %% interval can be had: their bars "
            "run from the lowest to the highest sample.",
            range, o->n_few, all);
    else
        hr_doc_item(doc, "Repetitions:", "%s a cell.", range);
}

static void convergence(hr_doc *doc, const overview *o, size_t all) {
    char text[400];
    counted(o->stops, text, sizeof text);
    if ((size_t)json_integer_value(json_object_get(o->stops, "converged")) == all)
        hr_doc_item(doc, "Convergence:", "all cells stopped because the median was known to 0.5 %%.");
    else
        hr_doc_item(
            doc, "Convergence:",
            "cells by stop reason: %s. Only “converged” means that the median is known to 0.5 %%; “fixed” means "
            "that so many repetitions were ordered.",
            text);
    counted(o->states, text, sizeof text);
    if (json_object_size(o->states) > 1)
        hr_doc_item(doc, "State of the machine:",
                    "cells by state: %s. Near and far are the distance of the cores that ran, mixed is a change within "
                    "the cell, unknown was not probed. Cells of different states do not compare.",
                    text);
    else
        hr_doc_item(doc, "State of the machine:", "the same in all cells (%s).", text);
}

/* Cells whose recorded ops do not add up to the time that was measured with the recorder off. */
static void unexplained(hr_doc *doc, const hr_report *r) {
    size_t n = 0, all = 0, i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        hr_report_point p;
        const char *phase = hr_report_point_of(cell, "decode", &p) ? "decode" : "prefill";
        const double sum = hr_report_phase_sum(cell, phase, "ms");
        if (!hr_report_point_of(cell, phase, &p) || !isfinite(sum)) continue;
        all++, n += fabs(sum - p.ms) > 0.1 * p.ms;
    }
    if (n)
        hr_doc_item(
            doc, "Sums of ops:",
            "in %zu of %zu cells the recorded ops add up to a time that is over 10 %% away from the one measured "
            "with the recorder off: the machine was not the same in both, or the median call hides slow ones.",
            n, all);
}

void hr_report_trust(hr_doc *doc, const hr_report *r) {
    const size_t all = json_array_size(r->cells);
    overview o = {.stops = json_object(),
                  .states = json_object(),
                  .builds = json_object(),
                  .fewest = INFINITY,
                  .low = INFINITY,
                  .probes = hr_calloc(all + 1, sizeof *o.probes)};
    char text[400];
    look_at(r, &o);
    hr_doc_list(doc, true);
    repetitions(doc, &o, all);
    convergence(doc, &o, all);
    if (o.high > 0 && o.low < o.high)
        hr_doc_item(doc, "Ceilings:",
                    "the read bandwidth beside the cells ran from %s to %s GB/s; each share is against the ceiling of "
                    "its own cell.",
                    hr_text_num(o.low), hr_text_num(o.high));
    if (json_object_size(o.builds) > 1) {
        counted(o.builds, text, sizeof text);
        hr_doc_item(doc, "Several builds:", "cells by commit: %s.", text);
    }
    if (o.n_probes)
        hr_doc_item(
            doc, "Cost of observing:",
            "recording ops changed the time of a repetition by %s %% in the median cell (noise included). Times "
            "are taken with the recorder off; only the tables and plots of ops come from recorded repetitions.",
            hr_text_num(hr_median(o.probes, o.n_probes)));
    unexplained(doc, r);
    if (r->n_replaced)
        hr_doc_item(doc, "Measured again:", "%s of the same cells %s left out; the newest counts.",
                    hr_text_of((double)r->n_replaced, "older measurement"), r->n_replaced == 1 ? "is" : "are");
    flags(doc, r);
    hr_doc_list(doc, false);
    json_decref(o.stops), json_decref(o.states), json_decref(o.builds);
    hr_free(o.probes);
}
