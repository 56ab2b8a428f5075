    esac
}

# The first words that are a program; then its own specifications.
_shardloop() {
    local program=${${service#shardloop}#-}
    local -a specifications
    while ((CURRENT > 2)) && _shardloop_specify "${program:+$program }$words[2]" && (($#specifications)); do
        program=${program:+$program }$words[2]
        shift words
        ((CURRENT--))
        specifications=()
    done
    specifications=()
    _shardloop_specify "${program:-shardloop}"
    _arguments -S $specifications
}

_shardloop "$@"
