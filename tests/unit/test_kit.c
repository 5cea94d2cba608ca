/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/kit.h"
#include "tests/unit/test.h"

#include <stdlib.h>

static struct kit sample(void)
{
    static uint8_t format[1201], config[77];
    for (size_t i = 0; i < sizeof format; i++)
        format[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof config; i++)
        config[i] = (uint8_t)(255 - i);
    static char password[] = "p\xc3\xa4ssword with blanks";
    return (struct kit){format, config, sizeof format, sizeof config, password};
}

static char *written(const struct kit *k)
{
    char *text = NULL;
    size_t len;
    struct err e = ERR_INIT;
    FILE *f = open_memstream(&text, &len);
    assert_ok(kit_write(f, k, &e), &e);
    fclose(f);
    return text;
}

static void note(unsigned number, const char *why, void *arg)
{
    (void)why;
    *(unsigned *)arg = number;
}

static void same(const struct kit *a, const struct kit *b)
{
    assert_int_equal(a->format_len, b->format_len);
    assert_memory_equal(a->format, b->format, a->format_len);
    assert_int_equal(a->blobcfg_len, b->blobcfg_len);
    if (a->blobcfg)
        assert_memory_equal(a->blobcfg, b->blobcfg, a->blobcfg_len);
    assert_int_equal(!a->password, !b->password);
    if (a->password)
        assert_string_equal(a->password, b->password);
}

static void reads(const char *text, const struct kit *want)
{
    struct kit k;
    struct err e = ERR_INIT;
    assert_ok(kit_read(&k, text, NULL, NULL, &e), &e);
    same(want, &k);
    kit_clear(&k);
}

static int refused(const char *text, unsigned *line)
{
    struct kit k;
    struct err e = ERR_INIT;
    *line = 0;
    const int rc = kit_read(&k, text, note, line, &e);
    assert_true(rc < 0);
    assert_null(k.format);
    return (int)e.cls;
}

static void round_trips_of_all_lengths(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < 64; cut++) {
        struct kit k = sample();
        k.format_len -= cut;
        if (cut % 3 == 1)
            k.password = NULL;
        if (cut % 3 == 2) {
            k.blobcfg = NULL;
            k.blobcfg_len = 0;
        }
        char *text = written(&k);
        reads(text, &k);
        free(text);
    }
}

/* Small letters, O for 0, l for 1, other blanks, other text around, another order. */
static void read_as_people_type(void **state)
{
    (void)state;
    struct kit k = sample();
    char *text = written(&k), *typed = NULL;
    size_t len, lines = 0;
    const char *at[200];
    for (char *p = text; *p; p += strcspn(p, "\n") + 1)
        at[lines++] = p;
    FILE *f = open_memstream(&typed, &len);
    fprintf(f, "RECOVERY KIT\nmade 2026-11-26 10:00 / by me\n-----\n");
    for (size_t i = lines; i-- > 0;) {
        fprintf(f, "  %.3s \t", at[i]);
        for (const char *p = at[i] + 3; *p != '\n'; p++)
            if (*p != ' ')
                fputc(*p == '0' ? 'O' : *p == '1' ? 'l' : *p >= 'A' ? *p + 32 : *p, f);
        fprintf(f, "  \r\n");
    }
    fclose(f);
    reads(typed, &k);
    free(typed);
    free(text);
}

/* Each character replaced by each other one that is read differently: the line is named. */
static void every_wrong_character_is_found(void **state)
{
    (void)state;
    static const char set[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    struct kit k = sample();
    char *text = written(&k);
    unsigned line = 1, column = 0, found, missed = 0, tried = 0;
    for (size_t i = 0; text[i]; i++) {
        const char was = text[i];
        column = was == '\n' ? 0 : column + 1;
        line += was == '\n';
        if (column < 4 || !strchr(set, was))
            continue; /* its number: below */
        for (size_t d = 0; d < 32; d += 1 + (i % 5)) {
            if (set[d] == was)
                continue;
            text[i] = set[d];
            tried++;
            refused(text, &found);
            missed += found != line;
        }
        text[i] = was;
    }
    assert_true(tried > 10000);
    assert_int_equal(missed, 0);
    free(text);
}

static void lines_that_are_missing_swapped_or_of_another_kit(void **state)
{
    (void)state;
    struct kit k = sample(), other = sample();
    char *text = written(&k), *second, *p, *q;
    unsigned found;
    p = strchr(strchr(text, '\n') + 1, '\n') + 1; /* the third line */
    q = strchr(p, '\n') + 1;
    /* without it */
    char *less = malloc(strlen(text) + 1);
    snprintf(less, strlen(text) + 1, "%.*s%s", (int)(p - text), text, q);
    assert_int_equal(refused(less, &found), ERR_DAMAGE);
    assert_int_equal(found, 3);
    free(less);
    /* with the number of another one */
    p[2] = '4';
    refused(text, &found);
    assert_true(found == 3 || found == 4);
    p[2] = '3';
    /* its last characters are missing */
    const char was = q[-2];
    q[-2] = ' ';
    assert_int_equal(refused(text, &found), ERR_DAMAGE);
    assert_int_equal(found, 3);
    q[-2] = was;
    /* the last line is missing */
    char *end = strrchr(text, '\n');
    *end = '\0';
    *strrchr(text, '\n') = '\0';
    assert_int_equal(refused(text, &found), ERR_DAMAGE);
    free(text);
    /* the third line of a kit with another password, which has the same length */
    text = written(&k);
    other.format[70] ^= 1;
    second = written(&other);
    p = strchr(strchr(text, '\n') + 1, '\n') + 1;
    q = strchr(strchr(second, '\n') + 1, '\n') + 1;
    memcpy(p, q, strcspn(p, "\n"));
    assert_int_equal(refused(text, &found), ERR_DAMAGE);
    assert_int_equal(found, 0);
    free(text);
    free(second);
    assert_int_equal(refused("", &found), ERR_USAGE);
    assert_int_equal(refused("no kit\n12 of 13 / x\n", &found), ERR_DAMAGE);
    assert_int_equal(refused("no kit\n2026-11-26 / x\n", &found), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips_of_all_lengths),
        cmocka_unit_test(read_as_people_type),
        cmocka_unit_test(every_wrong_character_is_found),
        cmocka_unit_test(lines_that_are_missing_swapped_or_of_another_kit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
