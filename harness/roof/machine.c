/* Who this machine is: what the CPU, the system and the files of /sys and /proc say. Nothing here is measured. */
#include "harness/roof/limits.h"
#include "harness/roof/microarch.h"
#include "harness/roof/roof.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static void trim(char *text) { /* surrounding spaces off, runs of them to one */
    char *to = text;
    for (const char *from = text; *from; from++) {
        bool space = *from == ' ' || *from == '\t' || *from == '\n';
        if (space && (to == text || to[-1] == ' ')) continue;
        *to++ = space ? ' ' : *from;
    }
    if (to > text && to[-1] == ' ') to--;
    *to = 0;
}

/* The value of the first "key<blanks>: value" or "key=value" line; "" when there is none. */
static void file_value(const char *path, const char *key, char *out, size_t bytes) {
    *out = 0;
    FILE *f = fopen(path, "r");
    char line[512];
    size_t n = strlen(key);
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) || !strchr(" \t:=", line[n])) continue;
        char *value = line + n + strspn(line + n, " \t:=\"");
        value[strcspn(value, "\"\n")] = 0;
        snprintf(out, bytes, "%s", value);
        trim(out);
        break;
    }
    if (f) fclose(f);
}

static void file_line(const char *path, char *out, size_t bytes) {
    *out = 0;
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (fgets(out, (int)bytes, f)) trim(out);
    fclose(f);
}

typedef struct identity {
    char vendor[16], brand[64], hypervisor[32];
    char core[32]; /* microarchitecture */
} identity;

#if defined(__x86_64__)
static void words(char *out, const unsigned *w, size_t n) {
    memcpy(out, w, n * sizeof *w);
    out[n * sizeof *w] = 0;
}

static void identify_hypervisor(identity *id) {
    static const char *const known[][2] = {
        {"KVMKVMKVM", "kvm"},     {"Microsoft Hv", "hyperv"}, {"VMwareVMware", "vmware"}, {"XenVMMXenVMM", "xen"},
        {"TCGTCGTCGTCG", "qemu"}, {"bhyve bhyve ", "bhyve"},  {"ACRNACRNACRN", "acrn"}};
    unsigned a, b, c, d, signature[3];
    snprintf(id->hypervisor, sizeof id->hypervisor, "none");
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 31))) return;
    __cpuid(0x40000000, a, signature[0], signature[1], signature[2]);
    char text[16];
    words(text, signature, 3);
    snprintf(id->hypervisor, sizeof id->hypervisor, "unknown");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(text, known[i][0])) snprintf(id->hypervisor, sizeof id->hypervisor, "%s", known[i][1]);
}

static void identify(identity *id) {
    unsigned a, b, c, d, brand[12];
    __cpuid(0, a, b, c, d);
    words(id->vendor, (unsigned[]){b, d, c}, 3);
    __cpuid(1, a, b, c, d);
    unsigned family = a >> 8 & 15, model = a >> 4 & 15, stepping = a & 15;
    if (family == 6 || family == 15) model |= (a >> 16 & 15) << 4;
    if (family == 15) family += a >> 20 & 255;
    hr_microarch_name(id->vendor, family, model, stepping, id->core, sizeof id->core);
    __cpuid(0x80000000, a, b, c, d);
    for (unsigned i = 0; a >= 0x80000004 && i < 3; i++)
        __cpuid(0x80000002 + i, brand[4 * i], brand[4 * i + 1], brand[4 * i + 2], brand[4 * i + 3]);
    if (a >= 0x80000004) words(id->brand, brand, 12);
    trim(id->brand);
    identify_hypervisor(id);
}
#else
static void identify(identity *id) {
    struct utsname u;
    char implementer[16], part[16];
    file_value("/proc/cpuinfo", "model name", id->brand, sizeof id->brand);
    file_value("/proc/cpuinfo", "CPU implementer", implementer, sizeof implementer);
    file_value("/proc/cpuinfo", "CPU part", part, sizeof part);
    snprintf(id->core, sizeof id->core, "%s%s%.8s%s%.8s", uname(&u) ? "unknown" : u.machine, *implementer ? "-" : "",
             implementer, *part ? "-" : "", part);
    snprintf(id->hypervisor, sizeof id->hypervisor, "unknown");
}
#endif

/* Systems keep a part of the memory for themselves; the next size that is sold: 4, 5, 6 or 7 times a power of two. */
static uint64_t installed_gib(uint64_t bytes) {
    uint64_t gib = bytes >> 30 << 30 == bytes ? bytes >> 30 : (bytes >> 30) + 1, step = 1;
    while (gib > 8 * step) step *= 2;
    return (gib + step - 1) / step * step;
}

static void name_class(hr_machine *m, const identity *id) {
    snprintf(m->class_name, sizeof m->class_name, "%s-%s-%uc-%llug", hr_product_line(m->cpu), id->core, m->cores,
             (unsigned long long)installed_gib(m->memory_bytes));
    for (char *c = m->class_name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9'))) *c = '-';
}

hr_status hr_machine_get(hr_machine *out) {
    memset(out, 0, sizeof *out);
    hr_cpus cpus;
    HR_TRY(hr_cpus_get(&cpus));
    out->cores = cpus.cores, out->threads = cpus.n, out->numa_nodes = cpus.numa;
    out->l1d_bytes = cpus.cache[0], out->l2_bytes = cpus.cache[1], out->l3_bytes = cpus.cache[2];
    hr_cpus_fini(&cpus);
    out->memory_bytes = hr_memory_total();

    identity id = {0};
    identify(&id);
    snprintf(out->cpu, sizeof out->cpu, "%s", *id.brand ? id.brand : id.core);
    snprintf(out->hypervisor, sizeof out->hypervisor, "%s", id.hypervisor);
    char distribution[64];
    struct utsname u;
    file_value("/etc/os-release", "PRETTY_NAME", distribution, sizeof distribution);
    if (uname(&u) == 0)
        snprintf(out->os, sizeof out->os, "%s%s%.16s %.40s", distribution, *distribution ? ", " : "", u.sysname,
                 u.release);
    file_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", out->governor, sizeof out->governor);
    for (int isa = 0; isa <= (int)hr_isa_best(); isa++) {
        size_t n = strlen(out->isas);
        snprintf(out->isas + n, sizeof out->isas - n, "%s%s", n ? " " : "", hr_isa_name((hr_isa)isa));
    }
    if (hr_cpu_features() & HR_CPU_VNNI) strcat(out->isas, " vnni");
    if (hr_cpu_features() & HR_CPU_BF16) strcat(out->isas, " bf16");
    name_class(out, &id);
    return HR_OK;
}

static json_t *text_or_null(const char *text) {
    return *text ? json_string(text) : json_null();
}
static json_t *bytes_or_null(uint64_t bytes) {
    return bytes ? json_integer((json_int_t)bytes) : json_null();
}

json_t *hr_machine_json(const hr_machine *m) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "machine_class",
                     text_or_null(m->class_name), "cpu", text_or_null(m->cpu), "os", text_or_null(m->os), "governor",
                     text_or_null(m->governor), "hypervisor", text_or_null(m->hypervisor), "cores",
                     (json_int_t)m->cores, "threads", (json_int_t)m->threads, "numa_nodes", (json_int_t)m->numa_nodes,
                     "memory_bytes", bytes_or_null(m->memory_bytes), "l1d_bytes", bytes_or_null(m->l1d_bytes),
                     "l2_bytes", bytes_or_null(m->l2_bytes), "l3_bytes", bytes_or_null(m->l3_bytes), "isas",
                     text_or_null(m->isas));
}
