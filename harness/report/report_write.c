/* A report is whole or absent: everything is made in a folder beside, then renamed file by file, the page last. */
#include "harness/report/report_kv.h"

#include "harness/formats/formats.h"
#include "kernels/base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

typedef struct job {
    const hr_report *report;
    char stage[PATH_BYTES], final[PATH_BYTES];
    hr_page_plot *plots; /* [hr_plots_count] */
    json_t *files;       /* relative paths, in the order in which they are renamed */
    bool missing;        /* there is no gnuplot */
} job;

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while writing the report");
}

/* ---- files of the stage ----------------------------------------------------------------------------------------- */

static hr_status open_staged(job *j, const char *folder, const char *name, const char *ending, hr_out *out) {
    char path[PATH_BYTES + 300], file[200];
    snprintf(file, sizeof file, "%s%s%s", folder, name, ending);
    snprintf(path, sizeof path, "%s/%s", j->stage, file);
    if (json_array_append_new(j->files, json_string(file)) != 0) return no_memory();
    return hr_out_open(path, out);
}

static hr_status close_staged(hr_out *out, hr_status status) {
    if (status == HR_OK) return hr_out_commit(out);
    hr_out_abandon(out);
    return status;
}

static hr_status read_text(const char *path, char **out) {
    FILE *f = fopen(path, "rb");
    struct stat info;
    if (!f || fstat(fileno(f), &info) != 0) {
        if (f) fclose(f);
        HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    }
    char *text = hr_malloc((size_t)info.st_size + 1);
    const size_t n = text ? fread(text, 1, (size_t)info.st_size, f) : 0;
    fclose(f);
    if (!text) return no_memory();
    text[n] = 0;
    *out = text;
    return HR_OK;
}

/* ---- plots ------------------------------------------------------------------------------------------------------ */

static hr_status write_plot(job *j, const hr_plot *plot, hr_page_plot *page) {
    hr_plot_data *data = &page->data;
    *data = (hr_plot_data){.rows = json_array(), .titles = json_array(), .vars = json_object()};
    if (!data->rows || !data->titles || !data->vars) return no_memory();
    plot->fill(j->report, data);
    if (data->failed) return no_memory();
    if (data->why[0]) return HR_OK;
    hr_out out;
    HR_TRY(open_staged(j, "data/", plot->name, ".tsv", &out));
    HR_TRY(close_staged(&out, hr_plot_write_tsv(plot, data, out.stream)));
    HR_TRY(open_staged(j, "plots/", plot->name, ".gp", &out));
    HR_TRY(close_staged(&out, hr_plot_write_script(plot, data, out.stream)));
    if (j->missing) return HR_OK;
    char path[PATH_BYTES + 300];
    snprintf(path, sizeof path, "%s/plots", j->stage);
    HR_TRY(hr_plot_draw(plot, path, &j->missing));
    if (j->missing) return HR_OK;
    snprintf(path, sizeof path, "%s/plots/%s.svg", j->stage, plot->name);
    HR_TRY(read_text(path, &page->svg));
    snprintf(path, sizeof path, "plots/%s.svg", plot->name);
    return json_array_append_new(j->files, json_string(path)) == 0 ? HR_OK : no_memory();
}

/* ---- tables of everything --------------------------------------------------------------------------------------- */

static void tsv_field(FILE *f, const char *text) {
    for (; *text; text++) fputc((unsigned char)*text < 32 || *text == 127 ? ' ' : *text, f);
}

static hr_status write_cells(job *j) {
    hr_out out;
    HR_TRY(open_staged(j, "data/", "cells", ".tsv", &out));
    size_t n, i;
    const char *const *columns = hr_cell_columns(&n);
    json_t *cell;
    for (size_t c = 0; c < n; c++) fprintf(out.stream, "%s%s", c ? "\t" : "", columns[c]);
    fputc('\n', out.stream);
    for (int ok = 1; ok >= 0; ok--) json_array_foreach(ok ? j->report->cells : j->report->others, i, cell) {
            for (size_t c = 0; c < n; c++) {
                if (c) fputc('\t', out.stream);
                tsv_field(out.stream, hr_cell_column_text(cell, c));
            }
            fputc('\n', out.stream);
        }
    return close_staged(&out, HR_OK);
}

