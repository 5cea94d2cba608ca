# SPDX-License-Identifier: GPL-2.0-or-later
# Where promtool and prometheus are: Debian's package, or its programs alone as tests/deps.sh leaves them.
: "${BUILD:=build}"
export PATH="$PATH:$(realpath -m "$BUILD")/prometheus/usr/bin"
has_promtool() { command -v promtool >/dev/null; }
# fresh_page CURL-ARGUMENT...: metrics that were collected after this call. Scrapes within a quarter of a second share a
# page, and one from before would lack what the test has just waited for.
fresh_page() {
    local from page i
    from=$(date +%s.%N)
    for i in $(seq 100); do
        page=$(curl -s --max-time 10 "$@") || return
        awk -v t="$from" '$1 == "snapferry_metrics_timestamp_seconds" && $2 > t {new = 1} END {exit !new}' \
            <<<"$page" && break
        sleep 0.05
    done
    printf '%s\n' "$page"
}
# free_port: a TCP port of 127.0.0.1 that nobody listens on now.
free_port() {
    perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1:0", Listen => 1)->sockport'
}
