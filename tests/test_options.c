#include "tests/hr_test.h"

#include "harness/cli/device_args.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/options_internal.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <unistd.h>

static const hr_opt opt_name = {.name = "--name", .kind = HR_OPT_TEXT, .group = "G", .min = 1, .help = "text"};
static const hr_opt opt_share = {
    .name = "--share", .kind = HR_OPT_REAL, .group = "G", .max = 1, .fallback = "0.25", .help = "number"};
static const hr_opt opt_count = {
    .name = "--count", .alias = "-c --many", .kind = HR_OPT_INT, .group = "G", .min = 1, .max = 9, .help = "one"};
static const hr_opt opt_tag = {.name = "--tag", .kind = HR_OPT_KEYVALUE, .group = "G", .help = "tag"};
static const hr_opt *const list[] = {HR_OPTS_AXES_SWEEP, HR_OPTS_OUTPUT, HR_OPTS_CONFIG, &opt_name,
                                     &opt_share,         &opt_count,     &opt_tag,       NULL};
static const char *const examples[] = {"headroom try", "an example", NULL};
static int nothing(const hr_args *args) {
    (void)args;
    return 0;
}
static const hr_command try = {.name = "try",
                               .task = "T",
                               .summary = "s",
                               .synopsis = "u",
                               .options = list,
                               .positional = "FILE",
                               .max_positional = 2,
                               .examples = examples,
                               .run = nothing};

/* Parses the words of a line that are separated by spaces; "''" is an empty word. */
static hr_status parse(const char *line, hr_args **out) {
    static char text[1024];
    static char *words[64];
    int n = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *w = strtok(text, " "); w; w = strtok(NULL, " ")) words[n++] = strcmp(w, "''") ? w : w + 2;
    *out = NULL;
    return hr_args_parse(&try, n, words, out);
}

static hr_args *parsed(const char *line) {
    hr_args *args;
    if (parse(line, &args) != HR_OK) fail_msg("\"%s\" was refused: %s", line, hr_error());
    return args;
}

/* Refused as wrong use, in words that hold `needle`. */
static void refused(const char *line, const char *needle) {
    hr_args *args;
    hr_status status = parse(line, &args);
    hr_args_destroy(args);
    if (status != HR_ERR_USAGE) fail_msg("\"%s\" gave %s, expected wrong use", line, hr_status_text(status));
    if (!strstr(hr_error(), needle)) fail_msg("\"%s\": \"%s\" does not say \"%s\"", line, hr_error(), needle);
}

