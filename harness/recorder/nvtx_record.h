/* nvtx_record.h - what the files of the NVTX recorder share. Names no type of NVTX, so it compiles without its headers.
 *
 * One thread writes its own records and stack of open ranges; nobody else reads them before hr_rec_stop has returned.
 * Memory comes from mmap alone: the recorder may be called from inside of the program's allocator. */
#ifndef HR_NVTX_RECORD_H
#define HR_NVTX_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- names, domains, categories (nvtx_names.c) ------------------------------------------------------------------- */

/* A text that is kept once; it never moves and is never freed, so that its address can be the handle of NVTX. */
typedef struct hr_rec_name {
    struct hr_rec_name *next; /* of the same bucket */
    uint64_t hash;
    const char *text;
    uint32_t id, length;
} hr_rec_name;

enum { HR_REC_NAMES_SEEN = 512 }; /* of a thread's own table, which needs no lock */

/* The text of an id; id 0 is "(no name)". */
const char *hr_rec_text(uint32_t id);
/* The name of this text (cut at 1000 bytes; NULL: no name). seen: the thread's table or NULL. */
const hr_rec_name *hr_rec_name_of(const char *text, const hr_rec_name **seen);
const hr_rec_name *hr_rec_wide_name_of(const wchar_t *text, const hr_rec_name **seen);

/* Domain 0 is that of the functions without a domain. Two domains of one name are one. */
uint16_t hr_rec_domain_of(const hr_rec_name *name);
const char *hr_rec_domain_text(uint16_t domain);
void hr_rec_name_category(uint16_t domain, uint32_t category, const hr_rec_name *name);
/* Its name; without one "category 7", and for 0, which says that there is none, the domain's name. */
const char *hr_rec_category_text(uint16_t domain, uint32_t category);
/* Names a thread of the operating system; NULL when it has none. */
void hr_rec_name_thread(long tid, const hr_rec_name *name);
const char *hr_rec_thread_text(long tid);
/* Around fork: no other thread is in the middle of a change. */
void hr_rec_names_lock(void);
void hr_rec_names_unlock(void);

/* ---- records (nvtx_ring.c) --------------------------------------------------------------------------------------- */

typedef enum hr_rec_kind { HR_REC_RANGE, HR_REC_SPAN, HR_REC_MARK, HR_REC_KINDS } hr_rec_kind;
typedef enum hr_rec_payload { HR_REC_NONE, HR_REC_UNSIGNED, HR_REC_SIGNED, HR_REC_DOUBLE } hr_rec_payload;

/* A range that was pushed and popped, a span that was started and ended (by any threads), or a mark. */
typedef struct hr_rec {
    uint64_t start_ns, end_ns; /* hr_now_ns; of an open range on the stack end_ns is its level in the domain */
    uint64_t payload;          /* bits as payload_type says */
    uint32_t name, category;
    uint32_t thread; /* index of the thread that began it */
    uint16_t domain;
    uint8_t kind;
    uint8_t payload_type : 4, open : 1; /* open: had not ended when recording did */
} hr_rec;

/* Records one after the other in memory that was touched before; a thread's are a list. */
typedef struct hr_rec_chunk {
    struct hr_rec_chunk *next; /* newer */
    size_t bytes;              /* of the mapping */
    uint32_t n, space;         /* records; n is current for all but the newest */
    hr_rec records[];
} hr_rec_chunk;

enum { HR_REC_DEPTH = 256, HR_REC_THREADS = 1 << 16, HR_REC_SPANS = 1 << 16 };

typedef struct hr_rec_thread {
    _Atomic uint32_t busy; /* the thread is inside of the recorder */
    uint32_t index, depth; /* depth: ranges on the stack */
    uint32_t too_deep;     /* pushes over HR_REC_DEPTH whose pops are awaited */
    hr_rec *at, *end;      /* free space of the newest chunk */
    hr_rec_chunk *oldest, *newest;
    hr_rec *stack;            /* [HR_REC_DEPTH] */
    const hr_rec_name **seen; /* [HR_REC_NAMES_SEEN] */
    uint64_t dropped, unmatched;
    long tid;
    char name[16];
} hr_rec_thread;

