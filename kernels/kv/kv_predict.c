#include "kernels/kv/kv_predict.h"

#include "kernels/table.h"

#include <math.h>

enum { LEVELS = 4 };

/* `count` pieces `pitch` bytes apart, of which each is what the level inside it describes. */
typedef struct level {
    double count, pitch;
    double of; /* they stand at random among so many; 0: side by side */
} level;

/* Rows of one plane: `bytes` in one piece from offset `at` of a unit on, then levels from inside outward. */
typedef struct nest {
    double bytes, at;
    level levels[LEVELS];
    int n;
} nest;

static void add(nest *s, double count, double pitch) {
    s->levels[s->n++] = (level){count, pitch, 0};
}
static void add_pages(nest *s, double count, double pitch, double of) {
    s->levels[s->n++] = (level){count, pitch, of};
}

static double round_up(double x, double to) {
    return ceil(x / to) * to;
}
/* Largest power of two, at most g, that divides x (a whole number of bytes). */
static double align_of(double x, double g) {
    while (g > 1 && fmod(x, g) != 0) g /= 2;
    return g;
}

/* Pieces of `bytes` bytes each by itself, at places `at` plus multiples of `align`: granules on average. */
static double apart(double pieces, double bytes, double at, double align, double g) {
    return pieces * (round_up(fmod(at, align) + bytes, align) + g - align) / g;
}

/* Granules of g bytes that the rows of a nest lie on. */
static double touched(const nest *s, double g) {
    double bytes = s->bytes, pieces = 1, align = g;
    for (int i = 0; i < s->n; i++) {
        const level *v = &s->levels[i];
        if (v->count <= 0) return 0;
        if (v->count <= 1) continue;
        if (pieces <= 1 && v->of > 0) {
            const double a = align_of(v->pitch, g), abreast = (round_up(bytes, a) + g - a) / v->pitch;
            if (abreast > 1) return v->of * v->pitch / g * (1 - pow(1 - v->count / v->of, abreast));
        } else if (pieces <= 1 && v->pitch - bytes < g) { /* no granule lies in the gap alone */
            bytes += (v->count - 1) * v->pitch;
            continue;
        }
        const double a = align_of(v->pitch, g);
        pieces *= v->count;
        align = a < align ? a : align;
    }
    return apart(pieces, bytes, s->at, align, g);
}

/* ---- rows of a range of positions -------------------------------------------------------------------------------------- */

/* k of the P blocks of a super-block, `bytes` from `at` on of the tile of each head. */
static double super_touched(const hr_kv_geom *g, double unit, double bytes, double at, double k, double granule) {
    const double P = g->super, H = g->n_heads;
    if (k <= 0) return 0;
    if (unit >= granule) return apart(k * H, bytes, at, align_of(unit, granule), granule);
    const double q = granule / unit;
    if (g->layout == HR_KV_SHUFFLED) return ceil(P * H / q) * (1 - pow(1 - k / P, q));
    const int j = (int)log2(q), b_bits = g->layout == HR_KV_ZORDER ? (j + 1) / 2 : j / 2;
    const double wide = fmin(ldexp(1, b_bits), P), high = fmin(q / wide, P);
    return ceil(k / wide) * ceil(H / high);
}

/* Granules of plane x that positions [a, b) of `layers` layers lie on: a part of one unit or page, or whole ones. */
static double piece_touched(const hr_kv_geom *g, int x, double layers, double pool, double a, double b,
                            double granule) {
    const double L = g->n_layers, H = g->n_heads, row = (double)g->row_bytes[x], unit = (double)g->unit_bytes[x];
    const double R = g->page_size ? g->page_size : g->unit_rows, n = b - a;
    nest s = {.bytes = n * row, .at = fmod(a, R) * row};
    switch (g->layout) {
    case HR_KV_HEAD:
        add(&s, H, unit), add(&s, layers, H * unit);
        break;
    case HR_KV_TOKEN:
        s.bytes = row, s.at = a * L * H * unit;
        add(&s, H, unit), add(&s, layers, H * unit), add(&s, n, L * H * unit);
        break;
    case HR_KV_PAGED_NHD: {
        const double pages = n > R ? n / R : 1;
        s.bytes = row, s.at = fmod(a, R) * H * unit;
        add(&s, H, unit), add(&s, n / pages, H * unit), add(&s, layers, R * H * unit);
        add_pages(&s, pages, L * R * H * unit, pool);
        break;
    }
    case HR_KV_PAGED:
    case HR_KV_PAGED_IDENTITY: {
        const double pages = n > R ? n / R : 1;
        s.bytes = n / pages * row;
        add(&s, H, unit), add(&s, layers, H * unit), add_pages(&s, pages, L * H * unit, pool);
        break;
    }
    case HR_KV_BLOCK: {
        const double blocks = n > R ? n / R : 1;
        s.bytes = n / blocks * row;
        add(&s, H, unit), add(&s, blocks, H * unit), add(&s, layers, g->n_blocks * H * unit);
        break;
    }
    default: { /* zorder, zorder-h, shuffled: the rest of a super-block, whole ones, the start of one */
        const double P = g->super, supers = ceil(g->n_blocks / P);
        if (n < R) return layers * super_touched(g, unit, s.bytes, s.at, 1, granule);
        const double begun = fmod(a / R, P), lead = begun > 0 ? fmin(P - begun, n / R) : 0;
        const double whole = floor((n / R - lead) / P), tail = n / R - lead - whole * P;
        nest all = {.bytes = P * H * unit};
        add(&all, whole, P * H * unit), add(&all, layers, supers * P * H * unit);
        return touched(&all, granule) + layers * (super_touched(g, unit, R * row, 0, lead, granule) +
                                                  super_touched(g, unit, R * row, 0, tail, granule));
    }
    }
    return touched(&s, granule);
}

