/* What is done when a GPU says that it was slowed, and what the looks say of a cell: with a driver that the test plays. */
#include "tests/hr_test.h"

#include "harness/sweep/throttle.h"
#include "kernels/base/clock.h"

#include <time.h>

/* ---- a GPU that says what the test wants ------------------------------------------------------------------------------- */

enum { REASON_IDLE = 1, REASON_POWER_CAP = 4 };
static hr_gpu_state now;
static unsigned n_looks, n_slowed; /* looks that are throttled from now on */
static bool mute;

static hr_status say(int device, unsigned units, hr_gpu_state *out) {
    if (device != 3 || units != 0) fail_msg("device %d, units %u: expected device 3, and no probe", device, units);
    if (mute) HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:3: says nothing");
    n_looks++;
    *out = now;
    out->throttled = n_slowed > 0;
    if (n_slowed) out->reasons |= REASON_POWER_CAP;
    n_slowed -= n_slowed > 0;
    return HR_OK;
}

static hr_throttle *begun(hr_on_throttle policy, double cool_down_s) {
    hr_throttle *t = NULL;
    const hr_throttle_options options = {.policy = policy, .cool_down_s = cool_down_s, .look = say};
    now = (hr_gpu_state){.read_gb_s = NAN,
                         .sm_mhz = 1980,
                         .memory_mhz = 2619,
                         .temperature_c = 40,
                         .power_w = 300,
                         .power_limit_w = 700,
                         .energy_j = 1000};
    n_looks = n_slowed = 0, mute = false;
    assert_int_equal(hr_throttle_create(3, &options, &t), HR_OK);
    hr_throttle_begin(t);
    return t;
}

static void doze(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static double number(const json_t *json, const char *key) {
    const json_t *v = json_object_get(json, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* ---- policies ------------------------------------------------------------------------------------------------------------ */

static void samples_at_full_clock_are_kept(void **state) {
    (void)state;
    for (int policy = 0; policy < HR_THROTTLE_COUNT; policy++) {
        hr_throttle *t = begun((hr_on_throttle)policy, 0.01);
        for (int i = 0; i < 5; i++) assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
        now.reasons = REASON_IDLE; /* a reason that slows nothing */
        assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
        hr_throttle_destroy(t);
    }
}

static void flag_flags(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_FLAG, 10);
    n_slowed = 1;
    doze(0.11);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_FLAG);
    doze(0.11);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    hr_throttle_destroy(t);
}

/* Short repetitions share a look: at most ten a second. */
static void short_samples_share_a_look(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_FLAG, 10);
    const unsigned before = n_looks;
    for (int i = 0; i < 1000; i++) hr_throttle_after(t);
    assert_in_range(n_looks - before, 0, 3);
    hr_throttle_destroy(t);
}

static void wait_rests_and_repeats(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_WAIT, 0.06);
    n_slowed = 1;
    const uint64_t start = hr_now_ns();
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_REPEAT);
    assert_true(hr_now_ns() - start > 50000000);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    n_slowed = 1000; /* a GPU that never cools down: the cell ends all the same */
    unsigned repeats = 0;
    hr_throttle_destroy(t);
    t = begun(HR_THROTTLE_WAIT, 0.001);
    n_slowed = 1000;
    while (hr_throttle_after(t) == HR_SAMPLE_REPEAT && repeats < 100) repeats++;
    assert_int_equal(repeats, 20);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_FLAG);
    hr_throttle_destroy(t);
}

static void a_rest_ends_when_asked(void **state) {
    (void)state;
    static atomic_bool stop = true;
    const hr_throttle_options options = {.policy = HR_THROTTLE_WAIT, .cool_down_s = 60, .look = say, .stop = &stop};
    hr_throttle *t = begun(HR_THROTTLE_WAIT, 60);
    hr_throttle_destroy(t);
    assert_int_equal(hr_throttle_create(3, &options, &t), HR_OK);
    hr_throttle_begin(t);
    n_slowed = 1;
    const uint64_t start = hr_now_ns();
    hr_throttle_after(t);
    assert_true(hr_now_ns() - start < 5000000000u);
    hr_throttle_destroy(t);
}

