/* Plots of a time against one axis: cells are grouped so that only that axis differs within a line. */
#include "harness/report/report_plots.h"

#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_MOST = 7 }; /* more lines than the style has shapes for cannot be told apart */

typedef struct point {
    const json_t *cell;
    double x;
    size_t order; /* as measured */
    char key[HR_KEY_BYTES];
} point;

typedef struct line_plot {
    const char *x_key;
    const char *const *without; /* axes that may differ within a line, NULL-ended; x_key among them */
    const char *dist;           /* y: its median */
    bool (*accepts)(const json_t *cell);
} line_plot;

static bool named(const char *const *names, const char *name) {
    for (; *names; names++)
        if (!strcmp(*names, name)) return true;
    return false;
}

void hr_report_key(const json_t *cell, const char *const *without, char *key) {
    size_t n = 0;
    key[0] = 0;
    for (size_t i = 0; i < hr_axes_count() && n < HR_KEY_BYTES; i++)
        if (!named(without, hr_axis_name(i)))
            n += (size_t)snprintf(key + n, HR_KEY_BYTES - n, "%s\x1f", hr_axis_text(cell, i));
}

static int by_key_then_x(const void *a, const void *b) {
    const point *p = a, *q = b;
    const int key = strcmp(p->key, q->key);
    return key ? key : (p->x > q->x) - (p->x < q->x);
}

typedef struct group {
    size_t first, n, order;
    size_t family; /* order of the first group of the same weights */
    double seqs, depth;
} group;

/* Most points first, so that what is left out is the least. */
static int by_size_then_order(const void *a, const void *b) {
    const group *g = a, *h = b;
    return g->n != h->n ? (g->n < h->n) - (g->n > h->n) : (g->order > h->order) - (g->order < h->order);
}
/* Families of the same weights together, in it by batch size and depth. */
static int by_family(const void *a, const void *b) {
    const group *g = a, *h = b;
    if (g->family != h->family) return g->family < h->family ? -1 : 1;
    if (g->seqs != h->seqs) return g->seqs < h->seqs ? -1 : 1;
    if (g->depth != h->depth) return g->depth < h->depth ? -1 : 1;
    return (g->order > h->order) - (g->order < h->order);
}

static double or_zero(double v) {
    return isfinite(v) ? v : 0;
}

static void sort_by_family(const point *points, group *groups, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const json_t *cell = points[groups[i].first].cell;
        groups[i].family = groups[i].order;
        groups[i].seqs = or_zero(hr_num(cell, "n_seqs")), groups[i].depth = or_zero(hr_num(cell, "n_depth"));
        for (size_t k = 0; k < n; k++)
            if (!strcmp(hr_text_weights(points[groups[k].first].cell), hr_text_weights(cell)) &&
                groups[k].order < groups[i].family)
                groups[i].family = groups[k].order;
    }
    qsort(groups, n, sizeof *groups, by_family);
}

static size_t collect(const hr_report *r, const line_plot *plot, point *points) {
    size_t n = 0, i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        const double x = hr_num(cell, plot->x_key);
        if (!plot->accepts(cell) || !isfinite(x) || !isfinite(hr_p50(cell, plot->dist))) continue;
        points[n].cell = cell, points[n].x = x, points[n].order = i;
        hr_report_key(cell, plot->without, points[n].key);
        n++;
    }
    qsort(points, n, sizeof *points, by_key_then_x);
    return n;
}

/* Groups of equal key with at least two different x. */
static size_t split(const point *points, size_t n, group *groups) {
    size_t n_groups = 0;
    for (size_t at = 0; at < n;) {
        group g = {.first = at, .order = points[at].order};
        for (; at < n && !strcmp(points[at].key, points[g.first].key); at++, g.n++)
            if (points[at].order < g.order) g.order = points[at].order;
        if (points[g.first].x < points[g.first + g.n - 1].x) groups[n_groups++] = g;
    }
    return n_groups;
}

/* The weights, and every other axis in which the groups differ. */
static void title_of(const point *points, const group *groups, size_t n_groups, size_t which,
                     const char *const *without, char *out, size_t size) {
    const json_t *cell = points[groups[which].first].cell;
    size_t n = (size_t)snprintf(out, size, "%s", hr_text_model(cell));
    for (size_t i = 1; i < hr_axes_count() && n < size; i++) {
        if (named(without, hr_axis_name(i))) continue;
        const bool quant = !strcmp(hr_axis_name(i), "quant"), act = !strcmp(hr_axis_name(i), "act");
        bool differs = quant;
        for (size_t k = 0; k < n_groups; k++) {
            const json_t *other = points[groups[k].first].cell;
            if (act && strcmp(hr_word(other, "quant"), hr_word(cell, "quant")))
                continue; /* it follows from the quant */
            differs |= strcmp(hr_axis_text(other, i), hr_axis_text(cell, i)) != 0;
        }
        const char *text = hr_axis_text(cell, i);
        if (differs && *text) n += (size_t)snprintf(out + n, size - n, "%s%s", i == 1 ? " " : ", ", text);
    }
}

