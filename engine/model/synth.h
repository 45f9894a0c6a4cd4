/* synth.h - private to engine/model: random-weight models of published shapes. */
#ifndef HR_SYNTH_H
#define HR_SYNTH_H

#include "engine/model/weights.h"

typedef struct hr_synth {
    const char *name; /* of the shape */
    hr_hparams hp;
    bool tied;
    /* Llama-3 scaling of RoPE: factor 0 for none; low 1, high 4 */
    float rope_factor;
    uint32_t rope_original_ctx;
    uint64_t seed;
} hr_synth;

bool hr_synth_is(const char *spec); /* begins with "synth:" */
/* Refuses a shape's name that stands where a file was meant, when there is no such file. */
hr_status hr_synth_not_meant(const char *spec);
/* ERR_INPUT names the part of the spec that is wrong and what would be right. */
hr_status hr_synth_parse(const char *spec, hr_synth *out);
void hr_synth_rope(const hr_synth *synth, double *freq); /* [rope_dims / 2] */
/* Sets the draw of every weight of the plan. */
void hr_synth_bind(const hr_synth *synth, hr_plan *plan);
/* Values of row `row` of a weight of `cols` columns: a function of draw, row and column alone. */
void hr_synth_row(const hr_draw *draw, size_t row, size_t cols, float *out);

#endif
