/* forward.c - the forward pass: embed -> layers -> logits, on whatever backend the engine runs.
 *
 * The pass knows no architecture by name: ops read the facts of model.h. Which ops are joined into one is the
 * configuration's choice (--fusion). */
#include "engine/backend.h"

static void run_layer(const hr_backend *on, hr_pass *p) {
    hr_probe_layer_begin(&p->e->probe, (int)p->l);
    if (hr_pass_fuses(p, HR_FUSE_QKV))
        on->qkv_fused(p);
    else
        on->qkv(p);
    on->attention(p);
    on->out(p);
    if (hr_pass_fuses(p, HR_FUSE_GATE_UP))
        on->gate_up_fused(p);
    else
        on->gate_up(p);
    on->down(p);
    hr_probe_layer_end(&p->e->probe);
}

hr_status hr_forward(hr_engine *e, const hr_batch *batch) {
    const hr_backend *on = e->backend;
    const uint32_t n_q = batch->n_segments == 1 ? batch->n : 1;
    hr_pass p = {.e = e, .m = e->model, .batch = batch, .n = batch->n, .plan = hr_engine_plan_for(e, batch->n, n_q)};
    HR_TRY(on->begin(&p));
    hr_probe_pass_begin(&e->probe, batch->phase, batch->n);
    on->embed(&p);
    for (p.l = 0; p.l < e->model->hp.n_layers; p.l++) {
        p.layer = &e->model->layers[p.l];
        run_layer(on, &p);
    }
    p.layer = NULL;
    if (batch->n_logits) on->head(&p);
    const hr_status status = on->end(&p);
    hr_probe_pass_end(&e->probe);
    return status;
}
