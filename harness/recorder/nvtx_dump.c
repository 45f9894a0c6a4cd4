/* At the end of the program: the records of all threads become a trace and a summary, both written beside and renamed.
 * Whatever fails here is one line on stderr; the program's exit code is its own. */
#include "harness/recorder/nvtx_record.h"
#include "harness/trace/chrome_trace.h"
#include "kernels/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EVENT_MOST = 256,   /* bytes of an event besides its texts */
    HEAD_BYTES = 8192,  /* of the trace's head and facts */
    ROW_BYTES = 256,    /* that name a row */
    ROW_ID = 100000000, /* over any thread id: rows that are no thread's own */
};

typedef struct recording {
    hr_rec_ref *refs;
    size_t n, space;
    hr_rec_rows rows;
    uint64_t end_ns, origin_ns;
    uint64_t overwritten, cut, refused, unmatched, open; /* ranges and marks */
    size_t counts[HR_REC_KINDS];
    uint32_t threads; /* with records */
    bool many_domains;
} recording;

/* ---- what there is ----------------------------------------------------------------------------------------------- */

static bool take(recording *rec, const hr_rec *record) {
    if (rec->n == rec->space) {
        const size_t space = rec->space ? 2 * rec->space : 4096;
        hr_rec_ref *more = realloc(rec->refs, space * sizeof *more);
        if (!more) return false;
        rec->refs = more, rec->space = space;
    }
    rec->refs[rec->n] = (hr_rec_ref){.record = record, .order = (uint32_t)rec->n};
    rec->n++;
    return true;
}

static bool take_open(recording *rec, hr_rec *record) {
    record->end_ns = rec->end_ns > record->start_ns ? rec->end_ns : record->start_ns;
    record->open = 1;
    return take(rec, record);
}

static bool take_thread(recording *rec, hr_rec_thread *t) {
    const size_t before = rec->n;
    rec->overwritten += t->dropped, rec->unmatched += t->unmatched;
    for (hr_rec_chunk *chunk = t->oldest; chunk; chunk = chunk->next)
        for (uint32_t i = 0; i < chunk->n; i++)
            if (!take(rec, &chunk->records[i])) return false;
    for (uint32_t depth = t->stack ? t->depth : 0; depth; depth--)
        if (!take_open(rec, &t->stack[depth - 1])) return false;
    rec->threads += rec->n > before;
    return true;
}

static bool gather(recording *rec) {
    rec->refused = hr_rec_refused();
    for (uint32_t i = 0; i < hr_rec_threads(); i++) {
        hr_rec_thread *t = hr_rec_thread_at(i);
        if (t && !take_thread(rec, t)) return false;
    }
    for (uint32_t i = 0; i < hr_rec_spans(); i++) {
        hr_rec_span *span = hr_rec_span_at(i);
        if (atomic_load(&span->id) && !take_open(rec, &span->record)) return false;
    }
    return true;
}

/* Facts of the records that will be written. */
static void look_at(recording *rec) {
    rec->origin_ns = UINT64_MAX, rec->open = 0, rec->many_domains = false;
    memset(rec->counts, 0, sizeof rec->counts);
    for (size_t i = 0; i < rec->n; i++) {
        const hr_rec *r = rec->refs[i].record;
        if (r->start_ns < rec->origin_ns) rec->origin_ns = r->start_ns;
        rec->counts[r->kind]++;
        rec->open += r->open;
        rec->many_domains |= r->domain != rec->refs[0].record->domain;
    }
    if (!rec->n) rec->origin_ns = 0;
}

/* ---- one event --------------------------------------------------------------------------------------------------- */

/* The payload as an argument; text[32] holds what is no whole number from 0 on. */
static hr_chrome_arg payload_arg(const hr_rec *r, char text[32]) {
    hr_chrome_arg arg = {.key = "payload", .number = r->payload};
    double number;
    memcpy(&number, &r->payload, sizeof number);
    if (r->payload_type == HR_REC_DOUBLE)
        snprintf(text, 32, "%.17g", number), arg.text = text;
    else if (r->payload_type == HR_REC_SIGNED && (int64_t)r->payload < 0)
        snprintf(text, 32, "%lld", (long long)r->payload), arg.text = text;
    return arg;
}

