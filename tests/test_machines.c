/* The program on machines that this one is not: CPUs without AVX2 or AVX-512 (qemu-user plays them), and any number of
 * threads. Every run is the program itself, so that its choice by CPUID is tested with it. */
#include "kernels/base/isa.h"
#include "tests/hr_test.h"
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HR_SANITIZED 1
#else
#define HR_SANITIZED 0
#endif

/* The program's answer to a few tokens, with what runs it before and more flags behind. */
static json_t *generate(const char *runner, const char *flags) {
    const char *build = getenv("HEADROOM_BUILD");
    char line[512];
    snprintf(line, sizeof line,
             "%s %s/headroom generate -m synth:tiny -p 'one two' -n 12 --temp 0 --top-logits 3 --json %s 2>/dev/null",
             runner, build ? build : "build", flags);
    FILE *out = popen(line, "r");
    assert_non_null(out);
    json_error_t error;
    json_t *answer = json_loadf(out, 0, &error);
    if (pclose(out) != 0 || !answer) fail_msg("no answer from: %s", line);
    return answer;
}

static void assert_same(json_t *got, json_t *want, const char *key, const char *what) {
    json_t *g = json_object_get(got, key), *w = json_object_get(want, key);
    if (json_equal(g, w) && w) return;
    char *a = json_dumps(w, JSON_COMPACT | JSON_ENCODE_ANY), *b = json_dumps(g, JSON_COMPACT | JSON_ENCODE_ANY);
    fail_msg("%s, %s: expected %s, got %s", what, key, a ? a : "none", b ? b : "none");
}

/* Kernels of no higher level than the CPU has. */
static void assert_no_kernel_of(json_t *answer, const char *isa) {
    const char *phase, *op;
    json_t *ops, *name;
    json_object_foreach(json_object_get(answer, "kernels"), phase, ops) json_object_foreach(ops, op, name) {
        if (strstr(json_string_value(name), isa)) fail_msg("%s of %s is %s", op, phase, json_string_value(name));
    }
}

static const char *const schemes[] = {"--quant f32", "--quant bf16", "--quant int8", "--quant int4"};

static void old_cpu(const char *cpu, const char *isa, const char *const *lacks) {
    if (HR_SANITIZED) hr_skip("a sanitizer's memory does not fit under qemu-user");
    if (system("command -v qemu-x86_64 >/dev/null")) hr_skip("no qemu-x86_64 (Debian: qemu-user)");
    char runner[64], flags[96];
    snprintf(runner, sizeof runner, "qemu-x86_64 -cpu %s", cpu);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        snprintf(flags, sizeof flags, "%s --isa %s", schemes[i], isa);
        json_t *want = generate("", flags), *got = generate(runner, schemes[i]);
        assert_same(got, want, "tokens", flags);
        assert_same(got, want, "kernels", flags);
        for (const char *const *l = lacks; *l; l++) assert_no_kernel_of(got, *l);
        json_decref(want), json_decref(got);
    }
}

static void cpu_without_avx(void **state) {
    (void)state;
    old_cpu("Nehalem", "generic", (const char *const[]){"avx", NULL});
}

static void cpu_without_avx512(void **state) {
    (void)state;
    if (hr_isa_best() < HR_ISA_AVX2) hr_skip("this CPU has no AVX2 to compare with");
    old_cpu("Haswell", "avx2", (const char *const[]){"avx512", "avxvnni", NULL});
}

/* An ISA that the CPU lacks is refused, with what it has. */
static void what_the_cpu_lacks_is_refused(void **state) {
    (void)state;
    if (HR_SANITIZED) hr_skip("a sanitizer's memory does not fit under qemu-user");
    if (system("command -v qemu-x86_64 >/dev/null")) hr_skip("no qemu-x86_64 (Debian: qemu-user)");
    const char *build = getenv("HEADROOM_BUILD");
    char line[256];
    snprintf(line, sizeof line,
             "qemu-x86_64 -cpu Nehalem %s/headroom generate -m synth:tiny -p a --isa avx2 2>&1 >/dev/null | "
             "grep -q 'its best is generic'",
             build ? build : "build");
    assert_int_equal(system(line), 0);
}

/* One thread, two, and more than there are cores: the same logits to the bit. */
static void any_number_of_threads(void **state) {
    (void)state;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long counts[] = {2, 3, cores + 3};
    char flags[96];
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        snprintf(flags, sizeof flags, "%s -t 1", schemes[i]);
        json_t *want = generate("", flags);
        for (size_t c = 0; c < 3; c++) {
            snprintf(flags, sizeof flags, "%s -t %ld", schemes[i], counts[c]);
            json_t *got = generate("", flags);
            assert_same(got, want, "tokens", flags);
            assert_same(got, want, "top_logits", flags);
            json_decref(got);
        }
        json_decref(want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_without_avx),
        cmocka_unit_test(cpu_without_avx512),
        cmocka_unit_test(what_the_cpu_lacks_is_refused),
        cmocka_unit_test(any_number_of_threads),
    };
    return cmocka_run_group_tests_name("machines", tests, NULL, NULL);
}
