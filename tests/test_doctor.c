/* Every check of the doctor on made-up machines that are fit, unfit, or do not say. */
#include "tests/doctor_fixture.h"

/* ---- made-up machines -------------------------------------------------------------------------------------------- */

typedef struct file {
    const char *path, *text; /* text NULL: a folder */
} file;

enum { FILES = 8 };
typedef struct machine {
    const char *what, *check, *status, *why, *fix; /* why, fix: text that they hold; fix NULL: none */
    file files[FILES];
} machine;

static void build(const machine *m) {
    fresh_root();
    for (int i = 0; i < FILES && m->files[i].path; i++)
        put_bytes(m->files[i].path, m->files[i].text, m->files[i].text ? strlen(m->files[i].text) : 0,
                  !m->files[i].text);
}

static void expect(const json_t *result, const machine *m) {
    const json_t *check = find(result, m->check);
    if (!check) {
        if (strcmp(m->status, "absent")) fail_msg("%s: no check %s", m->what, m->check);
        return;
    }
    const char *status = json_string_value(json_object_get(check, "status"));
    const char *why = json_string_value(json_object_get(check, "why"));
    const char *fix = json_string_value(json_object_get(check, "fix"));
    if (strcmp(status, m->status)) fail_msg("%s: expected %s, got %s (%s)", m->what, m->status, status, why);
    if (!strstr(why, m->why)) fail_msg("%s: expected a reason with \"%s\", got \"%s\"", m->what, m->why, why);
    if (!m->fix != !fix || (fix && !strstr(fix, m->fix)))
        fail_msg("%s: expected the fix \"%s\", got \"%s\"", m->what, m->fix ? m->fix : "none", fix ? fix : "none");
}

static void run_all(const machine *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        build(&list[i]);
        json_t *result = examine(NULL);
        expect(result, &list[i]);
        json_decref(result);
    }
}
#define RUN_ALL(list) run_all(list, sizeof list / sizeof *list)

#define VIRTUAL \
    { "/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n" }
#define METAL \
    { "/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme lahf_lm\n" }
#define ALLOWED(list) \
    { "/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t" list "\n" }

/* ---- the CPUs ---------------------------------------------------------------------------------------------------- */

