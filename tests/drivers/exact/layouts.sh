# layouts.sh - sourced: layouts of a model that have the same bits. Needs $drivers, and points.sh.

# train LAYOUT...: a run of $model.
train() {
    rm -f gradients
    timeout 300 "$drivers"/$model --json --gradients gradients "$@" >out 2>err </dev/null
    status=$?
    grep -E '"step"|"evaluation_loss"' out | sed 's/,"ms".*//;s/,"tokens_per_second.*//' >digits
}

# begins NAME MODEL LAYOUT...: the run that later layouts are compared with.
begins() {
    name=$1 model=$2
    shift 2
    train "$@"
    mv digits digits.expected && mv gradients gradients.expected && [ $status = 0 ] && [ -s digits.expected ]
    point "$name: $*"
}

# same LAYOUT...
same() {
    train "$@"
    [ $status = 0 ] && [ ! -s err ] && cmp -s digits digits.expected && cmp -s gradients gradients.expected
    point "$name, the same bits: $*"
}
