#include "harness/cli/option_groups.h"

#include "harness/doctor/busy.h"
#include "harness/formats/formats.h"
#include "harness/sweep/throttle.h"

/* Largest number of positions, tokens or sequences that a flag takes: far above any model, so that products with
 * layers and bytes stay in 64 bits. */
enum { MOST = 1 << 20 };

static const char *const quants[] = {
    "native", "f32", "bf16", "f16", "int8", "int4", "int8-row", "int4-g128", "int4-head8", "int4-g128-head8", NULL};
static const char *const other_quants[] = {"q4_0", "int4", "q4_1", "int4", "q4_k", "int4", "q4_k_m", "int4",
                                           "q4",   "int4", "Q4_0", "int4", "q8_0", "int8", "Q8_0",   "int8",
                                           "q8",   "int8", "fp16", "f16",  "fp32", "f32",  NULL};
static const char *const acts[] = {"auto", "f32", "bf16", "int8", "int8-row", NULL};
static const char *const kv_types[] = {"f32", "f16", "bf16", "q8_0", "i8row", "q4_0", "i4kc", NULL};
static const char *const layouts[] = {"head",           "contiguous", "token",    "block",    "paged", "paged-nhd",
                                      "paged-identity", "zorder",     "zorder-h", "shuffled", NULL};
static const char *const page_sizes[] = {"1", "2", "4", "8", "16", "32", "64", "128", "256", NULL};
static const char *const allocators[] = {"per-request", "pool", "paged", "hybrid", NULL};
static const char *const zero_one[] = {"0", "1", NULL};
static const char *const orders[] = {"native", "repacked", NULL};
static const char *const gpu_memories[] = {"device", "managed", "pinned", "compressible", NULL};
static const char *const gemms[] = {"cublaslt", "own", NULL};
static const char *const isas[] = {"auto", "generic", "avx2", "avxvnni", "avx512", NULL};
static const char *const formats[] = {"table", "md", "csv", "json", "jsonl", "sql", NULL};

#define HR_WEIGHTS_DEFAULT "repacked"
#define SWEPT              "Axes (comma lists; numbers also as ranges a-b+step, a-b*mult)"
#define FIXED              "Engine"

/* One text, two rows: NAME takes one value, NAME_list a list. */
#define NUMBER_LIST(id, group_, ...) \
    const hr_opt hr_opt_##id##_list = {.group = (group_), .kind = HR_OPT_INTS, __VA_ARGS__}
#define NUMBER(id, ...)                                                           \
    const hr_opt hr_opt_##id = {.group = FIXED, .kind = HR_OPT_INT, __VA_ARGS__}; \
    NUMBER_LIST(id, SWEPT, __VA_ARGS__)
#define WORD(id, ...)                                                              \
    const hr_opt hr_opt_##id = {.group = FIXED, .kind = HR_OPT_WORD, __VA_ARGS__}; \
    const hr_opt hr_opt_##id##_list = {.group = SWEPT, .kind = HR_OPT_WORDS, __VA_ARGS__}

/* One value for a whole run, in sweeps too; part of the cell_id where it is not the default. */
#define SETTING(id, ...)                                                                 \
    const hr_opt hr_opt_##id = {.group = "Memory and threads (one value for all cells)", \
                                .kind = HR_OPT_INT,                                      \
                                .max = 1,                                                \
                                .choices = zero_one,                                     \
                                .fallback = "1",                                         \
                                .metavar = "0|1",                                        \
                                __VA_ARGS__}

#define MODEL_ROW                                                   \
    .name = "--model", .alias = "-m", .min = 1, .metavar = "MODEL", \
    .help = "a GGUF file, or synth:NAME[:key=value...] (random weights; `headroom models` lists names)"
const hr_opt hr_opt_model = {MODEL_ROW, .group = "Model", .kind = HR_OPT_TEXT};
const hr_opt hr_opt_model_list = {MODEL_ROW, .group = "Model", .kind = HR_OPT_TEXTS, .fallback = "synth:smollm2-135m"};

