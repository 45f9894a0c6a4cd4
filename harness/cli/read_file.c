#include "harness/cli/read_file.h"

#include "engine/engine.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t MOST = (size_t)256 << 20;

/* Frees what was read and fails. */
static hr_status give_up(char *all, hr_status code, const char *why) {
    hr_free(all);
    HR_FAIL(code, "%s", why);
}

static hr_status read_stream(FILE *file, char **text, size_t *n) {
    size_t room = 65536, used = 0;
    char *all = hr_malloc(room);
    if (!all) return give_up(all, HR_ERR_MEMORY, "out of memory while reading");
    for (;;) {
        errno = EIO; /* what a failing read says when it says nothing better */
        bool broken = hr_fault_hit(HR_FAULT_READ);
        size_t got = broken ? 0 : fread(all + used, 1, room - used - 1, file);
        if (broken || ferror(file)) return give_up(all, HR_ERR_IO, strerror(errno));
        if (!got) break;
        used += got;
        if (used > MOST) return give_up(all, HR_ERR_INPUT, "longer than 256 MiB; cut it");
        if (used + 1 < room) continue;
        char *grown = hr_realloc(all, room *= 2);
        if (!grown) return give_up(all, HR_ERR_MEMORY, "out of memory while reading");
        all = grown;
    }
    all[used] = 0;
    *text = all, *n = used;
    return HR_OK;
}

hr_status hr_read_file(const char *path, char **text, size_t *n) {
    if (!strcmp(path, "-")) {
        hr_status status = read_stream(stdin, text, n);
        return status == HR_OK ? HR_OK : hr_fail_prefix(status, "stdin");
    }
    FILE *file = fopen(path, "rb");
    if (!file) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    hr_status status = read_stream(file, text, n);
    fclose(file);
    return status == HR_OK ? HR_OK : hr_fail_prefix(status, path);
}

hr_status hr_check_ppl_files(const char *model, const char *text) {
    struct stat info;
    hr_model_info shape;
    if (text && !strcmp(text, "-")) text = NULL;
    if (model && access(model, R_OK) != 0)
        HR_FAIL(HR_ERR_INPUT, "--ppl-model %s cannot be read: name another file", model);
    if (model) HR_TRY(hr_model_peek(model, HR_QUANT_NATIVE, HR_ORDER_ROWS, &shape));
    if (text && (access(text, R_OK) != 0 || stat(text, &info) != 0 || S_ISDIR(info.st_mode)))
        HR_FAIL(HR_ERR_INPUT, "--ppl-text %s cannot be read: name another file", text);
    return HR_OK;
}
