/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_sample.c - the time that a look at what is said to be unchanged may take (CF-12)
 *
 * The clock advances with each read of the sample, nothing else does: linked by --wrap.
 */
#include "daemon/mover/sample.h"

#include "base/time.h"
#include "io/changes.h"
#include "tests/unit/backup.h"

__typeof__(mono_ns) __wrap_mono_ns;
__typeof__(mono_ns) __real_mono_ns;

/* Reads of the sample from a file of this size take so long; nothing waits for it. */
static _Atomic uint64_t slow_size;
static _Atomic int64_t slow_ns, passed_ns;
static _Atomic unsigned slow_reads;
static _Atomic uint64_t last_pos, last_len;

int64_t __wrap_mono_ns(void)
{
    return __real_mono_ns() + passed_ns;
}

ssize_t pread64(int fd, void *buf, size_t n, off64_t pos)
{
    struct stat st;
    if (slow_size && fstat(fd, &st) == 0 && (uint64_t)st.st_size == slow_size) {
        passed_ns += slow_ns;
        slow_reads++;
        last_pos = (uint64_t)pos;
        last_len = n;
    }
    return syscall(SYS_pread64, fd, buf, n, (long)pos);
}

static void slow_from_here(uint64_t size, int64_t ns)
{
    slow_reads = 0;
    slow_ns = ns;
    slow_size = size;
}

static void free_image(struct image *m)
{
    free(m->p);
}

static struct image random_image(size_t len, uint64_t seed)
{
    struct image m = {malloc(len), len};
    assert_non_null(m.p);
    fill_random(m.p, len, seed);
    return m;
}

/* The first byte is all that is listed. */
static struct changes *first_byte(void)
{
    struct err e = ERR_INIT;
    struct changes *c;
    assert_ok(changes_new(&c, &e), &e);
    assert_ok(changes_add(c, 0, 1, &e), &e);
    changes_finish(c);
    return c;
}

/* A backup of the image that is there. Each read of the sample takes `ms`. */
static struct backup_result sampled(struct repo *r, const struct image *m, const struct backup_opts *o,
                                    const char *parent, double share, unsigned seconds, unsigned ms)
{
    struct changes *CLEANUP(changes_freep) c = first_byte();
    const struct backup_incremental inc = {
        .parent = parent, .changes = c, .sample = share, .sample_s = seconds, .sample_seed = 7};
    struct backup_opts with = *o;
    with.incremental = &inc;
    slow_from_here(m->len, ms * NS_PER_MS);
    struct backup_result b = backup(r, path_of("image"), &with);
    slow_size = 0;
    return b;
}

/* Where there is time for 10 reads there are 10, and the result has what they were of; without a limit all is read. */
static void it_ends_in_time(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("time", NULL);
    struct image CLEANUP(free_image) m = random_image(24 * MIB, 1);
    struct backup_opts o = opts_for("time");
    struct backup_result a = check_image(r, &m, &o, false);
    write_image(path_of("image"), &m, false);

    /* One more than 9 of 100 s, which ends beyond the limit. */
    struct backup_result b = sampled(r, &m, &o, a.manifest_id, 1, 1000, 100000);
    assert_int_equal(b.sampled_chunks, 10);
    assert_true(b.sampled_bytes >= 10 * 128 * KIB && b.sampled_bytes < m.len / 4);
    assert_true(b.incremental && !b.distrusted);
    assert_string_equal(b.fallback, "");
    const uint64_t ten = b.sampled_bytes;

    /* The limit is one of time, not of reads; and at least one is looked at. */
    b = sampled(r, &m, &o, a.manifest_id, 1, 1000, 40000);
    assert_int_equal(b.sampled_chunks, 25);
    assert_true(b.sampled_bytes > ten);
    b = sampled(r, &m, &o, a.manifest_id, 1, 1000, 5000000);
    assert_int_equal(b.sampled_chunks, 1);

    /* A share that takes less than the limit is read in full. */
    b = sampled(r, &m, &o, a.manifest_id, 0.02, 1000, 100000);
    assert_true(b.sampled_chunks > 0 && b.sampled_chunks < 10);

    /* In several rounds, each of which has walked over the whole volume; and 0 is no limit. */
    b = sampled(r, &m, &o, a.manifest_id, 20, 0, 100000);
    assert_true(b.sampled_chunks > 600);
    assert_true(b.sampled_bytes > m.len);
    b = sampled(r, &m, &o, a.manifest_id, 20, 30000, 100000);
    assert_int_equal(b.sampled_chunks, 300);
    unlink(path_of("image"));
}

