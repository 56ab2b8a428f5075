#!/bin/sh
# experts.sh DRIVERS - the transformer with experts in place of MLPs: the same training in every layout, reports,
# generation, refusals; prints TAP.
driver=$1/transformer
. "$(dirname "$0")/../rigs/points.sh"

jackdaws >text
model='--model-dimension 16 --n-heads 4 --latent-dim 8 --rope-dim 4 --sequence 16 --vocab-size 128'

# same ARGUMENT...: with $options and ARGUMENTs, the steps' losses and balances equal those in `single`, to 1e-5.
same() {
    call train $model --data text --batch 8 --steps 4 --json $options "$@"
    [ $status = 0 ] && [ ! -s err ] && losses out | paste single - | awk '
        function far(a, b) { return a - b > 1e-5 * a || b - a > 1e-5 * a }
        NF != 4 || far($1, $3) || far($2, $4) { bad = 1 }
        END { exit bad || NR != 4 }'
    point "as on one coordinate: $options $*"
}

# losses FILE: prints a line for each step, with its loss and its balance.
losses() {
    sed -n 's/.*"loss":\([^,}]*\).*"balance":\([^,}]*\).*/\1 \2/p' "$1"
}

for options in '--experts 4' '--experts 4 --top-k 1 --capacity 0.5 --no-fsdp --clip 0.5' \
    '--experts 8 --shared-experts 1 --expert-dim 24 --balance 0.3 --recompute full'; do
    call train $model --data text --batch 8 --steps 4 --json $options --mesh data=1
    losses out >single
    same --mesh data=2,pipe=2,tensor=2
    same --mesh tensor=2,data=4 --zero 0 --checked
    same --mesh pipe=3,data=2 --schedule zbv --microbatches 4
done

# ---- reports ----

options='--experts 4 --top-k 2 --shared-experts 1 --expert-dim 24'
call train $model --data text --steps 2 $options
holds 'a column for the balance' balance 'parameters '
call train $model --data text --steps 2
[ $status = 0 ] && ! grep -q balance out
point 'and none without experts'

# All elements of --show-shardings, and the driver's own count.
"$driver" train $model $options --data text --mesh data=1 --show-shardings --json |
    sed -n 's/.*"shape":\[\([^]]*\)\].*/\1/p' | tr -d ' ' |
    awk -F , '{ n = 1; for (i = 1; i <= NF; i++) n *= $i; sum += n } END { printf "\"parameters\":%d,\n", sum }' >count
call train $model $options --data text --steps 1 --json
[ $status = 0 ] && grep -qf count out
point 'parameters are counted'
call train $model $options --data text --show-shardings
holds 'experts are sharded over data' 'moe.experts.up.kernel  [4, 16, 24]     data,tensor       [2, 8, 24]' \
    'moe.router.kernel'
call train $model $options --data text --show-shardings --no-fsdp
holds 'also without FSDP' 'moe.experts.up.kernel  [4, 16, 24]     data,tensor       [2, 8, 24]'

# ---- generation ----

for mesh in data=1 data=2,pipe=2,tensor=2; do
    "$driver" generate $model $options --temperature 0 --prompt jack --mesh $mesh --json --checked |
        grep '"sample"' >$mesh
done
[ -s data=1 ] && cmp -s data=1 data=2,pipe=2,tensor=2
point 'the same tokens'

# ---- refusals: one line each ----

# wrong TEXT COMMAND ARGUMENT...: status 2, nothing on stdout, one line with TEXT on stderr.
wrong() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "transformer $1: $text" err
    point "refused: $*"
}
wrong 'a token goes to 5 of the 4 experts: choose from 1 to 4' train --experts 4 --top-k 5
wrong 'a token goes to 2 of the 1 experts: choose from 1 to 1' generate --experts 1
wrong 'the number of experts 3 does not divide over the 2 coordinates along "data"' train --experts 3 --no-fsdp
wrong 'expert dimension 5 does not divide over the 2 coordinates along "tensor"' train --experts 4 --expert-dim 5
wrong '--top-k: "0" is not an integer from 1 to 4096' train --experts 4 --top-k 0
wrong '--capacity: "-1" is not a number from 0' train --experts 4 --capacity -1

plan
