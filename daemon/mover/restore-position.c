/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restore-position.c - see restore-impl.h */
#include "daemon/mover/place-key.h"
#include "daemon/mover/restore-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Data restored between two records of the position: what takes SYNC_SECONDS at the pace of the last ones. The walk is
 * far ahead of the workers, so that a time alone would never be seen. */
#define SYNC_BYTES_MIN (8ull << 20)
#define SYNC_BYTES_MAX (512ull << 20)
#define SYNC_SECONDS 10
#define SYNC_GROWTH 4 /* at most, from one to the next: a long hole says nothing about the pace of data */

void position_name(struct restore *r, const struct object_id *obj, const struct place *to, const struct stat *st)
{
    char id[OBJECT_ID_TEXT], place[96];
    snprintf(r->state_head, sizeof r->state_head, "%s %llu", object_id_text(obj, id), (unsigned long long)r->to);
    if (r->o->ranged)
        snprintf(r->state_head + strlen(r->state_head), sizeof r->state_head - strlen(r->state_head), " from %llu",
                 (unsigned long long)r->from);
    place_key(to->name, to->fd, st, place, sizeof place);
    snprintf(r->state_file, sizeof r->state_file, "%s/restore-%s", repo_cache_dir(r->repo), place);
}

int64_t position_read(const struct restore *r)
{
    CLEANUP_FCLOSE FILE *f = fopen(r->state_file, "re");
    char line[600];
    size_t head = strlen(r->state_head);
    if (!f || !fgets(line, sizeof line, f) || strncmp(line, r->state_head, head) != 0 || line[head] != ' ')
        return -1;
    unsigned long long pos = strtoull(line + head, NULL, 10);
    return pos <= r->to ? (int64_t)pos : -1;
}

/* A power failure must not take the name back. */
static int sync_dir(const char *dir)
{
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : fsync(fd);
}

/* A lost state file only means a longer second restore: failures are logged, not fatal. */
void position_note(const struct restore *r, uint64_t pos)
{
    char tmp[4410];
    snprintf(tmp, sizeof tmp, "%s.tmp", r->state_file);
    FILE *f = fopen(tmp, "we");
    bool ok = f && fprintf(f, "%s %llu\n", r->state_head, (unsigned long long)pos) > 0 && fflush(f) == 0 &&
              fsync(fileno(f)) == 0;
    if (f && fclose(f))
        ok = false;
    if (!ok || rename(tmp, r->state_file) < 0 || sync_dir(repo_cache_dir(r->repo)) < 0) {
        log_warning("cannot record the position of the restore in %s: %s", r->state_file, strerror(errno));
        unlink(tmp);
    } else {
        crash_point("restore-noted");
    }
}

void noting_begin(struct noting *n, const struct restore *r)
{
    const uint64_t pos = r->check_below > r->from ? r->check_below : r->from;
    *n = (struct noting){.pos = pos, .since = mono_s(), .stride = SYNC_BYTES_MIN, .next = pos};
}

static int note_next(struct noting *n, struct restore *r, struct fetcher *f, struct err *e)
{
    int rc = fetcher_reach(f, n->mark, e);
    if (rc < 0 || (rc = target_sync(r->target, e)) < 0)
        return rc;
    position_note(r, n->next);
    const double now = mono_s(), took = now - n->since, bytes = (double)(n->next - n->pos);
    const uint64_t most = n->stride < SYNC_BYTES_MAX / SYNC_GROWTH ? n->stride * SYNC_GROWTH : SYNC_BYTES_MAX;
    const double wanted = took > 0 ? bytes / took * SYNC_SECONDS : (double)most;
    n->stride = wanted >= (double)most ? most : wanted > (double)SYNC_BYTES_MIN ? (uint64_t)wanted : SYNC_BYTES_MIN;
    n->pos = n->next;
    n->since = now;
    return 0;
}

int note_if_due(struct noting *n, struct restore *r, struct fetcher *f, uint64_t pos, struct err *e)
{
    if (pos <= n->next || (pos - n->next < n->stride && mono_s() - n->since < SYNC_SECONDS))
        return 0;
    uint64_t mark;
    int rc = fetcher_mark(f, &mark, e);
    if (rc >= 0 && n->next > n->pos)
        rc = note_next(n, r, f, e);
    else
        n->stride *= SYNC_GROWTH; /* the first one: there is to be enough work behind it */
    n->next = pos;
    n->mark = mark;
    return rc;
}

int note_last(struct noting *n, struct restore *r, struct fetcher *f, struct err *e)
{
    uint64_t mark;
    if (n->next == n->pos)
        return 0;
    const int rc = fetcher_mark(f, &mark, e);
    return rc < 0 ? rc : note_next(n, r, f, e);
}
