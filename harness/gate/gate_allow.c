/* What a gate lets pass: budgets per metric, and a list of known slowdowns with reason and expiry. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"
#include "kernels/base/nearest.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first name of a key is how reasons call it. */
static const struct {
    const char *word, *key;
} words[] = {{"ttft", "ttft_ms"},
             {"tpot", "tpot_excl_first_ms"},
             {"itl", "tpot_excl_first_ms"}, /* the mean gap of a request is its TPOT */
             {"tg", "tpot_excl_first_ms"},
             {"e2e", "e2e_ms"},
             {"prefill", "ttft_prefill_ms"},
             {"pp", "ttft_prefill_ms"},
             {"time", "time_ms"}};
enum { WORDS = sizeof words / sizeof *words };

const char *hr_gate_metric_word(const json_t *row) {
    const char *key = hr_word(row, "metric");
    for (size_t i = 0; i < WORDS; i++)
        if (!strcmp(key, words[i].key)) return words[i].word;
    return key;
}

bool hr_gate_metric_is(const char *word, const json_t *row) {
    const char *key = hr_word(row, "metric");
    if (!strcmp(word, "*") || !strcmp(word, key)) return true;
    if (!strcmp(word, "tg") && !strncmp(hr_word(row, "test"), "isl", 3)) return false; /* a request is no tg row */
    for (size_t i = 0; i < WORDS; i++)
        if (!strcmp(word, words[i].word)) return !strcmp(key, words[i].key);
    return false;
}

/* ---- budgets ------------------------------------------------------------------------------------------------------ */

static bool is_budget_name(const char *name) {
    static const char *const names[] = {"ttft", "tpot", "itl", "e2e", "pp", "tg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* "+5%", "5 %", "0.5%"; the C library's readers of numbers would follow a locale and take "nan" and "0x1p3". */
static bool percent(const char *text, double *share) {
    double value = 0, scale = 1;
    size_t digits = 0;
    if (*text == '+') text++;
    for (; isdigit((unsigned char)*text); text++, digits++) value = value * 10 + (*text - '0');
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++, digits++) value += (*text - '0') * (scale /= 10);
    while (*text == ' ') text++;
    *share = value / 100;
    return digits > 0 && digits < 12 && !strcmp(text, "%") && value <= 1000;
}

static hr_status add_budget(const char *text, size_t n, hr_gate_rule *out) {
    char one[64];
    const size_t most = sizeof out->budgets / sizeof *out->budgets;
    snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), text);
    char *value = strchr(one, '=');
    if (value) *value++ = 0;
    if (!is_budget_name(one))
        HR_FAIL(HR_ERR_USAGE, "--budget %.60s: a budget is METRIC=+X%%, METRIC one of ttft tpot itl e2e pp tg", one);
    hr_gate_budget budget = {0};
    if (!value || n >= sizeof one || !percent(value, &budget.share))
        HR_FAIL(HR_ERR_USAGE, "--budget %.20s=%.40s: must be a slowdown in percent from 0 to 1000, as %.20s=+3%%", one,
                value ? value : "", one);
    snprintf(budget.metric, sizeof budget.metric, "%.15s", one);
    for (size_t i = 0; i < out->n_budgets; i++)
        if (!strcmp(out->budgets[i].metric, one))
            HR_FAIL(HR_ERR_USAGE, "--budget names %.20s twice: leave one of them out", one);
    if (out->n_budgets == most) HR_FAIL(HR_ERR_USAGE, "--budget: more than %zu budgets", most);
    out->budgets[out->n_budgets++] = budget;
    return HR_OK;
}

hr_status hr_gate_budgets_parse(const char *text, hr_gate_rule *out) {
    for (;;) {
        const size_t n = strcspn(text, ",");
        HR_TRY(add_budget(text, n, out));
        if (!text[n]) return HR_OK;
        text += n + 1;
    }
}

double hr_gate_budget_of(const hr_gate_rule *rule, const json_t *row) {
    double least = NAN;
    for (size_t i = 0; i < rule->n_budgets; i++)
        if (hr_gate_metric_is(rule->budgets[i].metric, row)) least = fmin(least, rule->budgets[i].share);
    return least;
}

/* ---- the allow-list ----------------------------------------------------------------------------------------------- */

static bool is_metric(const char *word) {
    if (!strcmp(word, "*") || !strcmp(word, "failed")) return true;
    for (size_t i = 0; i < WORDS; i++)
        if (!strcmp(word, words[i].word) || !strcmp(word, words[i].key)) return true;
    return false;
}

