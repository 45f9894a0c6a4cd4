/* tune_cache.c - the answer of a measurement in a small file of text: key, lanes, both rates. */
#include "engine/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Changed when the measurement or the file's form changes. */
#define MAGIC "headroom-tune 1"

/* The value of a line "name : value" of /proc/cpuinfo, without spaces; "?" where there is none. */
static void cpu_word(const char *text, const char *name, char *out, size_t n) {
    snprintf(out, n, "?");
    const size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, name, len) || (line[len] != '\t' && line[len] != ' ' && line[len] != ':')) continue;
        const char *value = strchr(line, ':');
        if (!value) return;
        value += strspn(value, ": \t");
        size_t w = strcspn(value, "\n");
        if (w >= n) w = n - 1;
        for (size_t i = 0; i < w; i++) out[i] = value[i] == ' ' ? '_' : value[i];
        out[w] = 0;
        return;
    }
}

void hr_tune_key(const hr_width_pair *pair, char *out, size_t n) {
    static const char *const names[] = {"vendor_id", "cpu family", "model", "stepping", "microcode", "model name"};
    char text[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    const size_t got = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[got] = 0;
    if (f) fclose(f);
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && used < n; i++) {
        char word[64];
        cpu_word(text, names[i], word, sizeof word);
        used += (size_t)snprintf(out + used, n - used, "%s ", word);
    }
    if (used < n)
        snprintf(out + used, n - used, "%s %x %s %s", hr_isa_name(hr_isa_best()), hr_cpu_features(), pair->narrow->name,
                 pair->wide->name);
}

bool hr_tune_path(const char *key, char *out, size_t n) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a: names the file; the key inside decides */
    for (const char *c = key; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    int w;
    if (xdg && xdg[0] == '/')
        w = snprintf(out, n, "%s/headroom/lanes-%016" PRIx64, xdg, h);
    else if (home && home[0] == '/')
        w = snprintf(out, n, "%s/.cache/headroom/lanes-%016" PRIx64, home, h);
    else
        return false;
    return w > 0 && (size_t)w < n;
}

bool hr_tune_load(const char *path, const char *key, hr_tuning *out) {
    char text[2048], end[8] = "";
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char head[1024];
    const int w = snprintf(head, sizeof head, MAGIC "\n%s\n", key);
    if (w < 0 || (size_t)w >= sizeof head || strncmp(text, head, (size_t)w)) return false;
    unsigned lanes;
    double narrow, wide;
    if (sscanf(text + w, "lanes %u narrow %lf wide %lf %7s", &lanes, &narrow, &wide, end) != 4 || strcmp(end, "end"))
        return false;
    if ((lanes != 256 && lanes != 512) || !(narrow > 0) || !(wide > 0) || !isfinite(narrow) || !isfinite(wide))
        return false;
    out->lanes = lanes, out->narrow_gop_s = narrow, out->wide_gop_s = wide;
    return true;
}

/* Every folder above the file. */
static bool make_folders(const char *path) {
    char part[1024];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) return false;
    for (char *c = part + 1; *c; c++) {
        if (*c != '/') continue;
        *c = 0;
        if (mkdir(part, 0700) && errno != EEXIST) return false;
        *c = '/';
    }
    return true;
}

bool hr_tune_store(const char *path, const char *key, const hr_tuning *t) {
    char beside[1100], text[2048];
    const int n = snprintf(text, sizeof text, MAGIC "\n%s\nlanes %u narrow %.1f wide %.1f end\n", key, t->lanes,
                           t->narrow_gop_s, t->wide_gop_s);
    if (n < 0 || (size_t)n >= sizeof text || !make_folders(path)) return false;
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid()); /* one process writes its own file */
    const int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return false;
    bool ok = write(fd, text, (size_t)n) == n;
    ok = close(fd) == 0 && ok;
    ok = ok && rename(beside, path) == 0;
    if (!ok) unlink(beside);
    return ok;
}
