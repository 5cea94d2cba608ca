#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The programs have what the flags promise, and no flag promises what they do not have.
. "$(dirname "$0")/../lib.sh"
cd "$(dirname "$0")/../.." || exit 1
flags=$(make -s print-cflags BUILD="$BUILD")
programs=$(make -s print-programs BUILD="$BUILD")
check "all four of them: $(basename -a $programs | paste -sd' ')" test "$(wc -w <<<"$programs")" -ge 4
for file in $programs; do
    p=$(basename "$file")
    check "$p: position-independent" grep -q 'DYN (Pos' <<<"$(readelf -hW "$file")"
    check "$p: read-only relocations, bound at start" \
        test "$(readelf -lW "$file" | grep -c GNU_RELRO)$(readelf -dW "$file" | grep -c 'BIND_NOW')" = 11
    same "$p: no executable stack" "$(readelf -lW "$file" | awk '/GNU_STACK/ { print $7 }')" RW
    check "$p: stack protector" grep -q '__stack_chk_fail' <<<"$(readelf -sW "$file")"
    # A flag that leaves no mark in the program promises nothing: libraries and start files need it as well.
    marks=$(readelf -nW "$file" | grep -o 'IBT\|SHSTK' | tr '\n' ' ')
    case $flags in
        *-fcf-protection*) same "$p: control flow protection as the flag says" "$marks" "IBT SHSTK " ;;
        *) same "$p: no control flow protection is claimed" "$marks" "" ;;
    esac
done
check "stack clash protection in every build" grep -q -- -fstack-clash-protection <<<"$flags"
cat >"$WORK/big.c" <<'C'
void use(char *);
void big(void);
void big(void)
{
    char a[100000];
    use(a);
}
C
# shellcheck disable=SC2086
check "a large frame compiles" ${CC:-cc} ${flags//-I./-I.} -O2 -c -o "$WORK/big.o" "$WORK/big.c"
check "and is touched page by page" grep -qE '\$0x1000,%rsp|\$0xfffffffffffff000' <<<"$(objdump -d "$WORK/big.o")"
finish
