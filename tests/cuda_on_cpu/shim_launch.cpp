/* shim_launch.cpp - kernels by their symbols, and a launch: the blocks of its grid, one after another. */
#include "tests/cuda_on_cpu/shim_schedule.hpp"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <utility>
#include <vector>

namespace hr_shim {

static const kernel *kernels; /* all, a list */
const kernel *launched;
static const void *launched_params;
hr_shim_mode mode = hr_shim_modes[0];
hr_shim_stats stats;
static uint64_t random_state;

kernel::kernel(const char *name, unsigned max_threads, size_t bytes, void (*body)(const void *))
    : symbol(name), threads(max_threads), params_bytes(bytes), run(body), next(kernels) {
    kernels = this;
}

static const kernel *find(const char *symbol) {
    for (const kernel *k = kernels; k; k = k->next)
        if (strcmp(k->symbol, symbol) == 0) return k;
    return nullptr;
}

/* splitmix64 */
uint64_t random_number() {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool possible(const kernel *k, const hr_cuda_shape *s) {
    const uint64_t threads_asked = (uint64_t)s->block[0] * s->block[1] * s->block[2];
    return s->grid[0] >= 1 && s->grid[0] <= 0x7fffffffu && s->grid[1] >= 1 && s->grid[1] <= 65535 && s->grid[2] >= 1 &&
           s->grid[2] <= 65535 && s->block[0] <= 1024 && s->block[1] <= 1024 && s->block[2] <= 64 &&
           threads_asked >= 1 && threads_asked <= k->threads && s->smem <= 232448;
}

static void body() {
    launched->run(launched_params);
}

/* ---- a stack that overflows ---- */

static struct sigaction other_handler;
static void on_fault(int, siginfo_t *info, void *) {
    if (fiber_overflow(info->si_addr) && self) die(HR_SHIM_STACK_OVERFLOW, running(), "its stack overflows");
    sigaction(SIGSEGV, &other_handler, nullptr); /* the access is tried again, for whoever was here before */
}
/* The handler cannot run on the stack that overflowed. */
static void watch_stacks() {
    static char alternative[64 << 10];
    const stack_t stack = {.ss_sp = alternative, .ss_flags = 0, .ss_size = sizeof alternative};
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaltstack(&stack, nullptr);
    sigaction(SIGSEGV, &action, &other_handler);
}

/* ---- the grid ---- */

/* In which order blocks run: a GPU promises none. */
static std::vector<uint32_t> block_order(size_t count) {
    std::vector<uint32_t> order(count);
    const bool backwards = mode.order == HR_SHIM_DESCENDING || mode.order == HR_SHIM_LIFO;
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)(backwards ? count - 1 - i : i);
    if (mode.order == HR_SHIM_RANDOM)
        for (size_t i = count; i > 1; i--) std::swap(order[i - 1], order[random_number() % i]);
    return order;
}

static void run_grid(const hr_cuda_shape *s) {
    random_state = mode.seed;
    block.dim = dim3(s->block[0], s->block[1], s->block[2]);
    block.grid = dim3(s->grid[0], s->grid[1], s->grid[2]);
    n_threads = s->block[0] * s->block[1] * s->block[2];
    host.race_context = nullptr;
    for (const uint32_t i : block_order((size_t)s->grid[0] * s->grid[1] * s->grid[2])) {
        block.index.x = i % s->grid[0];
        block.index.y = i / s->grid[0] % s->grid[1];
        block.index.z = i / s->grid[0] / s->grid[1];
        shared_begin(s->smem);
        run_block(body);
    }
    races_join();
    shared_begin(0);
    shared_release();
    stats.launches++;
}

} // namespace hr_shim

using namespace hr_shim;

extern "C" {

const hr_shim_mode hr_shim_modes[] = {
    {HR_SHIM_ASCENDING, 0, false}, {HR_SHIM_ASCENDING, 0, true}, {HR_SHIM_DESCENDING, 0, false},
    {HR_SHIM_DESCENDING, 0, true}, {HR_SHIM_RANDOM, 1, false},   {HR_SHIM_RANDOM, 2, true},
    {HR_SHIM_LIFO, 0, false},      {HR_SHIM_LIFO, 0, true},
};
const unsigned hr_shim_n_modes = sizeof hr_shim_modes / sizeof *hr_shim_modes;

void hr_shim_set_mode(const hr_shim_mode *m) {
    mode = *m;
}

int hr_shim_launch(const char *symbol, const hr_cuda_shape *shape, const void *params) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one machine */
    const kernel *k = find(symbol);
    if (!k) return 1;
    if (!possible(k, shape)) return 2;
    /* A copy of exactly its size: what it reads behind is found, and the caller may change its own at once. */
    void *copy = malloc(k->params_bytes);
    if (!copy) die(HR_SHIM_NO_MEMORY, nullptr, "no memory for its parameters");
    memcpy(copy, params, k->params_bytes);
    pthread_mutex_lock(&lock);
    launched = k;
    launched_params = copy;
    watch_stacks();
    run_grid(shape);
    sigaction(SIGSEGV, &other_handler, nullptr);
    launched = nullptr;
    pthread_mutex_unlock(&lock);
    free(copy);
    return 0;
}

size_t hr_shim_params_bytes(const char *symbol) {
    const kernel *k = find(symbol);
    return k ? k->params_bytes : 0;
}

const char *hr_shim_kernel_at(unsigned i) {
    const kernel *k = kernels;
    while (k && i--) k = k->next;
    return k ? k->symbol : nullptr;
}

hr_shim_stats hr_shim_get_stats(void) {
    return stats;
}
}
