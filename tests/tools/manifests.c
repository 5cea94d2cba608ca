/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifests - manifests of any type in a repository, for tests of records of backups and of forged ones
 *
 *   manifests REPOSITORY PASSWORD-FILE list TYPE          one {"id","labels","data"} per line
 *   manifests REPOSITORY PASSWORD-FILE add                adds {"labels","data"} of each line of standard input
 *   manifests REPOSITORY PASSWORD-FILE remove ID...
 */
#include "base/cleanup.h"
#include "repo/manifest.h"
#include "repo/repo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(const struct manifest *m, void *arg)
{
    (void)arg;
    CLEANUP(json_decrefp)
    json_t *v = json_pack("{s:s,s:O,s:O}", "id", m->id, "labels", m->labels, "data", m->data);
    char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS);
    puts(text ? text : "");
    free(text);
    return 0;
}

static int add_lines(struct manifest_batch *b, struct err *e)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &cap, stdin) > 0) {
        json_t *v CLEANUP(json_decrefp) = json_loads(line, JSON_DECODE_ANY, NULL);
        rc = v ? manifest_batch_add(b, json_object_get(v, "labels"), json_object_get(v, "data"), NULL, e)
               : err_set(e, ERR_USAGE, 0, "no JSON: %.100s", line);
    }
    free(line);
    return rc;
}

static int commit(struct repo *r, struct manifest_batch *b, struct err *e)
{
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    int rc = session_new(&s, r, NULL, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, 0, 64u << 20, e);
    if (rc == 0)
        rc = manifest_batch_put(b, s, p, e);
    return rc == 0 ? session_flush(s, e) : rc;
}

static int run(struct repo *r, int argc, char **argv, struct err *e)
{
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    if (!strcmp(argv[0], "list") && argc == 2)
        return manifests_each(r, argv[1], print, NULL, e);
    int rc = manifest_batch_new(&b, e);
    if (rc == 0 && !strcmp(argv[0], "add"))
        rc = add_lines(b, e);
    else
        for (int i = 1; i < argc && rc == 0; i++)
            rc = manifest_batch_delete(b, argv[i], e);
    return rc == 0 ? commit(r, b, e) : rc;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct blobs *blobs = NULL;
    CLEANUP(repo_freep) struct repo *r = NULL;
    char password[256] = "";
    FILE *f = argc > 3 ? fopen(argv[2], "r") : NULL;
    if (!f || !fgets(password, sizeof password, f))
        return 2;
    fclose(f);
    password[strcspn(password, "\n")] = '\0';
    int rc = blobs_open_dir(&blobs, argv[1], BLOBS_OPEN, NULL, 0, &e);
    if (rc == 0)
        rc = repo_open(&r, blobs, password, &(struct repo_opts){.cache_dir = getenv("CACHE")}, &e);
    if (rc == 0)
        rc = run(r, argc - 3, argv + 3, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.msg);
    return rc < 0;
}
