/* fault_vfs.h - SQLite with faults: a file layer whose writes, syncs and truncations pass hr_fault_hit(HR_FAULT_WRITE),
 * whose reads pass HR_FAULT_READ, and memory (SQLite's and jansson's) that passes HR_FAULT_ALLOC. For tests only. */
#ifndef HR_FAULT_VFS_H
#define HR_FAULT_VFS_H

#include "kernels/base/memory.h"

#include <jansson.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

typedef struct fault_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct, in the same memory */
} fault_file;

static sqlite3_vfs fault_vfs;
static sqlite3_vfs *fault_real_vfs;
static int fault_write_error = SQLITE_IOERR_WRITE; /* or SQLITE_FULL */
static bool fault_write_kills;                     /* the process ends there, as by kill -9 */

static inline sqlite3_file *fault_real(sqlite3_file *f) {
    return ((fault_file *)f)->real;
}
static inline int fault_close(sqlite3_file *f) {
    return fault_real(f)->pMethods->xClose(fault_real(f));
}
static inline int fault_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at) {
    if (hr_fault_hit(HR_FAULT_READ)) return SQLITE_IOERR_READ;
    return fault_real(f)->pMethods->xRead(fault_real(f), p, n, at);
}
static inline int fault_fail(int error) {
    if (fault_write_kills) kill(getpid(), SIGKILL);
    return error;
}
/* A failing write leaves its first half in the file, as a full disk or a pulled plug would. */
static inline int fault_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at) {
    if (hr_fault_hit(HR_FAULT_WRITE)) {
        fault_real(f)->pMethods->xWrite(fault_real(f), p, n / 2, at);
        return fault_fail(fault_write_error);
    }
    return fault_real(f)->pMethods->xWrite(fault_real(f), p, n, at);
}
static inline int fault_truncate(sqlite3_file *f, sqlite3_int64 size) {
    if (hr_fault_hit(HR_FAULT_WRITE)) return fault_fail(SQLITE_IOERR_TRUNCATE);
    return fault_real(f)->pMethods->xTruncate(fault_real(f), size);
}
static inline int fault_sync(sqlite3_file *f, int flags) {
    if (hr_fault_hit(HR_FAULT_WRITE)) return fault_fail(SQLITE_IOERR_FSYNC);
    return fault_real(f)->pMethods->xSync(fault_real(f), flags);
}
static inline int fault_size(sqlite3_file *f, sqlite3_int64 *size) {
    return fault_real(f)->pMethods->xFileSize(fault_real(f), size);
}
static inline int fault_lock(sqlite3_file *f, int level) {
    return fault_real(f)->pMethods->xLock(fault_real(f), level);
}
static inline int fault_unlock(sqlite3_file *f, int level) {
    return fault_real(f)->pMethods->xUnlock(fault_real(f), level);
}
static inline int fault_reserved(sqlite3_file *f, int *out) {
    return fault_real(f)->pMethods->xCheckReservedLock(fault_real(f), out);
}
static inline int fault_control(sqlite3_file *f, int op, void *arg) {
    return fault_real(f)->pMethods->xFileControl(fault_real(f), op, arg);
}
static inline int fault_sector(sqlite3_file *f) {
    return fault_real(f)->pMethods->xSectorSize(fault_real(f));
}
static inline int fault_device(sqlite3_file *f) {
    return fault_real(f)->pMethods->xDeviceCharacteristics(fault_real(f));
}
static inline int fault_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out) {
    return fault_real(f)->pMethods->xShmMap(fault_real(f), page, size, extend, out);
}
static inline int fault_shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    return fault_real(f)->pMethods->xShmLock(fault_real(f), offset, n, flags);
}
static inline void fault_shm_barrier(sqlite3_file *f) {
    fault_real(f)->pMethods->xShmBarrier(fault_real(f));
}
static inline int fault_shm_unmap(sqlite3_file *f, int remove) {
    return fault_real(f)->pMethods->xShmUnmap(fault_real(f), remove);
}

static const sqlite3_io_methods fault_methods = {
    .iVersion = 2, /* with shared memory for WAL, without memory-mapped reads */
    .xClose = fault_close,
    .xRead = fault_read,
    .xWrite = fault_write,
    .xTruncate = fault_truncate,
    .xSync = fault_sync,
    .xFileSize = fault_size,
    .xLock = fault_lock,
    .xUnlock = fault_unlock,
    .xCheckReservedLock = fault_reserved,
    .xFileControl = fault_control,
    .xSectorSize = fault_sector,
    .xDeviceCharacteristics = fault_device,
    .xShmMap = fault_shm_map,
    .xShmLock = fault_shm_lock,
    .xShmBarrier = fault_shm_barrier,
    .xShmUnmap = fault_shm_unmap,
};

static inline int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out_flags) {
    (void)vfs;
    fault_file *file = (fault_file *)f;
    file->real = (sqlite3_file *)(file + 1);
    int rc = fault_real_vfs->xOpen(fault_real_vfs, name, file->real, flags, out_flags);
    file->base.pMethods = file->real->pMethods ? &fault_methods : NULL;
    return rc;
}

static inline void *fault_sqlite_malloc(int n) {
    size_t *p = hr_malloc((size_t)n + 16);
    if (!p) return NULL;
    *p = (size_t)n;
    return (char *)p + 16;
}
static inline void fault_sqlite_free(void *p) {
    if (p) hr_free((char *)p - 16);
}
static inline void *fault_sqlite_realloc(void *p, int n) {
    size_t *q = hr_realloc((char *)p - 16, (size_t)n + 16);
    if (!q) return NULL;
    *q = (size_t)n;
    return (char *)q + 16;
}
static inline int fault_sqlite_size(void *p) {
    return p ? (int)*(size_t *)((char *)p - 16) : 0;
}
static inline int fault_sqlite_roundup(int n) {
    return (n + 7) & ~7;
}
static inline int fault_sqlite_init(void *context) {
    (void)context;
    return SQLITE_OK;
}
static inline void fault_sqlite_shutdown(void *context) {
    (void)context;
}

/* Before any other use of SQLite in the process. */
static inline int fault_vfs_install(void) {
    static const sqlite3_mem_methods memory = {
        fault_sqlite_malloc,  fault_sqlite_free, fault_sqlite_realloc,  fault_sqlite_size,
        fault_sqlite_roundup, fault_sqlite_init, fault_sqlite_shutdown, NULL};
    json_set_alloc_funcs(hr_malloc, hr_free);
    /* Each request must reach the counter, so no private caches. */
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &memory) != SQLITE_OK ||
        sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) != SQLITE_OK || sqlite3_initialize() != SQLITE_OK)
        return -1;
    fault_real_vfs = sqlite3_vfs_find(NULL);
    fault_vfs = *fault_real_vfs;
    fault_vfs.zName = "fault";
    fault_vfs.pNext = NULL;
    fault_vfs.szOsFile = (int)sizeof(fault_file) + fault_real_vfs->szOsFile;
    fault_vfs.xOpen = fault_open;
    return sqlite3_vfs_register(&fault_vfs, 1) == SQLITE_OK ? 0 : -1;
}

#endif
