/* Nsight Systems around one cell: finding it, its command line, a profile and its table of ranges. */
#include "harness/profilers/child.h"
#include "harness/profilers/profilers.h"
#include "harness/show/cell_args.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, LINKS_MAX = 8 };
#define GET_IT                                                                     \
    "install it (Debian and Ubuntu: the package nsight-systems of non-free; else " \
    "developer.nvidia.com/nsight-systems), "                                       \
    "or run the command that `headroom nsys CELL` prints where it is, and --import the table"

/* ---- finding it ------------------------------------------------------------------------------------------------------ */

/* path's folder + "/" + below. */
static bool beside(const char *path, const char *below, char out[PATH_BYTES]) {
    const char *slash = strrchr(path, '/');
    const int wrote = snprintf(out, PATH_BYTES, "%.*s/%s", slash ? (int)(slash - path) : 1, slash ? path : ".", below);
    return wrote > 0 && wrote < PATH_BYTES && access(out, X_OK) == 0;
}

/* The importer lies in a folder of the host's side; Debian splits the package, and reaches nsys by links: from each of
 * them the folder may be seen. */
static void find_importer(const char *nsys, char out[PATH_BYTES]) {
    static const char *const folders[] = {"../host-linux-x64/QdstrmImporter", "../host-linux-armv8/QdstrmImporter",
                                          "../Host-x86_64/QdstrmImporter"};
    char path[PATH_BYTES], link[PATH_BYTES];
    snprintf(path, sizeof path, "%s", nsys);
    for (int hop = 0; hop < LINKS_MAX; hop++) {
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
            if (beside(path, folders[i], out)) return;
        const ssize_t n = readlink(path, link, sizeof link - 1);
        if (n <= 0) break;
        link[n] = 0;
        const char *slash = link[0] == '/' ? NULL : strrchr(path, '/');
        char next[2 * PATH_BYTES];
        snprintf(next, sizeof next, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, link);
        if (strlen(next) >= sizeof path) break;
        memcpy(path, next, strlen(next) + 1);
    }
    if (!hr_find_program("QdstrmImporter", out, PATH_BYTES)) out[0] = 0;
}

hr_status hr_nsys_find(hr_nsys_tools *out) {
    *out = (hr_nsys_tools){0};
    if (!hr_find_program("nsys", out->nsys, sizeof out->nsys))
        HR_FAIL(HR_ERR_UNSUPPORTED, "nsys is not in PATH: " GET_IT);
    hr_child child;
    json_t *words = json_pack("[s,s]", out->nsys, "--version");
    const hr_status status = words ? hr_child_run(words, &child) : hr_fail(HR_ERR_MEMORY, "out of memory for nsys");
    json_decref(words);
    if (status == HR_OK) {
        const char *word = child.out ? strstr(child.out, "version ") : NULL;
        if (word) sscanf(word, "version %63s", out->version);
        hr_child_fini(&child);
    }
    if (status == HR_ERR_INTERRUPTED) return status;
    if (status != HR_OK || !out->version[0])
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s does not say its version (exit code %d): is it Nsight Systems?", out->nsys,
                status == HR_OK ? child.code : -1);
    find_importer(out->nsys, out->importer);
    return HR_OK;
}

/* ---- the command line -------------------------------------------------------------------------------------------------- */

/* nsys replaces % in names of reports. */
static bool put_base(json_t *words, const char *base) {
    char text[2 * PATH_BYTES];
    size_t n = 0;
    for (; *base && n + 3 < sizeof text; base++) {
        if (*base == '%') text[n++] = '%';
        text[n++] = *base;
    }
    text[n] = 0;
    return hr_words_add(words, (const char *[]){text}, 1);
}