static void ints_are(const char *line, const char *name, const int64_t *want, size_t n_want) {
    hr_args *args = parsed(line);
    size_t n;
    const int64_t *got = hr_args_ints(args, name, &n);
    if (n != n_want) fail_msg("\"%s\": %zu values, expected %zu", line, n, n_want);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("\"%s\": index %zu: %lld, expected %lld", line, i, (long long)got[i], (long long)want[i]);
    hr_args_destroy(args);
}
#define INTS(line, name, ...) \
    ints_are(line, name, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void ranges(void **state) {
    (void)state;
    INTS("", "-p", 512);
    INTS("-p 1,2,3", "--n-prompt", 1, 2, 3);
    INTS("-d 0-448+64", "-d", 0, 64, 128, 192, 256, 320, 384, 448);
    INTS("-d 0-100+64", "-d", 0, 64);
    INTS("-p 3-5", "-p", 3, 4, 5);
    INTS("-p 64-1000*4,7", "-p", 64, 256, 7);
    INTS("-p 64-1024*4", "-p", 64, 256, 1024);
    INTS("-p 5-5*2", "-p", 5);
    INTS("--page-size 1-256*4", "--page-size", 1, 4, 16, 64, 256);
    INTS("-p 1 --n-prompt 2 --n-prompt=3", "-p", 1, 2, 3);
    INTS("-pg 512,128 -pg 1,2", "-pg", 512, 128, 1, 2);
    INTS("-p 0 -n 0", "-n", 0);
    refused("-p 5-3", "ends before it begins");
    refused("-p 0-8*2", "factor");
    refused("-p 1-8*1", "factor");
    refused("-p 1-8+0", "step");
    refused("-p 1-8+-1", "step");
    refused("-p 1-8x2", "range");
    refused("-p 1-", "range");
    refused("-p 1-100000+1", "more than 4096");
    refused("-p 1-9223372036854775807*2", "from 0 to 1048576");
    refused("--page-size 1-24+1", "must be one of");
}

static void numbers_out_of_range(void **state) {
    (void)state;
    refused("-p -5", "from 0 to 1048576");
    refused("-p 99999999999999999999", "from 0 to 1048576");
    refused("-p 9223372036854775807", "from 0 to 1048576");
    refused("-t 0", "from 1 to 1024");
    refused("-p 12x", "integers");
    refused("-p 1.5", "integer");
    refused("-p nan", "integers");
    refused("--page-size 24", "must be one of 1, 2, 4");
    refused("-fa 2", "0, 1");
    refused("-ngl x", "integers");
    refused("-ngl -2", "from -1");
    refused("--graphs 2", "0, 1");
    refused("--gpu-memory devise", "nearest is device");
    refused("--gemm cublas", "nearest is cublaslt");
    refused("--share 1.5", "from 0 to 1");
    refused("--share nan", "a number");
    refused("--share 0.5x", "a number");
    refused("--count 10", "from 1 to 9");
    refused("-pg 512", "two integers");
    refused("-pg 512,128,3", "two integers");
    refused("-pg 0,128", "from 1");
}

static void empty_lists(void **state) {
    (void)state;
    refused("--quant ''", "empty");
    refused("--quant f32,,int8", "empty");
    refused("-p ,", "empty");
    refused("--isl 32,", "empty");
    refused("-m ''", "empty");
    refused("--name ''", "empty");
    refused("--quant", "needs a value");
    refused("--quant --json", "needs a value");
    refused("--tag =x", "KEY=VALUE");
}

static void spelling(void **state) {
    (void)state;
    refused("--kv-layuot head", "nearest is --kv-layout");
    refused("--quan f32", "nearest is --quant");
    refused("--kv-layout hilbert", "legal: head, contiguous, token");
    refused("--kv-layout page", "nearest is paged");
    refused("--quant int3", "nearest is int8");
    refused("--zzzzzzzzzzzz 1", "`headroom try --help`");
    refused("-x", "unknown flag -x");
    refused("--json=1", "takes no value");
    refused("a b c", "at most 2");
    const char *const words[] = {"sweep", "show", "report", NULL};
    assert_string_equal(hr_nearest("sweeep", words), "sweep");
    assert_string_equal(hr_nearest("sewep", words), "sweep");
    assert_string_equal(hr_nearest("rpeort", words), "report");
    assert_null(hr_nearest("generate", words));
    assert_null(hr_nearest("x", words));
    assert_null(hr_nearest("", words));
}

static void values_and_defaults(void **state) {
    (void)state;
    hr_args *args = parsed("one --name x --name y --count 3 --json two --tag a=b --tag c=d=e -o json");
    assert_string_equal(hr_args_text(args, "--name"), "y");
    assert_int_equal(hr_args_int(args, "--many"), 3);
    assert_true(hr_args_real(args, "--share") == 0.25);
    assert_false(hr_args_given(args, "--share"));
    assert_true(hr_args_flag(args, "--json"));
    assert_false(hr_args_flag(args, "--quiet"));
    assert_null(hr_args_text(args, "--out"));
    size_t n;
    const char *const *tags = hr_args_texts(args, "--tag", &n);
    assert_int_equal(n, 2);
    assert_string_equal(tags[1], "c=d=e");
    assert_int_equal(hr_args_n_positional(args), 2);
    assert_string_equal(hr_args_positional(args, 1), "two");
    assert_string_equal(hr_args_texts(args, "-m", &n)[0], "synth:smollm2-135m");
    hr_args_ints(args, "--isl", &n);
    assert_int_equal(n, 0);
    hr_args_destroy(args);

    args = parsed("-m a -m b,c\\,d --quant f32 --quant int8,bf16 -- -x");
    const char *const *models = hr_args_texts(args, "--model", &n);
    assert_int_equal(n, 3);
    assert_string_equal(models[2], "c,d");
    hr_args_texts(args, "--quant", &n);
    assert_int_equal(n, 3);
    assert_string_equal(hr_args_positional(args, 0), "-x");
    hr_args_destroy(args);

    args = parsed("--count 3 --help --nonsense");
    assert_true(hr_args_flag(args, "--help"));
    hr_args_destroy(args);
}

/* ---- config ---- */

static hr_args *with_config(const char *line, const char *config, hr_status *status) {
    hr_args *args = parsed(line);
    *status = hr_args_config_text(args, config, strlen(config), "c.json");
    return args;
}

static void config_fills_and_flags_win(void **state) {
    (void)state;
    hr_status status;
    hr_args *args =
        with_config("-p 7 --share 0.5",
                    "{\"n-prompt\": [1, \"2-4\"], \"d\": \"0-128+64\", \"quant\": \"f32,int8\", \"count\": 4,"
                    "\"share\": 1, \"json\": true, \"quiet\": false, \"pg\": [[1, 2], \"3,4\"],"
                    "\"tag\": {\"a\": \"b\"}, \"m\": [\"x\", \"y\"]}",
                    &status);
    if (status != HR_OK) fail_msg("refused: %s", hr_error());
    size_t n;
    assert_int_equal(hr_args_ints(args, "-p", &n)[0], 7);
    assert_int_equal(n, 1);
    assert_int_equal(hr_args_ints(args, "-d", &n)[2], 128);
    assert_int_equal(hr_args_ints(args, "-pg", &n)[3], 4);
    assert_true(hr_args_real(args, "--share") == 0.5);
    assert_int_equal(hr_args_int(args, "--count"), 4);
    assert_true(hr_args_flag(args, "--json"));
    assert_false(hr_args_flag(args, "--quiet"));
    assert_string_equal(hr_args_texts(args, "-m", &n)[1], "y");
    assert_string_equal(hr_args_texts(args, "--tag", &n)[0], "a=b");
    hr_args_destroy(args);
}

static void config_refuses(void **state) {
    (void)state;
    static const struct {
        const char *config, *needle;
    } cases[] = {
        {"", "c.json: line"},
        {"[1]", "one JSON object"},
        {"{\"n-promt\": 1}", "nearest is --n-prompt"},
        {"{\"n-prompt\": -1}", "c.json: n-prompt -1: must be"},
        {"{\"n-prompt\": []}", "empty"},
        {"{\"n-prompt\": [1, null]}", "must be a text, a number"},
        {"{\"n-prompt\": 1.5}", "integer"},
        {"{\"n-prompt\": 1, \"p\": 2}", "twice"},
        {"{\"n-prompt\": 1, \"n-prompt\": 2}", "c.json: line"},
        {"{\"json\": 1}", "true or false"},
        {"{\"count\": [1]}", "must be a text, a number"},
        {"{\"pg\": [[1]]}", "two integers"},
        {"{\"config\": \"x\"}", "stands on the command line"},
        {"{\"tag\": {}}", "the object is empty"},
        {"{\"tag\": {\"a\": 1}}", "must be a text"},
        {"{\"isl\": \"\"}", "empty"},
        {"{\"--isl\": 1}", "unknown flag"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hr_status status;
        hr_args *args = with_config("", cases[i].config, &status);
        if (status != HR_ERR_USAGE) fail_msg("%s: %s", cases[i].config, hr_status_text(status));
        if (!strstr(hr_error(), cases[i].needle))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].config, hr_error(), cases[i].needle);
        hr_args_destroy(args);
    }
    hr_args *args;
    assert_int_equal(parse("--config /nonexistent.json", &args), HR_ERR_IO);
    assert_non_null(strstr(hr_error(), "/nonexistent.json"));
    assert_int_equal(parse("--config /", &args), HR_ERR_IO);
}

