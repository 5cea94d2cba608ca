/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * delete_content - marks a content deleted, as maintenance of another client may that has not seen what needs it
 *
 *   delete_content REPO PASSWORD-FILE CONTENT-ID
 */
#include "base/password.h"
#include "repo/session-test.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    struct repo *r = NULL;
    struct session *s = NULL;
    struct content_id id;
    char *password = NULL;
    if (argc != 4 || content_id_parse(&id, argv[3], strlen(argv[3])) < 0)
        return 2;
    if (password_read(&password, argv[2], false, &e) < 0 || blobs_open_dir(&b, argv[1], BLOBS_OPEN, NULL, 0, &e) < 0 ||
        repo_open(&r, b, password, &(struct repo_opts){0}, &e) < 0 || session_new(&s, r, NULL, &e) < 0 ||
        session_delete_content(s, &id, &e) < 0 || session_flush(s, &e) < 0) {
        fprintf(stderr, "delete_content: %s\n", e.msg);
        return 1;
    }
    session_free(s);
    repo_free(r);
    password_free(password);
    return 0;
}
