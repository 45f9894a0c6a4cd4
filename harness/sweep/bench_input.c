#include "harness/sweep/bench_input.h"

#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <string.h>

hr_status hr_input_init(hr_input *in, const hr_model *model, const char *text, size_t text_bytes, uint64_t seed,
                        size_t longest) {
    *in = (hr_input){.tokenizer = hr_model_tokenizer(model),
                     .text = text,
                     .text_bytes = text_bytes,
                     .vocab = hr_model_get_info(model)->vocab,
                     .random = seed};
    if (!text) return HR_OK;
    if (!in->tokenizer) HR_FAIL(HR_ERR_INPUT, "--prompt: this model has no tokenizer; leave the flag out");
    HR_TRY(hr_tokenize(in->tokenizer, text, text_bytes, false, false, &in->ids, &in->n_ids));
    if (!in->n_ids) {
        hr_input_fini(in);
        HR_FAIL(HR_ERR_INPUT, "--prompt: the text has no tokens");
    }
    /* Twice the length that the longest prompt takes on average, after any place of the text. */
    const size_t rounds = 2 + 2 * longest / in->n_ids;
    in->loop_bytes = hr_mul(text_bytes, rounds);
    in->loop = hr_malloc(in->loop_bytes);
    if (!in->loop) {
        hr_input_fini(in);
        HR_FAIL(HR_ERR_MEMORY, "--prompt: no memory for %zu bytes of text", text_bytes);
    }
    for (size_t i = 0; i < rounds; i++) memcpy(in->loop + i * text_bytes, text, text_bytes);
    return HR_OK;
}

void hr_input_fini(hr_input *in) {
    hr_free(in->ids), hr_free(in->loop);
    in->ids = NULL, in->loop = NULL;
}

/* Where prompt number `which` begins among n places. Steps of the golden ratio spread over a text of any length; a step of
 * so many tokens would stand still in a text that is just as long. */
static size_t place_of(uint64_t which, size_t n) {
    const double turn = (double)(which * 0x9e3779b97f4a7c15u >> 11) * 0x1p-53;
    const size_t place = (size_t)(turn * (double)n);
    return place < n ? place : n - 1;
}

void hr_input_tokens(hr_input *in, uint64_t which, int32_t *out, size_t n) {
    if (!in->text) {
        for (size_t i = 0; i < n; i++) out[i] = (int32_t)(hr_random(&in->random) % in->vocab);
        return;
    }
    const size_t start = place_of(which, in->n_ids);
    for (size_t i = 0; i < n; i++) out[i] = in->ids[(start + i) % in->n_ids];
}

hr_status hr_input_slice(hr_input *in, uint64_t which, size_t n, const char **text, size_t *bytes) {
    size_t start = place_of(which, in->text_bytes);
    while (start < in->text_bytes && in->text[start] != ' ' && in->text[start] != '\n') start++;
    if (start == in->text_bytes) start = 0;
    const size_t room = in->loop_bytes - start;
    size_t want = in->text_bytes * n / in->n_ids + 64;
    for (;;) {
        if (want > room) want = room;
        int32_t *ids;
        size_t got;
        HR_TRY(hr_tokenize(in->tokenizer, in->loop + start, want, true, false, &ids, &got));
        hr_free(ids);
        if (got >= n) break;
        if (want == room) HR_FAIL(HR_ERR_INPUT, "--prompt: the text gives %zu of %zu tokens; use a longer one", got, n);
        want += want / 4 + 16;
    }
    *text = in->loop + start, *bytes = want;
    return HR_OK;
}
