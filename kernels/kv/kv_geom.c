#include "kernels/kv/kv_run.h"

#include "kernels/kv/kv_open.h"

#include "kernels/base/random.h"

#include <string.h>

static const char *const layout_names[HR_KV_LAYOUT_COUNT] = {
    "head", "token", "block", "zorder", "zorder-h", "shuffled", "paged", "paged-nhd", "paged-identity"};

const char *hr_kv_layout_name(hr_kv_layout layout) {
    return (unsigned)layout < HR_KV_LAYOUT_COUNT ? layout_names[layout] : "unknown";
}

hr_status hr_kv_layout_parse(const char *name, hr_kv_layout *out) {
    if (strcmp(name, "contiguous") == 0) name = "head";
    for (int i = 0; i < HR_KV_LAYOUT_COUNT; i++) {
        if (strcmp(name, layout_names[i]) == 0) {
            *out = (hr_kv_layout)i;
            return HR_OK;
        }
    }
    HR_FAIL(HR_ERR_USAGE,
            "KV layout \"%s\" is unknown: use head, token, block, paged, paged-nhd, "
            "paged-identity, zorder, zorder-h or shuffled",
            name);
}

static const struct {
    hr_dtype type;
    const char *name;
} type_names[] = {{HR_F32, "f32"},     {HR_F16, "f16"},   {HR_BF16, "bf16"}, {HR_Q8_0, "q8_0"},
                  {HR_I8ROW, "i8row"}, {HR_Q4_0, "q4_0"}, {HR_I4KC, "i4kc"}};
enum { TYPES = sizeof type_names / sizeof type_names[0] };

const char *hr_kv_type_name(hr_dtype type) {
    for (int i = 0; i < TYPES; i++)
        if (type_names[i].type == type) return type_names[i].name;
    return (unsigned)type < HR_DTYPE_COUNT ? hr_dtypes[type].name : "unknown";
}

hr_status hr_kv_type_parse(const char *name, hr_dtype *out) {
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(name, type_names[i].name) == 0) {
            *out = type_names[i].type;
            return HR_OK;
        }
    }
    HR_FAIL(HR_ERR_USAGE, "KV type %.60s is unknown: use f32, f16, bf16, q8_0, i8row, q4_0 or i4kc", name);
}

/* Bytes of a row of rows and of its scales. */
static hr_status row_bytes(hr_dtype type, bool keys, uint32_t head_dim, size_t *rows, size_t *scales) {
    *scales = 0;
    const bool by_channel = keys && type == HR_I4KC;
    if (by_channel && head_dim > HR_KV_GROUP_DIM)
        HR_FAIL(HR_ERR_UNSUPPORTED, "KV type i4kc holds head dimensions of at most %d, this model has %u: use q4_0",
                HR_KV_GROUP_DIM, head_dim);
    switch (type) {
    case HR_F32:
        *rows = (size_t)head_dim * 4;
        return HR_OK;
    case HR_F16:
    case HR_BF16:
        *rows = (size_t)head_dim * 2;
        return HR_OK;
    case HR_Q8_0:
    case HR_I8ROW:
    case HR_Q4_0:
    case HR_I4KC:
        if (head_dim % 32) {
            HR_FAIL(HR_ERR_UNSUPPORTED,
                    "KV type %s needs a head dimension that is a multiple of 32, this model has %u: use f32, f16 or "
                    "bf16",
                    hr_kv_type_name(type), head_dim);
        }
        *rows = type == HR_Q4_0 || type == HR_I4KC ? head_dim / 2 : head_dim;
        *scales = type == HR_I8ROW ? 2 : (size_t)head_dim / 32 * (by_channel ? 4 : 2);
        return HR_OK;
    default:
        HR_FAIL(HR_ERR_UNSUPPORTED, "KV type %s is not supported: use f32, f16, bf16, q8_0, i8row, q4_0 or i4kc",
                hr_kv_type_name(type));
    }
}

/* Walks the Morton codes of the P x P square upward and numbers those whose head exists: dense for any H. */
static void fill_morton(hr_kv_geom *g, bool head_low) {
    const uint32_t P = g->super, H = g->n_heads;
    uint16_t next = 0;
    for (uint32_t code = 0; code < P * P; code++) {
        uint32_t even = 0, odd = 0;
        for (int i = 0; i < 8; i++) {
            even |= (code >> 2 * i & 1) << i;
            odd |= (code >> (2 * i + 1) & 1) << i;
        }
        const uint32_t b = head_low ? odd : even, h = head_low ? even : odd;
        if (h < H) g->rank[b * H + h] = next++;
    }
}

