/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The daemon's whole configuration: what is read, what is refused, and that everything is told at once. */
#include "base/units.h"
#include "tests/unit/cfgdir.h"

#define REPO "[repository \"main\"]\npath = /srv/backup\npassword-file = cred:main\n"

static void the_documented_example_passes_with_warnings_only(void **state)
{
    (void)state; /* architecture, 6 */
    struct cfg *c =
        no_error("[daemon]\nnode-name = nas1\nmemory-total = 2GiB              ; all movers together\n"
                 "[repository \"main\"]\ntype = filesystem                ; or s3\npath = /srv/backup\n"
                 "password-file = cred:main-password\nsplitter = DYNAMIC-4M-BUZHASH\n"
                 "compression = zstd-fastest\n[storage-class \"gold\"]\ndriver = lvm-thin\nmatch = /dev/vg0/*\n"
                 "backup-storage-class = scratch   ; intermediate\nbackup-read-only = true\n"
                 "snapshots-to-retain = 3\nprepare-timeout = 30min\n"
                 "[storage-class \"scratch\"]           ; intermediates only\ndriver = lvm-thin\nmatch =\n"
                 "target = vg0/fastpool\n[storage-class \"images\"]\ndriver = reflink\n"
                 "match = /srv/vm/*.img\nsnapshots-to-retain = 7\n[volume \"/dev/vg0/db1\"]\n"
                 "hook-pre-snapshot = /etc/snapferry/hooks/freeze-db1\n[job \"nightly\"]\n"
                 "volumes = /dev/vg0/db1 /dev/vg0/home*\non-calendar = *-*-* 02:00\nkeep-daily = 14   ; Kopia's\n"
                 "keep-weekly = 8\n");
    assert_int_equal(complaints(c), 0);
    assert_string_equal(cfg_daemon(c)->node_name, "nas1");
    assert_int_equal(cfg_daemon(c)->memory_total, INT64_C(2) << 30);
    assert_string_equal(cfg_class_of(c, cfg_named("/dev/vg0/db1"))->name, "gold");
    assert_string_equal(cfg_class_of(c, cfg_named("/srv/vm/a.img"))->name, "images");
    assert_null(cfg_class_of(c, cfg_named("/srv/vm/sub/a.img"))); /* FNM_PATHNAME */
    assert_int_equal(cfg_class(c, "scratch")->match[0] == NULL, true);
    assert_string_equal(cfg_class(c, "scratch")->target, "vg0/fastpool");
    const struct cfg_job *j = cfg_job(c, "nightly");
    assert_string_equal(j->on_calendar, "*-*-* 02:00");
    assert_true(j->persistent && cfg_job_has(c, j, cfg_named("/dev/vg0/home7")) &&
                !cfg_job_has(c, j, cfg_named("/dev/vg0/other")));
    cfg_free(c);
}

static void defaults_are_those_of_the_table(void **state)
{
    (void)state; /* MS-46, MS-60, CF-20, CF-21, CF-22, AO-50, AO-51, MS-40, MS-59 */
    struct cfg *c = no_error(REPO);
    const struct cfg_daemon *d = cfg_daemon(c);
    assert_int_equal(d->slots, 2);
    assert_int_equal(d->restore_reserved, 1);
    assert_int_equal(d->per_device, 1);
    assert_int_equal(d->prepare_ahead, 3); /* slots + 1 */
    assert_int_equal(d->concurrent_backups, 2);
    assert_int_equal(d->sweep_s, 60);
    assert_int_equal(d->keep_records_s, 90 * 86400);
    assert_int_equal(d->cache_max, UINT64_C(512) << 20);
    assert_int_equal(d->on_restart, ON_RESTART_RESUME);
    assert_string_equal(d->socket_group, "snapferry");
    assert_string_equal(d->log_level, "info");
    assert_true(d->node_name[0]);
    const struct cfg_mover *m = cfg_mover(c);
    assert_string_equal(m->user, "snapferry-mover");
    assert_int_equal(m->memory, 256 << 20);
    assert_int_equal(m->index_memory, 64 << 20);
    cfg_free(c);
    c = no_error(
        "[daemon]\nslots = 5\non-restart = fail\nlog-level = debug\n[mover]\nmemory = 128MiB\ncpu-quota = 150\n"
        "nice = -5\nioclass = idle\nslice = backup.slice\ncpus = 0-3,8\n"
        "unit-property = MemoryLow=64M \"IODeviceWeight=/dev/sda 100\"\n");
    assert_int_equal(cfg_daemon(c)->prepare_ahead, 6);
    assert_int_equal(cfg_daemon(c)->on_restart, ON_RESTART_FAIL);
    m = cfg_mover(c); /* MS-02, MS-44 */
    assert_int_equal(m->memory, 128 << 20);
    assert_int_equal(m->nice, -5);
    assert_int_equal(m->cpu_quota, 150);
    assert_string_equal(m->ioclass, "idle");
    assert_string_equal(m->cpus, "0-3,8");
    assert_string_equal(m->unit_properties[0], "MemoryLow=64M");
    assert_string_equal(m->unit_properties[1], "IODeviceWeight=/dev/sda 100");
    assert_null(m->unit_properties[2]);
    cfg_free(c);
}

static void slots_by_node(void **state)
{
    (void)state; /* CF-20: several matches, the smallest number; 0 really blocks */
    struct cfg *c = no_error("[daemon]\nnode-name = n1\nslots = 9\nslots-on-node = n*=4 n1=3 other=1\n");
    assert_int_equal(cfg_daemon(c)->slots, 3);
    cfg_free(c);
    c = no_error("[daemon]\nslots = 0\n");
    assert_int_equal(cfg_daemon(c)->slots, 0);
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "maintenance mode");
    cfg_free(c);
    one_error("[daemon]\nslots-on-node = n1=x\n", "snapferry.ini:2", "PATTERN=NUMBER");
}

/* "Did you mean" only of what may be a slip of the finger: one edit in three letters, as others do. */
static void far_words_are_not_suggested(void **state)
{
    (void)state;
    one_error("[daemon]\ncolour = red\n", "snapferry.ini:2", "unknown key colour in [daemon]");
    struct cfg *c = cfgdir_load("[daemon]\ncolour = red\n[flowers]\n[storage-class \"gold\"]\nmatch = /x\n"
                                "driver = reflink\ncompression = brotli\n[job \"j\"]\nvolumes = class:silver\n");
    for (unsigned i = 0; i < complaints(c); i++)
        assert_null(strstr(cfg_complaint_at(c, i)->text, "nearest"));
    assert_complains(c, CFG_ERROR, "snapferry.ini:3", "unknown section [flowers]");
    assert_complains(c, CFG_ERROR, "snapferry.ini:7", "brotli");
    assert_complains(c, CFG_ERROR, "snapferry.ini:9", "no [storage-class \"silver\"]");
    cfg_free(c);
}

