/* Pairs of whole processes, for what needs one: a library attached, a profiler around, another build. Both processes of a
 * pair measure the cell by the same `sweep`, the worker a thread of it, with nothing stored. */
#include "harness/observe/observe.h"
#include "harness/observe/observe_spawn.h"

#include "harness/formats/json_get.h"
#include "harness/profilers/child.h"
#include "kernels/base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_BYTES = 512, PATH_BYTES = 4096 };

/* One way to run the sweep. */
typedef struct side {
    const char *program;
    const char *level;           /* --nvtx-level */
    const char *const *before;   /* NULL-ended words before the program, or NULL */
    const char *const *settings; /* NULL-ended NAME=VALUE for the environment, or NULL */
} side;

/* The library lies beside the program that was built, or where `make install` puts it. */
static hr_status find_library(const char *program, char *out) {
    static const char *const places[] = {"libheadroom-nvtx.so", "../lib/headroom/libheadroom-nvtx.so"};
    const char *slash = strrchr(program, '/');
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int n =
            snprintf(out, PATH_BYTES, "%.*s/%s", slash ? (int)(slash - program) : 1, slash ? program : ".", places[i]);
        if (n > 0 && n < PATH_BYTES && access(out, R_OK) == 0) return HR_OK;
    }
    HR_FAIL(HR_ERR_UNSUPPORTED, "there is no libheadroom-nvtx.so beside the program; make it with `make`");
}

/* ---- one run ---------------------------------------------------------------------------------------------------- */

static hr_status words_of(const hr_observe_options *o, const side *s, const char *out, json_t *words) {
    char count[24];
    snprintf(count, sizeof count, "%zu", o->repetitions);
    const char *const after[] = {"-r", count,     "--db",      "none", "-o",           "json",  "--out",
                                 out,  "--quiet", "--capture", "nvtx", "--nvtx-level", s->level};
    const char *const sweep[] = {s->program, "sweep"};
    size_t n = 0;
    while (s->before && s->before[n]) n++;
    if (hr_words_add(words, s->before, n) && hr_words_add(words, sweep, 2) &&
        json_array_extend(words, (json_t *)o->sweep) == 0 && hr_words_add(words, after, sizeof after / sizeof *after))
        return HR_OK;
    HR_FAIL(HR_ERR_MEMORY, "no memory for a command line");
}

/* The medians of the one cell of `sweep -o json`. */
static hr_status read_times(const char *path, double ms[HR_OBSERVE_METRICS]) {
    json_t *rows = json_load_file(path, 0, NULL);
    const json_t *cell = json_array_get(rows, 0);
    ms[HR_OBSERVE_TTFT] = hr_num(json_object_get(cell, "ttft_ms"), "p50");
    ms[HR_OBSERVE_TPOT] = hr_num(json_object_get(cell, "tpot_excl_first_ms"), "p50");
    const bool measured = !strcmp(hr_word(cell, "status"), "ok");
    hr_status status = HR_OK;
    if (!cell)
        status = hr_fail(HR_ERR_IO, "it wrote no cell");
    else if (!measured)
        status = hr_fail(HR_ERR_INPUT, "the cell %.20s: %.200s", hr_word(cell, "status"), hr_word(cell, "error"));
    json_decref(rows);
    return status;
}

