/* headroom roof: what this machine can do at most. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/progress.h"
#include "harness/doctor/doctor.h"
#include "harness/roof/roof.h"
#include "harness/store/store.h"
#include "harness/sweep/gpu_machine.h"
#include "harness/version.h"
#include "kernels/base/memory.h"

#include <string.h>

static const hr_opt opt_quick = {.name = "--quick",
                                 .group = "Measurement",
                                 .kind = HR_OPT_FLAG,
                                 .help = "fewer access patterns, thread counts and samples: under 10 s"};

static const hr_opt opt_device = {.name = "--device",
                                  .group = "Measurement",
                                  .kind = HR_OPT_TEXT,
                                  .min = 1,
                                  .fallback = "cpu",
                                  .metavar = "DEVICE",
                                  .help = "cpu, or cuda:N, the GPU of that number"};

static json_t *get(const json_t *object, const char *key) {
    return json_object_get(object, key);
}

/* Appends {what, threads, kib_per_thread, value, unit, ci95_lo, ci95_hi, pattern}; steals value; parts may be NULL. */
static void add(json_t *rows, const char *what, json_t *threads, json_t *bytes, json_t *value, const char *unit,
                json_t *row) {
    json_t *kib = json_is_integer(bytes) ? json_real((double)json_integer_value(bytes) / 1024) : NULL;
    json_array_append_new(rows,
                          json_pack("{s:s, s:O?, s:o?, s:o?, s:s, s:O?, s:O?, s:O?}", "what", what, "threads", threads,
                                    "kib_per_thread", kib, "value", value, "unit", unit, "ci95_lo", get(row, "ci95_lo"),
                                    "ci95_hi", get(row, "ci95_hi"), "pattern", get(row, "pattern")));
}

static void add_levels(json_t *rows, const json_t *roof, const char *key, const char *verb) {
    json_t *row;
    size_t i;
    char what[64];
    json_array_foreach(get(roof, key), i, row) {
        snprintf(what, sizeof what, "%s %s", verb, json_string_value(get(row, "level")));
        add(rows, what, get(row, "threads"), get(row, "bytes_per_thread"), json_incref(get(row, "median")), "GB/s",
            row);
    }
}

/* by: of GPUs, whose units are measured in two ways. */
static void add_units(json_t *rows, const json_t *roof, const char *key) {
    json_t *row;
    size_t i;
    char what[64];
    json_array_foreach(get(roof, key), i, row) {
        const char *name = json_string_value(get(row, "unit")), *by = json_string_value(get(row, "by"));
        snprintf(what, sizeof what, "compute %s%s%s", name, by ? " by " : "", by ? by : "");
        add(rows, what, get(row, "threads"), NULL, json_incref(get(row, "median")),
            strcmp(name, "int8") ? "GFLOP/s" : "GOP/s", row);
    }
}

/* The object of --json as rows for the other formats. */
static json_t *rows_of(const json_t *roof) {
    json_t *rows = json_array(), *value;
    const char *unit;
    const bool gpu = get(roof, "device") != NULL;
    char what[64];
    add_levels(rows, roof, "read_gb_s", "read");
    add_levels(rows, roof, "write_gb_s", "write");
    add_levels(rows, roof, "copy_gb_s", "copy");
    add_units(rows, roof, gpu ? "gflop_s_ways" : "gflop_s");
    json_object_foreach(get(roof, "ridge_flop_byte"), unit, value) {
        snprintf(what, sizeof what, "ridge %s", unit);
        add(rows, what, NULL, NULL, json_incref(value), "flop/byte", NULL);
    }
    double llc = json_number_value(get(roof, "llc_bytes"));
    add(rows, "last-level cache", NULL, NULL, llc > 0 ? json_real(llc / 1048576) : NULL, "MiB", NULL);
    add(rows, "clock", NULL, NULL, json_incref(get(roof, "clock_ghz")), "GHz", NULL);
    if (gpu)
        add(rows, "launch of a kernel", NULL, NULL, json_incref(get(roof, "launch_us")), "us", NULL);
    else
        add(rows, "core-to-core handoff", NULL, NULL, json_incref(get(roof, "handoff_ns")), "ns", NULL);
    return rows;
}

static const char *const columns[] = {
    "what", "threads", "kib_per_thread|=a thread (KiB)", "value", "unit", "ci95_lo", "ci95_hi", "pattern", NULL};

static hr_status write_as(hr_format format, FILE *stream, const json_t *roof, const json_t *rows) {
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, roof);
    if (format != HR_FORMAT_JSONL) return hr_rows_write(format, stream, rows, columns);
    json_t *lines = json_pack("[O]", roof);
    hr_status status = lines ? hr_rows_write(format, stream, lines, columns)
                             : hr_fail(HR_ERR_MEMORY, "roof: out of memory while printing the result");
    json_decref(lines);
    return status;
}

static hr_status print(const hr_output *output, const json_t *roof) {
    json_t *rows = rows_of(roof);
    hr_out out;
    hr_status status = hr_out_open(output->file, &out);
    if (status == HR_OK) {
        status = write_as(output->format, out.stream, roof, rows);
        if (status == HR_OK)
            status = hr_out_commit(&out);
        else
            hr_out_abandon(&out);
    }
    if (status == HR_OK && output->to_stderr) status = write_as(output->err_format, stderr, roof, rows);
    json_decref(rows);
    return status;
}

