#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# systemd-analyze as the judge of calendar events (CF-45): what it refuses we refuse, and the next three times are the
# same. Left out is what its version 252 gives up on ("Infinite loop in calendar calculation"), and what differs on
# purpose: times that a change of clocks leaves out (we run when it is over), and lists of last days, of which systemd
# refuses some.
. "$(dirname "$0")/../lib.sh"
if ! command -v systemd-analyze >/dev/null; then
    skip "calendar events beside systemd's" "there is no systemd-analyze"
    finish
fi
tool=$(realpath "$TOOLS/calendar")
export LC_ALL=C SYSTEMD_COLORS=0

theirs() { # EVENT BASE: three times, "refused", or "lost"
    local out
    out=$(systemd-analyze calendar --base-time="@$2" --iterations=3 "$1" 2>&1) || {
        case $out in *"Infinite loop"*) echo lost ;; *) echo refused ;; esac
        return
    }
    # Where local time is not UTC there is a second line; the last one of each counts.
    sed -nE 's/^ *Next elapse: (.*)/N \1/p; s/^ *Iter\. #[0-9]+: (.*)/N \1/p; s/^ *\(in UTC\): (.*)/U \1/p' <<<"$out" |
        awk '/^N/ { if (have) print last; last = substr($0, 3); have = 1 }
            /^U/ { last = substr($0, 3) }
            END { if (have) print last }'
}
ours() {
    local out t
    out=$("$tool" "$1" "$2" 3 2>/dev/null) || { echo refused; return; }
    for t in $out; do
        if [ "$t" = never ]; then echo never; else date -u -d "@${t%.*}" '+%a %Y-%m-%d %H:%M:%S UTC'; fi
    done
}
judge() { # ZONE BASE EVENT
    local a b
    export TZ=$1
    a=$(theirs "$3" "$2"; ) b=$(ours "$3" "$2")
    [ "$a" = lost ] && return
    # It does not always say "never" behind the last one.
    if [ "$a" = "$b" ] || [ "$a
never" = "$b" ]; then agreed=$((agreed + 1)); [ "$a" = refused ] && refused=$((refused + 1))
    else differ+="$1 @$2 \"$3\": $(tr '\n' ',' <<<"$b") not $(tr '\n' ',' <<<"$a")"$'\n'; fi
}
agreed=0 refused=0 differ=
while read -r event; do
    judge UTC 1795269600 "$event"
    judge Europe/Berlin 1583020800 "$event"
done <<'LIST'
minutely
HOURLY
daily
weekly
monthly
quarterly
semiannually
bi-annually
yearly
annually
weekly UTC
daily America/New_York
Sat,Thu,Mon-Wed,Sat-Sun
Mon,Sun 12-*-* 2,1:23
Wed *-1
Wed..Wed,Wed *-1
Wed, 17:48
Wed..Sat,Tue 12-10-15 1:2:3
*-*-7 0:0:0
10-15
monday *-12-* 17:00
Mon,Fri *-*-3,1,2 *:30:45
12,14,13,12:20,10,30
12..14:10,20,30
mon,fri *-1/2-1,3 *:30:45
03-05 08:05:40
08:05:40
05:40
Sat,Sun 12-05 08:05:40
2003-02..04-05
2003-03-05 05:40
2030-03-05 05:40 UTC
*:2/3
*:20/15
*-05~07/1
Mon *-05~07/1
*-02~1
*-*~1..3
*~28
*-*~3..14/10
*-*-1..31/10
2..6/5:*
*:8..17/17
0/3:0/20:0/30
*:*:1.5/0.25
*:*:*
26-11-25
99-1-1
69-1-1
2199-12-31
Mon *-02-29
*-02-30
Mon..Frx 10:00
Fri..Mon
Mon..
Mon.Tue
Mon..Wed..Fri
,Mon
*-13-01
*-*-32
*-*-0
*-*~29
2200-01-01
1969-01-01
24:00
12:60
12:00:60
12
12:
1..0:00
*:0/0
*:0/60
*:30/45
*:*/5
*:5..5..6
*-*~1-1
*-*-*-*
daily Europe/Nowhere
*:*:0.
*:*:1..1.5
*:*:1..1.5/0.5
*-*-1,,2
*-*-1,
--
~
*
2
daily daily
Mon Tue
LIST
same "written by hand" "$differ" ""
# Random ones of the usual shapes, in zones of all sorts.
RANDOM=20261121
differ=
pick() { shift $((RANDOM % $#)); echo -n "$1"; }
number() { printf %02d $(($1 + RANDOM % ($2 - $1 + 1))); }
list() { # FROM TO
    local a b
    a=$(number "$1" "$2") b=$(number "$1" "$2")
    case $((RANDOM % 7)) in
    0 | 1) echo -n '*' ;;
    2 | 3) echo -n "$a" ;;
    4) echo -n "$a,$b" ;;
    5) echo -n "$a..$b" ;;
    6) echo -n "$((10#$a))/$((1 + RANDOM % 9))" ;;
    esac
}
for _ in $(seq 200); do
    event="$(pick '' '' 'Mon ' 'Sat,Sun ' 'Tue..Fri ')$(pick '' "$(list 1 12)-$(list 1 31) " \
        "*-$(list 1 12)-$(list 1 31) " "*-*~$(number 1 28) ")$(list 0 23):$(list 0 59)"
    judge "$(pick UTC Europe/Berlin America/New_York Australia/Lord_Howe Asia/Kolkata)" \
        $((1577836800 + RANDOM * 13000)) "$event"
done
same "random ones" "$differ" ""
check "many were compared" test $agreed -gt 300
check "some were refused by both" test $refused -gt 40
finish
