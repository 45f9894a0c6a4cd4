/* kv_map.h - where each row of one sequence lies, by the function that attention itself uses. */
#ifndef HR_KV_MAP_H
#define HR_KV_MAP_H

#include "harness/formats/formats.h"
#include "kernels/table.h"

typedef struct hr_kv_map_options {
    hr_kv_layout layout;
    uint32_t n_layers, n_heads, head_dim; /* n_heads: KV heads */
    hr_dtype k_type, v_type;
    uint32_t positions; /* capacity of the sequence, and how many are printed */
    uint32_t page_size; /* paged layouts */
} hr_kv_map_options;

typedef struct hr_kv_map hr_kv_map;
/* One sequence of `positions`, in paged layouts on pages 0, 1, 2 ... of a pool. Nothing is mapped: offsets alone. */
hr_status hr_kv_map_create(const hr_kv_map_options *options, hr_kv_map **out);
void hr_kv_map_destroy(hr_kv_map *map);

/* Writes the rows in order of layer, head and position, each as it is computed: memory does not grow with their number.
 * Columns: layer head pos k_offset v_offset row_bytes (of K), v_row_bytes, k_scale_offset, v_scale_offset (null where the
 * type has no scales). Offsets are bytes from the start of the arena of that plane. */
hr_status hr_kv_map_write(const hr_kv_map *map, hr_format format, FILE *stream);

#endif
