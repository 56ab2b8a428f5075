#!/bin/sh
# packages.sh BUILD CC SOURCE - `cpack -G DEB` makes packages of the build: they have the files of `cmake --install`,
# each once, and name the packages that they need; unpacked programs run, and programs link against the unpacked
# library; prints TAP.
build=$1 cc=$2 source=$3
for tool in cpack dpkg-deb dpkg-shlibdeps file pkg-config objdump gzip; do
    if ! command -v $tool >/dev/null; then
        echo "1..0 # SKIP there is no $tool"
        exit
    fi
done
if [ ! -e "$build/CPackConfig.cmake" ]; then
    echo '1..0 # SKIP this build makes no packages'
    exit
fi
. "$source/tests/rigs/points.sh"

# gzip takes a tenth of xz's time.
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/made" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >out 2>err
status=$?
names='shardloop libshardloop-dev shardloop-doc'
[ $status = 0 ] && [ "$(ls made/*.deb | sed 's|^made/||; s/_.*//' | LC_ALL=C sort | tr '\n' ' ')" = 'libshardloop-dev shardloop shardloop-doc ' ]
point 'cpack makes three packages'

# of NAME FIELD
of() {
    dpkg-deb -f made/"$1"_*.deb "$2"
}
# needs NAME: the names of the packages that it depends on.
needs() {
    of "$1" Depends | tr ',' '\n' | sed 's/^ *//; s/[ (].*//' | LC_ALL=C sort -u
}
# owners FILE...: the packages that have these files, also by their names if /lib is a link to /usr/lib.
owners() {
    for file; do
        realpath -s "$file"
        realpath -s "$file" | sed -n 's|^/usr/lib|/lib|p; s|^/lib|/usr/lib|p'
    done | xargs dpkg -S 2>/dev/null | sed 's/:.*//' | LC_ALL=C sort -u
}

# ---- contents of the packages ----

for name in $names; do
    dpkg-deb -c made/"$name"_*.deb >list
    awk '$2 != "root/root" || $1 ~ /^-..s|^.....w|^........w/ && $1 !~ /^l/ { print }' list
    awk '{ print $6 }' list | grep -v '^\./usr/'
    dpkg-deb -x made/"$name"_*.deb root
    for file in copyright changelog.gz changelog.Debian.gz; do
        [ -s "root/usr/share/doc/$name/$file" ] || echo "$name: no $file"
    done
done >out 2>err
[ ! -s out ] && [ ! -s err ]
point 'all is of root, nobody else writes it, below /usr, with a copyright and a changelog'

for name in $names; do
    dpkg-deb -c made/"$name"_*.deb | awk '$1 !~ /^d/ { print $6 }' | sort -u
done | sort | uniq -d >out
[ ! -s out ]
point 'no file is in two packages'

# Files that Debian has elsewhere, or packed, or under another name.
cmake --install "$build" --prefix "$work/prefix" >/dev/null 2>err
(cd prefix && find . ! -type d) | sed 's|^./lib/|./lib/ARCH/|; s|zsh/site-functions|zsh/vendor-completions|; s|\.1$|.1.gz|' |
    grep -v '^./share/doc/shardloop/LICENSE$' | sort >installed
(cd root/usr && find . ! -type d) | sed 's|^./lib/[^/]*-linux-[^/]*/|./lib/ARCH/|' |
    grep -Ev '^./share/doc/[a-z-]*/(copyright|changelog(\.Debian)?\.gz)$' | sort >unpacked
diff installed unpacked >out
point 'they have what cmake --install installs'

for program in root/usr/bin/*; do
    case $(file -b "$program") in *'not stripped'*) echo "$program: not stripped" ;; esac
    ! objdump -p "$program" | grep -q 'R.*PATH' || echo "$program: a path of its own to libraries"
    gzip -dc "root/usr/share/man/man1/${program##*/}.1.gz" | head -n 1 | grep -q '^\.TH' || echo "$program: no manual page"
    [ -e "root/usr/share/bash-completion/completions/${program##*/}" ] || echo "$program: no completion"
done >out 2>err
[ ! -s out ] && [ ! -s err ]
point 'programs are stripped, and have manual pages and completions'

if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning made/*.deb >out 2>err
    status=$?
    [ $status = 0 ]
    point 'lintian has neither errors nor warnings'
else
    skip 'lintian has neither errors nor warnings' 'there is no lintian'
fi

# ---- dependencies ----

needs shardloop >named
objdump -p root/usr/bin/* | sed -n 's/^ *NEEDED *//p' | grep -v '^ld-linux' | sort -u >loaded
ldd root/usr/bin/* | awk 'NR == FNR { loaded[$1]; next } $1 in loaded && $2 == "=>" { print $3 }' loaded - | sort -u >libraries
owners $(cat libraries) >owning 2>err
[ "$(wc -l <libraries)" = "$(wc -l <loaded)" ] && [ -s owning ] && diff named owning >out
point "the programs depend on the packages of the $(wc -l <loaded) libraries that they load, and on no others"

needs libshardloop-dev >named
description=$(echo root/usr/lib/*/pkgconfig/shardloop.pc)
{
    for module in $(sed -n 's/^Requires: //p' "$description"); do
        echo "$(pkg-config --variable=pcfiledir "$module")/$module.pc"
    done
    sed -n 's/^Libs: //p' "$description" | tr ' ' '\n' >words
    for library in $(sed -n 's/^-l//p' words | grep -vE '^(shardloop|m|stdc\+\+)$'); do
        file=$("$cc" -print-file-name="lib$library.so")
        for folder in $(sed -n 's/^-L//p' words | grep -v '^[$]'); do
            [ ! -e "$folder/lib$library.so" ] || file=$folder/lib$library.so
        done
        echo "$file"
    done
} >files 2>err
owners $(cat files) >owning 2>>err
[ -s owning ] && [ ! -s err ] && LC_ALL=C comm -23 owning named >out && [ ! -s out ] && [ "$(wc -l <owning)" -ge 6 ] &&
    { ! grep -q 'lstdc++' words || of libshardloop-dev Depends | grep -qF 'libstdc++-dev'; }
point "the library depends on the packages of the $(wc -l <files) files that its description for pkg-config names"

# ---- programs ----

root/usr/bin/shardloop sharding --json >out 2>err && "$build/drivers/sharding" --json | cmp - out
status=$?
point 'an unpacked program runs'
awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$source/README.md" >sum.c
PKG_CONFIG_PATH=$(dirname "$description") pkg-config --cflags --libs shardloop >flags 2>err &&
    ! grep -qF "$build" flags && "$cc" -std=gnu11 sum.c $(cat flags) -o sum >out 2>err && ./sum >out 2>err
status=$?
[ $status = 0 ] && [ "$(wc -l <out)" = 6 ]
point 'a program can be linked against the unpacked library'
plan
