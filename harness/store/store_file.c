/* What lies at a path, and what to say when SQLite fails on it. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_BYTES = 100, APPLICATION_AT = 68 }; /* sqlite.org/fileformat.html, section 1.3 */

/* The header is read through SQLite's own file layer: closing a descriptor of our own would drop the locks that another
 * connection of this process holds on the file (POSIX locks belong to the process). */
static int read_header(const char *path, unsigned char *header, sqlite3_int64 *size) {
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    char full[4096];
    int rc =
        vfs->mxPathname < (int)sizeof full ? vfs->xFullPathname(vfs, path, (int)sizeof full, full) : SQLITE_CANTOPEN;
    if (rc == SQLITE_OK_SYMLINK) rc = SQLITE_OK;
    if (rc != SQLITE_OK) return rc;
    sqlite3_file *file = hr_calloc(1, (size_t)vfs->szOsFile);
    const char *name = file ? sqlite3_create_filename(full, "", "", 0, NULL) : NULL;
    rc = name ? vfs->xOpen(vfs, name, file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, NULL) : SQLITE_NOMEM;
    if (rc == SQLITE_OK) {
        rc = file->pMethods->xFileSize(file, size);
        if (rc == SQLITE_OK && *size >= HEADER_BYTES) rc = file->pMethods->xRead(file, header, HEADER_BYTES, 0);
    }
    if (name && file->pMethods) file->pMethods->xClose(file);
    sqlite3_free_filename(name);
    hr_free(file);
    return rc;
}

hr_status hr_store_classify(const char *path, hr_store_file *out) {
    struct stat s;
    if (!path[0]) HR_FAIL(HR_ERR_INPUT, "the name of the store is empty: name a file with --db, or none");
    if (stat(path, &s) != 0) {
        if (errno != ENOENT) HR_FAIL(HR_ERR_IO, "store %s: %s: name another file with --db", path, strerror(errno));
        *out = HR_STORE_ABSENT;
        return HR_OK;
    }
    if (!S_ISREG(s.st_mode)) HR_FAIL(HR_ERR_INPUT, "store %s is not a file: name another one with --db", path);
    unsigned char header[HEADER_BYTES] = {0};
    sqlite3_int64 size = 0;
    int rc = read_header(path, header, &size);
    if (rc != SQLITE_OK) return hr_store_error(path, rc, NULL);
    if (size == 0) {
        *out = HR_STORE_EMPTY;
        return HR_OK;
    }
    if (size < HEADER_BYTES || memcmp(header, "SQLite format 3", 16) != 0)
        HR_FAIL(HR_ERR_INPUT, "store %s is not an SQLite file and was left as it is: name another file with --db",
                path);
    const unsigned char *a = header + APPLICATION_AT;
    uint32_t application = (uint32_t)a[0] << 24 | (uint32_t)a[1] << 16 | (uint32_t)a[2] << 8 | a[3];
    if (application != HR_STORE_APPLICATION)
        HR_FAIL(HR_ERR_INPUT,
                "store %s is the database of another program and was left as it is: name another file with --db", path);
    *out = HR_STORE_OURS;
    return HR_OK;
}

hr_status hr_store_error(const char *path, int rc, const char *detail) {
    if (!detail) detail = sqlite3_errstr(rc);
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        HR_FAIL(HR_ERR_MEMORY, "store %s: out of memory; finished cells are safe", path);
    case SQLITE_FULL:
        HR_FAIL(
            HR_ERR_IO,
            "store %s: the disk is full; finished cells are safe: free space and call it again (a sweep with --resume)",
            path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        HR_FAIL(HR_ERR_IO,
                "store %s is locked by another program for over %d s: end that one or name another file "
                "with --db",
                path, HR_STORE_BUSY_MS / 1000);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        HR_FAIL(HR_ERR_IO,
                "store %s cannot be written: make the file and its folder writable or name another file "
                "with --db",
                path);
    case SQLITE_CANTOPEN:
        HR_FAIL(HR_ERR_IO,
                "store %s cannot be opened (%s): check the rights of the file and its folder or name another "
                "file with --db",
                path, detail);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        HR_FAIL(HR_ERR_INPUT,
                "store %s is damaged (%s): save what can be read with `sqlite3 %s .recover` and name "
                "another file with --db",
                path, detail, path);
    case SQLITE_IOERR:
        HR_FAIL(HR_ERR_IO,
                "store %s: reading or writing failed (%s); finished cells are safe: check the disk and call it again "
                "(a sweep with --resume)",
                path, detail);
    default:
        HR_FAIL(HR_ERR_INTERNAL, "store %s: %s", path, detail);
    }
}

hr_status hr_store_check(hr_store *store, int rc) {
    if (rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE) return HR_OK;
    return hr_store_error(store->path, rc, sqlite3_errcode(store->db) == rc ? sqlite3_errmsg(store->db) : NULL);
}
