/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What thin_delta and thin_dump print (fixtures made by 0.9.0 of tests/fixtures/thin/metadata.xml), and what they do
 * not: nothing malformed makes a range disappear (CF-08, CF-10). */
#include "tests/unit/test.h"

#include "io/changes.h"
#include "io/native/thin-xml.h"
#include "io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define BLOCK ((uint64_t)64 << 10)

static char *fixture(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "thin/%s.xml", name);
    FILE *f = fopen(fixture_path(path), "r");
    assert_non_null(f);
    char *text = calloc(1, 65536);
    assert_true(fread(text, 1, 65535, f) > 50);
    fclose(f);
    return text;
}

struct seen {
    char text[512];
    int refuse;
};

static int note(uint64_t begin, uint64_t blocks, uint64_t block_bytes, void *arg, struct err *e)
{
    struct seen *s = arg;
    const size_t n = strlen(s->text);
    assert_int_equal(block_bytes, BLOCK);
    snprintf(s->text + n, sizeof s->text - n, "%llu+%llu ", (unsigned long long)begin, (unsigned long long)blocks);
    return s->refuse ? err_plain(e, ERR_GENERIC, s->refuse, "refused") : 0;
}

/* In pieces of `piece` bytes. */
static int parse(const char *text, size_t len, size_t piece, enum thin_print print, uint64_t id, uint64_t right,
                 struct seen *s, struct thin_device *d, struct err *e)
{
    const struct thin_wanted w = {.print = print, .id = id, .right = right, .block_bytes = BLOCK, .fn = note, .arg = s};
    struct thin_parser *p CLEANUP(thin_parser_freep) = NULL;
    int rc = thin_parser_new(&p, &w, e);
    for (size_t at = 0; rc == 0 && at < len; at += piece)
        rc = thin_parser_feed(p, text + at, len - at < piece ? len - at : piece, e);
    return rc < 0 ? rc : thin_parser_end(p, d, e);
}

static void what_differs(void **state)
{
    (void)state;
    char *text = fixture("delta");
    for (size_t piece = 1; piece < 700; piece += 13) {
        struct seen s = {.refuse = 0};
        struct err e = ERR_INIT;
        assert_int_equal(parse(text, strlen(text), piece, THIN_DELTA, 2, 3, &s, NULL, &e), 0);
        assert_string_equal(s.text, "2+1 10+4 500+2 "); /* different, left_only, right_only */
    }
    free(text);
}

static void nothing_differs(void **state)
{
    (void)state;
    char *text = fixture("same");
    struct seen s = {.refuse = 0};
    struct err e = ERR_INIT;
    assert_int_equal(parse(text, strlen(text), 64, THIN_DELTA, 3, 3, &s, NULL, &e), 0);
    assert_string_equal(s.text, "");
    free(text);
}

static void what_is_mapped(void **state)
{
    (void)state;
    char *text = fixture("dump");
    struct seen s = {.refuse = 0};
    struct thin_device d = {0};
    struct err e = ERR_INIT;
    assert_int_equal(parse(text, strlen(text), 10, THIN_DUMP, 3, 0, &s, &d, &e), 0);
    assert_string_equal(s.text, "0+2 2+1 3+7 14+26 100+3 500+2 ");
    assert_true(d.transaction == 2 && d.mapped == 41);
    free(text);
    text = fixture("device");
    s.text[0] = '\0';
    assert_int_equal(parse(text, strlen(text), 10, THIN_DUMP, 3, 0, &s, &d, &e), 0);
    assert_string_equal(s.text, "");
    assert_true(d.transaction == 2 && d.mapped == 41);
    free(text);
}

