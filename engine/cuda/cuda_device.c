/* cuda_device.c - which GPUs there are and what they are, asked in a process of its own.
 *
 * Who has initialized the driver may not fork and go on with it, and the harness forks cells; so a child asks, writes its
 * answer into a pipe and ends. A process that has the driver open already asks for itself. Answers are kept. */
#include "engine/cuda/driver.h"
#include "engine/engine.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES_MAX = 64 };

/* What a child writes. */
typedef struct answer {
    hr_status status;
    int n_devices; /* -1: not asked */
    hr_device_info info;
    char message[1024];
} answer;

static struct {
    pthread_mutex_t lock;
    bool counted, known[DEVICES_MAX];
    unsigned n;
    answer at[DEVICES_MAX];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- asking ---- */

/* "NVIDIA H200", 132, 140.4 GiB -> "h200-132sm-141g". */
static void name_class(hr_device_info *info) {
    const char *from = info->name;
    size_t n = 0;
    if (!strncmp(from, "NVIDIA ", 7)) from += 7;
    for (; *from && n < sizeof info->class_name - 24; from++) {
        const bool plain = isalnum((unsigned char)*from);
        if (!plain && (!n || info->class_name[n - 1] == '-')) continue;
        info->class_name[n++] = plain ? (char)tolower((unsigned char)*from) : '-';
    }
    if (n && info->class_name[n - 1] == '-') n--;
    const double gib = (double)info->memory_bytes / (double)(1 << 30);
    snprintf(info->class_name + n, sizeof info->class_name - n, "-%usm-%.0fg", info->sms, ceil(gib));
}

static void format_uuid(const CUuuid *id, char out[48]) {
    const unsigned char *b = (const unsigned char *)id->bytes;
    size_t n = (size_t)snprintf(out, 48, "GPU");
    for (int i = 0; i < 16; i++)
        n += (size_t)snprintf(out + n, 48 - n, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              b[i]);
}

static hr_status attribute(const hr_driver *d, CUdevice device, CUdevice_attribute what, uint32_t *out) {
    int value = 0;
    HR_CU(d, cuDeviceGetAttribute(&value, what, device));
    *out = value > 0 ? (uint32_t)value : 0;
    return HR_OK;
}

static hr_status ask(int ordinal, hr_device_info *info) {
    const hr_driver *d;
    CUdevice device;
    size_t total = 0, left = 0;
    uint32_t l2 = 0, clock_khz = 0, memory_khz = 0;
    CUuuid uuid = {{0}};
    HR_TRY(hr_driver_open(&d));
    HR_TRY(hr_driver_context(ordinal, &device, NULL));
    *info = (hr_device_info){.driver = (uint32_t)d->version, .simulated = d->simulated};
    HR_CU(d, cuDeviceGetName(info->name, (int)sizeof info->name, device));
    HR_CU(d, cuDeviceTotalMem(&total, device));
    HR_CU(d, cuMemGetInfo(&left, &total));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->major));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->minor));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->sms));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &clock_khz));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &memory_khz));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &info->memory_bus_bits));
    HR_TRY(attribute(d, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info->smem_optin));
    if (d->cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS) format_uuid(&uuid, info->uuid);
    info->memory_bytes = total, info->free_bytes = left, info->l2_bytes = l2;
    info->clock_mhz = clock_khz / 1000, info->memory_clock_mhz = memory_khz / 1000;
    /* two transfers a clock */
    info->datasheet_read_gb_s =
        memory_khz && info->memory_bus_bits ? 2e3 * memory_khz * (info->memory_bus_bits / 8) / 1e9 : NAN;
    name_class(info);
    return HR_OK;
}

static hr_status count(int *n) {
    const hr_driver *d;
    HR_TRY(hr_driver_open(&d));
    HR_CU(d, cuDeviceGetCount(n));
    return HR_OK;
}

/* What is asked of device `ordinal`; -1: how many there are. */
static void ask_here(int ordinal, answer *a) {
    *a = (answer){.n_devices = -1};
    a->status = ordinal < 0 ? count(&a->n_devices) : ask(ordinal, &a->info);
    if (a->status != HR_OK) snprintf(a->message, sizeof a->message, "%s", hr_error());
}

/* ---- in a child ---- */

static bool write_all(int fd, const void *from, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t wrote = write(fd, (const char *)from + done, n - done);
        if (wrote < 0 && errno != EINTR) return false;
        if (wrote > 0) done += (size_t)wrote;
    }
    return true;
}

static bool read_all(int fd, void *to, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = read(fd, (char *)to + done, n - done);
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) done += (size_t)got;
    }
    return true;
}

static void child(int fd, int ordinal) {
    static answer a;
    signal(SIGPIPE, SIG_DFL);
    ask_here(ordinal, &a);
    _exit(write_all(fd, &a, sizeof a) ? 0 : 1);
}

static void ask_in_a_child(int ordinal, answer *a) {
    int ends[2], how = 0;
    *a = (answer){.status = HR_ERR_INTERNAL, .n_devices = -1};
    if (pipe(ends)) {
        snprintf(a->message, sizeof a->message, "no pipe to ask the driver: %s", strerror(errno));
        return;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(ends[1], ordinal);
    }
    close(ends[1]);
    const bool answered = pid > 0 && read_all(ends[0], a, sizeof *a);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    if (answered) return;
    *a = (answer){.status = HR_ERR_UNSUPPORTED, .n_devices = -1};
    if (pid < 0)
        snprintf(a->message, sizeof a->message, "no process to ask the driver: %s", strerror(errno));
    else
        snprintf(a->message, sizeof a->message, "the driver ended the process that asked it (%s %d)",
                 WIFSIGNALED(how) ? "signal" : "status", WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
}

static void find_out(int ordinal, answer *a) {
    if (hr_driver_is_open())
        ask_here(ordinal, a);
    else
        ask_in_a_child(ordinal, a);
}

/* ---- the answers ---- */

hr_status hr_device_get_info(int device, hr_device_info *out) {
    if (device < 0 || device >= DEVICES_MAX) HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:%d: there is no such device", device);
    pthread_mutex_lock(&kept.lock);
    answer *a = &kept.at[device];
    if (!kept.known[device]) find_out(device, a);
    kept.known[device] = a->status == HR_OK;
    const hr_status status = a->status;
    *out = a->info;
    char message[sizeof a->message];
    snprintf(message, sizeof message, "%s", a->message);
    pthread_mutex_unlock(&kept.lock);
    if (status != HR_OK) HR_FAIL(status, "cuda:%d: %s", device, message);
    return HR_OK;
}

unsigned hr_device_count(void) {
    static answer a;
    pthread_mutex_lock(&kept.lock);
    if (!kept.counted) {
        find_out(-1, &a);
        kept.counted = a.status == HR_OK;
        kept.n = kept.counted && a.n_devices > 0 ? (unsigned)a.n_devices : 0;
    }
    const unsigned n = kept.n;
    pthread_mutex_unlock(&kept.lock);
    return n;
}
