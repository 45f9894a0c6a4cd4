/* Rules on the machine beside a cell: cores, pages, memory, neighbours, clock, state. */
#include "harness/advice/advice_rules.h"

#include "harness/stats/stats.h"

#include <string.h>

static const double SMALL_PAGES_LEAST = 32 << 20; /* bytes: beyond what TLBs hold in pages of 4 KiB */
static const double FAULTS_A_REPETITION = 10;
static const double MEMORY_SHARE = 0.9;
static const double PSI_PCT = 5, PSI_MUCH_PCT = 25, SWITCHES_A_SECOND = 2000;
static const double CLOCK_LOW = 0.92;
static const double HANDOFF_COST_PCT = 2;

bool hr_rule_threads(const hr_case *c, hr_finding *f) {
    const double threads = hr_num(c->cell, "n_threads"), cores = hr_num(c->machine, "cores");
    if (!(cores >= 1) || !(threads > cores) || !isfinite(threads)) return false;
    f->severity = HR_HIGH, f->value = threads / cores, f->unit = "threads a core";
    hr_say(f, finding, "%.0f threads on %s: they wait for each other's turn at every join", threads,
           hr_text_of(cores, "core"));
    hr_say(f, evidence, "n_threads %.0f, physical cores %.0f", threads, cores);
    hr_say(f, todo, "-t %.0f, or leave out -t", cores);
    return true;
}

bool hr_rule_huge_pages(const hr_case *c, hr_finding *f) {
    const double own = hr_num(c->cell, "rss_peak_bytes");
    if (!json_is_false(json_object_get(c->cell, "huge_pages")) || !(own >= SMALL_PAGES_LEAST)) return false;
    f->value = own / (1 << 20), f->unit = "MiB";
    hr_say(f, finding, "weights, KV and scratch lie in pages of 4 KiB");
    hr_say(f, evidence, "huge_pages false with %s of memory", hr_text_size(own));
    hr_say(f, todo, "leave out --huge-pages 0; as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    return true;
}

static double repetitions(const hr_case *c) {
    const size_t stored = json_array_size(c->samples), given = json_array_size(json_object_get(c->cell, "samples_ns"));
    return (double)(stored ? stored : given);
}

bool hr_rule_paging(const hr_case *c, hr_finding *f) {
    const double n = repetitions(c), faults = hr_num(c->cell, "page_faults") / n;
    if (!(n > 0) || !(faults >= FAULTS_A_REPETITION) || !isfinite(faults)) return false;
    f->value = faults, f->unit = "page faults a repetition";
    hr_say(f, finding, "memory is fetched page by page while the clock runs");
    hr_say(f, evidence, "%.0f page faults in %.0f timed repetitions", faults * n, n);
    hr_say(
        f, todo, "%s",
        hr_num(c->cell, "warmups") == 0
            ? "leave out --no-warmup: these are first touches"
            : "free memory until nothing is swapped or dropped (free -m, vmstat 1); --mmap 0 holds a file's weights");
    return true;
}

bool hr_rule_memory_tight(const hr_case *c, hr_finding *f) {
    const double own = hr_num(c->cell, "rss_peak_bytes"), all = hr_num(c->machine, "memory_bytes");
    if (!(all > 0) || !(own > MEMORY_SHARE * all) || !isfinite(own)) return false;
    f->severity = HR_HIGH, f->value = own / all * 100, f->unit = "%";
    hr_say(f, finding, "the cell takes %.3g %% of the machine's memory: the system may swap", f->value);
    hr_say(f, evidence, "peak %s of %s", hr_text_size(own), hr_text_size(all));
    hr_say(f, todo, "a smaller --quant, fewer --seqs, a shorter context, or a smaller -ctk and -ctv");
    return true;
}

static double measured_seconds(const hr_case *c) {
    double sum = 0;
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(c->cell, "samples_ns"), i, v) sum += hr_or(json_number_value(v), 0) * 1e-9;
    return sum;
}

bool hr_rule_neighbour(const hr_case *c, hr_finding *f) {
    const double psi = hr_num(c->cell, "psi_cpu_some_pct"), seconds = measured_seconds(c);
    const double switches = seconds > 0 ? hr_num(c->cell, "ctx_switches") / seconds : NAN;
    const bool waited = psi > PSI_PCT || hr_report_flagged(c->cell, "noisy_neighbour"),
               switched = switches > SWITCHES_A_SECOND;
    if (!waited && !(switched && isfinite(switches))) return false;
    f->value = waited ? psi : switches, f->unit = waited ? "% of the time" : "switches a second";
    if (psi > PSI_MUCH_PCT) f->severity = HR_HIGH;
    hr_say(f, finding, "other work ran on the CPUs during the cell: its times are too long");
    if (waited && isfinite(psi))
        hr_say(f, evidence, "some task waited for a CPU during %.3g %% of the cell", psi);
    else if (waited)
        hr_say(f, evidence, "flag noisy_neighbour");
    else
        hr_say(f, evidence, "%.0f context switches a second of measured time", switches);
    hr_say(f, todo, "end other work, keep --pin 1, leave a core free (-t), measure again");
    return true;
}

