/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zfs-standin.h - a stand-in for zfs(8) that has bookmarks, for faults and histories which are hard to make */
#ifndef SNAPFERRY_TESTS_UNIT_ZFS_STANDIN_H
#define SNAPFERRY_TESTS_UNIT_ZFS_STANDIN_H

#include "tests/unit/places.h"
#include "tests/unit/test.h"

#include "io/native/zfs.h"

#include <fcntl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/snapferry-zfs-XXXXXX";
#define ALIAS "11111111-2222-4333-8444-555555555555"
#define POOL_GUID "14735839334937578500"
#define MARK "tank/vm/d1#snapferry-" ALIAS ":" POOL_GUID ":n"
#define S1_GUID "10004321963652763769"

static void stand_in(const char *text)
{
    static char path[300];
    char script[2300];
    snprintf(path, sizeof path, "%s/zfs", dir);
    unlink(path);
    int n = snprintf(script, sizeof script, "#!/bin/sh\n%s\n", text);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    assert_true((size_t)n < sizeof script && fd >= 0 && write(fd, script, (size_t)n) == n && close(fd) == 0);
    zfs_programs_test(path, path);
}

static void file_in_dir(const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_true(f && fprintf(f, "%s\n", text) > 0 && fclose(f) == 0);
}

/* The volume and its snapshots, as `zfs list` has them beside the bookmarks. */
static void lineage(const char *read_only, const char *snapshots)
{
    char text[500];
    snprintf(text, sizeof text, "tank/vm/d1\t10\t1764390000\t%s%s%s\ntank/vm/d1@s2\t28\t1764490000\t-", read_only,
             *snapshots ? "\n" : "", snapshots);
    file_in_dir("lineage", text);
}

/* ZFS with bookmarks in a file, snapshot s2 and no longer s1. */
static void stand_in_with_bookmarks(const char *marks)
{
    char script[2100], path[300];
    char *CLEANUP_FREE report = realpath(fixture_path("zfs/get"), NULL);
    char *CLEANUP_FREE pool = realpath(fixture_path("zfs/pool"), NULL);
    char *CLEANUP_FREE stream = realpath(fixture_path("zfs/embedded.stream"), NULL);
    snprintf(path, sizeof path, "%s/marks", dir);
    FILE *f = fopen(path, "w");
    assert_true(f && fputs(marks, f) >= 0 && fclose(f) == 0);
    snprintf(script, sizeof script,
             "echo \"$*\" >>%s/calls\n"
             "marks=%s/marks tab=$(printf '\\t') last=$(eval echo \\\"\\$$#\\\")\n"
             "has() { grep -q \"^$1$tab\" $marks; }\n"
             "case \"$*\" in\n"
             "list*creation) cat $marks ;;\n"
             "list*readonly*) cut -f1,3,4 $marks | sed \"s/$/$tab-/\"; cat %s/lineage ;;\n"
             "list*) grep \"^$last#\" $marks; true ;;\n"
             "bookmark*) has \"$3\" && { echo \"cannot create bookmark '$3': bookmark exists\" >&2; exit 1; }\n"
             "    printf '%%s\\t" S1_GUID "\\t19\\t1764400000\\n' \"$3\" >>$marks ;;\n"
             "destroy*) has \"$2\" || { echo \"bookmark '$2' does not exist.\" >&2; exit 1; }\n"
             "    grep -v \"^$2$tab\" $marks >$marks.new; mv $marks.new $marks ;;\n"
             "send*" MARK "*|\"send -L -c -e tank/vm/d1@s2\") cat %s ;;\n"
             "*property,source,value*) sed -e '/d1@s1/d' -e \"/d1@s2.snapferry:owner/s|-.-$|local$tab$(cat "
             "%s/owner)|\" %s ;;\n"
             "*property,value*) cat %s ;;\n"
             "*) echo \"unexpected: $*\" >&2; exit 1 ;;\nesac",
             dir, dir, dir, stream, dir, report, pool);
    stand_in(script);
    snprintf(path, sizeof path, "%s/calls", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/lineage", dir);
    if (access(path, F_OK) < 0)
        lineage("off", "");
}

static void files_removed(void)
{
    static const char *const names[] = {"marks", "marks.new", "calls",
                                        "owner", "lineage",   "send_holes_without_birth_time"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
}

/* The newer one is ours. */
static void own_s2(const struct native *s2)
{
    char value[ZFS_VALUE_MAX];
    struct zfs_tag *CLEANUP_FREE t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->kind = ZFS_NATIVE;
    t->tag = s2->tag;
    t->size = s2->size;
    t->pool = 14735839334937578500u;
    t->volume = 10282077169542838889u;
    snprintf(t->node, sizeof t->node, "n");
    assert_int_equal(zfs_tag_write(t, value, NULL), 0);
    file_in_dir("owner", value);
}

/* How often all volumes were searched. */
static unsigned searches(void)
{
    char path[300], line[500];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/calls", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strncmp(line, "get -Hp -t volume -o name,property,source,value", 47) == 0 && !strstr(line, " tank/");
    fclose(f);
    return n;
}

static void assert_marks(const char *want)
{
    char path[300], got[2000] = "";
    snprintf(path, sizeof path, "%s/marks", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    got[n] = '\0';
    assert_string_equal(got, want);
}

#endif
