/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * find_key - where the key of a repository is: in a process's memory, as a core dump would have it, and in files
 *
 * find_key REPOSITORY PASSWORD PID DIRECTORY...
 * find_key REPOSITORY PASSWORD -w FILE: writes it, so that a test can see that it would be found.
 * find_key -t TEXT PID DIRECTORY...: this text of 8 to 64 bytes instead, as a secret key of S3.
 * Derives the key from the password and prints "core MAP" for each place in readable memory that a core dump would
 * have, "kept MAP" for one that is left out of it (MADV_DONTDUMP), and "file PATH" for each file with the key in it.
 */
#include "base/cleanup.h"
#include "repo/blob.h"
#include "repo/format.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE (1u << 20)

static uint8_t key[64], *buf;
static size_t key_len = 32;

/* Whether the bytes from `at` to `end` of a file have it. */
static bool has_key(int fd, off_t at, off_t end)
{
    while (at < end) {
        size_t want = end - at < PIECE ? (size_t)(end - at) : PIECE;
        ssize_t n = pread(fd, buf, want, at);
        if (n <= 0) { /* of memory: a page that cannot be read */
            at += 4096;
            continue;
        }
        if (memmem(buf, (size_t)n, key, key_len))
            return true;
        if ((size_t)n <= key_len)
            return false;
        at += n == (ssize_t)want && at + n == end ? n : n - (ssize_t)key_len;
    }
    return false;
}

static int look_at_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && has_key(fd, 0, st->st_size))
        printf("file %s\n", path);
    return 0;
}

static int look_at_memory(int pid)
{
    char path[64], line[4400], map[4400] = "";
    unsigned long from = 0, to = 0;
    bool readable = false;
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/smaps", pid);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    if (fd < 0 || !f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        unsigned long a, b;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &a, &b, rights) == 3) {
            from = a;
            to = b;
            readable = rights[0] == 'r';
            snprintf(map, sizeof map, "%s", line);
        } else if (readable && !strncmp(line, "VmFlags:", 8) && has_key(fd, (off_t)from, (off_t)to)) {
            printf("%s %s", strstr(line, " dd") ? "kept" : "core", map);
        }
    }
    return 0;
}

/* The key of a repository, or the text of -t. */
static int set_key(const char *where, const char *secret)
{
    struct err e = ERR_INIT;
    struct blobs *b = NULL;
    struct repo_format *f = NULL;
    if (!strcmp(where, "-t")) {
        key_len = strlen(secret);
        if (key_len < 8 || key_len > sizeof key)
            return -1;
        memcpy(key, secret, key_len);
        return 0;
    }
    int rc = blobs_open_dir(&b, where, BLOBS_OPEN, NULL, 0, &e);
    if (rc == 0)
        rc = format_load(&f, b, secret, &e);
    if (rc < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return rc;
    }
    memcpy(key, f->format_key, key_len);
    format_free(f);
    blobs_free(b);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: find_key REPOSITORY PASSWORD PID DIRECTORY...\n", stderr);
        return 2;
    }
    buf = malloc(PIECE);
    if (!buf || set_key(argv[1], argv[2]) < 0)
        return 1;
    if (!strcmp(argv[3], "-w")) {
        CLEANUP_FCLOSE FILE *out = argc == 5 ? fopen(argv[4], "we") : NULL;
        for (unsigned i = 0; out && i < 2 * PIECE - 7; i++) /* across the border of two pieces */
            putc((int)(i % 251), out);
        return out && fwrite(key, 1, key_len, out) == key_len ? 0 : 1;
    }
    if (look_at_memory(atoi(argv[3])) < 0) {
        perror(argv[3]);
        return 1;
    }
    for (int i = 4; i < argc; i++)
        if (nftw(argv[i], look_at_file, 32, FTW_PHYS) < 0)
            perror(argv[i]);
    free(buf);
    return 0;
}
