/* fill.c - weights into memory: read from the file or drawn, converted row by row, by several threads.
 *
 * Each thread takes a static share of the rows of every matrix, holds one row of floats, and writes its rows in place:
 * no second copy of a matrix exists, and the bytes do not depend on the number of threads. */
#include "engine/model/synth.h"
#include "engine/pool.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = 256, ROWS_A_REPORT = 2048 };

typedef struct filler {
    const hr_plan *plan;
    char *arena;
    const hr_load_options *options;
    unsigned n_threads;
    float *rows; /* [n_threads][ld] */
    size_t ld;
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

static hr_status fill_rows(filler *f, unsigned index, const hr_plan_mat *m, size_t from, size_t to, double share,
                           double part) {
    const hr_mat *slot = m->slot;
    float *row = f->rows + index * f->ld;
    size_t row_bytes = hr_row_bytes(slot->dtype, slot->cols), row_scales = hr_row_scales(slot->dtype, slot->cols);
    uint16_t *scales = row_scales ? (uint16_t *)(void *)(f->arena + m->scales_at) : NULL;
    for (size_t r = from; r < to; r++) {
        if (m->source.data) HR_TRY(check_row(&m->source, r));
        /* Matrices that stay in the file are only read; the first pass would read all of it anyway. */
        if (!f->plan->keep_file) {
            row_f32(&m->source, &m->draw, r, slot->cols, row);
            HR_TRY(hr_quantize_row(slot->dtype, row, slot->cols, f->arena + m->data_at + r * row_bytes,
                                   scales ? scales + r * row_scales : NULL));
        }
        if (index == 0 && f->options->progress && (r - from) % ROWS_A_REPORT == 0)
            f->options->progress(share + part * (double)(r - from) / (double)(to - from), f->options->context);
    }
    return HR_OK;
}

static void fill_share(filler *f, unsigned index) {
    double all = (double)hr_plan_elems(f->plan), done = 0;
    for (size_t i = 0; i < f->plan->n_mats; i++) {
        const hr_plan_mat *m = &f->plan->mats[i];
        size_t from, to;
        hr_share(m->slot->rows, 1, index, f->n_threads, &from, &to);
        double part = (double)m->slot->rows * (double)m->slot->cols / all;
        hr_status status = fill_rows(f, index, m, from, to, done, part);
        if (status != HR_OK) {
            fail_mat(f, i, index, status);
            return;
        }
        done += part;
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

static hr_status go_through_mats(const hr_plan *plan, char *arena, const char *file, const hr_load_options *options) {
    filler f = {.plan = plan, .arena = arena, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER};
    f.n_threads = options->threads ? options->threads : allowed_cpus();
    if (f.n_threads > MAX_THREADS) f.n_threads = MAX_THREADS;
    for (size_t i = 0; i < plan->n_mats; i++)
        if (plan->mats[i].slot->cols > f.ld) f.ld = plan->mats[i].slot->cols;
    f.ld = hr_align_up(f.ld, 64);
    f.rows = hr_malloc(hr_mul(hr_mul(f.n_threads, f.ld), sizeof *f.rows));
    if (!f.rows) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for rows of %zu values", file, f.ld);
    hr_status status = fill_mats(&f);
    hr_free(f.rows);
    if (status != HR_OK) HR_FAIL(status, "%s: %s", file, f.message);
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
    HR_TRY(go_through_mats(plan, base, file, options));
    for (size_t i = 0; i < plan->n_mats; i++) {
        const hr_plan_mat *m = &plan->mats[i];
        m->slot->data = plan->keep_file ? m->source.data : base + m->data_at;
        bool plane = !plan->keep_file && hr_dtypes[m->slot->dtype].group;
        m->slot->scales = plane ? (const uint16_t *)(const void *)(base + m->scales_at) : NULL;
    }
    if (options->progress) options->progress(1, options->context);
    return HR_OK;
}
