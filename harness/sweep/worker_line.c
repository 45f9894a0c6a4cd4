#include "harness/cli/interrupt.h"
#include "harness/sweep/worker.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A thread is left in peace longer: whoever waits beside it is counted with it. */
enum { TICK_MS = 100, TICK_THREAD_MS = 1000 };

struct hr_worker_thread {
    pthread_t id;
    int socket;
    atomic_bool stop;
    hr_measure_options options;
};

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

static void *serve(void *context) {
    const hr_worker_thread *thread = context;
    hr_worker_serve(thread->socket, &thread->options);
    close(thread->socket);
    return NULL;
}

hr_status hr_worker_start_thread(hr_worker *worker, const hr_measure_options *options) {
    int pair[2];
    *worker = (hr_worker){.socket = -1};
    hr_worker_thread *thread = hr_calloc(1, sizeof *thread);
    if (!thread) HR_FAIL(HR_ERR_MEMORY, "no memory for a worker");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        hr_free(thread);
        HR_FAIL(HR_ERR_IO, "cannot make the line to a worker: %s", strerror(errno));
    }
    thread->socket = pair[1];
    thread->options = *options;
    thread->options.stop = &thread->stop;
    /* The worker and the team that it makes inherit this: Ctrl-C wakes the thread that waits for an answer. */
    sigset_t ours, before;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT), sigaddset(&ours, SIGTERM), sigaddset(&ours, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    const int error = pthread_create(&thread->id, NULL, serve, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        close(pair[0]), close(pair[1]);
        hr_free(thread);
        HR_FAIL(HR_ERR_IO, "cannot start a worker thread: %s", strerror(error));
    }
    *worker = (hr_worker){.thread = thread, .socket = pair[0]};
    return HR_OK;
}

static void join(hr_worker *worker) {
    pthread_join(worker->thread->id, NULL);
    hr_free(worker->thread);
    worker->thread = NULL;
}

void hr_worker_stop(hr_worker *worker, bool now) {
    if (worker->thread && now) atomic_store(&worker->thread->stop, true);
    if (worker->pid > 0 && now) kill(worker->pid, SIGKILL);
    if (worker->socket >= 0) close(worker->socket);
    if (worker->thread) join(worker);
    while (worker->pid > 0 && waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    hr_free(worker->line);
    *worker = (hr_worker){.socket = -1};
}

/* Why the worker is gone, as a failure. */
static hr_status died(hr_worker *worker) {
    int status = 0;
    close(worker->socket);
    worker->socket = -1;
    if (worker->thread) {
        join(worker);
        HR_FAIL(HR_ERR_IO, "the worker ended by itself");
    }
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
    }
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

/* Milliseconds to wait for news, and no longer than the deadline. */
static int until_tick(const hr_worker *worker, uint64_t deadline_ns) {
    const int tick = worker->thread ? TICK_THREAD_MS : TICK_MS;
    if (!deadline_ns) return tick;
    const uint64_t now = hr_now_ns(), left = deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 0;
    return left < (uint64_t)tick ? (int)left : tick;
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
        if (poll(&p, 1, until_tick(worker, deadline_ns)) > 0) HR_TRY(read_some(worker));
    }
}