void hr_plot_interval(const json_t *cell, const char *dist, double *lo, double *hi) {
    const json_t *d = json_object_get(cell, dist);
    *lo = hr_num(d, "ci95_lo"), *hi = hr_num(d, "ci95_hi");
    if (isfinite(*lo) && isfinite(*hi)) return;
    *lo = hr_num(d, "min"), *hi = hr_num(d, "max");
}

static const char *const state_names[HR_STATES] = {"near", "far", "mixed", "unknown"};

void hr_plot_see_state(hr_plot_states *states, const json_t *cell) {
    size_t s = 0;
    while (s < HR_STATES - 1 && strcmp(hr_word(cell, "state_class"), state_names[s])) s++;
    states->n[s]++;
}

void hr_plot_note_states(const hr_plot_states *states, hr_plot_data *data) {
    char text[160] = "";
    size_t n = 0, kinds = 0;
    for (size_t s = 0; s < HR_STATES; s++) {
        if (!states->n[s]) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%zu %s", kinds++ ? ", " : "", states->n[s], state_names[s]);
    }
    if (kinds > 1) hr_plot_more(data, "Mind the state of the machine, which differed: %s.", text);
}

static void note_states(const point *points, const group *groups, size_t n_groups, hr_plot_data *data) {
    hr_plot_states states = {{0}};
    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = groups[g].first; i < groups[g].first + groups[g].n; i++)
            hr_plot_see_state(&states, points[i].cell);
    hr_plot_note_states(&states, data);
}

static void put_lines(const line_plot *plot, const point *points, const group *groups, size_t n_groups,
                      hr_plot_data *data) {
    double x_min = INFINITY, x_max = 0, y_min = INFINITY, y_max = 0;
    for (size_t g = 0; g < n_groups; g++) {
        char title[HR_LABEL_BYTES];
        title_of(points, groups, n_groups, g, plot->without, title, sizeof title);
        const size_t series = hr_plot_series(data, title);
        for (size_t i = groups[g].first; i < groups[g].first + groups[g].n; i++) {
            const json_t *cell = points[i].cell;
            double lo, hi, y = hr_p50(cell, plot->dist);
            hr_plot_interval(cell, plot->dist, &lo, &hi);
            json_t *row = hr_plot_row(
                data, series, (double[]){points[i].x, y, lo, hi, hr_num(json_object_get(cell, plot->dist), "n")}, 5);
            hr_plot_text(data, row, hr_word(cell, "test"));
            hr_plot_text(data, row, hr_word(cell, "cell_id"));
            hr_plot_list_number(data, "xs", points[i].x);
            x_min = fmin(x_min, points[i].x), x_max = fmax(x_max, points[i].x);
            y_min = fmin(y_min, y), y_max = fmax(y_max, y);
        }
    }
    hr_plot_count(data, "log_x", x_min > 0 && x_max / x_min >= 8);
    hr_plot_count(data, "log_y", y_min > 0 && y_max / y_min >= 10);
}

static void fill_lines(const hr_report *r, const line_plot *plot, hr_plot_data *data) {
    const size_t most = json_array_size(r->cells);
    point *points = hr_calloc(most + 1, sizeof *points);
    group *groups = hr_calloc(most + 1, sizeof *groups);
    if (!points || !groups)
        data->failed = true;
    else {
        const size_t n = collect(r, plot, points);
        size_t n_groups = split(points, n, groups);
        if (!n_groups) hr_plot_why(data, n ? "no two cells differ in that alone" : "no cell has it");
        qsort(groups, n_groups, sizeof *groups, by_size_then_order);
        if (n_groups > LINES_MOST) {
            hr_plot_more(data, "%zu lines with fewer points are left out (all cells: data/cells.tsv).",
                         n_groups - LINES_MOST);
            n_groups = LINES_MOST;
        }
        sort_by_family(points, groups, n_groups);
        if (n_groups) put_lines(plot, points, groups, n_groups, data);
        note_states(points, groups, n_groups, data);
    }
    hr_free(points), hr_free(groups);
}

static bool is_request(const json_t *cell) {
    return isfinite(hr_num(cell, "isl"));
}
static bool is_decode(const json_t *cell) {
    return !is_request(cell) && hr_num(cell, "n_gen") > 0;
}
static bool any(const json_t *cell) {
    (void)cell;
    return true;
}

