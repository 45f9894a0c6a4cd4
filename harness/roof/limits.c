#include "harness/roof/limits.h"

#include "kernels/base/memory.h"

#include <hwloc.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hwloc_obj_t cache_above(hwloc_topology_t topology, hwloc_obj_t pu, hwloc_obj_type_t type) {
    return hwloc_get_ancestor_obj_by_type(topology, type, pu);
}

static void read_caches(hwloc_topology_t topology, hwloc_const_cpuset_t allowed, hr_cpus *out) {
    hwloc_obj_t pu = hwloc_get_next_obj_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_PU, NULL);
    if (!pu) return;
    hwloc_obj_t l1 = cache_above(topology, pu, HWLOC_OBJ_L1CACHE), l2 = cache_above(topology, pu, HWLOC_OBJ_L2CACHE);
    if (l1) out->cache[0] = l1->attr->cache.size;
    if (l2) out->cache[1] = l2->attr->cache.size;
    for (hwloc_obj_t l3 = NULL; (l3 = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, l3));)
        if (hwloc_bitmap_intersects(l3->cpuset, allowed)) out->cache[2] += l3->attr->cache.size;
}

/* The k-th CPU of every core that has so many, for k = 0, 1, ...: siblings share the units that the probes measure. */
static void order_cpus(hwloc_topology_t topology, hwloc_const_cpuset_t allowed, hr_cpus *out) {
    unsigned total = out->n;
    out->n = 0;
    for (unsigned k = 0; out->n < total && k < total; k++) {
        for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));) {
            unsigned nth = 0, id;
            hwloc_bitmap_foreach_begin(id, core->cpuset) {
                if (hwloc_bitmap_isset(allowed, id) && nth++ == k && out->n < total) out->ids[out->n++] = id;
            }
            hwloc_bitmap_foreach_end();
        }
        if (k == 0) out->cores = out->n;
    }
    if (out->n < total) { /* no cores in the topology: as numbered */
        unsigned id;
        out->n = 0;
        hwloc_bitmap_foreach_begin(id, allowed) out->ids[out->n++] = id;
        hwloc_bitmap_foreach_end();
        out->cores = out->n;
    }
}

hr_status hr_cpus_get(hr_cpus *out) {
    memset(out, 0, sizeof *out);
    hr_status status = HR_OK;
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology)) HR_FAIL(HR_ERR_MEMORY, "machine: no memory for the CPU topology");
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (!allowed || hwloc_topology_load(topology) ||
        (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) || hwloc_bitmap_iszero(allowed))) {
        status = hr_fail(HR_ERR_UNSUPPORTED, "machine: the CPU topology cannot be read; is /sys mounted?");
        goto done;
    }
    hwloc_bitmap_and(allowed, allowed, hwloc_topology_get_allowed_cpuset(topology));
    out->n = (unsigned)hwloc_bitmap_weight(allowed);
    out->ids = hr_calloc(out->n, sizeof *out->ids);
    if (!out->ids) {
        status = hr_fail(HR_ERR_MEMORY, "machine: no memory for the list of CPUs");
        goto done;
    }
    order_cpus(topology, allowed, out);
    double quota = ceil(hr_cgroup_cpus("")); /* more threads than that would be stopped in the middle of a period */
    if (quota < out->n) out->n = quota < 1 ? 1 : (unsigned)quota;
    if (out->cores > out->n) out->cores = out->n;
    read_caches(topology, allowed, out);
    for (hwloc_obj_t node = NULL; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
        out->numa += (unsigned)hwloc_bitmap_intersects(node->cpuset, allowed);
done:
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return status;
}

void hr_cpus_fini(hr_cpus *cpus) {
    hr_free(cpus->ids);
    cpus->ids = NULL;
}

enum { PATH = 1024 };

/* The first line of a small file into text; false when there is none. */
static bool first_line(const char *path, char *text, int bytes) {
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(text, bytes, f) != NULL;
    fclose(f);
    return ok;
}

/* What one folder of a control group grants, by the kind of limit; the type's "none" where it sets no limit. */
typedef double limit_fn(const char *folder);

static double folder_cpus(const char *folder) {
    char path[PATH + 32], text[128];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (first_line(path, text, sizeof text))
        return sscanf(text, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 ? quota / period : INFINITY;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!first_line(path, text, sizeof text) || sscanf(text, "%lf", &quota) != 1 || quota <= 0) return INFINITY;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!first_line(path, text, sizeof text) || sscanf(text, "%lf", &period) != 1 || period <= 0) return INFINITY;
    return quota / period;
}

static double folder_memory(const char *folder) {
    static const char *const files[] = {"memory.max", "memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[PATH + 32], text[128];
        double bytes;
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (first_line(path, text, sizeof text)) return sscanf(text, "%lf", &bytes) == 1 ? bytes : INFINITY;
    }
    return INFINITY;
}

/* The tightest limit from the folder base/group up to base. */
static double tightest(const char *base, const char *group, limit_fn *limit) {
    char folder[PATH];
    snprintf(folder, sizeof folder, "%s%s", base, group);
    size_t floor = strlen(base);
    double least = INFINITY;
    for (;;) {
        least = fmin(least, limit(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < floor) break;
        *slash = 0;
    }
    return fmin(least, limit(base));
}

/* Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has id 0 and no controllers. */
static double cgroup_limit(const char *root, const char *controller, limit_fn *limit) {
    char path[PATH], line[PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    double least = INFINITY;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0, controllers++;
        char base[PATH / 2];
        if (!*controllers) {
            snprintf(base, sizeof base, "%s/sys/fs/cgroup", root);
            least = fmin(least, tightest(base, group, limit));
            continue;
        }
        for (char *save, *word = strtok_r(controllers, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
            if (strcmp(word, controller)) continue;
            snprintf(base, sizeof base, "%s/sys/fs/cgroup/%s", root, controller);
            least = fmin(least, tightest(base, group, limit));
        }
    }
    if (f) fclose(f);
    return least;
}

double hr_cgroup_cpus(const char *root) {
    return cgroup_limit(root, "cpu", folder_cpus);
}

uint64_t hr_cgroup_memory(const char *root) {
    double bytes = cgroup_limit(root, "memory", folder_memory);
    return bytes < 0x1p60 ? (uint64_t)bytes : UINT64_MAX; /* version 1 writes "no limit" as a huge number */
}

uint64_t hr_memory_total(void) {
    char line[128];
    uint64_t kib;
    if (!first_line("/proc/meminfo", line, sizeof line) || sscanf(line, "MemTotal: %" SCNu64, &kib) != 1) return 0;
    return kib << 10;
}
