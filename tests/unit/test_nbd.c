/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_nbd.c - addresses of NBD exports, and sources behind servers that keep to the protocol or do not */
#include "tests/unit/nbd-server.h"

#define NAME "nbd+unix:///t?socket=/x"

/* ---- addresses ---- */

static void addresses(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"nbd+unix:///x?socket=/%73&extents=no", "nbd+unix:///x?socket=/s&extents=no"},
        {"nbd+unix:///vda?socket=/run/vm/a.sock", "nbd+unix:///vda?socket=/run/vm/a.sock"},
        {"nbd+unix:///?socket=/a", "nbd+unix:///?socket=/a"},
        {"nbd+unix:///a/b%20c?socket=/s%3F", "nbd+unix:///a%2Fb%20c?socket=/s%3F"},
        {"nbd+unix:///*?socket=/r[1]/*.sock", "nbd+unix:///%2A?socket=/r%5B1%5D/%2A.sock"},
        {"nbd://host/x", "nbd://host:10809/x"},
        {"nbd://host:1/", "nbd://host:1/"},
        {"nbd://host", "nbd://host:10809/"},
        {"nbd://[::1]:10810/x", "nbd://[::1]:10810/x"},
    };
    static const char *const bad[] = {
        "",
        "/dev/sda",
        "nbd:unix:/x",
        "nbds://host/x",
        "nbds+unix:///x?socket=/s",
        "nbd+vsock://1/x",
        "nbd+unix://x?socket=/s",
        "nbd+unix://host/x?socket=/s",
        "nbd+unix:///x",
        "nbd+unix:///x?socket=",
        "nbd+unix:///x?socket=relative",
        "nbd+unix:///x?other=/s",
        "nbd+unix:///x?socket=/s&tls=1",
        "nbd+unix:///x?socket=/s&extents=yes",
        "nbd+unix:///x?socket=/s&extents=no&tls=1",
        "nbd+unix:///x?extents=no&socket=/s",
        "nbd+unix:///x%0a?socket=/s",
        "nbd+unix:///x%00?socket=/s",
        "nbd+unix:///x%4?socket=/s",
        "nbd+unix:///x%zz?socket=/s",
        "nbd+unix:///x?socket=/s#f",
        "nbd:///x",
        "nbd://user@host/x",
        "nbd://host:0/x",
        "nbd://host:65536/x",
        "nbd://host:1x/x",
        "nbd://host:+1/x",
        "nbd://[::1/x",
        "nbd://[::1]1/x",
        "nbd://host/x?socket=/s",
    };
    char text[NBD_URI_MAX];
    struct nbd_uri u;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct err e = ERR_INIT;
        assert_ok(nbd_uri_parse(&u, good[i][0], &e), &e);
        assert_true(nbd_uri_is(good[i][0]));
        nbd_uri_text(&u, text);
        assert_string_equal(text, good[i][1]);
        assert_ok(nbd_uri_parse(&u, text, &e), &e);
        nbd_uri_text(&u, text);
        assert_string_equal(text, good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = ERR_INIT;
        if (nbd_uri_parse(&u, bad[i], &e) >= 0)
            fail_msg("%s is accepted", bad[i]);
        assert_int_equal(e.cls, ERR_USAGE);
    }
    char *endless = malloc(100000);
    assert_non_null(endless);
    struct err e = ERR_INIT;
    memset(endless, '%', 99999);
    endless[99999] = '\0';
    memcpy(endless, "nbd://", 6);
    assert_true(nbd_uri_parse(&u, endless, &e) < 0);
    free(endless);
}

/* ---- sources ---- */

static int open_source(struct nbd_server *n, struct source **s, struct err *e)
{
    return source_from_fd(s, nbd_server_start(n), NAME, NULL, e);
}

static void close_source(struct nbd_server *n, struct source *s)
{
    source_free(s);
    pthread_join(n->thread, NULL);
}

