/* Files written beside and renamed, and streams whose failures are noticed. */
#include "harness/formats/formats.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool reader_gone;

bool hr_stream_reader_gone(void) {
    return reader_gone;
}

/* 0, or errno of what went wrong with anything written so far. */
static int flush_error(FILE *stream) {
    if (hr_fault_hit(HR_FAULT_WRITE)) return ENOSPC;
    errno = 0;
    if (fflush(stream) == 0 && !ferror(stream)) return 0;
    return errno ? errno : EIO;
}

static const char *advice(int error) {
    return error == ENOSPC || error == EDQUOT ? "; free some space or write elsewhere" : "";
}

hr_status hr_stream_flush(FILE *stream) {
    int error = flush_error(stream);
    if (!error) return HR_OK;
    if (error == EPIPE) reader_gone = true;
    HR_FAIL(HR_ERR_IO, "writing the results: %s%s", strerror(error), advice(error));
}

hr_status hr_make_folders(const char *path_of_file) {
    char *path = hr_strdup(path_of_file);
    if (!path) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", path_of_file);
    hr_status status = HR_OK;
    for (char *slash = path; status == HR_OK && (slash = strchr(slash, '/')) != NULL; slash++) {
        if (slash == path) continue;
        *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            status = hr_fail(HR_ERR_IO, "%s: making the folder: %s", path, strerror(errno));
        *slash = '/';
    }
    hr_free(path);
    return status;
}

static hr_status out_open(hr_out *out) {
    struct stat info;
    bool there = stat(out->path, &info) == 0;
    if (there && S_ISDIR(info.st_mode)) HR_FAIL(HR_ERR_IO, "%s: is a folder; name a file in it", out->path);
    if (there && !S_ISREG(info.st_mode)) {
        out->stream = fopen(out->path, "wb");
        if (!out->stream) HR_FAIL(HR_ERR_IO, "%s: %s", out->path, strerror(errno));
        return HR_OK;
    }
    HR_TRY(hr_make_folders(out->path));
    size_t size = strlen(out->path) + 32;
    out->temporary = hr_malloc(size);
    if (!out->temporary) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", out->path);
    snprintf(out->temporary, size, "%s.tmp.%ld", out->path, (long)getpid());
    if (hr_fault_hit(HR_FAULT_WRITE))
        errno = ENOSPC;
    else
        out->stream = fopen(out->temporary, "wb");
    if (!out->stream) HR_FAIL(HR_ERR_IO, "%s: %s%s", out->path, strerror(errno), advice(errno));
    return HR_OK;
}

hr_status hr_out_open(const char *path, hr_out *out) {
    memset(out, 0, sizeof *out);
    if (!path) {
        out->stream = stdout;
        return HR_OK;
    }
    /* The file that a link points to is replaced, not the link. */
    char real[PATH_MAX];
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && realpath(path, real)) path = real;
    out->path = hr_strdup(path);
    hr_status status = out->path ? out_open(out) : hr_fail(HR_ERR_MEMORY, "%s: out of memory", path);
    if (status != HR_OK) hr_out_abandon(out);
    return status;
}

hr_status hr_out_commit(hr_out *out) {
    if (!out->path) return hr_stream_flush(out->stream);
    int error = flush_error(out->stream);
    if (!error && out->temporary && fsync(fileno(out->stream)) != 0) error = errno;
    if (fclose(out->stream) != 0 && !error) error = errno;
    out->stream = NULL;
    if (!error && out->temporary && rename(out->temporary, out->path) != 0) error = errno;
    hr_status status = HR_OK;
    if (error)
        status = hr_fail(HR_ERR_IO, "%s: %s%s", out->path, strerror(error), advice(error));
    else
        hr_free(out->temporary), out->temporary = NULL;
    hr_out_abandon(out);
    return status;
}

void hr_out_abandon(hr_out *out) {
    if (out->stream && out->path) fclose(out->stream);
    if (out->temporary) unlink(out->temporary);
    hr_free(out->temporary);
    hr_free(out->path);
    memset(out, 0, sizeof *out);
}
