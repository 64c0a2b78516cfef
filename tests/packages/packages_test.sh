#!/usr/bin/env bash
# The Debian packages: made, judged by lintian, installed on a clean machine (a root folder from Debian's mirror), used there (inside.sh),
# and taken away again. It takes minutes: ./check --long. UNET_PACKAGES names a folder of packages that are made already.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../tools/lib.sh"
here=$(dirname "$(readlink -f "$0")")

[ "$(id -u)" = 0 ] || skip "only root can make a machine's root folder"
for program in dh lintian mmdebstrap; do
        command -v "$program" >/dev/null || skip "no $program here"
done
# shellcheck source=/dev/null
. /etc/os-release
mirror=$(apt-get indextargets --format "\$(SITE) \$(CODENAME)" "Origin: Debian" 2>/dev/null |
        awk -v c="${VERSION_CODENAME-}" '$2 == c && !n++ {print $1}')
[ -n "$mirror" ] || skip "no Debian mirror is configured here"
root=$scratch/root
mmdebstrap --variant=minbase --include=gcc,libc6-dev,pkgconf,netcat-openbsd,iproute2 "$VERSION_CODENAME" "$root" "$mirror" \
        >"$scratch/mmdebstrap.log" 2>&1 || { cat "$scratch/mmdebstrap.log"; skip "Debian's mirror cannot be read"; }

packages=${UNET_PACKAGES:-$scratch/packages}
[ -n "${UNET_PACKAGES-}" ] || check "packages are made, and lintian finds no error" "$UNET_SOURCE/scripts/package" --output "$packages"
if [ "$failed" = 0 ]; then
        mkdir "$root/packages"
        cp "$packages"/*.deb "$root/packages"
        cp "$here/inside.sh" "$root/inside.sh"
        cp -L /etc/resolv.conf "$root/etc/resolv.conf"
        # apt fetches what they depend on; all else is done with no network but the loopback, and with no other processes.
        check "what there is, is known" chroot "$root" apt-get -q update
        check "they are installed" chroot "$root" sh -c \
                'DEBIAN_FRONTEND=noninteractive apt-get -qy -o Dpkg::Use-Pty=0 install --no-install-recommends /packages/*.deb'
        check "used, and taken away" unshare --mount --net --pid --fork --kill-child sh -c "
                mkdir -p '$root/dev/shm' && mount -t proc proc '$root/proc' && mount -t tmpfs tmpfs '$root/dev/shm' &&
                exec chroot '$root' bash /inside.sh"
fi
summary
