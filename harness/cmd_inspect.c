/* headroom inspect: what a model file holds, and all of it that is not supported. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"

#include <stdio.h>
#include <string.h>

static void print_inline(FILE *stream, const json_t *value) {
    const char *name;
    json_t *item;
    if (json_is_string(value)) {
        fputs(json_string_value(value), stream);
    } else if (json_is_object(value)) {
        json_object_foreach((json_t *)value, name, item) {
            fprintf(stream, " %s=", name);
            print_inline(stream, item);
        }
    } else {
        json_dumpf(value, stream, JSON_ENCODE_ANY | JSON_COMPACT);
    }
}

/* One line a fact; objects indented, short words of a list on its line, other entries each on their own. */
static void print_value(FILE *stream, const char *key, const json_t *value, int depth) {
    const char *name;
    json_t *item;
    size_t i;
    fprintf(stream, "%*s%s:", 2 * depth, "", key);
    if (json_is_null(value) || (json_is_object(value) && !json_object_size(value))) {
        fputs(" none\n", stream);
        return;
    }
    if (json_is_object(value)) {
        putc('\n', stream);
        json_object_foreach((json_t *)value, name, item) print_value(stream, name, item, depth + 1);
        return;
    }
    if (json_is_array(value)) {
        if (!json_array_size(value)) fputs(" none", stream);
        json_array_foreach((json_t *)value, i, item) {
            bool shorter = json_is_string(item) && strlen(json_string_value(item)) <= 20;
            fputs(shorter ? " " : "\n   ", stream);
            if (!shorter && !json_is_object(item)) putc(' ', stream);
            print_inline(stream, item);
        }
    } else if (json_is_string(value)) {
        fprintf(stream, " %s", json_string_value(value));
    } else if (json_is_real(value)) {
        fprintf(stream, " %.6g", json_real_value(value));
    } else {
        putc(' ', stream);
        json_dumpf(value, stream, JSON_ENCODE_ANY);
    }
    putc('\n', stream);
}

static hr_status print_text(const hr_output *output, const json_t *object) {
    const char *key;
    json_t *value;
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    json_object_foreach((json_t *)object, key, value) print_value(out.stream, key, value, 0);
    return hr_out_commit(&out);
}

static hr_status inspect(const hr_args *args) {
    hr_output output;
    HR_TRY(hr_output_resolve(args, &output));
    const char *spec = hr_args_text(args, "--model");
    if (!spec) HR_FAIL(HR_ERR_USAGE, "no model; give one with -m: a GGUF file or synth:NAME");
    json_t *object;
    HR_TRY(hr_model_inspect(spec, &object));
    hr_status status =
        output.format_given || output.to_stderr ? hr_output_object(&output, object) : print_text(&output, object);
    json_decref(object);
    return status;
}

static int run(const hr_args *args) {
    return inspect(args) == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt *const options[] = {&hr_opt_model, HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {"headroom inspect -m synth:llama-3.2-1b", "a published shape",
                                       "headroom inspect -m synth:tiny --json",
                                       "the same object for a program; for a file: -m FILE.gguf", NULL};

const hr_command hr_command_inspect = {
    .name = "inspect",
    .task = "Run a model on text",
    .summary = "what a model file holds: shape, types, tokenizer, and everything that is not supported",
    .synopsis = "headroom inspect -m MODEL [--json]",
    .options = options,
    .examples = examples,
    .run = run,
};
