/* A program that uses NVTX and nothing of Headroom: what the tests of the recorder run. nvtx_app WHAT [N | FILE]
 * The exit code of `mixed` is 7, so that a test sees whether the recorder changes it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void busy_us(double us) {
    for (double until = seconds() + us * 1e-6; seconds() < until;) {
    }
}

static nvtxEventAttributes_t event(const char *text, uint32_t category) {
    return (nvtxEventAttributes_t){.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .category = category,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = text};
}

/* ---- mixed ------------------------------------------------------------------------------------------------------- */

static nvtxDomainHandle_t engine;
static nvtxStringHandle_t step;

static void *worker(void *arg) {
    const int n = *(const int *)arg;
    nvtxEventAttributes_t e = event(NULL, 3);
    e.messageType = NVTX_MESSAGE_TYPE_REGISTERED, e.message.registered = step;
    e.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    for (int i = 0; i < n; i++) {
        char name[32]; /* the memory is used again for another name */
        snprintf(name, sizeof name, "op %d", i % 5);
        e.payload.ullValue = (uint64_t)i;
        nvtxDomainRangePushEx(engine, &e);
        nvtxRangePushA(name);
        nvtxRangePop();
        nvtxDomainRangePop(engine);
    }
    return NULL;
}

static void payloads(void) {
    nvtxEventAttributes_t e = event("payload", 3);
    const struct {
        int type;
        uint64_t bits;
    } all[] = {{NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, 0xfffffffffffffff0u},
               {NVTX_PAYLOAD_TYPE_INT64, (uint64_t)-5},
               {NVTX_PAYLOAD_TYPE_INT32, (uint32_t)-6},
               {NVTX_PAYLOAD_TYPE_DOUBLE, 0x3ff8000000000000u},
               {NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, UINT64_MAX},
               {99, 1}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        e.payloadType = all[i].type;
        e.payload.ullValue = all[i].bits;
        nvtxDomainRangePushEx(engine, &e);
        nvtxDomainRangePop(engine);
    }
}

static void hostile(void) {
    static char longest[100000];
    memset(longest, 'x', sizeof longest - 1);
    const char *const names[] = {
        "quote \" backslash \\", "tab\tnewline\n", "broken \xff\xfe utf8", "", "</script>", longest, NULL};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        nvtxRangePushA(names[i]);
        nvtxRangePop();
    }
    nvtxRangePushW(L"gr\u00fc\u00df \u4e16 \U0001f600");
    nvtxRangePop();
    nvtxRangePushEx(NULL);
    nvtxRangePop();
    nvtxEventAttributes_t old = event("too small", 1);
    old.size = 8;
    nvtxRangePushEx(&old);
    nvtxRangePop();
    nvtxRangeEnd(0);
    nvtxRangeEnd(0x1234567890);
}

static int mixed(int n) {
    nvtxDomainHandle_t other = nvtxDomainCreateA("other");
    engine = nvtxDomainCreateA("engine");
    if (nvtxDomainCreateA("engine") != engine) return 3;
    step = nvtxDomainRegisterStringA(engine, "step");
    nvtxDomainNameCategoryA(engine, 3, "steps");
    nvtxNameCategoryA(4, "requests");
    nvtxNameOsThreadA((uint32_t)getpid(), "front end");

    if (nvtxRangePushA("outer") != 0 || nvtxRangePushA("inner") != 1) return 4;
    nvtxMarkA("first token");
    busy_us(50);
    if (nvtxRangePop() != 1 || nvtxRangePop() != 0 || nvtxRangePop() >= 0) return 5;

    /* Stacks of two domains that overlap: levels are those of each domain. */
    nvtxEventAttributes_t a = event("crossing a", 0), b = event("crossing b", 0);
    if (nvtxDomainRangePushEx(engine, &a) != 0 || nvtxDomainRangePushEx(other, &b) != 0) return 6;
    busy_us(20);
    if (nvtxDomainRangePop(engine) != 0) return 8;
    busy_us(20);
    if (nvtxDomainRangePop(other) != 0) return 9;

    pthread_t threads[4];
    const nvtxEventAttributes_t request = event("request", 4);
    const nvtxRangeId_t one = nvtxRangeStartEx(&request), two = nvtxRangeStartEx(&request);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, worker, &n);
    nvtxRangeEnd(one);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    nvtxRangeEnd(two);
    nvtxRangeEnd(two);
    nvtxDomainMarkEx(engine, &a);
    payloads();
    hostile();
    nvtxRangePushA("never popped");
    nvtxRangePushA("nor this");
    nvtxRangeStartA("never ended");
    return 7;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static int many(int n) {
    nvtxInitialize(NULL); /* loads the recorder even without a range */
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "event %d", i);
        nvtxRangePushA("pair");
        nvtxRangePop();
        if (i % 100 == 0) nvtxMarkA(name);
    }
    return 0;
}

