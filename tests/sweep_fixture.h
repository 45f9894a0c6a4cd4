/* sweep_fixture.h - what the tests of the sweep share: a folder, `headroom sweep` in a process of its own, a small cell. */
#ifndef HR_SWEEP_FIXTURE_H
#define HR_SWEEP_FIXTURE_H

#include "tests/sweep_process.h"

#include "harness/cli/options.h"
#include "harness/store/store.h"
#include "harness/sweep/worker.h"
#include "kernels/base/memory.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], db[96], out_file[96], err_file[96];

static inline int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hr_test_sweep_XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(db, sizeof db, "%s/x.db", folder);
    snprintf(out_file, sizeof out_file, "%s/out", folder);
    snprintf(err_file, sizeof err_file, "%s/err", folder);
    return 0;
}

static inline int remove_entry(const char *name, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(name);
}

static inline int clean_up(void **state) {
    (void)state;
    unsetenv("HEADROOM_FAULT");
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Starts `headroom sweep LINE` with stdout and stderr in files. file_limit: bytes a file may grow to, 0: no limit. */
static inline pid_t start(const char *line, rlim_t file_limit) {
    const pid_t pid = fork();
    if (pid) return pid;
    dup2(open(out_file, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err_file, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    if (file_limit) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){file_limit, file_limit});
    }
    sweep_and_exit(line);
}

static inline size_t lines_of(const char *path);
/* Waits until so many rows are printed; a sweep that ends before is a failure. */
static inline void wait_for_rows(pid_t pid, size_t n) {
    while (lines_of(out_file) < n) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
            fail_msg("the sweep ended with %zu rows, before row %zu", lines_of(out_file), n);
        usleep(10000);
    }
}

static inline char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    static char text[1 << 20];
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return text;
}

static inline size_t lines_of(const char *path) {
    size_t n = 0;
    for (const char *c = read_text(path); *c; c++) n += *c == '\n';
    return n;
}

/* Runs it and expects an exit code; the rows (jsonl) as an array. */
static inline json_t *sweep(const char *line, int want) {
    const int code = code_of(start(line, 0));
    if (code != want) fail_msg("sweep %s: exit %d, expected %d: %s", line, code, want, read_text(err_file));
    json_t *rows = json_array();
    char *save = NULL;
    for (char *row = strtok_r(read_text(out_file), "\n", &save); row; row = strtok_r(NULL, "\n", &save)) {
        json_t *json = json_loads(row, 0, NULL);
        if (!json) fail_msg("a line of the output is no JSON: %.80s", row);
        json_array_append_new(rows, json);
    }
    return rows;
}

static inline const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

/* ---- a small cell and a worker ---- */

/* Small enough for a plain C kernel under a sanitizer. */
#define SMALL "synth:tiny:layers=1:dim=64:heads=2:kv_heads=1:head_dim=32:ffn=128:vocab=256"

static const hr_cell_config isl_cell = {.model = SMALL,
                                        .quant = HR_QUANT_F32,
                                        .act = HR_ACT_F32,
                                        .kind = HR_CELL_ISL,
                                        .n_prompt = 24,
                                        .n_gen = 5,
                                        .isl = 24,
                                        .osl = 5,
                                        .depth = -1,
                                        .n_seqs = 2,
                                        .batch = 64,
                                        .ubatch = 16,
                                        .k_type = HR_F32,
                                        .v_type = HR_F32,
                                        .kv_layout = HR_KV_HEAD,
                                        .page_size = -1,
                                        .kv_alloc = "per-request",
                                        .flash = true,
                                        .threads = 1,
                                        .isa = HR_ISA_GENERIC};

static inline hr_measure_options fixed(size_t n) {
    return (hr_measure_options){.rule = {.fixed = n, .min_samples = 10, .max_samples = 1000, .max_seconds = 30},
                                .slo_ttft_ms = 1e9,
                                .slo_tpot_ms = NAN};
}

static inline json_t *ask(hr_worker *worker, json_t *request) {
    json_t *answer = NULL;
    if (hr_worker_send(worker, request) != HR_OK || hr_worker_receive(worker, 0, NULL, NULL, &answer) != HR_OK)
        fail_msg("%s", hr_error());
    return answer;
}

static inline json_t *prepare(hr_worker *worker) {
    return ask(worker,
               json_pack("{s:s, s:i, s:o}", "do", "prepare", "index", 0, "cell", hr_cell_config_json(&isl_cell)));
}

#endif