static void every_error_of_every_file_at_once(void **state)
{
    (void)state;
    cfgdir_write("conf.d/10-a.ini", "[daemno]\n[storage-class \"a\"]\ndriver = reflink\nmtach = /x\n");
    cfgdir_write("conf.d/20-b.ini", "[job \"j\"]\nvolumes = class:b\nkeep-daily = some\n");
    struct cfg *c = cfgdir_load("[daemon]\nslots = -1\nslots = 3\nnode-nmae = x\nnonsense\n[daemon \"two\"]\nx = y\n");
    assert_complains(c, CFG_ERROR, "snapferry.ini:2", "slots must not be negative: -1");
    assert_complains(c, CFG_ERROR, "snapferry.ini:3", "slots is set twice in this section, first in line 2");
    assert_complains(c, CFG_ERROR, "snapferry.ini:4", "nearest known is node-name");
    assert_complains(c, CFG_ERROR, "snapferry.ini:5", "[section] or key = value expected");
    assert_complains(c, CFG_ERROR, "snapferry.ini:6", "[daemon] is a single section");
    assert_complains(c, CFG_ERROR, "conf.d/10-a.ini:1", "the nearest known is [daemon]");
    assert_complains(c, CFG_ERROR, "conf.d/10-a.ini:4", "nearest known is match");
    assert_complains(c, CFG_ERROR, "conf.d/20-b.ini:2", "no [storage-class \"b\"]");
    assert_complains(c, CFG_ERROR, "conf.d/20-b.ini:3", "keep-daily: integer");
    assert_int_equal(cfg_errors(c), 9);
    for (unsigned i = 1; i < complaints(c); i++) /* in the order of files and lines */
        assert_true(strcmp(cfg_complaint_at(c, i - 1)->where, cfg_complaint_at(c, i)->where) <= 0 ||
                    strstr(cfg_complaint_at(c, i - 1)->where, "snapferry.ini"));
    cfg_free(c);
    cfgdir_write("conf.d/10-a.ini", "");
    cfgdir_write("conf.d/20-b.ini", "");
}

static void drop_ins_merge_and_win(void **state)
{
    (void)state;
    cfgdir_write("conf.d/20.ini", "[storage-class \"a\"]\nsnapshots-to-retain = 9\nmatch = /b/*\n");
    cfgdir_write("conf.d/10.ini", "[storage-class \"a\"]\nsnapshots-to-retain = 5\ntarget = /t\n");
    struct cfg *c = no_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /a/*\n");
    const struct cfg_class *k = cfg_class_at(c, 0);
    assert_null(cfg_class_at(c, 1));
    assert_string_equal(k->match[0], "/b/*");
    assert_null(k->match[1]);
    assert_string_equal(k->target, "/t");
    struct cfg_policy p;
    struct err e = ERR_INIT;
    assert_ok(cfg_policy_of_class(c, "a", &p, &e), &e);
    assert_int_equal(p.snapshots_to_retain, 9);
    assert_non_null(strstr(cfg_policy_where(&p, "snapshots-to-retain"), "conf.d/20.ini:2"));
    cfg_policy_clear(&p);
    char hash[65];
    snprintf(hash, sizeof hash, "%s", cfg_hash(c));
    cfg_free(c);
    cfgdir_write("conf.d/20.ini", "[storage-class \"a\"]\nsnapshots-to-retain = 8\nmatch = /b/*\n");
    c = no_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /a/*\n");
    assert_int_equal(strlen(hash), 64);
    assert_string_not_equal(hash, cfg_hash(c));
    cfg_free(c);
    cfgdir_write("conf.d/10.ini", "");
    cfgdir_write("conf.d/20.ini", "");
}

static void lines_that_inih_would_change_are_refused_or_kept(void **state)
{
    (void)state;
    struct cfg *c;
    char text[9000];
    one_error("[daemon] slots = 3\n", "snapferry.ini:1", "text after the section header: slots = 3");
    one_error("[daemon\nslots = 3\n", "snapferry.ini:1", "missing ]");
    one_error("[volume \"a]b\"]\n", "snapferry.ini:1", "text after the section header");
    snprintf(text, sizeof text, "[volume \"/%0*d\"]\n", 41, 0);
    one_error(text, "snapferry.ini:1", "longer than 49");
    snprintf(text, sizeof text, "[job \"j\"]\nvolumes = /%0*d\n", 200, 0);
    one_error(text, "snapferry.ini:2", "longer than 198");
    snprintf(text, sizeof text, "[job \"j\"]\nvolumes = /%0*d\n", 8000, 0);
    one_error(text, "snapferry.ini:2", "longer than 198");
    /* Indented keys are keys, indented words go on with a list, and nothing goes on with what is no list. */
    c = no_error(
        "  [daemon]\n  slots = 3\n\tnode-name = x ; comment\n# comment\n  ; comment\n[job \"j\"]\n  volumes = /a\n"
        "    /b \"/with space\"\n    /c\n  paused = yes\n");
    assert_int_equal(cfg_daemon(c)->slots, 3);
    assert_string_equal(cfg_daemon(c)->node_name, "x");
    const struct cfg_job *j = cfg_job(c, "j");
    assert_string_equal(j->volumes[1], "/b");
    assert_string_equal(j->volumes[2], "/with space");
    assert_string_equal(j->volumes[3], "/c");
    assert_null(j->volumes[4]);
    assert_true(j->paused);
    cfg_free(c);
    one_error("[daemon]\nslots = 3\n   4\n", "snapferry.ini:3", "slots is not a list");
    one_error("[job \"j\"]\nvolumes = /a\n  pasued = yes\n", "snapferry.ini:3", "an unknown key");
    one_error("[job \"j\"]\nvolumes = \"/a\n", "snapferry.ini:2", "missing closing quote");
    one_error("key = 1\n", "snapferry.ini:1", "before the first section");
    one_error("[job nightly]\n", "snapferry.ini:1", "header of a job section is [job \"NAME\"]");
    one_error("[job \"a/b\"]\n", "snapferry.ini:1", "must not contain a slash");
    /* A byte order mark and carriage returns are no part of it; other bytes are refused. */
    cfg_free(no_error("\xef\xbb\xbf[daemon]\r\nslots = 3\r\n"));
    one_error("[daemon]\nnode-name = a\xff\n", "snapferry.ini:2", "UTF-8");
    one_error("[daemon]\nnode-name = a\x01\n", "snapferry.ini:2", "UTF-8");
}

