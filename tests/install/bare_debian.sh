#!/bin/sh
# bare_debian.sh FOLDER - the packages in FOLDER on a Debian that has nothing else: they are installed, used, looked at by
# lintian, and purged. It is for a system that is thrown away (tests/fresh_debian --packages starts it), and shows its
# commands as on a terminal.
set -eu
packages=$1
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
cd "$work"

# show COMMAND...: the command as it would be typed, and its output.
show() {
    echo "# $*" >&2
    "$@"
}
# apt COMMAND PACKAGE...: says how many packages that has set up or removed.
apt() {
    show apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" >apt.log 2>&1 || {
        cat apt.log
        exit 1
    }
    head -n 1 apt.log
    echo "$(grep -c '^Setting up ' apt.log) set up, $(grep -c '^Removing ' apt.log) removed"
}
add() {
    apt --no-install-recommends install "$@"
}

apt-get -qq update
dpkg-query -f '${Package}\n' -W | sort >before
add "$packages"/shardloop_*.deb
dpkg-query -f '${Package}\n' -W | sort | comm -13 before - | paste -s -d ' '
show shardloop --version
show shardloop
show shardloop loss_equality
show shardloop transformer train --mesh data=2,pipe=2 --steps 3 --sequence 64
test -e /usr/share/man/man1/shardloop-transformer.1.gz

# Processes, once there is an mpirun.
add openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
show mpirun --oversubscribe --bind-to none -n 8 shardloop sharding --engine mpi --json >processes
cmp processes "$(shardloop sharding --json >threads && echo threads)"

# A program of one's own: README.md's, and the examples.
add "$packages"/libshardloop-dev_*.deb "$packages"/shardloop-doc_*.deb gcc libc6-dev
documents=/usr/share/doc/shardloop
awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' $documents/README.md >sum.c
show cc sum.c $(pkg-config --cflags --libs shardloop) -o sum
show ./sum
add cmake make
show cmake -S $documents/examples -B examples >configured
show cmake --build examples
show examples/regression

add lintian
show lintian --allow-root --fail-on error,warning "$packages"/*.deb

apt purge shardloop libshardloop-dev shardloop-doc
left=$(find / -xdev \( -path /root -o -path '/tmp/clone of *' -o -path /proc -o -path /sys -o -path "$work" \) -prune -o -name '*shardloop*' -print)
[ -z "$left" ] || { echo "left: $left" && exit 1; }
! dpkg-query -W '*shardloop*' 2>/dev/null
rm -rf "$work"
echo 'purged: nothing is left'