/* What differs is found by the read that uses the time up, and counts; one that would be read later does not. */
static void what_is_found_in_time_counts(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("found", NULL);
    struct image CLEANUP(free_image) m = random_image(12 * MIB, 2);
    struct backup_opts o = opts_for("found");
    struct backup_result a = check_image(r, &m, &o, false);
    write_image(path_of("image"), &m, false);
    struct backup_result b = sampled(r, &m, &o, a.manifest_id, 1, 1000, 100000);
    assert_int_equal(b.sampled_chunks, 10);
    m.p[last_pos + last_len / 2] ^= 1; /* what the tenth one has read */

    write_image(path_of("image"), &m, false);
    b = sampled(r, &m, &o, a.manifest_id, 1, 900, 100000);
    assert_true(b.incremental && !b.distrusted);
    assert_int_equal(b.sampled_chunks, 9);

    b = sampled(r, &m, &o, a.manifest_id, 1, 1000, 100000);
    assert_true(b.distrusted && !b.incremental);
    assert_int_equal(b.sampled_chunks, 9); /* read and equal */
    assert_non_null(strstr(b.fallback, "not in the list of changes"));
    assert_int_equal(b.cloned_bytes, 0);
    assert_bytes(r, &b.image, &m);
    unlink(path_of("image"));
}

/* ---- of what is not allocated ---- */

static struct sample_result zeros(const struct image *m, double share, unsigned seconds, unsigned ms)
{
    struct err e = ERR_INIT;
    struct changes *CLEANUP(changes_freep) c = first_byte();
    struct source *CLEANUP(source_freep) s = NULL;
    write_image(path_of("zeros"), m, false);
    assert_ok(source_open(&s, path_of("zeros"), &e), &e);
    const struct sample_zeros_setup setup = {
        .source = s, .allocated = c, .share = share, .seconds = seconds, .seed = 7};
    struct sample_result found;
    slow_from_here(m->len, ms * NS_PER_MS);
    assert_ok(sample_zeros(&setup, &found, &e), &e);
    slow_size = 0;
    unlink(path_of("zeros"));
    return found;
}

static void zeros_in_time(void **state)
{
    (void)state;
    struct image CLEANUP(free_image) m = {calloc(1, 64 * MIB + 5), 64 * MIB + 5};
    assert_non_null(m.p);
    struct sample_result x = zeros(&m, 1, 1000, 100000);
    assert_int_equal(slow_reads, 10);
    assert_int_equal(x.chunks, 10);
    assert_int_equal(x.bytes, 10 * 64 * KIB);
    assert_false(x.differs);
    const uint64_t at = last_pos;
    x = zeros(&m, 2, 0, 100000); /* no limit: about two looks at each block */
    assert_true(x.chunks > 1900);

    m.p[at + 70] = 1;
    x = zeros(&m, 1, 900, 100000);
    assert_int_equal(slow_reads, 9);
    assert_int_equal(x.chunks, 9);
    assert_false(x.differs);
    x = zeros(&m, 1, 1000, 100000); /* found by the read that uses the time up */
    assert_int_equal(slow_reads, 10);
    assert_true(x.differs);
    assert_int_equal(x.start, at);
    assert_int_equal(x.chunks, 9);
    assert_int_equal(x.bytes, 9 * 64 * KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_in_time),
        cmocka_unit_test(what_is_found_in_time_counts),
        cmocka_unit_test(zeros_in_time),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
