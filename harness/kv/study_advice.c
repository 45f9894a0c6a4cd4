/* What to use on this machine, out of the rows of a study and nothing else. Each sentence names the rows that it stands on. */
#include "harness/kv/study.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { ARMS_MAX = 32 };
static const double SAME = 0.02, PPL_LIMIT_PCT = 0.5; /* a larger rise of perplexity is no free choice */

/* ---- layouts ---- */

/* One layout (and page size) over all points of attention. */
typedef struct arm {
    char text[48];
    int page;
    bool paged; /* page > 0 and not the identity table */
    unsigned n, slower, faster, same;
    double log_sum, lo, hi; /* of the ratios */
} arm;

static void text_of(const json_t *row, char *out, size_t n) {
    const double page = hr_num(row, "page_size");
    if (isfinite(page))
        snprintf(out, n, "%.24s with pages of %d", hr_word(row, "name"), (int)page);
    else
        snprintf(out, n, "%.24s", hr_word(row, "name"));
}

static size_t collect(const json_t *rows, const char *op, arm *arms) {
    size_t n = 0, i, k;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const json_t *versus = json_object_get(row, "vs_head");
        const double ratio = hr_num(versus, "median");
        const char *verdict = hr_word(versus, "verdict");
        char text[48];
        if (strcmp(hr_word(row, "op"), op) || !isfinite(ratio) || ratio <= 0) continue;
        text_of(row, text, sizeof text);
        for (k = 0; k < n && strcmp(arms[k].text, text); k++) continue;
        if (k == ARMS_MAX) continue;
        if (k == n) {
            const double page = hr_num(row, "page_size");
            arms[n++] = (arm){.page = isfinite(page) ? (int)page : 0, .lo = ratio, .hi = ratio};
            snprintf(arms[k].text, sizeof arms[k].text, "%s", text);
            arms[k].paged = arms[k].page && !strstr(text, "identity");
        }
        arm *a = &arms[k];
        a->n++, a->log_sum += log(ratio), a->lo = fmin(a->lo, ratio), a->hi = fmax(a->hi, ratio);
        a->slower += !strcmp(verdict, "slower"), a->faster += !strcmp(verdict, "faster");
        a->same += !strcmp(verdict, "no difference");
    }
    return n;
}

static double mean_of(const arm *a) {
    return exp(a->log_sum / a->n);
}

static bool is_best_kernel(const arm *a) {
    return !strcmp(a->text, "contiguous-best");
}

static void layout_sentence(FILE *out, const arm *arms, size_t n) {
    const arm *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (!is_best_kernel(&arms[i]) && (!best || mean_of(&arms[i]) < mean_of(best))) best = &arms[i];
    if (!best) return;
    if (mean_of(best) < 1 - SAME && best->faster > best->slower)
        fprintf(
            out,
            "Layout: %s; attention takes %.2f times as long as with head on (geometric) average, and it was faster at "
            "%u of %u points and slower at %u. ",
            best->text, mean_of(best), best->faster, best->n, best->slower);
    else
        fprintf(
            out,
            "Layout: head; the best of the others, %s, takes %.2f times as long on (geometric) average (%.2f to %.2f; "
            "slower at %u of %u points, faster at %u, no difference at %u). ",
            best->text, mean_of(best), best->lo, best->hi, best->slower, best->n, best->faster, best->same);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(arms[i].text, "zorder") && &arms[i] != best)
            fprintf(out, "Z-order: %.2f on average, slower at %u of %u points, faster at %u, no difference at %u. ",
                    mean_of(&arms[i]), arms[i].slower, arms[i].n, arms[i].faster, arms[i].same);
}

/* The smallest page that is as good as the best: small pages waste less at the ends. Returns it, NULL without pages. */
static const arm *page_sentence(FILE *out, const arm *arms, size_t n) {
    const arm *best = NULL, *small = NULL;
    for (size_t i = 0; i < n; i++)
        if (arms[i].paged && (!best || mean_of(&arms[i]) < mean_of(best))) best = &arms[i];
    for (size_t i = 0; i < n && best; i++)
        if (arms[i].paged && mean_of(&arms[i]) <= mean_of(best) * (1 + SAME) && (!small || arms[i].page < small->page))
            small = &arms[i];
    if (small)
        fprintf(out, "Where pages are wanted: %s, %.2f times head's time on average%s. ", small->text, mean_of(small),
                small == best ? "" : ", no worse than larger ones");
    return small;
}

