/* The verdict in words, and what weakens it. Every figure comes from the cells; nothing is rounded up. */
#include "harness/report/report_page.h"

#include "kernels/base/memory.h"

#include <string.h>

enum { PAIRS_MOST = 8 };

/* "runs at 83 % of the read bandwidth": what the bound says is the measure. */
static void share(const hr_report_point *p, char *out, size_t size) {
    if (!strcmp(p->bound, "compute"))
        snprintf(out, size, "%s of the %s peak", hr_text_pct(p->mfu), hr_unit_names[p->unit]);
    else
        snprintf(out, size, "%s of the read bandwidth", hr_text_pct(p->mbu));
}

static const json_t *largest_loss(const json_t *cell, const char *phase) {
    const json_t *worst = NULL;
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(cell, "op_sums"), i, op) {
        const double loss = hr_num(op, "loss_ms");
        if (!strcmp(hr_word(op, "phase"), phase) && loss > 0 && (!worst || loss > hr_num(worst, "loss_ms"))) worst = op;
    }
    return worst;
}

/* "The largest loss is attention: 12 % of the step is above its roof time". "" when unknown. */
static void loss(const json_t *cell, const char *phase, const char *whole, char *out, size_t size) {
    const json_t *op = largest_loss(cell, phase);
    const double total = hr_report_phase_sum(cell, phase, "ms");
    out[0] = 0;
    if (!op || !(total > 0)) return;
    snprintf(out, size, "the largest loss is %.24s (%s of the %s is above its roof time)", hr_word(op, "op"),
             hr_text_pct(hr_num(op, "loss_ms") / total), whole);
}

static double tokens_of(const json_t *cell) {
    const double isl = hr_num(cell, "isl");
    return isfinite(isl) ? isl : hr_num(cell, "n_prompt");
}

static void pair_item(hr_doc *doc, const hr_report_pair *pair) {
    char part[400] = "", text[1200] = "", why[240];
    size_t n = 0;
    hr_report_point p;
    const json_t *any = pair->decode ? pair->decode : pair->prefill;
    if (pair->decode && hr_report_point_of(pair->decode, "decode", &p)) {
        const double seqs = hr_num(pair->decode, "n_seqs");
        share(&p, part, sizeof part);
        loss(pair->decode, "decode", "step", why, sizeof why);
        n += (size_t)snprintf(text, sizeof text, "decode at %s (%.60s: %s ms a step, %s token/s, bound by %s)%s%s",
                              part, hr_word(pair->decode, "test"), hr_text_num(p.ms),
                              hr_text_num((seqs > 0 ? seqs : 1) * 1e3 / p.ms), p.bound, *why ? "; " : "", why);
    }
    if (pair->prefill && hr_report_point_of(pair->prefill, "prefill", &p) && n < sizeof text) {
        share(&p, part, sizeof part);
        loss(pair->prefill, "prefill", "prefill", why, sizeof why);
        snprintf(text + n, sizeof text - n, "%sprefill at %s (%.60s: %s token/s, bound by %s)%s%s", n ? ". " : "", part,
                 hr_word(pair->prefill, "test"), hr_text_num(tokens_of(pair->prefill) * 1e3 / p.ms), p.bound,
                 *why ? "; " : "", why);
    }
    char lead[HR_LABEL_BYTES + 2];
    snprintf(lead, sizeof lead, "%s:", hr_text_weights(any));
    hr_doc_item(doc, lead, "%s.", text);
}

/* Repetitions of the time that counts in a cell. */
static double samples_of(const json_t *cell) {
    static const char *const dists[] = {"tpot_excl_first_ms", "ttft_ms", "ttft_prefill_ms"};
    for (size_t i = 0; i < 3; i++) {
        const double n = hr_num(json_object_get(cell, dists[i]), "n");
        if (n > 0) return n;
    }
    return (double)json_array_size(json_object_get(cell, "samples_ns"));
}

static void lead(hr_doc *doc, const hr_report *r, const hr_report_pair *pair) {
    char text[1200] = "", part[200], why[240] = "";
    size_t n = 0;
    hr_report_point p;
    const json_t *any = pair->decode ? pair->decode : pair->prefill;
    if (pair->decode && hr_report_point_of(pair->decode, "decode", &p)) {
        share(&p, part, sizeof part);
        loss(pair->decode, "decode", "step", why, sizeof why);
        n += (size_t)snprintf(text, sizeof text, "Decode of %s runs at %s", hr_text_weights(any), part);
    }
    if (pair->prefill && hr_report_point_of(pair->prefill, "prefill", &p) && n < sizeof text) {
        share(&p, part, sizeof part);
        if (n)
            n += (size_t)snprintf(text + n, sizeof text - n, "; prefill at %s", part);
        else {
            loss(pair->prefill, "prefill", "prefill", why, sizeof why);
            n += (size_t)snprintf(text + n, sizeof text - n, "Prefill of %s runs at %s", hr_text_weights(any), part);
        }
    }
    if (*why && n < sizeof text) snprintf(text + n, sizeof text - n, "; %s", why);
    double fewest = INFINITY;
    size_t i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) fewest = fmin(fewest, samples_of(cell));
    hr_doc_lead(doc, "%s.%s", text,
                fewest < 6 ? " Few repetitions: take these figures as a first look, not as a measurement to rely on."
                           : "");
}

