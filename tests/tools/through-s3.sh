#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The command, for tests that name repositories by their directories: those below $S3_TREE are used through the S3
# service at $S3_ENDPOINT, which has them as prefixes of its bucket "b" (s3-faults.py). tests/s3-lib.sh sets all this
# up. A process that is killed is the command itself.
for word; do
    shift
    case $before in
    -r)
        case $word in
        "$S3_TREE"/*)
            name=${word#"$S3_TREE"/}
            ini=$S3_CONF/conf.d/$name.ini
            [ -e "$ini" ] || cat >"$ini" <<END
[repository "$name"]
type = s3
endpoint = $S3_ENDPOINT
bucket = b
prefix = $name/
credentials = $S3_CONF/keys
password-file = $S3_CONF/password
${S3_CA:+ca-file = $S3_CA}
END
            set -- "$@" --config-dir "$S3_CONF" -r "$name"
            ;;
        *) set -- "$@" -r "$word" ;;
        esac
        ;;
    --password-file) [ "${name:-}" ] || set -- "$@" --password-file "$word" ;;
    *) case $word in -r | --password-file) ;; *) set -- "$@" "$word" ;; esac ;;
    esac
    before=$word
done
exec "$S3_SNAPFERRY" "$@"