/* Cut off anywhere it is an error, never a list with less in it. */
static void cut_off(void **state)
{
    (void)state;
    static const char *const names[] = {"delta", "same", "dump", "device"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text = fixture(names[i]);
        size_t len = strlen(text);
        while (text[len - 1] != '>')
            len--;
        for (size_t n = 0; n < len; n++) {
            struct seen s = {.refuse = 0};
            struct err e = ERR_INIT;
            assert_int_equal(parse(text, n, 4096, i < 2 ? THIN_DELTA : THIN_DUMP, i ? 3 : 2, 3, &s, NULL, &e),
                             -EBADMSG);
            assert_true(e.cls == ERR_GENERIC && strstr(e.msg, i < 2 ? "thin_delta" : "thin_dump"));
        }
        free(text);
    }
}

static void malformed(void **state)
{
    (void)state;
    static const struct {
        const char *fixture, *from, *to, *said;
    } cases[] = {
        {"delta", "<left_only", "<moved", "unknown element moved"},
        {"delta", "length=\"4\"", "length=\"0\"", "invalid range"},
        {"delta", "length=\"4\"", "length=\"-4\"", "is not a number"},
        {"delta", "length=\"4\"", "length=\"4k\"", "is not a number"},
        {"delta", "length=\"4\"", "length=\"99999999999999999999\"", "is not a number"},
        {"delta", "length=\"4\"", "length=\"18446744073709551615\"", "invalid range"},
        {"delta", "length=\"4\"", "length=\"5\"", "invalid range"}, /* overlaps the next one */
        {"delta", "begin=\"500\"", "begin=\"1\"", "invalid range"},
        {"delta", "begin=\"500\"", "begin=\"281474976710655\"", "invalid range"},
        {"delta", "begin=\"500\" ", "", "right_only has no begin"},
        {"delta", "left=\"2\"", "left=\"4\"", "not what was asked for"},
        {"delta", "right=\"3\"", "right=\"4\"", "not what was asked for"},
        {"delta", "data_block_size=\"128\"", "data_block_size=\"256\"", "blocks of 256 sectors"},
        {"delta", "data_block_size=\"128\" ", "", "superblock has no data_block_size"},
        {"delta", "</diff>", "</diff><diff left=\"2\" right=\"3\"></diff>", "not what was asked for"},
        {"delta", "</diff>", "</differ>", "mismatched tag"},
        {"delta", "<superblock", "<!DOCTYPE x [<!ENTITY a \"b\">]><superblock", "a document type"},
        {"delta", "<diff", "<device", "unknown element device"},
        {"delta", "<same begin=\"0\" length=\"2\"/>", "<same begin=\"0\" length=\"2\"><x/></same>",
         "unknown element x"},
        {"delta", "</superblock>", "</superblock>x", "junk after document element"},
        {"dump", "dev_id=\"3\"", "dev_id=\"2\"", "not what was asked for"},
        {"dump", "transaction=\"2\"", "", "device has no transaction"},
        {"dump", "<single_mapping origin_block=\"2\"", "<ref name=\"2\"", "unknown element ref"},
        {"dump", "origin_block=\"2\"", "origin_block=\"1\"", "invalid range"},
        {"all", "<superblock", "<superblock", "device 2 is not what was asked for"},
        {"nosuch", "<superblock", "<superblock", "no device"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = fixture(cases[i].fixture), *at = strstr(text, cases[i].from), *bad = calloc(1, strlen(text) + 200);
        const bool delta = cases[i].fixture[0] == 'd' && cases[i].fixture[1] == 'e';
        struct seen s = {.refuse = 0};
        struct err e = ERR_INIT;
        if (strcmp(cases[i].from, "transaction=\"2\"") == 0)
            at = strstr(strstr(text, "<device"), cases[i].from);
        assert_non_null(at);
        sprintf(bad, "%.*s%s%s", (int)(at - text), text, cases[i].to, at + strlen(cases[i].from));
        assert_int_equal(parse(bad, strlen(bad), 50, delta ? THIN_DELTA : THIN_DUMP, delta ? 2 : 3, 3, &s, NULL, &e),
                         -EBADMSG);
        if (!strstr(e.msg, cases[i].said))
            fail_msg("case %zu: %s", i, e.msg);
        free(text);
        free(bad);
    }
}

static void refused_by_the_caller(void **state)
{
    (void)state;
    char *text = fixture("delta");
    struct seen s = {.refuse = ENOMEM};
    struct err e = ERR_INIT;
    assert_int_equal(parse(text, strlen(text), 4096, THIN_DELTA, 2, 3, &s, NULL, &e), -ENOMEM);
    assert_string_equal(s.text, "2+1 "); /* no further call */
    assert_string_equal(e.msg, "refused");
    free(text);
}

static void chunks_of_no_pool(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 512, 32 << 10, (64 << 10) + 512, (uint64_t)2 << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct thin_parser *p = NULL;
        const struct thin_wanted w = {.block_bytes = sizes[i]};
        struct err e = ERR_INIT;
        assert_int_equal(thin_parser_new(&p, &w, &e), -EINVAL);
        assert_null(p);
    }
}