static void stop_stops(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_STOP, 10);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    n_slowed = 1;
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_STOP);
    hr_throttle_destroy(t);
}

/* Without a reason: the clock far below the best of the cell. */
static void a_low_clock_counts(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_STOP, 10);
    now.sm_mhz = 1980 * 0.86;
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    now.sm_mhz = 1980 * 0.84;
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_STOP);
    now.sm_mhz = NAN; /* unknown is not low */
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    hr_throttle_destroy(t);
}

/* What happened between two looks counts too, by the driver's own clock of it. */
static void time_with_lowered_clocks_counts(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_STOP, 10);
    doze(0.1);
    now.slowed_s += 0.001; /* a hundredth of the time: a moment */
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    now.slowed_s += 100;
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_STOP);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP); /* and nothing since */
    hr_throttle_destroy(t);
}

/* ---- figures ------------------------------------------------------------------------------------------------------------- */

static void energy_is_that_of_the_samples(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_WAIT, 0.15);
    json_t *out = json_object();
    doze(0.25);
    n_slowed = 1;
    hr_throttle_after(t); /* rests 0.15 s; what the GPU takes meanwhile is not counted: nothing here */
    now.energy_j = 1030, now.temperature_c = 60;
    assert_int_equal(hr_throttle_end(t, 100, out), HR_OK);
    assert_true(number(out, "energy_mj") == 300); /* 30 J over 100 tokens */
    /* 30 J in the time that was not rest: at least the 0.25 s slept, and on a busy machine more */
    assert_true(number(out, "power_w") <= 30 / 0.25 && number(out, "power_w") > 0);
    assert_true(number(out, "sm_mhz") == 1980 && number(out, "memory_mhz") == 2619);
    assert_true(number(out, "power_limit_w") == 700);
    const char *reasons = json_string_value(json_object_get(out, "clock_reasons"));
    assert_non_null(reasons);
    assert_non_null(strstr(reasons, "sw_power_cap"));
    json_decref(out);
    hr_throttle_destroy(t);
}

/* The counter moves some ten times a second: a token's share of less is not said. */
static void short_cells_have_no_energy(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_FLAG, 10);
    json_t *out = json_object();
    now.energy_j = 1001;
    assert_int_equal(hr_throttle_end(t, 100, out), HR_OK);
    assert_null(json_object_get(out, "energy_mj"));
    assert_true(number(out, "power_w") == 300); /* what the driver says */
    json_decref(out);
    hr_throttle_destroy(t);
}

static void a_mute_driver_costs_nothing(void **state) {
    (void)state;
    hr_throttle *t = begun(HR_THROTTLE_STOP, 10);
    json_t *out = json_object();
    mute = true;
    hr_throttle_begin(t);
    assert_int_equal(hr_throttle_after(t), HR_SAMPLE_KEEP);
    assert_int_equal(hr_throttle_end(t, 100, out), HR_OK);
    assert_int_equal(json_object_size(out), 0);
    json_decref(out);
    hr_throttle_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_at_full_clock_are_kept),
        cmocka_unit_test(flag_flags),
        cmocka_unit_test(short_samples_share_a_look),
        cmocka_unit_test(wait_rests_and_repeats),
        cmocka_unit_test(a_rest_ends_when_asked),
        cmocka_unit_test(stop_stops),
        cmocka_unit_test(a_low_clock_counts),
        cmocka_unit_test(time_with_lowered_clocks_counts),
        cmocka_unit_test(energy_is_that_of_the_samples),
        cmocka_unit_test(short_cells_have_no_energy),
        cmocka_unit_test(a_mute_driver_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
