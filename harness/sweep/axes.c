#include "harness/sweep/axes.h"

#include "harness/cli/engine_args.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELLS_MAX = 100000 };

/* What all rows of one point of the engine's axes share. */
typedef struct builder {
    const hr_axes *axes;
    const hr_machine *machine;
    hr_sweep_plan *plan;
    size_t capacity;
    size_t *seen; /* [n_seen] index + 1 of a cell by its id, 0: free; open addressing */
    size_t n_seen;
} builder;

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "no memory for the list of cells; ask for fewer");
}

/* The slot of an id in the table: where it is, or the free place where it belongs. */
static size_t *seen_slot(builder *b, const char *id) {
    uint64_t h = 0;
    sscanf(id, "%16" SCNx64, &h);
    size_t i = (size_t)h & (b->n_seen - 1);
    while (b->seen[i] && strcmp(b->plan->cells[b->seen[i] - 1].id, id)) i = (i + 1) & (b->n_seen - 1);
    return &b->seen[i];
}

static hr_status grow(builder *b) {
    if (b->plan->n < b->capacity) return HR_OK;
    const size_t capacity = b->capacity ? b->capacity * 2 : 64;
    hr_sweep_cell *cells = hr_realloc(b->plan->cells, hr_mul(capacity, sizeof *cells));
    if (!cells) return no_memory();
    b->plan->cells = cells, b->capacity = capacity;
    size_t *seen = hr_calloc(capacity * 4, sizeof *seen);
    if (!seen) return no_memory();
    hr_free(b->seen);
    b->seen = seen, b->n_seen = capacity * 4;
    for (size_t i = 0; i < b->plan->n; i++) *seen_slot(b, b->plan->cells[i].id) = i + 1;
    return HR_OK;
}

/* Memory of the machine, or of the GPU where weights and KV lie; managed memory counts as the GPU's, since more than there is
 * would be moved back and forth, and may hang the card. */
static bool does_not_fit(const builder *b, const hr_sweep_cell *cell, char *reason, size_t n) {
    const hr_cell_config *c = &cell->config;
    const hr_model_info *info = &b->plan->infos[cell->info];
    const hr_device_info *gpu = hr_sweep_plan_gpu(b->plan, c);
    const bool on_gpu = gpu && c->gpu_memory != HR_GPU_PINNED;
    const uint64_t weights = gpu ? info->weight_bytes : hr_cell_weight_memory(info);
    const uint64_t all = weights + cell->arena_bytes + cell->kv_bytes;
    const uint64_t there = on_gpu ? gpu->memory_bytes : b->machine->memory_bytes;
    char where[16] = "this machine";
    if (on_gpu) hr_device_name(hr_cell_device(c), where);
    if (!there || all <= there) return false;
    snprintf(reason, n, "needs %.1f GB (weights %.1f, KV %.1f), %s has %.1f GB", (double)all / 1e9,
             (double)weights / 1e9, (double)cell->kv_bytes / 1e9, where, (double)there / 1e9);
    return true;
}

/* Why a cell cannot be measured, into reason; false when it can. */
static bool refused(const builder *b, hr_sweep_cell *cell, char *reason, size_t n) {
    const hr_cell_config *c = &cell->config;
    const hr_model_info *info = &b->plan->infos[cell->info];
    hr_kv_alloc alloc;
    if (hr_kv_alloc_parse(c->kv_alloc, &alloc) != HR_OK || hr_kv_alloc_check(alloc, c->kv_layout) != HR_OK) {
        snprintf(reason, n, "%s", hr_error());
        return true;
    }
    const uint64_t need = hr_cell_positions(c);
    if (need > info->ctx) {
        snprintf(reason, n, "needs a context of %" PRIu64 " tokens, %s has %u", need, info->name, info->ctx);
        return true;
    }
    const hr_engine_config e = hr_cell_engine_config(c, info->ctx);
    if (hr_engine_plan(info, &e, &cell->arena_bytes, &cell->kv_bytes) != HR_OK) {
        snprintf(reason, n, "%s", hr_error());
        return true;
    }
    return does_not_fit(b, cell, reason, n);
}