/* A fixed permutation (Fisher-Yates over splitmix64), the same in every build and on every machine. */
static void fill_shuffled(hr_kv_geom *g) {
    const uint32_t n = g->super * g->n_heads;
    uint64_t state = HR_GOLDEN;
    for (uint32_t i = 0; i < n; i++) g->rank[i] = (uint16_t)i;
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = (uint32_t)(hr_random(&state) % (i + 1));
        const uint16_t t = g->rank[i];
        g->rank[i] = g->rank[j], g->rank[j] = t;
    }
}

hr_status hr_kv_geom_init(hr_kv_geom *g, hr_kv_layout layout, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                          hr_dtype k_type, hr_dtype v_type, uint32_t capacity, uint32_t page_size) {
    memset(g, 0, sizeof *g);
    if ((unsigned)layout >= HR_KV_LAYOUT_COUNT) HR_FAIL(HR_ERR_USAGE, "KV layout number %d is unknown", (int)layout);
    if (!n_layers || !n_heads || !head_dim || !capacity)
        HR_FAIL(HR_ERR_INPUT, "a KV cache of %u layers, %u heads, head dimension %u and %u positions holds nothing",
                n_layers, n_heads, head_dim, capacity);
    if (n_heads > 64) HR_FAIL(HR_ERR_UNSUPPORTED, "%u KV heads: at most 64 are supported", n_heads);
    if (head_dim > 65536) HR_FAIL(HR_ERR_UNSUPPORTED, "head dimension %u: at most 65536 is supported", head_dim);
    if (hr_kv_is_paged(layout) && (!page_size || page_size > 256 || (page_size & (page_size - 1))))
        HR_FAIL(HR_ERR_USAGE, "page size %u: use a power of two from 1 to 256", page_size);
    g->layout = layout;
    g->n_layers = n_layers, g->n_heads = n_heads, g->head_dim = head_dim;
    g->type[0] = k_type, g->type[1] = v_type;
    HR_TRY(row_bytes(k_type, true, head_dim, &g->row_bytes[HR_KV_K], &g->row_bytes[HR_KV_KS]));
    HR_TRY(row_bytes(v_type, false, head_dim, &g->row_bytes[HR_KV_V], &g->row_bytes[HR_KV_VS]));

    const size_t wide = g->row_bytes[HR_KV_K] > g->row_bytes[HR_KV_V] ? g->row_bytes[HR_KV_K] : g->row_bytes[HR_KV_V];
    g->block = 1;
    while (2 * g->block * wide <= 4096) g->block *= 2;
    g->page_size = hr_kv_is_paged(layout) ? page_size : 0;
    const uint32_t round = g->page_size > g->block ? g->page_size : g->block; /* both are powers of two */
    if (capacity > UINT32_MAX - round) HR_FAIL(HR_ERR_INPUT, "a KV cache of %u positions is too long", capacity);
    const uint32_t rows = (capacity + round - 1) / round * round;
    g->n_blocks = rows / g->block;
    g->super = 1;
    while (g->super < n_heads) g->super *= 2;
    g->block_log2 = (uint8_t)__builtin_ctz(g->block), g->super_log2 = (uint8_t)__builtin_ctz(g->super);
    g->page_log2 = g->page_size ? (uint8_t)__builtin_ctz(g->page_size) : 0;

    const size_t L = n_layers, H = n_heads, P = g->super;
    size_t held = rows; /* positions that an extent (a page) holds */
    switch (layout) {
    case HR_KV_HEAD:
        g->unit_rows = rows, g->extent_units = L * H;
        break;
    case HR_KV_TOKEN:
        g->unit_rows = 1, g->extent_units = L * H * rows;
        break;
    case HR_KV_BLOCK:
        g->unit_rows = g->block, g->extent_units = L * H * g->n_blocks;
        break;
    case HR_KV_PAGED_NHD:
        g->unit_rows = 1, g->extent_units = L * H * g->page_size, held = g->page_size;
        break;
    case HR_KV_PAGED:
    case HR_KV_PAGED_IDENTITY:
        g->unit_rows = g->page_size, g->extent_units = L * H, held = g->page_size;
        break;
    default:
        g->unit_rows = g->block, g->extent_units = L * ((g->n_blocks + P - 1) / P) * P * H;
        if (layout == HR_KV_SHUFFLED)
            fill_shuffled(g);
        else
            fill_morton(g, layout == HR_KV_ZORDER_H);
    }
    for (int x = 0; x < HR_KV_PLANES; x++) {
        size_t bytes = g->unit_rows * g->row_bytes[x], total;
        g->unit_bytes[x] = bytes >= 128 ? (bytes + 127) / 128 * 128 : bytes;
        if (__builtin_mul_overflow(g->extent_units, g->unit_bytes[x], &total) || total > SIZE_MAX / 8)
            HR_FAIL(HR_ERR_INPUT, "a KV cache of %u layers, %u heads and %u positions is too large", n_layers, n_heads,
                    capacity);
        g->pad_bytes += total - L * H * held * g->row_bytes[x];
    }
    return HR_OK;
}
