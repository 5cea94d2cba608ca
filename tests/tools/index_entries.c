/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * index_entries - what the index of a repository says of each content, in a line each
 *
 *   index_entries REPO PASSWORD-FILE
 *
 * Content id, pack, end of the content in the pack, stored bytes, time (seconds), and live, deleted (marked, still
 * listed) or dropped (marked at or before the watermark). Only the entry that stands of each content.
 */
#include "base/password.h"
#include "repo/repo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int entry_print(const struct index_entry *x, enum index_standing standing, void *arg)
{
    char id[CONTENT_ID_TEXT];
    (void)arg;
    if (standing == INDEX_LOSER)
        return 0;
    printf("%s %s %" PRIu64 " %u %" PRId64 " %s\n", content_id_text(&x->id, id), x->pack,
           (uint64_t)x->offset + x->packed, x->packed, x->time,
           standing == INDEX_HIDDEN ? "dropped"
           : x->deleted             ? "deleted"
                                    : "live");
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    struct repo *r = NULL;
    char *password = NULL;
    if (argc != 3)
        return 2;
    if (password_read(&password, argv[2], false, &e) < 0 || blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, &e) < 0 ||
        repo_open(&r, b, password, &(struct repo_opts){0}, &e) < 0 ||
        index_set_each_all(repo_index(r), entry_print, NULL, &e) < 0) {
        fprintf(stderr, "index_entries: %s\n", e.msg);
        return 1;
    }
    repo_free(r);
    password_free(password);
    return fflush(stdout) ? 1 : 0;
}