static hr_status add(builder *b, const hr_cell_config *config, size_t info) {
    HR_TRY(grow(b));
    hr_sweep_cell cell = {.config = *config, .info = info};
    const hr_device_info *gpu = hr_sweep_plan_gpu(b->plan, config);
    const char *class_name = gpu ? gpu->class_name : b->machine->class_name;
    hr_cell_id(config, b->plan->infos[info].hash, class_name, b->plan->input, cell.id);
    size_t *slot = seen_slot(b, cell.id);
    if (*slot) return HR_OK;
    if (b->plan->n == CELLS_MAX)
        HR_FAIL(HR_ERR_USAGE, "the axes make more than %d cells; use shorter lists or several sweeps", CELLS_MAX);
    char reason[1024];
    if (refused(b, &cell, reason, sizeof reason)) {
        cell.skip = hr_strdup(reason);
        if (!cell.skip) return no_memory();
        b->plan->n_skipped++;
    } else {
        const hr_model_info *facts = &b->plan->infos[info];
        const hr_engine_config e = hr_cell_engine_config(config, facts->ctx);
        HR_TRY(hr_kernel_forces_fit(&e, facts, config->isa, (hr_act)config->act));
    }
    b->plan->cells[b->plan->n++] = cell;
    *slot = b->plan->n;
    return HR_OK;
}

/* All rows of one point: depth and sequences are axes of the rows. */
static hr_status add_rows(builder *b, const hr_cell_config *point, size_t info) {
    const hr_axes *a = b->axes;
    for (size_t d = 0; d < a->depth.n; d++) {
        for (size_t s = 0; s < a->seqs.n; s++) {
            hr_cell_config c = *point;
            c.isl = c.osl = HR_CELL_NULL;
            c.depth = a->depth.v[d];
            c.kind = HR_CELL_PP, c.n_gen = 0, c.n_seqs = HR_CELL_NULL;
            for (size_t i = 0; i < a->n_prompt.n; i++)
                if ((c.n_prompt = a->n_prompt.v[i])) HR_TRY(add(b, &c, info));
            c.n_seqs = a->seqs.v[s];
            c.kind = HR_CELL_PG;
            for (size_t i = 0; i < a->pg.n; i++) {
                c.n_prompt = a->pg.v[2 * i], c.n_gen = a->pg.v[2 * i + 1];
                HR_TRY(add(b, &c, info));
            }
            c.kind = HR_CELL_TG, c.n_prompt = 0, c.batch = c.ubatch = HR_CELL_NULL;
            for (size_t i = 0; i < a->n_gen.n; i++)
                if ((c.n_gen = a->n_gen.v[i])) HR_TRY(add(b, &c, info));
        }
    }
    for (size_t s = 0; s < a->seqs.n; s++)
        for (size_t i = 0; i < a->isl.n; i++)
            for (size_t o = 0; o < a->osl.n; o++) {
                hr_cell_config c = *point;
                c.kind = HR_CELL_ISL, c.depth = HR_CELL_NULL, c.n_seqs = a->seqs.v[s];
                c.isl = c.n_prompt = a->isl.v[i], c.osl = c.n_gen = a->osl.v[o];
                HR_TRY(add(b, &c, info));
            }
    return HR_OK;
}

static hr_status act_of(const char *name, const hr_model_info *info, const hr_cell_config *c, int *out) {
    if (!strcmp(name, "auto")) {
        *out =
            c->gpu ? hr_cell_resolve_act_gpu(c->quant, info->type) : hr_cell_resolve_act(c->quant, info->type, c->isa);
        return HR_OK;
    }
    for (int a = 0; a < HR_ACT_COUNT; a++)
        if (!strcmp(hr_act_name((hr_act)a), name)) {
            *out = a;
            return HR_OK;
        }
    HR_FAIL(HR_ERR_USAGE, "unknown value '%s' for --act", name);
}

/* The lists that are axes of the engine, outermost first; a point is a place in each. */
/* clang-format off */
#define POINT_AXES(X)                                                                                         \
    X(isa) X(threads) X(act) X(k_type) X(v_type) X(kv_layout) X(page_size) X(kv_alloc) X(flash) X(batch)       \
    X(ubatch) X(fusion) X(graphs) X(gpu_memory) X(gemm) X(power_limit)
/* clang-format on */
typedef struct point {
#define X(name) size_t name;
    POINT_AXES(X)
#undef X
} point;
enum { N_POINT = sizeof(point) / sizeof(size_t) };

