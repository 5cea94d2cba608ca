/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * opaque.h - what is asked for again of documents that a row keeps as they are
 *
 * A driver's description of an intermediate or a restore target, what a mover reported last, the steps of an admin
 * operation: the rest of them is for those that made them. Texts and documents are borrowed; "", 0 and NULL where the
 * document (NULL: there is none) lacks them.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_OPAQUE_H
#define SNAPFERRY_DAEMON_RECORDS_OPAQUE_H

#include "daemon/records/types.h"

/* How the intermediate was made: enum expose_mechanism of io/native/driver.h, by its words. */
enum exposed_as { EXPOSED_UNKNOWN, EXPOSED_NATIVE, EXPOSED_CLONE, EXPOSED_OVERLAY, EXPOSED_COPY, EXPOSED_AS };
struct exposed {
    const char *path;
    enum exposed_as as;
    int64_t size;
    bool read_only, allocated; /* its driver can list what is allocated in it */
};
struct exposed exposure_read(const json_t *exposure);
extern const struct enum_names exposed_as_names;

struct target_paths {
    const char *path;
    const char *final;  /* where it will be when it is complete */
    const char *device; /* its identity, of a device */
    int64_t size;
};
struct target_paths target_paths_read(const json_t *target);

/* A label of a counter; "": it has none of that name. */
const char *counter_label(const json_t *labels, const char *name);

struct mover_progress {
    const char *phase;
    int64_t read, done, total, skipped, zero; /* bytes */
};
struct mover_progress progress_read(const json_t *progress);
/* Whether the phase or any counter is another one. */
bool progress_has_moved(const json_t *before, const json_t *now);

/* What a mover plugin is asked to do with what it stored. PLUGIN_ASK_NONE: absent, or a word of a newer version, for
 * which no other may stand in. */
enum plugin_ask { PLUGIN_ASK_NONE, PLUGIN_ASK_DELETE, PLUGIN_ASK_VERIFY, PLUGIN_ASKS };
extern const struct enum_names plugin_ask_names;

/* The first step of an admin operation, which is a check. NULL: it has no such member. */
struct check_step {
    json_t *snapshots, *expect;
};
struct check_step check_step_read(const json_t *steps);

/* Of an admin operation by a mover plugin. */
struct plugin_step {
    enum plugin_ask ask;
    const char *operation;
};
struct plugin_step plugin_step_read(const json_t *steps, int64_t i);
/* The work that is planned for such a step: {"plugin", "verb", "args"}; borrowed. */
struct plugin_work {
    enum plugin_ask ask;
    const char *plugin; /* section of the configuration */
    const json_t *args; /* NULL: none */
};
struct plugin_work plugin_work_read(const json_t *work);

/* The boot that the process of a mover belongs to. */
const char *identity_boot(const json_t *identity);
/* The intent of an intermediate. */
struct exposure_intent {
    const json_t *into; /* class */
    const json_t *exposure;
};
struct exposure_intent exposure_intent_read(const json_t *doc);
/* One of the volumes of a job, or of a backup, that were not backed up: of a list of {"volume", "reason"}. */
struct skipped {
    const char *volume, *reason;
};
struct skipped skipped_at(const json_t *list, size_t i); /* members "": there are not so many */
/* Labels of a counter. */
struct count_labels {
    const char *klass, *result, *repository, *node;
};
struct count_labels count_labels_read(const json_t *labels);

/* The native snapshot that a check was asked for, by the snapshot that it looks at; "": none. Borrowed. */
const char *asked_alias(const json_t *aliases, const char *snapshot);

#endif
