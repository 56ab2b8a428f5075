#!/bin/sh
# commands.sh BUILD SOURCE - README.md, CONTRIBUTING.md and docs/ tell the truth; prints TAP.
#
# A block that begins with ```sh run is run as one script; ```sh run STATUS says how it ends. Blocks of one file are run
# one after another, in a folder where build/host is the build. A block ```text output after it is exactly
# its output.
#
# Words that begin with a folder of the repository are files there, or installed headers. sl_NAME and SL_NAME occur in the sources, and so
# does NAME(): in the one file that its line names, if there is one. FILE.c:LINE is a line that fits. Links lead to files and headings. Blocks ```diff are
# left out: they show files and lines that are not there yet (extending.sh).
#
# Each driver and each example has a row in README.md's table, which names the page that explains it and runs it.
build=$1 source=$2
. "$source/tests/rigs/points.sh"
folders='spmd collectives layers shardloop drivers benchmarks tests docs'
mkdir build
ln -s "$build" build/host
ln -s "$source/docs" docs
mkdir tests
ln -s "$source/tests/data" tests/data
# Pages say python3: one that has numpy.
mkdir bin
for python in python3 /usr/bin/python3; do
    [ -e bin/python3 ] || ! "$python" -c 'import numpy' 2>err || ln -s "$(command -v "$python")" bin/python3
done
export PATH="$work/bin:$PATH" PYTHONDONTWRITEBYTECODE=1
(cd "$source" && ls README.md CONTRIBUTING.md && find docs -name '*.md' | sort) >pages

# ---- commands ----

cat >blocks.awk <<'END'
/^```sh run/ {
    file = sprintf("block.%03d", ++count)
    printf "%s line %d\n%d\n", page, FNR, $3 > (file ".about")
    target = file ".sh"
    next
}
/^```text output$/ { target = file ".expected"; next }
/^```/ { target = ""; next }
target { print > target }
END
while read -r page; do
    rm -f block.*
    awk -v page="$page" -f blocks.awk "$source/$page"
    for block in block.*.sh; do
        [ -e "$block" ] || continue
        name=${block%.sh}
        if [ "$page" = docs/python.md ] && [ ! -e bin/python3 ]; then
            skip "$page" 'there is no Python with numpy'
            break
        fi
        { read -r where && read -r wanted; } <"$name.about"
        timeout 100 sh -eu "$block" >out 2>err </dev/null
        status=$?
        [ $status = "$wanted" ] && { [ ! -e "$name.expected" ] || cmp out "$name.expected" >>err; }
        point "$where: $(head -n 1 "$block")"
    done
done <pages

# ---- names ----

# The pages without their blocks ```diff, whose additions are not in the sources.
mkdir pages.plain
while read -r page; do
    mkdir -p "pages.plain/$(dirname "$page")"
    awk '/^```diff/ { inside = 1 } !inside { print } /^```$/ { inside = 0 }' "$source/$page" >"pages.plain/$page"
done <pages

# none NAME: passed if the file missing is empty; otherwise shows it.
none() {
    status=$(wc -l <missing)
    cp missing out
    : >err
    [ ! -s missing ]
    point "$1"
}

cat >paths.awk <<'END'
BEGIN {
    count = split(folders, list, " ")
    for (i = 1; i <= count; i++) known[list[i]] = 1
}
{
    gsub(/[^A-Za-z0-9_.\/-]/, " ")
    for (i = 1; i <= NF; i++) {
        word = $i
        sub(/^\.\//, "", word)
        sub(/[.-]+$/, "", word)
        if (split(word, part, "/") > 1 && part[1] in known) print FILENAME, word
    }
}
END
: >missing
(cd pages.plain && awk -v folders="$folders" -f "$work/paths.awk" $(cat "$work/pages")) | sort -u >words
while read -r page path; do
    [ -e "$source/$path" ] || [ -e "$build/front/$path" ] || echo "$page: there is no $path" >>missing
done <words
none "the $(wc -l <words) files that are named exist"

: >missing
(cd pages.plain && grep -oE '\]\([^):]+\)' $(cat "$work/pages") | sed 's/:](/ /; s/)$//') | sort -u >links
while read -r page link; do
    target=$(dirname "$page")/${link%%#*}
    case $link in
    '#'*) target=$page ;;
    esac
    [ -e "$source/$target" ] || echo "$page: no file is at the link $link" >>missing
    case $link in
    *'#'*)
        sed -n 's/^##* //p' "$source/$target" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9\n-' | grep -qxF -- "${link#*#}" ||
            echo "$page: no heading is at the link $link" >>missing
        ;;
    esac
