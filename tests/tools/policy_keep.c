/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy_keep.c - writes a source's retention as a backup does: policy_keep REPO PASSWORD-FILE SOURCE LATEST HOURLY
 * DAILY WEEKLY MONTHLY ANNUAL (-1: not set). Prints "written" or "unchanged", then the effective six numbers.
 */
#include "base/cleanup.h"
#include "repo/expire.h"

#include <stdio.h>
#include <stdlib.h>

static int run(char **argv, struct err *e)
{
    struct blobs *b = NULL;
    CLEANUP(repo_freep) struct repo *r = NULL;
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    CLEANUP(manifest_batch_freep) struct manifest_batch *batch = NULL;
    struct snapshot_source src;
    struct retention_policy k = {atoi(argv[4]), atoi(argv[5]), atoi(argv[6]),
                                 atoi(argv[7]), atoi(argv[8]), atoi(argv[9])};
    char *password = NULL;
    int rc = snapshot_source_parse(&src, argv[3], e);
    rc = rc < 0 ? rc : password_read(&password, argv[2], false, e);
    rc = rc < 0 ? rc : blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, e);
    rc = rc < 0 ? rc : repo_open(&r, b, password, &(struct repo_opts){0}, e);
    password_free(password);
    rc = rc < 0 ? rc : session_new(&s, r, NULL, e);
    rc = rc < 0 ? rc : put_scratch_new(&p, r, 0x1101, 1 << 20, e);
    rc = rc < 0 ? rc : manifest_batch_new(&batch, e);
    rc = rc < 0 ? rc : source_policy_keep(r, &src, &k, batch, e);
    rc = rc < 0 ? rc : manifest_batch_put(batch, s, p, e);
    if (rc < 0)
        return rc;
    puts(session_pending(s) ? "written" : "unchanged");
    rc = session_flush(s, e);
    rc = rc < 0 ? rc : source_policy_effective(r, &src, &k, e);
    if (rc == 0)
        printf("%d %d %d %d %d %d\n", k.latest, k.hourly, k.daily, k.weekly, k.monthly, k.annual);
    return rc;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    if (argc != 10)
        return 2;
    if (run(argv, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    return 0;
}
