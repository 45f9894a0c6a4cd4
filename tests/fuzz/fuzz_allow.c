/* Fuzz target: what people write for a gate. Byte 0 chooses: an allow-list, whose entries then meet a row and the files that
 * name them, or budgets. */
#include "harness/formats/json_get.h"
#include "harness/gate/gate_internal.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

/* A slow row of the given name: allowed or red, and nothing else. */
static void judge(const json_t *allowed, const char *name) {
    json_t *c = json_pack("{s:[{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:s, s:s, s:s}], s:[], s:[]}", "cells", "test",
                          name, "cell_id", "abcd1234", "model_filename", name, "metric", "tpot_excl_first_ms",
                          "shift_pct", 5.0, "ci95_lo_pct", 4.0, "ci95_hi_pct", 6.0, "p_adjusted", 0.001, "verdict",
                          "slower", "status_a", "ok", "status_b", "ok", "unmatched_a", "unmatched_b");
    const hr_gate_rule rule = {.pairs = true, .allowed = allowed, .now = 1800000000, .spread = NAN};
    json_t *v = NULL;
    char *text = NULL;
    size_t n = 0;
    require(c && hr_gate_judge(c, &rule, &v) == HR_OK);
    const json_int_t code = json_integer_value(json_object_get(v, "exit_code"));
    require(code == 0 || code == 1);
    FILE *f = open_memstream(&text, &n);
    require(f && hr_gate_junit(f, v) == HR_OK && hr_gate_summary(f, v) == HR_OK);
    hr_gate_annotations(f, v);
    fclose(f);
    for (size_t i = 0; i < n; i++) require((unsigned char)text[i] >= 0x20 || text[i] == '\n' || text[i] == '\t');
    char *line = hr_gate_line(v);
    require(line && !strchr(line, '\n'));
    hr_free(line), free(text), json_decref(v), json_decref(c);
}

static void check_list(const char *text) {
    json_t *list = NULL, *entry;
    size_t i;
    if (hr_gate_allow_parse(text, "fuzz.txt", &list) != HR_OK) {
        require(list == NULL && !strchr(hr_error(), '\n'));
        return;
    }
    json_array_foreach(list, i, entry) {
        require(*hr_word(entry, "reason") && *hr_word(entry, "metric") && strlen(hr_word(entry, "expires")) == 10);
        require(!hr_gate_expired(entry, 0)); /* no date lies before 1970 */
        if (i < 4) judge(list, hr_word(entry, "reason"));
    }
    json_decref(list);
}

static void check_budgets(const char *text) {
    hr_gate_rule rule = {0};
    if (hr_gate_budgets_parse(text, &rule) != HR_OK) return;
    require(rule.n_budgets > 0 && rule.n_budgets <= 6);
    for (size_t i = 0; i < rule.n_budgets; i++)
        require(rule.budgets[i].share >= 0 && rule.budgets[i].share <= 10 && *rule.budgets[i].metric);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size == 0 || memchr(data, 0, size)) return 0;
    char *text = hr_malloc(size);
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (data[0] & 1)
        check_list(text);
    else
        check_budgets(text);
    hr_free(text);
    return 0;
}