/* ---- what is done with what is mapped ---- */

/* A list of one kind is never taken for the other: "unchanged" is not "zeros". */
static void kinds_of_lists(void **state)
{
    (void)state;
    struct changes *c, *back;
    uint8_t *p;
    size_t len;
    struct err e = ERR_INIT;
    assert_int_equal(changes_new(&c, &e), 0);
    assert_int_equal(changes_add(c, 4096, 8192, &e), 0);
    changes_finish(c);
    for (int kind = CHANGES_DIFFER; kind <= CHANGES_ALLOCATED; kind++) {
        assert_int_equal(changes_pack(c, (enum changes_kind)kind, 65536, &p, &len, &e), 0);
        assert_int_equal(changes_new(&back, &e), 0);
        assert_int_equal(changes_unpack(back, (enum changes_kind) !kind, p, len, 65536, &e), -EINVAL);
        assert_non_null(strstr(e.msg, "is a list of something else"));
        assert_int_equal(changes_unpack(back, (enum changes_kind)kind, p, len, 65536, &e), 0);
        changes_finish(back);
        assert_int_equal(changes_bytes(back), 8192);
        changes_free(back);
        free(p);
    }
    changes_free(c);
}

static void extents_of_a_source(void **state)
{
    (void)state;
    char path[] = "/tmp/snapferry-thin.XXXXXX";
    struct changes *c;
    struct source *s;
    struct extent x;
    struct err e = ERR_INIT;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && ftruncate(fd, 1000000) == 0);
    unlink(path);
    assert_int_equal(source_from_fd(&s, fd, "thin", "/thin", &e), 0);
    assert_int_equal(changes_new(&c, &e), 0);
    assert_int_equal(changes_add(c, 65536, 65536, &e), 0);
    assert_int_equal(changes_add(c, 524288, 475712, &e), 0);
    changes_finish(c);
    source_set_allocated(s, c);
    static const struct {
        uint64_t at, len;
        bool hole;
    } want[] = {{0, 65536, true},       {1, 65535, true},        {65536, 65536, false}, {131071, 1, false},
                {131072, 393216, true}, {524288, 475712, false}, {999999, 1, false},    {70000, 61072, false}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(source_extent(s, want[i].at, &x, &e), 0);
        assert_true(x.start == want[i].at && x.len == want[i].len && x.hole == want[i].hole);
    }
    assert_int_equal(source_extent(s, 1000000, &x, &e), -EINVAL);
    changes_free(c);
    assert_int_equal(changes_new(&c, &e), 0); /* nothing is mapped */
    changes_finish(c);
    source_set_allocated(s, c);
    assert_int_equal(source_extent(s, 17, &x, &e), 0);
    assert_true(x.hole && x.len == 1000000 - 17);
    source_free(s);
    changes_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_differs),      cmocka_unit_test(nothing_differs), cmocka_unit_test(what_is_mapped),
        cmocka_unit_test(cut_off),           cmocka_unit_test(malformed),       cmocka_unit_test(refused_by_the_caller),
        cmocka_unit_test(chunks_of_no_pool), cmocka_unit_test(kinds_of_lists),  cmocka_unit_test(extents_of_a_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
