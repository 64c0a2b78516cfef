# shellcheck shell=bash
# On a machine with nothing of this tree but its packages.
set -euxo pipefail
export UNET_DOMAIN=inside
ip link set lo up

unet config check | grep -F /etc/unet/unet.conf
[ "$(id -u unet)" -lt 1000 ]

# A program of one's own, over the daemons of the packages.
cd /tmp
read -ra flags <<<"$(pkg-config --cflags --libs unet)"
cc -Wall -Werror -o echo_sock /usr/share/doc/libunet-dev/examples/echo_sock.c "${flags[@]}"
./echo_sock -s -p 7007 &
server=$!
until [ "$(./echo_sock -p 7007 hello)" = hello ]; do sleep 0.1; done
daemon=$(unet status --json | sed -nE '/"daemon"/,/\]/s/.*"pid": ([0-9]+).*/\1/p')
[ "$(readlink "/proc/$daemon/exe")" = /usr/libexec/unet/unetd ]
kill "$server"

# An unmodified one.
unet run nc -l -p 7008 >received &
reader=$!
until unet ss --listening | grep -F :7008; do sleep 0.1; done
echo hello | unet run nc -N 127.0.0.1 7008
wait "$reader"
grep -qx hello received
unet metrics | grep -x 'unet_up 1'

# The service's command, for another user.
grep '^ExecStart=/usr/libexec/unet/unetd ' /lib/systemd/system/unetd.service
UNET_DOMAIN=system /usr/libexec/unet/unetd --foreground --system --idle -1 &
until unet_status=$(UNET_DOMAIN=system unet status --json) && grep -F '"shared": true' <<<"$unet_status"; do sleep 0.1; done
UNET_DOMAIN=system setpriv --reuid=12001 --regid=12001 --clear-groups unet run nc -l -p 7009 >received &
reader=$!
until UNET_DOMAIN=system unet ss --listening | grep -F :7009; do sleep 0.1; done
echo shared | UNET_DOMAIN=system setpriv --reuid=12002 --regid=12002 --clear-groups unet run nc -N 127.0.0.1 7009
wait "$reader"
grep -qx shared received

# Nothing is left; a config that was not changed neither.
rm -r /packages /inside.sh
DEBIAN_FRONTEND=noninteractive apt-get -qy -o Dpkg::Use-Pty=0 purge libunet0 libunet-dev unet-tools
left=$(find / -xdev -path /proc -prune -o -name '*unet*' -print | grep -vE '^/(run|var/log|var/cache)/' || true)
[ -z "$left" ] || { echo "left: $left"; exit 1; }