static void put_event(hr_chrome *chrome, const recording *rec, const hr_rec *r, long tid) {
    const char *category = hr_rec_category_text(r->domain, r->category), *name = hr_rec_text(r->name);
    hr_chrome_arg args[3];
    char text[32];
    size_t n = 0;
    if (r->payload_type) args[n++] = payload_arg(r, text);
    if (rec->many_domains) args[n++] = (hr_chrome_arg){.key = "domain", .text = hr_rec_domain_text(r->domain)};
    if (r->open)
        args[n++] = (hr_chrome_arg){.key = "open", .text = "had not ended; closed at the end of the recording"};
    if (r->kind == HR_REC_MARK)
        hr_chrome_mark(chrome, category, name, tid, r->start_ns, args, n);
    else
        hr_chrome_event(chrome, category, name, tid, r->start_ns, r->end_ns, args, n);
}

/* ---- the limit of the file --------------------------------------------------------------------------------------- */

static ssize_t count_bytes(void *cookie, const char *bytes, size_t n) {
    (void)bytes;
    *(size_t *)cookie += n;
    return (ssize_t)n;
}

static int newest_first(const void *left, const void *right) {
    const hr_rec_ref *a = left, *b = right;
    const uint64_t x = a->record->end_ns, y = b->record->end_ns;
    return x != y ? (x > y ? -1 : 1) : a->order == b->order ? 0 : a->order > b->order ? -1 : 1;
}

/* Leaves the newest records that the file has room for. They are written to a stream that only counts: texts are
 * escaped, so that their length says too little. */
static bool cut(recording *rec, uint64_t max_bytes) {
    uint64_t most = HEAD_BYTES + (uint64_t)ROW_BYTES * rec->threads, bytes = 0;
    for (size_t i = 0; i < rec->n; i++) {
        const hr_rec *r = rec->refs[i].record;
        most += EVENT_MOST + 6 * (strlen(hr_rec_text(r->name)) + strlen(hr_rec_category_text(r->domain, r->category)) +
                                  strlen(hr_rec_domain_text(r->domain)));
    }
    if (!rec->n || most <= max_bytes) return true;
    size_t counted = 0;
    FILE *stream = fopencookie(&counted, "w", (cookie_io_functions_t){.write = count_bytes});
    if (!stream) return false;
    setvbuf(stream, NULL, _IONBF, 0);
    hr_chrome chrome = {.stream = stream, .pid = getpid(), .origin_ns = rec->origin_ns};
    qsort(rec->refs, rec->n, sizeof *rec->refs, newest_first);
    size_t kept = 0;
    for (; kept < rec->n; kept++) {
        put_event(&chrome, rec, rec->refs[kept].record, ROW_ID);
        bytes = HEAD_BYTES + (uint64_t)ROW_BYTES * rec->threads + counted;
        if (bytes > max_bytes) break;
    }
    fclose(stream);
    rec->cut = rec->n - kept;
    rec->n = kept;
    return true;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct beside {
    FILE *stream;
    int fd, error; /* error: errno of the first write that failed, which stdio forgets */
    char path[PATH_MAX], temporary[PATH_MAX + 32];
} beside;

static ssize_t beside_write(void *cookie, const char *bytes, size_t n) {
    beside *file = cookie;
    for (size_t done = 0; done < n && !file->error;) {
        const ssize_t got = write(file->fd, bytes + done, n - done);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EINTR)
            file->error = got == 0 ? ENOSPC : errno;
    }
    return (ssize_t)n; /* the rest goes nowhere */
}

static int beside_shut(void *cookie) {
    beside *file = cookie;
    if (close(file->fd) != 0 && !file->error) file->error = errno;
    return 0;
}

