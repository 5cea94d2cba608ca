/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lvm-tool.c - calls of lvm(8) */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "proc/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 64
#define REPORT_MAX (48u << 20)
#define REPORT_SECONDS 300 /* it waits for the lock of a group, which the command of an administrator may hold */
#define CHANGE_SECONDS 900
#define ECMD_FAILED 5 /* exit code of lvm(8) */

static const char *program = "/usr/sbin/lvm";

const char *const lvm_environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
                                       "LVM_SUPPRESS_FD_WARNINGS=1", NULL};

void lvm_program_test(const char *path)
{
    program = path;
}

int lvm_installed(struct err *e)
{
    if (access(program, X_OK) == 0)
        return 0;
    err_set(e, ERR_USAGE, errno, "cannot run %s: %s", program, strerror(errno));
    return err_hint(e, "install LVM (package lvm2), and thin-provisioning-tools for thin pools");
}

static int call(const char *label, const char *const *args, bool finish, char **out, size_t *len, int *status,
                struct err *e)
{
    const char *argv[ARGS_MAX + 2] = {program};
    size_t n = 0;
    int rc = lvm_installed(e);
    for (; rc == 0 && args[n]; n++) {
        if (n == ARGS_MAX)
            return err_set(e, ERR_GENERIC, E2BIG, "%s: too many arguments", label);
        argv[n + 1] = args[n];
    }
    if (rc < 0)
        return rc;
    const struct program p = {.argv = (char *const *)(uintptr_t)argv,
                              .env = lvm_environment,
                              .label = label,
                              .out_max = REPORT_MAX,
                              .timeout_s = finish ? CHANGE_SECONDS : REPORT_SECONDS,
                              .finish = finish};
    return program_run(&p, out, len, status, e);
}

int lvm_tool_run(const char *label, const char *const *argv, bool finish, char **out, size_t *len, int *status,
                 struct err *e)
{
    const struct program p = {.argv = (char *const *)(uintptr_t)argv,
                              .env = lvm_environment,
                              .label = label,
                              .timeout_s = finish ? CHANGE_SECONDS : REPORT_SECONDS,
                              .finish = finish};
    return program_run(&p, out, len, status, e);
}

int lvm_report_read(struct lvm_report *ret, const char *vg, struct err *e)
{
    char absent[LVM_NAME_MAX + 40];
    struct err why = ERR_INIT;
    int status = 0;
    size_t len = 0;
    CLEANUP_FREE char *out = NULL;
    const char *args[] = {"lvs",        "--reportformat", "json",      "--units", "b",
                          "--nosuffix", "--options",      lvm_columns, vg,        NULL};
    *ret = (struct lvm_report)LVM_REPORT_INIT;
    int rc = call("lvs", args, false, &out, &len, &status, &why);
    if (rc == 0 && status == ECMD_FAILED && vg) {
        snprintf(absent, sizeof absent, "Volume group \"%s\" not found", vg);
        if (strstr(why.msg, absent))
            return 0;
    }
    if (rc < 0 || status != 0) {
        if (e)
            *e = why;
        return rc < 0 ? rc : -EIO;
    }
    return lvm_report_parse(ret, out, len, e);
}

/* What LVM's own words mean; anything else is general. */
static const struct {
    const char *text;
    enum err_class cls;
    const char *hint;
} meanings[] = {
    {"insufficient free space", ERR_NO_SPACE, "extend the volume group (vgextend), or remove what is not needed"},
    {"Insufficient free space", ERR_NO_SPACE, "extend the volume group (vgextend), or remove what is not needed"},
    {"insufficient suitable", ERR_NO_SPACE, "extend the volume group (vgextend), or remove what is not needed"},
    {"free space in metadata of thin pool", ERR_NO_SPACE,
     "extend the pool's metadata: lvextend --poolmetadatasize +SIZE GROUP/POOL"}, /* before what it ends with */
    {"reached threshold", ERR_NO_SPACE, "extend the thin pool (lvextend), or remove what is not needed"},
    {"Free space in pool", ERR_NO_SPACE, "extend the thin pool (lvextend), or remove what is not needed"},
    {"out of metadata space", ERR_NO_SPACE, "extend the pool's metadata (lvextend --poolmetadatasize)"},
    {"thin_check: No such file", ERR_USAGE, "install thin-provisioning-tools"},
    {"thin_check execution failed", ERR_USAGE, "install thin-provisioning-tools"},
    {"Check of pool", ERR_SOURCE, "the pool's metadata are damaged: see lvconvert --repair in lvmthin(7)"},
    {"contains a filesystem in use", ERR_BUSY, "unmount it"},
    {" in use", ERR_BUSY, "`lsof` and `dmsetup ls --tree` show its users"},
    {" is used by another device", ERR_BUSY, "`dmsetup ls --tree` shows it"},
    {"Permission denied", ERR_PERMISSION, "run snapferryd as root"},
};

int lvm_change(const char *what, const char *const *args, struct err *e)
{
    struct err why = ERR_INIT;
    int status = 0;
    int rc = call(args[0], args, true, NULL, NULL, &status, &why);
    if (rc == 0 && status == 0)
        return 0;
    enum err_class cls = why.cls;
    const char *hint = why.hint;
    if (rc == 0) /* its own words are the reason */
        for (size_t i = 0; cls == why.cls && i < sizeof meanings / sizeof *meanings; i++)
            if (strstr(why.msg, meanings[i].text)) {
                cls = meanings[i].cls;
                hint = meanings[i].hint;
            }
    err_plain(e, cls, why.sys ? why.sys : EIO, "%s: %.700s", what, why.msg);
    if (*hint)
        err_hint(e, "%s", hint);
    return rc < 0 ? rc : -EIO;
}