/* How many phases of cells are bound by what. */
static void limits(hr_doc *doc, const hr_report *r) {
    size_t n[2][2] = {{0}}, i;
    static const char *const phases[] = {"decode", "prefill"};
    json_t *cell;
    json_array_foreach(r->cells, i, cell) for (int k = 0; k < 2; k++) {
        hr_report_point p;
        if (!hr_report_point_of(cell, phases[k], &p) || !*p.bound) continue;
        n[k][!strcmp(p.bound, "compute")]++;
    }
    for (int k = 0; k < 2; k++)
        if (n[k][0] + n[k][1])
            hr_doc_item(doc, k ? "Prefill" : "Decode", "is bound by memory in %zu and by compute in %zu of %zu cells.",
                        n[k][0], n[k][1], n[k][0] + n[k][1]);
}

void hr_report_verdict(hr_doc *doc, const hr_report *r) {
    hr_report_pair pairs[PAIRS_MOST];
    const size_t n = hr_report_pairs(r, pairs, PAIRS_MOST);
    if (!n) {
        hr_doc_lead(doc,
                    "No cell has both its work and its ceilings, so no share of the machine can be told; the times "
                    "stand in the table of cells.");
        return;
    }
    lead(doc, r, &pairs[0]);
    hr_doc_list(doc, true);
    for (size_t i = 0; i < n; i++) pair_item(doc, &pairs[i]);
    limits(doc, r);
    hr_doc_list(doc, false);
}

/* ---- what weakens it -------------------------------------------------------------------------------------------- */

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

void hr_report_trust(hr_doc *doc, const hr_report *r) {
    json_t *stops = json_object(), *states = json_object(), *builds = json_object(), *cell;
    double fewest = INFINITY, most = 0, probes = NAN, low = INFINITY, high = 0;
    size_t n_few = 0, i;
    json_array_foreach(r->cells, i, cell) {
        const double n = samples_of(cell), peak = hr_num(cell, "peak_read_gb_s"),
                     probe = hr_num(cell, "probe_overhead_pct");
        fewest = fmin(fewest, n), most = fmax(most, n), n_few += n < 6;
        if (isfinite(peak)) low = fmin(low, peak), high = fmax(high, peak);
        if (isfinite(probe) && !(fabs(probe) < fabs(probes))) probes = probe;
        count(stops, hr_word(cell, "stop_reason"));
        count(states, *hr_word(cell, "state_class") ? hr_word(cell, "state_class") : "unknown");
        count(builds, hr_word(cell, "build_commit"));
    }
    const size_t all = json_array_size(r->cells);
    const long long converged = json_integer_value(json_object_get(stops, "converged"));
    char text[400];
    hr_doc_list(doc, true);
    hr_doc_item(doc, "Repetitions:",
                n_few
                    ? "%.0f to %.0f samples a cell; %zu of %zu cells have fewer than 6, which gives no 95 %% interval: "
                      "their bars run from the lowest to the highest sample."
                    : "%.0f to %.0f samples a cell.",
                fewest, most, n_few, all);
    counted(stops, text, sizeof text);
    hr_doc_item(doc, "Convergence:",
                (size_t)converged == all
                    ? "all cells stopped by the rule (%s)."
                    : "stop reasons: %s. A cell that is not `converged` has a median known to worse "
                      "than 0.5 %%, or no known precision (`fixed`).",
                text);
    counted(states, text, sizeof text);
    hr_doc_item(
        doc, "State of the machine:",
        json_object_size(states) > 1
            ? "%s. Cells of different states (cores near each other or far apart) do not compare; the table says "
              "which is which."
            : "%s in all cells.",
        text);
    if (high > 0 && low < high)
        hr_doc_item(doc, "Ceilings:",
                    "the read bandwidth beside the cells ran from %s to %s GB/s; each share is against "
                    "the ceiling of its own cell.",
                    hr_text_num(low), hr_text_num(high));
    if (json_object_size(builds) > 1) {
        counted(builds, text, sizeof text);
        hr_doc_item(doc, "Several builds:", "%s (cells each).", text);
    }
    if (isfinite(probes))
        hr_doc_item(
            doc, "Cost of observing:",
            "the recorder changed the time of a repetition by up to %s %% (recorded "
            "repetitions fill the tables of ops alone; times are taken with it off; under noise this is noise).",
            hr_text_num(probes));
    if (r->n_replaced)
        hr_doc_item(doc, "Measured again:", "%zu older measurements of the same cells are left out; the newest counts.",
                    r->n_replaced);
    flags(doc, r);
    hr_doc_list(doc, false);
    json_decref(stops), json_decref(states), json_decref(builds);
}