/* 0 or errno. */
static int beside_open(beside *file, const char *path) {
    struct stat info;
    *file = (beside){0};
    bool device = false;
    if (!strcmp(path, "-")) {
        file->fd = dup(STDERR_FILENO);
    } else {
        if (!realpath(path, file->path)) snprintf(file->path, sizeof file->path, "%s", path);
        device = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
        if (device && S_ISDIR(info.st_mode)) return EISDIR;
        if (!device) snprintf(file->temporary, sizeof file->temporary, "%s.tmp.%ld", file->path, (long)getpid());
        file->fd = open(device ? file->path : file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    }
    if (file->fd < 0) return errno;
    file->stream = fopencookie(file, "w", (cookie_io_functions_t){.write = beside_write, .close = beside_shut});
    if (file->stream) return 0;
    close(file->fd);
    if (file->temporary[0]) unlink(file->temporary);
    return ENOMEM;
}

static int beside_close(beside *file) {
    fclose(file->stream);
    int error = file->error;
    if (!error && file->temporary[0] && rename(file->temporary, file->path) != 0) error = errno;
    if (error && file->temporary[0]) unlink(file->temporary);
    return error;
}

static void row_name(const hr_rec_row *row, char out[160]) {
    const hr_rec_thread *t = hr_rec_thread_at(row->thread);
    const char *given = hr_rec_thread_text(t->tid);
    char name[64];
    if (given)
        snprintf(name, sizeof name, "%.60s", given);
    else
        snprintf(name, sizeof name, "%s %ld", t->tid == getpid() ? "main" : t->name, t->tid);
    if (row->span)
        snprintf(out, 160, "%s: started and ended (%u)", name, row->number + 1);
    else if (row->number)
        snprintf(out, 160, "%s: overlapping (%u)", name, row->number + 1);
    else
        snprintf(out, 160, "%s", name);
}

static long row_id(const recording *rec, uint32_t row) {
    const hr_rec_row *r = &rec->rows.rows[row];
    return r->span || r->number ? ROW_ID + (long)row : hr_rec_thread_at(r->thread)->tid;
}

static void put_trace(const recording *rec, FILE *stream) {
    hr_chrome chrome;
    hr_chrome_begin(&chrome, stream, getpid(), rec->origin_ns, program_invocation_short_name);
    for (uint32_t i = 0; i < rec->rows.n; i++) {
        char name[160];
        row_name(&rec->rows.rows[i], name);
        hr_chrome_thread(&chrome, row_id(rec, i), name);
    }
    for (size_t i = 0; i < rec->n; i++) put_event(&chrome, rec, rec->refs[i].record, row_id(rec, rec->refs[i].row));
    const hr_chrome_arg other[] = {
        {.key = "source", .text = "headroom-nvtx"},
        {.key = "domain",
         .text = rec->many_domains || !rec->n ? "several" : hr_rec_domain_text(rec->refs[0].record->domain)},
        {.key = "ranges", .number = rec->counts[HR_REC_RANGE] + rec->counts[HR_REC_SPAN]},
        {.key = "marks", .number = rec->counts[HR_REC_MARK]},
        {.key = "open_at_end", .number = rec->open},
        {.key = "dropped", .number = rec->overwritten + rec->cut + rec->refused + rec->rows.left_out},
        {.key = "dropped_oldest", .number = rec->overwritten + rec->cut},
        {.key = "dropped_no_place", .number = rec->refused + rec->rows.left_out},
        {.key = "unmatched_ends", .number = rec->unmatched},
        {.key = "stopped_early", .text = "out of memory"},
    };
    hr_chrome_end(&chrome, other, sizeof other / sizeof other[0] - !hr_rec_stopped_early());
}

/* Texts of a TSV hold no tab, newline or other control character. */
static void put_cell(FILE *stream, const char *text) {
    for (; *text; text++) fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, stream);
}

