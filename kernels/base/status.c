#include "kernels/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local hr_status last = HR_OK;

static const char *const texts[HR_STATUS_COUNT] = {
#define X(name, text) [HR_##name] = text,
    HR_STATUS_LIST(X)
#undef X
};

static void one_line(void) {
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

hr_status hr_fail(hr_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    one_line();
    last = code;
    return code;
}

hr_status hr_fail_prefix(hr_status code, const char *prefix) {
    char old[MESSAGE_BYTES];
    memcpy(old, message, sizeof old);
    return hr_fail(code, "%s: %s", prefix, old[0] ? old : hr_status_text(code));
}

const char *hr_error(void) {
    return message[0] ? message : hr_status_text(last);
}

const char *hr_status_text(hr_status code) {
    return (unsigned)code < HR_STATUS_COUNT ? texts[code] : "unknown status";
}