hr_status hr_nsys_command(const json_t *cell, const json_t *run_args, const char *program, const char *level,
                          const char *out_base, json_t **words) {
    /* Nothing but our ranges: sampling and scheduler events would cost more than they tell. Of a GPU also its kernels and copies. The ranges of one
     * cell are few, so few repetitions do. */
    const char *device = json_string_value(json_object_get(cell, "device"));
    const bool gpu = device && !strncmp(device, "cuda", 4);
    const char *const profile[] = {"nsys",
                                   "profile",
                                   gpu ? "--trace=nvtx,cuda" : "--trace=nvtx",
                                   "--sample=none",
                                   "--cpuctxsw=none",
                                   "--capture-range=nvtx",
                                   "--nvtx-capture=capture@headroom",
                                   "--capture-range-end=stop",
                                   "--force-overwrite=true",
                                   "--output"};
    const char *const sweep[] = {program, "sweep"};
    const char *const tail[] = {"--repetitions", "3", "--db", "none", "--capture", "nvtx", "--nvtx-level", level};
    json_t *flags, *list = json_array();
    hr_status status = hr_cell_args(cell, run_args, &flags);
    if (status != HR_OK) {
        json_decref(list);
        return status;
    }
    const bool ok = hr_words_add(list, profile, sizeof profile / sizeof *profile) && put_base(list, out_base) &&
                    hr_words_add(list, sweep, 2) && json_array_extend(list, flags) == 0 &&
                    hr_words_add(list, tail, sizeof tail / sizeof *tail);
    json_decref(flags);
    if (ok) {
        *words = list;
        return HR_OK;
    }
    json_decref(list);
    HR_FAIL(HR_ERR_MEMORY, "out of memory for the command line");
}

/* ---- running -------------------------------------------------------------------------------------------------------- */

/* words[0] as the program that was found. */
static hr_status profile(const hr_nsys_tools *tools, const json_t *words, hr_child *child) {
    json_t *real = json_copy((json_t *)words);
    if (!real || json_array_set_new(real, 0, json_string(tools->nsys)) != 0) {
        json_decref(real);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the command line");
    }
    const hr_status status = hr_child_run(real, child);
    json_decref(real);
    return status;
}

static bool exists(const char *base, const char *ending, char out[PATH_BYTES]) {
    const int wrote = snprintf(out, PATH_BYTES, "%s%s", base, ending);
    return wrote > 0 && wrote < PATH_BYTES && access(out, R_OK) == 0;
}

static bool find_report(const char *base, char out[PATH_BYTES]) {
    return exists(base, ".nsys-rep", out) || exists(base, ".qdrep", out); /* .qdrep: before 2021.4 */
}

static hr_status run_tool(json_t *words, hr_child *child) {
    if (!words) HR_FAIL(HR_ERR_MEMORY, "out of memory for a command line");
    const hr_status status = hr_child_run(words, child);
    json_decref(words);
    return status;
}

/* A package without the importer beside nsys leaves the raw stream: made a report here, and removed then. */
static hr_status import_stream(const hr_nsys_tools *tools, const char *base, char report[PATH_BYTES]) {
    char raw[PATH_BYTES];
    if (!exists(base, ".qdstrm", raw)) return HR_OK;
    if (!tools->importer[0])
        HR_FAIL(HR_ERR_UNSUPPORTED, "nsys left %s and its QdstrmImporter is not here: open it in the program nsys-ui",
                raw);
    hr_child child;
    HR_TRY(run_tool(json_pack("[s,s,s]", tools->importer, "--input-file", raw), &child));
    hr_status status = HR_OK;
    if (find_report(base, report))
        unlink(raw);
    else
        status = hr_fail(HR_ERR_IO, "%s made no report of %s (exit code %d): %s", tools->importer, raw, child.code,
                         child.last);
    hr_child_fini(&child);
    return status;
}

static const char *const endings[] = {".nsys-rep", ".qdrep", ".qdstrm", ".sqlite"};

/* An interrupted run leaves nothing half-written. */
static void remove_all(const char *base) {
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (exists(base, endings[i], path)) unlink(path);
}

/* nsys exports to FILE.sqlite, and a store may be named so: bytes 68 to 71 of an SQLite file are its application_id. */
static bool is_a_store(const char *path) {
    char head[72] = "";
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f) fclose(f);
    return n == sizeof head && !memcmp(head, "SQLite format 3", 16) && !memcmp(head + 68, "HRST", 4);
}

/* Reports of before belong to another run: a profile that writes none must not find them. A place that cannot be written
 * is said before the minutes of a profile. */
