/* memcheck.c - how much memory may still be taken: the system's figure and the limits of the control groups (v2, v1). */
#include "engine/model/weights.h"
#include "kernels/base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

/* The number after `label` in a small text file, in its own unit; false when there is none ("max" too). */
static bool read_number(const char *path, const char *label, uint64_t *out) {
    FILE *f = hr_fault_hit(HR_FAULT_READ) ? NULL : fopen(path, "re");
    char line[256];
    bool found = false;
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f))
        found = !strncmp(line, label, strlen(label)) && sscanf(line + strlen(label), "%" SCNu64, out) == 1;
    fclose(f);
    return found;
}

/* What one group leaves: its limit less what it uses, where pages of files count as free, for they can be dropped. */
static void lower_to_group(const char *folder, const char *limit_file, const char *used_file, uint64_t *least) {
    char path[PATH_BYTES + 64];
    uint64_t limit, used = 0, active = 0, inactive = 0;
    snprintf(path, sizeof path, "%s/%s", folder, limit_file);
    if (!read_number(path, "", &limit)) return;
    snprintf(path, sizeof path, "%s/%s", folder, used_file);
    read_number(path, "", &used);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_number(path, "active_file ", &active);
    read_number(path, "inactive_file ", &inactive);
    uint64_t held = used > active + inactive ? used - active - inactive : 0;
    uint64_t free_bytes = limit > held ? limit - held : 0;
    if (free_bytes < *least) *least = free_bytes;
}

/* The group's own folder and all above it, up to the mount; inside a container the mount is the group. */
static void lower_to_groups(const char *mount, const char *group, const char *limit, const char *used,
                            uint64_t *least) {
    char folder[PATH_BYTES];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || n >= (int)sizeof folder) return;
    size_t stop = strlen(mount);
    for (;;) {
        lower_to_group(folder, limit, used, least);
        if (strlen(folder) <= stop) return;
        *strrchr(folder, '/') = 0;
    }
}

uint64_t hr_memory_available(const char *root) {
    char path[PATH_BYTES], line[PATH_BYTES], mount[PATH_BYTES];
    uint64_t least = UINT64_MAX, kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_number(path, "MemAvailable:", &kib)) least = kib * 1024;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = hr_fault_hit(HR_FAULT_READ) ? NULL : fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) { /* hierarchy:controllers:/path */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(++controllers, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (!strcmp(group, "/")) group++;
        if (!*controllers) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            lower_to_groups(mount, group, "memory.max", "memory.current", &least);
        } else if (strstr(controllers, "memory")) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
            lower_to_groups(mount, group, "memory.limit_in_bytes", "memory.usage_in_bytes", &least);
        }
    }
    if (f) fclose(f);
    return least;
}
