#include "harness/formats/csv_read.h"

#include "kernels/base/memory.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void hr_csv_init(hr_csv *csv, const char *text, size_t n) {
    *csv = (hr_csv){.text = text, .n = n, .line = 1, .next_line = 1};
}

void hr_csv_restart(hr_csv *csv, const char *text, size_t n, size_t line) {
    csv->text = text, csv->n = n, csv->at = 0;
    csv->line = csv->next_line = line;
    csv->n_fields = 0;
}

void hr_csv_fini(hr_csv *csv) {
    hr_free(csv->bytes), hr_free(csv->fields);
    *csv = (hr_csv){0};
}

/* Room for a record that ends at or before the end of the text: fields take no more bytes than they stand in, and there
 * is at most one more of them than commas. */
static hr_status make_room(hr_csv *csv, size_t bytes, size_t slots) {
    if (bytes > csv->n_bytes) {
        char *grown = hr_realloc(csv->bytes, bytes);
        if (!grown) HR_FAIL(HR_ERR_MEMORY, "line %zu: out of memory", csv->line);
        csv->bytes = grown, csv->n_bytes = bytes;
    }
    if (slots > csv->n_slots) {
        const char **grown = hr_realloc(csv->fields, hr_mul(slots, sizeof *grown));
        if (!grown) HR_FAIL(HR_ERR_MEMORY, "line %zu: out of memory", csv->line);
        csv->fields = grown, csv->n_slots = slots;
    }
    return HR_OK;
}

/* Bytes of the record at `at` without its line end, and how many fields it has. */
static hr_status measure(const hr_csv *csv, size_t *bytes, size_t *fields) {
    bool quoted = false, begins = true; /* a quote is one only where a field begins, or ends what such a one began */
    size_t i = csv->at, commas = 0;
    for (; i < csv->n; i++) {
        const char c = csv->text[i];
        if (!c) HR_FAIL(HR_ERR_INPUT, "line %zu: a NUL byte: this is no text", csv->line);
        if (c == '"' && (quoted || begins))
            quoted = !quoted, begins = !quoted; /* a doubled quote leaves and enters again */
        else
            begins = !quoted && c == ',';
        if (quoted) continue;
        if (c == '\n') break;
        commas += c == ',';
    }
    if (quoted) HR_FAIL(HR_ERR_INPUT, "line %zu: a quote that never ends: the table was cut", csv->line);
    *bytes = i - csv->at, *fields = commas + 1;
    return HR_OK;
}

/* One field of the record that ends at `end`: from csv->at to the comma or the end, into `to`. Returns the byte after its
 * NUL, or NULL. */
static char *read_field(hr_csv *csv, size_t end, char *to) {
    const char *text = csv->text;
    if (csv->at < end && text[csv->at] == '"') {
        for (csv->at++; csv->at < end; csv->at++) {
            if (text[csv->at] == '\n') csv->next_line++;
            if (text[csv->at] == '"' && (csv->at + 1 == end || text[++csv->at] != '"')) break;
            *to++ = text[csv->at];
        }
        if (csv->at + 1 == end && text[csv->at] == '"') csv->at++;
        if (csv->at < end && text[csv->at] != ',') return NULL;
    } else
        while (csv->at < end && text[csv->at] != ',') *to++ = text[csv->at++];
    *to++ = 0;
    return to;
}

hr_status hr_csv_next(hr_csv *csv) {
    size_t bytes, slots;
    csv->n_fields = 0, csv->line = csv->next_line;
    if (csv->at >= csv->n) return HR_OK;
    HR_TRY(measure(csv, &bytes, &slots));
    HR_TRY(make_room(csv, bytes + slots, slots));
    const size_t stop = csv->at + bytes;
    const size_t end = bytes && stop < csv->n && csv->text[stop - 1] == '\r' ? stop - 1 : stop;
    char *to = csv->bytes;
    for (;;) {
        csv->fields[csv->n_fields++] = to;
        if (!(to = read_field(csv, end, to))) {
            csv->n_fields = 0;
            HR_FAIL(HR_ERR_INPUT, "line %zu: text behind a closing quote", csv->line);
        }
        if (csv->at >= end) break;
        csv->at++; /* the comma */
    }
    csv->ended = stop < csv->n;
    csv->at = csv->ended ? stop + 1 : stop;
    csv->next_line++;
    return HR_OK;
}

hr_status hr_csv_find(hr_csv *csv, const char *text, size_t n, bool (*is_heading)(const hr_csv *csv, void *context),
                      void *context, bool *found) {
    size_t line = 1;
    *found = false;
    for (size_t at = 0; at < n && !*found; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - text) - at + 1 : n - at;
        hr_csv_restart(csv, text + at, length, line);
        const hr_status status = hr_csv_next(csv);
        if (status == HR_ERR_MEMORY) return status;
        at += length;
        *found = status == HR_OK && is_heading(csv, context);
        if (*found) csv->text = text + at, csv->n = n - at, csv->at = 0;
    }
    return HR_OK;
}

hr_status hr_csv_whole(const hr_csv *csv, size_t n_fields) {
    if (csv->n_fields != n_fields)
        HR_FAIL(HR_ERR_INPUT, "line %zu has %zu fields, its heading %zu: the table was cut or changed", csv->line,
                csv->n_fields, n_fields);
    if (!csv->ended) HR_FAIL(HR_ERR_INPUT, "line %zu has no end: the table was cut", csv->line);
    return HR_OK;
}

/* Commas stand behind one to three digits first, then behind each three, and not behind the point. */
static bool groups_are_sound(const char *field) {
    const size_t whole = strcspn(field, ".eE");
    size_t digits = 0;
    bool seen = false;
    for (size_t i = field[0] == '-'; i < whole; i++) {
        if (field[i] != ',') {
            digits++;
            continue;
        }
        if (digits == 0 || digits > 3 || (seen && digits != 3)) return false;
        seen = true, digits = 0;
    }
    return (!seen || digits == 3) && !strchr(field + whole, ',');
}

/* A program around this one may have chosen a locale with a decimal comma. */
static locale_t c_locale;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool hr_csv_number(const char *field, bool grouped, double *out) {
    char plain[64];
    size_t n = 0;
    if (grouped && !groups_are_sound(field)) return false;
    for (const char *at = field; *at; at++) {
        if (grouped && *at == ',') continue;
        if (!isdigit((unsigned char)*at) && !strchr("+-.eE", *at)) return false;
        if (n + 1 >= sizeof plain) return false;
        plain[n++] = *at;
    }
    plain[n] = 0;
    char *end;
    pthread_once(&once, make_c_locale);
    const double value = c_locale ? strtod_l(plain, &end, c_locale) : strtod(plain, &end);
    if (!n || *end || !isfinite(value)) return false;
    *out = value;
    return true;
}
