#!/bin/sh
# hosts.sh PROGRAM [few] - test_hosts on one host and on several, of equal and of different numbers of processes; prints TAP.
# few: two of the six. SL_TEST_LONG: also 64 and 256 processes.
program=$1
hosts='8 4 2 1 3,1,4 3,5'
[ -z "$2" ] || [ -n "${SL_TEST_LONG-}" ] || hosts='1 3,1,4'
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
command -v mpirun >/dev/null || exec "$mpirun"
. "$(dirname "$0")/../../rigs/points.sh"

# runs N HOSTS: on N processes.
runs() {
    SL_TEST_PROCESSES=$1 SL_TEST_HOSTS=$2 "$mpirun" "$1" "$program" mpi >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ "$(grep -c '^ok' out)" = 5 ]
    point "$1 processes on hosts of $2"
}
for sizes in $hosts; do runs 8 $sizes; done
if [ -n "${SL_TEST_LONG-}" ]; then
    runs 64 16
    runs 64 20,12,32
    runs 256 64
fi
plan