/* Days since 1970-01-01 of a date in the Gregorian calendar that exists; -1: none such. */
static long day_of(const char *text) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int i = 0; i < 10; i++) {
        if (i == 4 || i == 7 ? text[i] != '-' : !isdigit((unsigned char)text[i])) return -1;
    }
    if (text[10]) return -1;
    const int year = atoi(text), month = atoi(text + 5), day = atoi(text + 8);
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1970 || month < 1 || month > 12) return -1;
    if (day < 1 || day > days[month - 1] + (month == 2 && leap)) return -1;
    const long y = year - 1;
    long n = (year - 1970) * 365L + (y / 4 - 1969 / 4) - (y / 100 - 1969 / 100) + (y / 400 - 1969 / 400);
    for (int m = 1; m < month; m++) n += days[m - 1] + (m == 2 && leap);
    return n + day - 1;
}

bool hr_gate_expired(const json_t *entry, time_t now) {
    return (double)now >= (double)(day_of(hr_word(entry, "expires")) + 1) * 86400;
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    for (size_t n = strlen(text); n && isspace((unsigned char)text[n - 1]); n--) text[n - 1] = 0;
    return text;
}

/* A test name may hold blanks, so the line is read from what follows it: " until ", and the word before that. */
static hr_status parse_line(char *line, const char *name, size_t number, json_t *list) {
    char *date = strstr(line, " until "), *reason = date ? strchr(date, ':') : NULL;
    if (!date || !reason)
        HR_FAIL(HR_ERR_INPUT, "%.200s, line %zu: must be CELL METRIC until YYYY-MM-DD: reason", name, number);
    *date = 0, *reason++ = 0;
    date = trim(date + strlen(" until ")), reason = trim(reason);
    char *cell = trim(line), *metric = strrchr(cell, ' ');
    if (!metric) HR_FAIL(HR_ERR_INPUT, "%.200s, line %zu: names a cell or a metric, not both", name, number);
    *metric++ = 0;
    cell = trim(cell);
    if (!is_metric(metric))
        HR_FAIL(HR_ERR_INPUT, "%.200s, line %zu: %.40s is no metric: ttft tpot itl e2e pp tg, failed, or *", name,
                number, metric);
    if (day_of(date) < 0) HR_FAIL(HR_ERR_INPUT, "%.200s, line %zu: %.40s is no date: YYYY-MM-DD", name, number, date);
    if (!*reason) HR_FAIL(HR_ERR_INPUT, "%.200s, line %zu: says no reason after the colon", name, number);
    json_t *entry = json_pack("{s:s, s:s, s:s, s:s, s:I}", "cell", cell, "metric", metric, "reason", reason, "expires",
                              date, "line", (json_int_t)number);
    if (!entry) HR_FAIL(HR_ERR_INPUT, "%.200s, line %zu: is no UTF-8", name, number);
    if (json_array_append_new(list, entry) != 0) HR_FAIL(HR_ERR_MEMORY, "no memory for %.200s", name);
    return HR_OK;
}

hr_status hr_gate_allow_parse(const char *text, const char *name, json_t **out) {
    json_t *list = json_array();
    hr_status status = list ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for %.200s", name);
    for (size_t number = 1; status == HR_OK && *text; number++) {
        const size_t n = strcspn(text, "\n");
        char *line = hr_malloc(n + 1);
        if (!line) {
            status = hr_fail(HR_ERR_MEMORY, "no memory for %.200s", name);
            break;
        }
        memcpy(line, text, n), line[n] = 0;
        const char *first = trim(line);
        if (*first && *first != '#') status = parse_line(line, name, number, list);
        hr_free(line);
        text += n + (text[n] == '\n');
    }
    if (status == HR_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

static bool cell_is(const char *cell, const json_t *row) {
    const char *id = hr_word(row, "cell_id");
    const size_t n = strlen(cell);
    if (!strcmp(cell, "*") || !strcmp(cell, hr_word(row, "test"))) return true;
    return n >= 4 && !strncmp(id, cell, n);
}

const json_t *hr_gate_allowed(const hr_gate_rule *rule, const json_t *row, bool failed) {
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)rule->allowed, i, entry) {
        const char *metric = hr_word(entry, "metric");
        if (hr_gate_expired(entry, rule->now) || !cell_is(hr_word(entry, "cell"), row)) continue;
        if (failed ? !strcmp(metric, "failed") : hr_gate_metric_is(metric, row)) return entry;
    }
    return NULL;
}