static void reads_what_is_there(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 512, 1000, 4096, 3 * MIB + 512, 9 * MIB + 1};
    for (unsigned how = 0; how < 4; how++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct nbd_server n = {.size = sizes[i], .no_structured = how == 1, .no_map = how == 2, .at = sizes[i] / 2};
            struct err e = ERR_INIT;
            struct source *s;
            if (how == 3) {
                n.min_block = 1;
                n.max_block = 70000; /* less than a read of the reader, and no multiple of anything */
                n.fault = NBD_BACKWARDS;
            }
            assert_ok(open_source(&n, &s, &e), &e);
            assert_int_equal(source_info(s)->size, sizes[i]);
            assert_string_equal(source_info(s)->id, "/nbd-unix/x/t");
            assert_true(source_info(s)->is_nbd && source_info(s)->is_block && source_fd(s) < 0);
            const struct reader_opts o = {.ring = 8 * MIB, .window = MIB};
            read_whole(s, &o, 0, i, NULL);
            assert_ok(source_readable(s, &e), &e);
            assert_ok(source_recheck(s, NULL, NULL, &e), &e);
            close_source(&n, s);
            assert_true(n.longest <= (how == 3 ? 69632 : 16 * MIB));
        }
}

/* Beside a reader, from another thread. */
static void reads_at_once(void **state)
{
    (void)state;
    struct nbd_server n = {.size = 5 * MIB + 100};
    struct err e = ERR_INIT;
    struct source *s;
    const uint8_t *p;
    CLEANUP_FREE void *buf = NULL;
    assert_int_equal(posix_memalign(&buf, 4096, MIB + SOURCE_READ_EXTRA), 0);
    assert_ok(open_source(&n, &s, &e), &e);
    struct reader *r;
    const struct reader_opts o = {.ring = 4 * MIB, .window = MIB};
    assert_ok(reader_new(&r, s, &o, &e), &e);
    for (uint64_t pos = 7; pos + MIB <= n.size; pos += 777777) {
        assert_ok(source_read(s, pos, MIB, buf, &p, &e), &e);
        check_bytes(p, MIB, pos, NULL);
    }
    assert_ok(source_read(s, n.size - 100, 100, buf, &p, &e), &e);
    check_bytes(p, 100, n.size - 100, NULL);
    reader_free(r);
    close_source(&n, s);
}

/* Only what reads as zeros is skipped: a hole without ZERO has anything in it. */
static void only_zeros_are_holes(void **state)
{
    (void)state;
    static const uint32_t map[] = {MIB, 0, 2 * MIB, 1, 2 * MIB, 3, MIB, 0, 2 * MIB, 2, MIB, 1, 0};
    static const struct range zeros[] = {{3 * MIB, 5 * MIB}, {6 * MIB, 8 * MIB}};
    const struct expect x = {zeros, 2};
    struct nbd_server n = {.size = 9 * MIB, .map = map};
    struct err e = ERR_INIT;
    struct source *s;
    assert_ok(open_source(&n, &s, &e), &e);
    const struct reader_opts o = {.ring = 8 * MIB, .window = MIB / 4};
    struct reader *r;
    struct reader_stats st;
    uint64_t end;
    assert_ok(reader_new(&r, s, &o, &e), &e);
    assert_ok(consume(r, 0, n.size, o.window, 0, 5, &x, &end, &e), &e);
    reader_stats(r, &st);
    assert_int_equal(st.hole_bytes, 4 * MIB);
    assert_int_equal(st.read_bytes, 5 * MIB);
    assert_int_equal(n.maps, 1);
    reader_free(r);
    close_source(&n, s);
}

static void extents_may_fail(void **state)
{
    (void)state;
    static const uint32_t map[] = {MIB, 3, 3 * MIB, 0, 0};
    static const enum nbd_fault faults[] = {NBD_EXTENT_ERROR, NBD_OTHER_EXTENT, NBD_ZERO_EXTENT};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct nbd_server n = {.size = 4 * MIB, .map = map, .fault = faults[i]};
        struct err e = ERR_INIT;
        struct source *s;
        struct reader *r;
        uint64_t end;
        assert_ok(open_source(&n, &s, &e), &e);
        const struct reader_opts o = {.ring = 8 * MIB, .window = MIB};
        assert_ok(reader_new(&r, s, &o, &e), &e);
        int rc = consume(r, 0, n.size, o.window, 0, 5, NULL, &end, &e);
        /* An error means that all is read; a lie, that nothing is believed. */
        if (faults[i] == NBD_EXTENT_ERROR) {
            assert_ok(rc, &e);
        } else if (rc < 0) {
            assert_int_equal(e.cls, ERR_SOURCE);
        } else {
            assert_int_equal(faults[i], NBD_OTHER_EXTENT); /* nothing is known of the context that was asked for */
        }
        reader_free(r);
        close_source(&n, s);
    }
}

