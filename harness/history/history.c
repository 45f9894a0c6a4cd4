/* Series of nights out of the columns of the store, one per cell, machine class and state, and where they changed. */
#include "harness/history/history.h"

#include "harness/formats/json_get.h"
#include "harness/report/report_label.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- metrics ----------------------------------------------------------------------------------------------------------- */

typedef enum rows_of { ALL_ROWS, PROMPT_ROWS, TOKEN_ROWS } rows_of;

/* X(name as typed, key of a cell, column of the store, share of a peak or roof: larger is better, rows that it concerns) */
#define METRICS(X)                                                                               \
    X("roof_fraction", "roof_fraction", "roof_fraction", true, ALL_ROWS)                         \
    X("prefill_roof_fraction", "prefill_roof_fraction", "prefill_roof_fraction", true, ALL_ROWS) \
    X("mbu", "mbu", "mbu", true, ALL_ROWS)                                                       \
    X("mfu", "mfu", "mfu", true, ALL_ROWS)                                                       \
    X("prefill_mfu", "prefill_mfu", "prefill_mfu", true, ALL_ROWS)                               \
    X("ttft", "ttft_ms", "ttft_ms_p50", false, ALL_ROWS)                                         \
    X("tpot", "tpot_excl_first_ms", "tpot_excl_first_ms_p50", false, ALL_ROWS)                   \
    X("itl", "itl_step_ms", "itl_step_ms_p50", false, ALL_ROWS)                                  \
    X("e2e", "e2e_ms", "e2e_ms_p50", false, ALL_ROWS)                                            \
    X("pp", "ttft_prefill_ms", "ttft_prefill_ms_p50", false, PROMPT_ROWS)                        \
    X("tg", "tpot_excl_first_ms", "tpot_excl_first_ms_p50", false, TOKEN_ROWS)

static const struct metric {
    const char *name, *key, *column;
    bool share;
    rows_of rows;
} metrics[] = {
#define X(name, key, column, share, rows) {name, key, column, share, rows},
    METRICS(X)
#undef X
};
enum { N_METRICS = sizeof metrics / sizeof *metrics, MOST_NIGHTS = 50 };

#define X(name, key, column, share, rows) name,
const char *const hr_history_metrics[] = {METRICS(X) NULL};
#undef X

static hr_status find_metric(const char *name, const struct metric **out) {
    for (size_t i = 0; i < N_METRICS; i++)
        if (!strcmp(name, metrics[i].name) || !strcmp(name, metrics[i].key)) {
            *out = &metrics[i];
            return HR_OK;
        }
    HR_FAIL(HR_ERR_INPUT, "history has no such metric: it has roof_fraction, prefill_roof_fraction, mbu, mfu, "
                          "prefill_mfu, ttft, tpot, itl, e2e, pp and tg");
}

bool hr_history_is_share(const char *metric) {
    const struct metric *m;
    return find_metric(metric, &m) == HR_OK && m->share;
}

static bool concerns(const struct metric *m, const char *test) {
    if (!test || m->rows == ALL_ROWS) return true;
    return m->rows == PROMPT_ROWS ? !strncmp(test, "pp", 2) : !strncmp(test, "tg", 2) || strstr(test, "+tg");
}

/* ---- rows of one cell on one machine class ------------------------------------------------------------------------------ */

typedef struct row {
    json_t *run_id, *time, *commit, *status, *stop_reason; /* borrowed from job.texts */
    int state; /* in job.states; -1: it failed, and the state is not known */
    double values[HR_STORE_POINT_VALUES];
} row;

typedef struct job {
    hr_store *store;
    const hr_history_options *options;
    const struct metric *metrics[HR_STORE_POINT_VALUES]; /* NULL: none */
    json_t *out;
    json_t *texts;  /* each text once: thousands of points share them */
    json_t *states; /* of the cell at hand: texts or null */
    json_t *cell;   /* its names: cell_id, test, model_filename, quant, machine_class */
    row *rows;      /* [n] by time, [capacity] */
    size_t n, capacity;
    double *values;   /* [capacity] */
    size_t *places;   /* [capacity] of values among the points */
    hr_change *found; /* [capacity] */
} job;

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while reading the history");
}

static json_t *shared_text(job *j, const char *text) {
    if (!text) return json_null();
    json_t *known = json_object_get(j->texts, text);
    if (known) return known;
    return json_object_set_new(j->texts, text, json_string(text)) == 0 ? json_object_get(j->texts, text) : NULL;
}

