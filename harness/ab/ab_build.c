/* A program as it is, or a revision of the repository here, built in a work tree of its own that stays for the next time. */
#include "harness/ab/ab.h"

#include "harness/profilers/child.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMMIT = 64 };

static bool is_program(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

/* Words up to NULL, to their end. ERR_INPUT with the last line they said when they fail. */
static hr_status run(const char *what, const char *const *list, hr_child *child) {
    json_t *words = json_array();
    for (size_t i = 0; list[i]; i++) json_array_append_new(words, json_string(list[i]));
    const hr_status status = hr_child_run(words, child);
    json_decref(words);
    if (status != HR_OK) return status;
    if (child->code == 0) return HR_OK;
    hr_fail(HR_ERR_INPUT, "%.200s: %.300s", what, child->last);
    hr_child_fini(child);
    return HR_ERR_INPUT;
}

static hr_status commit_of(const char *text, char out[COMMIT]) {
    char revision[300];
    hr_child child;
    snprintf(revision, sizeof revision, "%.250s^{commit}", text);
    const char *const words[] = {"git",        "rev-parse",        "--verify", "--quiet",
                                 "--short=12", "--end-of-options", revision,   NULL};
    const hr_status status = run("git", words, &child);
    if (status == HR_ERR_INTERRUPTED) return status;
    if (status != HR_OK)
        HR_FAIL(HR_ERR_INPUT, "%.200s is neither a program nor a revision of a git repository here", text);
    snprintf(out, COMMIT, "%.*s", (int)strcspn(child.out ? child.out : "", "\n"), child.out ? child.out : "");
    hr_child_fini(&child);
    return *out ? HR_OK : hr_fail(HR_ERR_INPUT, "%.200s: git names no commit", text);
}

/* A work tree whose folder was removed by hand is forgotten first. */
static hr_status work_tree(const char *commit, const char *tree) {
    char makefile[PATH_MAX];
    hr_child child;
    snprintf(makefile, sizeof makefile, "%.4000s/Makefile", tree);
    if (access(makefile, R_OK) == 0) return HR_OK;
    const char *const prune[] = {"git", "worktree", "prune", NULL};
    const char *const add[] = {"git", "worktree", "add", "--quiet", "--detach", tree, commit, NULL};
    HR_TRY(run("git worktree prune", prune, &child));
    hr_child_fini(&child);
    HR_TRY(run("git worktree add", add, &child));
    hr_child_fini(&child);
    return HR_OK;
}

/* Under a make that calls us, its flags and job server are not this build's. */
static hr_status build(const char *commit, const char *tree) {
    char jobs[24], what[300];
    hr_child child;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(jobs, sizeof jobs, "-j%ld", cores > 0 ? cores : 1);
    snprintf(what, sizeof what, "%s does not build (make -C %.200s shows why)", commit, tree);
    const char *const words[] = {"env", "-u", "MAKEFLAGS", "-u",          "MFLAGS",         "-u", "MAKELEVEL", "make",
                                 "-C",  tree, jobs,        "BUILD=build", "build/headroom", NULL};
    HR_TRY(run(what, words, &child));
    hr_child_fini(&child);
    return HR_OK;
}

static hr_status copy_of(const char *path, char **program) {
    char *whole = realpath(path, NULL);
    if (!whole) HR_FAIL(HR_ERR_INPUT, "%.200s: %s", path, strerror(errno));
    *program = hr_strdup(whole);
    free(whole);
    return *program ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory for the name of a program");
}

hr_status hr_ab_program(const char *text, const char *folder, bool quiet, char **program) {
    char commit[COMMIT], tree[PATH_MAX], built[PATH_MAX + 32], *whole;
    struct stat s;
    if (is_program(text)) return copy_of(text, program);
    if (strchr(text, '/') && stat(text, &s) == 0)
        HR_FAIL(HR_ERR_INPUT, "%.200s is there and no program: it is a folder, or may not be executed", text);
    HR_TRY(commit_of(text, commit));
    snprintf(built, sizeof built, "%.3900s/x", folder);
    HR_TRY(hr_make_folders(built));
    if (!(whole = realpath(folder, NULL))) HR_FAIL(HR_ERR_IO, "%.200s: %s", folder, strerror(errno));
    snprintf(tree, sizeof tree, "%.4000s/%s", whole, commit);
    free(whole);
    HR_TRY(work_tree(commit, tree));
    if (!quiet) fprintf(stderr, "headroom: building %s (%s)\n", text, commit);
    HR_TRY(build(commit, tree));
    snprintf(built, sizeof built, "%.4000s/build/headroom", tree);
    if (!is_program(built))
        HR_FAIL(HR_ERR_INPUT, "%s built no build/headroom: it is no commit of this program", commit);
    return copy_of(built, program);
}
