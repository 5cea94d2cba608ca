/* SPDX-License-Identifier: GPL-2.0-or-later */
/* session-test.h - lets a test produce what other clients' maintenance leaves in a repository */
#ifndef SNAPFERRY_REPO_SESSION_TEST_H
#define SNAPFERRY_REPO_SESSION_TEST_H

#include "repo/repo.h"

/* Deletes a content: publishes a deletion entry at the next flush. */
int session_delete_content(struct session *s, const struct content_id *id, struct err *e);

/* As if that much time had passed since its markers were put. */
void session_test_age(struct session *s, int64_t ns);

#endif
