/* fill.c - weights into memory: read from the file or drawn, converted, packed into panels, by several threads.
 *
 * Each thread takes a static share of the rows of every matrix and writes it in place, so that it is the first to touch
 * about the memory that it reads later. It holds one row of floats and the 16 rows of a panel: no second copy of a
 * matrix exists, pages of the file are dropped behind, and the bytes do not depend on the number of threads. */
#include "engine/model/synth.h"
#include "engine/pool.h"
#include "kernels/base/memory.h"
#include "kernels/base/panel.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 256, ROWS_A_REPORT = 2048, DROP_BYTES = 2 << 20 };

typedef struct filler {
    const hr_plan *plan;
    char *arena;
    const hr_load_options *options;
    unsigned n_threads;
    char *scratch; /* [n_threads][scratch_bytes]: a row of floats, then 16 rows of the stored type and their scales */
    size_t scratch_bytes, data_at, scales_at;
    pthread_mutex_t lock; /* of the failure: the first row in order wins, so that the message is always the same */
    size_t failed_mat;
    unsigned failed_index; /* of the thread */
    hr_status status;
    char message[512];
} filler;

typedef struct worker {
    filler *f;
    unsigned index;
    pthread_t thread;
    bool started;
} worker;

/* A thread's rows of one matrix. */
typedef struct share {
    filler *f;
    const hr_plan_mat *m;
    unsigned index; /* of the thread */
    size_t from, to;
    double done, part; /* of all weights: before this matrix, in it */
} share;

