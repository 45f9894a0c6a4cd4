#include "harness/cli/text_run.h"

#include <string.h>

hr_status hr_text_run_init(const hr_args *args, bool needs_text, hr_text_run *run) {
    memset(run, 0, sizeof *run);
    HR_TRY(hr_engine_args_get(args, &run->args));
    HR_TRY(hr_model_peek(run->args.spec, run->args.quant, run->args.order, &run->info));
    hr_status status = hr_tokenizer_open(run->args.spec, &run->tokenizer);
    if (status == HR_ERR_UNSUPPORTED && !needs_text) return HR_OK;
    return status;
}

hr_status hr_text_run_open(hr_text_run *run, uint32_t ctx, hr_progress *progress) {
    const hr_load_options load = {.quant = run->args.quant,
                                  .order = run->args.order,
                                  .copy = run->args.copy,
                                  .huge_pages = run->args.config.huge_pages,
                                  .threads = run->args.threads,
                                  .on_device = run->args.device >= 0,
                                  .progress = hr_progress_callback,
                                  .context = progress};
    run->args.config.ctx = ctx;
    hr_progress_stage(progress, "loading the model");
    HR_TRY(hr_model_load(run->args.spec, &load, &run->model));
    return hr_engine_create(run->model, &run->args.config, &run->engine);
}

void hr_text_run_fini(hr_text_run *run) {
    hr_engine_destroy(run->engine);
    hr_model_destroy(run->model);
    hr_tokenizer_destroy(run->tokenizer);
    memset(run, 0, sizeof *run);
}
