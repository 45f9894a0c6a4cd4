/* SQL text that any engine with standard quoting reads. */
#include "harness/formats/formats_internal.h"

void hr_sql_name(FILE *stream, const char *name) {
    putc('"', stream);
    for (; *name; name++) {
        if (*name == '"') putc('"', stream);
        putc(*name, stream);
    }
    putc('"', stream);
}

void hr_sql_text(FILE *stream, const char *text) {
    if (!*text) {
        fputs("NULL", stream);
        return;
    }
    putc('\'', stream);
    for (; *text; text++) {
        if (*text == '\'') putc('\'', stream);
        putc(*text, stream);
    }
    putc('\'', stream);
}
