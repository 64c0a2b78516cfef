# shellcheck shell=bash
# Completion for bash of unet(1). What there is to complete it takes from `unet --help` and `unet COMMAND --help`, which are the
# tables of commands, and of each command's verbs and options.

# Lines of help that begin with a word: commands of unet, verbs of a command.
_unet_words() { sed -nE 's/^  ([a-z]+) .*/\1/p'; }

# Completes the word from those that are given, one a line.
_unet_offer() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }

_unet_files() {
        mapfile -t COMPREPLY < <(compgen -f -- "$1")
        compopt -o filenames 2>/dev/null
}

# Whether an option takes an argument, by the help, and which.
_unet_argument() { sed -nE "s/^  (-[a-z], )?$2 ([A-Z][A-Z,]*).*/\\2/p" <<<"$1"; }

# The place of the program that a command runs, among the words: the first that is neither an option nor an option's argument.
_unet_program() {
        local help=$1 i=$2
        while ((i < COMP_CWORD)); do
                case ${COMP_WORDS[i]} in
                --*) [[ -z $(_unet_argument "$help" "${COMP_WORDS[i]}") ]] || i=$((i + 1)) ;;
                -*) ;;
                *) break ;;
                esac
                i=$((i + 1))
        done
        echo "$i"
}

_unet() {
        local unet=${COMP_WORDS[0]/#\~/$HOME} command=${COMP_WORDS[1]-} help usage verbs program
        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} first=2

        COMPREPLY=()
        if ((COMP_CWORD == 1)) || [[ $command == help && $COMP_CWORD == 2 ]]; then
                _unet_offer "$("$unet" --help 2>/dev/null | _unet_words) help --help --version" "$cur"
                return
        fi
        help=$("$unet" "$command" --help 2>/dev/null </dev/null) || return 0
        usage=${help%%$'\n'*}
        verbs="$(_unet_words <<<"$help") $(sed -nE 's/^usage: unet [a-z]+ ([a-z]+) .*/\1/p' <<<"$usage")"
        [[ $verbs != ' ' ]] && first=3
        if [[ $usage == *PROGRAM* ]]; then
                program=$(_unet_program "$help" "$first")
                if ((COMP_CWORD > program)); then
                        _unet_files "$cur"
                        return
                fi
        fi
        case $(_unet_argument "$help" "$prev") in
        '') ;;
        FILE) _unet_files "$cur"; return ;;
        *) return ;;
        esac
        if [[ $cur == -* ]]; then
                _unet_offer "$(grep -oE '^  (-[a-z], )?--[a-z-]+' <<<"$help" | grep -oE -- '--[a-z-]+') --help" "$cur"
        elif ((COMP_CWORD < first)); then
                _unet_offer "$verbs" "$cur"
        elif [[ ${program-} == "$COMP_CWORD" ]]; then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        elif [[ $usage == *FILE* ]]; then
                _unet_files "$cur"
        fi
}

complete -F _unet unet
