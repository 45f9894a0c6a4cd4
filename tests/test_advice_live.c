/* Setups that provoke a rule, measured by a sweep in a process of its own. Only rules whose condition is the setup are
 * asked: what hangs on times is tested on made-up cells. */
#include "tests/advice_fixture.h"
#include "tests/sweep_process.h"

#include "harness/sweep/cell.h"

#include <fcntl.h>

#define SMALL "synth:smollm2-135m:layers=2"

/* `headroom sweep LINE --db PATH`, without a word; its exit code. */
static int sweep(const char *line) {
    const pid_t pid = fork();
    if (pid == 0) {
        char whole[800];
        snprintf(whole, sizeof whole, "%s --db %s -q -o jsonl", line, path);
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        sweep_and_exit(whole);
    }
    return code_of(pid);
}

static json_t *advice_after(const char *line) {
    const int code = sweep(line);
    if (code) fail_msg("sweep %s: exit %d, expected 0", line, code);
    hr_store *store = open_store(false);
    char *run_id = NULL;
    json_t *rows = NULL;
    ok(hr_store_resolve_run(store, "last", &run_id));
    ok(hr_advice_of_run(store, run_id, NULL, &rows));
    hr_free(run_id);
    hr_store_close(store);
    return rows;
}

/* What sound setups of the two models give; swept once. */
static json_t *of_tiny, *of_small;

static int sweep_sound(void **state) {
    if (setup(state)) return -1;
    of_tiny = advice_after("-m synth:tiny -p 128 -n 4 --quant int4 -r 1");
    of_small =
        advice_after("-m " SMALL " -p 64 -n 4 --isl 64 --osl 2 --seqs 1,32 --kv-layout paged --page-size 16 -r 1");
    return 0;
}
static int clean(void **state) {
    json_decref(of_tiny), json_decref(of_small);
    return teardown(state);
}

/* The rule fires after a sweep of `line`, and found nothing in the sound setup that is like it. */
static void provoke(const char *rule, const char *line, const json_t *sound) {
    json_t *rows = advice_after(line);
    const json_t *row = finding(rows, rule);
    if (!row) fail_msg("%s: expected after sweep %s, got %s", rule, line, rules_in(rows));
    print_message("# %s: %s; %s\n", rule, hr_word(row, "finding"), hr_word(row, "evidence"));
    json_decref(rows);
    if (finding(sound, rule)) fail_msg("%s: not expected on a sound setup", rule);
}

/* Nothing but what hangs on times or on the size of this machine's cache. */
static void sound_setups(void **state) {
    (void)state;
    const json_t *both[] = {of_tiny, of_small};
    for (size_t k = 0; k < 2; k++) {
        size_t i;
        json_t *row;
        json_array_foreach((json_t *)both[k], i, row) {
            const hr_rule *r = hr_rule_table;
            while (r->id && strcmp(r->id, hr_word(row, "rule"))) r++;
            if (!r->timed && !r->once && strcmp(r->id, "cache-resident") && strcmp(r->id, "huge-pages"))
                fail_msg("%s on a sound setup, %s: %s (%s)", r->id, hr_word(row, "test"), hr_word(row, "finding"),
                         hr_word(row, "evidence"));
        }
    }
}

static void more_threads_than_cores(void **state) {
    (void)state;
    hr_machine machine;
    ok(hr_machine_get(&machine));
    char line[100];
    snprintf(line, sizeof line, "-m synth:tiny -n 2 -r 1 -t %d", (int)machine.cores + 6);
    provoke("threads", line, of_tiny);
}

static void kernels(void **state) {
    (void)state;
    if (hr_isa_best() > HR_ISA_GENERIC) provoke("isa-low", "-m synth:tiny -n 2 -r 1 --isa generic", of_tiny);
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_kernel_at(i)) != NULL; i++) {
        if (k->family != HR_FAM_MATMUL || strcmp(k->name, "panel_gemm_i4g32_int8_avx512")) continue;
        if (k->isa > hr_isa_best() || (k->needs & ~hr_cpu_features())) break;
        provoke("tile-decode", "-m synth:tiny -n 2 -r 1 --quant int4 --kernel down=panel_gemm_i4g32_int8_avx512",
                of_tiny);
        return;
    }
    print_message("# tile-decode: this CPU cannot run the row\n");
}

static void attention_and_pages(void **state) {
    (void)state;
    provoke("flash-off", "-m " SMALL " --isl 1024 --osl 2 -fa 0 -r 1", of_small);
    provoke("page-size", "-m " SMALL " -n 2 --kv-layout paged --page-size 1 -r 1", of_small);
    provoke("kv-align", "-m " SMALL " -n 2 -ctk q8_0 -r 1", of_small);
    provoke("kv-reserved", "-m " SMALL " -n 4 --seqs 64 -r 1", of_small);
}

static void memory(void **state) {
    (void)state;
    if (!finding(of_tiny, "cache-resident"))
        fail_msg("cache-resident: expected of synth:tiny, got %s", rules_in(of_tiny));
    char thp[80] = "";
    thp[read_file("/sys/kernel/mm/transparent_hugepage/enabled", thp, sizeof thp - 1)] = 0;
    if (strstr(thp, "[madvise]"))
        provoke("huge-pages", "-m " SMALL " -n 2 -r 1 --huge-pages 0", of_small);
    else
        print_message("# huge-pages: here the system alone decides on them: %s", thp);
}

static void how_it_is_measured(void **state) {
    (void)state;
    provoke("micro-batch", "-m synth:tiny -p 128 -ub 16 -r 1", of_tiny);
    provoke("no-warmup", "-m synth:tiny -p 16 -r 1 --no-warmup", of_tiny);
    /* the rule is silent where a share of the memory's speed means nothing: a cache that holds the model, a wrong ceiling */
    json_t *rows = advice_after("-m " SMALL " -n 4 -r 1");
    const bool silent = finding(rows, "over-roof") || finding(rows, "cache-resident");
    if (!finding(rows, "batch") != silent) fail_msg("batch: one sequence gives %s", rules_in(rows));
    json_decref(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_setups), cmocka_unit_test(more_threads_than_cores),
        cmocka_unit_test(kernels),      cmocka_unit_test(attention_and_pages),
        cmocka_unit_test(memory),       cmocka_unit_test(how_it_is_measured),
    };
    return cmocka_run_group_tests(tests, sweep_sound, clean);
}
