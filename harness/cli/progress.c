#include "harness/cli/progress.h"

#include "kernels/base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR = 20, REDRAW_NS = 100000000 };

/* A variable that is set, to anything but nothing. */
static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

void hr_progress_init(hr_progress *progress, bool wanted) {
    memset(progress, 0, sizeof *progress);
    progress->on = wanted && isatty(STDERR_FILENO) && !is_set("CI") && !is_set("NO_COLOR");
    progress->start_ns = hr_now_ns();
    progress->label = "";
}

void hr_progress_stage(hr_progress *progress, const char *label) {
    progress->label = label;
    progress->start_ns = hr_now_ns();
    progress->last_ns = 0;
}

static unsigned columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : 80;
}

static void time_left(char *text, size_t size, double seconds) {
    if (!(seconds >= 0) || seconds > 99 * 3600.0)
        snprintf(text, size, " ");
    else if (seconds >= 3600)
        snprintf(text, size, "%dh%02dm left", (int)seconds / 3600, (int)seconds / 60 % 60);
    else if (seconds >= 60)
        snprintf(text, size, "%dm%02ds left", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, size, "%ds left", (int)(seconds + 0.5));
}

void hr_progress_show(hr_progress *progress, double share, double seconds_left, const char *format, ...) {
    if (!progress->on) return;
    uint64_t now = hr_now_ns();
    if (progress->last_ns && now - progress->last_ns < REDRAW_NS) return;
    progress->last_ns = now;
    if (!(share >= 0)) share = 0;
    if (share > 1) share = 1;
    double elapsed = (double)(now - progress->start_ns) * 1e-9;
    /* Below one percent an estimate from the share is a guess. */
    if (seconds_left < 0 && share >= 0.01) seconds_left = elapsed / share - elapsed;
    char text[200], left[32], line[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    time_left(left, sizeof left, seconds_left);
    int filled = (int)(share * BAR + 0.5);
    int n = snprintf(line, sizeof line, "[%.*s%*s] %3d %% %-10s %s", filled, "####################", BAR - filled, "",
                     (int)(share * 100), left, text);
    int width = (int)columns() - 1;
    if (n > width) n = width;
    fprintf(stderr, "\r%.*s\x1b[K", n, line);
    fflush(stderr);
    progress->drawn = true;
}

void hr_progress_callback(double share, void *context) {
    hr_progress *progress = context;
    hr_progress_show(progress, share, -1, "%s", progress->label);
}

void hr_progress_clear(hr_progress *progress) {
    if (!progress->drawn) return;
    fputs("\r\x1b[K", stderr);
    fflush(stderr);
    progress->drawn = false;
    progress->last_ns = 0;
}