static void handshakes_that_fail(void **state)
{
    (void)state;
    static const struct {
        enum nbd_fault fault;
        uint32_t min_block, max_block;
        enum err_class cls;
        const char *word;
    } c[] = {
        {NBD_NO_EXPORT, 0, 0, ERR_NOT_FOUND, "no export"},
        {NBD_ODD_BLOCK, 600, 1 << 20, ERR_SOURCE, "contradicts itself"},
        {NBD_NO_SIZE, 4096, 1 << 20, ERR_SOURCE, "contradicts itself"},
        {NBD_ODD_BLOCK, 1 << 17, 1 << 20, ERR_SOURCE, "contradicts itself"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct nbd_server n = {
            .size = MIB + 512, .fault = c[i].fault, .min_block = c[i].min_block, .max_block = c[i].max_block};
        struct err e = ERR_INIT;
        struct source *s;
        if (open_source(&n, &s, &e) >= 0) { /* libnbd takes what is malformed for none */
            assert_int_equal(c[i].fault, NBD_ODD_BLOCK);
            source_free(s);
        } else {
            assert_int_equal(e.cls, c[i].cls);
            assert_non_null(strstr(e.msg, c[i].word));
        }
        pthread_join(n.thread, NULL);
    }
    struct err e = ERR_INIT;
    struct source *s;
    int fd[2];
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), errno);
    close(fd[1]);
    assert_true(source_from_fd(&s, fd[0], NAME, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), errno);
    assert_true(source_from_fd(&s, fd[0], "/dev/sda", NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_USAGE);
    close(fd[1]);
}

/* Whatever the policy: what a server has not said is never zeros. */
static void servers_that_fail(void **state)
{
    (void)state;
    static const struct {
        enum nbd_fault fault;
        uint32_t error;
        const char *word;
    } c[] = {
        {NBD_CLOSE, 0, "connection is lost"},
        {NBD_CUT, 0, "connection is lost"},
        {NBD_SHORT, 0, "has not sent"},
        {NBD_TWICE, 0, "has not sent"},
        {NBD_BEYOND, 0, ""},
        {NBD_WRONG_COOKIE, 0, ""},
        {NBD_ERROR, 22 /* EINVAL: the export has become smaller */, "Invalid argument"},
        {NBD_ERROR, 28, "No space"},
        {NBD_ERROR, 108, "ndpoint"},
        {NBD_ERROR, 12, "Cannot allocate"},
        {NBD_ERROR, 1, "not permitted"},
        {NBD_ERROR, 4711, ""},
        {NBD_LATE_ERROR, 22, "Invalid argument"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int map = 0; map < 2; map++) {
            struct nbd_server n = {.size = 6 * MIB, .at = 3 * MIB + 5000, .fault = c[i].fault, .error = c[i].error};
            struct err e = ERR_INIT, why = ERR_INIT;
            struct source *s;
            struct reader *r;
            uint64_t end = 0;
            assert_ok(open_source(&n, &s, &e), &e);
            const struct reader_opts o = {
                .ring = 8 * MIB, .window = MIB, .bad_read = map ? BAD_READ_MAP : BAD_READ_FAIL};
            assert_ok(reader_new(&r, s, &o, &e), &e);
            int rc = consume(r, 0, n.size, o.window, 0, 5, NULL, &end, &e);
            if (rc >= 0)
                fail_msg("fault %d (%u) is not noticed", c[i].fault, c[i].error);
            assert_int_equal(e.cls, ERR_SOURCE);
            if (!strstr(e.msg, c[i].word))
                fail_msg("\"%s\" has no \"%s\"", e.msg, c[i].word);
            assert_true(source_recheck(s, NULL, NULL, &why) < 0);
            assert_true(source_readable(s, &why) < 0);
            reader_free(r);
            close_source(&n, s);
        }
}

static void note_range(uint64_t pos, uint64_t len, int sys, void *arg)
{
    struct range *x = arg;
    assert_int_equal(sys, EIO);
    *x = (struct range){pos, pos + len};
}

/* EIO alone is an error of the medium. At the end of the export it may be a volume that has become smaller. */
static void bad_sectors(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++)
        for (int where = 0; where < 2; where++)
            for (int map = 0; map < 2; map++) {
                struct nbd_server n = {.size = 6 * MIB,
                                       .at = where ? 6 * MIB - 300 : 3 * MIB + 1024,
                                       .fault = late ? NBD_LATE_ERROR : NBD_ERROR,
                                       .error = 5};
                const bool mapped = map && !where;
                struct range zeros = {3 * MIB + 1024, 3 * MIB + 1536}, noted = {0, 0};
                const struct expect x = {&zeros, mapped};
                struct err e = ERR_INIT;
                struct source *s;
                struct reader *r;
                uint64_t end = 0;
                assert_ok(open_source(&n, &s, &e), &e);
                const struct reader_opts o = {.ring = 8 * MIB,
                                              .window = MIB,
                                              .bad_read = map ? BAD_READ_MAP : BAD_READ_FAIL,
                                              .on_bad = note_range,
                                              .on_bad_arg = &noted};
                assert_ok(reader_new(&r, s, &o, &e), &e);
                int rc = consume(r, 0, n.size, o.window, 0, 5, &x, &end, &e);
                reader_free(r); /* whose thread notes */
                if (mapped) {
                    assert_ok(rc, &e);
                    assert_true(noted.start == zeros.start && noted.end == zeros.end);
                } else {
                    assert_true(rc < 0);
                    assert_int_equal(e.cls, ERR_SOURCE);
                    assert_non_null(strstr(e.msg, where ? "last bytes" : "cannot read bytes 3146752 to 3147263"));
                    assert_true(noted.end == 0);
                }
                close_source(&n, s);
            }
}

