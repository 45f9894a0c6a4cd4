#include "harness/observe/observe_spawn.h"

#include "kernels/base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool same_name(const char *a, const char *b) {
    const size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && !strncmp(a, b, n);
}

/* This environment without what attaches a tool, with the settings over it. NULL: no memory. */
static char **environment_of(const char *const *settings) {
    size_t n = 0, m = 0;
    while (environ[n]) n++;
    while (settings && settings[m]) m++;
    char **out = hr_calloc(n + m + 1, sizeof *out);
    size_t k = 0;
    for (size_t i = 0; out && i < n; i++) {
        bool over = same_name(environ[i], "NVTX_INJECTION64_PATH=");
        for (size_t s = 0; s < m; s++) over |= same_name(environ[i], settings[s]);
        if (!over) out[k++] = environ[i];
    }
    for (size_t s = 0; out && s < m; s++) out[k++] = (char *)settings[s];
    return out;
}

static void last_line(int fd, char *said, size_t size) {
    char text[4096];
    const off_t end = lseek(fd, 0, SEEK_END);
    lseek(fd, end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0, SEEK_SET);
    ssize_t n = read(fd, text, sizeof text - 1);
    while (n > 0 && strchr("\n ", text[n - 1])) n--;
    text[n > 0 ? n : 0] = 0;
    const char *line = strrchr(text, '\n');
    snprintf(said, size, "%s", line ? line + 1 : text);
}

/* The end of the child; asks `stop` now and then, too seldom to be a load. */
static hr_status wait_for(pid_t pid, bool (*stop)(void)) {
    int state;
    bool asked = false;
    for (;;) {
        const pid_t got = waitpid(pid, &state, stop ? WNOHANG : 0);
        if (got == pid) break;
        if (got < 0 && errno != EINTR) break;
        if (stop && stop() && !asked) kill(pid, SIGTERM), asked = true;
        if (stop) usleep(50000);
    }
    if (asked || (stop && stop())) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
    return HR_OK;
}

static hr_status start(char **argv, char **environment, const char *out, int err, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out ? out : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, err, 2);
    const int error = posix_spawnp(pid, argv[0], &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error) HR_FAIL(HR_ERR_IO, "%.200s: %s", argv[0], strerror(error));
    return HR_OK;
}

hr_status hr_spawn(const json_t *words, const char *const *settings, const char *out, bool (*stop)(void), char *said,
                   size_t size) {
    const size_t n = json_array_size(words);
    char **argv = hr_calloc(n + 1, sizeof *argv), **environment = environment_of(settings);
    FILE *err = tmpfile();
    hr_status status = argv && environment ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for a command line");
    if (status == HR_OK && !err) status = hr_fail(HR_ERR_IO, "a file for messages: %s", strerror(errno));
    said[0] = 0;
    for (size_t i = 0; status == HR_OK && i < n; i++) argv[i] = (char *)json_string_value(json_array_get(words, i));
    pid_t pid;
    if (status == HR_OK) status = start(argv, environment, out, fileno(err), &pid);
    if (status == HR_OK) {
        status = wait_for(pid, stop);
        last_line(fileno(err), said, size);
    }
    if (err) fclose(err);
    hr_free(argv), hr_free(environment);
    return status;
}

hr_status hr_scratch_make(char *folder, size_t size) {
    const char *under = getenv("TMPDIR");
    const int n = snprintf(folder, size, "%s/headroom.XXXXXX", under && *under ? under : "/tmp");
    if (n < 0 || (size_t)n >= size || !mkdtemp(folder))
        HR_FAIL(HR_ERR_IO, "%.200s: a folder for what is measured: %s", folder, strerror(errno));
    return HR_OK;
}

void hr_scratch_remove(const char *folder) {
    DIR *dir = opendir(folder);
    char path[4600];
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(folder);
}