done <links
none "the $(wc -l <links) links lead to files and headings"

(cd "$source" && find $folders CMakeLists.txt -type f ! -name '*.md' ! -path 'tests/docs/*') >sources
(cd "$source" && grep -hoE '\b(sl|SL)_[A-Za-z0-9_]+' $(cat "$work/sources")) | sort -u >defined
(cd pages.plain && grep -hoE '\b(sl|SL)_[A-Za-z0-9_]+' $(cat "$work/pages")) | sort -u >used
comm -23 used defined >missing
none "the $(wc -l <used) names of the library that are used occur in the sources"

cat >functions.awk <<'END'
/^```/ { inside = !inside }
inside { next }
{
    files = split($0, word, "`")
    file = ""
    found = 0
    for (i = 2; i <= files; i += 2) if (word[i] ~ /^[a-z0-9_\/]+\.[ch]$/) { file = word[i]; found++ }
    for (i = 2; i <= files; i += 2)
        if (word[i] ~ /^[a-z_0-9]+\(\)$/) print FILENAME, substr(word[i], 1, length(word[i]) - 2), found == 1 ? file : "-"
}
END
: >missing
(cd pages.plain && awk -f "$work/functions.awk" $(cat "$work/pages")) | sort -u >words
grep '\.[ch]$' sources >code
while read -r page function file; do
    if [ "$file" = - ]; then
        (cd "$source" && grep -qE "^[A-Za-z].*\b$function\(" $(cat "$work/code")) || echo "$page: $function() is nowhere" >>missing
    else
        grep -qE "^[A-Za-z].*\b$function\(" "$source/$file" 2>err || echo "$page: $function() is not in $file" >>missing
    fi
done <words
none "the $(wc -l <words) functions that are named are where they are said to be"

# A line of a file, as in a verdict or a debugger: the line makes a call, or the page has its text.
: >missing
(cd pages.plain && grep -oE '[A-Za-z0-9_/]+\.[ch]:[0-9]+' $(cat "$work/pages")) | sed 's/:/ /; s/:/ /; s| /| |' | sort -u >words
while read -r page file line; do
    path=$(grep -E "(^|/)$file\$" code)
    [ -e "$source/$path" ] && [ -n "$path" ] || continue # a program of the reader's
    text=$(sed -n "${line}{s/^ *//; s| */\*.*||; p}" "$source/$path")
    case $text in
    *[a-z_]\(*) ;;
    *) [ -n "$text" ] && grep -qF -- "$text" "$source/$page" || echo "$page: $file:$line is no call, and the page does not have it" >>missing ;;
    esac
done <words
none "the $(wc -l <words) lines of files that are named are there"

# ---- a page for each program ----

(cd "$build/drivers" && find . -maxdepth 1 -type f -perm -u+x ! -name shardloop | sed 's|^\./||; s|^shardloop-||' && cd "$source/drivers/examples" &&
    ls ./*.c | sed 's|^\./||; s/\.c$//') | sort -u >programs
cat >rows.awk <<'END'
/^\| `/ && match($0, /\]\(docs\/[^)#]*/) {
    page = substr($0, RSTART + 2, RLENGTH - 2)
    count = split($0, word, "`")
    for (i = 2; i <= count; i += 2) print word[i], page
}
END
awk -f rows.awk "$source/README.md" >rows
cat >told.awk <<'END'
/^```/ { block = block ? "" : $0; next }
block ~ /^```sh run/ && $0 ~ ("(^|[/ ])" name "( |$)") { runs = 1 }
!block && index($0, "`" name "`") { tells = 1 }
END {
    if (!tells) print FILENAME " does not explain " name
    if (!runs) print FILENAME " does not run " name
}
END
: >missing
while read -r name; do
    page=$(awk -v name="$name" '$1 == name { print $2; exit }' rows)
    [ "$page" ] || echo "README.md: no row of the drivers' table has $name and a page" >>missing
    [ -z "$page" ] || (cd "$source" && awk -v name="$name" -f "$work/told.awk" "$page") >>missing
done <programs
none "each of the $(wc -l <programs) drivers and examples has a page that explains and runs it"
plan
