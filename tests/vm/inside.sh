#!/usr/bin/env bash
# The first process of a machine, on this machine's file system: devices, the wire, RDMA devices; then the command. Its
# output and exit status go where tests/vm/vm reads them; then the machine is switched off.
# shellcheck disable=SC2153,SC2154    # VM_* and ADDR_* come from the order, written by tests/vm/vm
VM_OUT=/run/vm
VM_HOST=$(sed 's/.*vm\.host=\([ab]\).*/\1/' /proc/cmdline)
export VM_OUT VM_HOST HOME=/root TMPDIR=/tmp LC_ALL=C

off() {
        sync
        /run/busybox poweroff -f
        sleep 60
}

mounts() {
        mount -t sysfs sysfs /sys
        mount -t devtmpfs devtmpfs /dev
        mkdir -p /dev/pts /dev/shm
        mount -t devpts devpts /dev/pts
        mount -t tmpfs tmpfs /dev/shm
        ln -sfn /proc/self/fd /dev/fd
        mkdir -p /lib/modules
        mount --bind "$VM_MODULES/lib/modules" /lib/modules
}

# MTU 9000, so that the RDMA device has one of 4096.
interface() {
        ip addr add "$2/24" dev "$1"
        ip link set "$1" mtu 9000 up
}

# Both ends of the pair are ours: a packet from one to the other goes over the pair all the same.
send_to_self() {
        sysctl -q -w net.ipv4.conf.{all,veth0,veth1}.accept_local=1 net.ipv4.conf.{all,veth0,veth1}.rp_filter=0
        ip rule add pref 1 iif lo from "$ADDR_a" to "$ADDR_b" lookup 101
        ip rule add pref 2 iif lo from "$ADDR_b" to "$ADDR_a" lookup 102
        ip rule add pref 100 lookup local
        ip rule del pref 0
        ip route add "$ADDR_b" dev veth0 src "$ADDR_a" table 101
        ip route add "$ADDR_a" dev veth1 src "$ADDR_b" table 102
}

nics() {
        basename -a "$(readlink /sys/class/net/eth0/device)" "$(readlink /sys/class/net/eth1/device)" | xargs
}

network() {
        ip link set lo up
        if [ -n "$VM_WITH_NICS" ]; then
                VM_NICS=$(nics)
                export VM_NICS
                return
        fi
        if [ "$VM_HOSTS" = 2 ]; then
                interface eth0 "$VM_ADDR"
                return
        fi
        ip link add veth0 type veth peer name veth1
        interface veth0 "$ADDR_a"
        interface veth1 "$ADDR_b"
        send_to_self
}

rdma_devices() {
        [ -z "$VM_WITH_NICS" ] || return 0
        modprobe -a rdma_rxe ib_uverbs rdma_ucm
        if [ "$VM_HOSTS" = 2 ]; then
                rdma link add rxe0 type rxe netdev eth0
        else
                rdma link add rxe0 type rxe netdev veth0
                rdma link add rxe1 type rxe netdev veth1
        fi
}

# shellcheck disable=SC1091
. "$VM_OUT/order"
if [ "$VM_HOST" = a ]; then
        export VM_ADDR=$ADDR_a VM_PEER=$ADDR_b
else
        export VM_ADDR=$ADDR_b VM_PEER=$ADDR_a
fi
mounts
ulimit -l unlimited
if ! network || ! rdma_devices; then
        off
fi
order >"$VM_OUT/stdout.$VM_HOST" 2>&1 </dev/null
echo $? >"$VM_OUT/status.$VM_HOST"
off