static void row_f32(const hr_mat *source, const hr_draw *draw, size_t row, size_t cols, float *out) {
    if (source->data)
        hr_mat_row_f32(source, row, out);
    else
        hr_synth_row(draw, row, cols, out);
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static void fail_mat(filler *f, size_t mat, unsigned index, hr_status status) {
    pthread_mutex_lock(&f->lock);
    if (f->status == HR_OK || mat < f->failed_mat || (mat == f->failed_mat && index < f->failed_index)) {
        f->status = status, f->failed_mat = mat, f->failed_index = index;
        snprintf(f->message, sizeof f->message, "tensor '%s': %s", f->plan->mats[mat].name, hr_error());
    }
    pthread_mutex_unlock(&f->lock);
}

/* A damaged file is named here and not by nonsense in the output. */
static hr_status check_row(const hr_mat *source, size_t row) {
    if (hr_mat_row_is_finite(source, row)) return HR_OK;
    HR_FAIL(HR_ERR_INPUT, "row %zu holds NaN or infinity; fetch the model again", row);
}

/* Rows from..to-1 of the file are not needed again: their pages leave this process (not the page cache). */
static void drop_rows(const share *s, size_t from, size_t to) {
    const hr_mat *source = &s->m->source;
    if (!source->data || !s->f->plan->droppable || from == to) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t a = (uintptr_t)hr_mat_row(source, from) / page * page;
    const uintptr_t b = (uintptr_t)hr_mat_row(source, to) / page * page;
    if (a < b) madvise((void *)a, b - a, MADV_DONTNEED);
}

/* One row of the matrix's type, in the order of rows. */
static hr_status make_row(const share *s, size_t r, void *data, uint16_t *scales) {
    const hr_plan_mat *m = s->m;
    const hr_mat *slot = m->slot;
    if (m->source.data) HR_TRY(check_row(&m->source, r));
    if (s->f->plan->keep_types) {
        memcpy(data, hr_mat_row(&m->source, r), hr_row_bytes(slot->dtype, slot->cols));
        return HR_OK;
    }
    float *row = (float *)(void *)(s->f->scratch + s->index * s->f->scratch_bytes);
    row_f32(&m->source, &m->draw, r, slot->cols, row);
    return hr_quantize_row(slot->dtype, row, slot->cols, data, scales);
}

/* Rows r..r+n-1 into one panel: from the file as they are, or made in the scratch first. */
static hr_status fill_panel(const share *s, size_t r, size_t n) {
    const hr_plan_mat *m = s->m;
    const hr_dtype t = m->slot->dtype;
    const size_t cols = m->slot->cols, panel = r / HR_PANEL, scale_count = hr_panel_scales(t, cols);
    uint8_t *data = (uint8_t *)s->f->arena + m->data_at + panel * hr_panel_bytes(t, cols);
    uint16_t *scales = scale_count ? (uint16_t *)(void *)(s->f->arena + m->scales_at) + panel * scale_count : NULL;
    if (s->f->plan->keep_types) {
        for (size_t i = 0; i < n; i++) HR_TRY(check_row(&m->source, r + i));
        hr_panel_pack(&m->source, r, data, scales);
        return HR_OK;
    }
    char *scratch = s->f->scratch + s->index * s->f->scratch_bytes;
    char *rows = scratch + s->f->data_at;
    uint16_t *row_scales = (uint16_t *)(void *)(scratch + s->f->scales_at);
    const size_t bytes = hr_row_bytes(t, cols), groups = hr_row_scales(t, cols);
    for (size_t i = 0; i < n; i++) HR_TRY(make_row(s, r + i, rows + i * bytes, row_scales + i * groups));
    const hr_mat made = {t, n, cols, rows, row_scales, HR_ORDER_ROWS};
    hr_panel_pack(&made, 0, data, scales);
    return HR_OK;
}

/* Rows r..r+n-1 in the order of rows. Those that stay in the file are only read; the first pass would read them too. */
static hr_status fill_rows(const share *s, size_t r, size_t n) {
    const hr_plan_mat *m = s->m;
    const size_t bytes = hr_row_bytes(m->slot->dtype, m->slot->cols);
    const size_t groups = hr_row_scales(m->slot->dtype, m->slot->cols);
    char *data = s->f->arena + m->data_at;
    uint16_t *scales = (uint16_t *)(void *)(s->f->arena + m->scales_at);
    for (size_t i = r; i < r + n; i++) {
        if (s->f->plan->keep_file)
            HR_TRY(check_row(&m->source, i));
        else
            HR_TRY(make_row(s, i, data + i * bytes, groups ? scales + i * groups : NULL));
    }
    return HR_OK;
}

static hr_status fill_mat(const share *s) {
    const hr_load_options *o = s->f->options;
    const hr_plan *plan = s->f->plan;
    const size_t source_bytes = s->m->source.data ? hr_row_bytes(s->m->source.dtype, s->m->slot->cols) : 0;
    size_t dropped = s->from;
    for (size_t r = s->from; r < s->to; r += HR_PANEL) {
        const size_t n = s->to - r < HR_PANEL ? s->to - r : HR_PANEL;
        HR_TRY(plan->order == HR_ORDER_PANELS ? fill_panel(s, r, n) : fill_rows(s, r, n));
        if (!plan->keep_file && (r + n - dropped) * source_bytes >= DROP_BYTES)
            drop_rows(s, dropped, r + n), dropped = r + n;
        if (s->index == 0 && o->progress && (r - s->from) % ROWS_A_REPORT == 0)
            o->progress(s->done + s->part * (double)(r - s->from) / (double)(s->to - s->from), o->context);
    }
    if (!plan->keep_file) drop_rows(s, dropped, s->to);
    return HR_OK;
}

static void fill_share(filler *f, unsigned index) {
    double all = (double)hr_plan_elems(f->plan), done = 0;
    for (size_t i = 0; i < f->plan->n_mats; i++) {
        const hr_plan_mat *m = &f->plan->mats[i];
        share s = {.f = f, .m = m, .index = index, .done = done};
        hr_share(m->slot->rows, HR_ROW_GRAIN, index, f->n_threads, &s.from, &s.to);
        s.part = (double)m->slot->rows * (double)m->slot->cols / all;
        hr_status status = fill_mat(&s);
        if (status != HR_OK) {
            fail_mat(f, i, index, status);
            return;
        }
        done += s.part;
    }
}

static void *work(void *arg) {
    worker *w = arg;
    fill_share(w->f, w->index);
    return NULL;
}

static unsigned allowed_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}

