/* Texts, kept once each: a program passes the same few names millions of times, mostly from memory that it uses again.
 * A thread finds those it has seen in its own table; only the first sight of a name takes the lock. */
#include "harness/recorder/nvtx_record.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    BUCKETS = 1 << 14,
    BLOCK = 1024, /* names of one block of the directory */
    BLOCKS = 1024,
    LONGEST = 1000,
    ARENA_STEP = 256 << 10,
    ARENA_MOST = 64 << 20, /* of a program that makes a new name for every event */
    DOMAINS = 1024,
};

typedef struct category {
    struct category *next;
    uint32_t id;
    const hr_rec_name *name;
} category;

typedef struct os_thread {
    struct os_thread *next;
    long tid;
    const hr_rec_name *name;
} os_thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hr_rec_name *buckets[BUCKETS];
static const hr_rec_name **directory[BLOCKS];
static uint32_t n_names;
static char *arena_at;
static size_t arena_left, arena_taken;
static struct {
    const hr_rec_name *name;
    category *categories;
} domains[DOMAINS];
static _Atomic uint32_t n_domains = 1;
static os_thread *os_threads;

/* What stands for names of which there is no record. */
static const hr_rec_name no_name = {.text = "(no name)"};
static const hr_rec_name too_many = {.text = "(too many names)", .id = UINT32_MAX};

const char *hr_rec_text(uint32_t id) {
    if (id == 0) return no_name.text;
    if (id > n_names) return too_many.text;
    return directory[(id - 1) / BLOCK][(id - 1) % BLOCK]->text;
}

/* Under the lock; NULL when the names take too much. */
static void *arena_get(size_t size) {
    size = (size + 15) & ~(size_t)15;
    if (size > arena_left) {
        if (arena_taken + ARENA_STEP > ARENA_MOST) return NULL;
        void *more = mmap(NULL, ARENA_STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) return NULL;
        arena_at = more, arena_left = ARENA_STEP, arena_taken += ARENA_STEP;
    }
    void *out = arena_at;
    arena_at += size, arena_left -= size;
    return out;
}

/* Eight bytes at a time; the last word overlaps the one before it. */
static uint64_t hash_of(const char *text, size_t n) {
    const uint64_t prime = 0x9e3779b97f4a7c15u;
    uint64_t hash = n * prime, word = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, text + i, 8);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 32;
    }
    if (i < n) {
        word = 0;
        if (n >= 8)
            memcpy(&word, text + n - 8, 8);
        else
            for (size_t k = 0; k < n; k++) word |= (uint64_t)(unsigned char)text[k] << 8 * k;
        hash = (hash ^ word) * prime;
    }
    return hash ^ hash >> 29;
}

static bool is(const hr_rec_name *name, uint64_t hash, const char *text, size_t n) {
    return name->hash == hash && name->length == n && memcmp(name->text, text, n) == 0;
}

/* Under the lock. */
static const hr_rec_name *find_or_add(uint64_t hash, const char *text, size_t n) {
    hr_rec_name **bucket = &buckets[hash % BUCKETS];
    for (hr_rec_name *name = *bucket; name; name = name->next)
        if (is(name, hash, text, n)) return name;
    if (n_names == (uint32_t)BLOCK * BLOCKS) return &too_many;
    const hr_rec_name ***block = &directory[n_names / BLOCK];
    if (!*block) *block = arena_get(BLOCK * sizeof **block);
    hr_rec_name *name = *block ? arena_get(sizeof *name + n + 1) : NULL;
    if (!name) return &too_many;
    char *copy = memcpy(name + 1, text, n); /* the arena's memory is zero */
    *name = (hr_rec_name){.next = *bucket, .hash = hash, .text = copy, .id = n_names + 1, .length = (uint32_t)n};
    (*block)[n_names % BLOCK] = name;
    n_names++;
    return *bucket = name;
}

const hr_rec_name *hr_rec_name_of(const char *text, const hr_rec_name **seen) {
    if (!text) return &no_name;
    const size_t n = strnlen(text, LONGEST);
    const uint64_t hash = hash_of(text, n);
    const hr_rec_name **mine = seen ? &seen[hash % HR_REC_NAMES_SEEN] : NULL;
    if (mine && *mine && is(*mine, hash, text, n)) return *mine;
    pthread_mutex_lock(&lock);
    const hr_rec_name *name = find_or_add(hash, text, n);
    pthread_mutex_unlock(&lock);
    if (mine) *mine = name;
    return name;
}

/* The UTF-8 of a code point into out[4]; '?' for what is none. */
static size_t utf8_put(uint32_t code, char *out) {
    if (code >= 0x110000 || (code >= 0xd800 && code < 0xe000)) code = '?';
    if (code < 0x80) return out[0] = (char)code, 1;
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xf0) | code);
    return n;
}

const hr_rec_name *hr_rec_wide_name_of(const wchar_t *text, const hr_rec_name **seen) {
    if (!text) return &no_name;
    char out[LONGEST + 1];
    size_t n = 0;
    for (; *text && n + 4 <= LONGEST; text++) n += utf8_put((uint32_t)*text, out + n);
    out[n] = 0;
    return hr_rec_name_of(out, seen);
}

uint16_t hr_rec_domain_of(const hr_rec_name *name) {
    pthread_mutex_lock(&lock);
    uint32_t domain = 1;
    while (domain < n_domains && domains[domain].name != name) domain++;
    if (domain == DOMAINS)
        domain = DOMAINS - 1; /* as the last one */
    else if (domain == n_domains)
        domains[domain].name = name, n_domains = domain + 1;
    pthread_mutex_unlock(&lock);
    return (uint16_t)domain;
}

const char *hr_rec_domain_text(uint16_t domain) {
    return domain && domain < n_domains ? domains[domain].name->text : "default";
}

void hr_rec_name_category(uint16_t domain, uint32_t id, const hr_rec_name *name) {
    if (domain >= DOMAINS) return;
    pthread_mutex_lock(&lock);
    category *c = domains[domain].categories;
    while (c && c->id != id) c = c->next;
    if (!c && (c = arena_get(sizeof *c)) != NULL) {
        *c = (category){.next = domains[domain].categories, .id = id};
        domains[domain].categories = c;
    }
    if (c) c->name = name;
    pthread_mutex_unlock(&lock);
}

const char *hr_rec_category_text(uint16_t domain, uint32_t id) {
    for (const category *c = domains[domain % DOMAINS].categories; c; c = c->next)
        if (c->id == id) return c->name->text;
    if (id == 0) return hr_rec_domain_text(domain);
    char text[32];
    snprintf(text, sizeof text, "category %u", id);
    return hr_rec_name_of(text, NULL)->text;
}

void hr_rec_name_thread(long tid, const hr_rec_name *name) {
    pthread_mutex_lock(&lock);
    os_thread *t = os_threads;
    while (t && t->tid != tid) t = t->next;
    if (!t && (t = arena_get(sizeof *t)) != NULL) {
        *t = (os_thread){.next = os_threads, .tid = tid};
        os_threads = t;
    }
    if (t) t->name = name;
    pthread_mutex_unlock(&lock);
}

const char *hr_rec_thread_text(long tid) {
    for (const os_thread *t = os_threads; t; t = t->next)
        if (t->tid == tid) return t->name->text;
    return NULL;
}

void hr_rec_names_lock(void) {
    pthread_mutex_lock(&lock);
}

void hr_rec_names_unlock(void) {
    pthread_mutex_unlock(&lock);
}
