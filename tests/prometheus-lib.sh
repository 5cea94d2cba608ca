# SPDX-License-Identifier: GPL-2.0-or-later
# Where promtool and prometheus are: Debian's package, or its programs alone as tests/deps.sh leaves them.
: "${BUILD:=build}"
export PATH="$PATH:$(realpath -m "$BUILD")/prometheus/usr/bin"
has_promtool() { command -v promtool >/dev/null; }
# free_port: a TCP port of 127.0.0.1 that nobody listens on now.
free_port() {
    perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1:0", Listen => 1)->sockport'
}
