#!/usr/bin/env bash
# Installs the Debian packages that building, running and testing need. Says nothing when all are there.
#
#   scripts/deps.sh [run|check|bench] [--list] [--help]
#
#   run     what building and ./quickstart need (the default)
#   check   also what the tests, the fuzzers and the plots need
#   bench   what building, bench/programs and bench/paper --rivals need: the servers, what asks them, UCX and OpenMPI
#   --list  prints the names and installs nothing
#
# Exit status: 0 all there; 1 something is missing and could not be installed (the command to run is printed); 2 usage.
set -euo pipefail

RUN_PACKAGES=(build-essential cmake ninja-build pkg-config libjansson-dev libinih-dev libseccomp-dev libncurses-dev
        iperf3 sockperf python3 iproute2 util-linux procps)
CHECK_PACKAGES=(clang llvm libclang-rt-14-dev clang-format-14 libcmocka-dev liblwip-dev netcat-openbsd netcat-traditional curl tshark
        gnuplot-nox man-db mandoc valgrind shellcheck libbpf-dev libelf-dev linux-libc-dev ethtool tcpdump nftables)
# What is done to a host from the other end of a cable (tests/netns).
CHECK_PACKAGES+=(hping3 nmap python3-scapy nginx-light)
# What locks itself in.
CHECK_PACKAGES+=(openssh-server openssh-client)
# Real programs (tests/programs).
CHECK_PACKAGES+=(memcached socat dnsmasq-base openssl nodejs openjdk-17-jdk-headless)
# What begins as root and gives up root (tests/users).
CHECK_PACKAGES+=(apache2 lighttpd haproxy vsftpd rsync postgresql)
# What virtual machines are made of, and what runs in them (tests/vm).
CHECK_PACKAGES+=(qemu-system-x86 busybox-static kmod libibverbs-dev rdma-core ibverbs-providers ibverbs-utils perftest rdmacm-utils)
CHECK_PACKAGES+=(redis-server redis-tools)
# What packages are made with, and the machine that they are tried on (tests/packages).
CHECK_PACKAGES+=(debhelper lintian mmdebstrap)
BENCH_PACKAGES=(postgresql mariadb-server-core mariadb-client-core sysbench memcached redis-server redis-tools
        nginx-light haproxy gunicorn apache2-utils nuttcp gnuplot-nox ucx-utils openmpi-bin libopenmpi-dev)

usage() { sed -n '2,11s/^# \{0,1\}//p' "$0"; }

set_name=run list=0
for arg in "$@"; do
        case $arg in
        run | check | bench) set_name=$arg ;;
        --list) list=1 ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
        esac
done

packages=("${RUN_PACKAGES[@]}")
[ "$set_name" != check ] || packages+=("${CHECK_PACKAGES[@]}")
[ "$set_name" != bench ] || packages+=("${BENCH_PACKAGES[@]}")
if [ "$list" = 1 ]; then
        printf '%s\n' "${packages[@]}"
        exit 0
fi

if ! command -v dpkg-query >/dev/null; then
        echo "deps: not a Debian system; please provide what these packages hold: ${packages[*]}" >&2
        exit 1
fi

# Names in "$@" that are not installed. dpkg-query fails when it has never heard of a name; that is an answer too.
missing_of() {
        local have
        have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p') || true
        printf '%s\n' "$@" | grep -vxF -e "$have" || true
}

mapfile -t missing < <(missing_of "${packages[@]}")
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
                as_root=(sudo)
        else
                echo "deps: ${#missing[@]} packages are missing and installing needs root. Please run:" >&2
                echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
                exit 1
        fi
fi

echo "deps: installing ${missing[*]}"
apt_get() {
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
                apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" </dev/null
}
# Package lists older than the mirror name files that are gone: on failure the lists are fetched, once.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! apt_get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
        apt_get update >"$log" 2>&1 || true
        if ! apt_get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
                tail -n 20 "$log" >&2
                mapfile -t missing < <(missing_of "${missing[@]}")
                echo "deps: could not install: ${missing[*]}" >&2
                exit 1
        fi
fi
