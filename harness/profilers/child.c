#include "harness/profilers/child.h"

#include "harness/cli/interrupt.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* nsys needs a second or two to write what it has when it is asked to end. */
enum { WORDS_MAX = 256, POLL_MS = 100, PATIENCE_MS = 8000, TAIL = 4096 };
static const size_t MOST = (size_t)64 << 20; /* of stdout */

/* One output of the child. */
typedef struct stream {
    int fd;     /* -1: ended */
    bool whole; /* keep all of it, else the end alone */
    char *text;
    size_t n, room;
} stream;

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Reads what is there. */
static hr_status drain(stream *s) {
    char part[TAIL];
    const ssize_t got = read(s->fd, part, sizeof part);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return HR_OK;
    if (got <= 0) {
        close_fd(&s->fd);
        return HR_OK;
    }
    if (!s->whole && s->n + (size_t)got > TAIL) { /* the newest TAIL bytes */
        const size_t keep = TAIL - (size_t)got < s->n ? TAIL - (size_t)got : s->n;
        memmove(s->text, s->text + s->n - keep, keep);
        s->n = keep;
    }
    if (s->n + (size_t)got + 1 > s->room) {
        const size_t room = 2 * (s->n + (size_t)got) + 1;
        char *grown = room > MOST ? NULL : hr_realloc(s->text, room);
        if (!grown) HR_FAIL(HR_ERR_MEMORY, "out of memory for what a program prints");
        s->text = grown, s->room = room;
    }
    memcpy(s->text + s->n, part, (size_t)got);
    s->n += (size_t)got;
    s->text[s->n] = 0;
    return HR_OK;
}

/* The last line with anything in it; a progress bar ends its "lines" by \r or \b. */
static bool last_line(const stream *s, char out[HR_CHILD_LAST]) {
    size_t end = s->n;
    while (end && strchr("\n\r\b ", s->text[end - 1])) end--;
    size_t begin = end;
    while (begin && !strchr("\n\r\b", s->text[begin - 1])) begin--;
    snprintf(out, HR_CHILD_LAST, "%.*s", (int)(end - begin), s->text ? s->text + begin : "");
    return end > begin;
}

/* ---- the child's side ------------------------------------------------------------------------------------------------ */

_Noreturn static void become(char *const *argv, const int out, const int err, const int said) {
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(nothing, STDIN_FILENO), dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    execvp(argv[0], argv);
    const int why = errno;
    (void)!write(said, &why, sizeof why);
    _exit(127);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

static void wait_ms(int ms) {
    poll(NULL, 0, ms);
}

/* Whether the child is gone; its status then. */
static bool gone(pid_t pid, int ms, int *status) {
    for (int waited = 0; waited <= ms; waited += POLL_MS) {
        if (waitpid(pid, status, WNOHANG) == pid) return true;
        wait_ms(POLL_MS);
    }
    return false;
}

/* What the child had started and left is ours by now (a subreaper's): daemons of a profiler, the profiled program. */
static void signal_children(int signal_number) {
    char path[64], list[1024];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file) return; /* a kernel without that file: they end with the profiler, or not */
    list[fread(list, 1, sizeof list - 1, file)] = 0;
    fclose(file);
    for (char *rest, *word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        int pid = 0;
        if (sscanf(word, "%d", &pid) == 1 && pid > 1) kill(pid, signal_number);
    }
}

