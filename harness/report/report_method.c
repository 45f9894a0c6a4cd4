/* How the figures came about, and how to get them again. */
#include "harness/report/report_kv.h"

#include <string.h>

/* A word as a shell takes it. */
static size_t shell_word(char *out, size_t size, const char *word) {
    const bool plain =
        *word &&
        strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+-*@%") == strlen(word) &&
        !strchr(word, '*');
    if (plain) return (size_t)snprintf(out, size, "%s", word);
    size_t n = (size_t)snprintf(out, size, "'");
    for (; *word && n + 8 < size; word++)
        n += (size_t)snprintf(out + n, size - n, *word == '\'' ? "'\\''" : "%c", *word);
    return n + (size_t)snprintf(out + n, n < size ? size - n : 0, "'");
}

static void value_text(const json_t *value, char *out, size_t size) {
    size_t n = 0, i;
    json_t *item;
    out[0] = 0;
    if (json_is_string(value))
        snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, size, "%g", json_real_value(value));
    json_array_foreach((json_t *)value, i, item) {
        char part[512];
        value_text(item, part, sizeof part);
        if (n < size) n += (size_t)snprintf(out + n, size - n, "%s%s", i ? "," : "", part);
    }
}

/* Flags of how results are shown; --db stays, since the report is of that store. */
static bool about_output(const char *name) {
    static const char *const names[] = {"output", "oe", "json", "out", "quiet", "verbose", "no-progress", "resume"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

void hr_report_command(const json_t *run, char *out, size_t size) {
    size_t n = (size_t)snprintf(out, size, "headroom %.20s", hr_word(run, "command"));
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(run, "args"), name, value) {
        if (about_output(name) || json_is_false(value) || json_is_null(value) || n + 2 >= size) continue;
        /* -pg has no long name; each pair is a use of its own */
        n += (size_t)snprintf(out + n, size - n, " %s%s", strcmp(name, "pg") ? "--" : "-", name);
        if (json_is_true(value) || n + 2 >= size) continue;
        char text[1024];
        value_text(value, text, sizeof text);
        n += (size_t)snprintf(out + n, size - n, " ");
        n += shell_word(out + n, size - n, text);
        if (n >= size) n = size - 1;
    }
}

static void definitions(hr_doc *doc) {
    hr_doc_list(doc, true);
    hr_doc_item(doc, "TTFT", "(ms) is from the request to its first token: queueing, prefill, first sample.");
    hr_doc_item(doc, "TPOT",
                "(ms) is (last token - first token) / (tokens - 1); in tg rows the time of a decode step.");
    hr_doc_item(doc, "MBU",
                "is the bytes of weights and KV that a step must move, over its median time, over the read "
                "bandwidth measured beside the cell.");
    hr_doc_item(doc, "MFU",
                "is the sum over arithmetic units of flops over the peak of that unit, over the median time.");
    hr_doc_item(doc, "Roof time",
                "is the longer of bytes / bandwidth and the sum of flops / peak; the roof fraction is roof "
                "time over measured time; the bound says which of the two is longer.");
    hr_doc_item(doc, "Bytes",
                "count weights touched (with scales), KV read at each sequence's own length and KV written; "
                "activations are taken to stay in cache.");
    hr_doc_item(doc, "Time of an op class",
                "is the median of a call times its calls, summed over layers, divided by the "
                "recorded steps; its roof time is found call by call.");
    hr_doc_list(doc, false);
}

void hr_report_method(hr_doc *doc, const hr_report *r) {
    hr_doc_heading(doc, 2, "How it was measured");
    hr_doc_para(doc,
                "A cell is warmed up at its own shape until its times no longer fall, then repeated with the recorder "
                "off: at least 10 samples and 0.5 s, until the half-width of the 95 %% interval of the median is under "
                "0.5 %% of it, or until that width has settled, or time is up; with -r exactly so many (“fixed”). "
                "Prompts differ between repetitions. Up to 5 more repetitions are recorded op by op.");
    hr_doc_para(doc,
                "Right before and after each cell, probes of a few milliseconds read DRAM with all threads, run each "
                "arithmetic unit that the cell uses, hand a cache line from core to core and time a chain of dependent "
                "instructions. The higher of both is the ceiling of the cell.");
    definitions(doc);
    if (hr_kvr_studied(r))
        hr_doc_para(
            doc,
            "KV cache: layouts of one shape hold the same values in memory of the same kind and are sampled in "
            "rounds, in random order within a round; the ratio to head is taken within a round, and its median and "
            "interval are what is judged. At least 10 rounds, then until the median is known or time is up.");
    hr_doc_heading(doc, 3, "To measure it again");
    size_t i;
    json_t *run;
    hr_doc_code(doc, true);
    json_array_foreach(r->runs, i, run) {
        char command[2048];
        hr_report_command(run, command, sizeof command);
        hr_doc_code_line(doc, command);
    }
    char last[1100] = "headroom report";
    const char *db = hr_word(json_object_get(json_array_get(r->runs, json_array_size(r->runs) - 1), "args"), "db");
    if (*db) {
        const size_t n = (size_t)snprintf(last, sizeof last, "headroom report --db ");
        shell_word(last + n, sizeof last - n, db);
    }
    hr_doc_code_line(doc, last);
    hr_doc_code(doc, false);
}
