#!/bin/sh
# accuracy.sh DRIVERS - test accuracy of a small model after an epoch of Fashion-MNIST; prints TAP.
drivers=$1
. "$(dirname "$0")/../rigs/points.sh"

images=/usr/share/datasets/fashion-mnist
if [ -d $images ]; then
    "$drivers/looping_pipeline" --data fashion-mnist:$images --epochs 1 --hidden 128 --layers 4 --mesh data=2,model=2 \
        --microbatches 4 --json >out 2>err
    tail -n 1 out | sed -n 's/.*"test_accuracy":\([0-9.e-]*\).*/\1/p' >accuracy
    awk '{ print "# test accuracy " $1; exit !($1 >= 0.84 && $1 < 0.95) }' accuracy && [ -s accuracy ]
    point 'one epoch of a small looping pipeline'
else
    skip 'one epoch of a small looping pipeline' "there is no $images"
fi

plan