static hr_status threads_of(const hr_args *args, unsigned *threads) {
    hr_machine machine;
    HR_TRY(hr_machine_get(&machine));
    *threads = hr_args_given(args, "--threads") ? (unsigned)hr_args_int(args, "--threads") : machine.cores;
    if (*threads > machine.threads)
        HR_FAIL(HR_ERR_USAGE, "--threads %u: this process may use %u CPUs; give at most that", *threads,
                machine.threads);
    return HR_OK;
}

static hr_status keep(hr_store *store, const hr_args *args, const json_t *roof) {
    char *run_id = NULL;
    json_t *machine = json_copy(get(roof, "machine"));
    json_object_set_new(machine, "doctor", hr_doctor_summary());
    json_t *run = json_pack("{s:s, s:o, s:s, s:s}", "command", "roof", "args", hr_args_json(args), "build_commit",
                            hr_commit(), "compiler", hr_compiler());
    hr_status status = run ? hr_store_begin_run(store, run, machine, &run_id)
                           : hr_fail(HR_ERR_MEMORY, "roof: out of memory while storing the result");
    if (status == HR_OK) status = hr_store_put_roof(store, run_id, roof);
    if (status == HR_OK) status = hr_store_end_run(store, run_id, 0);
    hr_free(run_id);
    json_decref(run), json_decref(machine);
    return status;
}

static hr_status measure_cpu(const hr_args *args, hr_progress *progress, unsigned threads, json_t **roof) {
    hr_roofs *roofs;
    HR_TRY(hr_roofs_create(threads, &roofs));
    hr_status status = hr_roofs_measure(roofs, hr_args_flag(args, "--quick"), hr_progress_callback, progress, roof);
    hr_roofs_destroy(roofs);
    return status;
}

static hr_status measure_gpu(const hr_args *args, hr_progress *progress, int device, json_t **roof) {
    hr_device_info info;
    hr_machine cpu;
    HR_TRY(hr_device_get_info(device, &info));
    HR_TRY(hr_machine_get(&cpu));
    HR_TRY(hr_gpu_roofs_measure(device, hr_args_flag(args, "--quick"), hr_progress_callback, progress, roof));
    if (json_object_set_new(*roof, "machine", hr_gpu_machine_json(device, &info, &cpu)))
        HR_FAIL(HR_ERR_MEMORY, "roof: out of memory for the result");
    return HR_OK;
}

static hr_status measure(const hr_args *args, const hr_output *output, int device, unsigned threads, json_t **roof) {
    hr_progress progress;
    hr_progress_init(&progress, output->progress);
    hr_progress_stage(&progress, "roof");
    const hr_status status =
        device < 0 ? measure_cpu(args, &progress, threads, roof) : measure_gpu(args, &progress, device, roof);
    hr_progress_clear(&progress);
    return status;
}

/* Threads are the CPU's; a GPU that is not there is told before anything else. */
static hr_status device_of(const hr_args *args, int *device) {
    hr_device_info info;
    HR_TRY(hr_device_parse(hr_args_text(args, "--device"), device));
    if (*device < 0) return HR_OK;
    if (hr_args_given(args, "--threads")) HR_FAIL(HR_ERR_USAGE, "--threads: a GPU has none; leave it out");
    return hr_device_get_info(*device, &info);
}

/* The store is opened first, so that a wrong one is said before the measurement, and written last, so that it cannot
 * lose what was measured. */
static hr_status roof(const hr_args *args) {
    hr_output output;
    unsigned threads = 0;
    int device;
    hr_store *store = NULL;
    json_t *result = NULL;
    HR_TRY(hr_output_resolve(args, &output));
    HR_TRY(device_of(args, &device));
    if (device < 0) HR_TRY(threads_of(args, &threads));
    const char *db = hr_args_text(args, "--db");
    if (strcmp(db, "none")) HR_TRY(hr_store_open(db, true, &store));
    hr_status status = measure(args, &output, device, threads, &result);
    const bool simulated = json_is_true(get(result, "simulated"));
    if (status == HR_OK) status = print(&output, result);
    if (status == HR_OK && store && !simulated) status = keep(store, args, result);
    if (status == HR_OK && simulated)
        fprintf(stderr, "headroom: times on this driver mean nothing: nothing is stored\n");
    json_decref(result);
    if (store) hr_store_close(store);
    return status;
}

static int run(const hr_args *args) {
    return roof(args) == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt *const options[] = {&opt_quick, &hr_opt_threads, &opt_device, &hr_opt_db, HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {"headroom roof --quick",
                                       "a first look at the ceilings of all cores",
                                       "headroom roof -t 1 --db none -o csv",
                                       "one core, as CSV, nothing stored",
                                       "headroom roof --device cuda:0",
                                       "a GPU: reading, writing, copying, arithmetic by own kernels and by cuBLASLt",
                                       "headroom roof --json --out roof.json",
                                       "everything, with the size sweep, for a program",
                                       NULL};

const hr_command hr_command_roof = {
    .name = "roof",
    .task = "Measure",
    .summary = "measure this machine's ceilings: reading rate per cache level and DRAM, arithmetic per unit",
    .synopsis = "headroom roof [--quick] [-t N | --device cuda:N] [-o FORMAT] [--db FILE]",
    .options = options,
    .examples = examples,
    .run = run,
};