/* The widths of figures are such that tabs line them up with their heads. */
static void put_summary(const recording *rec, const hr_rec_line *lines, size_t n, FILE *stream) {
    static const char *const styles[HR_REC_KINDS] = {"pushpop", "startend", "mark"};
    fprintf(stream, "# headroom-nvtx: %s, process %ld: %zu ranges, %zu marks, %u threads\n",
            program_invocation_short_name, (long)getpid(), rec->counts[HR_REC_RANGE] + rec->counts[HR_REC_SPAN],
            rec->counts[HR_REC_MARK], rec->threads);
    const uint64_t dropped = rec->overwritten + rec->cut, no_place = rec->refused + rec->rows.left_out;
    if (dropped)
        fprintf(stream, "# dropped: the oldest %llu, to stay under HEADROOM_NVTX_MAX_MB\n",
                (unsigned long long)dropped);
    if (no_place) fprintf(stream, "# dropped: %llu for which there was no place\n", (unsigned long long)no_place);
    if (hr_rec_stopped_early()) fprintf(stream, "# recording stopped early: out of memory\n");
    if (rec->open)
        fprintf(stream, "# open: %llu had not ended and were closed at the end\n", (unsigned long long)rec->open);
    if (rec->unmatched) fprintf(stream, "# ends without a begin: %llu\n", (unsigned long long)rec->unmatched);
    fprintf(stream, "calls\ttotal_time_us\tmean_time_us\tmedian_time_us\tmin_time_us\tmax_time_us\tstyle\tdomain\t"
                    "category\tname\n");
    for (size_t i = 0; i < n; i++) {
        const hr_rec_line *l = &lines[i];
        const hr_rec *r = l->example;
        fprintf(stream, "%llu\t%12.3f\t%12.3f\t%12.3f\t%12.3f\t%12.3f\t%s\t", (unsigned long long)l->calls,
                (double)l->total_ns / 1e3, (double)l->total_ns / 1e3 / (double)l->calls, l->median_ns / 1e3,
                (double)l->min_ns / 1e3, (double)l->max_ns / 1e3, styles[r->kind]);
        put_cell(stream, hr_rec_domain_text(r->domain)), fputc('\t', stream);
        put_cell(stream, hr_rec_category_text(r->domain, r->category)), fputc('\t', stream);
        put_cell(stream, hr_rec_text(r->name)), fputc('\n', stream);
    }
}

static const char *advice(int error) {
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? " (free some space, or set HEADROOM_NVTX_OUT)" : "";
}

static void write_trace(const recording *rec, const char *path) {
    beside file;
    int error = beside_open(&file, path);
    if (!error) {
        put_trace(rec, file.stream);
        error = beside_close(&file);
    }
    if (error) hr_rec_warn("%s: %s; no trace written%s", path, strerror(error), advice(error));
}

static void write_summary(recording *rec, const char *path) {
    beside file;
    size_t n = 0;
    hr_rec_line *lines = hr_rec_summarize(rec->refs, rec->n, &n);
    int error = lines ? beside_open(&file, path) : ENOMEM;
    if (!error) {
        put_summary(rec, lines, n, file.stream);
        error = beside_close(&file);
    }
    if (error) hr_rec_warn("%s: %s; no summary written%s", path, strerror(error), advice(error));
    free(lines);
}

static void write_all(recording *rec) {
    char trace[1100], summary[1120];
    hr_rec_trace_path(trace);
    hr_rec_summary_path(trace, summary);
    if (strcmp(trace, "none") != 0) write_trace(rec, trace);
    if (strcmp(summary, "none") != 0) write_summary(rec, summary);
}

void hr_rec_dump(void) {
    static _Atomic long dumped_by; /* process: a child of fork has its own turn */
    const hr_rec_settings *settings = hr_rec_settings_get();
    const long pid = getpid();
    if (atomic_exchange(&dumped_by, pid) == pid) return;
    hr_rec_stop();
    recording rec = {.end_ns = hr_now_ns()};
    /* A limit of the file's size or a closed pipe must not end the program. */
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction size, pipe;
    sigaction(SIGXFSZ, &ignore, &size);
    sigaction(SIGPIPE, &ignore, &pipe);
    bool ok = gather(&rec);
    if (ok && (rec.n || !settings->forked)) {
        look_at(&rec);
        ok = cut(&rec, settings->max_bytes) && hr_rec_rows_make(rec.refs, &rec.n, &rec.rows);
        look_at(&rec);
        if (ok) write_all(&rec);
    }
    if (!ok) hr_rec_warn("out of memory for the trace; nothing written");
    free(rec.rows.rows);
    free(rec.refs);
    sigaction(SIGXFSZ, &size, NULL);
    sigaction(SIGPIPE, &pipe, NULL);
}
