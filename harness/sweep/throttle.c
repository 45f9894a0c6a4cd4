#include "harness/sweep/throttle.h"

#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <time.h>

const char *const hr_on_throttle_names[HR_THROTTLE_COUNT + 1] = {"flag", "wait", "stop", NULL};

static const double CLOCK_REDUCED = 0.85; /* of the best clock of the cell: as on the CPU */
/* Of the time between two looks, that the driver counted as slowed: less is a moment at the begin of work. */
static const double SLOWED_SHARE = 0.05;
/* The driver takes some milliseconds to answer, so a cell of short repetitions is looked at ten times a second. */
static const uint64_t LOOK_NS = 100000000;
/* The counter of energy moves some ten times a second: over less than this, a token's share is a guess. */
static const double ENERGY_S = 0.2;
enum { RESTS_MAX = 20, LOOKS_MAX = 4096 };

typedef struct figures {
    double *v; /* [n] */
    size_t n;
} figures;

struct hr_throttle {
    int device;
    hr_throttle_options options;
    hr_gpu_state begin, last;
    bool begun;
    uint64_t begin_ns, look_ns, last_ns; /* last_ns: of `last`; 0: there is none */
    double best_mhz, idle_j, idle_s;     /* idle: while resting */
    unsigned rests;
    uint64_t reasons;
    double *space; /* [3][LOOKS_MAX] */
    figures sm, memory, temperature;
    bool slowed; /* by the last look */
};

hr_status hr_throttle_create(int device, const hr_throttle_options *options, hr_throttle **out) {
    hr_throttle *t = hr_calloc(1, sizeof *t);
    if (t) t->space = hr_calloc(3 * LOOKS_MAX, sizeof *t->space);
    if (!t || !t->space) {
        hr_throttle_destroy(t);
        HR_FAIL(HR_ERR_MEMORY, "no memory for what a GPU says of itself");
    }
    t->device = device, t->options = *options;
    if (!t->options.look) t->options.look = hr_gpu_state_get;
    t->sm.v = t->space, t->memory.v = t->space + LOOKS_MAX, t->temperature.v = t->space + 2 * LOOKS_MAX;
    *out = t;
    return HR_OK;
}

void hr_throttle_destroy(hr_throttle *t) {
    if (!t) return;
    hr_free(t->space);
    hr_free(t);
}

static void keep(figures *f, double value) {
    if (isfinite(value) && f->n < LOOKS_MAX) f->v[f->n++] = value;
}

/* False: the driver says nothing, and the cell goes on without. */
static bool look(hr_throttle *t) {
    hr_gpu_state now;
    t->look_ns = hr_now_ns();
    if (t->options.look(t->device, 0, &now) != HR_OK) return false;
    keep(&t->sm, now.sm_mhz), keep(&t->memory, now.memory_mhz), keep(&t->temperature, now.temperature_c);
    if (now.sm_mhz > t->best_mhz) t->best_mhz = now.sm_mhz;
    t->reasons |= now.reasons;
    /* False for what is unknown. */
    const double since_s = (double)(t->look_ns - t->last_ns) * 1e-9;
    const bool was = t->last_ns && now.slowed_s - t->last.slowed_s > SLOWED_SHARE * since_s;
    t->slowed = now.throttled || was || now.sm_mhz < CLOCK_REDUCED * t->best_mhz;
    t->last = now, t->last_ns = t->look_ns;
    return true;
}

void hr_throttle_begin(hr_throttle *t) {
    t->sm.n = t->memory.n = t->temperature.n = 0;
    t->best_mhz = t->idle_j = t->idle_s = 0, t->rests = 0, t->reasons = 0, t->slowed = false;
    t->begun = look(t);
    t->begin = t->last;
    t->begin_ns = hr_now_ns();
}

static double energy_since(const hr_gpu_state *from, const hr_gpu_state *to) {
    return to->energy_j - from->energy_j;
}

static bool stopped(const hr_throttle *t) {
    return t->options.stop && atomic_load(t->options.stop);
}

/* What the GPU takes meanwhile belongs to no token. */
static void rest(hr_throttle *t) {
    const hr_gpu_state before = t->last;
    const uint64_t start = hr_now_ns();
    for (double left = t->options.cool_down_s; left > 0 && !stopped(t); left -= 0.05)
        nanosleep(&(struct timespec){.tv_nsec = (long)(fmin(left, 0.05) * 1e9)}, NULL);
    t->rests++;
    const double best = t->best_mhz; /* the clock of a GPU at rest says nothing */
    t->last_ns = 0;                  /* nor what it was slowed by before */
    if (look(t)) t->idle_j += energy_since(&before, &t->last);
    t->best_mhz = best;
    t->idle_s += (double)(hr_now_ns() - start) * 1e-9;
}

hr_throttle_verdict hr_throttle_after(hr_throttle *t) {
    if (!t->begun) return HR_SAMPLE_KEEP;
    const bool always = t->options.policy != HR_THROTTLE_FLAG;
    if (always || hr_now_ns() - t->look_ns >= LOOK_NS) look(t);
    if (!t->slowed) return HR_SAMPLE_KEEP;
    if (t->options.policy == HR_THROTTLE_STOP) return HR_SAMPLE_STOP;
    if (t->options.policy == HR_THROTTLE_WAIT && t->rests < RESTS_MAX) {
        rest(t);
        return HR_SAMPLE_REPEAT;
    }
    return HR_SAMPLE_FLAG;
}

static void put(json_t *out, const char *key, double value) {
    if (isfinite(value)) json_object_set_new(out, key, json_real(value));
}

static void put_median(json_t *out, const char *key, figures *f) {
    if (f->n) put(out, key, hr_median(f->v, f->n));
}

hr_status hr_throttle_end(hr_throttle *t, double tokens, json_t *out) {
    char reasons[256];
    if (!t->begun || !look(t)) return HR_OK;
    const double seconds = (double)(hr_now_ns() - t->begin_ns) * 1e-9 - t->idle_s;
    const double joules = energy_since(&t->begin, &t->last) - t->idle_j;
    const bool known = seconds >= ENERGY_S && joules > 0;
    put(out, "power_w", known ? joules / seconds : t->last.power_w);
    if (known && tokens > 0) put(out, "energy_mj", joules * 1e3 / tokens);
    put_median(out, "sm_mhz", &t->sm);
    put_median(out, "memory_mhz", &t->memory);
    put_median(out, "temperature_c", &t->temperature);
    put(out, "power_limit_w", t->last.power_limit_w);
    if (isnan(t->last.sm_mhz) && isnan(t->last.power_w)) return HR_OK; /* who says neither says no reasons */
    hr_gpu_reasons_text(t->reasons, reasons, sizeof reasons);
    return json_object_set_new(out, "clock_reasons", json_string(reasons)) == 0
               ? HR_OK
               : hr_fail(HR_ERR_MEMORY, "no memory for what a GPU says of itself");
}
