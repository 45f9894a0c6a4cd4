/* nvtx_fixture.h - runs a program with the recorder attached and reads what it wrote. */
#ifndef HR_NVTX_FIXTURE_H
#define HR_NVTX_FIXTURE_H

#include "tests/hr_test.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

static char nvtx_folder[64]; /* the current folder of what runs */

static inline int nvtx_set_up(void **state) {
    (void)state;
    snprintf(nvtx_folder, sizeof nvtx_folder, "/tmp/hr_test_nvtx_XXXXXX");
    return mkdtemp(nvtx_folder) ? 0 : -1;
}

static inline int nvtx_clean_up(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", nvtx_folder);
    return system(command);
}

/* "build/NAME" as an absolute path. */
static inline const char *nvtx_built(const char *name, char out[PATH_MAX]) {
    char path[PATH_MAX];
    const char *build = getenv("HEADROOM_BUILD");
    snprintf(path, sizeof path, "%s/%s", build ? build : "build", name);
    if (!realpath(path, out)) fail_msg("%s is not built", path);
    return out;
}

static inline char *nvtx_path(const char *name, char out[128]) {
    snprintf(out, 128, "%s/%s", nvtx_folder, name);
    return out;
}

/* The bytes of a file of the folder; NULL: it is not there. */
static inline char *nvtx_read(const char *name) {
    char path[128];
    FILE *file = fopen(nvtx_path(name, path), "rb");
    if (!file) return NULL;
    size_t n = 0, space = 1 << 16;
    char *out = malloc(space);
    for (size_t got; out && (got = fread(out + n, 1, space - n - 1, file)) > 0;) {
        n += got;
        if (n + 1 == space) out = realloc(out, space *= 2);
    }
    fclose(file);
    assert_non_null(out);
    out[n] = 0;
    return out;
}

/* How a program is run: words and settings "NAME=VALUE" divided by blanks, the limit of files (0: none). */
typedef struct nvtx_run {
    const char *line, *env;
    rlim_t file_limit;
    bool detached; /* without the recorder */
} nvtx_run;

