/* Events are put together in a buffer of one event, without printf: a trace has millions of them. */
#include "harness/trace/chrome_trace.h"

#include <string.h>

enum { BUFFER = 4096, DIGITS = 20 };

/* What is not yet in the stream. */
typedef struct line {
    FILE *stream;
    size_t used;
    char bytes[BUFFER];
} line;

static void line_open(line *l, FILE *stream) {
    l->stream = stream;
    l->used = 0;
}

static void line_flush(line *l) {
    fwrite(l->bytes, 1, l->used, l->stream);
    l->used = 0;
}

static void put(line *l, const char *bytes, size_t n) {
    if (n > BUFFER - l->used) line_flush(l); /* nothing here is as long as the buffer */
    memcpy(l->bytes + l->used, bytes, n);
    l->used += n;
}

static void put_plain(line *l, const char *text) {
    put(l, text, strlen(text));
}

static void put_number(line *l, uint64_t number) {
    char digits[DIGITS];
    size_t at = DIGITS;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(l, digits + at, DIGITS - at);
}

static void put_signed(line *l, long number) {
    if (number < 0) put(l, "-", 1);
    put_number(l, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

/* Nanoseconds as microseconds with three decimals. */
static void put_us(line *l, uint64_t ns) {
    const unsigned rest = (unsigned)(ns % 1000);
    const char decimals[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    put_number(l, ns / 1000);
    put(l, decimals, sizeof decimals);
}

static bool continues(unsigned char byte) {
    return (byte & 0xc0) == 0x80;
}

/* Bytes of the UTF-8 character at text; 0: none begins there (overlong forms, surrogates and what is over U+10FFFF are
 * none). Reads nothing behind the end of the text, as its 0 continues no character. */
static size_t utf8_size(const unsigned char *text) {
    const unsigned char lead = text[0];
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4 || !continues(text[1])) return 0;
    if (lead < 0xe0) return 2;
    if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f)) return 0;
    if ((lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f) || !continues(text[2])) return 0;
    if (lead < 0xf0) return 3;
    return continues(text[3]) ? 4 : 0;
}

static void put_escaped(line *l, unsigned char byte) {
    static const char hex[] = "0123456789abcdef";
    const char code[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
    if (byte < 0x20)
        put(l, code, sizeof code);
    else
        put(l, byte == '"' ? "\\\"" : "\\\\", 2);
}

static void put_text(line *l, const char *text) {
    const unsigned char *at = (const unsigned char *)(text ? text : "");
    put(l, "\"", 1);
    while (*at) {
        /* Names are plain ASCII nearly always: as much of that as there is in one go. */
        size_t n = 0;
        while (n < BUFFER / 2 && at[n] >= 0x20 && at[n] < 0x80 && at[n] != '"' && at[n] != '\\') n++;
        if (n) {
            put(l, (const char *)at, n);
            at += n;
            continue;
        }
        if (*at < 0x80) {
            put_escaped(l, *at++);
            continue;
        }
        n = utf8_size(at);
        put(l, n ? (const char *)at : "?", n ? n : 1);
        at += n ? n : 1;
    }
    put(l, "\"", 1);
}

/* ,"key":{"a":1,"b":"text"}; nothing for no arguments. Numbers over those of a signed word become text: readers refuse
 * them as numbers. */
static void put_object(line *l, const char *key, const hr_chrome_arg *args, size_t n) {
    if (!n) return;
    put_plain(l, key);
    for (size_t i = 0; i < n; i++) {
        const bool big = !args[i].text && args[i].number > INT64_MAX;
        put(l, i ? "," : "{", 1);
        put_text(l, args[i].key);
        put(l, ":", 1);
        if (args[i].text) {
            put_text(l, args[i].text);
            continue;
        }
        if (big) put(l, "\"", 1);
        put_number(l, args[i].number);
        if (big) put(l, "\"", 1);
    }
    put(l, "}", 1);
}

/* What every event begins with. */
static void put_head(hr_chrome *chrome, line *l, const char *kind, long tid) {
    line_open(l, chrome->stream);
    put_plain(l, chrome->first ? "\n" : ",\n");
    chrome->first = false;
    put_plain(l, "{\"ph\":\"");
    put_plain(l, kind);
    put_plain(l, "\",\"pid\":");
    put_signed(l, chrome->pid);
    put_plain(l, ",\"tid\":");
    put_signed(l, tid);
}

static void put_named(hr_chrome *chrome, line *l, const char *category, const char *name, uint64_t at_ns) {
    const bool before = at_ns < chrome->origin_ns;
    put_plain(l, ",\"cat\":");
    put_text(l, category);
    put_plain(l, ",\"name\":");
    put_text(l, name);
    put_plain(l, before ? ",\"ts\":-" : ",\"ts\":");
    put_us(l, before ? chrome->origin_ns - at_ns : at_ns - chrome->origin_ns);
}

/* Names the process or one of its threads. */
static void put_name(hr_chrome *chrome, const char *what, long tid, const char *name) {
    const hr_chrome_arg arg = {.key = "name", .text = name ? name : ""};
    line l;
    put_head(chrome, &l, "M", tid);
    put_plain(&l, ",\"name\":");
    put_text(&l, what);
    put_object(&l, ",\"args\":", &arg, 1);
    put(&l, "}", 1);
    line_flush(&l);
}

void hr_chrome_begin(hr_chrome *chrome, FILE *stream, long pid, uint64_t origin_ns, const char *process) {
    *chrome = (hr_chrome){.stream = stream, .pid = pid, .origin_ns = origin_ns, .first = true};
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", stream);
    put_name(chrome, "process_name", 0, process);
}

void hr_chrome_thread(hr_chrome *chrome, long tid, const char *name) {
    put_name(chrome, "thread_name", tid, name);
}

void hr_chrome_event(hr_chrome *chrome, const char *category, const char *name, long tid, uint64_t start_ns,
                     uint64_t end_ns, const hr_chrome_arg *args, size_t n_args) {
    line l;
    put_head(chrome, &l, "X", tid);
    put_named(chrome, &l, category, name, start_ns);
    put_plain(&l, ",\"dur\":");
    put_us(&l, end_ns > start_ns ? end_ns - start_ns : 0);
    put_object(&l, ",\"args\":", args, n_args);
    put(&l, "}", 1);
    line_flush(&l);
}

void hr_chrome_mark(hr_chrome *chrome, const char *category, const char *name, long tid, uint64_t at_ns,
                    const hr_chrome_arg *args, size_t n_args) {
    line l;
    put_head(chrome, &l, "i", tid);
    put_named(chrome, &l, category, name, at_ns);
    put_plain(&l, ",\"s\":\"t\"");
    put_object(&l, ",\"args\":", args, n_args);
    put(&l, "}", 1);
    line_flush(&l);
}

void hr_chrome_end(hr_chrome *chrome, const hr_chrome_arg *other, size_t n_other) {
    line l;
    line_open(&l, chrome->stream);
    put_plain(&l, "\n]");
    put_object(&l, ",\"otherData\":", other, n_other);
    put_plain(&l, "}\n");
    line_flush(&l);
}