static void hole_chunks_are_zeros(void **state)
{
    (void)state;
    struct range zero[16];
    struct expect x = {zero, 0};
    struct nbd_server n = {.size = 128 * KIB, .at = 0, .fault = NBD_MANY_HOLES};
    struct err e = ERR_INIT;
    struct source *s;
    for (; x.n < 16; x.n++)
        zero[x.n] = (struct range){x.n * 8192 + 4096, x.n * 8192 + 8192};
    assert_ok(open_source(&n, &s, &e), &e);
    const struct reader_opts o = {.ring = 8 * MIB, .window = MIB};
    read_whole(s, &o, 0, 3, &x);
    close_source(&n, s);
}

/* A server that is silent: an error in bounded time, and a cancel that does not wait for it. */
static void silence_ends(void **state)
{
    (void)state;
    struct nbd_server n = {.size = 6 * MIB, .at = 3 * MIB, .fault = NBD_SILENT};
    struct nbd_uri u;
    struct nbd_link *l;
    struct err e = ERR_INIT;
    CLEANUP_FREE void *buf = malloc(6 * MIB);
    assert_non_null(buf);
    assert_ok(nbd_uri_parse(&u, NAME, &e), &e);
    assert_ok(nbd_link_open(&l, nbd_server_start(&n), &u, &(struct nbd_link_opts){.stall_s = 1}, &e), &e);
    assert_int_equal(nbd_link_pread(l, buf, MIB, 0), MIB);
    assert_int_equal(nbd_link_pread(l, buf, MIB, 3 * MIB - 10), -ESHUTDOWN);
    assert_int_equal(nbd_link_pread(l, buf, MIB, 0), -ESHUTDOWN);
    assert_true(nbd_link_check(l, &e) < 0);
    assert_non_null(strstr(e.msg, "has not answered for 1 s"));
    nbd_link_free(l);
    pthread_join(n.thread, NULL);

    struct source *s;
    struct reader *r;
    struct view v;
    e = (struct err)ERR_INIT;
    assert_ok(open_source(&n, &s, &e), &e);
    const struct reader_opts o = {.ring = 8 * MIB, .window = MIB};
    assert_ok(reader_new(&r, s, &o, &e), &e);
    assert_ok(reader_peek(r, 2 * MIB, MIB, &v, &e), &e);
    reader_free(r);
    close_source(&n, s);
}

int main(void)
{
    struct err e = ERR_INIT;
    struct nbd_uri u;
    int fd;
    /* Without libnbd nothing here would be tested: that is a failure, and not left out. */
    if (nbd_uri_parse(&u, "nbd+unix:///?socket=/nonexistent/x", &e) < 0 || nbd_dial(&u, &fd, NULL, &e) != -ENOENT)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(reads_at_once),
        cmocka_unit_test(only_zeros_are_holes),
        cmocka_unit_test(extents_may_fail),
        cmocka_unit_test(handshakes_that_fail),
        cmocka_unit_test(servers_that_fail),
        cmocka_unit_test(bad_sectors),
        cmocka_unit_test(hole_chunks_are_zeros),
        cmocka_unit_test(silence_ends),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
