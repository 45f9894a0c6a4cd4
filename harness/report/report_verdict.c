/* The verdict in words. Every figure comes from the cells; nothing is rounded up. */
#include "harness/report/report_kv.h"

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

/* "The largest loss is attention (12 % of the step is above its roof time)"; no cause is named with confidence where
 * the recorded ops do not add up to the measured time. "" when unknown. */
static void loss(const json_t *cell, const char *phase, const char *whole, char *out, size_t size) {
    const json_t *op = largest_loss(cell, phase);
    const double sum = hr_report_phase_sum(cell, phase, "ms");
    hr_report_point p;
    out[0] = 0;
    if (!op || !(sum > 0) || !hr_report_point_of(cell, phase, &p) || !(p.ms > 0)) return;
    const bool outside = !strcmp(hr_word(op, "op"), HR_OUTSIDE_OPS);
    const char *lost = hr_text_pct(hr_num(op, "loss_ms") / p.ms);
    if (fabs(sum - p.ms) > 0.1 * p.ms)
        snprintf(
            out, size,
            "the recorded ops add up to %s of the measured %s, so the cause is uncertain: the largest loss seen is "
            "%.24s (%s of the %s%s)",
            hr_text_pct(sum / p.ms), whole, hr_word(op, "op"), lost, whole, outside ? "" : " above its roof time");
    else
        snprintf(out, size, "the largest loss is %.24s (%s of the %s%s)", hr_word(op, "op"), lost, whole,
                 outside ? ", which no recorded op explains" : " is above its roof time");
}

static double tokens_of(const json_t *cell) {
    const double isl = hr_num(cell, "isl");
    return isfinite(isl) ? isl : hr_num(cell, "n_prompt");
}

static void pair_item(hr_doc *doc, const hr_report_pair *pair) {
    char part[400] = "", text[1200] = "", why[400];
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
        snprintf(text + n, sizeof text - n, "%s at %s (%.60s: %s token/s, bound by %s)%s%s",
                 n ? ". Prefill" : "prefill", part, hr_word(pair->prefill, "test"),
                 hr_text_num(tokens_of(pair->prefill) * 1e3 / p.ms), p.bound, *why ? "; " : "", why);
    }
    char lead[2 * HR_LABEL_BYTES];
    const char *type = hr_text_type(any);
    snprintf(lead, sizeof lead, *type ? "%s (%s):" : "%s%s:", hr_text_weights(any), type);
    hr_doc_item(doc, lead, "%s.", text);
}

static void lead(hr_doc *doc, const hr_report *r, const hr_report_pair *pair) {
    char text[1200] = "", part[200], why[400] = "";
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
    json_array_foreach(r->cells, i, cell) fewest = fmin(fewest, hr_report_samples(cell));
    char other[160];
    hr_report_noise(r, other, sizeof other);
    hr_doc_lead(doc, "%s.%s%s%s%s", text, *other ? " " : "", other, *other ? "." : "",
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

/* What there is without cells. */
static const char *held(const hr_report *r) {
    const bool study = hr_kvr_studied(r), claims = json_array_size(r->claims) > 0;
    return study && claims                ? "the study of the KV cache and published claims"
           : study                        ? "the study of the KV cache"
           : claims                       ? "published claims"
           : json_array_size(r->observed) ? "what observing costs"
                                          : "the ceilings of the machine alone";
}

void hr_report_verdict(hr_doc *doc, const hr_report *r) {
    hr_report_pair pairs[PAIRS_MOST];
    const size_t n = hr_report_pairs(r, pairs, PAIRS_MOST);
    if (!json_array_size(r->cells)) {
        hr_doc_lead(doc,
                    "No cell was measured: this report holds %s. Measure a model with “headroom sweep”, then report "
                    "again.",
                    held(r));
        return;
    }
    if (!n) {
        hr_doc_lead(doc,
                    "No cell has both its work and its ceilings, so no share of the machine can be told; the times "
                    "stand in the table of cells.");
        return;
    }
    lead(doc, r, &pairs[0]);
    hr_doc_list(doc, true);
    for (size_t i = 0; i < n; i++) pair_item(doc, &pairs[i]);
    hr_report_quants(doc, r);
    limits(doc, r);
    hr_doc_list(doc, false);
}
