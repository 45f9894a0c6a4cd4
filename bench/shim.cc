// shim.cc - C families on Google Benchmark. Knows nothing of kernels: all that is measured comes through shim.h.
#include "bench/shim.h"

#include <benchmark/benchmark.h>

#include <iostream>

#include <memory>
#include <string>
#include <vector>

namespace {

struct Case {
    hr_bench_family family;
    std::string name;
    std::vector<int64_t> args;
    std::vector<char> context;
    std::string error; // why its setup failed
};

Case *current = nullptr; // whose setup is alive
void *current_run = nullptr;
bool failed = false; // some check failed

void leave() {
    if (current && current_run) current->family.teardown(current_run);
    current = nullptr, current_run = nullptr;
}

// Google Benchmark calls a benchmark several times, to find its iterations and for repetitions: one setup serves all.
bool enter(Case *c) {
    if (current == c) return true;
    if (!c->error.empty()) return false;
    leave();
    hr_bench_take_thread(c->family.own_threads);
    const hr_status status = c->family.setup(c->context.data(), c->args.data(), &current_run);
    if (status == HR_OK) {
        current = c;
        hr_bench_time(&c->family, current_run, 1); // warms up
        return true;
    }
    current_run = nullptr;
    c->error = hr_error();
    if (status != HR_ERR_MEMORY && status != HR_ERR_UNSUPPORTED) failed = true;
    return false;
}

void run(benchmark::State &state, Case *c) {
    if (!enter(c)) {
        state.SkipWithError(c->error.c_str());
        return;
    }
    uint64_t ns = 0;
    while (state.KeepRunningBatch(state.max_iterations))
        ns += hr_bench_time(&c->family, current_run, static_cast<uint64_t>(state.max_iterations));
    const hr_bench_cost cost = c->family.cost(current_run);
    const double seconds = static_cast<double>(ns) / 1e9 / static_cast<double>(state.max_iterations);
    const hr_bench_result result = hr_bench_result_of(&cost, c->family.own_threads, seconds);
    for (size_t i = 0; i < result.n; i++) state.counters[result.counters[i].name] = result.counters[i].value;
    state.SetLabel(result.label);
}

std::vector<std::unique_ptr<Case>> &cases() {
    static std::vector<std::unique_ptr<Case>> all;
    return all;
}

} // namespace

extern "C" void hr_bench_add(const hr_bench_family *f) {
    for (size_t v = 0; v < f->n_values; v++) {
        auto c = std::make_unique<Case>();
        c->family = *f;
        c->name = f->name;
        for (size_t a = 0; a < f->n_args; a++) {
            c->args.push_back(f->values[v * f->n_args + a]);
            c->name += std::string("/") + f->arg_names[a] + ":" + std::to_string(c->args.back());
        }
        if (f->suffix) c->name += std::string("/") + f->suffix;
        const char *context = static_cast<const char *>(f->context);
        if (context) c->context.assign(context, context + f->context_bytes);
        Case *self = c.get();
        auto *b = benchmark::RegisterBenchmark(c->name.c_str(), [self](benchmark::State &state) { run(state, self); });
        if (f->own_threads) b->UseRealTime();
        cases().push_back(std::move(c));
    }
}

extern "C" bool hr_bench_has(const char *part) {
    const std::string between = std::string("/") + part + "/";
    for (const auto &c : cases())
        if ((c->name + "/").find(between) != std::string::npos) return true;
    return false;
}

extern "C" void hr_bench_context(const char *key, const char *value) {
    benchmark::AddCustomContext(key, value);
}

extern "C" int hr_bench_run(int argc, char **argv, void (*print_help)(void)) {
    benchmark::Initialize(&argc, argv, print_help);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    const bool none = benchmark::RunSpecifiedBenchmarks() == 0; /* a filter that fits nothing, or is no pattern */
    leave();
    benchmark::Shutdown();
    if (!std::cout.flush()) {
        std::cerr << "bench: writing the results to stdout failed; free some space or write elsewhere\n";
        return 1;
    }
    return failed || none ? 1 : 0;
}
