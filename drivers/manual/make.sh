#!/bin/sh
# make.sh DRIVERS FOLDER NAME... - lets the programs in DRIVERS print their manual pages and shell completions, and
# puts these into FOLDER in the layout of share/.
set -eu
here=$(dirname "$0") drivers=$1 folder=$2
shift 2
mkdir -p "$folder/man" "$folder/bash-completion" "$folder/zsh" "$folder/fish"

# Another installation may run at the same time.
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
man=$work/man/man1 bash=$work/bash-completion/completions zsh=$work/zsh/site-functions fish=$work/fish/vendor_completions.d
mkdir -p "$man" "$bash" "$zsh" "$fish"

# tell FORMAT PROGRAM...
tell() {
    format=$1
    shift
    set -- $*
    [ -e "$drivers/$1" ] || set -- "shardloop-$@"
    SHARDLOOP_HELP=$format "$drivers/"$* --help </dev/null
}

# commands_of NAME: prints the commands with option tables of their own.
commands_of() {
    [ "$1" != plan ] || echo measure
    tell commands "$1"
}

tell man shardloop >"$man/shardloop.1"
tell fish shardloop >"$fish/shardloop.fish"
cp "$here/begin.bash" "$bash/shardloop"
echo "_shardloop_words[shardloop]='--help --version'" >>"$bash/shardloop"
{
    printf '#compdef shardloop'
    printf ' shardloop-%s' "$@"
    printf '\n# Made from the option tables of the programs.\n\n_shardloop_specify() {\n    case $1 in\n'
    printf "        shardloop) specifications=('1:command:(%s)' '--help[list the commands]' '--version[tell the version]') ;;\n" "$*"
} >"$zsh/_shardloop"
for name; do
    for program in "$name" $(commands_of "$name" | sed "s/^/$name=/"); do
        page=shardloop-$(echo "$program" | tr = -)
        program=$(echo "$program" | tr = ' ')
        tell man "$program" >"$man/$page.1"
        tell bash "$program" >>"$bash/shardloop"
        tell zsh "$program" >>"$zsh/_shardloop"
        tell fish "$program" >"$work/lines"
        grep -v '^complete -c shardloop ' "$work/lines" >>"$fish/shardloop-$name.fish" || true
        grep '^complete -c shardloop ' "$work/lines" >>"$fish/shardloop.fish" || true
    done
    ln -s shardloop "$bash/shardloop-$name"
done
cat "$here/end.bash" >>"$bash/shardloop"
cat "$here/end.zsh" >>"$zsh/_shardloop"
(cd "$work" && find man bash-completion zsh fish ! -type d) | while read -r file; do
    mkdir -p "$folder/${file%/*}"
    mv -f "$work/$file" "$folder/$file"
done
