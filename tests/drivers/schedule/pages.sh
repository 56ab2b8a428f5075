#!/bin/sh
# pages.sh DRIVERS - pages for browsers and drawings of several timelines, of the drivers schedule and plan; prints TAP.
drivers=$1
driver=$drivers/schedule
try=$(cd "$(dirname "$0")" && pwd)/browser.py
. "$(dirname "$0")/../../rigs/points.sh"

"$drivers/looping_pipeline" --mesh data=1,model=2 --layers 4 --hidden 16 --steps 2 --trace run >out 2>err
[ $? = 0 ] && call --format csv && mv out '<b>&"c.csv'
point 'a trace and a table'

browser=
for name in chromium chromium-headless-shell google-chrome; do
    [ "$browser" ] || browser=$(command -v $name)
done
reason='there is no chromium (Debian: chromium)'
if [ "$browser" ] && ! timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$work/browser" --dump-dom about:blank >out 2>err; then
    reason="$browser does not run here" browser=
fi

# Boxes of a drawing: each has a title of its own, also if it goes on in the next band.
boxes() { grep '<rect .*<title>' "$1" | sed 's/.*<title>//' | if [ "$2" ]; then cat; else sort -u; fi | wc -l; }

# pages NAME ARGUMENT...: a page that needs no other file, and that a browser reads; it has as many boxes as the
# drawing, with the same texts.
pages() {
    name=$1
    shift
    call "$@" --format svg && mv out drawing
    call "$@" --format html
    [ $status = 0 ] && [ ! -s err ] && grep -q '^<!DOCTYPE html>' out && ! grep -qE '(src|href)=|https?:|@import|url\(' out
    point "a page: $name"
    mv out page.html
    if [ "$browser" ]; then
        timeout 100 python3 "$try" "$browser" page.html drawing >out 2>err
        status=$?
        [ $status = 0 ] && [ "$(cat out)" = "boxes $(boxes drawing $several)" ]
        point "a browser reads it, the mouse tells of boxes, the wheel zooms: $name"
    else
        skip "a browser reads it, the mouse tells of boxes, the wheel zooms: $name" "$reason"
    fi
}
several=
pages 'a schedule' --name zbv --stages 3 --microbatches 6 --reduce 1
pages 'a run under its prediction' --compare run
pages 'a schedule over another one' --name looped-bfs --microbatches 4 --over gpipe
pages 'any name' --file '<b>&"c.csv'
grep -qF '<title>&lt;b&gt;&amp;' page.html && ! grep -qF '<b>&' page.html
point 'the name is no tag'
several=yes
pages 'all schedules' --all --stages 2 --microbatches 4
driver=$drivers/plan
pages "the article's pipelines" --microbatches 4
driver=$drivers/schedule

call --name 1f1b --stages 8 --microbatches 625 --format html
[ $status = 0 ] && [ "$(wc -c <out)" -lt 300000 ]
point 'a page of 10,000 boxes has less than 300,000 bytes'

# ---- a schedule over another one ----

# The schedule below is grey, and as wide as the model makes it: gpipe has both stages of a rank in one.
call --name looped-bfs --stages 2 --loops 2 --microbatches 2 --over gpipe --format svg
[ "$(grep -c 'class="under".*gpipe: ' out)" = 8 ]
holds 'looped-bfs over gpipe' '<title>looped-bfs over gpipe</title>' '<title>gpipe: stage 0, forward of microbatch 1, 2 to 4 ms' \
    '<title>looped-bfs: stage 2, forward of microbatch 1, 3 to 4 ms' '15 ms, bubble 20.0 %' '>gpipe</text>'
[ "$(grep -c 'class="under"' out)" = 9 ]
point 'grey are its eight boxes, and one in the legend'
call --file '<b>&"c.csv' --over 1f1b --format svg
holds 'a table over another one' '&#60;b&#62;&#38;&#34;c'
call --synthesize --stages 2 --loops 2 --microbatches 4 --iterations 200 --over gpipe --format svg
holds 'a schedule made to measure over another one' 'synthesized over gpipe'
for format in svg html; do
    refuses 'there is no schedule "x"' --over x --format $format
    refuses '--over: is read only without --compare' --over gpipe --compare run --format $format
    refuses '--over: is read only without --all' --over gpipe --all --format $format
    refuses 'dualpipev: 2 microbatches on 4 stages' --microbatches 2 --over dualpipev --format $format
done
for format in table csv json indices; do
    refuses '--over: is read only with --format svg or html' --over gpipe --format $format
done

# ---- all pipelines in one drawing ----

driver=$drivers/plan
call --format svg --microbatches 4
holds "the article's pipelines" '>sequential: 48 ms, bubble 75.0 %, keeps 1<' '>grouped: ' '>interleaved: ' '>inference: 7 ms, bubble 42.9 %<'
[ "$(boxes out several)" = $((3 * 32 + 16)) ]
point 'each box is there'
refuses '--format: html is for pipelines, and no other section' --format html --section memory

# ---- no room ----

for arguments in 'schedule --format html' 'schedule --over gpipe --format svg' 'schedule --compare run --format html' 'plan --format svg' 'plan --format html'; do
    "$drivers/"$arguments >/dev/full 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'stdout: No space left' err
    point "$arguments: a full disk"
done
plan
