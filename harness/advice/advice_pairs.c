/* Rules on cells of a run that differ in one axis alone. Two times are told apart only where both have a 95 % interval and
 * the machine was in one state. */
#include "harness/advice/advice_rules.h"

#include <string.h>

static const double SHIFT = 1.02; /* a difference that counts */
static const double QUANT_SLACK = 1.25, BYTES_FEWER = 0.9;
static const double RIDGE_FAR = 4; /* times as many sequences */

/* ---- two cells ---------------------------------------------------------------------------------------------------------------- */

typedef struct interval {
    double lo, mid, hi; /* ms */
} interval;

/* False where it is not known, or other work disturbed it. */
static bool interval_of(const json_t *cell, interval *out) {
    static const char *const disturbed[] = {"throttled", "noisy_neighbour", "over_roof"};
    const json_t *d = hr_case_time(cell, NULL);
    *out = (interval){hr_num(d, "ci95_lo"), hr_num(d, "p50"), hr_num(d, "ci95_hi")};
    for (size_t i = 0; i < sizeof disturbed / sizeof *disturbed; i++)
        if (hr_report_flagged(cell, disturbed[i])) return false;
    return out->lo > 0 && out->lo <= out->mid && out->mid <= out->hi && isfinite(out->hi) &&
           !hr_is_word(cell, "state_class", "mixed");
}

/* Both are known, of the same state, and time the same thing. */
static bool pair_of(const json_t *a, const json_t *b, interval *ta, interval *tb) {
    const char *wa = "", *wb = "";
    hr_case_time(a, &wa), hr_case_time(b, &wb);
    return a != b && !strcmp(wa, wb) && hr_is_word(a, "state_class", hr_word(b, "state_class")) && interval_of(a, ta) &&
           interval_of(b, tb);
}

static bool faster(const interval *a, const interval *b) {
    return a->hi < b->lo && a->mid * SHIFT < b->mid;
}

/* ---- rules ---------------------------------------------------------------------------------------------------------------------- */

bool hr_rule_threads_idle(const hr_case *c, hr_finding *f) {
    const double threads = hr_num(c->cell, "n_threads");
    const json_t *best = NULL;
    double best_mid = INFINITY;
    interval mine, other;
    for (size_t i = 0; i < c->n_siblings; i++) {
        const json_t *s = c->siblings[i];
        if (!(hr_num(s, "n_threads") < threads) || !pair_of(c->cell, s, &mine, &other)) continue;
        /* at least as fast: at worst as slow as counts for no difference */
        if (other.mid <= mine.mid && other.hi <= mine.mid * SHIFT && other.mid < best_mid)
            best = s, best_mid = other.mid;
    }
    if (!best || !pair_of(c->cell, best, &mine, &other)) return false;
    const char *what = "";
    hr_case_time(c->cell, &what);
    f->value = mine.mid / other.mid, f->unit = "x", f->cost_pct = (1 - other.mid / mine.mid) * 100;
    hr_say(f, finding, "%.0f threads are no faster than %.0f", threads, hr_num(best, "n_threads"));
    hr_say(f, evidence, "%s takes %.4g ms (%.4g to %.4g) with %.0f threads, %.4g ms (%.4g to %.4g) with %.0f", what,
           mine.mid, mine.lo, mine.hi, threads, other.mid, other.lo, other.hi, hr_num(best, "n_threads"));
    hr_say(f, todo, "-t %.0f", hr_num(best, "n_threads"));
    return true;
}

bool hr_rule_page_larger(const hr_case *c, hr_finding *f) {
    const double page = hr_num(c->cell, "page_size");
    const json_t *best = NULL;
    double best_mid = INFINITY;
    interval mine, other;
    for (size_t i = 0; i < c->n_siblings; i++) {
        const json_t *s = c->siblings[i];
        if (!(hr_num(s, "page_size") > page) || !pair_of(c->cell, s, &mine, &other)) continue;
        if (faster(&other, &mine) && other.mid < best_mid) best = s, best_mid = other.mid;
    }
    if (!best || !pair_of(c->cell, best, &mine, &other)) return false;
    f->value = (mine.mid / other.mid - 1) * 100, f->unit = "%", f->cost_pct = (1 - other.mid / mine.mid) * 100;
    hr_say(f, finding, "pages of %.0f tokens take %.3g %% longer than pages of %.0f", page, f->value,
           hr_num(best, "page_size"));
    hr_say(f, evidence, "%.4g ms (%.4g to %.4g) against %.4g ms (%.4g to %.4g)", mine.mid, mine.lo, mine.hi, other.mid,
           other.lo, other.hi);
    hr_say(f, todo, "--page-size %.0f, if the waste in last pages can be borne", hr_num(best, "page_size"));
    return true;
}