static void files_that_are_none(void **state)
{
    (void)state;
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(cfg_load_dir(&c, "/nonexistent", &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    assert_non_null(strstr(e.msg, "/nonexistent/snapferry.ini"));
    cfg_free(c);
    /* Without the main file a drop-in will do. */
    char path[256], fifo[256];
    snprintf(path, sizeof path, "%s/snapferry.ini", cfgdir);
    unlink(path);
    cfgdir_write("conf.d/10.ini", "[daemon]\nslots = 7\n");
    assert_ok(cfg_load_dir(&c, cfgdir, &e), &e);
    assert_int_equal(cfg_daemon(c)->slots, 7);
    cfg_free(c);
    cfgdir_write("conf.d/10.ini", "");
    /* A FIFO, a directory and an endless file are told and do not hang. */
    snprintf(fifo, sizeof fifo, "%s/conf.d/50.ini", cfgdir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    c = cfgdir_load("[daemon]\nslots = x\n");
    assert_complains(c, CFG_ERROR, "conf.d/50.ini", "not a regular file");
    assert_complains(c, CFG_ERROR, "snapferry.ini:2", "integer");
    cfg_free(c);
    unlink(fifo);
    assert_int_equal(symlink("/dev/zero", fifo), 0);
    c = cfgdir_load("");
    assert_complains(c, CFG_ERROR, "conf.d/50.ini", "not a regular file");
    cfg_free(c);
    unlink(fifo);
    FILE *f = fopen(fifo, "w");
    assert_int_equal(ftruncate(fileno(f), 5 << 20), 0);
    fclose(f);
    c = cfgdir_load("");
    assert_complains(c, CFG_ERROR, "conf.d/50.ini", "larger than 4 MiB");
    cfg_free(c);
    unlink(fifo);
}

static void thousands_of_mistakes_are_counted_not_stored(void **state)
{
    (void)state;
    char *text = malloc(1 << 20);
    size_t n = (size_t)sprintf(text, "[daemon]\n");
    for (int i = 0; i < 20000; i++)
        n += (size_t)sprintf(text + n, "bad%d = 1\n", i);
    struct cfg *c = cfgdir_load(text);
    assert_int_equal(cfg_errors(c), 20000);
    assert_int_equal(complaints(c), 500);
    cfg_free(c);
    /* Sections and keys have a limit, since all are compared with all. */
    n = 0;
    for (int i = 0; i < 5100; i++)
        n += (size_t)sprintf(text + n, "[job \"%d\"]\nvolumes=/x\nkeep-daily=%d\n", i, i);
    c = cfgdir_load(text);
    assert_complains(c, CFG_ERROR, "snapferry.ini:15001", "more than 5000 sections");
    cfg_free(c);
    n = (size_t)sprintf(text, "[daemon]\n");
    for (int i = 0; i < 1100; i++)
        n += (size_t)sprintf(text + n, "backup-option.%d=x\n", i);
    c = cfgdir_load(text);
    assert_complains(c, CFG_ERROR, "snapferry.ini:1002", "more than 1000 keys");
    cfg_free(c);
    free(text);
}

static void numbers_sizes_and_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
    } sizes[] = {{"0", 0},
                 {"4096", 4096},
                 {"1k", 1024},
                 {"2KiB", 2048},
                 {"3 MB", 3 << 20},
                 {"1GiB", 1 << 30},
                 {"7B", 7},
                 {"", -1},
                 {"x", -1},
                 {"-1", -1},
                 {"1.5G", -1},
                 {"1GiBB", -1},
                 {"1 2", -1},
                 {"+1", -1},
                 {"99999999999999999999", -1},
                 {"17179869184G", -1}},
      times[] = {{"90", 90},
                 {"1s", 1},
                 {"30min", 1800},
                 {"1h 30min", 5400},
                 {"1h30m", 5400},
                 {"14d", 14 * 86400},
                 {"2w", 1209600},
                 {"0", 0},
                 {"1500ms", -1},
                 {"2000ms", 2},
                 {"", -1},
                 {"h", -1},
                 {"-5s", -1},
                 {"1y", -1},
                 {"1.5h", -1},
                 {"5 5", 10},
                 {"99999999999999999w", -1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t v = 12345;
        int rc = parse_bytes(&v, sizes[i].text);
        if ((sizes[i].want < 0) != (rc < 0) || (rc == 0 && v != (uint64_t)sizes[i].want))
            fail_msg("size \"%s\": %d %llu", sizes[i].text, rc, (unsigned long long)v);
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t v = 12345;
        int rc = parse_duration(&v, times[i].text);
        if ((times[i].want < 0) != (rc < 0) || (rc == 0 && v != times[i].want))
            fail_msg("duration \"%s\": %d %lld", times[i].text, rc, (long long)v);
    }
}

static void zero_is_refused_where_it_is_not_none(void **state)
{
    (void)state; /* AO-45; RS-06: negative is an error that names the line */
    static const char *const keys[] = {"snapshot-timeout",
                                       "prepare-timeout",
                                       "go-timeout",
                                       "stall-timeout",
                                       "cancel-grace",
                                       "repo-outage-max",
                                       "retry-first",
                                       "retry-max",
                                       "hook-timeout",
                                       "sweep",
                                       "orphan-grace",
                                       "keep-records",
                                       "max-snapshots-per-volume",
                                       "pool-high-water",
                                       "snapshot-only-keep",
                                       "concurrent-backups",
                                       "per-device",
                                       "prepare-ahead",
                                       "memory-total",
                                       "group-max-skew"};
    static const char *const none[] = {"retain-max-age", "snapshot-only-max-age", "max-duration",
                                       "copy-limit",     "snapshots-to-retain",   "retries",
                                       "max-per-class"};
    char text[256];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(text, sizeof text, "[daemon]\n\n%s = 0\n", keys[i]);
        one_error(text, "snapferry.ini:3", "zero does not mean");
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(text, sizeof text, "[daemon]\n%s = 0\n", none[i]);
        cfg_free(no_error(text));
        snprintf(text, sizeof text, "[daemon]\n%s = -3\n", none[i]);
        one_error(text, "snapferry.ini:2", "must not be negative: -3");
    }
    one_error("[daemon]\nsnapshots-to-retain = none\n", "snapferry.ini:2", "integer from 0");
    one_error("[daemon]\npool-high-water = 101\n", "snapferry.ini:2", "out of range");
    one_error("[mover]\nmemory = 64MiB\n", "snapferry.ini:2", "out of range");
    one_error("[daemon]\nmove-data = maybe\n", "snapferry.ini:2", "yes or no expected");
    one_error("[daemon]\nprune = never\n", "snapferry.ini:2", "one of after before");
    one_error("[mover]\nunit-property = MemoryMax=1G\n", "snapferry.ini:2", "set by the key memory-max");
    one_error("[mover]\nunit-property = ExecStart=/bin/sh\n", "snapferry.ini:2", "cannot be set");
    one_error("[mover]\nunit-property = nothing\n", "snapferry.ini:2", "Name=value");
}

static void ranges_are_told_as_people_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"[mover]\nmemory = 64MiB\n", "memory = 64MiB is out of range: 96MiB to 1TiB allowed"},
        {"[mover]\nmemory = 0\n", "at least 96MiB"},
        {"[mover]\nmemory-max = 2TiB\n", "at most 1TiB"},
        {"[mover]\nread-limit = 1KiB\n", "at least 256KiB"},
        {"[mover]\nread-limit = 9EiB\n", "less than 8EiB"},
        {"[plugin \"p\"]\nmax-size = 15EiB\n", "less than 8EiB"},
        {"[daemon]\nsweep = 25h\n", "sweep = 25h is out of range: 1s to 1d allowed"},
        {"[daemon]\nkeep-records = 2s\n", "1min to 36500d allowed"},
        {"[daemon]\nmax-duration = 366d\n", "at most 365d"},
        {"[daemon]\ngroup-max-skew = 61min\n", "1ms to 1h allowed"},
        {"[mover]\ncpus = 3-1\n", "cpus = 3-1: range with end before start"},
        {"[mover]\ncpus = 0,4-2\n", "range with end before start"},
        {"[mover]\ncpus = 1024\n", "numbers are 0 to 1023"},
        {"[mover]\ncpus = 0-99999999999\n", "numbers are 0 to 1023"},
        {"[mover]\ncpus = 3-\n", "a list such as 0-3,8"},
        {"[mover]\ncpus = -3\n", "a list such as 0-3,8"},
        {"[mover]\ncpus = 1,,2\n", "a list such as 0-3,8"},
        {"[mover]\ncpus = all\n", "a list such as 0-3,8"},
        {"[mover]\nlimit-times = 8-18\n", "times such as Mon..Fri 08:00-18:00, Sat 09:00-12:00 expected"},
        {"[mover]\nlimit-times = 08:00\n", "times such as"},
        {"[mover]\nlimit-times = 08:00-18:0\n", "times such as"},
        {"[mover]\nlimit-times = 08:00-24:01\n", "times such as"},
        {"[mover]\nlimit-times = 08:60-18:00\n", "times such as"},
        {"[mover]\nlimit-times = Mo 08:00-18:00\n", "times such as"},
        {"[mover]\nlimit-times = Mon.Fri 08:00-18:00\n", "times such as"},
        {"[mover]\nlimit-times = Mon..Fri\n", "times such as"},
        {"[mover]\nlimit-times = 08:00-18:00 Sat\n", "times such as"},
        {"[mover]\nlimit-times = 08:00-08:00\n", "times that begin when they end"},
        {"[mover]\nlimit-times = 24:00-08:00\n", "times that begin when they end"},
        {"[mover]\nlimit-times = 08:00-18:00,\n", "nothing behind the comma"},
        {"[mover]\nlimit-times = 1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,"
         "1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00,1:00-2:00\n",
         "too many times"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cfg *c = cfgdir_load(cases[i].text);
        assert_complains(c, CFG_ERROR, "snapferry.ini:2", cases[i].words);
        cfg_free(c);
    }
    uint8_t mask[CFG_CPUS_MAX / 8];
    const char *why;
    assert_int_equal(cfg_parse_cpus(mask, "0-3,8,1023", &why), 0);
    assert_int_equal(mask[0], 0x0f);
    assert_int_equal(mask[1], 0x01);
    assert_int_equal(mask[2], 0);
    assert_int_equal(mask[127], 0x80);
}

