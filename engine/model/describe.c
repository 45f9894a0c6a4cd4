/* describe.c - names for people and other tools: quants, size labels, fingerprints. */
#include "engine/model/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const quant_names[HR_QUANT_COUNT] = {
    "native", "f32", "bf16", "f16", "int8", "int4", "int8-row", "int4-g128", "int4-head8", "int4-g128-head8"};

const char *hr_quant_name(hr_quant quant) {
    return (unsigned)quant < HR_QUANT_COUNT ? quant_names[quant] : "?";
}

hr_status hr_quant_parse(const char *name, hr_quant *out) {
    for (unsigned i = 0; i < HR_QUANT_COUNT; i++) {
        if (strcmp(name, quant_names[i])) continue;
        *out = (hr_quant)i;
        return HR_OK;
    }
    HR_FAIL(
        HR_ERR_USAGE,
        "unknown quantization '%.40s'; known are: native, f32, bf16, f16, int8, int4, int8-row, int4-g128, int4-head8, "
        "int4-g128-head8",
        name);
}

static const char *const order_names[HR_ORDER_COUNT] = {[HR_ORDER_ROWS] = "native", [HR_ORDER_PANELS] = "repacked"};

const char *hr_weights_name(hr_order order) {
    return (unsigned)order < HR_ORDER_COUNT ? order_names[order] : "?";
}

hr_status hr_weights_parse(const char *name, hr_order *out) {
    for (unsigned i = 0; i < HR_ORDER_COUNT; i++) {
        if (strcmp(name, order_names[i])) continue;
        *out = (hr_order)i;
        return HR_OK;
    }
    HR_FAIL(HR_ERR_USAGE, "unknown order of weights '%.40s'; known are: native, repacked", name);
}

void hr_size_label(uint64_t n_params, char *out, size_t size) {
    static const struct {
        double unit;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
    double n = (double)n_params;
    size_t u = 0;
    while (u < 3 && n < 0.95 * units[u].unit) u++;
    n /= units[u].unit;
    /* Whole numbers, as models are named: 1.24e9 is "1B", 6.74e9 "7B"; but 1.54e9 "1.5B". */
    bool half = n < 10 && fabs(n - round(n)) > 0.3;
    snprintf(out, size, half ? "%.1f%c" : "%.0f%c", n, units[u].letter);
}

/* Two multiply-and-rotate lanes over 8-byte words, mixed at the end of each piece; lengths enter too. */
void hr_fingerprint_add(hr_fingerprint *f, const void *data, size_t n) {
    const uint8_t *p = data;
    uint64_t a = f->a ^ 0x9ae16a3b2f90404fu, b = f->b ^ 0xc949c7defebe6fb5u ^ n;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, n - i < 8 ? n - i : 8);
        a = (a ^ word) * 0x9fb21c651e98df25u;
        a ^= a >> 29;
        b = (b + word) * 0xd6e8feb86659fd93u;
        b ^= b >> 32;
    }
    a = (a ^ n) * 0xff51afd7ed558ccdu, a ^= a >> 33;
    b = (b + a) * 0xc4ceb9fe1a85ec53u, b ^= b >> 33;
    f->a = a ^ b << 1, f->b = b;
}

void hr_fingerprint_hex(const hr_fingerprint *f, char out[33]) {
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, f->a, f->b);
}
