/* SPDX-License-Identifier: GPL-2.0-or-later */
/* removed.c - keys of earlier versions, and their replacements */
#include "cfg/internal.h"

#include <string.h>

#define REMOVED(name, sections)                                                                                        \
    {                                                                                                                  \
        {name, sections, "removed", "", ""}, IN_NOTHING, 0, 0, V_REMOVED, 0, 0, NULL                                   \
    }
#define BY_PROXY "metrics are not served while it is set; use a reverse proxy, see snapferry-metrics(7)"

const struct removed_key removed_keys[] = {
    {REMOVED("tls-certificate", "metrics"), "0.2", BY_PROXY, true},
    {REMOVED("tls-key", "metrics"), "0.2", BY_PROXY, true},
    {REMOVED("users-file", "metrics"), "0.2", BY_PROXY, true},
};
const unsigned n_removed_keys = sizeof removed_keys / sizeof *removed_keys;

const struct removed_key *removed_find(enum kind kind, const char *name)
{
    for (unsigned i = 0; i < n_removed_keys; i++)
        if (!strcmp(removed_keys[i].key.pub.name, name) && key_in(&removed_keys[i].key, kind))
            return &removed_keys[i];
    return NULL;
}

const struct removed_key *removed_of(const struct key *k)
{
    for (unsigned i = 0; i < n_removed_keys; i++)
        if (&removed_keys[i].key == k)
            return &removed_keys[i];
    return NULL;
}
