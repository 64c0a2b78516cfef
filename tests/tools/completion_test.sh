#!/usr/bin/env bash
# Completion for bash: everything that --help names is completed, and where it belongs.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
unet=$UNET_BUILD/tools/unet
# shellcheck source=../../packaging/unet.bash
. "$UNET_SOURCE/packaging/unet.bash"

# completes WORD...: what bash would offer for the last word of this line, one a line.
completes() {
        COMP_WORDS=("$unet" "$@") COMP_CWORD=$#
        _unet
        printf '%s\n' "${COMPREPLY[@]}"
}
offers() { grep -qxF -- "$1" <<<"$(completes "${@:2}")" || { completes "${@:2}"; return 1; }; }
offers_not() { ! grep -qxF -- "$1" <<<"$(completes "${@:2}")"; }
nothing() { [ -z "$(completes "$@")" ] || { completes "$@"; return 1; }; }

mapfile -t commands < <("$unet" --help | sed -nE 's/^  ([a-z]+) .*/\1/p')
check "there are commands" test "${#commands[@]}" -ge 14
for command in "${commands[@]}"; do
        check "$command" offers "$command" "${command:0:1}"
        check "help $command" offers "$command" help ''
        options=$("$unet" "$command" --help | grep -oE '^  (-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' || true)
        verb=$("$unet" "$command" --help | sed -nE 's/^  ([a-z]+) .*/\1/p; s/^usage: unet [a-z]+ ([a-z]+) .*/\1/p')
        verb=${verb%%$'\n'*}
        for option in $options --help; do
                check "$command $option" offers "$option" "$command" ${verb:+"$verb"} --
                [ -z "${UNET_LONG:-}" ] || check "$command $option, half of it" offers "$option" "$command" ${verb:+"$verb"} "${option:0:4}"
        done
        # Options in the usage are among them.
        for option in $("$unet" "$command" --help | sed -n 1,2p | grep -oE -- '--[a-z-]+' || true); do
                check "$command has $option in its list" offers "$option" "$command" ${verb:+"$verb"} --
        done
done
for verb in show up down add remove; do
        check "if $verb" offers "$verb" if ''
done
check "am run" offers run am r
check "config check" offers check config c
check "no verb twice" offers_not show if show ''
check "no command of another letter" offers_not ss t
cd "$scratch"
touch file.conf
check "a file for an option" offers file.conf metrics --output "fil"
check "no file where a number is wanted" nothing top --count "fil"
check "no option of another command" offers_not --stacks top --
check "a file for config" offers file.conf config check "fil"
check "a program" offers bash run bas
check "behind options too" offers bash run --fault loss=1 bas
check "for am" offers bash am run --ranks 4 bas
check "its arguments are files" offers file.conf run cat "fil"
check "not options of ours" nothing run cat --lo
check "nothing for a command that is none" nothing nonsense --
# shellcheck disable=SC2016
check "bash knows it" bash -c '. "$1" && complete -p unet' bash "$UNET_SOURCE/packaging/unet.bash"
summary
