/* SPDX-License-Identifier: GPL-2.0-or-later */
/* other-words.c - verbs of restic, borg, stock Kopia, zfs and btrfs, and what they are called here */
#include "daemon/cli/cli.h"

#include <string.h>

/* With -r, of the verbs that take it (NULL: none), and without. */
static const struct other_word {
    const char *word, *repo, *daemon;
} other_words[] = {
    {"abort", NULL, "cancel"},
    {"check", "verify", "verify"},
    {"compact", "maintenance", "maintenance"},
    {"create", "backup", "backup"},
    {"df", "repo usage", "status"},
    {"dump", "cat", "restore"},
    {"extract", "restore", "restore"},
    {"fsck", "verify", "verify"},
    {"gc", "maintenance", "maintenance"},
    {"history", "snapshot list", "backups"},
    {"info", "snapshot show", "describe"},
    {"init", "repo create", "repo create"},
    {"kill", NULL, "cancel"},
    {"list", "snapshot list", "backups"},
    {"passwd", "repo change-password", "repo change-password"},
    {"prune", "maintenance", "maintenance"},
    {"ps", NULL, "operations"},
    {"recover", "restore", "restore"},
    {"remove", "snapshot delete", "delete"},
    {"repo init", "repo create", "repo create"},
    {"repository change-password", "repo change-password", "repo change-password"},
    {"repository create", "repo create", "repo create"},
    {"repository status", "repo status", "repo status"},
    {"repository sync-to", "repo sync-to", "copy"},
    {"rm", "snapshot delete", "delete"},
    {"run", "backup", "backup"},
    {"scrub", "verify", "verify"},
    {"show", "snapshot show", "describe"},
    {"snapshot create", "backup", "backup"},
    {"snapshot restore", "restore", "restore"},
    {"snapshot verify", "verify", "verify"},
    {"snapshots", "snapshot list", "backups"},
    {"start", "backup", "backup"},
    {"stats", "repo usage", "status"},
    {"stop", NULL, "cancel"},
    {"sync", "repo sync-to", "copy"},
    {"tasks", NULL, "operations"},
    {"usage", "repo usage", "status"},
};

const char *other_word(const char *word, bool repo)
{
    for (size_t i = 0; i < sizeof other_words / sizeof other_words[0]; i++)
        if (!strcmp(word, other_words[i].word))
            return repo ? other_words[i].repo : other_words[i].daemon;
    return NULL;
}