static const machine cpus[] = {
    {"governor set",
     "governor",
     "ok",
     "performance on 2 CPUs",
     NULL,
     {ALLOWED("0-1"),
      {CPU "/cpu0/cpufreq/scaling_governor", "performance\n"},
      {CPU "/cpu1/cpufreq/scaling_governor", "performance\n"}}},
    {"one CPU of two",
     "governor",
     "warn",
     "schedutil on 1 of 2 CPUs",
     "cpupower frequency-set -g performance",
     {ALLOWED("0-1"),
      {CPU "/cpu0/cpufreq/scaling_governor", "performance\n"},
      {CPU "/cpu1/cpufreq/scaling_governor", "schedutil\n"}}},
    {"a CPU that is not ours",
     "governor",
     "ok",
     "performance on 1 CPU",
     NULL,
     {ALLOWED("0"),
      {CPU "/cpu0/cpufreq/scaling_governor", "performance\n"},
      {CPU "/cpu1/cpufreq/scaling_governor", "powersave\n"}}},
    {"powersave of acpi",
     "governor",
     "bad",
     "lowest clock",
     "cpupower",
     {ALLOWED("0"),
      {CPU "/cpu0/cpufreq/scaling_governor", "powersave\n"},
      {CPU "/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n"}}},
    {"powersave of intel_pstate",
     "governor",
     "warn",
     "driver intel_pstate",
     "cpupower",
     {ALLOWED("0"),
      {CPU "/cpu0/cpufreq/scaling_governor", "powersave\n"},
      {CPU "/cpu0/cpufreq/scaling_driver", "intel_pstate\n"}}},
    {"no governor in a VM", "governor", "unknown", "a virtual machine hides it", NULL, {VIRTUAL, ALLOWED("0")}},
    {"no governor on metal", "governor", "unknown", "the kernel does not show it", NULL, {METAL, ALLOWED("0")}},

    {"turbo off", "turbo", "ok", "no_turbo 1", NULL, {{CPU "/intel_pstate/no_turbo", "1\n"}}},
    {"turbo on",
     "turbo",
     "warn",
     "turbo is on",
     "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo",
     {{CPU "/intel_pstate/no_turbo", "0\n"}}},
    {"boost off", "turbo", "ok", "boost is off", NULL, {{CPU "/cpufreq/boost", "0\n"}}},
    {"boost on",
     "turbo",
     "warn",
     "boost is on",
     "echo 0 > /sys/devices/system/cpu/cpufreq/boost",
     {{CPU "/cpufreq/boost", "1\n"}}},
    {"turbo not shown", "turbo", "unknown", "cannot be seen", NULL, {METAL}},
    {"turbo is a word", "turbo", "unknown", "cannot be seen", NULL, {{CPU "/cpufreq/boost", "yes\n"}}},

    {"SMT off",
     "smt",
     "ok",
     "off (notsupported)",
     NULL,
     {METAL, {CPU "/smt/active", "0\n"}, {CPU "/smt/control", "notsupported\n"}}},
    {"SMT on",
     "smt",
     "warn",
     "share the units",
     "echo off > /sys/devices/system/cpu/smt/control",
     {METAL, {CPU "/smt/active", "1\n"}, {CPU "/smt/control", "on\n"}}},
    {"SMT in a VM", "smt", "unknown", "does not say", NULL, {VIRTUAL, {CPU "/smt/active", "0\n"}}},
    {"SMT not shown", "smt", "unknown", "cannot be seen", NULL, {METAL}},

    {"one node", "numa", "ok", "one memory node", NULL, {METAL, {NODE "/online", "0\n"}}},
    {"on one of two nodes",
     "numa",
     "ok",
     "on node 1 of 2",
     NULL,
     {ALLOWED("4-5"), {NODE "/online", "0-1\n"}, {NODE "/node0/cpulist", "0-3\n"}, {NODE "/node1/cpulist", "4-7\n"}}},
    {"across nodes",
     "numa",
     "warn",
     "on 2 of 2 memory nodes",
     "numactl --cpunodebind=0 --membind=0",
     {ALLOWED("3-4"), {NODE "/online", "0-1\n"}, {NODE "/node0/cpulist", "0-3\n"}, {NODE "/node1/cpulist", "4-7\n"}}},
    {"pages are moved",
     "numa",
     "warn",
     "moves pages",
     "sysctl -w kernel.numa_balancing=0",
     {ALLOWED("0-3"),
      {NODE "/online", "0-1\n"},
      {NODE "/node0/cpulist", "0-3\n"},
      {NODE "/node1/cpulist", "4-7\n"},
      {"/proc/sys/kernel/numa_balancing", "1\n"}}},
    {"nodes without lists", "numa", "unknown", "is not shown", NULL, {ALLOWED("0"), {NODE "/online", "0-1\n"}}},
    {"no nodes", "numa", "unknown", "not shown", NULL, {METAL}},

    {"none isolated", "isolated_cpus", "ok", "none", NULL, {{CPU "/isolated", "\n"}}},
    {"on the isolated ones",
     "isolated_cpus",
     "ok",
     "among the isolated",
     NULL,
     {ALLOWED("2-3"), {CPU "/isolated", "2-3\n"}}},
    {"beside the isolated ones",
     "isolated_cpus",
     "warn",
     "2 of the 3 CPUs",
     "taskset -c 2-3 headroom",
     {ALLOWED("0-2"), {CPU "/isolated", "2-3\n"}}},
    {"isolation not shown", "isolated_cpus", "unknown", "does not say", NULL, {METAL}},
    {"isolation is nonsense", "isolated_cpus", "unknown", "cannot be read", NULL, {{CPU "/isolated", "3-1\n"}}},
};

static void each_check_of_cpus(void **state) {
    (void)state;
    RUN_ALL(cpus);
}

/* ---- clocks, heat, counters --------------------------------------------------------------------------------------- */