NUMBER_LIST(n_prompt, "What is measured", .name = "--n-prompt", .alias = "-p", .max = MOST, .fallback = "512",
            .metavar = "N", .help = "prefill of N tokens, row pp512; 0 leaves these rows out");
NUMBER_LIST(n_gen, "What is measured", .name = "--n-gen", .alias = "-n", .max = MOST, .fallback = "128", .metavar = "N",
            .help = "decode of N tokens, row tg128; 0 leaves these rows out");
const hr_opt hr_opt_pg = {.name = "-pg",
                          .group = "What is measured",
                          .kind = HR_OPT_PAIRS,
                          .min = 1,
                          .max = MOST,
                          .metavar = "P,N",
                          .help = "prefill of P then decode of N tokens as one rate, row pp512+tg128; repeatable"};
#define ISL_ROW                                             \
    .name = "--isl", .min = 1, .max = MOST, .metavar = "N", \
    .help = "whole requests with a prompt of N tokens: TTFT, TPOT, ITL, E2E"
#define OSL_ROW .name = "--osl", .min = 1, .max = MOST, .metavar = "N", .help = "output tokens of those requests"
const hr_opt hr_opt_isl = {ISL_ROW, .group = "What is measured", .kind = HR_OPT_INT};
const hr_opt hr_opt_osl = {OSL_ROW, .group = "What is measured", .kind = HR_OPT_INT};
const hr_opt hr_opt_isl_list = {ISL_ROW, .group = "What is measured", .kind = HR_OPT_INTS};
const hr_opt hr_opt_osl_list = {OSL_ROW, .group = "What is measured", .kind = HR_OPT_INTS};
NUMBER_LIST(depth, SWEPT, .name = "--n-depth", .alias = "-d", .max = MOST, .fallback = "0", .metavar = "N",
            .help = "tokens already in the context of pp, tg and pg rows, `tg128 @ d4096`");
NUMBER_LIST(seqs, SWEPT, .name = "--seqs", .alias = "-npl", .min = 1, .max = 4096, .fallback = "1", .metavar = "N",
            .help = "sequences decoded together");

NUMBER(batch, .name = "--batch-size", .alias = "-b", .min = 1, .max = MOST, .fallback = "2048", .metavar = "N",
       .help = "tokens of a prefill batch");
NUMBER(ubatch, .name = "--ubatch-size", .alias = "-ub", .min = 1, .max = 65536, .fallback = "512", .metavar = "N",
       .help = "tokens of one prefill pass");
WORD(quant, .name = "--quant", .choices = quants, .others = other_quants, .fallback = "native", .metavar = "TYPE",
     .help =
         "what the weight matrices become at load; native keeps the file's types; int8 and int4 have a scale for 32 "
         "values, -row one a row, -g128 one for 128; -head8 keeps the head at int8");
WORD(act, .name = "--act", .choices = acts, .fallback = "auto", .metavar = "TYPE",
     .help = "activations in matrix products; auto follows the weights; int8 has a scale for 32 values, int8-row one a "
             "token");
WORD(type_k, .name = "--cache-type-k", .alias = "-ctk", .choices = kv_types, .fallback = "bf16", .metavar = "TYPE",
     .help = "type of K in the cache; i8row has a scale a row, i4kc scales per channel and 32 positions");
WORD(type_v, .name = "--cache-type-v", .alias = "-ctv", .choices = kv_types, .fallback = "bf16", .metavar = "TYPE",
     .help = "type of V in the cache");
WORD(kv_layout, .name = "--kv-layout", .choices = layouts, .fallback = "head", .metavar = "LAYOUT",
     .help = "how the KV cache lies in memory; contiguous is head");
