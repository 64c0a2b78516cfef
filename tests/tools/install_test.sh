#!/usr/bin/env bash
# What is installed is complete, finds itself wherever the prefix is moved, and serves a program of one's own.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
export UNET_DOMAIN="install-$$"

check "install" cmake --install "$UNET_BUILD" --prefix "$scratch/first" --strip
mv "$scratch/first" "$scratch/moved"
p=$scratch/moved
for file in bin/unet lib/libunet_preload.so lib/libunet.so libexec/unet/unetd libexec/unet/unet-keeper \
        include/unet/unet.h include/unet/sock.h include/unet/am.h include/unet/splitc.h include/unet/gam.h \
        lib/pkgconfig/unet.pc lib/systemd/system/unetd.service share/doc/unet/examples/unet.conf \
        share/bash-completion/completions/unet \
        share/man/man1/unet.1 share/man/man8/unetd.8; do
        check "$file is there" test -f "$p/$file"
done
check "the unit starts what is installed" grep -q "^ExecStart=$scratch/first/libexec/unet/unetd " "$p/lib/systemd/system/unetd.service"
check "the example config is right" env UNET_CONFIG="$p/share/doc/unet/examples/unet.conf" "$p/bin/unet" config check
sed 's/^# \([[a-z].*[]=]\)/\1/' "$p/share/doc/unet/examples/unet.conf" >"$scratch/all.conf"
check "with all that it shows, too" env UNET_CONFIG="$scratch/all.conf" "$p/bin/unet" config check
check "nothing in it knows the build" bash -c "! grep -rlF '$UNET_BUILD' '$p'"

cat >"$scratch/own.c" <<'C'
#include <unet/sock.h>
#include <unet/splitc.h>
#include <unet/unet.h>

int main(void)
{
        return 0;
}
C
own_program() {
        local flags
        flags=$(PKG_CONFIG_PATH=$p/lib/pkgconfig pkg-config --cflags --libs unet)
        # shellcheck disable=SC2086
        cc -Wall -Wextra -Werror -o "$scratch/own" "$scratch/own.c" $flags && LD_LIBRARY_PATH=$p/lib "$scratch/own"
}
check "a program of one's own" own_program

version_said() {
        local v
        v=$(PKG_CONFIG_PATH=$p/lib/pkgconfig pkg-config --modversion unet)
        IFS=. read -r major minor patch <<<"$v"
        echo 'int main(void) { return UNET_VERSION; }' | cc -I"$p/include" -include unet/sock.h -E -P -x c - |
                grep -q "return $((major * 10000 + minor * 100 + patch));"
}
check "the headers say the library's version" version_said

# The headers are plain C99 and C++11, whatever the program is compiled as, and ask for no macro.
plain_headers() {
        local c x std bad=0 standards=${UNET_LONG:+c99 c11 c17 c2x c++11 c++14 c++17 c++20}
        for c in gcc clang; do
                command -v "$c" >/dev/null || continue
                for x in c c++; do
                        for std in ${standards:-c99 c2x c++11 c++20}; do
                                case $std in "$x"[0-9]*) ;; *) continue ;; esac
                                for h in sock flow unet am splitc gam; do
                                        echo "#include <unet/$h.h>" >"$scratch/h.$x"
                                        "$c" -x "$x" -std="$std" -pedantic -Wall -Wextra -Wundef -Werror -fsyntax-only \
                                                -I"$p/include" "$scratch/h.$x" || { echo "$c $std $h"; bad=1; }
                                done
                        done
                done
        done
        return "$bad"
}
check "the headers compile as C99 to C2x and C++11 to C++20, alone and without a warning" plain_headers

# And the calls of libc's that give up rights (cmake/libunet.map).
only_ours() {
        ! nm -D --defined-only "$p/lib/libunet.so" | awk '{print $3}' |
                grep -vE '^((unet|uam|sc|gam)_|set(uid|euid|reuid|resuid)$|(capset|prctl|unshare|setns)$)'
}
check "the library exports what its headers name, calls that give up rights, and nothing else" only_ours
check "its soname has the version" bash -c "readelf -d '$p/lib/libunet.so' | grep -q 'soname: .libunet.so.0.'"

# Examples out of tree, by pkg-config and by CMake; daemons that are found from the library, where it lies now.
example() {
        local flags
        flags=$(PKG_CONFIG_PATH=$p/lib/pkgconfig pkg-config --cflags --libs unet)
        # shellcheck disable=SC2086
        cc -Wall -Wextra -Werror -o "$scratch/$1" "$p/share/doc/unet/examples/$1.c" "${@:2}" $flags
}
for name in echo_sock stream_sock meter_sock video_sock rpc_sock plan_sock; do
        check "$name is built from what is installed" example "$name"
done
for name in pingpong stream; do
        check "$name is too" example "$name" "$p/share/doc/unet/examples/example.c"
done
echoes() {
        local server port said
        export LD_LIBRARY_PATH=$p/lib
        port=$("$UNET_SOURCE/tests/ports.py")
        "$scratch/echo_sock" -s -p "$port" &
        server=$!
        children+=("$server")
        until said=$("$scratch/echo_sock" -p "$port" hello 2>"$scratch/echo.err") && [ "$said" = hello ]; do
                if [ "$SECONDS" -gt 500 ] || ! kill -0 "$server"; then
                        echo "no echo: $said, $(cat "$scratch/echo.err")"
                        return 1
                fi
                sleep 0.1
        done
        "$p/bin/unet" status --json | tee "$scratch/status"
        kill "$server"
        readlink "/proc/$(python3 -c 'import json, sys; print(json.load(sys.stdin)["daemon"][0]["pid"])' <"$scratch/status")/exe" |
                grep -F "$p/libexec/unet/unetd"
}
check "it echoes, by the daemons that lie beside the library" echoes
printf '%s\n' 'cmake_minimum_required(VERSION 3.13)' 'project(own C)' 'find_package(unet 0.1 REQUIRED)' \
        'add_executable(own own.c)' 'target_link_libraries(own unet::unet)' >"$scratch/CMakeLists.txt"
check "CMake finds the package" cmake -S "$scratch" -B "$scratch/own-build" "-Dunet_DIR=$p/lib/cmake/unet"
check "and builds with it" cmake --build "$scratch/own-build"

# A manual page for each command, file and function.
pages() {
        local name bad=0
        for name in unet unet.conf unetd unet-keeper libunet_preload unet_sock unet_flow unet_ep \
                $(nm -D --defined-only "$p/lib/libunet.so" | awk '$3 ~ /^unet_/ {print $3}'); do
                man -M "$p/share/man" -w "$name" >/dev/null 2>&1 || { echo "no page: $name"; bad=1; }
        done
        return "$bad"
}
if command -v man >/dev/null; then
        check "each has a manual page" pages
        check "which man shows" bash -c "man -M '$p/share/man' unet_pollset_wait | grep -q unet_pollset_wait"
fi
check "unet run finds the shim" exits 0 "$p/bin/unet" run true
check "its exit status is the program's" exits 3 "$p/bin/unet" run sh -c 'exit 3'
cp -a "$p" "$scratch/with a blank"
# shellcheck disable=SC2016
check "from a path with a blank too" exits 0 "$scratch/with a blank/bin/unet" run \
        sh -c 'grep -q "with a blank.*libunet_preload" /proc/$$/maps'
check "no such program" exits 127 "$p/bin/unet" run /no/such/program
check "not a program" exits 126 "$p/bin/unet" run /etc/passwd
summary