static const machine clocks[] = {
    {"tsc", "clocksource", "ok", "tsc", NULL, {{SOURCE "/current_clocksource", "tsc\n"}}},
    {"kvm-clock", "clocksource", "ok", "kvm-clock", NULL, {{SOURCE "/current_clocksource", "kvm-clock\n"}}},
    {"hpet with tsc",
     "clocksource",
     "bad",
     "hpet",
     "echo tsc > /sys/devices/system/clocksource",
     {{SOURCE "/current_clocksource", "hpet\n"}, {SOURCE "/available_clocksource", "tsc hpet acpi_pm\n"}}},
    {"hpet alone",
     "clocksource",
     "bad",
     "hpet",
     "boot with: clocksource=tsc",
     {{SOURCE "/current_clocksource", "hpet\n"}, {SOURCE "/available_clocksource", "hpet acpi_pm\n"}}},
    {"no source", "clocksource", "unknown", "does not say", NULL, {METAL}},
    {"a clock elsewhere", "timer", "unknown", "another machine", NULL, {METAL}},

    {"metal", "hypervisor", "ok", "this system's own", NULL, {METAL}},
    {"a VM", "hypervisor", "unknown", "(QEMU)", NULL, {VIRTUAL, {"/sys/class/dmi/id/sys_vendor", "QEMU\n"}}},
    {"a paravirtual one", "hypervisor", "unknown", "(xen)", NULL, {METAL, {"/sys/hypervisor/type", "xen\n"}}},
    {"the word elsewhere",
     "hypervisor",
     "ok",
     "own",
     NULL,
     {{"/proc/cpuinfo", "flags\t: fpu\nmodel name\t: a hypervisor of a CPU\n"}}},
    {"no cpuinfo", "hypervisor", "unknown", "not there", NULL, {{"/proc/self/status", "x\n"}}},

    {"nothing stolen", "steal", "ok", "0.00 %", NULL, {{"/proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1\n"}}},
    {"2 % stolen", "steal", "warn", "2.00 %", "dedicated", {{"/proc/stat", "cpu  100 0 100 780 0 0 0 20 0 0\n"}}},
    {"20 % stolen", "steal", "bad", "20.00 %", "dedicated", {{"/proc/stat", "cpu  100 0 100 600 0 0 0 200 0 0\n"}}},
    {"an old kernel", "steal", "unknown", "does not say", NULL, {{"/proc/stat", "cpu  100 0 100 600\n"}}},
    {"no time", "steal", "unknown", "no time", NULL, {{"/proc/stat", "cpu  0 0 0 0 0 0 0 0\n"}}},

    {"cool", "thermal", "ok", "at 45 C", NULL, {{"/sys/class/thermal/thermal_zone0/temp", "45000\n"}}},
    {"the hottest counts",
     "thermal",
     "warn",
     "at 95 C",
     "--delay",
     {{"/sys/class/thermal/thermal_zone0/temp", "45000\n"}, {"/sys/class/hwmon/hwmon3/temp1_input", "95000\n"}}},
    {"too hot", "thermal", "bad", "at 101 C", "--delay", {{"/sys/class/thermal/thermal_zone0/temp", "101000\n"}}},
    {"slowed before",
     "thermal",
     "warn",
     "12 times",
     "--delay",
     {{"/sys/class/thermal/thermal_zone0/temp", "45000\n"},
      {CPU "/cpu0/thermal_throttle/package_throttle_count", "12\n"}}},
    {"never slowed",
     "thermal",
     "ok",
     "was not slowed",
     NULL,
     {{CPU "/cpu0/thermal_throttle/package_throttle_count", "0\n"}}},
    {"no sensor", "thermal", "unknown", "a virtual machine hides it", NULL, {VIRTUAL}},
    {"a broken sensor",
     "thermal",
     "unknown",
     "no temperature",
     NULL,
     {METAL, {"/sys/class/thermal/thermal_zone0/temp", "-274000\n"}}},

    {"energy", "rapl", "ok", "can be read", NULL, {{"/sys/class/powercap/intel-rapl:0/energy_uj", "1234\n"}}},
    {"energy denied",
     "rapl",
     "warn",
     "cannot be read",
     "chmod a+r",
     {{"/sys/class/powercap/intel-rapl:0/energy_uj", NULL}}},
    {"no energy", "rapl", "unknown", "no driver", NULL, {METAL}},

    {"counters",
     "perf_events",
     "ok",
     "is 2",
     NULL,
     {ALLOWED("0"),
      {"/proc/sys/kernel/perf_event_paranoid", "2\n"},
      {"/sys/bus/event_source/devices/cpu/type", "4\n"}}},
    {"counters closed",
     "perf_events",
     "warn",
     "is 4",
     "sysctl -w kernel.perf_event_paranoid=2",
     {ALLOWED("0"),
      {"/proc/sys/kernel/perf_event_paranoid", "4\n"},
      {"/sys/bus/event_source/devices/cpu/type", "4\n"}}},
    {"closed, but not for root",
     "perf_events",
     "ok",
     "does not hold",
     NULL,
     {{"/proc/self/status", "CapEff:\t000001ffffffffff\n"},
      {"/proc/sys/kernel/perf_event_paranoid", "4\n"},
      {"/sys/bus/event_source/devices/cpu/type", "4\n"}}},
    {"open without counters",
     "perf_events",
     "unknown",
     "shows no counters in this virtual",
     NULL,
     {VIRTUAL, {"/proc/sys/kernel/perf_event_paranoid", "-1\n"}}},
    {"no events", "perf_events", "unknown", "no performance events", NULL, {METAL}},
};

