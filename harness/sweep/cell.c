#include "harness/sweep/cell.h"

#include "harness/formats/cell_keys.h"
#include "harness/version.h"
#include "kernels/base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char *const kinds[] = {"pp", "tg", "pg", "isl"};

void hr_cell_test(const hr_cell_config *c, char *out, size_t n) {
    char name[96];
    switch (c->kind) {
    case HR_CELL_PP:
        snprintf(name, sizeof name, "pp%" PRId64, c->n_prompt);
        break;
    case HR_CELL_TG:
        snprintf(name, sizeof name, "tg%" PRId64, c->n_gen);
        break;
    case HR_CELL_PG:
        snprintf(name, sizeof name, "pp%" PRId64 "+tg%" PRId64, c->n_prompt, c->n_gen);
        break;
    case HR_CELL_ISL:
        snprintf(name, sizeof name, "isl%" PRId64 " osl%" PRId64, c->isl, c->osl);
        break;
    }
    if (c->depth > 0)
        snprintf(out, n, "%s @ d%" PRId64, name, c->depth);
    else
        snprintf(out, n, "%s", name);
}

/* half: of 16-bit weights. */
static hr_act resolve_act(hr_quant quant, const char *type, hr_act half) {
    switch (quant) {
    case HR_QUANT_F32:
        return HR_ACT_F32;
    case HR_QUANT_BF16:
    case HR_QUANT_F16:
        return half;
    case HR_QUANT_INT8:
    case HR_QUANT_INT4:
    case HR_QUANT_INT4_HEAD8:
        return HR_ACT_INT8;
    case HR_QUANT_INT8_ROW:
    case HR_QUANT_INT4_G128:
    case HR_QUANT_INT4_G128_HEAD8:
        return HR_ACT_INT8_ROW;
    default:
        break;
    }
    const char *word = strrchr(type, ' '); /* "llama 135M Q4_1": the file's type is the last word */
    word = word ? word + 1 : type;
    if (strcasestr(word, "bf16") || strcasestr(word, "f16")) return half;
    return strcasestr(word, "f32") ? HR_ACT_F32 : HR_ACT_INT8;
}

hr_act hr_cell_resolve_act(hr_quant quant, const char *type, hr_isa isa) {
    const bool has_unit = isa == HR_ISA_AVX512 && (hr_cpu_features() & HR_CPU_BF16);
    return resolve_act(quant, type, has_unit ? HR_ACT_BF16 : HR_ACT_F32);
}

hr_act hr_cell_resolve_act_gpu(hr_quant quant, const char *type) {
    return resolve_act(quant, type, HR_ACT_BF16);
}

int hr_cell_device(const hr_cell_config *c) {
    return c->gpu ? c->gpu - 1 : HR_DEVICE_CPU;
}

bool hr_cell_has_graphs(const hr_cell_config *c) {
    return c->gpu && hr_cell_steps(c) > 0;
}

bool hr_cell_has_gemm(const hr_cell_config *c) {
    enum { LIBRARY_TOKENS = 16 }; /* hr_engine_config.cublaslt */
    return c->gpu && (c->n_prompt >= LIBRARY_TOKENS || c->n_seqs >= LIBRARY_TOKENS);
}

/* Two FNV-1a sums over the text with different starts, each finished by the splitmix64 mixer. */
static uint64_t mixed_fnv(const char *text, size_t n, uint64_t h) {
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hr_mix64(h);
}

void hr_fingerprint(const char *text, size_t n, char out[33]) {
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, mixed_fnv(text, n, 0xcbf29ce484222325u),
             mixed_fnv(text, n, 0x9e3779b97f4a7c15u));
}

