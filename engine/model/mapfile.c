#include "engine/model/mapfile.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_read(void) {
    errno = EIO;
    return -1;
}

static int read_open(const char *path) {
    /* O_NONBLOCK: a FIFO without a writer must not hang the program; regular files ignore it. */
    return hr_fault_hit(HR_FAULT_READ) ? fail_read() : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static int read_stat(int fd, struct stat *st) {
    return hr_fault_hit(HR_FAULT_READ) ? fail_read() : fstat(fd, st);
}

static void *read_map(int fd, size_t size) {
    if (hr_fault_hit(HR_FAULT_READ)) return fail_read(), MAP_FAILED;
    return mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
}

static hr_status map(const char *path, int fd, hr_mapfile *out) {
    struct stat st;
    if (read_stat(fd, &st)) HR_FAIL(HR_ERR_IO, "%s: cannot ask for its size: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) HR_FAIL(HR_ERR_INPUT, "%s: is a folder; give the path of a GGUF file in it", path);
    if (!S_ISREG(st.st_mode)) HR_FAIL(HR_ERR_INPUT, "%s: is a pipe or device; a model must be a regular file", path);
    if (st.st_size == 0) HR_FAIL(HR_ERR_INPUT, "%s: is empty (0 bytes); fetch the model again", path);
    void *data = read_map(fd, (size_t)st.st_size);
    if (data == MAP_FAILED)
        HR_FAIL(HR_ERR_IO, "%s: cannot map its %lld bytes: %s", path, (long long)st.st_size, strerror(errno));
    *out = (hr_mapfile){data, (size_t)st.st_size};
    return HR_OK;
}

hr_status hr_mapfile_open(const char *path, hr_mapfile *out) {
    *out = (hr_mapfile){0};
    int fd = read_open(path);
    if (fd < 0) HR_FAIL(HR_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    hr_status status = map(path, fd, out);
    close(fd);
    return status;
}

void hr_mapfile_close(hr_mapfile *file) {
    if (file->data) munmap((void *)(uintptr_t)file->data, file->size);
    *file = (hr_mapfile){0};
}