static void each_check_of_clocks(void **state) {
    (void)state;
    RUN_ALL(clocks);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

static const machine memories[] = {
    {"on demand", "thp", "ok", "madvise", NULL, {{THP, "always [madvise] never\n"}}},
    {"always", "thp", "ok", "always", NULL, {{THP, "[always] madvise never\n"}}},
    {"never", "thp", "warn", "TLB", "echo madvise > " THP, {{THP, "always madvise [never]\n"}}},
    {"no choice", "thp", "unknown", "cannot be understood", NULL, {{THP, "always madvise never\n"}}},
    {"no huge pages", "thp", "unknown", "no transparent huge pages", NULL, {METAL}},

    {"no swap", "swap", "ok", "none", NULL, {{"/proc/meminfo", "MemTotal: 8 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"}}},
    {"unused swap",
     "swap",
     "warn",
     "2.0 GiB, unused",
     "swapoff -a",
     {{"/proc/meminfo", "SwapTotal:       2097152 kB\nSwapFree:        2097152 kB\n"}}},
    {"used swap",
     "swap",
     "bad",
     "1.0 of 2.0 GiB",
     "swapoff -a",
     {{"/proc/meminfo", "SwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n"}}},
    {"more free than there is",
     "swap",
     "unknown",
     "does not tell",
     NULL,
     {{"/proc/meminfo", "SwapTotal: 1 kB\nSwapFree: 2 kB\n"}}},
    {"no meminfo", "swap", "unknown", "does not tell", NULL, {METAL}},

    {"random addresses", "aslr", "ok", "on (2)", NULL, {{"/proc/sys/kernel/randomize_va_space", "2\n"}}},
    {"fixed addresses",
     "aslr",
     "warn",
     "off",
     "sysctl -w kernel.randomize_va_space=2",
     {{"/proc/sys/kernel/randomize_va_space", "0\n"}}},
    {"addresses unknown", "aslr", "unknown", "cannot be read", NULL, {METAL}},

    {"room",
     "memory_free",
     "ok",
     "4.0 of 8.0 GiB",
     NULL,
     {{"/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"}}},
    {"little room",
     "memory_free",
     "warn",
     "0.5 of 8.0 GiB",
     "rss",
     {{"/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 524288 kB\n"}}},
    {"no room",
     "memory_free",
     "bad",
     "0.1 of 8.0 GiB",
     "rss",
     {{"/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 102400 kB\n"}}},
    {"room unknown", "memory_free", "unknown", "does not say", NULL, {{"/proc/meminfo", "MemTotal: x kB\n"}}},

    {"calm memory",
     "psi_memory",
     "ok",
     "0.0 %",
     NULL,
     {{"/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"}}},
    {"tight memory", "psi_memory", "warn", "2.5 %", "rss", {{"/proc/pressure/memory", "some avg10=2.50 avg60=0\n"}}},
    {"thrashing", "psi_memory", "bad", "40.0 %", "rss", {{"/proc/pressure/memory", "some avg10=40.00 avg60=0\n"}}},
    {"no pressure known", "psi_memory", "unknown", "does not account", "psi=1", {METAL}},
};

static void each_check_of_memory(void **state) {
    (void)state;
    RUN_ALL(memories);
}

/* ---- limits and company ------------------------------------------------------------------------------------------- */

#define V2 \
    { "/proc/self/cgroup", "0::/job\n" }
#define V1 \
    { "/proc/self/cgroup", "5:memory:/x\n3:cpu,cpuacct:/pod\n0::/\n" }
#define LIMITS(files) \
    { "/proc/self/limits", "Limit  Soft  Hard  Units\nMax open files            " files " 4096  files\n" }
static const machine limits[] = {
    {"no quota", "cpu_quota", "ok", "no quota", NULL, {V2, {"/sys/fs/cgroup/job/cpu.max", "max 100000\n"}}},
    {"quota cuts",
     "cpu_quota",
     "bad",
     "1.50 CPUs",
     "echo max > /sys/fs/cgroup/job/cpu.max",
     {V2, ALLOWED("0-3"), {"/sys/fs/cgroup/job/cpu.max", "150000 100000\n"}}},
    {"quota of the parent",
     "cpu_quota",
     "warn",
     "2.00 CPUs",
     "echo max > /sys/fs/cgroup/cpu.max",
     {V2,
      ALLOWED("0-3"),
      {"/sys/fs/cgroup/job/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}}},
    {"quota of all CPUs",
     "cpu_quota",
     "ok",
     "enough",
     NULL,
     {V2, ALLOWED("0-1"), {"/sys/fs/cgroup/job/cpu.max", "200000 100000\n"}}},
    {"version 1 cuts",
     "cpu_quota",
     "bad",
     "1.50 CPUs",
     "echo -1 > /sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us",
     {V1,
      ALLOWED("0-3"),
      {"/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "150000\n"},
      {"/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n"}}},
    {"version 1 without",
     "cpu_quota",
     "ok",
     "no quota",
     NULL,
     {V1, {"/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n"}}},
    {"no groups", "cpu_quota", "unknown", "not there", NULL, {METAL}},

    {"all CPUs", "cpuset", "ok", "all 4", NULL, {ALLOWED("0-3"), {CPU "/online", "0-3\n"}}},
    {"some CPUs", "cpuset", "ok", "2 of 4", NULL, {ALLOWED("1,3"), {CPU "/online", "0-3\n"}}},
    {"one CPU", "cpuset", "warn", "one of 4", "taskset -c 0-3", {ALLOWED("2"), {CPU "/online", "0-3\n"}}},
    {"CPUs unknown", "cpuset", "unknown", "cannot be read", NULL, {ALLOWED("0-"), {CPU "/online", "0-3\n"}}},

    {"no limit of memory", "memory_limit", "ok", "no limit", NULL, {V2, {"/sys/fs/cgroup/job/memory.max", "max\n"}}},
    {"16 GiB", "memory_limit", "ok", "16.0 GiB", NULL, {V2, {"/sys/fs/cgroup/job/memory.max", "17179869184\n"}}},
    {"1 GiB",
     "memory_limit",
     "warn",
     "1.0 GiB",
     "higher limit",
     {V1, {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n"}}},
    {"256 MiB",
     "memory_limit",
     "bad",
     "0.2 GiB",
     "higher limit",
     {V2, {"/sys/fs/cgroup/job/memory.max", "268435456\n"}}},
    {"memory unknown", "memory_limit", "unknown", "not there", NULL, {METAL}},

    {"files enough", "open_files", "ok", "1024", NULL, {LIMITS("1024")}},
    {"files without end", "open_files", "ok", "any number", NULL, {LIMITS("unlimited")}},
    {"few files", "open_files", "warn", "64 open files", "ulimit -n", {LIMITS("64")}},
    {"files unknown", "open_files", "unknown", "cannot be read", NULL, {METAL}},
    {"files are a word", "open_files", "unknown", "cannot be understood", NULL, {LIMITS("many")}},

    {"a quiet CPU", "psi_cpu", "ok", "1.0 %", NULL, {{"/proc/pressure/cpu", "some avg10=1.00 avg60=0\n"}}},
    {"a busy CPU", "psi_cpu", "warn", "12.0 %", "%cpu", {{"/proc/pressure/cpu", "some avg10=12.00 avg60=0\n"}}},
    {"a full CPU", "psi_cpu", "bad", "88.0 %", "%cpu", {{"/proc/pressure/cpu", "some avg10=88.00 avg60=0\n"}}},
    {"no pressure", "psi_cpu", "unknown", "does not account", "psi=1", {{"/proc/pressure/cpu", "some\n"}}},
    {"a quiet disk", "psi_io", "ok", "1.0 %", NULL, {{"/proc/pressure/io", "some avg10=1.00 avg60=0\n"}}},
    {"a busy disk", "psi_io", "warn", "12.0 %", "%cpu", {{"/proc/pressure/io", "some avg10=12.00 avg60=0\n"}}},
    {"a full disk", "psi_io", "bad", "88.0 %", "%cpu", {{"/proc/pressure/io", "some avg10=88.00 avg60=0\n"}}},
    {"no pressure of disks", "psi_io", "unknown", "does not account", "psi=1", {METAL}},

    {"nobody", "others", "ok", "took nothing", NULL, {METAL}},
};

static void each_check_of_limits(void **state) {
    (void)state;
    RUN_ALL(limits);
}

/* ---- GPUs: what files say ------------------------------------------------------------------------------------------ */

#define VERSION                                                                                                       \
    {                                                                                                                 \
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 2024\n" \
                                       "GCC version:  gcc version 12.2.0\n"                                           \
    }
static const machine gpus[] = {
    {"no GPU", "gpu_driver", "ok", "no NVIDIA driver here", NULL, {METAL}},
    {"a driver", "gpu_driver", "ok", "550.54.15", NULL, {VERSION}},
    {"no driver for it",
     "gpu_driver",
     "warn",
     "on the bus",
     "modprobe nvidia",
     {{PCI "/vendor", "0x10de\n"}, {PCI "/class", "0x030200\n"}}},
    {"its sound alone",
     "gpu_driver",
     "ok",
     "no NVIDIA driver here",
     NULL,
     {{PCI "/vendor", "0x10de\n"}, {PCI "/class", "0x040300\n"}}},
    {"another's GPU",
     "gpu_driver",
     "ok",
     "no NVIDIA driver here",
     NULL,
     {{PCI "/vendor", "0x1002\n"}, {PCI "/class", "0x030000\n"}}},
    {"nothing is said of clocks", "gpu_clocks", "absent", "", NULL, {METAL}},
    {"nothing answers", "gpu_clocks", "unknown", "libnvidia-ml", NULL, {VERSION}},
    {"counters closed",
     "gpu_counters",
     "warn",
     "administrators",
     "NVreg_RestrictProfilingToAdminUsers=0",
     {VERSION, ALLOWED("0"), {"/proc/driver/nvidia/params", "A: 1\nRmProfilingAdminOnly: 1\n"}}},
    {"counters open",
     "gpu_counters",
     "ok",
     "can be read",
     NULL,
     {VERSION, ALLOWED("0"), {"/proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n"}}},
    {"counters for root",
     "gpu_counters",
     "ok",
     "an administrator",
     NULL,
     {VERSION,
      {"/proc/self/status", "CapEff:\t000001ffffffffff\n"},
      {"/proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n"}}},
    {"counters unknown", "gpu_counters", "unknown", "does not say", NULL, {VERSION}},
    {"CUDA unknown", "gpu_cuda", "unknown", "does not tell", NULL, {VERSION}},
};

static void each_check_of_gpus(void **state) {
    (void)state;
    RUN_ALL(gpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_check_of_cpus), cmocka_unit_test(each_check_of_clocks),
                                       cmocka_unit_test(each_check_of_memory), cmocka_unit_test(each_check_of_limits),
                                       cmocka_unit_test(each_check_of_gpus)};
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