static void times_of_the_week(void **state)
{
    (void)state;
    static const struct {
        const char *text, *at; /* local, as day (0: Sunday) and clock */
        bool hold;
    } cases[] = {
        {"", "3 12:00", true},
        {"08:00-18:00", "0 08:00", true},
        {"08:00-18:00", "0 17:59", true},
        {"08:00-18:00", "0 18:00", false},
        {"8:00-24:00", "4 23:59", true},
        {"Mon..Fri 08:00-18:00", "1 09:00", true},
        {"Mon..Fri 08:00-18:00", "5 09:00", true},
        {"Mon..Fri 08:00-18:00", "6 09:00", false},
        {"Mon..Fri 08:00-18:00, Sat 09:00-12:00", "6 09:00", true},
        {"Sat..Sun 00:00-24:00", "0 23:59", true},
        {"Sat..Mon 00:00-24:00", "1 10:00", true},
        {"Sat..Mon 00:00-24:00", "2 10:00", false},
        {"Fri 22:00-06:00", "5 23:00", true},
        {"Fri 22:00-06:00", "6 05:59", true},
        {"Fri 22:00-06:00", "6 06:00", false},
        {"Fri 22:00-06:00", "5 05:00", false},
        {"Sun 22:00-06:00", "1 05:00", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cfg_times t;
        struct tm local = {0};
        const char *why = "";
        assert_int_equal(cfg_parse_times(&t, cases[i].text, &why), 0);
        assert_int_equal(sscanf(cases[i].at, "%d %d:%d", &local.tm_wday, &local.tm_hour, &local.tm_min), 3);
        if (cfg_times_hold(&t, &local) != cases[i].hold)
            fail_msg("\"%s\" at %s", cases[i].text, cases[i].at);
    }
    static const char *const zones[] = {"UTC", "UTC-5"};
    struct cfg_times t;
    const char *why = "";
    assert_int_equal(cfg_parse_times(&t, "Mon 13:00-14:00", &why), 0);
    for (int i = 0; i < 2; i++) {
        setenv("TZ", zones[i], 1);
        tzset();
        assert_int_equal(cfg_times_hold_at(&t, 1796027586), i); /* 30 November 2026, 08:33 UTC */
    }
    unsetenv("TZ");
    tzset();
}

static void link_to(const char *target, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cfgdir, name);
    assert_return_code(symlink(target, path), errno);
}