static hr_status write_ops(job *j) {
    static const char *const columns[] = {"phase", "op",      "unit",    "calls", "ms",   "bytes",
                                          "flops", "roof_ms", "loss_ms", "share", "bound"};
    enum { N = sizeof columns / sizeof *columns };
    hr_out out;
    HR_TRY(open_staged(j, "data/", "ops", ".tsv", &out));
    size_t i, k;
    json_t *cell, *op;
    fputs("cell_id\ttest", out.stream);
    for (size_t c = 0; c < N; c++) fprintf(out.stream, "\t%s", columns[c]);
    fputc('\n', out.stream);
    json_array_foreach(j->report->cells, i, cell) json_array_foreach(json_object_get(cell, "op_sums"), k, op) {
        tsv_field(out.stream, hr_word(cell, "cell_id"));
        fputc('\t', out.stream);
        tsv_field(out.stream, hr_word(cell, "test"));
        for (size_t c = 0; c < N; c++) {
            const json_t *v = json_object_get(op, columns[c]);
            fputc('\t', out.stream);
            if (json_is_number(v))
                fprintf(out.stream, "%.15g", json_number_value(v));
            else
                tsv_field(out.stream, hr_word(op, columns[c]));
        }
        fputc('\n', out.stream);
    }
    return close_staged(&out, HR_OK);
}

static const char study_name[] = "kv_study", claims_name[] = "claims";

static hr_status write_kv(job *j) {
    hr_out out;
    if (hr_kvr_studied(j->report)) {
        HR_TRY(open_staged(j, "data/", study_name, ".tsv", &out));
        hr_kvr_write_study(j->report, out.stream);
        HR_TRY(close_staged(&out, HR_OK));
    }
    if (json_array_size(j->report->claims)) {
        HR_TRY(open_staged(j, "data/", claims_name, ".tsv", &out));
        hr_kvr_write_claims(j->report, out.stream);
        HR_TRY(close_staged(&out, HR_OK));
    }
    return HR_OK;
}

static hr_status write_page(job *j, const char *note) {
    hr_out html, md;
    HR_TRY(open_staged(j, "", "report", ".md", &md));
    hr_status status = open_staged(j, "", "index", ".html", &html);
    if (status != HR_OK) {
        hr_out_abandon(&md);
        return status;
    }
    hr_doc doc = {.html = html.stream, .md = md.stream};
    hr_report_page(&doc, j->report, j->plots, note);
    status = hr_out_commit(&md);
    return close_staged(&html, status);
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

static void remove_files(const char *folder) {
    DIR *dir = opendir(folder);
    char path[PATH_BYTES + 700];
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(folder);
}

static void remove_stage(const job *j) {
    char path[PATH_BYTES + 300];
    static const char *const folders[] = {"/data", "/plots", ""};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", j->stage, folders[i]);
        remove_files(path);
    }
}

static hr_status make_folder(const char *path) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return HR_OK;
    HR_FAIL(HR_ERR_IO, "%s: making the folder: %s", path, strerror(errno));
}

/* Pictures of an earlier report that this one does not have would be taken for its own. */
static void remove_stale(const job *j) {
    char path[PATH_BYTES + 300];
    for (size_t i = 0; i < hr_plots_count; i++) {
        const bool here = !j->plots[i].data.why[0];
        snprintf(path, sizeof path, "%s/plots/%s.svg", j->final, hr_plots[i].name);
        if (!here || !j->plots[i].svg) unlink(path);
        snprintf(path, sizeof path, "%s/plots/%s.gp", j->final, hr_plots[i].name);
        if (!here) unlink(path);
        snprintf(path, sizeof path, "%s/data/%s.tsv", j->final, hr_plots[i].name);
        if (!here) unlink(path);
    }
    snprintf(path, sizeof path, "%s/data/%s.tsv", j->final, study_name);
    if (!hr_kvr_studied(j->report)) unlink(path);
    snprintf(path, sizeof path, "%s/data/%s.tsv", j->final, claims_name);
    if (!json_array_size(j->report->claims)) unlink(path);
}

