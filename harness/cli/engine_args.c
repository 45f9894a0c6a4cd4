#include "harness/cli/engine_args.h"

#include "harness/cli/device_args.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static int act_of(const char *name) {
    for (int act = 0; act < HR_ACT_COUNT; act++)
        if (!strcmp(hr_act_name((hr_act)act), name)) return act;
    return -1; /* auto */
}

hr_isa hr_isa_parse(const char *name) {
    int isa = 0;
    while (isa < HR_ISA_AUTO && strcmp(hr_isa_name((hr_isa)isa), name)) isa++;
    return (hr_isa)isa;
}

hr_status hr_threads_check(int64_t threads) {
    enum { A_CPU = 4 };
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) return HR_OK; /* more CPUs than the set can say: no advice */
    const int cpus = CPU_COUNT(&set);
    if (threads > (int64_t)A_CPU * cpus)
        HR_FAIL(HR_ERR_USAGE, "-t %lld: this process may use %d CPU%s; give at most %d threads", (long long)threads,
                cpus, cpus == 1 ? "" : "s", A_CPU * cpus);
    return HR_OK;
}

static hr_status read_gpu(const hr_args *args, int device, hr_engine_args *out) {
    hr_device_info info;
    HR_TRY(hr_device_get_info(device, &info));
    hr_engine_config *c = &out->config;
    c->device = device;
    c->graphs = hr_args_int(args, "--graphs") == 1;
    c->memory = hr_gpu_memory_of(hr_args_text(args, "--gpu-memory"));
    c->cublaslt = hr_gemm_is_cublaslt(hr_args_text(args, "--gemm"), &info);
    out->order = HR_ORDER_ROWS, out->copy = false;
    hr_gpu_want_kernel_times(hr_args_flag(args, "--kernel-times"));
    return HR_OK;
}

hr_status hr_engine_args_get(const hr_args *args, hr_engine_args *out) {
    memset(out, 0, sizeof *out);
    hr_engine_config *c = &out->config;
    *c = hr_engine_config_default();
    out->spec = hr_args_text(args, "--model");
    if (!out->spec)
        HR_FAIL(HR_ERR_USAGE, "no model; give one with -m: a GGUF file or synth:NAME (`headroom models` lists names)");
    HR_TRY(hr_quant_parse(hr_args_text(args, "--quant"), &out->quant));
    HR_TRY(hr_weights_parse(hr_args_text(args, "--weights"), &out->order));
    out->copy = hr_args_int(args, "--mmap") == 0;
    HR_TRY(hr_kv_layout_parse(hr_args_text(args, "--kv-layout"), &c->kv_layout));
    HR_TRY(hr_fusion_parse(hr_args_text(args, "--fusion"), &c->fusion));
    size_t n_forced;
    const char *const *forced = hr_args_texts(args, "--kernel", &n_forced);
    for (size_t i = 0; i < n_forced; i++) HR_TRY(hr_kernel_force_add(c, forced[i]));
    c->act = act_of(hr_args_text(args, "--act"));
    HR_TRY(hr_kv_type_parse(hr_args_text(args, "--cache-type-k"), &c->k_type));
    HR_TRY(hr_kv_type_parse(hr_args_text(args, "--cache-type-v"), &c->v_type));
    c->isa = hr_isa_parse(hr_args_text(args, "--isa"));
    c->page_size = (uint32_t)hr_args_int(args, "--page-size");
    c->flash = hr_args_int(args, "--flash-attn") == 1;
    c->threads = (unsigned)hr_args_int(args, "--threads");
    c->batch = (uint32_t)hr_args_int(args, "--batch-size");
    c->ubatch = (uint32_t)hr_args_int(args, "--ubatch-size");
    c->pin = hr_args_int(args, "--pin") == 1;
    c->huge_pages = hr_args_int(args, "--huge-pages") == 1;
    c->max_seqs = 1;
    out->threads = c->threads;
    hr_isa resolved;
    HR_TRY(hr_isa_resolve(c->isa, &resolved));
    HR_TRY(hr_threads_check(out->threads));
    const char *alloc = hr_args_text(args, "--kv-alloc");
    c->kv_alloc = hr_kv_alloc_default(c->kv_layout);
    if (alloc) HR_TRY(hr_kv_alloc_parse(alloc, &c->kv_alloc));
    c->kv_budget_pct = (uint32_t)hr_args_int(args, "--kv-budget");
    c->kv_threshold = (uint32_t)hr_args_int(args, "--kv-threshold");
    c->kv_compact = (uint32_t)hr_args_int(args, "--kv-compact");
    HR_TRY(hr_kv_alloc_check(c->kv_alloc, c->kv_layout));
    hr_devices devices;
    HR_TRY(hr_device_args(args, &devices));
    out->device = (int)devices.v[0];
    return out->device < 0 ? HR_OK : read_gpu(args, out->device, out);
}