/* Of n sequences the weights are read once, the rest grows with n: n * flops = weights + n * kv, all in units of time. */
static double seqs_at_ridge(const json_t *cell) {
    const double n = hr_seqs(cell), mbu = hr_num(cell, "mbu"), mfu = hr_num(cell, "mfu");
    const double weights = hr_num(cell, "bytes_weights") / hr_num(cell, "bytes_step");
    const double one = mfu / n, kv = mbu * (1 - weights) / n;
    return weights > 0 && weights <= 1 && one > kv ? mbu * weights / (one - kv) : NAN;
}

/* The first of the decodes of the most sequences: what it says is said once for a model and its settings. */
static const json_t *most_sequences(const hr_case *c) {
    const json_t *most = NULL;
    for (size_t i = 0; i < c->n_siblings; i++) {
        const json_t *s = c->siblings[i];
        if (hr_p50(s, "tpot_excl_first_ms") > 0 && (!most || hr_seqs(s) > hr_seqs(most))) most = s;
    }
    return most;
}

bool hr_rule_batch(const hr_case *c, hr_finding *f) {
    const double n = hr_seqs(c->cell), tpot = hr_p50(c->cell, "tpot_excl_first_ms");
    if (!(tpot > 0) || !hr_is_word(c->cell, "bound", "memory") || hr_report_flagged(c->cell, "over_roof") ||
        json_is_true(json_object_get(c->cell, "cache_resident")))
        return false;
    if (c->cell != most_sequences(c)) return false;
    const double ridge = seqs_at_ridge(c->cell), share = hr_num(c->cell, "roof_fraction");
    if (!(ridge >= RIDGE_FAR * n) || !isfinite(ridge) || !(share > 0)) return false;
    const double now = n * 1e3 / tpot, then = share * n / hr_num(c->cell, "mfu") / tpot * 1e3;
    f->severity = HR_NOTE;
    f->value = ridge, f->unit = "sequences";
    hr_say(f, finding, "%s cannot use the arithmetic of this machine: about %.0f would", hr_text_of(n, "sequence"),
           ceil(ridge));
    hr_say(f, evidence,
           "%.3g flop a byte, bound by memory; %.4g token/s now, %.4g at the ridge at the same share of the roof",
           hr_num(c->cell, "intensity_flop_byte"), now, then);
    hr_say(f, todo, "where throughput counts more than the time of a token: --seqs %.0f", ceil(ridge));
    return true;
}

/* The measured decode that reads most bytes a step. */
static const json_t *heaviest(const hr_case *c) {
    const json_t *best = NULL;
    for (size_t i = 0; i < c->n_siblings; i++) {
        const double bytes = hr_num(c->siblings[i], "bytes_step");
        interval mine, other;
        if (bytes > hr_or(hr_num(best, "bytes_step"), 0) && pair_of(c->cell, c->siblings[i], &mine, &other))
            best = c->siblings[i];
    }
    return best;
}

bool hr_rule_quant_slow(const hr_case *c, hr_finding *f) {
    const double bytes = hr_num(c->cell, "bytes_step");
    if (!(hr_p50(c->cell, "tpot_excl_first_ms") > 0) || !hr_is_word(c->cell, "bound", "memory") || !(bytes > 0))
        return false;
    const json_t *wide = heaviest(c);
    interval mine, other;
    if (!wide || !hr_is_word(wide, "bound", "memory") || !pair_of(c->cell, wide, &mine, &other)) return false;
    const double fewer = bytes / hr_num(wide, "bytes_step"), time = mine.mid / other.mid;
    if (!(fewer < BYTES_FEWER) || !(mine.lo / other.hi > fewer * QUANT_SLACK)) return false;
    f->value = time, f->unit = "x", f->cost_pct = (1 - fewer / time) * 100;
    hr_say(f, finding, "%.20s reads %.2f times the bytes of %.20s but takes %.2f times its time",
           hr_word(c->cell, "quant"), fewer, hr_word(wide, "quant"), time);
    hr_say(f, evidence, "%.4g ms (%.4g to %.4g) against %.4g ms (%.4g to %.4g) a step; %.4g ms would follow the bytes",
           mine.mid, mine.lo, mine.hi, other.mid, other.lo, other.hi, other.mid * fewer);
    hr_say(f, todo, "%s`headroom explain %.40s` says whether unpacking or what is left beside the weights holds it",
           hr_is_word(c->cell, "weights", "native") ? "--weights repacked; " : "", hr_word(c->cell, "cell_id"));
    return true;
}
