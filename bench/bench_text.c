/* The tokenizer: text to tokens and back, with the vocabulary of a model file. HEADROOM_MODEL=FILE.gguf names it, else the
 * one that the tests fetch; without any, the byte tokenizer of synthetic models. */
#include "bench/bench.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run {
    hr_tokenizer *tokenizer;
    hr_detok *detok;
    char *text;
    size_t bytes, n_ids;
    int32_t *ids;
    bool back;
} run;

static void teardown(void *context) {
    run *r = context;
    if (r->detok) hr_detok_destroy(r->detok);
    if (r->tokenizer) hr_tokenizer_destroy(r->tokenizer);
    hr_free(r->ids);
    free(r->text);
    free(r);
}

static const char *model(void) {
    static char path[1200];
    const char *given = getenv("HEADROOM_MODEL"), *home = getenv("HOME");
    if (given) return given;
    snprintf(path, sizeof path, "%.1000s/.cache/headroom-models/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    return access(path, R_OK) == 0 ? path : "synth:tiny";
}

/* Words, numbers, names, indentation and a few characters beyond ASCII. */
static void write_text(char *out, size_t n) {
    static const char piece[] = "The memory of a machine, they said in 1974, is never where you left it.\n"
                                "    for (int i = 0; i < 4096; i++) total += weight[i] * x[i];\n"
                                "Prices rose by 12.5 % (from 1,048 to 1,179); na\xc3\xafve caf\xc3\xa9s \xe2\x80\x94 "
                                "\xe6\xbc\xa2\xe5\xad\x97.\n\n";
    for (size_t at = 0; at < n; at += sizeof piece - 1)
        memcpy(out + at, piece, n - at < sizeof piece - 1 ? n - at : sizeof piece - 1);
}

/* Feeds all tokens; compares with the text when out is not NULL. */
static size_t feed(run *r, char *out) {
    size_t total = 0;
    for (size_t i = 0; i <= r->n_ids; i++) {
        size_t n;
        const char *s = i < r->n_ids ? hr_detok_feed(r->detok, r->ids[i], &n) : hr_detok_flush(r->detok, &n);
        if (out && total + n <= r->bytes) memcpy(out + total, s, n);
        total += n;
    }
    return total;
}

static hr_status check(run *r) {
    char *got = malloc(r->bytes);
    if (!got) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    const size_t n = feed(r, got);
    const bool same = n == r->bytes && memcmp(got, r->text, n) == 0;
    free(got);
    if (!same) HR_FAIL(HR_ERR_INTERNAL, "the tokenizer is wrong: %zu bytes in, other %zu bytes back", r->bytes, n);
    return HR_OK;
}

static hr_status open_text(run *r) {
    HR_TRY(hr_tokenizer_open(model(), &r->tokenizer));
    HR_TRY(hr_detok_create(r->tokenizer, true, &r->detok));
    r->text = malloc(r->bytes);
    if (!r->text) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    write_text(r->text, r->bytes);
    HR_TRY(hr_tokenize(r->tokenizer, r->text, r->bytes, false, false, &r->ids, &r->n_ids));
    return check(r);
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->bytes = (size_t)args[0], r->back = *(const bool *)context;
    const hr_status status = open_text(r);
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) {
        int32_t *ids;
        size_t n;
        if (r->back)
            feed(r, NULL);
        else if (hr_tokenize(r->tokenizer, r->text, r->bytes, false, false, &ids, &n) == HR_OK)
            hr_free(ids);
    }
}

static hr_bench_cost cost(const void *context) {
    return (hr_bench_cost){.items = (double)((const run *)context)->n_ids, .item = "token/s"};
}

void hr_bench_register_text(bool smoke) {
    static const char *const names[] = {"bytes"};
    static const int64_t sizes[] = {1 << 10, 1 << 16};
    for (int back = 0; back < 2; back++) {
        const bool context = back;
        hr_bench_add(&(hr_bench_family){.name = back ? "text/detokenize" : "text/tokenize",
                                        .arg_names = names,
                                        .n_args = 1,
                                        .values = sizes,
                                        .n_values = smoke ? 1 : 2,
                                        .context = &context,
                                        .context_bytes = sizeof context,
                                        .setup = setup,
                                        .body = body,
                                        .teardown = teardown,
                                        .cost = cost});
    }
}
