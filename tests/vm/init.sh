#!/busybox sh
# shellcheck shell=dash
# The first process of a machine, in the initramfs: this machine's file system, read-only, under a tmpfs.
b=/busybox
$b mkdir -p /proc /sys /lower /layer /root /out
$b mount -t proc proc /proc
for module in /modules/*.ko; do
        $b insmod "$module"
done
share() { $b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=1048576,$3" "$1" "$2"; }
share root /lower ro,cache=loose
$b mount -t tmpfs tmpfs /layer
$b mkdir -p /layer/upper /layer/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work overlay /root
$b mkdir -p /root/run
$b mount -t tmpfs tmpfs /root/run
$b mkdir -p /root/run/vm
share out /root/run/vm cache=none
$b cp /inside.sh /busybox /root/run/
$b mount --move /proc /root/proc
exec $b switch_root /root /bin/bash /run/inside.sh