/* What somebody put into conf.d to be read, and is not, is told; what nobody expects to be read is not. */
static void what_is_not_read_is_told(void **state)
{
    (void)state;
    static const char *const files[] = {"50-local.conf", "60-local.INI", "ini",        "10.ini~",        "10.ini.bak",
                                        ".10.ini.swp",   ".hidden.ini",  "README.txt", "10.ini.dpkg-old"};
    char name[64], path[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(name, sizeof name, "conf.d/%s", files[i]);
        cfgdir_write(name, "nonsense\n");
    }
    link_to("/nowhere/70.ini", "conf.d/70.ini");
    cfgdir_write("real.ini", "[daemon]\nslots = 7\n");
    link_to("../real.ini", "conf.d/80.ini");
    struct cfg *c = no_error(REPO);
    assert_int_equal(cfg_daemon(c)->slots, 7);
    assert_complains(c, CFG_WARNING, "conf.d/50-local.conf", "the file is ignored: its name does not end in .ini");
    assert_complains(c, CFG_WARNING, "conf.d/60-local.INI", "is ignored");
    assert_complains(c, CFG_WARNING, "conf.d/ini", "is ignored");
    assert_complains(c, CFG_WARNING, "conf.d/70.ini", "dangling link to /nowhere/70.ini");
    unsigned told = 0;
    for (unsigned i = 0; i < complaints(c); i++)
        told += strstr(cfg_complaint_at(c, i)->where, "/conf.d/") != NULL;
    assert_int_equal(told, 4);
    cfg_free(c);
    static const char *const links[] = {"70.ini", "80.ini"};
    for (size_t i = 0; i < sizeof files / sizeof *files + 2; i++) {
        snprintf(path, sizeof path, "%s/conf.d/%s", cfgdir, i < 2 ? links[i] : files[i - 2]);
        assert_return_code(unlink(path), errno);
    }
}

static void names_that_lead_nowhere(void **state)
{
    (void)state; /* PVC-10, AP-25 */
    one_error(REPO "[storage-class \"gold\"]\ndriver = reflink\nmatch = /a/*\nbackup-storage-class = gould\n",
              "snapferry.ini:7", "no [storage-class \"gould\"]; the nearest known is \"gold\"");
    one_error(REPO "[storage-class \"gold\"]\ndriver = reflink\nmatch = /a/*\nrepository = mian\n", "snapferry.ini:7",
              "the nearest known is \"main\"");
    one_error(REPO "[job \"j\"]\nvolumes = /x class:gold\n", "snapferry.ini:5", "no [storage-class \"gold\"]");
    one_error("[daemon]\nmover = plugin:fast\n", "snapferry.ini:2", "no [plugin \"fast\"]");
    one_error("[plugin \"p\"]\nkind = driver\nprogram = /p\n[daemon]\nmover = plugin:p\n", "snapferry.ini:5",
              "is of kind driver, not mover");
    one_error(REPO "[storage-class \"a\"]\ndriver = plugin:p\nmatch = /a\n", "snapferry.ini:5", "no [plugin \"p\"]");
    one_error(REPO "[volume \"/v\"]\nclass = gold\n", "snapferry.ini:5", "no [storage-class \"gold\"]");
    one_error("[policy \"p\"]\naction = skip\nclass = gold\n", "snapferry.ini:3", "no [storage-class \"gold\"]");
    /* A class for intermediates is nobody's class. */
    one_error(REPO "[storage-class \"s\"]\ndriver = reflink\nmatch =\n[daemon]\nbackup-storage-class = s\n"
                   "[volume \"/v\"]\nclass = s\n",
              "snapferry.ini:10", "has no volumes of its own");
    one_error(REPO "[storage-class \"s\"]\ndriver = reflink\n[daemon]\nbackup-storage-class = s\n"
                   "[job \"j\"]\nvolumes = class:s\n",
              "snapferry.ini:9", "has no volumes of its own");
    struct cfg *c = no_error(REPO "[storage-class \"s\"]\ndriver = reflink\n[volume \"/v\"]\n[driver \"rfelink\"]\n"
                                  "[job \"j\"]\nvolumes = /w\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:4", "not a backup-storage-class");
    assert_complains(c, CFG_WARNING, "snapferry.ini:6", "in no storage class");
    assert_complains(c, CFG_WARNING, "snapferry.ini:7", "no storage class has this driver");
    assert_complains(c, CFG_WARNING, "snapferry.ini:9", "\"/w\" is in no storage class");
    cfg_free(c);
}

