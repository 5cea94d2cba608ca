# SPDX-License-Identifier: GPL-2.0-or-later
# The schema of docs/control.md as a checker of JSON: `. tests/schema.sh`, then schema NAME "what is tested" COMMAND...

# The ```schema block as {"NAME": {"member": "type"}}.
schema_json() {
    awk '/^```schema/ {on = 1; next} /^```/ {on = 0} on && /^[a-z-]+: \{/ {name = $1; sub(":", "", name); next}
         on && /^}/ {name = ""; next}
         on && name && NF >= 2 {member = $1; sub(":$", "", member); print name, member, $2}' \
        docs/control.md |
        jq -Rn '[inputs | split(" ")] | group_by(.[0]) | map({key: .[0][0], value: (map({key: .[1], value: .[2]}) |
            from_entries)}) | from_entries'
}
SCHEMA=$WORK/schema.json
schema_json >"$SCHEMA"

SCHEMA_JQ='
def faults($s; $t; $path):
    if ($t | endswith("?")) then (if . == null then empty else faults($s; $t[:-1]; $path) end)
    elif $t == "any" then empty
    elif ($t | startswith("[")) then
        if type != "array" then "\($path) is no list but \(type)"
        else to_entries[] | .key as $k | .value | faults($s; $t[1:-1]; "\($path)[\($k)]") end
    elif ($t | startswith("{")) then
        if type != "object" then "\($path) is no object but \(type)"
        else to_entries[] | .key as $k | .value | faults($s; $t[1:-1]; "\($path).\($k)") end
    elif $t == "integer" then
        (if type == "number" and . == floor then empty else "\($path) is no integer but \(tojson)" end)
    elif ($t == "number" or $t == "string" or $t == "boolean") then
        (if type == $t then empty else "\($path) is no \($t) but \(tojson)" end)
    elif ($s | has($t) | not) then "the schema has no \($t)"
    elif type != "object" then "\($path) is no \($t) but \(type)"
    else
        . as $o | $s[$t] as $m |
        ($o | keys[] | select(. as $k | $m | has($k) | not) | "\($path).\(.) is not documented in \($t)"),
        ($m | to_entries[] | . as $e |
            if ($o | has($e.key)) then ($o[$e.key] | faults($s; $e.value; "\($path).\($e.key)"))
            elif ($e.value | endswith("?")) then empty else "\($path).\($e.key) is missing" end)
    end;'
# schema NAME "TEST" COMMAND...: the last line of the command's output is a result with that document.
schema() {
    local faults doc=$1 test=$2
    shift 2
    faults=$("$@" 2>/dev/null | tail -n 1 | jq -r --slurpfile s "$SCHEMA" "$SCHEMA_JQ"'
        (if .type != "result" or (.verb | type) != "string" then "type or verb is wrong" else empty end),
        (del(.type, .verb, .offline, .offline_why) | faults($s[0]; "'"$doc"'"; "answer"))' 2>&1 | head -n 8)
    if [ -z "$faults" ]; then pass "$test"; else fail "$test" "$faults"; fi
}