static size_t flagged_samples(const json_t *samples) {
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)samples, i, row) n += json_is_string(json_object_get(row, "flags"));
    return n;
}

bool hr_rule_throttled(const hr_case *c, hr_finding *f) {
    const double clock = hr_num(c->cell, "clock_ratio");
    const bool low = clock > 0 && clock < CLOCK_LOW;
    if (!low && !hr_report_flagged(c->cell, "throttled")) return false;
    if (low) {
        f->value = clock * 100, f->unit = "% of the best clock", f->cost_pct = (1 - clock) * 100;
        hr_say(f, finding, "the clock was low");
        hr_say(f, evidence, "clock after the cell over the best seen: %.3f", clock);
    } else {
        f->severity = HR_NOTE, f->value = (double)flagged_samples(c->samples), f->unit = "repetitions";
        hr_say(f, finding, "the clock was low in some repetitions, which are left out of the figures");
        hr_say(f, evidence, "%.0f of %.0f repetitions are flagged", f->value, repetitions(c));
    }
    hr_say(
        f, todo,
        "mend cooling or the power limit; on a laptop plug it in; on a virtual machine a neighbour may hold the clock: "
        "measure again later");
    return true;
}

bool hr_rule_state_mixed(const hr_case *c, hr_finding *f) {
    if (!hr_is_word(c->cell, "state_class", "mixed")) return false;
    const double before = hr_num(c->cell, "read_gb_s_before"), after = hr_num(c->cell, "read_gb_s_after");
    f->value = fabs(after - before) / fmin(after, before) * 100, f->unit = "%";
    hr_say(f, finding, "the machine changed its state during the cell: it compares with nothing");
    hr_say(f, evidence, "read bandwidth %.3g GB/s before, %.3g after; handoff %.3g ns on average", hr_or(before, 0),
           hr_or(after, 0), hr_or(hr_num(c->cell, "handoff_ns"), 0));
    hr_say(f, todo, "measure this cell again; if that keeps on, pin the virtual machine to its cores on the host");
    return true;
}

/* Times the team of threads runs in a step, per ns of the step; NaN: not recorded. */
static double jobs_a_ns(const json_t *recorded) {
    enum { MOST = 64 };
    double jobs[MOST];
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)recorded, i, row) {
        const double a_ns = hr_num(row, "n_jobs") / hr_num(row, "on_ns");
        if (n < MOST && hr_is_word(row, "phase", "decode") && a_ns > 0 && isfinite(a_ns)) jobs[n++] = a_ns;
    }
    return n ? hr_median(jobs, n) : NAN;
}

bool hr_rule_handoff_far(const hr_case *c, hr_finding *f) {
    const double handoff = hr_num(c->cell, "handoff_ns");
    const double cost = 2 * handoff * jobs_a_ns(c->recorded) * 100; /* there and back */
    if (!hr_is_word(c->cell, "state_class", "far") || !(hr_num(c->cell, "n_threads") > 1) ||
        !(cost > HANDOFF_COST_PCT) || !isfinite(cost))
        return false;
    f->value = handoff, f->unit = "ns", f->cost_pct = cost;
    hr_say(f, finding, "the cores lie far apart (two dies): handing work over takes about %.3g %% of a decode step",
           cost);
    hr_say(f, evidence, "%.3g ns from core to core, twice for each of %.0f joins a millisecond", handoff,
           jobs_a_ns(c->recorded) * 1e6);
    hr_say(f, todo,
           "bind the program to the cores of one die (taskset; on the host for a virtual machine), or join ops "
           "(--fusion all)");
    return true;
}

bool hr_rule_governor(const hr_case *c, hr_finding *f) {
    const char *governor = hr_word(c->machine, "governor");
    if (!*governor || !strcmp(governor, "performance")) return false;
    f->severity = HR_NOTE;
    f->unit = "";
    hr_say(f, finding, "the clock follows the load (governor %.40s): short measurements begin slow", governor);
    hr_say(f, evidence, "scaling_governor %.40s", governor);
    hr_say(f, todo, "as root: cpupower frequency-set -g performance");
    return true;
}