/* What counts is the cell that was written: nsys ends with errors of its own when it cannot make a report. */
static hr_status run(const hr_observe_options *o, const side *s, const char *folder, double ms[HR_OBSERVE_METRICS]) {
    char out[FOLDER_BYTES + 40], said[300], why[300];
    snprintf(out, sizeof out, "%s/cell.json", folder);
    unlink(out);
    json_t *words = json_array();
    hr_status status = words_of(o, s, out, words);
    if (status == HR_OK) status = hr_spawn(words, s->settings, NULL, o->stop, said, sizeof said);
    json_decref(words);
    if (status != HR_OK) return status;
    status = read_times(out, ms);
    if (status == HR_OK) return status;
    snprintf(why, sizeof why, "%s", hr_error());
    return hr_fail(status, "a run of %.200s failed: %s", s->before ? s->before[0] : s->program, *said ? said : why);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------ */

static hr_status take_pairs(const hr_observe_options *o, hr_watch watch, const side sides[2], const char *folder,
                            hr_observe_pairs *pairs) {
    uint64_t rng = o->seed + 11 + (uint64_t)watch;
    for (; pairs->n < o->pairs; pairs->n++) {
        const int first = (int)(hr_random(&rng) >> 32 & 1);
        for (int i = 0; i < 2; i++) {
            const int watched = first ^ i;
            double ms[HR_OBSERVE_METRICS];
            HR_TRY(hr_observe_next(o, watch, pairs->n));
            HR_TRY(run(o, &sides[watched], folder, ms));
            for (int m = 0; m < HR_OBSERVE_METRICS; m++) pairs->ms[m][watched][pairs->n] = ms[m];
        }
    }
    return HR_OK;
}

static hr_status in_folder(const hr_observe_options *o, hr_watch watch, const char *folder, hr_observe_pairs *pairs) {
    char library[PATH_BYTES], inject[PATH_BYTES + 40], trace[FOLDER_BYTES + 40], report[FOLDER_BYTES + 40];
    const char *const attached[] = {inject, trace, NULL};
    const char *const nsys[] = {
        "nsys", "profile", "-t", "nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true",
        "-o",   report,    NULL};
    side sides[2] = {{.program = o->program, .level = "none"}, {.program = o->program, .level = "op"}};
    snprintf(report, sizeof report, "%s/report", folder);
    if (watch != HR_WATCH_NO_PROBES && !hr_nvtx_built())
        HR_FAIL(HR_ERR_UNSUPPORTED, "this build has no NVTX: its headers were not there");
    if (watch == HR_WATCH_LIBRARY) {
        HR_TRY(find_library(o->program, library));
        snprintf(inject, sizeof inject, "NVTX_INJECTION64_PATH=%s", library);
        snprintf(trace, sizeof trace, "HEADROOM_NVTX_OUT=%s/trace.json", folder);
        sides[1].settings = attached;
    }
    if (watch == HR_WATCH_NSYS) {
        char found[PATH_BYTES];
        if (!hr_find_program("nsys", found, sizeof found))
            HR_FAIL(HR_ERR_UNSUPPORTED, "nsys is not installed; it comes with Debian's nsight-systems or from NVIDIA");
        sides[1].before = nsys;
    }
    if (watch == HR_WATCH_NO_PROBES) {
        if (!o->without)
            HR_FAIL(HR_ERR_UNSUPPORTED, "no build without probes was named; `make probe-cost` makes one and measures");
        sides[0].program = o->without, sides[1].level = "none";
    }
    return take_pairs(o, watch, sides, folder, pairs);
}

hr_status hr_observe_processes(const hr_observe_options *o, hr_watch watch, hr_observe_pairs *pairs) {
    char folder[FOLDER_BYTES];
    HR_TRY(hr_scratch_make(folder, sizeof folder));
    const hr_status status = in_folder(o, watch, folder, pairs);
    char said[512];
    snprintf(said, sizeof said, "%s", hr_error());
    hr_scratch_remove(folder);
    return status == HR_OK ? HR_OK : hr_fail(status, "%s", said);
}

/* ---- a build without probes ------------------------------------------------------------------------------------- */

static void line_of(const char *text, const char *begins, char *out, size_t size) {
    const char *at = strstr(text, begins);
    snprintf(out, size, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

static hr_status check_version(const char *program, const char *without, const char *folder) {
    char out[2][FOLDER_BYTES + 40], said[300], text[2][4096], commit[2][120];
    const char *const programs[] = {program, without};
    for (int i = 0; i < 2; i++) {
        snprintf(out[i], sizeof out[i], "%s/version%d", folder, i);
        json_t *words = json_pack("[s, s]", programs[i], "--version");
        const hr_status status = words ? hr_spawn(words, NULL, out[i], NULL, said, sizeof said)
                                       : hr_fail(HR_ERR_MEMORY, "no memory for a command line");
        json_decref(words);
        if (status != HR_OK) {
            snprintf(said, sizeof said, "%s", hr_error());
            HR_FAIL(HR_ERR_USAGE, "--without %.200s: %.250s", without, said);
        }
        FILE *f = fopen(out[i], "r");
        text[i][f ? fread(text[i], 1, sizeof text[i] - 1, f) : 0] = 0;
        if (f) fclose(f);
        line_of(text[i], "headroom ", commit[i], sizeof commit[i]);
    }
    if (!strstr(text[1], "probes: none"))
        HR_FAIL(HR_ERR_USAGE,
                "--without %.200s: is no headroom built without probes (make BUILD=build-noprobes "
                "NOPROBES=1)",
                without);
    if (strcmp(commit[0], commit[1]))
        HR_FAIL(HR_ERR_USAGE, "--without %.200s: is another version (%s) than this one (%s); build both from one tree",
                without, commit[1], commit[0]);
    return HR_OK;
}

hr_status hr_observe_check_without(const char *program, const char *without) {
    char folder[FOLDER_BYTES], said[512];
    HR_TRY(hr_scratch_make(folder, sizeof folder));
    const hr_status status = check_version(program, without, folder);
    snprintf(said, sizeof said, "%s", hr_error());
    hr_scratch_remove(folder);
    return status == HR_OK ? HR_OK : hr_fail(status, "%s", said);
}
