/* text_run.h - a model opened to run on text: tokenizer first, weights last, so that bad input costs nothing. */
#ifndef HR_TEXT_RUN_H
#define HR_TEXT_RUN_H

#include "harness/cli/engine_args.h"
#include "harness/cli/progress.h"

typedef struct hr_text_run {
    hr_engine_args args;
    hr_model_info info;
    hr_tokenizer *tokenizer; /* NULL: a model without text */
    hr_model *model;
    hr_engine *engine;
} hr_text_run;

/* Flags, header of the model, tokenizer (ERR_UNSUPPORTED for a model without one only when needs_text). */
hr_status hr_text_run_init(const hr_args *args, bool needs_text, hr_text_run *run);
/* Weights and an engine of one sequence with `ctx` positions. */
hr_status hr_text_run_open(hr_text_run *run, uint32_t ctx, hr_progress *progress);
void hr_text_run_fini(hr_text_run *run);

#endif
