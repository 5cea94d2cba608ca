/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "chunker/kernel.h"

#include <stdbool.h>

static const char *const names[] = {"BUZHASH", "RABINKARP", "BLAKE2B", "BLAKE2S", "BLAKE3", "AESGCM", "SHA256", "MD5"};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char var[64];
        snprintf(var, sizeof var, "SNAPFERRY_KERNEL_%s", names[i]);
        unsetenv(var);
    }
    unsetenv("SNAPFERRY_KERNEL_MD4");
    unsetenv("SNAPFERRY_KERNEL_");
    unsetenv("SNAPFERRY_KERNEL_BLAKE");
    return 0;
}

static void no_variables_are_right(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_ok(kernels_check(&e), &e);
    assert_int_equal(e.cls, ERR_NONE);
}

static void levels_have_names(void **state)
{
    (void)state;
    assert_string_equal(kernel_level_name(KERNEL_SCALAR), "scalar");
    assert_string_equal(kernel_level_name(KERNEL_AVX2), "avx2");
    assert_string_equal(kernel_level_name(KERNEL_AVX512), "avx512");
}

static void cpu_level_agrees_with_the_compiler(void **state)
{
    (void)state;
    enum kernel_level l = kernel_cpu_level();
#if defined(__x86_64__)
    __builtin_cpu_init();
    assert_int_equal(l >= KERNEL_AVX2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"));
    assert_int_equal(l >= KERNEL_AVX512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                                             __builtin_cpu_supports("avx512vbmi"));
#else
    assert_int_equal(l, KERNEL_SCALAR);
#endif
}

static void the_level_is_the_lower_of_built_and_possible(void **state)
{
    (void)state;
    enum kernel_level cpu = kernel_cpu_level();
    assert_int_equal(kernel_level("BLAKE3", KERNEL_SCALAR), KERNEL_SCALAR);
    assert_int_equal(kernel_level("BLAKE3", KERNEL_AVX2), cpu < KERNEL_AVX2 ? cpu : KERNEL_AVX2);
    assert_int_equal(kernel_level("BLAKE3", KERNEL_AVX512), cpu);
}

static void scalar_is_always_allowed_and_obeyed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char var[64];
        struct err e = ERR_INIT;
        snprintf(var, sizeof var, "SNAPFERRY_KERNEL_%s", names[i]);
        setenv(var, "scalar", 1);
        assert_ok(kernels_check(&e), &e);
        assert_int_equal(kernel_level(names[i], KERNEL_AVX512), KERNEL_SCALAR);
    }
}

static void refused(const char *var, const char *word)
{
    struct err e = ERR_INIT;
    setenv(var, word, 1);
    assert_true(kernels_check(&e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, var));
    assert_true(e.hint[0]);
    unsetenv(var);
}

static void wrong_words_and_names_are_errors(void **state)
{
    (void)state;
    refused("SNAPFERRY_KERNEL_BLAKE2B", "fast");
    refused("SNAPFERRY_KERNEL_BLAKE2B", "");
    refused("SNAPFERRY_KERNEL_BLAKE2B", "AVX2");
    refused("SNAPFERRY_KERNEL_BLAKE2B", "avx2 ");
    refused("SNAPFERRY_KERNEL_MD4", "scalar");
    refused("SNAPFERRY_KERNEL_", "scalar");
    refused("SNAPFERRY_KERNEL_BLAKE", "scalar"); /* the start of a name is not the name */
}

static void levels_that_cannot_be_had_are_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char var[64];
        snprintf(var, sizeof var, "SNAPFERRY_KERNEL_%s", names[i]);
        /* Only these are built for AVX-512, whatever the CPU. */
        bool built = !strcmp(names[i], "BUZHASH") || !strcmp(names[i], "BLAKE2B") || !strcmp(names[i], "BLAKE3") ||
                     !strcmp(names[i], "MD5");
        if (!built || kernel_cpu_level() < KERNEL_AVX512) {
            refused(var, "avx512");
        } else {
            struct err e = ERR_INIT;
            setenv(var, "avx512", 1);
            assert_ok(kernels_check(&e), &e);
            assert_int_equal(kernel_level(names[i], KERNEL_AVX512), KERNEL_AVX512);
        }
        setenv(var, "avx512", 1); /* and a program that does not check gets no code that the CPU cannot run */
        assert_true(kernel_level(names[i], KERNEL_AVX512) <= kernel_cpu_level());
        unsetenv(var);
    }
    if (kernel_cpu_level() < KERNEL_AVX2)
        refused("SNAPFERRY_KERNEL_BLAKE2B", "avx2");
}

static void other_variables_do_not_matter(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    setenv("SNAPFERRY_KERNE", "x", 1);
    setenv("SNAPFERRY", "x", 1);
    assert_ok(kernels_check(&e), &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_variables_are_right, clear, clear),
        cmocka_unit_test(levels_have_names),
        cmocka_unit_test(cpu_level_agrees_with_the_compiler),
        cmocka_unit_test_setup_teardown(the_level_is_the_lower_of_built_and_possible, clear, clear),
        cmocka_unit_test_setup_teardown(scalar_is_always_allowed_and_obeyed, clear, clear),
        cmocka_unit_test_setup_teardown(wrong_words_and_names_are_errors, clear, clear),
        cmocka_unit_test_setup_teardown(levels_that_cannot_be_had_are_errors, clear, clear),
        cmocka_unit_test_setup_teardown(other_variables_do_not_matter, clear, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