/* What --print-config writes is read back to the same values. */
static void config_round_trip(void **state) {
    (void)state;
    hr_args *args = parsed("-p 1,2-8*2 -pg 3,4 -m a,b\\,c --share 0.125 --count 2 --json --quant f32 --tag a=b -t 2");
    json_t *first = hr_args_json(args);
    hr_args_destroy(args);
    char *text = json_dumps(first, 0);
    hr_status status;
    args = with_config("", text, &status);
    if (status != HR_OK) fail_msg("%s: %s", text, hr_error());
    json_t *second = hr_args_json(args);
    if (!json_equal(first, second)) {
        char *again = json_dumps(second, 0);
        fail_msg("expected %s, got %s", text, again);
    }
    assert_null(json_object_get(first, "share-not-given"));
    assert_null(json_object_get(first, "cache-type-k")); /* a default is not part of it */
    json_decref(first);
    json_decref(second);
    free(text);
    hr_args_destroy(args);
}

static void config_file(void **state) {
    (void)state;
    char path[] = "/tmp/hr_options_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = "{\"count\": 5}";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    char line[128];
    snprintf(line, sizeof line, "--config %s", path);
    hr_args *args = parsed(line);
    assert_int_equal(hr_args_int(args, "--count"), 5);
    hr_args_destroy(args);
    hr_fault_arm(HR_FAULT_READ, 1);
    assert_int_equal(parse(line, &args), HR_ERR_IO);
    hr_fault_arm(HR_FAULT_READ, 0);
    unlink(path);
}

/* Every allocation fails once: an error each time, never a crash or a leak. */
static void out_of_memory(void **state) {
    (void)state;
    const char *line = "-p 1,2-8*2 -pg 3,4 -m a,b --share 0.125 --count 2 --json x --tag a=b";
    uint64_t before = hr_fault_calls(HR_FAULT_ALLOC);
    hr_args_destroy(parsed(line));
    uint64_t calls = hr_fault_calls(HR_FAULT_ALLOC) - before;
    assert_true(calls > 20);
    for (uint64_t i = 1; i <= calls; i++) {
        hr_args *args;
        hr_fault_arm(HR_FAULT_ALLOC, i);
        hr_status status = parse(line, &args);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        hr_args_destroy(args);
        if (status != HR_ERR_MEMORY) fail_msg("allocation %d failed and gave %s", (int)i, hr_status_text(status));
    }
}

/* Words after `--` are another command's: its flags are not read here; without `rest` they are positional. */
static void words_of_another_command(void **state) {
    (void)state;
    hr_command with = try;
    with.rest = "ARGS";
    char *line[] = {"a", "-c", "3", "--", "-c", "x", "--", "--help"};
    hr_args *args = NULL;
    size_t n;
    assert_int_equal(hr_args_parse(&with, 8, line, &args), HR_OK);
    assert_int_equal(hr_args_n_positional(args), 1);
    assert_int_equal(hr_args_int(args, "--count"), 3);
    assert_false(hr_args_flag(args, "--help"));
    const char *const *rest = hr_args_rest(args, &n);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) assert_string_equal(rest[i], line[4 + i]);
    assert_null(rest[n]);
    hr_args_destroy(args);

    assert_int_equal(hr_args_parse(&with, 4, line, &args), HR_OK); /* `--` and nothing behind it */
    rest = hr_args_rest(args, &n);
    assert_non_null(rest);
    assert_int_equal(n, 0);
    hr_args_destroy(args);
    args = parsed("a");
    assert_null(hr_args_rest(args, &n)); /* no `--` */
    hr_args_destroy(args);
    args = parsed("-- -c");
    assert_null(hr_args_rest(args, &n));
    assert_string_equal(hr_args_positional(args, 0), "-c");
    hr_args_destroy(args);
}

