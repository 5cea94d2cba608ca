#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Backups and maintenance in any S3 service (MinIO, AWS): S3_ENDPOINT=http://HOST:PORT S3_BUCKET=NAME, and a file of
# credentials, S3_KEYS=FILE. tests/e2e/radosgw.sh does the same with Ceph's.
. "$(dirname "$0")/../lib.sh"
if [ -z "${S3_ENDPOINT:-}" ]; then
    skip "backups and maintenance in an S3 service" "no S3_ENDPOINT=http://HOST:PORT was given"
    finish
fi
. "$(dirname "$0")/../s3-work.sh"
finish
