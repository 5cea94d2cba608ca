/* SPDX-License-Identifier: GPL-2.0-or-later */
/* driver_suite-volumes.h - restores to logical volumes and zvols; a part of driver_suite.c */
#ifndef SNAPFERRY_TESTS_DRIVER_SUITE_VOLUMES_H
#define SNAPFERRY_TESTS_DRIVER_SUITE_VOLUMES_H

#define ZVOLS "/dev/zvol/"

/* The volume of a path, and its id. */
static bool is_volume(const char *path, struct volume *v)
{
    return d->resolve(&own, path, v, &e) == 0;
}

static bool holds(const char *path, uint64_t seed)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && has_pattern(fd, 0, 4 * MIB, seed);
}

static void test_lv_replaced(const char *path, const struct volume *v, bool thin)
{
    struct restore_target t;
    struct volume now;
    char alias[ALIAS_LEN + 1];
    refused(d->target(&own, path, 4 * MIB, "not-an-alias", TARGET_REPLACE, &t, &e), ERR_USAGE, "an alias that is none");
    alias_new(alias);
    if (thin)
        refused(d->target(&own, path, 4 * MIB, alias, TARGET_NEW, &t, &e), ERR_TARGET, "an existing one is refused");
    else
        not_of("an existing one is refused", "one without a signature is written to in place, as other devices are");
    ok(d->target(&own, path, 4 * MIB, alias, TARGET_REPLACE, &t, &e) == 0 && fill_target(&t, 7), "unless told");
    ok(holds(path, thin ? 6 : 7), thin ? "it is whole until the commit" : "it is written to in place");
    ok(d->target_commit(&own, &t, &e) == 0 && d->target_commit(&own, &t, &e) == 0 && holds(path, 7),
       "committed, twice");
    ok(is_volume(path, &now) && strcmp(now.id, v->id) == 0, "it stays the volume that it was");
    ok(exposed(&own, "").all == 0, "nothing is left for the sweep");
    alias_new(alias);
    ok(d->target(&own, path, 4 * MIB, alias, TARGET_REPLACE, &t, &e) == 0 && d->target_abort(&own, &t, &e) == 0 &&
           d->target_abort(&own, &t, &e) == 0,
       "aborted, twice");
    ok(is_volume(path, &now) && holds(path, 7) && exposed(&own, "").all == 0, "the volume stays as it was");
    if (thin)
        refused(d->target_commit(&own, &t, &e), ERR_NOT_FOUND, "nothing is left to commit");
    /* How often a zvol is open is not known, whether somebody claims it is. */
    CLEANUP_CLOSE int user = open(path, O_RDONLY | O_CLOEXEC | (zfs ? O_EXCL : 0));
    ok(user >= 0 && is_volume(path, &now) && (zfs || now.in_use), "one that is open is in use");
    if (thin)
        refused(d->target(&own, path, 4 * MIB, alias, TARGET_REPLACE, &t, &e), ERR_TARGET, "and not replaced");
}

/* What is not written by a differential restore, or outside of a range, stays. */
static void test_lv_updated(const char *path)
{
    struct restore_target t;
    char alias[ALIAS_LEN + 1];
    alias_new(alias);
    ok(d->target(&own, path, 8 * MIB, alias, TARGET_PATCH, &t, &e) == 0 && t.size >= 8 * MIB && holds(t.path, 7),
       "a range is written into a copy of what is there");
    ok(write_pattern(t.path, 4 * MIB, MIB, 9) && holds(path, 7) && d->target_commit(&own, &t, &e) == 0 &&
           holds(path, 7),
       "the rest stays");
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ok(fd >= 0 && has_pattern(fd, 4 * MIB, MIB, 9), "the range is there");
}

