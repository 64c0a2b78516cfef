#!/usr/bin/env bash
# What is installed is complete, finds itself wherever the prefix is moved, and serves a program of one's own.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
export UNET_DOMAIN="install-$$"

check "install" cmake --install "$UNET_BUILD" --prefix "$scratch/first" --strip
mv "$scratch/first" "$scratch/moved"
p=$scratch/moved
for file in bin/unet lib/libunet_preload.so lib/libunet.so libexec/unet/unetd libexec/unet/unet-keeper \
        include/unet/unet.h include/unet/sock.h lib/pkgconfig/unet.pc share/man/man1/unet.1 share/man/man8/unetd.8; do
        check "$file is there" test -f "$p/$file"
done
check "nothing in it knows the build" bash -c "! grep -rlF '$UNET_BUILD' '$p'"

cat >"$scratch/own.c" <<'C'
#include <unet/sock.h>
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
check "unet run finds the shim" exits 0 "$p/bin/unet" run true
check "its exit status is the program's" exits 3 "$p/bin/unet" run sh -c 'exit 3'
check "no such program" exits 127 "$p/bin/unet" run /no/such/program
check "not a program" exits 126 "$p/bin/unet" run /etc/passwd
summary