static inline void nvtx_exec(const char *program, const nvtx_run *run, const char *library) {
    char line[1024], env[1024], *argv[64] = {(char *)program};
    int argc = 1;
    snprintf(line, sizeof line, "%s", run->line);
    snprintf(env, sizeof env, "%s", run->env ? run->env : "");
    for (char *word = strtok(line, " "); word && argc < 63; word = strtok(NULL, " ")) argv[argc++] = word;
    unsetenv("HEADROOM_NVTX_OUT"), unsetenv("HEADROOM_NVTX_SUMMARY"), unsetenv("HEADROOM_NVTX_MAX_MB");
    if (run->detached)
        unsetenv("NVTX_INJECTION64_PATH");
    else
        setenv("NVTX_INJECTION64_PATH", library, 1);
    for (char *word = strtok(env, " "); word; word = strtok(NULL, " ")) putenv(word);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* the search for leaks fails where threads run on at the end */
    if (run->file_limit) setrlimit(RLIMIT_FSIZE, &(struct rlimit){run->file_limit, run->file_limit});
    if (chdir(nvtx_folder) != 0) _exit(99);
    dup2(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(program, argv);
    _exit(98);
}

/* The exit code; stdout and stderr are the files out and err of the folder. */
static inline int nvtx_start(const char *program, nvtx_run run, pid_t *pid) {
    char path[PATH_MAX], library[PATH_MAX];
    nvtx_built(program, path);
    nvtx_built("libheadroom-nvtx.so", library);
    *pid = fork();
    if (*pid == 0) nvtx_exec(path, &run, library);
    int status = 0;
    assert_int_equal(waitpid(*pid, &status, 0), *pid);
    if (!WIFEXITED(status)) fail_msg("%s %s: ended by signal %d", program, run.line, WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* ---- the trace --------------------------------------------------------------------------------------------------- */

typedef struct nvtx_event {
    const char *name, *category, *domain;
    const json_t *args;
    char kind; /* X, i */
    long tid;
    int64_t start_ns, end_ns;
} nvtx_event;
typedef struct nvtx_trace {
    json_t *root;
    nvtx_event *events; /* ranges and marks by tid and start, the longer first */
    size_t n;
} nvtx_trace;

static inline int nvtx_by_place(const void *left, const void *right) {
    const nvtx_event *a = left, *b = right;
    if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
    if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns ? -1 : 1;
    return a->end_ns == b->end_ns ? 0 : a->end_ns > b->end_ns ? -1 : 1;
}

static inline nvtx_trace nvtx_trace_of(const char *name) {
    char path[128];
    json_error_t error;
    nvtx_trace out = {.root = json_load_file(nvtx_path(name, path), JSON_ALLOW_NUL, &error)};
    if (!out.root) fail_msg("%s: %s, line %d", name, error.text, error.line);
    const json_t *all = json_object_get(out.root, "traceEvents");
    out.events = calloc(json_array_size(all) + 1, sizeof *out.events);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *e = json_array_get(all, i);
        const char kind = json_string_value(json_object_get(e, "ph"))[0];
        if (kind != 'X' && kind != 'i') continue;
        const char *domain = json_string_value(json_object_get(json_object_get(e, "args"), "domain"));
        const double ts = json_number_value(json_object_get(e, "ts")),
                     dur = json_number_value(json_object_get(e, "dur"));
        const int64_t start = llround(ts * 1e3);
        out.events[out.n++] = (nvtx_event){.name = json_string_value(json_object_get(e, "name")),
                                           .category = json_string_value(json_object_get(e, "cat")),
                                           .domain = domain ? domain : "",
                                           .args = json_object_get(e, "args"),
                                           .kind = kind,
                                           .tid = (long)json_integer_value(json_object_get(e, "tid")),
                                           .start_ns = start,
                                           .end_ns = start + llround(dur * 1e3)};
    }
    qsort(out.events, out.n, sizeof *out.events, nvtx_by_place);
    return out;
}

static inline void nvtx_drop(nvtx_trace *trace) {
    free(trace->events);
    json_decref(trace->root);
}

static inline size_t nvtx_count(const nvtx_trace *trace, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < trace->n; i++) n += !strcmp(trace->events[i].name, name);
    return n;
}

static inline const nvtx_event *nvtx_find(const nvtx_trace *trace, const char *name) {
    for (size_t i = 0; i < trace->n; i++)
        if (!strcmp(trace->events[i].name, name)) return &trace->events[i];
    fail_msg("no event '%s' among %zu", name, trace->n);
    return NULL;
}

static inline json_int_t nvtx_fact(const nvtx_trace *trace, const char *key) {
    const json_t *value = json_object_get(json_object_get(trace->root, "otherData"), key);
    if (!json_is_integer(value)) fail_msg("otherData has no number '%s'", key);
    return json_integer_value(value);
}

/* Of two ranges on one row one holds the other, or they don't touch. parents: index of the range around each, or
 * SIZE_MAX; may be NULL. */
static inline void nvtx_assert_nested(const nvtx_trace *trace, size_t *parents) {
    size_t *open = calloc(trace->n + 1, sizeof *open), depth = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const nvtx_event *e = &trace->events[i];
        if (i && trace->events[i - 1].tid != e->tid) depth = 0;
        while (depth && trace->events[open[depth - 1]].end_ns <= e->start_ns) {
            const nvtx_event *top = &trace->events[open[depth - 1]];
            if (top->end_ns == e->end_ns && e->start_ns == e->end_ns) break; /* an empty one at the end of its parent */
            depth--;
        }
        if (parents) parents[i] = depth ? open[depth - 1] : SIZE_MAX;
        if (e->kind != 'X') continue;
        if (depth && trace->events[open[depth - 1]].end_ns < e->end_ns)
            fail_msg("row %ld: '%s' [%lld, %lld] ends after '%s' around it, which ends at %lld", e->tid, e->name,
                     (long long)e->start_ns, (long long)e->end_ns, trace->events[open[depth - 1]].name,
                     (long long)trace->events[open[depth - 1]].end_ns);
        open[depth++] = i;
    }
    free(open);
}

/* ---- the summary ------------------------------------------------------------------------------------------------- */

typedef struct nvtx_line {
    uint64_t calls;
    double total_us, mean_us, median_us, min_us, max_us;
    char style[16], domain[64], category[64], name[64];
} nvtx_line;

/* Lines behind the comments and the head, at most most; returns how many. */
static inline size_t nvtx_summary(const char *file, nvtx_line *out, size_t most) {
    static const char head[] =
        "calls\ttotal_time_us\tmean_time_us\tmedian_time_us\tmin_time_us\tmax_time_us\tstyle\tdomain\tcategory\tname";
    char *text = nvtx_read(file), *rest = text;
    if (!text) fail_msg("no summary %s", file);
    size_t n = 0;
    bool in_table = false;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && n < most;) {
        if (!in_table) {
            in_table = !strcmp(line, head);
            continue;
        }
        char *cells[10], *at = line;
        size_t k = 0;
        while (k < 10 && (cells[k] = strsep(&at, "\t")) != NULL) k++;
        if (k < 10) continue;
        nvtx_line *l = &out[n++];
        *l = (nvtx_line){.calls = strtoull(cells[0], NULL, 10),
                         .total_us = strtod(cells[1], NULL),
                         .mean_us = strtod(cells[2], NULL),
                         .median_us = strtod(cells[3], NULL),
                         .min_us = strtod(cells[4], NULL),
                         .max_us = strtod(cells[5], NULL)};
        snprintf(l->style, sizeof l->style, "%s", cells[6]);
        snprintf(l->domain, sizeof l->domain, "%s", cells[7]);
        snprintf(l->category, sizeof l->category, "%s", cells[8]);
        snprintf(l->name, sizeof l->name, "%.60s", cells[9]);
    }
    if (!in_table) fail_msg("%s has no head '%s'", file, head);
    free(text);
    return n;
}

#endif