static hr_status move_into_place(job *j) {
    char from[PATH_BYTES + 300], to[PATH_BYTES + 300];
    static const char *const folders[] = {"data", "plots"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(to, sizeof to, "%s/%s", j->final, folders[i]);
        HR_TRY(make_folder(to));
    }
    remove_stale(j);
    size_t i;
    json_t *file;
    json_array_foreach(j->files, i, file) {
        snprintf(from, sizeof from, "%s/%s", j->stage, json_string_value(file));
        snprintf(to, sizeof to, "%s/%s", j->final, json_string_value(file));
        if (rename(from, to) != 0) HR_FAIL(HR_ERR_IO, "%s: %s", to, strerror(errno));
    }
    return HR_OK;
}

static const char missing_note[] =
    "gnuplot is not installed, so no picture was drawn: apt-get install gnuplot-nox, then report "
    "again (or run gnuplot on plots/*.gp)";

static hr_status write_all(job *j) {
    char path[PATH_BYTES + 300];
    snprintf(path, sizeof path, "%s/plots/x", j->stage);
    HR_TRY(hr_make_folders(path));
    for (size_t i = 0; i < hr_plots_count; i++) HR_TRY(write_plot(j, &hr_plots[i], &j->plots[i]));
    HR_TRY(write_cells(j));
    HR_TRY(write_ops(j));
    HR_TRY(write_kv(j));
    HR_TRY(write_page(j, j->missing ? missing_note : NULL));
    return move_into_place(j);
}

/* Full paths, the page first. */
static json_t *paths_of(const job *j) {
    json_t *paths = json_array();
    char path[PATH_BYTES + 300];
    for (size_t i = json_array_size(j->files); i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", j->final, json_string_value(json_array_get(j->files, i)));
        if (json_array_append_new(paths, json_string(path)) != 0) {
            json_decref(paths);
            return NULL;
        }
    }
    return paths;
}

hr_status hr_report_write(hr_store *store, const hr_report_options *options, json_t **paths, json_t **note) {
    hr_report report;
    struct stat info;
    if (strlen(options->out_dir) > PATH_BYTES - 100) HR_FAIL(HR_ERR_USAGE, "--out: the name of the folder is too long");
    const bool was_there = stat(options->out_dir, &info) == 0;
    if (was_there && !S_ISDIR(info.st_mode)) HR_FAIL(HR_ERR_IO, "%s: is a file; name a folder", options->out_dir);
    HR_TRY(hr_report_load(store, options, &report));
    job j = {.report = &report, .plots = hr_calloc(hr_plots_count, sizeof *j.plots), .files = json_array()};
    snprintf(j.final, sizeof j.final, "%s", options->out_dir);
    snprintf(j.stage, sizeof j.stage, "%s/.report.%ld", options->out_dir, (long)getpid());
    hr_status status = j.plots && j.files ? write_all(&j) : no_memory();
    if (status == HR_OK && !(*paths = paths_of(&j))) status = no_memory();
    if (status == HR_OK) {
        char noise[160], line[600];
        hr_report_noise(&report, noise, sizeof noise);
        snprintf(line, sizeof line, "%s%s%s", noise, *noise && j.missing ? "; " : "", j.missing ? missing_note : "");
        *note = *line ? json_string(line) : NULL;
    }
    remove_stage(&j);
    if (status != HR_OK && !was_there) rmdir(j.final); /* only when nothing lies in it */
    for (size_t i = 0; j.plots && i < hr_plots_count; i++) {
        json_decref(j.plots[i].data.rows), json_decref(j.plots[i].data.titles), json_decref(j.plots[i].data.vars);
        json_decref(j.plots[i].data.tsv);
        hr_free(j.plots[i].svg);
    }
    hr_free(j.plots);
    json_decref(j.files);
    hr_report_fini(&report);
    return status;
}
