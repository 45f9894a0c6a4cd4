/* NVIDIA GPUs: what files of the driver say, what its management library says, and verdicts on both.
 *
 * The libraries are opened at run time, so that the program needs none. Sources: NVML API Reference (nvml.h) for bits of
 * reasons; CUDA Driver API for cuDriverGetVersion. */
#include "harness/doctor/doctor_check.h"
#include "harness/doctor/doctor_judge.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum { CAP_SYS_ADMIN_BIT = 21, DISPLAY_CLASS = 3, NVIDIA = 0x10de };

static bool nvidia_on_pci(const hr_patient *p) {
    char path[512], line[32];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", p->root);
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        if (*entry->d_name == '.') continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.64s/vendor", entry->d_name);
        if (!hr_doctor_line(p, path, line, sizeof line) || strtoul(line, NULL, 16) != NVIDIA) continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.64s/class", entry->d_name);
        found = hr_doctor_line(p, path, line, sizeof line) && strtoul(line, NULL, 16) >> 16 == DISPLAY_CLASS;
    }
    if (folder) closedir(folder);
    return found;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...": the first word like 550.54. */
static void driver_version(const hr_patient *p, char *out, size_t size) {
    char line[256], *save = NULL;
    *out = 0;
    if (!hr_doctor_value(p, "/proc/driver/nvidia/version", "NVRM version", line, sizeof line)) return;
    for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (*word >= '1' && *word <= '9' && strchr(word, '.')) {
            snprintf(out, size, "%s", word);
            return;
        }
    snprintf(out, size, "unknown version");
}

void hr_gpu_facts_of_files(const hr_patient *p, hr_gpu_facts *out) {
    memset(out, 0, sizeof *out);
    char value[16];
    out->cuda = out->admin_only = -1;
    out->on_pci = nvidia_on_pci(p);
    driver_version(p, out->driver, sizeof out->driver);
    if (hr_doctor_value(p, "/proc/driver/nvidia/params", "RmProfilingAdminOnly", value, sizeof value))
        out->admin_only = atoi(value) != 0;
    out->admin = hr_doctor_capable(p, CAP_SYS_ADMIN_BIT);
}

/* ---- libraries --------------------------------------------------------------------------------------------------- */

static void ask_nvml(hr_gpu_facts *out) {
    hr_gpu_survey survey;
    if (hr_gpu_survey_get(&survey) != HR_OK) return;
    if (!*out->driver) memcpy(out->driver, survey.driver, sizeof out->driver);
    out->asked = true;
    out->n = (int)survey.n;
    memcpy(out->devices, survey.devices, sizeof out->devices);
}

