/* HEADROOM_NVTX_OUT, HEADROOM_NVTX_SUMMARY and HEADROOM_NVTX_MAX_MB, and the recorder's one line on stderr. */
#include "harness/recorder/nvtx_record.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MB_DEFAULT = 190, MB_MOST = 100000 };

static hr_rec_settings settings;
static bool known;
static _Atomic bool warned;

void hr_rec_warn(const char *format, ...) {
    if (atomic_exchange(&warned, true)) return;
    char line[1600] = "headroom-nvtx: ";
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (n > 0) used += (size_t)n < sizeof line - used - 1 ? (size_t)n : sizeof line - used - 2;
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0) return; /* nowhere to say it */
}

/* As seen from the folder that is the current one now: the program may change it. */
static void absolute(char *out, size_t space, const char *path) {
    char folder[512];
    if (path[0] == '/' || !strcmp(path, "none") || !strcmp(path, "-") || !getcwd(folder, sizeof folder)) folder[0] = 0;
    const int n = snprintf(out, space, "%s%s%s", folder, folder[0] ? "/" : "", path);
    if (n >= 0 && (size_t)n < space) return;
    hr_rec_warn("the path %.40s... is too long; nothing will be written", path);
    snprintf(out, space, "none");
}

/* Told at the start, not after an hour of recording. */
static void check_folder(const char *path) {
    char folder[1024];
    struct stat info;
    if (!strcmp(path, "none") || !strcmp(path, "-")) return;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        hr_rec_warn("%s is a folder; HEADROOM_NVTX_OUT wants the name of a file", path);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    if (access(slash ? folder : ".", W_OK) != 0)
        hr_rec_warn("%s: %s; no trace will be written (HEADROOM_NVTX_OUT)", path, strerror(errno));
}

static uint64_t max_bytes(void) {
    const char *text = getenv("HEADROOM_NVTX_MAX_MB");
    if (!text || !*text) return (uint64_t)MB_DEFAULT * 1000000;
    char *end = NULL;
    const unsigned long mb = strtoul(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && mb >= 1 && mb <= MB_MOST) return (uint64_t)mb * 1000000;
    hr_rec_warn("HEADROOM_NVTX_MAX_MB=%.20s is no number from 1 to %d; %d is taken", text, MB_MOST, MB_DEFAULT);
    return (uint64_t)MB_DEFAULT * 1000000;
}

const hr_rec_settings *hr_rec_settings_get(void) {
    if (known) return &settings;
    const char *trace = getenv("HEADROOM_NVTX_OUT"), *summary = getenv("HEADROOM_NVTX_SUMMARY");
    absolute(settings.trace, sizeof settings.trace, trace && *trace ? trace : "headroom-nvtx.json");
    if (summary && *summary) absolute(settings.summary, sizeof settings.summary, summary);
    if (settings.trace[0] == '/' && !strcmp(settings.summary, settings.trace)) {
        hr_rec_warn("HEADROOM_NVTX_SUMMARY is the name of the trace too: the table takes another (.txt)");
        settings.summary[0] = 0;
    }
    settings.max_bytes = max_bytes();
    check_folder(settings.trace);
    known = true;
    return &settings;
}

void hr_rec_settings_forked(void) {
    settings.forked = true;
    atomic_store(&warned, false);
}

/* "%p" becomes the process id; false: there was none, or no space. */
static bool expand(char *out, size_t space, const char *path) {
    size_t used = 0;
    bool found = false;
    for (; *path && used + 12 < space; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            used += (size_t)snprintf(out + used, space - used, "%ld", (long)getpid());
            path++, found = true;
        } else {
            out[used++] = *path;
        }
    }
    out[used] = 0;
    return found;
}

static bool has_ending(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && !strcmp(path + n - m, ending);
}

/* A child of fork keeps its parent's file whole: t.json becomes t.PID.json. */
static void own_file(char *path, size_t space) {
    char *name = strrchr(path, '/'), *dot = strrchr(name ? name : path, '.');
    char ending[64] = "";
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return; /* a device or pipe */
    if (dot && strlen(dot) < sizeof ending) snprintf(ending, sizeof ending, "%s", dot), *dot = 0;
    const size_t used = strlen(path);
    snprintf(path + used, space - used, ".%ld%s", (long)getpid(), ending);
}

void hr_rec_trace_path(char out[1100]) {
    const bool own = expand(out, 1000, settings.trace);
    if (settings.forked && !own && strcmp(out, "none") != 0) own_file(out, 1100);
}

void hr_rec_summary_path(const char *trace, char out[1120]) {
    struct stat info;
    if (settings.summary[0]) {
        const bool own = expand(out, 1000, settings.summary);
        if (settings.forked && !own && strcmp(out, "none") != 0 && strcmp(out, "-") != 0) own_file(out, 1120);
    } else if (stat(trace, &info) == 0 && !S_ISREG(info.st_mode)) {
        snprintf(out, 1120, "none"); /* nothing is made beside a device */
    } else if (!strcmp(trace, "none")) {
        snprintf(out, 1120, "none");
    } else {
        const int stem = (int)strlen(trace) - (has_ending(trace, ".json") ? 5 : 0);
        snprintf(out, 1120, "%.*s.txt", stem, trace);
    }
}
