#include "harness/cli/output.h"

#include "kernels/base/memory.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static hr_status format_of(const char *name, hr_format *out) {
    for (int f = 0; f < HR_FORMAT_COUNT; f++)
        if (!strcmp(hr_format_name((hr_format)f), name)) {
            *out = (hr_format)f;
            return HR_OK;
        }
    HR_FAIL(HR_ERR_INTERNAL, "format %s is listed but not known", name);
}

hr_status hr_output_resolve(const hr_args *args, hr_output *out) {
    memset(out, 0, sizeof *out);
    const char *format = hr_args_text(args, "--output"), *err = hr_args_text(args, "-oe");
    bool json = hr_args_flag(args, "--json");
    out->file = hr_args_text(args, "--out");
    out->quiet = hr_args_flag(args, "--quiet");
    out->verbose = hr_args_flag(args, "--verbose");
    out->progress = !out->quiet && !hr_args_flag(args, "--no-progress");
    out->to_stderr = err != NULL;
    out->format_given = format || json;
    if (json && format && strcmp(format, "json"))
        HR_FAIL(HR_ERR_USAGE, "--json and -o %s contradict each other; give one of them", format);
    if (out->quiet && out->verbose) HR_FAIL(HR_ERR_USAGE, "--quiet and --verbose contradict each other");
    out->format = !out->file && isatty(STDOUT_FILENO) ? HR_FORMAT_TABLE : HR_FORMAT_MD;
    if (json) out->format = HR_FORMAT_JSON;
    if (format) HR_TRY(format_of(format, &out->format));
    if (err) HR_TRY(format_of(err, &out->err_format));
    return HR_OK;
}

hr_status hr_output_check(const hr_output *output) {
    struct stat info;
    hr_out out;
    /* opening a pipe or a device has effects of its own */
    const bool special =
        output->file && stat(output->file, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
    if (!output->file || special) return HR_OK;
    HR_TRY(hr_out_open(output->file, &out));
    hr_out_abandon(&out);
    return HR_OK;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return false;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return !strcmp(a, b);
}

hr_status hr_output_check_all(const hr_args *args, const char *const *flags) {
    for (size_t i = 0; flags[i]; i++) {
        const hr_output one = {.file = hr_args_text(args, flags[i])};
        for (size_t k = 0; k < i; k++)
            if (same_file(one.file, hr_args_text(args, flags[k])))
                HR_FAIL(HR_ERR_USAGE, "%s and %s name the same file, %.200s: give each its own", flags[k], flags[i],
                        one.file);
        HR_TRY(hr_output_check(&one));
    }
    return HR_OK;
}

hr_status hr_output_rows(const hr_output *output, const json_t *rows, const char *const *keys) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    hr_status status = hr_rows_write(output->format, out.stream, rows, keys);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? hr_rows_write(output->err_format, stderr, rows, keys) : HR_OK;
}

static hr_status write_object(hr_format format, FILE *stream, const json_t *object) {
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, object);
    size_t n = json_object_size(object), i = 0;
    const char **keys = hr_calloc(n + 1, sizeof *keys);
    json_t *rows = json_array(), *value;
    const char *key;
    if (keys && rows) {
        json_object_foreach((json_t *)object, key, value) keys[i++] = key;
        json_array_append(rows, (json_t *)object);
    }
    hr_status status = json_array_size(rows) ? hr_rows_write(format, stream, rows, keys)
                                             : hr_fail(HR_ERR_MEMORY, "out of memory while printing the result");
    json_decref(rows);
    hr_free((void *)keys);
    return status;
}

/* line NULL: the object in any format. */
static hr_status write_either(hr_format format, FILE *stream, const char *line, const json_t *object) {
    if (!line || format == HR_FORMAT_JSON || format == HR_FORMAT_JSONL) return write_object(format, stream, object);
    fprintf(stream, "%s\n", line);
    return hr_stream_flush(stream);
}

static hr_status output_either(const hr_output *output, const char *line, const json_t *object) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = write_either(output->format, out.stream, line, object);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? write_either(output->err_format, stderr, line, object) : HR_OK;
}

hr_status hr_output_object(const hr_output *output, const json_t *object) {
    return output_either(output, NULL, object);
}

hr_status hr_output_line(const hr_output *output, const char *line, const json_t *object) {
    return output_either(output, line, object);
}
