/* model_fixture.h - models for tests: loaded or refused, their matrices, and a folder for the files of a test program. */
#ifndef HR_MODEL_FIXTURE_H
#define HR_MODEL_FIXTURE_H

#include "tests/hr_test.h"

#include "engine/model/model.h"
#include "engine/model/weights.h"
#include "tests/gguf_writer.h"

#include <sys/stat.h>
#include <unistd.h>

static inline hr_model *load_in(const char *spec, hr_quant quant, hr_order order, unsigned threads) {
    hr_model *model;
    if (hr_model_load(spec, &(hr_load_options){.quant = quant, .order = order, .threads = threads}, &model) != HR_OK)
        fail_msg("%s: %s", spec, hr_error());
    return model;
}

static inline hr_model *load(const char *spec, hr_quant quant, unsigned threads) {
    return load_in(spec, quant, HR_ORDER_ROWS, threads);
}

static inline void expect_fails(const char *spec, hr_quant quant, hr_status expected, const char *word) {
    hr_model *model;
    hr_status status = hr_model_load(spec, &(hr_load_options){.quant = quant, .threads = 1}, &model);
    if (status != expected || !strstr(hr_error(), word))
        fail_msg("%s: expected status %d and '%s', got %d and '%s'", spec, expected, word, status, hr_error());
    assert_null(model);
}

/* All matrices of a model, embed and head first. */
static inline size_t mats_of(const hr_model *m, const hr_mat *out[], size_t max) {
    size_t n = 0;
    out[n++] = &m->embed, out[n++] = &m->head;
    for (uint32_t i = 0; i < m->hp.n_layers && n + 7 <= max; i++) {
        const hr_layer *l = &m->layers[i];
        const hr_mat *all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < 7; k++) out[n++] = all[k];
    }
    return n;
}

static char folder[64];

static inline const char *path_of(const char *name) {
    static char path[2][160];
    static unsigned turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static inline int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hr_test_model_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Writes the file; its path. */
static inline const char *model_file(gw *w) {
    gw_write(w, path_of("m.gguf"));
    return path_of("m.gguf");
}

#endif