static hr_status clear_place(const char *base) {
    char path[PATH_BYTES];
    if (exists(base, ".sqlite", path) && is_a_store(path))
        HR_FAIL(HR_ERR_INPUT, "%s is a store of results and nsys would replace it: give the report another name", path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (exists(base, endings[i], path) && unlink(path) != 0)
            HR_FAIL(HR_ERR_IO, "%s is in the way and cannot be removed: %s", path, strerror(errno));
    const int wrote = snprintf(path, sizeof path, "%s%s", base, endings[0]);
    const int fd = wrote > 0 && wrote < PATH_BYTES ? open(path, O_WRONLY | O_CREAT | O_EXCL, 0644) : -1;
    if (fd < 0) HR_FAIL(HR_ERR_IO, "%s%s cannot be written: %s", base, endings[0], strerror(errno));
    close(fd), unlink(path);
    return HR_OK;
}

/* A code other than 0: what the sweep said went wrong, among what nsys says; else it was nsys itself. */
static hr_status failed(const hr_child *child) {
    static const char head[] = "headroom: ";
    const char *at = child->err, *found = NULL;
    while (at && (at = strstr(at, head))) found = at += sizeof head - 1;
    if (!found) HR_FAIL(HR_ERR_IO, "nsys profile ended with %d: %s", child->code, child->last);
    HR_FAIL(HR_ERR_IO, "the profiled sweep ended with %d: %.*s", child->code, (int)strcspn(found, "\n"), found);
}

/* nsys passes on the exit code of what it profiled. */
static hr_status make_report(const hr_nsys_tools *tools, const json_t *words, const char *base,
                             char report[PATH_BYTES]) {
    hr_child child;
    HR_TRY(clear_place(base));
    HR_TRY(profile(tools, words, &child));
    hr_status status = HR_OK;
    if (child.code != 0)
        status = failed(&child);
    else if (!find_report(base, report))
        status = import_stream(tools, base, report);
    if (status == HR_OK && !find_report(base, report))
        status = hr_fail(HR_ERR_IO, "nsys %s wrote no report %s, as if no range `capture` had begun: %s",
                         tools->version, base, child.last);
    hr_child_fini(&child);
    return status;
}

/* The report of ranges was renamed in 2023. */
static hr_status report_name(const hr_nsys_tools *tools, const char **name) {
    hr_child child;
    HR_TRY(run_tool(json_pack("[s,s,s]", tools->nsys, "stats", "--help-reports"), &child));
    const char *text = child.out ? child.out : "";
    *name = strstr(text, "nvtx_sum") ? "nvtx_sum" : strstr(text, "nvtxsum") ? "nvtxsum" : NULL;
    hr_child_fini(&child);
    if (*name) return HR_OK;
    HR_FAIL(HR_ERR_UNSUPPORTED, "nsys %s has no report nvtxsum or nvtx_sum: use a version from 2021 on",
            tools->version);
}

static hr_status run_and_read(const hr_nsys_tools *tools, const json_t *words, const char *out_base, const char *name,
                              json_t **rows) {
    char report[PATH_BYTES];
    hr_child child;
    HR_TRY(make_report(tools, words, out_base, report));
    HR_TRY(run_tool(json_pack("[s,s,s,s,s,s,s,s]", tools->nsys, "stats", "--report", name, "--format", "csv",
                              "--force-export=true", report),
                    &child));
    hr_status status = HR_OK;
    if (child.code != 0)
        status = hr_fail(HR_ERR_IO, "nsys stats %s ended with %d: %s", report, child.code, child.last);
    else
        status = hr_nsys_csv_parse(child.out ? child.out : "", child.n_out, report, rows);
    hr_child_fini(&child);
    return status;
}

hr_status hr_nsys_run(const hr_nsys_tools *tools, const json_t *words, const char *out_base, json_t **rows) {
    const char *name;
    HR_TRY(report_name(tools, &name));
    const hr_status status = run_and_read(tools, words, out_base, name, rows);
    if (status == HR_ERR_INTERRUPTED) remove_all(out_base);
    return status;
}