/* The row of an operation, cold, with a layout, of pages of `page` where it names a size; NULL: not measured. */
static const json_t *find_op(const json_t *rows, const char *op, const char *name, int page) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const double has = hr_num(row, "page_size");
        if (strcmp(hr_word(row, "op"), op) || strcmp(hr_word(row, "name"), name)) continue;
        if (isfinite(has) && (int)has != page) continue;
        if (!strcmp(hr_word(row, "state"), "cold") && isfinite(hr_num(row, "median")) &&
            isfinite(hr_num(row, "context")))
            return row;
    }
    return NULL;
}

/* Three digits, and never an exponent. */
static const char *three(double v, char *text, size_t n) {
    snprintf(text, n, "%.*f", fabs(v) < 10 ? 2 : fabs(v) < 100 ? 1 : 0, v);
    return text;
}

/* What pages do to other operations: with the pages that are advised, no others. */
static void operation_sentence(FILE *out, const json_t *rows, const arm *pages) {
    const json_t *head = find_op(rows, "fork", "head", 0);
    const json_t *paged = pages ? find_op(rows, "fork", "paged", pages->page) : NULL;
    if (!head || !paged) return;
    char a[32], b[32];
    fprintf(out, "A fork of %d positions takes %s us with pages and %s us with head", (int)hr_num(head, "context"),
            three(hr_num(paged, "median"), a, sizeof a), three(hr_num(head, "median"), b, sizeof b));
    const json_t *off = find_op(rows, "offload", "paged", pages->page);
    if (off && isfinite(hr_num(json_object_get(off, "vs_head"), "median")))
        fprintf(out, ", an off-load %s times as long as with head",
                three(hr_num(json_object_get(off, "vs_head"), "median"), a, sizeof a));
    fprintf(out, ". ");
}

/* ---- types ---- */

static double worst_ppl(const json_t *row) {
    double worst = NAN;
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(row, "ppl"), i, p) {
        const double delta = hr_num(p, "delta_pct");
        if (isfinite(delta) && !(delta <= worst)) worst = delta;
    }
    return worst;
}

/* The smallest whose perplexity rises by at most PPL_LIMIT_PCT and whose step is not slower; bf16 is always legal. */
static void type_sentence(FILE *out, const json_t *rows) {
    const json_t *best = NULL, *base = NULL, *small = NULL;
    bool any_ppl = false;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const double worst = worst_ppl(row), bytes = hr_num(row, "bytes_token");
        if (!strcmp(hr_word(row, "name"), "bf16") && !base) base = row;
        any_ppl |= isfinite(worst);
        if (!isfinite(bytes)) continue;
        if (row != base &&
            !(isfinite(hr_num(row, "context")) && isfinite(hr_num(json_object_get(row, "vs_bf16"), "median"))))
            continue;
        if (!small || bytes < hr_num(small, "bytes_token")) small = row;
        if (!isfinite(worst) || worst > PPL_LIMIT_PCT) continue;
        if (!strcmp(hr_word(json_object_get(row, "vs_bf16"), "verdict"), "slower")) continue;
        if (!best || bytes < hr_num(best, "bytes_token")) best = row;
    }
    const double base_bytes = base ? hr_num(base, "bytes_token") : NAN;
    if (!isfinite(base_bytes)) return;
    if (!any_ppl) {
        fprintf(out, "Type: bf16, as no perplexity was measured that would speak for a smaller one. ");
        return;
    }
    if (!best || best == base)
        fprintf(out, "Type: bf16; every smaller one is slower or raises the perplexity by over %.1f %%. ",
                PPL_LIMIT_PCT);
    else
        fprintf(out,
                "Type: %s; %.0f %% of bf16's bytes, the step at context %d takes %.2f times as long (%s), perplexity "
                "%+.2f %%"
                " at worst. ",
                hr_word(best, "name"), 100 * hr_num(best, "bytes_token") / base_bytes, (int)hr_num(best, "context"),
                hr_num(json_object_get(best, "vs_bf16"), "median"),
                hr_word(json_object_get(best, "vs_bf16"), "verdict"), worst_ppl(best));
    if (small && small != best && small != base && isfinite(worst_ppl(small)))
        fprintf(out, "The smallest, %s, has %.0f %% of the bytes at %.2f times the time and %+.1f %% perplexity. ",
                hr_word(small, "name"), 100 * hr_num(small, "bytes_token") / base_bytes,
                hr_num(json_object_get(small, "vs_bf16"), "median"), worst_ppl(small));
}

