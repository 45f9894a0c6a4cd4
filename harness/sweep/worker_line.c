#include "harness/cli/interrupt.h"
#include "harness/sweep/worker.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 100 };

_Noreturn static void child(int socket, pid_t parent, const hr_measure_options *options) {
    /* A parent that died before the call below leaves a child with another parent. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(1);
    prctl(PR_SET_NAME, "headroom-worker");
    signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN), signal(SIGHUP, SIG_IGN), signal(SIGPIPE, SIG_IGN);
    hr_worker_serve(socket, options);
    _exit(0); /* not exit: what the parent had buffered must not be written twice */
}

hr_status hr_worker_start(hr_worker *worker, const hr_measure_options *options) {
    int pair[2];
    *worker = (hr_worker){.socket = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        HR_FAIL(HR_ERR_IO, "cannot make the line to a worker: %s", strerror(errno));
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        const int error = errno;
        close(pair[0]), close(pair[1]);
        HR_FAIL(HR_ERR_IO, "cannot start a worker process: %s", strerror(error));
    }
    if (pid == 0) {
        close(pair[0]);
        child(pair[1], parent, options);
    }
    close(pair[1]);
    *worker = (hr_worker){.pid = pid, .socket = pair[0]};
    return HR_OK;
}

void hr_worker_stop(hr_worker *worker, bool now) {
    if (worker->pid > 0) {
        if (now) kill(worker->pid, SIGKILL);
        close(worker->socket);
        while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    hr_free(worker->line);
    *worker = (hr_worker){.socket = -1};
}

/* Why the worker is gone, as a failure. */
static hr_status died(hr_worker *worker) {
    int status = 0;
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(worker->socket);
    worker->pid = 0;
    if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        HR_FAIL(HR_ERR_IO, "the worker was ended by signal %d (%s)%s", number, strsignal(number),
                number == SIGKILL ? ", perhaps for want of memory" : "");
    }
    HR_FAIL(HR_ERR_IO, "the worker ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

hr_status hr_worker_send(hr_worker *worker, json_t *message) {
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text) HR_FAIL(HR_ERR_MEMORY, "no memory for a message to the worker");
    size_t n = strlen(text);
    text[n++] = '\n'; /* takes the place of the NUL */
    for (size_t done = 0; done < n;) {
        const ssize_t sent = send(worker->socket, text + done, n - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) {
            free(text); /* jansson's own memory */
            return died(worker);
        }
        done += (size_t)sent;
    }
    free(text);
    return HR_OK;
}

/* One whole line out of what was received, or NULL. */
static json_t *take_line(hr_worker *worker, bool *broken) {
    char *end = worker->n ? memchr(worker->line, '\n', worker->n) : NULL;
    if (!end) return NULL;
    json_t *json = json_loadb(worker->line, (size_t)(end - worker->line), 0, NULL);
    worker->n -= (size_t)(end - worker->line) + 1;
    memmove(worker->line, end + 1, worker->n);
    *broken = !json;
    return json;
}

static hr_status read_some(hr_worker *worker) {
    if (worker->capacity - worker->n < 65536) {
        const size_t capacity = worker->capacity * 2 + 131072;
        char *line = hr_realloc(worker->line, capacity);
        if (!line) HR_FAIL(HR_ERR_MEMORY, "no memory for the answer of a worker");
        worker->line = line, worker->capacity = capacity;
    }
    const ssize_t got = recv(worker->socket, worker->line + worker->n, worker->capacity - worker->n, 0);
    if (got < 0 && errno == EINTR) return HR_OK;
    if (got <= 0) return died(worker);
    worker->n += (size_t)got;
    return HR_OK;
}

hr_status hr_worker_receive(hr_worker *worker, uint64_t deadline_ns, hr_worker_tick *tick, void *context,
                            json_t **out) {
    for (;;) {
        bool broken = false;
        json_t *json = take_line(worker, &broken);
        if (broken) HR_FAIL(HR_ERR_INTERNAL, "the worker sent a line that is no JSON");
        const json_t *progress = json_object_get(json, "progress");
        if (json && !progress) {
            *out = json;
            return HR_OK;
        }
        if (tick) tick(progress ? json_number_value(progress) : -1, context);
        if (json) {
            json_decref(json);
            continue;
        }
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        if (deadline_ns && hr_now_ns() > deadline_ns) HR_FAIL(HR_ERR_INTERNAL, "the time of --timeout is over");
        struct pollfd p = {.fd = worker->socket, .events = POLLIN};
        if (poll(&p, 1, TICK_MS) > 0) HR_TRY(read_some(worker));
    }
}
