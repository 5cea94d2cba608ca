/* SPDX-License-Identifier: GPL-2.0-or-later */
/* names.c - names of the units and cgroups of movers */
#include "daemon/movers/builtin-impl.h"

#include <stdio.h>
#include <string.h>

#define UNIT_SUFFIX ".service"
#define VOLUME_SHOWN 200

/* As systemd-escape does: what is not a letter, digit, ":", "_" or inner "." becomes \xHH, and "/" becomes "-". */
void mover_unit_name(char *out, size_t cap, const char *operation)
{
    size_t n = (size_t)snprintf(out, cap, "%s", MOVER_UNIT_PREFIX);
    for (const char *p = operation; *p && n + sizeof UNIT_SUFFIX + 5 < cap; p++) {
        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == ':' ||
            *p == '_' || (*p == '.' && p != operation))
            out[n++] = *p;
        else if (*p == '/')
            out[n++] = '-';
        else
            n += (size_t)snprintf(out + n, cap - n, "\\x%02x", (unsigned char)*p);
    }
    /* systemd allows names of at most 255 bytes: a longer one is truncated and made unique. */
    if (n > 255 - (sizeof UNIT_SUFFIX - 1)) {
        char hash[OPERATION_HASH_TEXT];
        operation_hash(hash, operation);
        n = 255 - (sizeof UNIT_SUFFIX - 1) - 34;
        n += (size_t)snprintf(out + n, cap - n, ":%s", hash);
    }
    snprintf(out + n, cap - n, "%s", UNIT_SUFFIX);
}

bool mover_unit_operation(const char *unit, char *out, size_t cap)
{
    size_t len = strlen(unit), n = 0;
    const size_t head = sizeof MOVER_UNIT_PREFIX - 1, tail = sizeof UNIT_SUFFIX - 1;
    if (len <= head + tail || strncmp(unit, MOVER_UNIT_PREFIX, head) != 0 ||
        strcmp(unit + len - tail, UNIT_SUFFIX) != 0)
        return false;
    for (const char *p = unit + head; p < unit + len - tail && n + 1 < cap; p++) {
        unsigned byte;
        if (*p == '-') {
            out[n++] = '/';
        } else if (*p == '\\' && sscanf(p, "\\x%2x", &byte) == 1) {
            out[n++] = (char)byte;
            p += 3;
        } else {
            out[n++] = *p;
        }
    }
    out[n] = '\0';
    return true;
}

/* "snapferry VOLUME: OPERATION of RUNTIME-DIR": the end identifies the daemon. */
void mover_unit_description(char *out, size_t cap, const char *runtime_dir, const char *operation, const char *volume)
{
    char head[VOLUME_SHOWN + 8] = "";
    if (volume && *volume)
        snprintf(head, sizeof head, "%.*s: ", VOLUME_SHOWN, volume);
    for (char *p = head; *p; p++)
        if (*p < 0x20 || *p > 0x7e) /* the bus rejects malformed UTF-8, and a name may be truncated or have any bytes */
            *p = '?';
    snprintf(out, cap, "snapferry %s%s of %s", head, operation, runtime_dir);
}

bool mover_unit_is_ours(const char *description, const char *runtime_dir, const char *operation)
{
    char end[4400];
    size_t len = strlen(description), n = (size_t)snprintf(end, sizeof end, " %s of %s", operation, runtime_dir);
    return len >= n && n < sizeof end && !strcmp(description + len - n, end);
}

void mover_cgroup_name(char out[MOVER_CGROUP_NAME], const char *runtime_dir, const char *operation)
{
    char both[4096 + OPERATION_MAX + 2], hash[OPERATION_HASH_TEXT];
    snprintf(both, sizeof both, "%s\n%s", runtime_dir, operation);
    operation_hash(hash, both);
    snprintf(out, MOVER_CGROUP_NAME, "snapferry-mover-%s", hash);
}