static hr_status fill_mats(filler *f) {
    worker workers[MAX_THREADS];
    for (unsigned i = 1; i < f->n_threads; i++) {
        workers[i] = (worker){.f = f, .index = i};
        workers[i].started = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    fill_share(f, 0);
    for (unsigned i = 1; i < f->n_threads; i++) {
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
        else
            fill_share(f, i); /* a thread that the system refused: its share is done here */
    }
    return f->status;
}

/* Offsets in a thread's scratch, for the largest matrix. */
static void size_scratch(filler *f) {
    size_t cols = 0, data = 0, scales = 0;
    for (size_t i = 0; i < f->plan->n_mats; i++) {
        const hr_mat *slot = f->plan->mats[i].slot;
        const size_t bytes = hr_row_bytes(slot->dtype, slot->cols), groups = hr_row_scales(slot->dtype, slot->cols);
        if (slot->cols > cols) cols = slot->cols;
        if (bytes > data) data = bytes;
        if (groups > scales) scales = groups;
    }
    f->data_at = hr_align_up(cols * sizeof(float), 64);
    f->scales_at = f->data_at + hr_align_up(HR_PANEL * data, 64);
    f->scratch_bytes = hr_align_up(f->scales_at + HR_PANEL * scales * sizeof(uint16_t), 64);
}

static hr_status go_through_mats(const hr_plan *plan, char *arena, const char *file, const hr_load_options *options) {
    filler f = {.plan = plan, .arena = arena, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER};
    f.n_threads = options->threads ? options->threads : allowed_cpus();
    if (f.n_threads > MAX_THREADS) f.n_threads = MAX_THREADS;
    size_scratch(&f);
    f.scratch = hr_malloc(hr_mul(f.n_threads, f.scratch_bytes));
    if (!f.scratch) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for rows of %zu values", file, f.data_at / sizeof(float));
    hr_status status = fill_mats(&f);
    hr_free(f.scratch);
    if (status != HR_OK) HR_FAIL(status, "%s: %s", file, f.message);
    return HR_OK;
}

hr_status hr_unmade_rows(const hr_unmade *u, size_t row0, size_t n, float *room, void *data, uint16_t *scales) {
    const hr_draw draw = {u->key, u->center, u->std};
    const size_t bytes = hr_row_bytes(u->mat->dtype, u->mat->cols), groups = hr_row_scales(u->mat->dtype, u->mat->cols);
    for (size_t i = 0; i < n; i++) {
        hr_synth_row(&draw, row0 + i, u->mat->cols, room);
        HR_TRY(hr_quantize_row(u->mat->dtype, room, u->mat->cols, (char *)data + i * bytes,
                               groups ? scales + i * groups : NULL));
    }
    return HR_OK;
}

hr_status hr_plan_fill(const hr_plan *plan, void *arena, const char *file, const hr_load_options *options) {
    char *base = arena;
    for (size_t i = 0; i < plan->n_vecs; i++) {
        const hr_plan_vec *v = &plan->vecs[i];
        if (!v->present) continue;
        float *out = (float *)(void *)(base + v->at);
        row_f32(&v->source, &v->draw, 0, v->n, out);
        if (!all_finite(out, v->n))
            HR_FAIL(HR_ERR_INPUT, "%s: tensor '%s' holds NaN or infinity; fetch the model again", file, v->name);
        *v->slot = out;
    }
    if (plan->unmade) return HR_OK;
    HR_TRY(go_through_mats(plan, base, file, options));
    for (size_t i = 0; i < plan->n_mats; i++) {
        const hr_plan_mat *m = &plan->mats[i];
        const hr_dtype t = m->slot->dtype;
        const bool in_panels = plan->order == HR_ORDER_PANELS;
        const bool scales = in_panels ? hr_panel_groups(t, m->slot->cols) != 0 : hr_dtypes[t].group != 0;
        m->slot->data = plan->keep_file ? m->source.data : base + m->data_at;
        m->slot->scales = scales ? (const uint16_t *)(const void *)(base + m->scales_at) : NULL;
    }
    if (options->progress) options->progress(1, options->context);
    return HR_OK;
}
