#!/bin/busybox sh
# Runs one test: the seconds that it may take, its binary, its name.
out=$(mktemp)
begin=$(cut -d . -f 1 /proc/uptime)
timeout -k 5 "$1" "/tests/$2" --exact "$3" --nocapture >"$out" 2>&1
code=$?
took=$(($(cut -d . -f 1 /proc/uptime) - begin))
{
    flock 9
    if [ "$code" = 0 ]; then
        echo "PASS $took $2 $3"
    else
        tail -n 60 "$out" | sed 's/^/| /'
        echo "FAIL $took $2 $3"
    fi
} 9>/tmp/lock
rm -f "$out"