NUMBER(page_size, .name = "--page-size", .choices = page_sizes, .min = 1, .max = 256, .fallback = "16", .metavar = "N",
       .help = "tokens a page of the paged layouts");
WORD(kv_alloc, .name = "--kv-alloc", .choices = allocators, .metavar = "ALLOC",
     .help =
         "who hands out KV memory: per-request or pool for layouts in one piece, paged for the paged ones, hybrid for "
         "paged (default: paged or per-request)");
#define KV_SETTING(id, ...)                                                              \
    const hr_opt hr_opt_##id = {.group = "Memory and threads (one value for all cells)", \
                                .kind = HR_OPT_INT,                                      \
                                .max = MOST,                                             \
                                .metavar = "N",                                          \
                                __VA_ARGS__}
KV_SETTING(kv_budget, .name = "--kv-budget", .min = 1, .fallback = "100",
           .help = "KV memory in percent of what all sequences need at full length");
KV_SETTING(kv_threshold, .name = "--kv-threshold", .fallback = "1024",
           .help = "hybrid: requests of fewer positions lie in one piece, the others in pages");
KV_SETTING(kv_compact, .name = "--kv-compact", .fallback = "16",
           .help = "pool and hybrid: closed requests between two compactions; 0: never compact");
NUMBER(flash, .name = "--flash-attn", .alias = "-fa", .choices = zero_one, .max = 1, .fallback = "1", .metavar = "0|1",
       .help = "attention in tiles with online softmax; 0 writes all scores out");
#define FUSION_ROW                                                      \
    .name = "--fusion", .min = 1, .fallback = "all", .metavar = "LIST", \
    .help = "operations joined into one: none, all, or names joined by + of qkv, gate-up, out-residual, head-sample"
const hr_opt hr_opt_fusion = {FUSION_ROW, .group = FIXED, .kind = HR_OPT_TEXT};
const hr_opt hr_opt_fusion_list = {FUSION_ROW, .group = SWEPT, .kind = HR_OPT_TEXTS};
const hr_opt hr_opt_kernel = {.name = "--kernel",
                              .group = FIXED,
                              .kind = HR_OPT_TEXTS,
                              .min = 1,
                              .metavar = "OP=NAME",
                              .help = "an op class (embed, norm, qkv, rope, kv_append, attention, out, gate_up, down, "
                                      "head) takes this row of `headroom kernels` where it fits; repeatable"};
WORD(weights, .name = "--weights", .choices = orders, .fallback = HR_WEIGHTS_DEFAULT, .metavar = "ORDER",
     .help = "order of the weights in memory: rows as in the file, or panels of 16 rows for the vector units");
NUMBER(threads, .name = "--threads", .alias = "-t", .min = 1, .max = 1024, .metavar = "N",
       .help = "threads (default: physical cores)");
SETTING(mmap, .name = "--mmap", .alias = "-mmp",
        .help = "with --weights native a file stays mapped; 0 copies it into own memory");
SETTING(huge_pages, .name = "--huge-pages",
        .help = "ask for huge pages for own memory of weights, KV and run state; 0 forbids them");
SETTING(pin, .name = "--pin", .help = "each thread stays on a CPU of its own; 0 lets them move");
WORD(isa, .name = "--isa", .choices = isas, .fallback = "auto", .metavar = "ISA",
     .help = "highest instruction set that kernels may use");
#define DEVICE_ROW                                                        \
    .name = "--device", .min = 1, .fallback = "cpu", .metavar = "DEVICE", \
    .help = "where the model runs: cpu, or cuda:N, the GPU of that number"
const hr_opt hr_opt_device = {DEVICE_ROW, .group = FIXED, .kind = HR_OPT_TEXT};
const hr_opt hr_opt_device_list = {DEVICE_ROW, .group = SWEPT, .kind = HR_OPT_TEXTS};
NUMBER(gpu_layers, .name = "--n-gpu-layers", .alias = "-ngl", .min = -1, .max = MOST, .metavar = "N",
       .help = "0: on the CPU; any other number: all layers on the first GPU (default: as --device says)");