static bool is_scattered(const hr_kv_geom *g) {
    return g->layout == HR_KV_ZORDER || g->layout == HR_KV_ZORDER_H || g->layout == HR_KV_SHUFFLED;
}

/* The same for any range: what is left of a unit or page at its start, whole ones, what is left at its end. */
static double range_touched(const hr_kv_geom *g, int x, double layers, double pool, uint32_t a, uint32_t b,
                            double granule) {
    const uint32_t R = g->page_size ? g->page_size : g->unit_rows;
    if (a >= b || !g->row_bytes[x]) return 0;
    if (a / R == (b - 1) / R || g->layout == HR_KV_HEAD || g->layout == HR_KV_TOKEN)
        return piece_touched(g, x, layers, pool, a, b, granule);
    const uint32_t whole0 = (a + R - 1) / R * R, whole1 = b / R * R;
    if (is_scattered(g) && (double)g->unit_bytes[x] < granule) /* tiles of one granule count once, full or not */
        return piece_touched(g, x, layers, pool, a / R * R, (b + R - 1) / R * R, granule);
    double sum = 0;
    if (a < whole0) sum += piece_touched(g, x, layers, pool, a, whole0, granule);
    if (whole0 < whole1) sum += piece_touched(g, x, layers, pool, whole0, whole1, granule);
    if (whole1 < b) sum += piece_touched(g, x, layers, pool, whole1, b, granule);
    return sum;
}

static double range_sum(const hr_kv_geom *g, double layers, double pool, uint32_t a, uint32_t b, double granule) {
    double sum = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) sum += range_touched(g, x, layers, pool, a, b, granule);
    return sum;
}

/* Calls of the run function for positions [a, b) of one head; `cut`: runs end there at the latest. */
static double range_runs(const hr_kv_geom *g, uint32_t a, uint32_t b, uint32_t cut) {
    const bool long_runs = g->layout == HR_KV_HEAD || g->layout == HR_KV_TOKEN;
    uint32_t R = g->page_size ? g->page_size : g->unit_rows;
    if (long_runs || R > cut) R = cut;
    if (a >= b) return 0;
    return R == UINT32_MAX ? 1 : (double)((b - 1) / R - a / R + 1);
}

/* Both parts of [0, len) round the hole. */
typedef struct parts {
    uint32_t a[2], b[2];
} parts;
static parts parts_of(const hr_kv_op_shape *s, uint32_t len) {
    if (s->gone_from >= s->gone_to) return (parts){{0, 0}, {len, 0}};
    const uint32_t end = s->gone_from < len ? s->gone_from : len;
    return (parts){{0, s->gone_to < len ? s->gone_to : len}, {end, len}};
}
static double parts_runs(const hr_kv_geom *g, const parts *p, uint32_t cut) {
    return range_runs(g, p->a[0], p->b[0], cut) + range_runs(g, p->a[1], p->b[1], cut);
}

static hr_kv_prediction all_of(const hr_kv_geom *g, const hr_kv_op_shape *o, const parts *p, double layers, double runs,
                               double times) {
    const double pool = g->layout == HR_KV_PAGED_IDENTITY ? 0 : o->pool_pages;
    hr_kv_prediction r = {.runs = runs};
    for (int i = 0; i < 2; i++) {
        r.lines += times * range_sum(g, layers, pool, p->a[i], p->b[i], 64);
        r.pages += times * range_sum(g, layers, pool, p->a[i], p->b[i], 4096);
    }
    return r;
}

hr_kv_prediction hr_kv_predict(const hr_kv_geom *g, const hr_kv_op_shape *s) {
    const double L = g->n_layers, H = g->n_heads;
    const parts p = parts_of(s, s->len);
    double runs = 0, planes = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) planes += g->row_bytes[x] > 0;
    switch (s->op) {
    case HR_KV_OP_DECODE: /* K and V are looked up apart, chunk by chunk */
        return all_of(g, s, &p, 1, 2 * H * parts_runs(g, &p, HR_ATTN_CHUNK), 1);
    case HR_KV_OP_PREFILL: { /* every tile of queries walks to its last one */
        const uint32_t tile = s->group < HR_ATTN_TILE_ROWS ? HR_ATTN_TILE_ROWS / (s->group ? s->group : 1) : 1;
        for (uint32_t q = 0; q < s->n_q; q += tile) {
            const uint32_t last = q + tile < s->n_q ? q + tile : s->n_q;
            const parts seen = parts_of(s, s->len - s->n_q + last);
            runs += 2 * H * parts_runs(g, &seen, HR_ATTN_CHUNK);
        }
        return all_of(g, s, &p, 1, runs, 1);
    }
    case HR_KV_OP_APPEND: { /* one look-up serves K and V */
        const parts end = {{s->len - s->n_q, 0}, {s->len, 0}};
        return all_of(g, s, &end, L, L * H * parts_runs(g, &end, UINT32_MAX), 1);
    }
    case HR_KV_OP_FORK: /* source and copy; pages are shared where every page may have two owners */
        if (g->layout == HR_KV_PAGED || g->layout == HR_KV_PAGED_NHD) return (hr_kv_prediction){0};
        return all_of(g, s, &p, L, 2 * L * H * parts_runs(g, &p, UINT32_MAX), 2);
    case HR_KV_OP_SAVE: /* plane by plane */
        return all_of(g, s, &p, L, planes * L * H * parts_runs(g, &p, UINT32_MAX), 1);
    default:
        return (hr_kv_prediction){0};
    }
}
