# What scripts inside the machines share. To be sourced: . "$VM_SOURCE/tests/vm/lib.sh"
# shellcheck shell=bash

fail() {
        echo "failed: $*"
        exit 1
}

# eventually SECONDS COMMAND...: tries until it succeeds.
eventually() {
        local end=$((SECONDS + $1))
        shift
        until "$@"; do
                [ "$SECONDS" -lt "$end" ] || fail "never true: $*"
                sleep 0.1
        done
}

# barrier NAME: returns when both machines have come to it. Each name once.
barrier() {
        [ "$VM_HOSTS" = 2 ] || return 0
        touch "$VM_OUT/barrier-$1.$VM_HOST"
        eventually 400 test -e "$VM_OUT/barrier-$1.$(tr ab ba <<<"$VM_HOST")"
}