/* Null on the CPU, as threads, ISA, weights, --mmap, --huge-pages and --pin are on a GPU. */
#define GPU "On a GPU (no axes on the CPU)"
#define GPU_WORD(id, ...)                                                        \
    const hr_opt hr_opt_##id = {.group = GPU, .kind = HR_OPT_WORD, __VA_ARGS__}; \
    const hr_opt hr_opt_##id##_list = {.group = GPU, .kind = HR_OPT_WORDS, __VA_ARGS__}
#define GRAPHS_ROW                                                                                      \
    .name = "--graphs", .choices = zero_one, .max = 1, .fallback = "1", .metavar = "0|1", .group = GPU, \
    .help = "decode steps as one captured graph; 0 launches kernel by kernel"
const hr_opt hr_opt_graphs = {GRAPHS_ROW, .kind = HR_OPT_INT}, hr_opt_graphs_list = {GRAPHS_ROW, .kind = HR_OPT_INTS};
GPU_WORD(gpu_memory, .name = "--gpu-memory", .choices = gpu_memories, .fallback = "device", .metavar = "WHERE",
         .help =
             "where weights and KV lie: device memory, managed memory, pinned host memory, or device memory that the "
             "GPU may compress");
GPU_WORD(gemm, .name = "--gemm", .choices = gemms, .metavar = "WHOSE",
         .help = "matrix products of 16 tokens and more (default: cublaslt where it can be opened, else own; own on a "
                 "simulated device)");
NUMBER_LIST(
    power_limit, GPU, .name = "--power-limit", .min = 1, .max = 100000, .metavar = "W",
    .help = "power limit of the GPU in watts, restored at the end; needs the right to set it (default: as it is)");
const hr_opt hr_opt_kernel_times = {
    .name = "--kernel-times",
    .group = GPU,
    .kind = HR_OPT_FLAG,
    .help =
        "recorded ops are timed by CUPTI, from their first kernel to their last, instead of by events around them: the "
        "gaps between ops are told apart, and recorded steps are slower"};
const hr_opt hr_opt_on_throttle = {
    .name = "--on-throttle",
    .group = GPU,
    .kind = HR_OPT_WORD,
    .choices = hr_on_throttle_names,
    .fallback = "flag",
    .metavar = "WHAT",
    .help =
        "a sample taken while heat, power or hardware slowed the GPU, or with its clock far below the best of the "
        "cell: flag keeps it and leaves it out of the statistics, wait cools down and repeats it, stop ends the cell"};
const hr_opt hr_opt_cool_down = {.name = "--cool-down",
                                 .group = GPU,
                                 .kind = HR_OPT_REAL,
                                 .min = 0.01,
                                 .max = 3600,
                                 .fallback = "10",
                                 .metavar = "S",
                                 .help = "seconds of rest of --on-throttle wait"};

const hr_opt hr_opt_on_busy = {
    .name = "--on-busy",
    .group = "Measuring",
    .kind = HR_OPT_WORD,
    .choices = hr_on_busy_names,
    .fallback = "warn",
    .metavar = "WHAT",
    .help = "when another process takes over 5 % of a core before the first cell: warn, fail, wait for its end, or "
            "ignore, which does not look and saves up to 0.3 s"};
const hr_opt hr_opt_busy_timeout = {.name = "--busy-timeout",
                                    .group = "Measuring",
                                    .kind = HR_OPT_REAL,
                                    .min = 0.1,
                                    .max = 86400,
                                    .fallback = "60",
                                    .metavar = "S",
                                    .help = "how long --on-busy wait waits before it goes on all the same"};

const hr_opt hr_opt_output = {.name = "--output",
                              .alias = "-o",
                              .group = "Output",
                              .kind = HR_OPT_WORD,
                              .choices = formats,
                              .metavar = "FORMAT",
                              .help = "format of the results (default: table on a terminal, md elsewhere)"};