static void ask_cuda(hr_gpu_facts *out) {
    const char *file = getenv("HEADROOM_LIBCUDA");
    void *library = dlopen(file && *file ? file : "libcuda.so.1", RTLD_LAZY);
    if (!library) return;
    int (*version)(int *), value;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    memcpy(&version, &symbol, sizeof symbol);
    if (symbol && version(&value) == 0) out->cuda = value;
    dlclose(library);
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

void hr_judge_gpu_driver(const hr_gpu_facts *f, hr_finding *out) {
    if (*f->driver) {
        hr_find(out, HR_FIT_OK, "NVIDIA driver %s", f->driver);
    } else if (f->on_pci) {
        hr_find(out, HR_FIT_WARN, "an NVIDIA GPU is on the bus, but no driver is loaded for it");
        hr_find_fix(out, "install NVIDIA's driver for it, then: modprobe nvidia");
    } else {
        hr_find(out, HR_FIT_OK, "no NVIDIA driver here, and no GPU that needs one");
    }
}

/* Without a driver there is nothing to say; with one that does not answer, nothing is known. */
static bool nothing_known(const hr_gpu_facts *f, hr_finding *out) {
    if (!*f->driver) {
        hr_find(out, HR_FIT_ABSENT, "no NVIDIA driver here");
        return true;
    }
    if (f->asked && f->n) return false;
    hr_find(out, HR_FIT_UNKNOWN, f->asked ? "the driver lists no GPU" : "libnvidia-ml.so.1 does not answer");
    return true;
}

/* Bits: 0x02 clocks set by the user; 0x04 power cap; 0x08, 0x40, 0x80 hardware (any, heat, power brake); 0x20 heat. */
void hr_judge_gpu_clocks(const hr_gpu_facts *f, hr_finding *out) {
    enum { SET = 0x02, POWER = 0x04, SLOWED = 0x08 | 0x20 | 0x40 | 0x80 };
    if (nothing_known(f, out)) return;
    int worst = -1, free_one = -1, mute = -1;
    for (int i = 0; i < f->n; i++) {
        const int64_t bits = f->devices[i].reasons;
        if (bits < 0)
            mute = i;
        else if (bits & (SLOWED | POWER))
            worst = i;
        else if (!(bits & SET))
            free_one = i;
    }
    if (worst >= 0) {
        const hr_gpu_listed *d = &f->devices[worst];
        const bool hot = d->reasons & SLOWED;
        hr_find(out, hot ? HR_FIT_BAD : HR_FIT_WARN, "GPU %d is slowed down to %d of %d MHz by %s", worst, d->sm_mhz,
                d->max_sm_mhz, hot ? "heat or its hardware" : "the power cap");
        hr_find_fix(out, "nvidia-smi -i %d -q -d PERFORMANCE; lock a clock that it can hold: nvidia-smi -i %d -lgc MHZ",
                    worst, worst);
    } else if (mute >= 0) {
        hr_find(out, HR_FIT_UNKNOWN, "GPU %d does not say what holds its clock", mute);
    } else if (free_one >= 0) {
        const hr_gpu_listed *d = &f->devices[free_one];
        hr_find(out, HR_FIT_WARN, "the clock of GPU %d is free: %d MHz now, %d at most", free_one, d->sm_mhz,
                d->max_sm_mhz);
        hr_find_fix(out, "nvidia-smi -i %d -lgc %d", free_one, d->max_sm_mhz > 0 ? d->max_sm_mhz * 3 / 4 : 1200);
    } else {
        hr_find(out, HR_FIT_OK, "clocks are set (%d MHz now)", f->devices[0].sm_mhz);
    }
}

/* The first device whose value is 0, else the first that does not tell; -1: all are 1. */
static int first_off(const hr_gpu_facts *f, size_t offset, bool *unknown) {
    int mute = -1;
    for (int i = 0; i < f->n; i++) {
        int value;
        memcpy(&value, (const char *)&f->devices[i] + offset, sizeof value);
        if (value == 0) {
            *unknown = false;
            return i;
        }
        if (value < 0 && mute < 0) mute = i;
    }
    *unknown = mute >= 0;
    return mute;
}

void hr_judge_gpu_persistence(const hr_gpu_facts *f, hr_finding *out) {
    if (nothing_known(f, out)) return;
    bool unknown;
    const int i = first_off(f, offsetof(hr_gpu_listed, persistence), &unknown);
    if (i < 0) {
        hr_find(out, HR_FIT_OK, "persistence mode is on");
    } else if (unknown) {
        hr_find(out, HR_FIT_UNKNOWN, "GPU %d does not tell its persistence mode", i);
    } else {
        hr_find(out, HR_FIT_WARN,
                "off on GPU %d: the driver sets it up anew for every process, and drops clock settings", i);
        hr_find_fix(out, "nvidia-smi -i %d -pm 1", i);
    }
}

void hr_judge_gpu_ecc(const hr_gpu_facts *f, hr_finding *out) {
    if (nothing_known(f, out)) return;
    bool unknown;
    const int i = first_off(f, offsetof(hr_gpu_listed, ecc), &unknown);
    if (i < 0) {
        hr_find(out, HR_FIT_OK, "ECC is on");
    } else if (unknown) {
        hr_find(out, HR_FIT_UNKNOWN, "GPU %d has no ECC or does not tell", i);
    } else {
        hr_find(out, HR_FIT_WARN, "off on GPU %d: bandwidth is not that of such a card in a data centre", i);
        hr_find_fix(out, "nvidia-smi -i %d -e 1; reboot", i);
    }
}

void hr_judge_gpu_counters(const hr_gpu_facts *f, hr_finding *out) {
    if (!*f->driver) {
        hr_find(out, HR_FIT_ABSENT, "no NVIDIA driver here");
    } else if (f->admin_only < 0) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/driver/nvidia/params does not say who may read counters");
    } else if (f->admin_only && !f->admin) {
        hr_find(out, HR_FIT_WARN, "counters of kernels are for administrators: ncu will fail with ERR_NVGPUCTRPERM");
        hr_find_fix(out, "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
                         "/etc/modprobe.d/nvidia-counters.conf; reboot");
    } else {
        hr_find(out, HR_FIT_OK, "counters of kernels can be read%s",
                f->admin_only ? " by this user, an administrator" : "");
    }
}

