#include "harness/kv/kv_map.h"

#include "kernels/base/memory.h"

#include <inttypes.h>

enum { COLUMNS = 9 };
static const char *const columns[COLUMNS] = {
    "layer", "head", "pos", "k_offset", "v_offset", "row_bytes", "v_row_bytes", "k_scale_offset", "v_scale_offset"};

struct hr_kv_map {
    hr_kv_geom geom;
    hr_kv_seq seq;
    uint32_t *table; /* [pages] 0, 1, 2 ... */
    uint32_t positions;
};

/* Where the planes are said to start, so that the address of every row can be had without memory behind it. */
static uint8_t *plane_start(void) {
    return (uint8_t *)(uintptr_t)(1u << 21);
}

hr_status hr_kv_map_create(const hr_kv_map_options *o, hr_kv_map **out) {
    hr_kv_map *map = hr_calloc(1, sizeof *map);
    *out = NULL;
    if (!map) HR_FAIL(HR_ERR_MEMORY, "out of memory for the map of a KV cache");
    hr_kv_geom *g = &map->geom;
    hr_status status = hr_kv_geom_init(g, o->layout, o->n_layers, o->n_heads, o->head_dim, o->k_type, o->v_type,
                                       o->positions, o->page_size);
    if (status == HR_OK && g->page_size) {
        const size_t pages = (size_t)g->n_blocks * g->block / g->page_size;
        map->table = hr_calloc(pages, sizeof *map->table);
        if (!map->table) status = hr_fail(HR_ERR_MEMORY, "out of memory for a table of %zu pages", pages);
        for (size_t i = 0; map->table && i < pages; i++) map->table[i] = (uint32_t)i;
    }
    if (status != HR_OK) {
        hr_kv_map_destroy(map);
        return status;
    }
    map->seq.g = g, map->seq.table = map->table, map->seq.len = map->positions = o->positions;
    for (int x = 0; x < HR_KV_PLANES; x++)
        if (g->row_bytes[x]) map->seq.base[x] = plane_start();
    *out = map;
    return HR_OK;
}

void hr_kv_map_destroy(hr_kv_map *map) {
    if (!map) return;
    hr_free(map->table);
    hr_free(map);
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* Values of one row; -1 is null. */
typedef struct row {
    int64_t v[COLUMNS];
} row;

/* What stands before a row, between its values and after it. Keys stand before values in JSON. */
typedef struct style {
    const char *open, *between, *close;
    const char *none; /* null */
    bool keys;
    int width;
} style;

static void put_row(FILE *stream, const style *s, const row *r) {
    fputs(s->open, stream);
    for (int j = 0; j < COLUMNS; j++) {
        if (j) fputs(s->between, stream);
        if (s->keys) fprintf(stream, "\"%s\": ", columns[j]);
        if (r->v[j] < 0)
            fprintf(stream, "%*s", s->width, s->none);
        else
            fprintf(stream, "%*" PRId64, s->width, r->v[j]);
    }
    fputs(s->close, stream);
}

static void put_names(FILE *stream, const style *s) {
    fputs(s->open, stream);
    for (int j = 0; j < COLUMNS; j++) fprintf(stream, "%s%*s", j ? s->between : "", s->width, columns[j]);
    fputs(s->close, stream);
}

static style style_of(hr_format format) {
    switch (format) {
    case HR_FORMAT_JSON:
        return (style){.open = "  {", .between = ", ", .close = "}", .none = "null", .keys = true};
    case HR_FORMAT_JSONL:
        return (style){.open = "{", .between = ", ", .close = "}\n", .none = "null", .keys = true};
    case HR_FORMAT_CSV:
        return (style){.open = "", .between = ",", .close = "\r\n", .none = ""};
    case HR_FORMAT_SQL:
        return (style){.open = "INSERT INTO result VALUES (", .between = ", ", .close = ");\n", .none = "NULL"};
    case HR_FORMAT_MD:
        return (style){.open = "| ", .between = " | ", .close = " |\n", .none = ""};
    default:
        return (style){.open = "", .between = " ", .close = "\n", .none = "-", .width = 14};
    }
}

static void put_head(FILE *stream, hr_format format, const style *s) {
    switch (format) {
    case HR_FORMAT_JSON:
        fputs("[\n", stream);
        break;
    case HR_FORMAT_JSONL:
        break;
    case HR_FORMAT_SQL:
        fputs("CREATE TABLE IF NOT EXISTS result (", stream);
        for (int j = 0; j < COLUMNS; j++) fprintf(stream, "%s\"%s\" INTEGER", j ? ", " : "", columns[j]);
        fputs(");\n", stream);
        break;
    default:
        put_names(stream, s);
    }
    if (format == HR_FORMAT_MD) {
        for (int j = 0; j < COLUMNS; j++) fputs("|---:", stream);
        fputs("|\n", stream);
    }
}

static int64_t offset(const hr_kv_map *map, const hr_kv_rows *run, int plane, uint32_t i) {
    return run->at[plane] ? run->at[plane] + i * run->stride[plane] - map->seq.base[plane] : -1;
}

hr_status hr_kv_map_write(const hr_kv_map *map, hr_format format, FILE *stream) {
    const hr_kv_geom *g = &map->geom;
    const style s = style_of(format);
    bool first = true;
    put_head(stream, format, &s);
    for (uint32_t l = 0; l < g->n_layers && !ferror(stream); l++) {
        for (uint32_t h = 0; h < g->n_heads && !ferror(stream); h++) {
            for (uint32_t pos = 0; pos < map->positions;) {
                const hr_kv_rows run = hr_kv_run(&map->seq, l, h, pos);
                const uint32_t left = map->positions - pos, n = run.n < left ? run.n : left;
                for (uint32_t i = 0; i < n; i++) {
                    if (format == HR_FORMAT_JSON && !first) fputs(",\n", stream);
                    first = false;
                    put_row(stream, &s,
                            &(row){{l, h, pos + i, offset(map, &run, HR_KV_K, i), offset(map, &run, HR_KV_V, i),
                                    (int64_t)g->row_bytes[HR_KV_K], (int64_t)g->row_bytes[HR_KV_V],
                                    offset(map, &run, HR_KV_KS, i), offset(map, &run, HR_KV_VS, i)}});
                }
                pos += n;
            }
        }
    }
    if (format == HR_FORMAT_JSON) fputs("\n]\n", stream);
    return hr_stream_flush(stream);
}
