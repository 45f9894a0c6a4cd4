/* Files of the patient, read without trust, and lists of CPUs. */
#include "harness/doctor/doctor_check.h"

#include "kernels/base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 1024, TEXT = 65536 };

const char *const hr_fitness_names[HR_FIT_COUNT] = {"ok", "warn", "bad", "unknown", "absent"};

void hr_find(hr_finding *out, hr_fitness fitness, const char *why, ...) {
    va_list args;
    va_start(args, why);
    vsnprintf(out->why, sizeof out->why, why, args);
    va_end(args);
    out->fitness = fitness;
}

void hr_find_fix(hr_finding *out, const char *fix, ...) {
    va_list args;
    va_start(args, fix);
    vsnprintf(out->fix, sizeof out->fix, fix, args);
    va_end(args);
}

char *hr_doctor_text(const hr_patient *p, const char *path) {
    char whole[PATH];
    if (snprintf(whole, sizeof whole, "%s%s", p->root, path) >= PATH) return NULL;
    FILE *f = fopen(whole, "r");
    if (!f) return NULL;
    char *text = hr_malloc(TEXT + 1);
    const size_t n = text ? fread(text, 1, TEXT, f) : 0;
    fclose(f);
    if (!n) {
        hr_free(text);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if ((text[i] < ' ' || text[i] > '~') && text[i] != '\n' && text[i] != '\t') text[i] = '?';
    text[n] = 0;
    return text;
}

/* Copies a line that begins at `from`, without blanks around it. */
static bool copy_line(const char *from, char *out, size_t size) {
    from += strspn(from, " \t");
    size_t n = strcspn(from, "\n");
    while (n && (from[n - 1] == ' ' || from[n - 1] == '\t')) n--;
    if (n >= size) n = size - 1;
    memcpy(out, from, n);
    out[n] = 0;
    for (char *c = out; *c; c++)
        if (*c == '\t') *c = ' ';
    return n > 0;
}

bool hr_doctor_line(const hr_patient *p, const char *path, char *out, size_t size) {
    *out = 0;
    char *text = hr_doctor_text(p, path);
    const bool ok = text && copy_line(text, out, size);
    hr_free(text);
    return ok;
}

bool hr_doctor_number(const hr_patient *p, const char *path, double *out) {
    char line[64], *end;
    if (!hr_doctor_line(p, path, line, sizeof line)) return false;
    *out = strtod(line, &end);
    return end != line && *out == *out;
}

/* The first line that begins with key, behind it. */
static const char *behind_key(const char *text, const char *key) {
    const size_t n = strlen(key);
    while (text && *text) {
        if (!strncmp(text, key, n) && strchr(" \t:", text[n])) return text + n + strspn(text + n, " \t:");
        text = strchr(text, '\n');
        if (text) text++;
    }
    return NULL;
}

bool hr_doctor_value(const hr_patient *p, const char *path, const char *key, char *out, size_t size) {
    *out = 0;
    char *text = hr_doctor_text(p, path);
    const char *value = text ? behind_key(text, key) : NULL;
    const bool ok = value && copy_line(value, out, size);
    hr_free(text);
    return ok;
}

bool hr_doctor_exists(const hr_patient *p, const char *path) {
    char whole[PATH];
    return snprintf(whole, sizeof whole, "%s%s", p->root, path) < PATH && access(whole, F_OK) == 0;
}

bool hr_doctor_is_virtual(const hr_patient *p) {
    char *text = hr_doctor_text(p, "/proc/cpuinfo");
    const char *flags = text ? behind_key(text, "flags") : NULL, *word = flags ? strstr(flags, " hypervisor") : NULL;
    const char *end = flags ? strchr(flags, '\n') : NULL;
    const bool is = word && (!end || word < end);
    hr_free(text);
    return is;
}

bool hr_doctor_capable(const hr_patient *p, unsigned bit) {
    char value[32];
    return hr_doctor_value(p, "/proc/self/status", "CapEff", value, sizeof value) &&
           strtoull(value, NULL, 16) >> bit & 1;
}

bool hr_doctor_pressure(const hr_patient *p, const char *path, double *avg10) {
    char value[128];
    return hr_doctor_value(p, path, "some", value, sizeof value) && sscanf(value, "avg10=%lf", avg10) == 1 &&
           *avg10 >= 0;
}

/* ---- lists of CPUs ---------------------------------------------------------------------------------------------- */

bool hr_cpu_list_parse(const char *text, hr_cpu_list *out) {
    memset(out, 0, sizeof *out);
    text += strspn(text, " \t");
    while (*text) {
        char *end;
        if (*text < '0' || *text > '9') return false;
        const unsigned long first = strtoul(text, &end, 10);
        unsigned long last = first;
        if (*end == '-') {
            if (end[1] < '0' || end[1] > '9') return false;
            last = strtoul(end + 1, &end, 10);
        }
        if (last < first || last >= HR_CPU_LIMIT) return false;
        for (unsigned long i = first; i <= last; i++) {
            out->n += !hr_cpu_list_has(out, (unsigned)i);
            out->bits[i / 64] |= 1ull << i % 64;
        }
        if (*end && *end != ',') return false;
        text = *end ? end + 1 : end;
    }
    return true;
}

bool hr_cpu_list_has(const hr_cpu_list *list, unsigned cpu) {
    return cpu < HR_CPU_LIMIT && list->bits[cpu / 64] >> cpu % 64 & 1;
}

bool hr_doctor_allowed(const hr_patient *p, hr_cpu_list *out) {
    char text[1024];
    return hr_doctor_value(p, "/proc/self/status", "Cpus_allowed_list", text, sizeof text) &&
           hr_cpu_list_parse(text, out) && out->n;
}
