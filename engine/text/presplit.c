#include "engine/text/text_parts.h"
#include "kernels/base/memory.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* White space by Unicode's property, written out: PCRE2's \s also holds U+180E. */
#define WS      "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE   "[" WS "]"
#define OTHER   "[^" WS "\\p{L}\\p{N}]" /* neither space nor letter nor number */
#define ENDINGS "'(?:s|t|re|ve|m|ll|d)"

/* Spaces before a word leave their last one to it. */
#define GPT2 ENDINGS "| ?\\p{L}+| ?\\p{N}+| ?" OTHER "+|" SPACE "+(?![^" WS "])|" SPACE "+"
/* Digits are cut out one by one first and GPT-2's rule is applied to what lies between them: a space never joins a
 * digit, and spaces before a digit stay together as they would at the end of the text. */
#define SMOLLM "\\p{N}|" ENDINGS "| ?\\p{L}+| ?" OTHER "+|" SPACE "+(?![^" WS "\\p{N}])|" SPACE "+"
/* Llama 3 and Qwen 2 differ in how many digits they keep together. */
#define MODERN(digits)                                                                                      \
    "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?" OTHER \
    "+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?![^" WS "])|" SPACE "+"

static const hr_presplit_kind kinds[] = {
    {"gpt-2", GPT2, false},
    {"default", GPT2, false},
    {"smollm", SMOLLM, false},
    {"llama-bpe", MODERN("\\p{N}{1,3}"), true},
    {"llama3", MODERN("\\p{N}{1,3}"), true},
    {"llama-v3", MODERN("\\p{N}{1,3}"), true},
    {"qwen2", MODERN("\\p{N}"), false},
};

const hr_presplit_kind *hr_presplit_find(hr_text pre) {
    if (pre.n == 0) pre = (hr_text){"default", 7};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == pre.n && memcmp(kinds[i].name, pre.s, pre.n) == 0) return &kinds[i];
    return NULL;
}

struct hr_presplit {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_context *limits;
    bool jit;
};

static void *lib_malloc(PCRE2_SIZE bytes, void *context) {
    (void)context;
    return hr_malloc(bytes);
}
static void lib_free(void *memory, void *context) {
    (void)context;
    hr_free(memory);
}

static hr_status compile(hr_presplit *presplit, const hr_presplit_kind *kind) {
    presplit->memory = pcre2_general_context_create(lib_malloc, lib_free, NULL);
    if (presplit->memory) presplit->limits = pcre2_match_context_create(presplit->memory);
    pcre2_compile_context *context = presplit->limits ? pcre2_compile_context_create(presplit->memory) : NULL;
    if (!context) HR_FAIL(HR_ERR_MEMORY, "no memory to compile pre-splitter %s", kind->name);
    int error = 0;
    PCRE2_SIZE where = 0;
    presplit->code =
        pcre2_compile((PCRE2_SPTR)kind->pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &where, context);
    pcre2_compile_context_free(context);
    if (!presplit->code) {
        if (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAP_FAILED)
            HR_FAIL(HR_ERR_MEMORY, "no memory to compile pre-splitter %s", kind->name);
        HR_FAIL(HR_ERR_INTERNAL, "pre-splitter %s does not compile: PCRE2 error %d at %zu", kind->name, error, where);
    }
    presplit->jit = pcre2_jit_compile(presplit->code, PCRE2_JIT_COMPLETE) == 0;
    /* The patterns look ahead by one character and never nest, so work per piece is linear; the library's own limit
     * would only refuse runs of some millions of spaces. */
    pcre2_set_match_limit(presplit->limits, UINT32_MAX);
    return HR_OK;
}

hr_status hr_presplit_create(const hr_presplit_kind *kind, hr_presplit **out) {
    hr_presplit *presplit = hr_calloc(1, sizeof *presplit);
    *out = NULL;
    if (!presplit) HR_FAIL(HR_ERR_MEMORY, "no memory for pre-splitter %s", kind->name);
    hr_status status = compile(presplit, kind);
    if (status == HR_OK)
        *out = presplit;
    else
        hr_presplit_destroy(presplit);
    return status;
}

void hr_presplit_destroy(hr_presplit *presplit) {
    if (!presplit) return;
    pcre2_code_free(presplit->code);
    pcre2_match_context_free(presplit->limits);
    pcre2_general_context_free(presplit->memory);
    hr_free(presplit);
}

hr_status hr_splitter_init(hr_splitter *splitter, const hr_presplit *presplit) {
    *splitter = (hr_splitter){presplit, pcre2_match_data_create(1, presplit->memory)};
    if (!splitter->match) HR_FAIL(HR_ERR_MEMORY, "no memory to split text");
    return HR_OK;
}

void hr_splitter_fini(hr_splitter *splitter) {
    pcre2_match_data_free(splitter->match);
    splitter->match = NULL;
}

hr_status hr_splitter_next(hr_splitter *splitter, const uint8_t *s, size_t n, size_t at, size_t *end) {
    const hr_presplit *p = splitter->presplit;
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit) found = pcre2_jit_match(p->code, s, n, at, PCRE2_NO_UTF_CHECK, splitter->match, p->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* or no JIT: the interpreter keeps its state on the heap */
        found = pcre2_match(p->code, s, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, splitter->match, p->limits);
    if (found == PCRE2_ERROR_NOMEMORY) HR_FAIL(HR_ERR_MEMORY, "no memory to split text");
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        HR_FAIL(HR_ERR_INTERNAL, "splitting text at byte %zu of %zu: PCRE2 error %d", at, n, found);
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(splitter->match);
    if (found < 0)
        *end = n;
    else /* every character begins a match; were one not to, what lies before the match would be a piece of its own */
        *end = bounds[0] > at ? bounds[0] : bounds[1];
    return HR_OK;
}