static bool set(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}
static bool set_text(json_t *object, const char *key, const char *text) {
    return set(object, key, text ? json_string(text) : json_null());
}

static int state_of(job *j, const hr_store_point *p) {
    const bool measured = !strcmp(p->status, "ok");
    if (!measured && !p->state_class) return -1;
    json_t *state = shared_text(j, p->state_class), *known;
    size_t i;
    json_array_foreach(j->states, i, known) if (known == state) return (int)i;
    json_array_append(j->states, state);
    return (int)i;
}

static bool grow(job *j) {
    const size_t capacity = j->capacity ? 2 * j->capacity : 512;
    row *rows = hr_realloc(j->rows, hr_mul(capacity, sizeof *rows));
    if (rows) j->rows = rows;
    double *values = hr_realloc(j->values, hr_mul(capacity, sizeof *values));
    if (values) j->values = values;
    size_t *places = hr_realloc(j->places, hr_mul(capacity, sizeof *places));
    if (places) j->places = places;
    hr_change *found = hr_realloc(j->found, hr_mul(capacity, sizeof *found));
    if (found) j->found = found;
    if (!rows || !values || !places || !found) return false;
    j->capacity = capacity;
    return true;
}

/* ---- one series --------------------------------------------------------------------------------------------------------- */

static json_t *point_of(const row *r, double value) {
    json_t *point = json_object();
    const bool ok = json_object_set(point, "run_id", r->run_id) == 0 && json_object_set(point, "time", r->time) == 0 &&
                    json_object_set(point, "commit", r->commit) == 0 && set(point, "median", hr_real_or_null(value)) &&
                    json_object_set(point, "status", r->status) == 0 &&
                    json_object_set(point, "stop_reason", r->stop_reason) == 0;
    if (ok) return point;
    json_decref(point);
    return NULL;
}

/* "a..b": the builds of the point before the change and of its first one; "?" for one that is not known. */
static bool add_change(const job *j, json_t *points, const hr_change *c, size_t nights, json_t *changes) {
    const json_t *at = json_array_get(points, j->places[c->at]), *before = json_array_get(points, j->places[c->at - 1]);
    const char *a = hr_word(before, "commit"), *b = hr_word(at, "commit");
    json_t *change = json_object();
    const bool ok =
        json_object_set(change, "run_id", json_object_get(at, "run_id")) == 0 &&
        json_object_set(change, "time", json_object_get(at, "time")) == 0 && set(change, "from", json_real(c->from)) &&
        set(change, "to", json_real(c->to)) && set(change, "shift_pct", hr_real_or_null(c->shift * 100)) &&
        set(change, "commits", json_sprintf("%s..%s", *a ? a : "?", *b ? b : "?")) &&
        set(change, "settled", json_boolean(c->settled)) && set(change, "nights", json_integer((json_int_t)nights));
    if (ok) return json_array_append_new(changes, change) == 0;
    json_decref(change);
    return false;
}

static hr_status add_changes(job *j, json_t *points, size_t n, json_t *changes) {
    size_t found = 0;
    HR_TRY(hr_changes_of(j->values, n, &j->options->rule, j->found, n, &found));
    for (size_t i = 0; i < found; i++) {
        const size_t end = i + 1 < found ? j->found[i + 1].at : n;
        if (!add_change(j, points, &j->found[i], end - j->found[i].at, changes)) return no_memory();
    }
    return HR_OK;
}

static hr_status add_series(job *j, int state, size_t k) {
    json_t *series = json_copy(j->cell), *points = json_array(), *changes = json_array();
    json_t *class = json_array_get(j->states, (size_t)state);
    bool ok = json_object_set(series, "state_class", class ? class : json_null()) == 0 &&
              set_text(series, "metric", j->metrics[k]->key) && set(series, "points", points) &&
              set(series, "change_points", changes);
    const char *name = json_string_value(class);
    const bool sought = !name || strcmp(name, "mixed") != 0;
    size_t n = 0, n_known = 0;
    for (size_t i = 0; ok && i < j->n; i++) {
        const row *r = &j->rows[i];
        const char *stop = json_string_value(r->stop_reason);
        if (r->state != state && r->state != -1) continue;
        const double value = r->state == -1 ? NAN : r->values[k];
        ok = json_array_append_new(points, point_of(r, value)) == 0;
        n_known += isfinite(value);
        if (sought && isfinite(value) && value > 0 && !(stop && !strcmp(stop, "throttled")))
            j->values[n] = value, j->places[n++] = json_array_size(points) - 1;
    }
    hr_status status = ok ? HR_OK : no_memory();
    if (status == HR_OK && n > 0) status = add_changes(j, points, n, changes);
    if (status == HR_OK && n_known > 0 && json_array_append(j->out, series) != 0) status = no_memory();
    json_decref(series);
    return status;
}