static void what_is_missing_or_contradicts_itself(void **state)
{
    (void)state;
    one_error("[storage-class \"a\"]\nmatch = /a\nmove-data = no\n", "snapferry.ini:1", "has no driver");
    one_error("[storage-class \"a\"]\ndriver = reflink\nmatch = /a\n", "snapferry.ini:1", "no [repository] section");
    one_error(REPO "[repository \"b\"]\npath = /b\n[storage-class \"a\"]\ndriver = reflink\nmatch = /a\n",
              "snapferry.ini:6", "repository not set, and there are 2 repositories");
    one_error("[repository \"b\"]\npath = /b\n[storage-class \"a\"]\ndriver = reflink\nmatch = /a\n", "snapferry.ini:1",
              "has no password-file");
    one_error(REPO "[repository \"b\"]\npath = /srv/backup\n", "snapferry.ini:5", "has the same path as");
    one_error("[repository \"b\"]\npath = srv\n", "snapferry.ini:2", "path: absolute path expected");
    one_error("[repository \"b\"]\npath = /b\npassword-file = pw\n", "snapferry.ini:3", "absolute path or cred:NAME");
    one_error("[daemon]\nstate-dir = var\n", "snapferry.ini:2", "absolute path expected");
    one_error("[daemon]\nnode-name = a@b\n", "snapferry.ini:2", "invalid node-name");
    one_error("[job \"j\"]\non-calendar = daily\n", "snapferry.ini:1", "has no volumes");
    one_error("[plugin \"p\"]\nkind = mover\n", "snapferry.ini:1", "has no program");
    one_error("[plugin \"p\"]\nprogram = /p\n", "snapferry.ini:1", "has no kind");
    one_error("[policy \"p\"]\nmatch = *\n", "snapferry.ini:1", "has no action");
    one_error("[policy \"p\"]\naction = skip\nmin-size = 2G\nmax-size = 1G\n", "snapferry.ini:3",
              "larger than max-size");
    one_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = vg/*\n", "snapferry.ini:6", "absolute paths");
    one_error(REPO "[storage-class \"a\"]\ndriver = device\nmatch = /x\ntarget = pool\n", "snapferry.ini:7",
              "must be an absolute path");
    /* RS-08: the new one must fit beside those that stay. */
    one_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /x\nsnapshots-to-retain = 64\n", "snapferry.ini:7",
              "max-snapshots-per-volume = 64 is too low to retain 64");
    one_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /x\nretry-first = 2h\n", "snapferry.ini:7",
              "longer than retry-max");
    one_error("[job \"j\"]\nvolumes = /x*\nmax-snapshots-per-volume = 2\nsnapshots-to-retain = 2\n", "snapferry.ini:4",
              "too low to retain 2");
    /* MS-41: not ignored but refused. */
    one_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /x\nmemory-max = 128MiB\n", "snapferry.ini:7",
              "memory-max is less than memory + index-memory");
    one_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /x\n[volume \"a\"]\nname = /x\n[volume \"b\"]\n"
                   "name = /x\n",
              "snapferry.ini:10", "are the same volume");
    struct cfg *c = no_error("[policy \"all\"]\naction = backup\n[policy \"never\"]\nmatch = /x\naction = skip\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:1", "later policies have no effect");
    cfg_free(c);
    c = no_error(REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /x\n[storage-class \"b\"]\ndriver = reflink\n"
                      "match = /x /y\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:9", "already belongs to [storage-class \"a\"]");
    cfg_free(c);
}

static void s3_has_keys_of_its_own(void **state)
{
    (void)state;
    struct cfg *c = no_error("[repository \"r\"]\ntype = s3\nendpoint = https://s3.example.org:9000\nbucket = b\n"
                             "prefix = nas1/\nregion = eu-1\ncredentials = cred:s3\npassword-file = cred:pw\n");
    assert_null(cfg_complaint_at(c, 0));
    char place[CFG_PLACE_MAX];
    assert_string_equal(cfg_repository_place(cfg_repository(c, "r"), place), "https://s3.example.org:9000/b/nas1/");
    assert_string_equal(cfg_repository(c, "r")->bucket, "b");
    assert_string_equal(cfg_repository(c, "r")->prefix, "nas1/");
    cfg_free(c);
    one_error("[repository \"r\"]\ntype = s3\nendpoint = s3.example.org\ncredentials = cred:s3\n", "snapferry.ini:1",
              "has no bucket");
    one_error("[repository \"r\"]\ntype = s4\npath = /x\n", "snapferry.ini:2", "one of filesystem s3");
    c = no_error("[repository \"r\"]\npath = /x\nbucket = b\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:3", "not used with type = filesystem");
    cfg_free(c);
}

static void two_jobs_keep_one_volume_in_one_way(void **state)
{
    (void)state;
#define CLASSES REPO "[storage-class \"a\"]\ndriver = reflink\nmatch = /v/*\n"
    one_error(CLASSES "[job \"x\"]\nvolumes = /v/1\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/*\nkeep-daily = 8\n",
              "snapferry.ini:10", "set different retention for \"/v/1\": keep-daily = 7; keep-daily = 8");
    one_error(CLASSES "[job \"x\"]\nvolumes = class:a\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/*\nkeep-weekly = 8\n",
              "snapferry.ini:10", "different retention");
    /* The same numbers, numbers in one job only, other volumes, or the volume's own word. */
    cfg_free(no_error(CLASSES "[job \"x\"]\nvolumes = /v/1\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/*\n"
                              "keep-daily = 7\n"));
    cfg_free(no_error(CLASSES "[job \"x\"]\nvolumes = /v/1\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/1\n"));
    cfg_free(no_error(CLASSES "[job \"x\"]\nvolumes = /v/1\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/2\n"
                              "keep-daily = 8\n"));
    cfg_free(no_error(CLASSES "[job \"x\"]\nvolumes = /v/1\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/1\n"
                              "keep-daily = 8\n[volume \"/v/1\"]\nkeep-daily = 9\n"));
    /* Patterns that only a real volume shows to meet. */
    struct cfg *c = no_error(CLASSES "[job \"x\"]\nvolumes = /v/a*\nkeep-daily = 7\n[job \"y\"]\nvolumes = /v/*b\n"
                                     "keep-daily = 8\n");
    cfg_check_volume(c, cfg_named("/v/a1"));
    assert_int_equal(cfg_errors(c), 0);
    cfg_check_volume(c, cfg_named("/v/ab"));
    cfg_check_volume(c, cfg_named("/v/aab")); /* told once */
    assert_int_equal(cfg_errors(c), 1);
    assert_complains(c, CFG_ERROR, "snapferry.ini:10", "different retention for \"/v/ab\"");
    cfg_free(c);
}

static void one_mover_plugin_for_a_volume(void **state)
{
    (void)state; /* AP-03, AP-18 */
#define MOVERS(more)                                                                                                   \
    CLASSES                                                                                                            \
    "[plugin \"p\"]\nkind = mover\nprogram = /p\nmatch-class = a\n[plugin \"q\"]\nkind = mover\nprogram = /q\n"        \
    "match-path = /v/big*\n" more
    one_error(MOVERS(""), "snapferry.ini:11", "may match the same volume with the same priority 50");
    struct cfg *c = no_error(MOVERS("priority = 60\nmin-size = 1TiB\n"));
    struct cfg_policy p;
    struct err e = ERR_INIT;
    assert_ok(cfg_policy(c, cfg_named("/v/1"), NULL, &p, &e), &e);
    assert_string_equal(p.mover, "plugin:p"); /* whatever the size is */
    cfg_policy_clear(&p);
    static const struct {
        const char *volume;
        uint64_t size;
        const char *mover;
    } sized[] = {
        {"/v/big1", UINT64_C(2) << 40, "plugin:q"}, {"/v/big1", UINT64_C(1) << 30, "plugin:p"}, {"/elsewhere", 1, ""}};
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
        assert_ok(cfg_policy(c, cfg_named(sized[i].volume), NULL, &p, &e), &e);
        assert_ok(cfg_policy_size(c, &p, cfg_named(sized[i].volume), sized[i].size, &e), &e);
        assert_string_equal(p.mover, sized[i].mover);
        cfg_policy_clear(&p);
    }
    assert_ok(cfg_policy(c, cfg_named("/v/big1"), NULL, &p, &e), &e);
    assert_string_equal(p.mover, ""); /* the size decides */
    assert_ok(cfg_policy_size(c, &p, cfg_named("/v/big1"), UINT64_C(2) << 40, &e), &e);
    assert_string_equal(p.mover, "plugin:q");
    cfg_policy_clear(&p);
    assert_ok(cfg_policy(c, cfg_named("/v/1"), NULL, &p, &e), &e);
    assert_string_equal(p.mover, "plugin:p");
    cfg_policy_clear(&p);
    const struct cfg_plugin *g = cfg_plugin(c, "p"); /* AP-05, AP-10, AP-15 */
    assert_int_equal(g->start_timeout_s, 30);
    assert_int_equal(g->poll_s, 10);
    assert_int_equal(g->progress_retry, 5);
    assert_string_equal(g->user, "nobody");
    cfg_free(c);
    c = no_error("[plugin \"p\"]\nkind = driver\nprogram = /p\nprivileged = yes\nuser = root\n"); /* AP-21 */
    assert_true(cfg_plugin(c, "p")->privileged);
    assert_string_equal(cfg_plugin(c, "p")->user, "");
    cfg_free(c);
}