void hr_cell_id(const hr_cell_config *c, const char *model_hash, const char *machine_class, const char *input,
                char out[33]) {
    char text[1536], fusion[HR_FUSION_TEXT], device[16];
    hr_device_name(hr_cell_device(c), device);
    snprintf(text, sizeof text,
             "v1 model=%s machine=%s input=%s kind=%s p=%" PRId64 " n=%" PRId64 " isl=%" PRId64 " osl=%" PRId64
             " d=%" PRId64 " seqs=%" PRId64 " b=%" PRId64 " ub=%" PRId64 " quant=%s act=%s k=%s v=%s layout=%s"
             " page=%" PRId64 " alloc=%s fa=%d fusion=%s weights=%s t=%" PRId64 " isa=%s device=%s",
             model_hash, machine_class, input, kinds[c->kind], c->n_prompt, c->n_gen, c->isl, c->osl, c->depth,
             c->n_seqs, c->batch, c->ubatch, hr_quant_name(c->quant), hr_act_name((hr_act)c->act),
             hr_kv_type_name(c->k_type), hr_kv_type_name(c->v_type), hr_kv_layout_name(c->kv_layout), c->page_size,
             c->kv_alloc, c->flash, hr_fusion_text(c->fusion, fusion), hr_weights_name(c->weights), c->threads,
             hr_isa_name(c->isa), device);
    size_t used = strlen(text);
    const bool hybrid = !strcmp(c->kv_alloc, "hybrid"), compacts = hybrid || !strcmp(c->kv_alloc, "pool");
    if (c->kv_budget && c->kv_budget != 100)
        used += (size_t)snprintf(text + used, sizeof text - used, " budget=%" PRId64, c->kv_budget);
    if (hybrid) used += (size_t)snprintf(text + used, sizeof text - used, " threshold=%" PRId64, c->kv_threshold);
    if (compacts) used += (size_t)snprintf(text + used, sizeof text - used, " compact=%" PRId64, c->kv_compact);
    if (c->gpu)
        used += (size_t)snprintf(text + used, sizeof text - used, " mem=%s", hr_gpu_memory_names[c->gpu_memory]);
    if (hr_cell_has_graphs(c)) used += (size_t)snprintf(text + used, sizeof text - used, " graphs=%d", c->graphs);
    if (hr_cell_has_gemm(c)) used += (size_t)snprintf(text + used, sizeof text - used, " cublaslt=%d", c->cublaslt);
    if (c->power_limit_w)
        used += (size_t)snprintf(text + used, sizeof text - used, " power=%" PRId64, c->power_limit_w);
    snprintf(text + used, sizeof text - used, "%s%s%s%s%s", c->copy ? " mmap=0" : "",
             c->small_pages ? " huge-pages=0" : "", c->free_threads ? " pin=0" : "", *c->forced ? " forced=" : "",
             c->forced);
    hr_fingerprint(text, strlen(text), out);
}

uint64_t hr_cell_positions(const hr_cell_config *c) {
    if (c->kind == HR_CELL_ISL) return (uint64_t)(c->isl + c->osl - 1); /* the last token is never fed back */
    return (uint64_t)(c->depth + c->n_prompt + c->n_gen);
}

uint64_t hr_cell_steps(const hr_cell_config *c) {
    return c->kind == HR_CELL_ISL ? (uint64_t)c->osl - 1 : (uint64_t)c->n_gen;
}

double hr_cell_mean_context(const hr_cell_config *c) {
    const uint64_t steps = hr_cell_steps(c);
    if (!steps) return NAN;
    const double start = c->kind == HR_CELL_ISL ? (double)c->isl : (double)(c->depth + c->n_prompt);
    return start + ((double)steps - 1) / 2;
}

uint64_t hr_cell_weight_memory(const hr_model_info *info) {
    return info->anon_bytes > info->weight_bytes ? info->anon_bytes : info->weight_bytes;
}

hr_engine_config hr_cell_engine_config(const hr_cell_config *c, uint32_t model_ctx) {
    hr_engine_config e = hr_engine_config_default();
    e.threads = c->threads > 0 ? (unsigned)c->threads : 0;
    e.isa = c->isa;
    e.act = c->act;
    e.kv_layout = c->kv_layout;
    e.page_size = c->page_size > 0 ? (uint32_t)c->page_size : 0;
    hr_kv_alloc_parse(c->kv_alloc, &e.kv_alloc); /* a name, or empty: what the layout needs */
    e.kv_budget_pct = (uint32_t)c->kv_budget;
    e.kv_threshold = (uint32_t)c->kv_threshold, e.kv_compact = (uint32_t)c->kv_compact;
    e.k_type = c->k_type, e.v_type = c->v_type;
    e.max_seqs = c->n_seqs > 0 ? (uint32_t)c->n_seqs : 1;
    /* Rounded up, so that cells of nearly the same length share an engine. */
    const uint64_t need = (hr_cell_positions(c) + 255) / 256 * 256;
    e.ctx = need < model_ctx ? (uint32_t)need : model_ctx;
    if (c->batch > 0) e.batch = (uint32_t)c->batch;
    if (c->ubatch > 0) e.ubatch = (uint32_t)c->ubatch;
    e.flash = c->flash;
    e.fusion = c->fusion;
    hr_kernel_forces_parse(&e, c->forced); /* checked when the cell was made */
    e.pin = !c->free_threads, e.huge_pages = !c->small_pages;
    e.device = hr_cell_device(c);
    if (c->gpu) e.graphs = c->graphs, e.memory = c->gpu_memory, e.cublaslt = c->cublaslt;
    return e;
}