/* --kernel as the cell's text. */
static hr_status forced(const hr_axes *a, hr_cell_config *c) {
    hr_engine_config e = {0};
    for (size_t i = 0; i < a->kernel.n; i++) HR_TRY(hr_kernel_force_add(&e, a->kernel.v[i]));
    hr_kernel_forces_text(&e, c->forced);
    return HR_OK;
}

static hr_status cpu_axes(const builder *b, const point *at, hr_cell_config *c) {
    const hr_axes *a = b->axes;
    hr_isa isa = HR_ISA_AUTO;
    for (int i = 0; i < HR_ISA_COUNT; i++)
        if (!strcmp(hr_isa_name((hr_isa)i), a->isa.v[at->isa])) isa = (hr_isa)i;
    c->threads = a->threads.n ? a->threads.v[at->threads] : b->machine->cores;
    return hr_isa_resolve(isa, &c->isa);
}

static void gpu_axes(const builder *b, const point *at, hr_cell_config *c) {
    const hr_axes *a = b->axes;
    const hr_device_info *gpu = hr_sweep_plan_gpu(b->plan, c);
    c->threads = HR_CELL_NULL, c->isa = HR_ISA_AUTO;
    c->graphs = !a->graphs.n || a->graphs.v[at->graphs] != 0;
    c->gpu_memory = a->gpu_memory.n ? hr_gpu_memory_of(a->gpu_memory.v[at->gpu_memory]) : HR_GPU_DEVICE;
    c->cublaslt = hr_gemm_is_cublaslt(a->gemm.n ? a->gemm.v[at->gemm] : NULL, gpu);
    c->power_limit_w = a->power_limit.n ? a->power_limit.v[at->power_limit] : 0;
}

static hr_status add_point(builder *b, hr_cell_config c, size_t info, const point *at) {
    const hr_axes *a = b->axes;
    if (c.gpu)
        gpu_axes(b, at, &c);
    else
        HR_TRY(cpu_axes(b, at, &c));
    HR_TRY(act_of(a->act.v[at->act], &b->plan->infos[info], &c, &c.act));
    HR_TRY(hr_kv_type_parse(a->k_type.v[at->k_type], &c.k_type));
    HR_TRY(hr_kv_type_parse(a->v_type.v[at->v_type], &c.v_type));
    HR_TRY(hr_kv_layout_parse(a->kv_layout.v[at->kv_layout], &c.kv_layout));
    const bool paged = hr_kv_is_paged(c.kv_layout);
    c.page_size = paged ? a->page_size.v[at->page_size] : HR_CELL_NULL;
    snprintf(c.kv_alloc, sizeof c.kv_alloc, "%s",
             a->kv_alloc.n ? a->kv_alloc.v[at->kv_alloc] : hr_kv_alloc_name(hr_kv_alloc_default(c.kv_layout)));
    c.flash = a->flash.v[at->flash] != 0;
    HR_TRY(hr_fusion_parse(a->fusion.v[at->fusion], &c.fusion));
    HR_TRY(forced(a, &c));
    c.batch = a->batch.v[at->batch], c.ubatch = a->ubatch.v[at->ubatch];
    return add_rows(b, &c, info);
}

static size_t once(size_t n) {
    return n ? n : 1;
}

/* Axes that do not concern the device have one place. */
static void sizes_on(const hr_axes *a, bool gpu, size_t sizes[N_POINT]) {
    point n = {
#define X(name) .name = once(a->name.n),
        POINT_AXES(X)
#undef X
    };
    if (gpu)
        n.isa = n.threads = 1;
    else
        n.graphs = n.gpu_memory = n.gemm = n.power_limit = 1;
    memcpy(sizes, &n, sizeof n);
}

static hr_status add_group(builder *b, const hr_cell_config *c, size_t info) {
    size_t sizes[N_POINT], at[N_POINT] = {0};
    sizes_on(b->axes, c->gpu != 0, sizes);
    for (;;) {
        point p;
        memcpy(&p, at, sizeof p);
        HR_TRY(add_point(b, *c, info, &p));
        int i = N_POINT - 1;
        while (i >= 0 && ++at[i] == sizes[i]) at[i--] = 0;
        if (i < 0) return HR_OK;
    }
}

bool hr_sweep_plan_same_group(const hr_sweep_cell *a, const hr_sweep_cell *b) {
    return a->info == b->info;
}

