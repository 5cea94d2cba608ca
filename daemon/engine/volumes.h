/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * volumes.h - volumes: their records, and when they were last looked for
 *
 * Internal to the engine's files; the event loop's thread only.
 */
#ifndef SNAPFERRY_DAEMON_ENGINE_VOLUMES_H
#define SNAPFERRY_DAEMON_ENGINE_VOLUMES_H

#include "daemon/decide/judge.h"
#include "daemon/engine/engine-impl.h"

/* ---- jobs ---- */

/* The jobs of the configuration as they are now, in its order. */
struct jobs_now jobs_now(const struct engine *g);
static inline void jobs_now_clear(struct jobs_now *j)
{
    free(j->v);
}

/* ---- records ---- */

/* Remembers what is known of a volume: `volume` replaces what was known; `change` (NULL: none) changes the rest. */
typedef void volume_change_fn(struct volume_row *v, const void *arg);
void volume_note(struct engine *g, const struct volume_desc *volume, const char *klass, volume_change_fn *change,
                 const void *arg);
/* By id or name. */
int volume_find(struct engine *g, const char *what, struct volume_row *ret);

/*
 * A backup of this volume is no more (or soon will not be). If it was the last good one, the newest of the others that
 * still exists is that from now on; if there is none, `why` ("was deleted") says where it went. To be called before or
 * after its record goes, also within a transaction.
 */
int volume_backup_lost(struct engine *g, const char *volume_id, const char *backup, const char *why, struct err *e);
/* One that counted as lost is there again. */
void volume_backup_found(struct engine *g, const char *volume_id);
/* The repository that has a volume's last good backup; "": none. */
void volume_repository(struct engine *g, const struct volume_row *v, char *out, size_t cap);

/* ---- looking ---- */

/*
 * Answer of step_volumes(): volumes that are new or have changed are recorded, those that their class no longer lists
 * are gone until they are seen again. Only classes that were asked for all they have (member "all") tell.
 */
void volumes_listed(struct engine *g, const json_t *classes);
/*
 * Starts a look (a step of its own for each class) where it is time: as often as the daemon sweeps, not more often than
 * every 30 s, and so that looking takes about a hundredth of the time of a class whose driver is slow (every 10 minutes
 * at the latest). Records of volumes that are long gone are removed here.
 */
void sweep_volumes(struct engine *g);
/* The next sweep looks at all classes: the configuration is another. */
void volumes_look_again(struct engine *g);
/* What the looks could not tell: classes that cannot be listed, files that are passed over. fn per line of text. */
typedef void volumes_problem_fn(const char *text, bool passed_over, void *arg);
void volumes_problems(struct engine *g, volumes_problem_fn *fn, void *arg);
void volumes_free(struct engine *g);

#endif
