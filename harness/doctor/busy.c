#include "harness/doctor/busy.h"

#include "harness/cli/interrupt.h"
#include "harness/cli/progress.h"
#include "kernels/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double LOOK_SECONDS = 0.3, STEP_SECONDS = 0.05;

const char *const hr_on_busy_names[] = {"warn", "fail", "wait", "ignore", NULL};

static double since(uint64_t start_ns) {
    return (double)(hr_now_ns() - start_ns) * 1e-9;
}

void hr_busy_begin(hr_busy *busy) {
    busy->look = NULL, busy->looked = busy->busy = false, *busy->warning = 0;
    busy->begun_ns = hr_now_ns();
    if (hr_others_begin("", &busy->look) != HR_OK) busy->look = NULL;
}

void hr_busy_drop(hr_busy *busy) {
    hr_others_drop(busy->look);
    busy->look = NULL;
}

/* Sleeps until the look is long enough, in steps, so that Ctrl-C is heard. */
static hr_status rest(uint64_t start_ns) {
    for (double left; (left = LOOK_SECONDS - since(start_ns)) > 0;) {
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        const double step = left < STEP_SECONDS ? left : STEP_SECONDS;
        nanosleep(&(struct timespec){.tv_nsec = (long)(step * 1e9)}, NULL);
    }
    return HR_OK;
}

static void describe(const hr_others *o, char *out, size_t size) {
    if (o->pid > 0)
        snprintf(out, size, "%s (pid %d) takes %.0f %% of a core", o->name, o->pid, o->largest_percent);
    else
        snprintf(out, size, "%s take %.0f %% of a core", o->name, o->largest_percent);
}

/* One look to its end; *looked stays false where processes cannot be seen. */
static hr_status look(hr_busy *busy, hr_others *others) {
    busy->busy = false;
    if (!busy->look) return HR_OK;
    const hr_status rested = rest(busy->begun_ns);
    if (rested != HR_OK) {
        hr_busy_drop(busy);
        return rested;
    }
    const hr_status status = hr_others_end(busy->look, "", getpid(), 0, others);
    busy->look = NULL;
    if (status != HR_OK) return HR_OK;
    busy->looked = true;
    busy->busy = others->largest_percent > HR_OTHERS_BUSY_PCT;
    if (busy->busy) describe(others, busy->warning, sizeof busy->warning);
    return HR_OK;
}

static hr_status wait_for_quiet(hr_busy *busy, hr_others *others) {
    hr_progress progress;
    const uint64_t start = hr_now_ns();
    hr_progress_init(&progress, busy->progress);
    hr_status status = HR_OK;
    while (status == HR_OK && busy->busy && since(start) < busy->timeout_s) {
        hr_progress_show(&progress, since(start) / busy->timeout_s, busy->timeout_s - since(start), "waiting: %s",
                         busy->warning);
        hr_busy_begin(busy);
        status = look(busy, others);
    }
    hr_progress_clear(&progress);
    return status;
}

hr_status hr_busy_end(hr_busy *busy) {
    hr_others others;
    if (busy->on_busy == HR_BUSY_IGNORE) {
        hr_busy_drop(busy);
        return HR_OK;
    }
    HR_TRY(look(busy, &others));
    if (busy->busy && busy->on_busy == HR_BUSY_WAIT) HR_TRY(wait_for_quiet(busy, &others));
    if (busy->busy && busy->on_busy == HR_BUSY_FAIL)
        HR_FAIL(HR_ERR_UNSUPPORTED, "--on-busy fail: %s; end it, or measure with --on-busy warn or wait",
                busy->warning);
    return HR_OK;
}
