#!/bin/sh
# programs.sh BENCHMARKS - the programs that benchmarks/run runs, with next to nothing to do; prints TAP.
driver=$1/bench_step
mpirun=$(cd "$(dirname "$0")/.." && pwd)/mpirun
. "$(dirname "$0")/../rigs/points.sh"
small='--layers 2 --hidden 64 --mesh data=1,model=2 --batch 16 --microbatches 2 --steps 4 --warmup 1 --rounds 2'

# of NAME: the number, or the text, that the JSON line in out has under NAME.
of() {
    sed -n "s/.*\"$1\":\"*\([^\",]*\).*/\1/p" out
}

call $small --floor-seconds 0.0005
[ $status = 0 ] && awk -v floor="$(of floor_ms)" -v fma="$(of fma_gflops)" 'BEGIN { exit !(floor > 0 && fma > 0) }'
point "a step has a floor, and multiply-adds beside it"
[ "$(grep -o '"samples_ms":\[[^]]*\]' out | tr ',' '\n' | wc -l)" = 4 ]
point "and tells the time of each step"
[ "$(grep -o '"floors_ms":\[[^]]*\]' out | tr ',' '\n' | wc -l)" = 3 ] && awk -v ratios="$(sed -n 's/.*"ratios":\[\([^]]*\)\].*/\1/p' out)" \
    -v ratio="$(of ratio)" 'BEGIN { exit !(split(ratios, of, ",") == 2 && 2 * ratio > 0.999 * (of[1] + of[2]) && 2 * ratio < 1.001 * (of[1] + of[2])) }'
point "the ratio is the median of the rounds', each between two floors"
SHARDLOOP_CPU_LEVEL=2 call $small --floor-seconds 0.0005
[ $status = 0 ] && [ "$(of kernels)" = x86-64-v2 ] && [ "$(of level)" = x86-64-v2 ]
point "SHARDLOOP_CPU_LEVEL=2 lowers kernels and multiply-adds"
native=$(call $small --floor-seconds 0.0005 && of kernels)
for level in 4 5 ""; do
    SHARDLOOP_CPU_LEVEL=$level call $small --floor-seconds 0.0005
    [ $status = 0 ] && [ "$(of kernels)" = "$native" ]
    point "SHARDLOOP_CPU_LEVEL=\"$level\" changes nothing"
done
for level in 9 none; do
    SHARDLOOP_CPU_LEVEL=$level call $small --floor-seconds 0.0005
    [ $status = 2 ] && grep -qxF "bench_step: SHARDLOOP_CPU_LEVEL: \"$level\" is not 2, 3, 4 or 5" err
    point "SHARDLOOP_CPU_LEVEL=\"$level\" is refused"
done

driver=${driver%/*}/bench_products
# Other programs of the machine make single multiply-adds slower: the fastest ones count.
call --dtypes bf16 --shapes 1 --rows 64 --seconds 0.001 --rounds 1
products=$(wc -l <out)
[ $status = 0 ] && [ ! -s err ] && sed -n 's/.*"gflops":\([0-9.]*\),.*"fma_gflops":\([0-9.]*\).*/\1 \2/p' out |
    awk '$1 > product { product = $1 } $2 > adds { adds = $2 } END { exit !NR || product > 2 * adds }'
fits=$?
if [ $status = 0 ] && [ "$products" = 0 ] && ! grep -q 'avx512_bf16\|amx_bf16' /proc/cpuinfo; then
    skip "no product of bf16 is twice as fast as its multiply-adds by themselves" "this processor has none"
else
    [ $fits = 0 ]
    point "no product of bf16 is twice as fast as its multiply-adds by themselves"
fi

driver=${driver%/*}/bench_collectives
call --groups 2 --sizes 4 --seconds 0
[ $status = 0 ] && [ ! -s err ] && grep '"psum_gradients"' out | grep -q '"loops_us":[0-9.]*,"loops_share":[0-9.]*,' &&
    { [ "$(nproc)" = 1 ] || [ "$(grep -c '"line_ns":\[[0-9.]*,[0-9.]*\],' out)" = 3 ]; }
point "hand-overs and sums tell how far apart two cores are, and what two loops take"

if command -v mpirun >/dev/null && "${driver%/*}/bench_transformer" --engine mpi 2>&1 | grep -q mpirun; then
    "$mpirun" 2 "${driver%/*}/bench_transformer" --engine mpi --blocks 1 --layers-per-block 2 --model-dimension 64 --sequence 16 \
        --steps 2 --warmup 1 --rounds 1 --floor-seconds 0.0005 >out 2>err </dev/null
    [ $? = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = 1 ] && grep -q '"engine":"mpi"' out
    point "of several processes one tells what was measured"
fi

driver=${driver%/*}/bench_attention
call --widths 32 --sequences 20 --seconds 0.0005 --rounds 1
[ $status = 0 ] && [ ! -s err ] && [ "$(sed 's/.*"pass":"\([a-z]*\)".*/\1/' out | tr '\n' ' ')" = "forward backward decode " ] &&
    sed 's/.*"gflop":\([^,]*\),.*"products_gflops":\([^,]*\),.*/\1 \2/' out |
    awk '{ rate[NR] = $2; flop[NR] = $1 } END { exit !(NR == 3 && rate[1] > 0 && rate[2] > 0 && rate[3] > 0 &&
        flop[1] > 0.0219 && flop[1] < 0.0220 && flop[2] > 2.49 * flop[1] && flop[2] < 2.51 * flop[1]) }'
point "attention counts the pairs of a query and a key that it sees, and stands beside products"

# refuses PROGRAM TEXT ARGUMENT...: one line, and status 2.
refuses() {
    driver=${driver%/*}/$1 text=$2
    shift 2
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$text" err
    point "refused: $text"
}

refuses bench_products '--dtypes: "f64" is not f32, bf16 or all' --dtypes f64
refuses bench_products '--rows: "0" is not a whole number from 1 to 65536' --rows 8,0
refuses bench_products '--rows: more than 16 numbers' --rows 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
refuses bench_products '--shapes: "4" is not a whole number from 1 to 3' --shapes 4
refuses bench_products 'bench_products: "x" is no option' x
refuses bench_attention '--widths: "0" is not a whole number from 1 to 512' --widths 0
refuses bench_attention 'bench_attention: "x" is no option' x
refuses bench_collectives '--groups: "1" is not a whole number' --groups 1
export SHARDLOOP_CPU_LEVEL=9
for program in bench_products bench_attention bench_launch bench_startup bench_collectives; do
    refuses $program "$program: SHARDLOOP_CPU_LEVEL: \"9\" is not 2, 3, 4 or 5"
done
plan