const hr_opt hr_opt_output_err = {.name = "-oe",
                                  .alias = "--output-err",
                                  .group = "Output",
                                  .kind = HR_OPT_WORD,
                                  .choices = formats,
                                  .metavar = "FORMAT",
                                  .help = "the same results on stderr too"};
const hr_opt hr_opt_json = {.name = "--json", .group = "Output", .kind = HR_OPT_FLAG, .help = "short for -o json"};
const hr_opt hr_opt_out = {.name = "--out",
                           .group = "Output",
                           .kind = HR_OPT_TEXT,
                           .min = 1,
                           .metavar = "FILE",
                           .help = "results go to FILE, written beside and then renamed; folders are made"};
const hr_opt hr_opt_repetitions = {.name = "--repetitions",
                                   .alias = "-r",
                                   .group = "Measuring",
                                   .kind = HR_OPT_INT,
                                   .min = 1,
                                   .max = 100000,
                                   .metavar = "N",
                                   .help = "exactly N samples a cell (default: until the median is known to 0.5 %)"};
const hr_opt hr_opt_time_limit = {.name = "--time-limit",
                                  .group = "How it is measured",
                                  .kind = HR_OPT_REAL,
                                  .min = 1,
                                  .max = 864000,
                                  .metavar = "S",
                                  .help =
                                      "seconds for all pairs: none begins that would end later, and cells with too few "
                                      "of them are inconclusive"};
const hr_opt hr_opt_max_time = {.name = "--max-time",
                                .group = "Measuring",
                                .kind = HR_OPT_REAL,
                                .min = 0.01,
                                .max = 86400,
                                .fallback = "30",
                                .metavar = "S",
                                .help = "seconds of samples a cell, recorded repetitions included"};
const hr_opt hr_opt_seed = {.name = "--seed",
                            .group = "Measuring",
                            .kind = HR_OPT_INT,
                            .max = 9007199254740991.0,
                            .fallback = "0",
                            .metavar = "N",
                            .help = "of the random tokens and of --order shuffled"};
const hr_opt hr_opt_prompt = {.name = "--prompt",
                              .group = "Measuring",
                              .kind = HR_OPT_TEXT,
                              .min = 1,
                              .metavar = "FILE",
                              .help = "prompts are slices of this text (default: random tokens)"};
const hr_opt hr_opt_db = {.name = "--db",
                          .group = "Output",
                          .kind = HR_OPT_TEXT,
                          .min = 1,
                          .fallback = "results/headroom.db",
                          .metavar = "FILE",
                          .help = "the store of results; none: no store"};
const hr_opt hr_opt_quiet = {.name = "--quiet",
                             .alias = "-q",
                             .group = "Output",
                             .kind = HR_OPT_FLAG,
                             .help = "no progress and no warnings on stderr"};
const hr_opt hr_opt_verbose = {
    .name = "--verbose", .alias = "-v", .group = "Output", .kind = HR_OPT_FLAG, .help = "more about the run on stderr"};
const hr_opt hr_opt_no_progress = {.name = "--no-progress",
                                   .group = "Output",
                                   .kind = HR_OPT_FLAG,
                                   .help =
                                       "no progress bar (it is off when stderr is no terminal, or CI or NO_COLOR is "
                                       "set)"};
const hr_opt hr_opt_config = {.name = "--config",
                              .group = "Configuration",
                              .kind = HR_OPT_TEXT,
                              .min = 1,
                              .metavar = "FILE",
                              .help = "JSON object of flag names without dashes; flags on the command line win"};
const hr_opt hr_opt_print_config = {.name = "--print-config",
                                    .group = "Configuration",
                                    .kind = HR_OPT_FLAG,
                                    .help = "print such a file of the flags given, and do nothing else"};
