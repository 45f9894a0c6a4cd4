#include "harness/sweep/one_cell.h"

#include "harness/cli/engine_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Axes of one value each: a word, a number, or a list that belongs to the cell as a whole. */
static const char *const words[] = {"--quant",     "--act",      "--cache-type-k", "--cache-type-v",
                                    "--kv-layout", "--kv-alloc", "--weights",      "--fusion",
                                    "--isa",       "--device",   "--gpu-memory",   "--gemm"};
static const char *const numbers[] = {
    "--page-size", "--flash-attn", "--batch-size",   "--ubatch-size", "--threads",      "--mmap",  "--huge-pages",
    "--pin",       "--kv-budget",  "--kv-threshold", "--kv-compact",  "--n-gpu-layers", "--graphs"};

void hr_axes_read_settings(const hr_args *args, hr_axes *axes) {
    axes->copy = hr_args_int(args, "--mmap") == 0;
    axes->small_pages = hr_args_int(args, "--huge-pages") == 0;
    axes->free_threads = hr_args_int(args, "--pin") == 0;
    axes->kv_budget = hr_args_int(args, "--kv-budget");
    axes->kv_threshold = hr_args_int(args, "--kv-threshold");
    axes->kv_compact = hr_args_int(args, "--kv-compact");
}

hr_status hr_one_cell_plan(const hr_args *args, const hr_machine *machine, hr_sweep_plan *out) {
    const char *model = hr_args_text(args, "--model"), *alloc = hr_args_text(args, "--kv-alloc");
    const char *const text[] = {hr_args_text(args, "--quant"),        hr_args_text(args, "--act"),
                                hr_args_text(args, "--cache-type-k"), hr_args_text(args, "--cache-type-v"),
                                hr_args_text(args, "--kv-layout"),    hr_args_text(args, "--isa"),
                                hr_args_text(args, "--weights"),      hr_args_text(args, "--fusion"),
                                hr_args_text(args, "--gpu-memory"),   hr_args_text(args, "--gemm")};
    const int64_t isl = hr_args_int(args, "--isl"), osl = hr_args_int(args, "--osl"), one = 1, none = 0,
                  batch = hr_args_int(args, "--batch-size"), ubatch = hr_args_int(args, "--ubatch-size"),
                  page = hr_args_int(args, "--page-size"), flash = hr_args_int(args, "--flash-attn"),
                  threads = hr_args_int(args, "--threads"), graphs = hr_args_int(args, "--graphs");
    hr_devices devices;
    HR_TRY(hr_device_args(args, &devices));
    size_t n_forced;
    const char *const *forced = hr_args_texts(args, "--kernel", &n_forced);
    hr_axes axes = {.models = {&model, 1},
                    .quant = {&text[0], 1},
                    .act = {&text[1], 1},
                    .k_type = {&text[2], 1},
                    .v_type = {&text[3], 1},
                    .kv_layout = {&text[4], 1},
                    .isa = {&text[5], 1},
                    .weights = {&text[6], 1},
                    .fusion = {&text[7], 1},
                    .kv_alloc = {&alloc, alloc ? 1 : 0},
                    .kernel = {forced, n_forced},
                    .isl = {&isl, 1},
                    .osl = {&osl, 1},
                    .depth = {&none, 1},
                    .seqs = {&one, 1},
                    .batch = {&batch, 1},
                    .ubatch = {&ubatch, 1},
                    .page_size = {&page, 1},
                    .flash = {&flash, 1},
                    .threads = {&threads, hr_args_given(args, "--threads") ? 1 : 0},
                    .device = {devices.v, devices.n},
                    .graphs = {&graphs, 1},
                    .gpu_memory = {&text[8], 1},
                    .gemm = {&text[9], text[9] ? 1 : 0},
                    .input = ""};
    hr_axes_read_settings(args, &axes);
    HR_TRY(hr_threads_check(threads));
    HR_TRY(hr_sweep_plan_create(&axes, machine, out));
    if (!out->cells[0].skip) return HR_OK;
    hr_fail(HR_ERR_USAGE, "the cell cannot be measured: %s", out->cells[0].skip);
    hr_sweep_plan_destroy(out);
    return HR_ERR_USAGE;
}

static bool add(json_t *list, const char *word) {
    return json_array_append_new(list, json_string(word)) == 0;
}

static bool add_number(json_t *list, const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return add(list, name) && add(list, text);
}

json_t *hr_one_cell_words(const hr_args *args) {
    json_t *list = json_array();
    bool whole = list && add(list, "--model") && add(list, hr_args_text(args, "--model")) &&
                 add_number(list, "--isl", hr_args_int(args, "--isl")) &&
                 add_number(list, "--osl", hr_args_int(args, "--osl"));
    for (size_t i = 0; whole && i < sizeof words / sizeof *words; i++)
        if (hr_args_given(args, words[i])) whole = add(list, words[i]) && add(list, hr_args_text(args, words[i]));
    for (size_t i = 0; whole && i < sizeof numbers / sizeof *numbers; i++)
        if (hr_args_given(args, numbers[i])) whole = add_number(list, numbers[i], hr_args_int(args, numbers[i]));
    size_t n;
    const char *const *forced = hr_args_texts(args, "--kernel", &n);
    for (size_t i = 0; whole && i < n; i++) whole = add(list, "--kernel") && add(list, forced[i]);
    if (whole) return list;
    json_decref(list);
    return NULL;
}