/* ---- allocators ---- */

static bool same_traffic(const json_t *a, const json_t *b) {
    return hr_num(a, "budget_pct") == hr_num(b, "budget_pct") && hr_num(a, "concurrency") == hr_num(b, "concurrency");
}

/* Which ends the same traffic first, budget by budget; a win is an interval that does not touch the next one's. */
static void allocator_sentence(FILE *out, const json_t *rows) {
    struct {
        char name[32];
        unsigned wins, shared;
    } names[ARMS_MAX] = {{{0}, 0, 0}};
    size_t n = 0, i, k;
    unsigned groups = 0;
    json_t *row, *other;
    const json_t *tight = NULL;
    json_array_foreach((json_t *)rows, i, row) {
        bool first = true; /* of its traffic */
        for (size_t j = 0; j < i; j++) first &= !same_traffic(json_array_get(rows, j), row);
        if (!first) continue;
        const json_t *best = NULL;
        json_array_foreach((json_t *)rows, k,
                           other) if (same_traffic(other, row) && isfinite(hr_num(other, "median")) &&
                                      (!best || hr_num(other, "median") < hr_num(best, "median"))) best = other;
        if (!best) continue;
        bool clear = true; /* no other allocator's interval touches its own */
        json_array_foreach((json_t *)rows, k,
                           other) if (same_traffic(other, row) && strcmp(hr_word(other, "name"), hr_word(best, "name")))
            clear &= hr_num(best, "ci95_hi") < hr_num(other, "ci95_lo");
        groups++;
        if (!tight || hr_num(best, "budget_pct") < hr_num(tight, "budget_pct")) tight = best;
        for (k = 0; k < n && strcmp(names[k].name, hr_word(best, "name")); k++) continue;
        if (k == ARMS_MAX) continue;
        if (k == n) snprintf(names[n++].name, sizeof names->name, "%s", hr_word(best, "name"));
        if (clear)
            names[k].wins++;
        else
            names[k].shared++;
    }
    size_t best = 0;
    for (k = 1; k < n; k++)
        if (names[k].wins > names[best].wins ||
            (names[k].wins == names[best].wins && names[k].shared > names[best].shared))
            best = k;
    if (!n) return;
    if (names[best].wins)
        fprintf(out, "Allocator: %s; clearly first in %u of %u loads, first within the noise in %u more",
                names[best].name, names[best].wins, groups, names[best].shared);
    else
        fprintf(out, "Allocator: none is clearly first in any of %u loads; within the noise %s is in %u", groups,
                names[best].name, names[best].shared);
    char rate[32];
    if (tight && isfinite(hr_num(tight, "requests_s")))
        fprintf(out, "; at %.0f %% of the demand %s ends most requests, %s a second at a batch of up to %d",
                hr_num(tight, "budget_pct"), hr_word(tight, "name"),
                three(hr_num(tight, "requests_s"), rate, sizeof rate), (int)hr_num(tight, "largest_batch"));
    fprintf(out, ". ");
}

/* ---- the whole ---- */

static void caution(FILE *out, const json_t *study) {
    static const char *const lists[] = {"layouts", "operations", "dtypes"};
    unsigned n = 0, changed = 0;
    size_t i, k;
    json_t *row, *flag;
    for (size_t l = 0; l < 3; l++) json_array_foreach(json_object_get(study, lists[l]), i, row) {
            n++;
            json_array_foreach(json_object_get(row, "flags"), k, flag) changed +=
                json_is_string(flag) && !strcmp(json_string_value(flag), "state_changed");
        }
    if (changed)
        fprintf(out,
                "The machine changed its state during %u of %u rows; trust ratios, which are of "
                "pairs, before times. ",
                changed, n);
}

char *hr_study_advice(const json_t *study) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    arm arms[ARMS_MAX];
    const size_t n = collect(json_object_get(study, "layouts"), "decode", arms);
    layout_sentence(out, arms, n);
    const arm *pages = page_sentence(out, arms, n);
    operation_sentence(out, json_object_get(study, "operations"), pages);
    type_sentence(out, json_object_get(study, "dtypes"));
    allocator_sentence(out, json_object_get(study, "allocators"));
    caution(out, study);
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad) {
        hr_free(text);
        return NULL;
    }
    while (bytes && text[bytes - 1] == ' ') text[--bytes] = 0;
    return text;
}
