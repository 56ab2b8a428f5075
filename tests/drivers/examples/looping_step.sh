#!/bin/sh
# looping_step.sh DRIVERS SOURCE - the looping pipeline that is written out is one page, and has the losses of
# looping_pipeline, on the same mesh and on one coordinate; prints TAP.
drivers=$1 source=$2
. "$source/tests/rigs/points.sh"

"$drivers/looping_step" 2>err | awk '/^step/ { print $2, $4 }' >losses
[ "$(wc -l <losses)" = 5 ] && [ ! -s err ]
point 'it trains five steps'
for mesh in data=2,model=4 data=1,model=1; do
    "$drivers/looping_pipeline" --rng global --mesh $mesh --steps 5 --json 2>err | sed -n 's/^{"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' >wanted
    status=$?
    join losses wanted | awk '{ by = $2 - $3; print; if (by > 1e-6 || by < -1e-6) other = 1 } END { exit other || NR != 5 }' >out
    point "its losses are those of looping_pipeline --mesh $mesh"
done
page=$source/drivers/examples/looping_step.c
[ "$(wc -l <"$page")" -le 250 ] && ! grep -q '#include "' "$page" && ! grep -qE 'sl_(pipeline|schedule)_' "$page"
point 'it is a page of 250 lines, over the installed header, without sl_pipeline and sl_schedule'
echo "1..$points"