static int forks(int n) {
    nvtxRangePushA("parent");
    for (int i = 0; i < 3; i++) {
        const pid_t pid = fork();
        if (pid == 0) {
            if (i == 2) exit(0); /* records nothing */
            nvtxRangePop();      /* of a range that is the parent's */
            for (int k = 0; k < n; k++) nvtxRangePushA("child"), nvtxRangePop();
            exit(0);
        }
        int status = 0;
        if (waitpid(pid, &status, 0) != pid || status != 0) return 3;
    }
    nvtxRangePop();
    return 0;
}

static int modules(const char *path) {
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*work)(int) = module ? (void (*)(int))dlsym(module, "nvtx_module_work") : NULL;
    if (!work) return 3;
    nvtxRangePushA("from the program");
    work(100);
    nvtxRangePop();
    return 0;
}

static void *for_ever(void *unused) {
    for (;;) {
        nvtxRangePushA("endless");
        nvtxRangePushA("endless, inner");
        nvtxRangePop();
        nvtxRangePop();
    }
    return unused;
}

/* Threads that still emit ranges when the program ends. */
static int running(int n) {
    nvtxInitialize(NULL); /* the loader's own first call races with itself, as ThreadSanitizer sees it */
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, for_ever, NULL) != 0) return 3;
    }
    busy_us(20000);
    return 7;
}

static void *short_lived(void *unused) {
    nvtxRangePushA("short");
    nvtxRangePop();
    nvtxRangePushA("left open");
    return unused;
}

static int churn(int n) {
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, short_lived, NULL) != 0) return 3;
        pthread_join(thread, NULL);
    }
    return 0;
}

/* Address space for the program as it is and no more. */
static int no_memory(int n) {
    nvtxRangePushA("before");
    nvtxRangePop();
    FILE *statm = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!statm || fscanf(statm, "%lu", &pages) != 1) return 3;
    fclose(statm);
    setrlimit(RLIMIT_AS, &(struct rlimit){pages * 4096 + 300000, RLIM_INFINITY});
    for (int i = 0; i < n; i++) nvtxRangePushA("pair"), nvtxRangePop();
    setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    return 7;
}

/* Pushes that are never popped, deeper than any program goes, and more spans than any program opens. */
static int deep(int n) {
    for (int i = 0; i < n; i++) nvtxRangePushA("deep");
    for (int i = 0; i < n; i++) nvtxRangePop();
    if (nvtxRangePushA("after") != 0 || nvtxRangePop() != 0) return 3;
    for (int i = 0; i < n; i++) nvtxRangeStartA("span");
    return 0;
}

static void pair_with_attributes(nvtxDomainHandle_t domain, nvtxStringHandle_t name, int i) {
    nvtxEventAttributes_t e = event(NULL, 3);
    e.messageType = NVTX_MESSAGE_TYPE_REGISTERED, e.message.registered = name;
    e.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, e.payload.ullValue = (uint64_t)i;
    nvtxDomainRangePushEx(domain, &e);
    nvtxDomainRangePop(domain);
}

/* Nanoseconds a pair, for a person to read. */
static int bench(int n) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
    nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "registered");
    for (int round = 0; round < 4; round++) {
        const double t0 = seconds();
        for (int i = 0; i < n; i++) nvtxRangePushA("ascii name"), nvtxRangePop();
        const double t1 = seconds();
        for (int i = 0; i < n; i++) pair_with_attributes(domain, name, i);
        const double t2 = seconds();
        for (int i = 0; i < n; i++) nvtxRangeEnd(nvtxRangeStartA("span"));
        const double t3 = seconds();
        printf("ns a pair: ascii %.1f, registered with payload %.1f, start and end %.1f\n", (t1 - t0) / n * 1e9,
               (t2 - t1) / n * 1e9, (t3 - t2) / n * 1e9);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const int n = argc > 2 ? atoi(argv[2]) : 1000;
    if (!strcmp(what, "mixed")) return mixed(n);
    if (!strcmp(what, "many")) return many(n);
    if (!strcmp(what, "forks")) return forks(n);
    if (!strcmp(what, "modules") && argc > 2) return modules(argv[2]);
    if (!strcmp(what, "running")) return running(n);
    if (!strcmp(what, "churn")) return churn(n);
    if (!strcmp(what, "no-memory")) return no_memory(n);
    if (!strcmp(what, "deep")) return deep(n);
    if (!strcmp(what, "bench")) return bench(n);
    if (!strcmp(what, "quick-exit")) many(n), quick_exit(7);
    fprintf(stderr,
            "usage: nvtx_app mixed|many|forks|modules|running|churn|no-memory|deep|bench|quick-exit [N|FILE]\n");
    return 2;
}