hr_load_options hr_cell_load_options(const hr_cell_config *c) {
    return (hr_load_options){.quant = c->quant,
                             .order = c->weights,
                             .copy = c->copy,
                             .huge_pages = !c->small_pages,
                             .threads = c->threads > 0 ? (unsigned)c->threads : 0,
                             .on_device = c->gpu != 0};
}

json_t *hr_cell_config_json(const hr_cell_config *c) {
    return json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:s, s:b, s:I,"
                     " s:i, s:i, s:b, s:b, s:b, s:i, s:s, s:I, s:I, s:I, s:i, s:b, s:b, s:i, s:I}",
                     "model", c->model, "quant", (int)c->quant, "act", c->act, "kind", (int)c->kind, "n_prompt",
                     (json_int_t)c->n_prompt, "n_gen", (json_int_t)c->n_gen, "isl", (json_int_t)c->isl, "osl",
                     (json_int_t)c->osl, "depth", (json_int_t)c->depth, "n_seqs", (json_int_t)c->n_seqs, "batch",
                     (json_int_t)c->batch, "ubatch", (json_int_t)c->ubatch, "k_type", (int)c->k_type, "v_type",
                     (int)c->v_type, "kv_layout", (int)c->kv_layout, "page_size", (json_int_t)c->page_size, "kv_alloc",
                     c->kv_alloc, "flash", (int)c->flash, "threads", (json_int_t)c->threads, "isa", (int)c->isa,
                     "weights", (int)c->weights, "copy", (int)c->copy, "small_pages", (int)c->small_pages,
                     "free_threads", (int)c->free_threads, "fusion", (int)c->fusion, "forced", c->forced, "kv_budget",
                     (json_int_t)c->kv_budget, "kv_threshold", (json_int_t)c->kv_threshold, "kv_compact",
                     (json_int_t)c->kv_compact, "gpu", c->gpu, "graphs", (int)c->graphs, "cublaslt", (int)c->cublaslt,
                     "gpu_memory", (int)c->gpu_memory, "power_limit_w", (json_int_t)c->power_limit_w);
}

hr_status hr_cell_config_parse(const json_t *json, hr_cell_config *out) {
    const char *model, *alloc, *forced;
    int quant, act, kind, k, v, layout, flash, isa, weights, copy, small, unpinned, fusion, gpu, graphs, cublaslt,
        where;
    json_int_t p, n, isl, osl, d, seqs, b, ub, page, threads, budget, threshold, compact, power;
    if (json_unpack((json_t *)json,
                    "{s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:s, s:b, s:I,"
                    " s:i, s:i, s:b, s:b, s:b, s:i, s:s, s:I, s:I, s:I, s:i, s:b, s:b, s:i, s:I}",
                    "model", &model, "quant", &quant, "act", &act, "kind", &kind, "n_prompt", &p, "n_gen", &n, "isl",
                    &isl, "osl", &osl, "depth", &d, "n_seqs", &seqs, "batch", &b, "ubatch", &ub, "k_type", &k, "v_type",
                    &v, "kv_layout", &layout, "page_size", &page, "kv_alloc", &alloc, "flash", &flash, "threads",
                    &threads, "isa", &isa, "weights", &weights, "copy", &copy, "small_pages", &small, "free_threads",
                    &unpinned, "fusion", &fusion, "forced", &forced, "kv_budget", &budget, "kv_threshold", &threshold,
                    "kv_compact", &compact, "gpu", &gpu, "graphs", &graphs, "cublaslt", &cublaslt, "gpu_memory", &where,
                    "power_limit_w", &power))
        HR_FAIL(HR_ERR_INTERNAL, "the worker was sent a cell that it cannot read");
    *out = (hr_cell_config){.quant = (hr_quant)quant,
                            .act = act,
                            .kind = (hr_cell_kind)kind,
                            .n_prompt = p,
                            .n_gen = n,
                            .isl = isl,
                            .osl = osl,
                            .depth = d,
                            .n_seqs = seqs,
                            .batch = b,
                            .ubatch = ub,
                            .k_type = (hr_dtype)k,
                            .v_type = (hr_dtype)v,
                            .kv_layout = (hr_kv_layout)layout,
                            .page_size = page,
                            .flash = flash,
                            .threads = threads,
                            .isa = (hr_isa)isa,
                            .weights = (hr_order)weights,
                            .copy = copy,
                            .small_pages = small,
                            .free_threads = unpinned,
                            .fusion = (unsigned)fusion,
                            .kv_budget = budget,
                            .kv_threshold = threshold,
                            .kv_compact = compact,
                            .gpu = gpu,
                            .graphs = graphs,
                            .cublaslt = cublaslt,
                            .gpu_memory = (hr_gpu_memory)where,
                            .power_limit_w = power};
    snprintf(out->model, sizeof out->model, "%s", model);
    snprintf(out->kv_alloc, sizeof out->kv_alloc, "%s", alloc);
    snprintf(out->forced, sizeof out->forced, "%s", forced);
    return HR_OK;
}