/* Every subcommand of the program: defaults that its own parser takes, examples, help, names that are unique. */
static void commands_are_sound(void **state) {
    (void)state;
    for (const hr_command *const *c = hr_commands; *c; c++) {
        hr_args *args;
        if (hr_args_create(*c, &args) != HR_OK) fail_msg("%s: %s", (*c)->name, hr_error());
        for (size_t i = 0; i < args->n_slots; i++) {
            const hr_opt *opt = (*c)->options[i];
            size_t at;
            if (hr_args_find(args, opt->name, &at) != opt) fail_msg("%s: %s stands twice", (*c)->name, opt->name);
            if (!opt->group || !opt->help) fail_msg("%s: %s has no help", (*c)->name, opt->name);
            if (opt->alias && !strchr(opt->alias, ' ') && hr_args_find(args, opt->alias, &at) != opt)
                fail_msg("%s: alias %s stands twice", (*c)->name, opt->alias);
        }
        hr_args_destroy(args);
        size_t n = 0, length = strlen((*c)->name);
        for (; (*c)->examples[n]; n++)
            if (n % 2 == 0 && !strstr((*c)->examples[n], "headroom ")) fail_msg("%s: example", (*c)->name);
        if (n < 4 || n % 2) fail_msg("%s: %zu entries of examples, expected 2 or 3 pairs", (*c)->name, n);
        if (strncmp((*c)->synopsis, "headroom ", 9) || strncmp((*c)->synopsis + 9, (*c)->name, length))
            fail_msg("%s: synopsis", (*c)->name);
    }
}