static void end_all(pid_t pid) {
    int status;
    kill(-pid, SIGTERM);
    if (!gone(pid, PATIENCE_MS, &status)) {
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    for (int i = 0; i < 20; i++) { /* two seconds for what it left behind */
        int rest = 0;
        while ((rest = waitpid(-1, &status, WNOHANG)) > 0) continue;
        if (rest < 0) return; /* no child is left */
        signal_children(i < 10 ? SIGTERM : SIGKILL);
        wait_ms(POLL_MS);
    }
}

/* ---- running -------------------------------------------------------------------------------------------------------- */

static bool past(uint64_t deadline) {
    return deadline && hr_now_ns() > deadline;
}

/* Until both outputs end; a daemon may hold them open, so the child's end counts too. deadline: hr_now_ns, 0: none; *late
 * when it came first. */
static hr_status follow(pid_t pid, stream *out, stream *err, uint64_t deadline, int *status, bool *late) {
    bool ended = false;
    while (out->fd >= 0 || err->fd >= 0) {
        if (!ended && (*late = past(deadline))) return HR_OK;
        struct pollfd fds[2] = {{.fd = out->fd, .events = POLLIN}, {.fd = err->fd, .events = POLLIN}};
        const int n = poll(fds, 2, ended ? 0 : POLL_MS);
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        if (n > 0 && fds[0].revents) HR_TRY(drain(out));
        if (n > 0 && fds[1].revents) HR_TRY(drain(err));
        if (n <= 0 && ended) break;
        if (!ended) ended = waitpid(pid, status, WNOHANG) == pid;
    }
    while (!ended) {
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        if ((*late = past(deadline))) return HR_OK;
        ended = gone(pid, POLL_MS, status);
    }
    return HR_OK;
}

static hr_status start(char *const *argv, stream *out, stream *err, pid_t *pid) {
    int a[2], b[2], said[2], why = 0;
    if (pipe2(a, O_CLOEXEC) != 0) HR_FAIL(HR_ERR_IO, "%s: %s", argv[0], strerror(errno));
    if (pipe2(b, O_CLOEXEC) != 0) {
        close(a[0]), close(a[1]);
        HR_FAIL(HR_ERR_IO, "%s: %s", argv[0], strerror(errno));
    }
    if (pipe2(said, O_CLOEXEC) != 0) {
        close(a[0]), close(a[1]), close(b[0]), close(b[1]);
        HR_FAIL(HR_ERR_IO, "%s: %s", argv[0], strerror(errno));
    }
    *pid = fork();
    if (*pid == 0) become(argv, a[1], b[1], said[1]);
    if (*pid < 0) why = errno;
    close(a[1]), close(b[1]), close(said[1]);
    out->fd = a[0], err->fd = b[0];
    if (*pid > 0) {
        setpgid(*pid, *pid); /* whoever of the two comes first */
        while (read(said[0], &why, sizeof why) < 0 && errno == EINTR) continue;
    }
    close(said[0]);
    if (!why) return HR_OK;
    if (*pid > 0) waitpid(*pid, NULL, 0);
    HR_FAIL(HR_ERR_IO, "cannot run %s: %s", argv[0], strerror(why));
}

static hr_status to_argv(const json_t *words, char *argv[WORDS_MAX + 1]) {
    size_t n = json_array_size(words);
    if (n > WORDS_MAX) HR_FAIL(HR_ERR_INTERNAL, "a command of %zu words", n);
    for (size_t i = 0; i < n; i++)
        if (!(argv[i] = (char *)json_string_value(json_array_get(words, i)))) n = 0;
    argv[n] = NULL;
    if (!argv[0]) HR_FAIL(HR_ERR_INTERNAL, "a command without a program, or a word that is no text");
    return HR_OK;
}

hr_status hr_child_run(const json_t *words, hr_child *child) {
    return hr_child_run_for(words, 0, child);
}

hr_status hr_child_run_for(const json_t *words, double limit_s, hr_child *child) {
    const uint64_t deadline = limit_s > 0 ? hr_now_ns() + (uint64_t)(limit_s * 1e9) : 0;
    bool late = false;
    char *argv[WORDS_MAX + 1];
    stream out = {.fd = -1, .whole = true}, err = {.fd = -1};
    int status = 0, was = 0;
    pid_t pid;
    *child = (hr_child){0};
    HR_TRY(to_argv(words, argv));
    prctl(PR_GET_CHILD_SUBREAPER, &was);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    hr_status result = start(argv, &out, &err, &pid);
    if (result == HR_OK) {
        result = follow(pid, &out, &err, deadline, &status, &late);
        if (result != HR_OK || late) end_all(pid);
    }
    prctl(PR_SET_CHILD_SUBREAPER, was);
    close_fd(&out.fd), close_fd(&err.fd);
    if (!last_line(&err, child->last)) last_line(&out, child->last);
    child->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    child->timed_out = late;
    child->out = out.text, child->n_out = out.n, child->err = err.text;
    if (result != HR_OK) hr_child_fini(child);
    return result;
}

bool hr_find_program(const char *name, char *out, size_t n) {
    const char *at = getenv("PATH");
    while (at && *at) {
        const size_t folder = strcspn(at, ":");
        const int wrote = snprintf(out, n, "%.*s%s%s", (int)folder, at, folder ? "/" : "./", name);
        if (wrote > 0 && (size_t)wrote < n && access(out, X_OK) == 0) return true;
        at += folder + (at[folder] == ':');
    }
    *out = 0;
    return false;
}

bool hr_words_add(json_t *words, const char *const *list, size_t n) {
    bool ok = words != NULL;
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append_new(words, json_string(list[i])) == 0;
    return ok;
}

void hr_child_fini(hr_child *child) {
    hr_free(child->out), hr_free(child->err);
    *child = (hr_child){.code = child->code};
}
