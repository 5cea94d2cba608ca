/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/place-key.h"

#include "base/bytes.h"
#include "base/err.h"
#include "io/nbd-uri.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void hashed_key(const char *kind, const char *text, char *ret, size_t cap)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)text, strlen(text), hash);
    snprintf(ret, cap, "%s-%016llx%016llx", kind, (unsigned long long)get_be64(hash),
             (unsigned long long)get_be64(hash + 8));
}

/* Of a device's name as it was given, without following links: its number, and names like /dev/dm-3, may be those of
 * another device after a reboot. */
static void device_key(const char *name, char *ret, size_t cap)
{
    char text[2 * 4096] = "";
    if (name[0] != '/' && !getcwd(text, sizeof text / 2))
        text[0] = '\0';
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s%s", name[0] == '/' ? "" : "/", name);
    hashed_key("device", text, ret, cap);
}

/* Of an export's address, in the one way to write it; False: it is none. */
static bool export_key(const char *address, char *ret, size_t cap)
{
    struct err ignored = ERR_INIT;
    struct nbd_uri u;
    char text[NBD_URI_MAX];
    if (nbd_uri_parse(&u, address, &ignored) < 0)
        return false;
    u.no_extents = false;
    nbd_uri_text(&u, text);
    hashed_key("export", text, ret, cap);
    return true;
}

/* Of a file, by what a reboot leaves as it is: its inode number and time of birth, which distinguishes it from a later
 * file of that number. The number of its device, and of a subvolume of btrfs, may be another one afterwards; it takes
 * the place of the time where the file system has none. */
static void file_key(const char *name, int fd, const struct stat *st, char *ret, size_t cap)
{
    struct statx sx = {0};
    int rc = fd >= 0 ? statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &sx) : statx(AT_FDCWD, name, 0, STATX_BTIME, &sx);
    if (rc == 0 && (sx.stx_mask & STATX_BTIME))
        snprintf(ret, cap, "file-%jx-%llx-%x", (uintmax_t)st->st_ino, (unsigned long long)sx.stx_btime.tv_sec,
                 sx.stx_btime.tv_nsec);
    else
        snprintf(ret, cap, "file-%jx-of-%jx", (uintmax_t)st->st_ino, (uintmax_t)st->st_dev);
}

void place_key(const char *name, int fd, const struct stat *st, char *ret, size_t cap)
{
    if (S_ISSOCK(st->st_mode) && export_key(name, ret, cap))
        return;
    if (S_ISBLK(st->st_mode))
        device_key(name, ret, cap);
    else
        file_key(name, fd, st, ret, cap);
}