/* The devices that a line names, as text; or the failure's words. */
static const char *devices_of(const char *line) {
    static char text[128];
    hr_devices d;
    hr_args *args = parsed(line);
    size_t n = 0;
    text[0] = 0;
    const hr_status status = hr_device_args(args, &d);
    hr_args_destroy(args);
    if (status != HR_OK) return status == HR_ERR_USAGE ? hr_error() : "not wrong use";
    for (size_t i = 0; i < d.n; i++) {
        char name[16];
        hr_device_name((int)d.v[i], name);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "", name);
    }
    return text;
}

static void devices_and_layers(void **state) {
    (void)state;
    assert_string_equal(devices_of(""), "cpu");
    assert_string_equal(devices_of("--device cuda:1"), "cuda:1");
    assert_string_equal(devices_of("--device cpu,cuda:0,cuda,cpu,cuda:2"), "cpu cuda:0 cuda:2");
    assert_string_equal(devices_of("-ngl 0"), "cpu");
    assert_string_equal(devices_of("-ngl 99"), "cuda:0");
    assert_string_equal(devices_of("-ngl -1"), "cuda:0");
    assert_string_equal(devices_of("-ngl 0,32,99"), "cpu cuda:0");
    assert_string_equal(devices_of("-ngl 99 --device cuda:1"), "cuda:1");
    assert_string_equal(devices_of("-ngl 0 --device cpu"), "cpu");
    assert_string_equal(devices_of("-ngl 99,0 --device cuda:1,cpu"), "cuda:1 cpu");
    static const char *const against[] = {"-ngl 0 --device cuda:0", "-ngl 99 --device cpu", "-ngl 0,99 --device cpu",
                                          "-ngl 0,99 --device cuda:0", "-ngl 99 --device cpu,cuda:0"};
    for (size_t i = 0; i < sizeof against / sizeof *against; i++)
        if (!strstr(devices_of(against[i]), "leave one of the two out"))
            fail_msg("%s: expected a contradiction, got %s", against[i], devices_of(against[i]));
    static const char *const unknown[] = {"--device gpu", "--device cuda:", "--device cuda:x", "--device cpu:0"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (!strstr(devices_of(unknown[i]), "known: cpu, cuda:0"))
            fail_msg("%s: expected the known names, got %s", unknown[i], devices_of(unknown[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(empty_lists),
        cmocka_unit_test(devices_and_layers),
        cmocka_unit_test(spelling),
        cmocka_unit_test(values_and_defaults),
        cmocka_unit_test(config_fills_and_flags_win),
        cmocka_unit_test(config_refuses),
        cmocka_unit_test(config_round_trip),
        cmocka_unit_test(config_file),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(words_of_another_command),
        cmocka_unit_test(commands_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
