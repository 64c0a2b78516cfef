# shellcheck shell=bash
# Sourced by the script tests of this folder: a scratch directory, children ended by pid, and what a test says.
set -euo pipefail

scratch=$(mktemp -d)
children=()

clean_up() {
        local pid
        for pid in "${children[@]}"; do
                kill "$pid" 2>/dev/null || true
        done
        rm -rf "$scratch"
}
trap clean_up EXIT

passed=0 failed=0

# check NAME COMMAND...: one test; says why when it fails.
check() {
        local name=$1
        shift
        if "$@" >"$scratch/check.log" 2>&1; then
                passed=$((passed + 1))
        else
                failed=$((failed + 1))
                echo "not ok: $name: $*"
                sed 's/^/    /' "$scratch/check.log"
        fi
}

# exits STATUS COMMAND...: whether the command ends with that status; its output is in $scratch/out and err.
exits() {
        local want=$1 got=0
        shift
        "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || got=$?
        cat "$scratch/out" "$scratch/err"
        [ "$got" = "$want" ] || { echo "exit status $got, not $want"; return 1; }
}

says() { grep -qF -- "$1" "$scratch/out" "$scratch/err"; }

skip() {
        echo "skipped: $1"
        exit 77
}

# The last lines of every test; the counts are read by scripts/tally.py as CMocka's are.
summary() {
        [ "$passed" = 0 ] || echo "[  PASSED  ] $passed test(s)."
        [ "$failed" = 0 ] || { echo "[  FAILED  ] $failed test(s)."; exit 1; }
}