void hr_judge_gpu_cuda(const hr_gpu_facts *f, hr_finding *out) {
    const int major = f->cuda / 1000, minor = f->cuda % 1000 / 10;
    if (f->cuda > 0 && *f->driver)
        hr_find(out, HR_FIT_OK, "the driver supports CUDA %d.%d", major, minor);
    else if (f->cuda > 0)
        hr_find(out, HR_FIT_UNKNOWN, "a library for CUDA %d.%d is installed, but no driver is loaded", major, minor);
    else if (*f->driver)
        hr_find(out, HR_FIT_UNKNOWN, "libcuda.so.1 does not tell its version");
    else
        hr_find(out, HR_FIT_ABSENT, "no NVIDIA driver here");
}

void hr_judge_gpu_others(const hr_gpu_facts *f, hr_finding *out) {
    if (nothing_known(f, out)) return;
    int busiest = 0;
    for (int i = 1; i < f->n; i++)
        if (f->devices[i].busy_pct > f->devices[busiest].busy_pct) busiest = i;
    const int percent = f->devices[busiest].busy_pct;
    if (percent < 0) {
        hr_find(out, HR_FIT_UNKNOWN, "GPUs do not tell how busy they are");
        return;
    }
    hr_find(out, percent > 5 ? HR_FIT_BAD : HR_FIT_OK, "GPU %d is busy for %d %% of the time with work of others",
            busiest, percent);
    if (percent > 5) hr_find_fix(out, "nvidia-smi -i %d; end what is not needed", busiest);
}

/* ---- checks: each asks anew, which takes some milliseconds -------------------------------------------------------- */

static void facts_of(const hr_patient *p, bool libraries, hr_gpu_facts *out) {
    hr_gpu_facts_of_files(p, out);
    if (*p->root || !libraries) return;
    ask_cuda(out);
    ask_nvml(out);
}

static void check_driver(const hr_patient *p, hr_finding *out) {
    hr_gpu_facts f;
    facts_of(p, false, &f);
    hr_judge_gpu_driver(&f, out);
}

#define GPU_CHECK(what)                                              \
    static void check_##what(const hr_patient *p, hr_finding *out) { \
        hr_gpu_facts f;                                              \
        facts_of(p, true, &f);                                       \
        hr_judge_gpu_##what(&f, out);                                \
    }
GPU_CHECK(cuda)
GPU_CHECK(clocks)
GPU_CHECK(persistence)
GPU_CHECK(ecc)
GPU_CHECK(counters)
GPU_CHECK(others)

const hr_check hr_checks_gpu[] = {{"gpu_driver", check_driver, false}, {"gpu_cuda", check_cuda, true},
                                  {"gpu_clocks", check_clocks, true},  {"gpu_persistence", check_persistence, true},
                                  {"gpu_ecc", check_ecc, true},        {"gpu_counters", check_counters, true},
                                  {"gpu_others", check_others, true},  {NULL, NULL, false}};