/* Names come from the newest row; what tells the cell from others needs all its axes. */
static hr_status add_title(job *j) {
    json_t *whole;
    const char *run_id = json_string_value(j->rows[j->n - 1].run_id);
    HR_TRY(hr_store_cell(j->store, hr_word(j->cell, "cell_id"), run_id, &whole));
    const bool ok = set_text(j->cell, "title", hr_text_title(whole));
    json_decref(whole);
    return ok ? HR_OK : no_memory();
}

static hr_status end_cell(job *j) {
    hr_status status = HR_OK;
    if (j->n > 0) status = add_title(j);
    for (size_t k = 0; j->n > 0 && k < HR_STORE_POINT_VALUES && j->metrics[k]; k++) {
        if (!concerns(j->metrics[k], json_string_value(json_object_get(j->cell, "test")))) continue;
        for (size_t s = 0; status == HR_OK && s < json_array_size(j->states); s++) status = add_series(j, (int)s, k);
    }
    j->n = 0;
    json_array_clear(j->states);
    json_decref(j->cell);
    j->cell = NULL;
    return status;
}

static bool same_text(const json_t *a, const char *b) {
    const char *text = json_string_value(a);
    return text && b ? !strcmp(text, b) : !text && !b;
}

static hr_status take(void *context, const hr_store_point *p) {
    job *j = context;
    if (p->flags && strstr(p->flags, "simulated")) return HR_OK;
    if (j->cell && (!same_text(json_object_get(j->cell, "cell_id"), p->cell_id) ||
                    !same_text(json_object_get(j->cell, "machine_class"), p->machine_class)))
        HR_TRY(end_cell(j));
    if (!j->cell) j->cell = json_object();
    if (j->n == j->capacity && !grow(j)) return no_memory();
    row *r = &j->rows[j->n++];
    *r = (row){.run_id = shared_text(j, p->run_id),
               .time = shared_text(j, p->time),
               .commit = shared_text(j, p->commit),
               .status = shared_text(j, p->status),
               .stop_reason = shared_text(j, p->stop_reason),
               .state = state_of(j, p)};
    memcpy(r->values, p->values, sizeof r->values);
    const bool ok = r->run_id && r->time && r->commit && r->status && r->stop_reason &&
                    set_text(j->cell, "cell_id", p->cell_id) && set_text(j->cell, "test", p->test) &&
                    set_text(j->cell, "model_filename", p->model_filename) && set_text(j->cell, "quant", p->quant) &&
                    set_text(j->cell, "machine_class", p->machine_class);
    return ok ? HR_OK : no_memory();
}

/* ---- all series ----------------------------------------------------------------------------------------------------------- */

static const char *newest_change(const json_t *series) {
    const json_t *changes = json_object_get(series, "change_points");
    const size_t n = json_array_size(changes);
    return n ? hr_word(json_array_get(changes, n - 1), "time") : "";
}

static int by_change_then_name(const void *a, const void *b) {
    static const char *const keys[] = {"model_filename", "quant",         "test",       "cell_id",
                                       "metric",         "machine_class", "state_class"};
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int order = strcmp(newest_change(y), newest_change(x));
    for (size_t i = 0; !order && i < sizeof keys / sizeof *keys; i++)
        order = strcmp(hr_word(x, keys[i]), hr_word(y, keys[i]));
    return order;
}

static hr_status sorted(const json_t *all, json_t **out) {
    const size_t n = json_array_size(all);
    json_t **items = hr_malloc(hr_mul(n + 1, sizeof *items)), *list = json_array();
    bool ok = items && list;
    for (size_t i = 0; ok && i < n; i++) items[i] = json_array_get(all, i);
    if (ok) qsort(items, n, sizeof *items, by_change_then_name);
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append(list, items[i]) == 0;
    hr_free(items);
    if (!ok) {
        json_decref(list);
        return no_memory();
    }
    *out = list;
    return HR_OK;
}

