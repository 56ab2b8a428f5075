#!/bin/sh
# blanks.sh BUILD SOURCE - a checkout whose path has blanks: tests get it by a path without, and the script of cmake that
# installs the programs is called by one that may have some; prints TAP.
build=$1 source=$2
. "$source/tests/rigs/points.sh"

mkdir -p 'a b/tests' 'a b/build'
cp "$source/tests/tap" 'a b/tests/tap'
cat >'a b/tests/one.sh' <<'END'
#!/bin/sh
# one.sh ROOT BUILD OTHER
for path in "$0" "$1" "$2" "$PWD"; do
    case $path in
    *' '*) echo "not ok 1 - $path" ;;
    *) [ -e "$path/." ] || [ "$path" = "$0" ] || echo "not ok 1 - $path is not there" ;;
    esac
done
[ "$3" = 'c d' ] || echo 'not ok 1 - another argument was changed'
echo 'ok 1'
echo 1..1
END
chmod +x 'a b/tests/one.sh'
'a b/tests/tap' "$work/a b/tests/one.sh" "$work/a b" "$work/a b/build" 'c d' >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'tests get paths without blanks'

grep -c 'COMMAND sh "[^"]*/manual/make.sh" "[^"]*" "[^"]*/pages" ' "$build/drivers/cmake_install.cmake" >out 2>err
[ "$(cat out)" = 1 ]
point 'paths are in quotes where programs are installed'
plan
