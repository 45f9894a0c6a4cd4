/* RFC 4180: fields with a comma, a quote or a line end are quoted, quotes doubled, lines end with CR LF. */
#include "harness/formats/formats_internal.h"

#include <string.h>

void hr_csv_field(FILE *stream, const char *text, bool first) {
    if (!first) putc(',', stream);
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stream);
        return;
    }
    putc('"', stream);
    for (; *text; text++) {
        if (*text == '"') putc('"', stream);
        putc(*text, stream);
    }
    putc('"', stream);
}

void hr_csv_end(FILE *stream) {
    fputs("\r\n", stream);
}
