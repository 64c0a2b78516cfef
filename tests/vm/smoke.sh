#!/usr/bin/env bash
# Two machines: an RDMA device each that works, datagrams of rdma-core's own example between them, and those of U-Net's.
#
#   smoke.sh [PINGPONG]    the example unet_pingpong, where it was built with verbs
. "$VM_SOURCE/tests/vm/lib.sh"

device=$(ibv_devinfo -d rxe0 -v) || fail "no rxe0"
grep -q 'state:.*PORT_ACTIVE' <<<"$device" || fail "rxe0 is not up"
grep -q 'active_mtu:.*4096' <<<"$device" || fail "rxe0 has not the MTU that a wire of 9000 allows"
index=$(sed -n "s/.*GID\[ *\([0-9]*\)\]:.*::ffff:$VM_ADDR, RoCE v2.*/\1/p" <<<"$device")
[ -n "$index" ] || fail "rxe0 has no GID of $VM_ADDR"

barrier up
PORT=18515                              # of its own, where it exchanges addresses
listens() {
        awk -v port="$(printf ':%04X' "$PORT")" '$2 ~ port "$" && $4 == "0A" {found = 1} END {exit !found}' \
                /proc/net/tcp /proc/net/tcp6
}
pingpong() { timeout 300 ibv_ud_pingpong -p "$PORT" -d rxe0 -g "$index" -s 1024 -n 200 "$@"; }
if [ "$VM_HOST" = a ]; then
        pingpong >"$VM_OUT/pingpong.a" &
        eventually 300 listens
        barrier listens
        wait $! || fail "ibv_ud_pingpong, server: $?"
else
        barrier listens
        pingpong "$VM_PEER" >"$VM_OUT/pingpong.b" || fail "ibv_ud_pingpong, client: $?"
fi
cat "$VM_OUT/pingpong.$VM_HOST"
grep -q '200 iters' "$VM_OUT/pingpong.$VM_HOST" || fail "not all messages came back"

[ $# -gt 0 ] || exit 0
unet() { timeout 300 "$1" --provider verbs --size 1024 --seconds 0.5 --spin -1 "${@:2}"; }
if [ "$VM_HOST" = a ]; then
        unet "$1" --listen "$VM_ADDR" || fail "unet_pingpong, the answering side: $?"
else
        unet "$1" --connect "$VM_PEER" || fail "unet_pingpong, the measuring side: $?"
fi