typedef struct hr_rec_span {
    _Atomic uint64_t id; /* 0: not open */
    _Atomic uint32_t next_free;
    hr_rec record;
} hr_rec_span;

/* What an event says besides its name. */
typedef struct hr_rec_event {
    const hr_rec_name *name; /* registered, or NULL */
    const char *text;        /* else */
    const wchar_t *wide;     /* else */
    uint64_t payload;
    uint32_t category;
    uint16_t domain;
    uint8_t payload_type;
} hr_rec_event;

/* bytes: memory that the records of all threads may take together; then each thread's oldest make room. */
void hr_rec_start(size_t bytes);
/* Level of the range, as NVTX returns it: -1 for a pop without a push, -2 when nothing is recorded. */
int hr_rec_push(const hr_rec_event *event);
int hr_rec_pop(uint16_t domain);
/* An id other than 0; 0 when it is not recorded. */
uint64_t hr_rec_span_start(const hr_rec_event *event);
void hr_rec_span_end(uint64_t id);
void hr_rec_mark(const hr_rec_event *event);

/* After it no thread writes records (one that does not come out of the recorder within a second is left alone). */
void hr_rec_stop(void);
/* In the child after a fork, where this thread is the only one: nothing is recorded yet. */
void hr_rec_forget(void);
/* What was recorded, after stop. */
uint32_t hr_rec_threads(void);
hr_rec_thread *hr_rec_thread_at(uint32_t index);
uint32_t hr_rec_spans(void);
hr_rec_span *hr_rec_span_at(uint32_t index);
/* Ranges and marks for which there was no place: no memory, too many open at once, too many threads. */
uint64_t hr_rec_refused(void);
/* There was no memory: the last part of the run is missing. */
bool hr_rec_stopped_early(void);

/* ---- the file (nvtx_settings.c, nvtx_rows.c, nvtx_summary.c, nvtx_dump.c) ---------------------------------------- */

typedef struct hr_rec_settings {
    char trace[1024], summary[1024]; /* absolute, "%p" not yet replaced; "none", and "-" for stderr */
    uint64_t max_bytes;              /* of the trace */
    bool forked;                     /* the trace gets the process id into its name */
} hr_rec_settings;
/* Read from the environment once. */
const hr_rec_settings *hr_rec_settings_get(void);
void hr_rec_settings_forked(void);
/* The one line that the recorder may write to stderr: only the first call of a process writes. */
__attribute__((format(printf, 1, 2))) void hr_rec_warn(const char *format, ...);
/* The paths as they are now. */
void hr_rec_trace_path(char out[1100]);
void hr_rec_summary_path(const char *trace, char out[1120]);

/* A record in the trace. */
typedef struct hr_rec_ref {
    const hr_rec *record;
    uint32_t order; /* of completion within its thread */
    uint32_t row;   /* index of a row, where what overlaps nests */
} hr_rec_ref;
/* A row of the trace: a thread's ranges, or what would not nest there. */
typedef struct hr_rec_row {
    uint32_t thread;
    uint8_t span;    /* of spans */
    uint32_t number; /* 0: the thread's first */
} hr_rec_row;
typedef struct hr_rec_rows {
    hr_rec_row *rows;
    uint32_t n, space;
    size_t left_out; /* records for which a row too many would have been needed: taken out of refs */
} hr_rec_rows;
/* Sorts refs by thread, ranges before spans, and start, and gives each a row. False: out of memory. */
bool hr_rec_rows_make(hr_rec_ref *refs, size_t *n, hr_rec_rows *out);

/* A line of the summary. */
typedef struct hr_rec_line {
    const hr_rec *example;
    uint64_t calls, total_ns, min_ns, max_ns;
    double median_ns;
} hr_rec_line;
/* By kind, domain, category and name; largest total first. Sorts refs. Freed with free; NULL: out of memory. */
hr_rec_line *hr_rec_summarize(hr_rec_ref *refs, size_t n, size_t *n_lines);

/* Stops, and writes trace and summary; only the first call does anything. */
void hr_rec_dump(void);

#endif
