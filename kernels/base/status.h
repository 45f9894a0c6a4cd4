/* status.h - the result of a function that can fail, and the one line that explains it.
 *
 * A function returns hr_status. HR_FAIL(code, "...") fills a message that belongs to the calling thread and returns the
 * code; HR_TRY(f()) passes a failure up. The message says what, where, and what to do next, in one line without a full
 * stop or a newline; main() prints it. Nothing below main() prints or exits. */
#ifndef HR_STATUS_H
#define HR_STATUS_H

/* One row a code: name, text for a caller who has no message. */
#define HR_STATUS_LIST(X)                              \
    X(OK, "ok")                                        \
    X(ERR_USAGE, "wrong use of the command")           \
    X(ERR_INPUT, "an input is broken or does not fit") \
    X(ERR_IO, "reading or writing failed")             \
    X(ERR_MEMORY, "out of memory")                     \
    X(ERR_UNSUPPORTED, "not supported")                \
    X(ERR_INTERRUPTED, "interrupted")                  \
    X(ERR_INTERNAL, "internal error")

typedef enum hr_status {
#define X(name, text) HR_##name,
    HR_STATUS_LIST(X)
#undef X
        HR_STATUS_COUNT
} hr_status;

/* Fills the thread's message (printf rules, at most 1023 bytes, control characters become '?') and returns code. */
hr_status hr_fail(hr_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the thread's message; returns code. For callers who know the file or field. */
hr_status hr_fail_prefix(hr_status code, const char *prefix);

/* The message of the last failure of this thread; the code's own text where there is none. Never NULL. */
const char *hr_error(void);

/* "ok", "out of memory", ... */
const char *hr_status_text(hr_status code);

/* Returns the code itself, so that compilers and analyzers see that a failure is never HR_OK. */
#define HR_FAIL(code, ...)            \
    do {                              \
        hr_fail((code), __VA_ARGS__); \
        return (code);                \
    } while (0)
#define HR_TRY(call)                          \
    do {                                      \
        hr_status hr_try_ = (call);           \
        if (hr_try_ != HR_OK) return hr_try_; \
    } while (0)

#endif
