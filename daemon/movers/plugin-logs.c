/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-logs.c - the log that a mover plugin keeps of an operation (AP-16), in a file beside those of other movers
 *
 * It is asked for at the end of an operation, before the plugin cleans up, and while it runs when somebody wants to
 * read it. The file is overwritten in place: whoever follows it reads on where he was, if the plugin only adds to its
 * log.
 */
#include "base/cleanup.h"
#include "daemon/movers/plugin.h"
#include "daemon/protocol/mover-files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

json_t *plugin_logs_in(const struct cfg_plugin *p, const char *state_dir, const char *operation, const char *id,
                       bool restore)
{
    CLEANUP_PLUGIN_JSON json_t *args =
        json_pack("{s:s, s:s, s:s}", "operation", operation, "id", id, "direction", restore ? "restore" : "backup");
    json_t *in = args ? plugin_step_in(p, PV_LOGS, args) : NULL;
    if (in && (json_object_set_new(in, "operation", json_string(operation)) < 0 ||
               json_object_set_new(in, "state_dir", json_string(state_dir)) < 0)) {
        json_decref(in);
        return NULL;
    }
    return in;
}

/* One line per line of the text; anything else that is no character is a space. */
static void clean(char *text)
{
    for (; *text; text++)
        if (*text != '\n' && ((unsigned char)*text < 0x20 || *text == 0x7f))
            *text = ' ';
}

static int write_all(int fd, const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        const ssize_t w = pwrite(fd, text + at, n - at, (off_t)at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return -(errno ? errno : EIO);
        at += (size_t)w;
    }
    return ftruncate(fd, (off_t)n) < 0 ? -errno : 0;
}

static int save(const char *state_dir, const char *operation, const char *text, struct err *e)
{
    char path[4400];
    int rc = plugin_log_path(path, sizeof path, state_dir, operation);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "cannot write the log of %.100s", operation);
    const size_t len = strlen(text);
    const bool open_line = len && text[len - 1] != '\n';
    CLEANUP_FREE char *copy = malloc(len + 2);
    if (!copy)
        return err_nomem(e);
    memcpy(copy, text, len);
    memcpy(copy + len, open_line ? "\n" : "", open_line ? 2 : 1);
    clean(copy);
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot write %s", path);
    rc = write_all(fd, copy, len + open_line);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot write %s", path) : 0;
}

int plugin_logs_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    const struct plugin_program p = {.name = json_string_value(json_object_get(in, "name"))};
    const char *operation = json_string_value(json_object_get(in, "operation")),
               *state_dir = json_string_value(json_object_get(in, "state_dir"));
    if (!p.name || !operation || !state_dir)
        return err_set(e, ERR_GENERIC, EINVAL, "incomplete arguments of a plugin step");
    int rc = plugin_step(in, &answer, fd, e);
    if (rc < 0)
        return rc;
    const json_t *text = json_object_get(answer, "text");
    if (!json_is_string(text) || strlen(json_string_value(text)) != json_string_length(text))
        return plugin_lies(&p, PV_LOGS, e, "\"text\" is not text");
    rc = save(state_dir, operation, json_string_value(text), e);
    if (rc == 0 && !(*out = json_pack("{s:b}", "fetched", 1)))
        rc = err_nomem(e);
    return rc;
}