/* A configuration of an earlier version loads; what is gone is reported where it stands. */
static void removed_keys_are_warnings(void **state)
{
    (void)state;
    struct cfg *c = no_error("[metrics]\nlisten = 127.0.0.1:9747\ntls-certificate = cred:crt\ntls-key = /k\n"
                             "users-file = /u\n  and what an indented line adds\nseries-max = 500\n");
    assert_complains(c, CFG_WARNING, "snapferry.ini:3", "tls-certificate was removed in 0.2");
    assert_complains(c, CFG_WARNING, "snapferry.ini:4", "tls-key was removed in 0.2");
    assert_complains(c, CFG_WARNING, "snapferry.ini:5", "users-file was removed in 0.2");
    assert_int_equal(complaints(c), 3);
    assert_non_null(strstr(cfg_complaint_at(c, 0)->hint, "snapferry-metrics(7)"));
    assert_string_equal(cfg_metrics(c)->closed, "tls-certificate was removed in 0.2");
    assert_int_equal(cfg_metrics(c)->series_max, 500);
    cfg_free(c);
    /* one that is empty closes nothing, nor one that a later file has emptied */
    cfgdir_write("conf.d/90.ini", "[metrics]\nusers-file =\n");
    c = no_error("[metrics]\nusers-file = /u\n");
    assert_complains(c, CFG_WARNING, "conf.d/90.ini:2", "users-file was removed in 0.2");
    assert_int_equal(complaints(c), 1);
    assert_string_equal(cfg_metrics(c)->closed, "");
    cfg_free(c);
    cfgdir_write("conf.d/90.ini", "");
    /* in its own section only, and not twice */
    one_error("[daemon]\ntls-key = /k\n", "snapferry.ini:2", "unknown key tls-key");
    one_error("[metrics]\ntls-key = /k\ntls-key = /l\n", "snapferry.ini:3", "tls-key is set twice");
}

static void one_address_is_served(void **state)
{
    (void)state;
    struct cfg *c = no_error("[metrics]\nlisten = 127.0.0.1:1 unix:/m.sock\n  10.0.0.1:2\n");
    assert_string_equal(cfg_metrics(c)->listen[0], "127.0.0.1:1");
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "not served at unix:/m.sock, only at 127.0.0.1:1");
    assert_complains(c, CFG_WARNING, "snapferry.ini:2", "not served at 10.0.0.1:2");
    cfg_free(c);
}

static void a_configuration_is_counted(void **state)
{
    (void)state;
    struct cfg *c = no_error("[daemon]\nslots = 3\n"), *same = cfg_ref(c);
    cfg_free(c);
    assert_int_equal(cfg_daemon(same)->slots, 3);
    cfg_free(same);
    assert_null(cfg_ref(NULL));
    cfg_free(NULL);
}

static void the_document_is_complete(void **state)
{
    (void)state;
    struct cfg *c = cfgdir_load(REPO "[volume \"/v\"]\nbackup-option.x.y = 1\nbad = 1\n");
    json_t *j = cfg_json(c), *s;
    size_t i;
    bool found = false;
    assert_non_null(j);
    json_array_foreach(json_object_get(j, "sections"), i, s)
    {
        const char *kind = json_string_value(json_object_get(s, "kind"));
        json_t *keys = json_object_get(s, "keys");
        assert_non_null(kind);
        if (!strcmp(kind, "daemon")) /* what nobody says is shown too */
            assert_string_equal(json_string_value(json_object_get(json_object_get(keys, "prepare-ahead"), "value")),
                                "3");
        if (!strcmp(kind, "volume")) {
            const char *origin =
                json_string_value(json_object_get(json_object_get(keys, "backup-option.x.y"), "origin"));
            assert_non_null(origin);
            assert_non_null(strstr(origin, "snapferry.ini:5"));
            found = true;
        }
    }
    assert_true(found);
    assert_int_equal(json_array_size(json_object_get(j, "complaints")), 2);
    assert_string_equal(json_string_value(json_object_get(j, "hash")), cfg_hash(c));
    json_decref(j);
    cfg_free(c);
}

static const char *class_by(const struct cfg *c, const char *name, const char *labels)
{
    const struct cfg_class *k = cfg_class_of(c, (struct cfg_subject){name, labels});
    return k ? k->name : "none";
}

