#!/bin/sh
# curve.sh DRIVERS - schedule --curve: utilization over the batch by formulas, by a machine's rates, and as a drawing;
# prints TAP.
driver=$1/schedule
. "$(dirname "$0")/../../rigs/points.sh"

# ---- equal microbatches ----

# With M microbatches on N ranks, gpipe's utilization is M / (M + N - 1), and with L loops of which each stage takes the
# L-th part, M / (M + (N - 1) / L) from M = N on.
call --curve gpipe,looped-bfs --stages 4 --loops 2 --microbatches 32
[ $status = 0 ] && [ ! -s err ] && awk '
    function differs(cell, wanted) { return cell - 100 * wanted > 0.051 || 100 * wanted - cell > 0.051 }
    $1 ~ /^[0-9]+$/ && NF == 5 {
        rows++
        bad += differs($2, $1 / ($1 + 3)) || ($1 >= 4 && differs($4, $1 / ($1 + 1.5)))
    }
    END { exit rows != 6 || bad }' out
point "gpipe's and looped-bfs's formulas"
call --curve gpipe,looped-bfs --communication 0.2 --microbatches 64
[ $status = 0 ] && awk '$1 == 64 { exit !($2 == "95.5" && $4 == "95.2" && $6 == "97.7" && $8 == "91.5") }' out
point 'where messages take time, loops lose more by them than they win'
call --curve looped-bfs,interleaved-1f1b --stages 4 --microbatches 4 --reduce 8 --no-overlap --format json
[ $status = 0 ] && [ "$(grep -c '"name":"looped-bfs","loops":2,"microbatches":[124],' out)" = 3 ] &&
    ! grep -q '"communication":true' out
point 'a JSON object a point'

# best NAME BATCH COMMUNICATION: the utilization told.
best() {
    sed -n "s/.*\"name\":\"$1\",.*:$2,\"best_microbatches\".*\"communication\":$3,\"utilization\":\([0-9.e-]*\).*/\1/p" out
}

# ---- a machine ----

cat >machine.json <<'END'
{"name": "two places", "nodes": [{"count": 1, "places": 4}],
 "products": [["f32", 4096, 1024, 1024, "NN", 100], ["f32", 64, 1024, 1024, "NN", 80], ["f32", 1, 1024, 1024, "NN", 2]],
 "kernels": {"moves": 1, "norms": 1, "gelu": 1, "softmax": 1, "dropout": 1, "optimizer": 1}, "attention_gflops": 50,
 "links": {"package": {"latency_us": 5, "gb_per_s": 10}}}
END
call --curve gpipe,looped-bfs --machine machine.json --batch 4096 --json
[ $status = 0 ] && awk -F'[:,}]' '{ if ($NF == "") u = $(NF - 1); bad += !(u > 0 && u <= 1) } END { exit bad || NR != 52 }' out
point 'thirteen batches, two curves each'
free=$(best gpipe 4096 false) sent=$(best gpipe 4096 true)
echo "$free $sent $(best gpipe 16 false)" | awk '{ exit !($1 > $2 && $1 > 5 * $3 && $3 > 0) }'
point 'small batches are slow, and messages cost'
call --curve gpipe --machine machine.json --batch 16 --layer-width 256
[ $status = 0 ] && grep -q '^utilization over the batch: 4 ranks of 2 layers of width 256; machine.json$' out &&
    grep -qE '^ +16 +[0-9.]+ % \([0-9]+\)' out
point 'the best number of microbatches stands beside'

# ---- a drawing ----

call --curve gpipe,1f1b,looped-dfs --communication 0.2 --format svg
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c 'fill="none" stroke=' out)" = 6 ] &&
    [ "$(grep -c stroke-dasharray out)" = 3 ] && grep -q '>looped-dfs</text>' out && tail -n 1 out | grep -qx '</svg>'
point 'six lines, three of them dashed'
call --curve gpipe --output curve.svg && grep -q '^<svg' curve.svg && [ ! -s out ]
point 'into a file'

# ---- refusals ----

refuses 'there is no schedule "x"' --curve gpipe,x
refuses 'there is no schedule ""' --curve gpipe,
refuses '--curve: at most 8 schedules' --curve gpipe,gpipe,gpipe,gpipe,gpipe,gpipe,gpipe,gpipe,gpipe
refuses '--curve: its formats are table, svg and json' --curve gpipe --format html
refuses '--curve: machine.json has 4 places, fewer than --stages 8' --curve gpipe --stages 8 --machine machine.json
refuses 'missing.json' --curve gpipe --machine missing.json
echo '{' >broken.json
refuses 'broken.json' --curve gpipe --machine broken.json
for option in '--batch 8' '--layer-width 8'; do
    refuses "${option% *}: is read only with --machine" --curve gpipe $option
done
refuses '--machine: is read only with --curve' --machine machine.json
refuses '--forward: is read only' --curve gpipe --machine machine.json --forward 2
for option in '--name gpipe' --check --simulate '--width 80' '--costs machine.json' '--over gpipe'; do
    refuses "${option% *}: is read only" --curve gpipe $option
done
refuses '--batch: "0" is not an integer from 1 to 1048576' --curve gpipe --machine machine.json --batch 0
refuses '--layer-width: "0" is not an integer from 1 to 65536' --curve gpipe --machine machine.json --layer-width 0
fills_stdout --curve gpipe
fills_stdout --curve gpipe --format svg
fills_stdout --curve gpipe --json

plan