static hr_status nothing(const hr_history_options *o) {
    if (o->machine_class)
        HR_FAIL(HR_ERR_INPUT,
                "no cell with such a metric was measured on machine class %.80s: `headroom runs` lists the classes",
                o->machine_class);
    if (o->cell)
        HR_FAIL(HR_ERR_INPUT,
                "no stored cell is called %.80s, or it lacks the metric: `headroom runs last` lists cells", o->cell);
    HR_FAIL(HR_ERR_INPUT, "no cell of the store has the metric %s: measure something with `headroom sweep`",
            o->metric ? o->metric : "roof_fraction");
}

static hr_status choose_metrics(const char *name, job *j, const char **columns) {
    j->metrics[0] = &metrics[0], j->metrics[1] = name ? NULL : &metrics[1];
    if (name) HR_TRY(find_metric(name, &j->metrics[0]));
    for (size_t i = 0; i < HR_STORE_POINT_VALUES; i++) columns[i] = j->metrics[i] ? j->metrics[i]->column : NULL;
    return HR_OK;
}

hr_status hr_history(hr_store *store, const hr_history_options *options, json_t **out) {
    const char *columns[HR_STORE_POINT_VALUES];
    job j = {.store = store, .options = options};
    HR_TRY(choose_metrics(options->metric, &j, columns));
    j.out = json_array(), j.texts = json_object(), j.states = json_array();
    hr_status status = j.out && j.texts && j.states ? HR_OK : no_memory();
    const hr_store_filter filter = {.cell = options->cell, .machine_class = options->machine_class};
    if (status == HR_OK) status = hr_store_points(store, &filter, columns, take, &j);
    if (status == HR_OK) status = end_cell(&j);
    if (status == HR_OK && json_array_size(j.out) == 0) status = nothing(options);
    if (status == HR_OK) status = sorted(j.out, out);
    json_decref(j.out), json_decref(j.texts), json_decref(j.states), json_decref(j.cell);
    hr_free(j.rows), hr_free(j.values), hr_free(j.places), hr_free(j.found);
    return status;
}

/* ---- how far nights differ ------------------------------------------------------------------------------------------------ */

typedef struct level {
    double *values; /* [n] of [capacity] */
    size_t n, capacity;
} level;

static hr_status take_value(void *context, const hr_store_point *p) {
    level *l = context;
    const bool counts = isfinite(p->values[0]) && p->values[0] > 0 && !(p->flags && strstr(p->flags, "simulated")) &&
                        !(p->state_class && !strcmp(p->state_class, "mixed")) &&
                        !(p->stop_reason && !strcmp(p->stop_reason, "throttled"));
    if (!counts) return HR_OK;
    if (l->n == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 128;
        double *values = hr_realloc(l->values, hr_mul(capacity, sizeof *values));
        if (!values) return no_memory();
        l->values = values, l->capacity = capacity;
    }
    l->values[l->n++] = p->values[0];
    return HR_OK;
}

/* Values are reordered. 1.4826: makes the MAD of normal values their standard deviation. */
static double relative_spread(double *values, size_t n) {
    if (n < 2) return NAN;
    const double middle = hr_median(values, n);
    for (size_t i = 0; i < n; i++) values[i] = fabs(values[i] - middle);
    return 1.4826 * hr_median(values, n) / middle;
}

hr_status hr_history_spread(hr_store *store, const char *cell_id, const char *machine_class, const char *metric,
                            double *spread, size_t *nights) {
    const struct metric *m;
    HR_TRY(find_metric(metric, &m));
    const char *const columns[HR_STORE_POINT_VALUES] = {m->column, NULL};
    level l = {0};
    hr_changes_rule rule = hr_changes_rule_default();
    hr_change newest;
    size_t found = 0, begin = 0;
    rule.stayed = 0; /* settled changes alone begin a level */
    const hr_store_filter filter = {.cell_id = cell_id, .machine_class = machine_class};
    hr_status status = hr_store_points(store, &filter, columns, take_value, &l);
    if (status == HR_OK) status = hr_changes_of(l.values, l.n, &rule, &newest, 1, &found);
    if (status == HR_OK) {
        if (found) begin = newest.at;
        if (l.n - begin > MOST_NIGHTS) begin = l.n - MOST_NIGHTS;
        *nights = l.n - begin;
        *spread = relative_spread(l.values + begin, l.n - begin);
    }
    hr_free(l.values);
    return status;
}