void hr_fill_ttft(const hr_report *r, hr_plot_data *data) {
    static const char *const without[] = {"isl", "n_prompt", NULL};
    fill_lines(r, &(line_plot){"isl", without, "ttft_ms", is_request}, data);
}
void hr_fill_tpot_batch(const hr_report *r, hr_plot_data *data) {
    static const char *const without[] = {"n_seqs", NULL};
    fill_lines(r, &(line_plot){"n_seqs", without, "tpot_excl_first_ms", any}, data);
}
void hr_fill_tpot_depth(const hr_report *r, hr_plot_data *data) {
    static const char *const without[] = {"n_depth", NULL};
    fill_lines(r, &(line_plot){"n_depth", without, "tpot_excl_first_ms", is_decode}, data);
}

/* ---- KV layouts: the same grouping, names on the x axis -------------------------------------------------------- */

static void layout_name(const json_t *cell, char *out, size_t size) {
    const double page = hr_num(cell, "page_size");
    snprintf(out, size, page > 0 ? "%.20s:%.0f" : "%.20s", hr_word(cell, "kv_layout"), page);
    hr_text_whole(out);
}

/* Index of a name in data->vars.layouts, which it joins when new; from 1. */
static double layout_index(hr_plot_data *data, const char *name) {
    size_t i;
    json_t *known;
    json_array_foreach(json_object_get(data->vars, "layouts"), i,
                       known) if (!strcmp(json_string_value(known), name)) return (double)i +
        1;
    hr_plot_list_word(data, "layouts", name);
    return (double)i + 1;
}

static size_t distinct_layouts(const point *points, const group *g) {
    char names[2][40];
    size_t n = 1;
    layout_name(points[g->first].cell, names[0], sizeof names[0]);
    for (size_t i = g->first + 1; i < g->first + g->n && n < 2; i++) {
        layout_name(points[i].cell, names[1], sizeof names[1]);
        n += strcmp(names[0], names[1]) != 0;
    }
    return n;
}

static void put_layouts(const point *points, const group *groups, size_t n_groups, const char *const *without,
                        hr_plot_data *data) {
    for (size_t g = 0; g < n_groups; g++) {
        char title[HR_LABEL_BYTES], name[40];
        title_of(points, groups, n_groups, g, without, title, sizeof title);
        const char *test = hr_word(points[groups[g].first].cell, "test");
        const size_t said = strlen(title);
        if (n_groups == 1) snprintf(title + said, sizeof title - said, ", %.40s", test);
        const size_t series = hr_plot_series(data, title);
        for (size_t i = groups[g].first; i < groups[g].first + groups[g].n; i++) {
            const json_t *cell = points[i].cell;
            double lo, hi;
            layout_name(cell, name, sizeof name);
            hr_plot_interval(cell, "tpot_excl_first_ms", &lo, &hi);
            json_t *row = hr_plot_row(data, series,
                                      (double[]){layout_index(data, name), hr_p50(cell, "tpot_excl_first_ms"), lo, hi,
                                                 hr_num(json_object_get(cell, "tpot_excl_first_ms"), "n")},
                                      5);
            hr_plot_text(data, row, name);
            hr_plot_text(data, row, hr_word(cell, "cell_id"));
        }
    }
}

void hr_fill_layouts(const hr_report *r, hr_plot_data *data) {
    static const char *const without[] = {"kv_layout", "page_size", "kv_alloc", NULL};
    enum { GROUPS_MOST = 4 };
    const size_t most = json_array_size(r->cells);
    point *points = hr_calloc(most + 1, sizeof *points);
    group *groups = hr_calloc(most + 1, sizeof *groups);
    size_t n = 0, n_groups = 0, i;
    json_t *cell;
    if (!points || !groups) {
        data->failed = true;
        hr_free(points), hr_free(groups);
        return;
    }
    json_array_foreach(r->cells, i, cell) {
        if (!isfinite(hr_p50(cell, "tpot_excl_first_ms")) || !*hr_word(cell, "kv_layout")) continue;
        points[n].cell = cell, points[n].order = i, points[n].x = (double)i;
        hr_report_key(cell, without, points[n++].key);
    }
    qsort(points, n, sizeof *points, by_key_then_x);
    const size_t all = split(points, n, groups);
    for (size_t k = 0; k < all; k++)
        if (distinct_layouts(points, &groups[k]) > 1) groups[n_groups++] = groups[k];
    if (!n_groups) hr_plot_why(data, "no two cells differ in the layout alone");
    qsort(groups, n_groups, sizeof *groups, by_size_then_order);
    if (n_groups > GROUPS_MOST) n_groups = GROUPS_MOST;
    sort_by_family(points, groups, n_groups);
    put_layouts(points, groups, n_groups, without, data);
    note_states(points, groups, n_groups, data);
    hr_free(points), hr_free(groups);
}