static void test_lv_from_native(const char *path)
{
    struct restore_target t;
    struct volume v, now;
    struct native n;
    char alias[ALIAS_LEN + 1];
    ok(write_pattern(path, 0, 4 * MIB, 8), "restore from a native snapshot (RS-22)");
    if (!take(path, &v, &n))
        return;
    ok(write_pattern(path, 0, 4 * MIB, 10), "the volume changes");
    alias_new(alias);
    ok(d->target(&own, path, n.size, alias, TARGET_REPLACE, &t, &e) == 0 &&
           d->target_from_native(&own, &n, &t, &unwatched, &e) == 0 &&
           d->target_from_native(&own, &n, &t, &unwatched, &e) == 0 && holds(path, 10) &&
           d->target_commit(&own, &t, &e) == 0,
       "filled, twice, and committed");
    ok(holds(path, 8) && is_volume(path, &now) && strcmp(now.id, v.id) == 0, "it is as it was, the same volume");
    ok(d->find(&own, &v, n.tag.alias, "", &n, &e) == 0, "the snapshot stays");
    drop(&n);
}

static void test_target_lv(void)
{
    struct restore_target t, again, back;
    struct volume v;
    char alias[ALIAS_LEN + 1], path[VOLUME_NAME_MAX], parent[VOLUME_NAME_MAX];
    const bool thin = zfs || strcmp(own.driver, "lvm-thin") == 0;
    snprintf(parent, sizeof parent, "%s", name);
    snprintf(path, sizeof path, "%s/restored-_.%s1", dirname(parent), zfs ? "" : "+");
    alias_new(alias);
    ok(d->target(&own, path, 5 * MIB + 1, alias, TARGET_NEW, &t, &e) == 0 && strcmp(t.path, path) != 0, "a new volume");
    ok(!exists(path) && exists(t.path) && fill_target(&t, 6), "is made under another name (CF-27)");
    struct volume_search s = {.want = t.handle};
    ok(d->volumes(&own, on_volume, &s, &e) == 0 && s.hits == 0, "what is not complete is no volume");
    refused(d->resolve(&own, t.handle, &v, &e), ERR_USAGE, "nor when it is named");
    ok(exposed(&own, alias).hits == 1, "but seen by the sweep");
    ok(d->target(&own, path, 5 * MIB + 1, alias, TARGET_NEW, &again, &e) == 0 && memcmp(&t, &again, sizeof t) == 0,
       "asked again it is the same");
    json_t *j = target_to_json(&t);
    ok(j && target_from_json(&back, j, &e) == 0 && memcmp(&back, &t, sizeof t) == 0, "as a document and back");
    json_decref(j);
    ok(d->target_commit(&own, &t, &e) == 0 && exists(path) && !exists(t.handle), "committed");
    ok(d->target_commit(&own, &t, &e) == 0, "committed again: nothing to do");
    ok(exposed(&own, alias).hits == 0, "nothing is left for the sweep");
    ok(is_volume(path, &v) && v.size >= 5 * MIB + 1 && holds(path, 6), "it is a volume now");
    test_lv_replaced(path, &v, thin);
    if (thin) {
        test_lv_updated(path);
        test_lv_from_native(path);
    }
    alias_new(alias);
    ok(d->target(&own, path, 5 * MIB, alias, TARGET_REPLACE, &t, &e) == 0, "given up without its handle");
    struct exposure bare = {.mechanism = EXPOSE_NATIVE};
    snprintf(bare.alias, sizeof bare.alias, "%s", alias);
    ok(d->unexpose(&own, &bare, &e) == 0 && exposed(&own, "").all == 0, "the sweep removes it by its alias");
    refused(d->target(&own, zfs ? "/dev/zvol/no-such-pool/x" : "/dev/no-such-group/x", MIB, alias, TARGET_NEW, &t, &e),
            ERR_NOT_FOUND, "no such group or pool");
    refused(d->target(&own, zfs ? "/dev/zvol/pool/x@y" : "/dev/group/-rf", MIB, alias, TARGET_NEW, &t, &e), ERR_USAGE,
            "a name that is an option or a snapshot");
    snprintf(parent, sizeof parent, zfs ? "zfs destroy %s" : "lvremove -q -y %s", path + (zfs ? strlen(ZVOLS) : 0));
    ok(system(parent) == 0, "the test's volume is removed");
}

#endif
