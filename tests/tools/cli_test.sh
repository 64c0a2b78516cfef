#!/usr/bin/env bash
# The unet command without any stack: help, usage, exit codes, the config file.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
unet=$UNET_BUILD/tools/unet
export UNET_DOMAIN="cli-$$" HOME=$scratch
unset UNET_CONFIG XDG_CONFIG_HOME

check "no command is wrong usage" exits 2 "$unet"
check "an unknown command is wrong usage" exits 2 "$unet" nonsense
check "help is no error" exits 0 "$unet" --help
check "version" exits 0 "$unet" --version
for command in run ss top why stat metrics status pcap config if route arp ping; do
        check "$command --help" exits 0 "$unet" "$command" --help
        check "$command --help says how it is used" says "usage: unet $command"
        check "help $command" exits 0 "$unet" help "$command"
        check "$command refuses options it does not know" exits 2 "$unet" "$command" --nonsense
done
for command in ss stat status if route arp; do
        check "$command has nothing to show without unetd" exits 1 "$unet" "$command"
        check "$command says so" says "no unetd runs"
        check "$command takes no arguments" exits 2 "$unet" "$command" surplus
done
# What is asked for as JSON is JSON, whatever there is to say.
is_json() { python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$scratch/out"; }
for command in ss stat status if route arp "why --pid 4194305" "pcap --write /nonexistent/x" "pcap --seconds 1 --write $scratch/p"; do
        # shellcheck disable=SC2086
        set -- $command
        check "$command --json has nothing to show" exits 1 "$unet" "$1" --json "${@:2}"
        check "$command --json is JSON" is_json
done
check "ping --json says that there is no such host" exits 2 "$unet" ping --json "no host"
check "in JSON" is_json
check "text that is no UTF-8 is printed" exits 1 "$unet" config check --json "$scratch/"$'\xff'
check "in JSON too" is_json
to() { local out=$1; shift; "$@" >"$out"; }
check "a full disk is a failure" exits 1 to /dev/full "$unet" config show
check "and said" says "standard output: No space left"
check "in packets too" exits 1 "$unet" pcap --seconds 1 --write /dev/full
check "said" says "/dev/full: No space left"
closed() { "$@" >&- 2>"$scratch/err"; }
check "output that is closed is a failure" exits 1 closed "$unet" config show
check "help may be cut" bash -c "set -o pipefail; '$unet' --help | head -1 >/dev/null"

check "route wants a prefix without bits behind it" exits 2 "$unet" route add 10.0.0.1/8 via 192.0.2.1
check "it says so" says "wants a prefix without bits behind it"
check "route wants a way" exits 2 "$unet" route add 10.0.0.0/8
check "route knows its words" exits 2 "$unet" route add default by 192.0.2.1
check "arp wants a link address" exits 2 "$unet" arp add 192.0.2.1
check "of one host" exits 2 "$unet" arp add 192.0.2.1 ff:ff:ff:ff:ff:ff
check "if wants an interface" exits 2 "$unet" if down
check "routes are unetd's" exits 1 "$unet" route add default via 192.0.2.1
check "which is not there" says "no unetd runs"
check "ping wants a host" exits 2 "$unet" ping
check "one of them" exits 2 "$unet" ping 192.0.2.1 192.0.2.2
for option in "--count 0" "--count x" "--interval 0" "--size 65508" "--ttl 256" "--timeout -1" "--source host" "--stack 0"; do
        # shellcheck disable=SC2086
        check "ping refuses $option" exits 2 "$unet" ping $option 192.0.2.1
done
for option in "--count 0" "--count x" "--count -1" "--interval 0" "--interval nan" "--interval x" surplus; do
        # shellcheck disable=SC2086
        check "top refuses $option" exits 2 "$unet" top $option
done
check "run wants a program" exits 2 "$unet" run
check "run refuses faults that are none" exits 2 "$unet" run --fault loss=2 true
check "and those it does not know" exits 2 "$unet" run --fault luck=0.5 true
without_proc() { unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"; }
if [[ $(ldd "$unet") == *libasan* ]]; then
        echo "# run without /proc: left out, ASan cannot start a program there"
elif without_proc true; then
        check "run needs no /proc" exits 0 without_proc "$unet" run true
        check "unetd does" exits 1 without_proc "$UNET_BUILD/unetd/unetd" --foreground
        check "and says so" says "/proc is not mounted here"
        # shellcheck disable=SC2016
        check "run finds the shim" exits 0 without_proc "$unet" run sh -c 'test "${LD_PRELOAD##*/}" = libunet_preload.so'
fi
check "why wants a program or a process" exits 2 "$unet" why
check "why wants one of them" exits 2 "$unet" why --pid 1 true
check "why wants a number" exits 2 "$unet" why --pid x
check "why: no such process" exits 1 "$unet" why --pid 4194305
check "pcap refuses numbers that are none" exits 2 "$unet" pcap --write "$scratch/p" --count 0
check "pcap refuses directions that are none" exits 2 "$unet" pcap --write "$scratch/p" --direction up

check "no config file is right" exits 0 "$unet" config check
check "it says that the defaults hold" says "defaults hold"
check "show shows them" exits 0 "$unet" config show --json
check "as JSON" python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))) > 10' "$scratch/out"
mkdir "$scratch/.config"
printf '[daemon]\nidle = 7\n' >"$scratch/.config/unet.conf"
check "the user's file is found" exits 0 "$unet" config check
check "it is named" says "$scratch/.config/unet.conf is right"
printf '[daemon]\nidle = 7\nidel = 8\n' >"$scratch/.config/unet.conf"
check "an unknown key is an error" exits 1 "$unet" config check
check "with file and line" says "$scratch/.config/unet.conf:3: unknown key \"idel\" in [daemon]"
check "and in JSON" exits 1 "$unet" config check --json
check "valid JSON" python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["line"] == 3 and not d["valid"]' \
        "$scratch/out"
check "run refuses to start with it" exits 1 "$unet" run true
check "config wants a verb" exits 2 "$unet" config
summary
