#!/bin/sh
# manual.sh BUILD SOURCE - every program has a page of the manual without mistakes that names all its options, and shells
# complete them; prints TAP.
build=$1 source=$2
if ! command -v cmake >/dev/null; then
    echo "1..0 # SKIP there is no cmake"
    exit
fi
. "$source/tests/rigs/points.sh"
cmake --install "$build" --prefix "$work/prefix" >out 2>err
status=$?
[ $status = 0 ] && ! grep -q 'no manual pages' out err
point 'cmake --install'
bin=$work/prefix/bin pages=$work/prefix/share/man/man1
PATH="$bin:$PATH"

# ---- pages ----

# programs: a line each, "transformer train" among them.
programs() {
    for program in "$bin"/shardloop-*; do
        name=${program##*/shardloop-}
        echo "$name"
        SHARDLOOP_HELP=commands "$program" --help | sed "/[^a-z]/d; s/^/$name /"
    done
    echo 'plan measure'
}
programs >programs
wc -l <programs >out
[ "$(wc -l <programs)" -gt 12 ]
point 'programs with commands'

ls "$pages" >there
{ echo shardloop.1 && sed 's/ /-/; s/\(.*\)/shardloop-\1.1/' programs; } | LC_ALL=C sort >expected
LC_ALL=C sort there | diff expected - >out 2>err
point 'each has a page, and there are no others'

: >out
while read -r program; do
    page=$pages/shardloop-$(echo "$program" | tr ' ' -).1
    # shellcheck disable=SC2086
    "$bin/shardloop-"$program --help all | sed -n 's/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/\2/p' | while read -r option; do
        sed 's/\\-/-/g; s/\[no-\]//' "$page" | grep -q -- "--$option\\\\fR" || echo "$program: --$option"
    done
    sed 's/\\-/-/g' "$page" | grep -q "^shardloop-$(echo "$program" | tr ' ' -) - [^ ]" || echo "$program: no summary"
done <programs >out 2>err
[ ! -s out ] && [ ! -s err ]
point 'it names all options, and says what the program does'

# Pairs of neighbours for tsort, which reports a loop if two programs differ: sections of the help, options of
# sections with the same title, and, if a program runs on a mesh, options whatever their sections.
while read -r program; do
    # shellcheck disable=SC2086
    "$bin/shardloop-"$program --help all | awk '
        function after(kind, name) { if (kind in last) print last[kind], kind name; last[kind] = kind name }
        !NF { body = 1; next }
        body && /^[A-Z][A-Za-z, ]*:$/ { gsub(" ", "_"); after("section:", $0); section = $0 }
        match($0, /^  --[^ ]*/) {
            name = substr($0, 5, RLENGTH - 4)
            sub(/^\[no-\]/, "", name)
            mesh = mesh || name == "mesh"
            after(section, name)
            if (mesh) after("option:", name)
        }'
done <programs >pairs 2>err
tsort pairs >out 2>>err
[ "$(wc -l <pairs)" -gt 300 ] && [ ! -s err ]
point "sections and options of $(grep -c . programs) programs stand in one order"

if command -v man >/dev/null && command -v groff >/dev/null; then
    for page in "$pages"/*; do
        LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 >/dev/null | sed "s|^|${page##*/}: |"
    done >out 2>err
    [ ! -s out ]
    point 'man --warnings says nothing'
else
    skip 'man --warnings' 'there is no man or no groff'
fi
if command -v mandoc >/dev/null; then
    # A date would be that of the installation.
    mandoc -T lint -W warning "$pages"/*.1 2>err | grep -v 'missing date' >out
    [ ! -s out ] && [ ! -s err ]
    point 'mandoc finds nothing to warn of'
else
    skip mandoc 'it is not installed'
fi

# ---- bash ----

if command -v bash >/dev/null; then
    cat >complete.bash <<'END'
# The words that are completed for the words $@, the last of which is not finished.
source "$completions/shardloop"
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shardloop "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
END
    completions=$work/prefix/share/bash-completion/completions
    export completions
    # completes WANTED WORD...: exactly these words.
    completes() {
        wanted=$1
        shift
        bash -u complete.bash "$@" >out 2>err
        status=$?
        [ $status = 0 ] && [ ! -s err ] && [ "$(LC_ALL=C sort out | tr '\n' ' ')" = "$wanted" ]
        point "bash completes: $*"
    }
    completes 'transformer ' shardloop tr
    completes 'train ' shardloop transformer tr
    completes 'train ' shardloop-transformer tr
    completes '--mesh ' shardloop transformer train --mes
    completes '--mesh ' "$bin/shardloop-transformer" train --mes
    completes '--no-fsdp ' shardloop looping_pipeline --no-fs
    completes 'bf16 ' shardloop transformer train --storage b
    completes 'bf16 ' shardloop transformer train --storage = b
    completes 'bf16 f32 ' shardloop transformer train --mesh data=2 --storage =
    completes 'zbv ' shardloop transformer train --schedule zb
    completes 'looped-bfs looped-dfs looping ' shardloop looping_pipeline --schedule loop
    completes 'adamw ' shardloop transformer train --optimizer ad
    completes 'local ' shardloop gpipe --engine lo
    completes 'inference ' shardloop plan --pipeline inf
    mkdir folder
    echo >folder.txt
    completes 'folder ' shardloop looping_pipeline --save fold
    completes 'folder folder.txt ' shardloop diff fold
    ls -L "$completions" | sort >there
    { echo shardloop && ls "$bin" | grep shardloop-; } | sort -u | diff - there >out 2>err
    point 'bash finds it under the name of each program'
else
    skip bash 'it is not installed'
fi

# ---- zsh and fish ----

if command -v zsh >/dev/null; then
    zsh -n "$work/prefix/share/zsh/site-functions/_shardloop" >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ]
    point 'zsh reads its functions'
    cat >words.zsh <<'END'
_arguments() { shift; print -rl -- "$@" | sed 's/\[.*//'; }
service=shardloop words=(shardloop transformer train --mes) CURRENT=4
source $1
END
    zsh -f words.zsh "$work/prefix/share/zsh/site-functions/_shardloop" >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ] && grep -qx -- '--mesh=' out && grep -qx -- '--no-fsdp' out
    point 'zsh chooses the options of the command'
else
    skip zsh 'it is not installed'
fi
if command -v fish >/dev/null; then
    folder=$work/prefix/share/fish/vendor_completions.d
    export HOME="$work"
    for words in 'shardloop transf' 'shardloop transformer tr' 'shardloop transformer train --mes' 'shardloop-transformer train --mes' \
        'shardloop-transformer train --storage b'; do
        fish --no-config -c "source $folder/shardloop.fish; source $folder/shardloop-transformer.fish; complete -C '$words'" 2>err |
            cut -f 1
    done >out
    status=$?
    [ ! -s err ] && [ "$(tr '\n' ' ' <out)" = 'transformer train --mesh --mesh bf16 ' ]
    point 'fish completes commands, options and values'
else
    skip fish 'it is not installed'
fi
plan