const hr_device_info *hr_sweep_plan_gpu(const hr_sweep_plan *plan, const hr_cell_config *c) {
    for (size_t i = 0; c->gpu && i < plan->n_gpus; i++)
        if (plan->gpus[i].device == hr_cell_device(c)) return &plan->gpus[i].info;
    return NULL;
}

const char *hr_sweep_plan_class(const hr_sweep_plan *plan, const hr_machine *machine) {
    bool one = plan->n_gpus && !plan->on_cpu;
    for (size_t i = 1; one && i < plan->n_gpus; i++)
        one = !strcmp(plan->gpus[0].info.class_name, plan->gpus[i].info.class_name);
    return one ? plan->gpus[0].info.class_name : machine->class_name;
}

/* Fisher-Yates inside each group; then the groups themselves are drawn, so that each model is still loaded once. */
static hr_status shuffle(hr_sweep_plan *plan, uint64_t seed) {
    hr_sweep_cell *out = hr_malloc(hr_mul(once(plan->n), sizeof *out));
    size_t *order = hr_malloc(hr_mul(once(plan->n_infos), sizeof *order)), n = 0;
    if (!out || !order) {
        hr_free(out), hr_free(order);
        return no_memory();
    }
    for (size_t i = 0; i < plan->n_infos; i++) order[i] = i;
    for (size_t i = plan->n_infos; i > 1; i--) {
        const size_t j = hr_random(&seed) % i, t = order[i - 1];
        order[i - 1] = order[j], order[j] = t;
    }
    for (size_t g = 0; g < plan->n_infos; g++) {
        const size_t first = n;
        for (size_t i = 0; i < plan->n; i++)
            if (plan->cells[i].info == order[g]) out[n++] = plan->cells[i];
        for (size_t i = n - first; i > 1; i--) {
            const size_t j = hr_random(&seed) % i;
            const hr_sweep_cell t = out[first + i - 1];
            out[first + i - 1] = out[first + j], out[first + j] = t;
        }
    }
    hr_free(order), hr_free(plan->cells);
    plan->cells = out;
    return HR_OK;
}

static hr_status check_lists(const hr_axes *a) {
    size_t rows = a->pg.n + a->isl.n;
    for (size_t i = 0; i < a->n_prompt.n; i++) rows += a->n_prompt.v[i] != 0;
    for (size_t i = 0; i < a->n_gen.n; i++) rows += a->n_gen.v[i] != 0;
    if (a->isl.n && !a->osl.n) HR_FAIL(HR_ERR_USAGE, "--isl needs the number of output tokens; add --osl 128");
    if (a->osl.n && !a->isl.n) HR_FAIL(HR_ERR_USAGE, "--osl needs the length of the prompt; add --isl 512");
    if (!rows) HR_FAIL(HR_ERR_USAGE, "nothing to measure; give -p, -n, -pg or --isl a number above 0");
    for (size_t i = 0; i < a->page_size.n; i++) {
        const int64_t p = a->page_size.v[i];
        if (p < 1 || p > 256 || (p & (p - 1)))
            HR_FAIL(HR_ERR_USAGE, "--page-size %" PRId64 ": tokens a page are a power of two from 1 to 256", p);
    }
    return HR_OK;
}

static hr_status add_model(builder *b, const char *model, const char *quant, int device, const char *weights) {
    const hr_axes *a = b->axes;
    hr_cell_config c = {
        .kv_budget = a->kv_budget, .kv_threshold = a->kv_threshold, .kv_compact = a->kv_compact, .gpu = device + 1};
    if (!c.gpu) c.copy = a->copy, c.small_pages = a->small_pages, c.free_threads = a->free_threads;
    if (strlen(model) >= sizeof c.model)
        HR_FAIL(HR_ERR_INPUT, "the name of a model is longer than %zu bytes", sizeof c.model - 1);
    snprintf(c.model, sizeof c.model, "%s", model);
    HR_TRY(hr_quant_parse(quant, &c.quant));
    c.weights = HR_ORDER_ROWS;
    if (!c.gpu) HR_TRY(hr_weights_parse(weights, &c.weights));
    HR_TRY(hr_model_peek(c.model, c.quant, c.weights, &b->plan->infos[b->plan->n_infos]));
    return add_group(b, &c, b->plan->n_infos++);
}

static const int64_t cpu_alone[] = {HR_DEVICE_CPU};

