
# Whether the words $1 are a program, or the beginning of one.
_shardloop_begins() {
    local program
    for program in "${!_shardloop_words[@]}"; do
        [[ $program == "$1" || $program == "$1 "* ]] && return
    done
    return 1
}

_shardloop() {
    local name=${1##*/} word=$2 before=$3 at=1 program option entry value names= rest
    program=${name#shardloop}
    program=${program#-}
    while ((at < COMP_CWORD)) && _shardloop_begins "${program:+$program }${COMP_WORDS[at]}"; do
        program=${program:+$program }${COMP_WORDS[at++]}
    done
    option=$before
    [[ $before != '=' ]] || option=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $word != '=' ]] || word=
    COMPREPLY=()
    for entry in ${_shardloop_words[${program:-shardloop}]-}; do
        names+=" ${entry%%=*}"
        [[ $entry == "$option="* ]] || continue
        value=${entry#*=}
        case $value in
        :files) COMPREPLY=($(compgen -f -- "$word")) ;;
        :folders) COMPREPLY=($(compgen -d -- "$word")) ;;
        ?*) COMPREPLY=($(compgen -W "${value//|/ }" -- "$word")) ;;
        esac
        return
    done
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$names" -- "$word"))
        return
    fi
    names=
    for entry in "${!_shardloop_words[@]}"; do
        rest=${entry#"$program"}
        [[ $entry == shardloop || ($program && $rest != ' '*) ]] && continue
        rest=${rest# }
        names+=" ${rest%% *}"
    done
    if ((at == COMP_CWORD)) && [[ $names ]]; then
        COMPREPLY=($(compgen -W "$names" -- "$word" | sort -u))
    fi
    [[ $names && ${#COMPREPLY[@]} != 0 ]] || COMPREPLY=($(compgen -f -- "$word"))
}

for _shardloop_name in shardloop $(printf 'shardloop-%s\n' "${!_shardloop_words[@]}" | sed '/ /d'); do
    complete -o filenames -F _shardloop "$_shardloop_name"
done
unset _shardloop_name