static void labels_select_volumes(void **state)
{
    (void)state;
    struct cfg *c = no_error(REPO "[storage-class \"path\"]\ndriver = lvm-thin\nmatch = /dev/vg0/first*\n"
                                  "[storage-class \"tagged\"]\ndriver = lvm-thin\nmatch = tag:db tag:web-*\n"
                                  "[storage-class \"pool\"]\ndriver = lvm-thin\nmatch = pool:vg0/fast\n"
                                  "[storage-class \"group\"]\ndriver = lvm\nmatch = vg:old* /dev/vg9/last tag:thick\n"
                                  "[volume \"/dev/vg0/own\"]\nclass = group\n"
                                  "[policy \"not\"]\nmatch = tag:no-backup\naction = skip\n"
                                  "[job \"j\"]\nvolumes = class:tagged tag:also\n"
                                  "[job \"k\"]\nvolumes = /dev/vg0/anything\n");
    const struct cfg_job *j = cfg_job(c, "j");
    assert_int_equal(complaints(c), 0); /* what /dev/vg0/anything has for labels is not known here */
    assert_string_equal(class_by(c, "/dev/vg0/x", NULL), "none");
    assert_string_equal(class_by(c, "/dev/vg0/x", ""), "none");
    assert_string_equal(class_by(c, "/dev/vg0/x", "vg:vg0 tag:db"), "tagged");
    assert_string_equal(class_by(c, "/dev/vg0/x", "tag:db vg:vg0"), "tagged");
    assert_string_equal(class_by(c, "/dev/vg0/x", "tag:dbs vg:vg0"), "none"); /* all of it, or a pattern */
    assert_string_equal(class_by(c, "/dev/vg0/x", "tag:d"), "none");
    assert_string_equal(class_by(c, "/dev/vg0/x", "tag:web-"), "tagged");
    assert_string_equal(class_by(c, "/dev/vg0/x", "tag:web-1/a"), "none"); /* FNM_PATHNAME */
    assert_string_equal(class_by(c, "/dev/vg0/x", "vg:db"), "none");       /* of the same kind */
    assert_string_equal(class_by(c, "/dev/vg0/x", "pool:vg0/fast tag:other"), "pool");
    assert_string_equal(class_by(c, "/dev/vg0/first1", "tag:db"), "path"); /* the first in the file */
    assert_string_equal(class_by(c, "/dev/vg0/x", "tag:thick tag:db"), "tagged");
    assert_string_equal(class_by(c, "/dev/old/x", "vg:old"), "group");
    assert_string_equal(class_by(c, "/dev/vg9/last", NULL), "group");
    assert_string_equal(class_by(c, "/dev/vg0/own", "tag:db"), "group");
    /* A name that looks like a label is not one. */
    assert_string_equal(class_by(c, "tag:db", NULL), "tagged");
    assert_true(cfg_matches_labels(c, NULL) && cfg_matches_labels(c, cfg_class(c, "group")));
    assert_false(cfg_matches_labels(c, cfg_class(c, "path")));
    assert_true(cfg_job_has(c, j, (struct cfg_subject){"/dev/vg0/x", "tag:db"}));
    assert_true(cfg_job_has(c, j, (struct cfg_subject){"/dev/vg0/first", "tag:also"}));
    assert_false(cfg_job_has(c, j, (struct cfg_subject){"/dev/vg0/first", "tag:db"}));
    assert_true(cfg_excluded(c, cfg_class(c, "tagged"), (struct cfg_subject){"/v", "tag:db tag:no-backup"}, 1));
    assert_false(cfg_excluded(c, cfg_class(c, "tagged"), (struct cfg_subject){"/v", "tag:db"}, 1));
    assert_true(cfg_word_matches("tag:a*", (struct cfg_subject){"/v", "tag:ab"}));
    assert_false(cfg_word_matches("class:a", (struct cfg_subject){"/v", "class:a"}));
    struct cfg_policy p;
    assert_int_equal(cfg_policy(c, (struct cfg_subject){"/dev/vg0/x", "tag:db"}, NULL, &p, NULL), 0);
    assert_string_equal(p.klass, "tagged");
    cfg_policy_clear(&p);
    /* Longer than any label that can be: not compared, and nothing behind it is lost. */
    char labels[3000];
    memset(labels, 'x', sizeof labels);
    memcpy(labels, "tag:", 4);
    strcpy(labels + 2000, " tag:db");
    assert_string_equal(class_by(c, "/dev/vg0/x", labels), "tagged");
    cfg_free(c);
}

static void labels_that_no_driver_has(void **state)
{
    (void)state;
    static const struct {
        const char *driver, *word, *said;
    } cases[] = {{"lvm-thin", "tags:db", "paths, vg:, pool: or tag:, not \"tags:db\""},
                 {"lvm-thin", "db", "paths, vg:, pool: or tag:, not \"db\""},
                 {"lvm", "pool:vg0/a", "paths, vg:, or tag:, not \"pool:vg0/a\""},
                 {"zfs", "tank/vm/*", "dataset:, pool: or tag:, not \"tank/vm/*\""},
                 {"zfs", "vg:tank", "dataset:, pool: or tag:, not \"vg:tank\""},
                 {"reflink", "tag:db", "absolute paths, not \"tag:db\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, REPO "[storage-class \"c\"]\ndriver = %s\nmatch = %s\n", cases[i].driver,
                 cases[i].word);
        struct cfg *c = NULL;
        struct err e = ERR_INIT;
        cfgdir_write("snapferry.ini", text);
        assert_true(cfg_load_dir(&c, cfgdir, &e) < 0);
        if (!strstr(cfg_complaint_at(c, 0)->text, cases[i].said))
            fail_msg("%zu: %s", i, cfg_complaint_at(c, 0)->text);
        cfg_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_documented_example_passes_with_warnings_only),
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(slots_by_node),
        cmocka_unit_test(far_words_are_not_suggested),
        cmocka_unit_test(every_error_of_every_file_at_once),
        cmocka_unit_test(drop_ins_merge_and_win),
        cmocka_unit_test(lines_that_inih_would_change_are_refused_or_kept),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(thousands_of_mistakes_are_counted_not_stored),
        cmocka_unit_test(numbers_sizes_and_times),
        cmocka_unit_test(zero_is_refused_where_it_is_not_none),
        cmocka_unit_test(ranges_are_told_as_people_write_them),
        cmocka_unit_test(times_of_the_week),
        cmocka_unit_test(what_is_not_read_is_told),
        cmocka_unit_test(names_that_lead_nowhere),
        cmocka_unit_test(what_is_missing_or_contradicts_itself),
        cmocka_unit_test(s3_has_keys_of_its_own),
        cmocka_unit_test(two_jobs_keep_one_volume_in_one_way),
        cmocka_unit_test(one_mover_plugin_for_a_volume),
        cmocka_unit_test(removed_keys_are_warnings),
        cmocka_unit_test(one_address_is_served),
        cmocka_unit_test(a_configuration_is_counted),
        cmocka_unit_test(labels_select_volumes),
        cmocka_unit_test(labels_that_no_driver_has),
        cmocka_unit_test(the_document_is_complete),
    };
    return cmocka_run_group_tests(tests, cfgdir_make, cfgdir_remove);
}