/* Asks each GPU what it is. */
static hr_status find_gpus(hr_sweep_plan *plan, const hr_ints *devices) {
    for (size_t i = 0; i < devices->n; i++) {
        const int device = (int)devices->v[i];
        plan->on_cpu |= device < 0;
        if (device < 0) continue;
        if (plan->n_gpus == HR_DEVICES_MAX) HR_FAIL(HR_ERR_USAGE, "--device: more than %d GPUs", HR_DEVICES_MAX);
        plan->gpus[plan->n_gpus].device = device;
        HR_TRY(hr_device_get_info(device, &plan->gpus[plan->n_gpus].info));
        plan->n_gpus++;
    }
    return HR_OK;
}

static hr_status build(builder *b) {
    const hr_axes *a = b->axes;
    const hr_ints devices = a->device.n ? a->device : (hr_ints){cpu_alone, 1};
    HR_TRY(check_lists(a));
    HR_TRY(find_gpus(b->plan, &devices));
    b->plan->gemm_asked = a->gemm.n > 0;
    b->plan->infos =
        hr_calloc(hr_mul(hr_mul(a->models.n, a->quant.n), hr_mul(devices.n, a->weights.n)), sizeof *b->plan->infos);
    if (!b->plan->infos) return no_memory();
    for (size_t m = 0; m < a->models.n; m++)
        for (size_t q = 0; q < a->quant.n; q++)
            for (size_t d = 0; d < devices.n; d++)
                for (size_t w = 0; w < (devices.v[d] < 0 ? a->weights.n : 1); w++)
                    HR_TRY(add_model(b, a->models.v[m], a->quant.v[q], (int)devices.v[d], a->weights.v[w]));
    return a->shuffled ? shuffle(b->plan, a->seed) : HR_OK;
}

hr_status hr_sweep_plan_create(const hr_axes *axes, const hr_machine *machine, hr_sweep_plan *out) {
    *out = (hr_sweep_plan){0};
    if (axes->input) snprintf(out->input, sizeof out->input, "%s", axes->input);
    builder b = {.axes = axes, .machine = machine, .plan = out};
    const hr_status status = build(&b);
    hr_free(b.seen);
    if (status != HR_OK) hr_sweep_plan_destroy(out);
    return status;
}

void hr_sweep_plan_destroy(hr_sweep_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) hr_free(plan->cells[i].skip);
    hr_free(plan->cells), hr_free(plan->infos);
    *plan = (hr_sweep_plan){0};
}

double hr_sweep_plan_load_seconds(const hr_sweep_plan *plan, size_t cell) {
    const hr_model_info *info = &plan->infos[plan->cells[cell].info];
    const hr_cell_config *c = &plan->cells[cell].config;
    return c->gpu ? 1 + (double)info->weight_bytes / 5e9 : 0.1 + (double)info->anon_bytes / 0.5e9;
}

double hr_sweep_plan_seconds(const hr_sweep_plan *plan, size_t cell, size_t fixed, double max_seconds) {
    const hr_cell_config *c = &plan->cells[cell].config;
    const hr_model_info *info = &plan->infos[plan->cells[cell].info];
    const double seqs = c->n_seqs > 0 ? (double)c->n_seqs : 1, steps = (double)hr_cell_steps(c);
    const double prompt = c->kind == HR_CELL_TG ? 0 : (double)c->n_prompt * (c->kind == HR_CELL_PP ? 1 : seqs);
    const hr_device_info *gpu = hr_sweep_plan_gpu(plan, c);
    const double flop_s = gpu ? 1e14 : 150e9;
    const double byte_s = !gpu ? 20e9 : gpu->datasheet_read_gb_s > 0 ? gpu->datasheet_read_gb_s * 0.66e9 : 500e9;
    const double step = fmax((double)info->weight_bytes / byte_s, 2 * (double)info->n_params * seqs / flop_s);
    const double once_s = steps * step + prompt * 2 * (double)info->n_params / flop_s;
    const double fill = c->depth > 0 ? (double)c->depth * seqs * 2 * (double)info->n_params / flop_s : 0;
    const double reps = fixed ? (double)fixed + fmin((double)fixed, 5) : fmax(15, 0.5 / once_s);
    return 0.35 + fill + fmin(reps * once_s, max_seconds) + 3 * once_s;
}