static json_t *axis(int64_t value) {
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

json_t *hr_cell_row(const hr_cell_config *c, const hr_model_info *info, const hr_machine *machine, const char *cell_id,
                    int64_t seed, const char *tags) {
    json_t *row = json_object();
    if (!row) return NULL;
#define X(key, kind) json_object_set_new(row, #key, json_null());
    HR_CELL_KEYS(X)
#undef X
    char test[128], now[32], device[16];
    hr_cell_test(c, test, sizeof test);
    time_t t = time(NULL);
    struct tm utc;
    gmtime_r(&t, &utc);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
#define SET(key, value) json_object_set_new(row, key, value)
    SET("build_commit", json_string(hr_commit()));
    SET("build_number", json_integer(hr_build_number()));
    SET("cpu_info", json_string(machine->cpu));
    SET("gpu_info", json_string(""));
    SET("backends", json_string("CPU"));
    SET("model_filename", json_string(c->model));
    SET("model_type", json_string(info->type));
    SET("model_size", json_integer((json_int_t)info->weight_bytes));
    SET("model_n_params", json_integer((json_int_t)info->n_params));
    SET("n_batch", axis(c->batch));
    SET("n_ubatch", axis(c->ubatch));
    SET("n_threads", axis(c->threads));
    SET("type_k", json_string(hr_kv_type_name(c->k_type)));
    SET("type_v", json_string(hr_kv_type_name(c->v_type)));
    /* As llama-bench counts: the layers and what follows them. */
    SET("n_gpu_layers", json_integer(c->gpu ? (json_int_t)info->n_layers + 1 : 0));
    SET("flash_attn", json_boolean(c->flash));
    SET("n_prompt", axis(c->n_prompt));
    SET("n_gen", axis(c->n_gen));
    SET("n_depth", axis(c->depth));
    SET("test_time", json_string(now));
    SET("test", json_string(test));
    SET("cell_id", json_string(cell_id));
    SET("n_seqs", axis(c->n_seqs));
    SET("isl", axis(c->isl));
    SET("osl", axis(c->osl));
    SET("quant", json_string(hr_quant_name(c->quant)));
    SET("act", json_string(hr_act_name((hr_act)c->act)));
    SET("kv_layout", json_string(hr_kv_layout_name(c->kv_layout)));
    SET("page_size", axis(c->page_size));
    SET("kv_alloc", json_string(c->kv_alloc));
    char fusion[HR_FUSION_TEXT];
    SET("fusion", json_string(hr_fusion_text(c->fusion, fusion)));
    SET("forced", *c->forced ? json_string(c->forced) : json_null());
    SET("weights", json_string(hr_weights_name(c->weights)));
    SET("isa", c->gpu ? json_null() : json_string(hr_isa_name(c->isa)));
    hr_device_name(hr_cell_device(c), device);
    SET("device", json_string(device));
    SET("seed", json_integer((json_int_t)seed));
    SET("tags", tags && *tags ? json_string(tags) : json_null());
    SET("flags", json_array());
#undef SET
    return row;
}

void hr_cell_row_gpu(json_t *row, const hr_cell_config *c, const hr_device_info *info) {
    const char *const gemm = c->cublaslt ? "cublaslt" : "own";
    json_object_set_new(row, "gpu_info", json_string(info->name));
    json_object_set_new(row, "backends", json_string("CUDA"));
    json_object_set_new(row, "gpu_memory", json_string(hr_gpu_memory_names[c->gpu_memory]));
    if (hr_cell_has_graphs(c)) json_object_set_new(row, "graphs", json_boolean(c->graphs));
    if (hr_cell_has_gemm(c)) json_object_set_new(row, "gemm", json_string(gemm));
    if (c->power_limit_w) json_object_set_new(row, "power_limit_w", json_real((double)c->power_limit_w));
    if (info->simulated) json_array_append_new(json_object_get(row, "flags"), json_string("simulated"));
}
