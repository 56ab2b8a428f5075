#!/bin/sh
# pages.sh DRIVERS - the driver schedule's pages for browsers; prints TAP.
drivers=$1
driver=$drivers/schedule
. "$(dirname "$0")/../../rigs/points.sh"

"$drivers/looping_pipeline" --mesh data=1,model=2 --layers 4 --hidden 16 --steps 2 --trace run >out 2>err
[ $? = 0 ] && call --format csv && mv out '<b>&"c.csv'
point 'a trace and a table'

# A page has the drawing, and tells of each of its boxes: a browser that reads it counts them.
browser=
for name in chromium-headless-shell chromium google-chrome; do
    [ "$browser" ] || browser=$(command -v $name)
done
boxes() { grep -c '<rect .*<title>' "$1"; }
# pages NAME ARGUMENT...
pages() {
    name=$1
    shift
    call "$@" --format svg && mv out drawing
    call "$@" --format html
    [ $status = 0 ] && [ ! -s err ] && [ "$(boxes out)" = "$(boxes drawing)" ] && grep -q '^<!DOCTYPE html>' out &&
        ! grep -qE '(src|href)=|https?://[^w]' out
    point "a page: $name"
    mv out page.html
    if [ "$browser" ]; then
        timeout 60 "$browser" --headless --no-sandbox --disable-gpu --dump-dom "file://$PWD/page.html" >read 2>err
        grep -q "<html[^>]* data-boxes=\"$(boxes page.html)\"" read
        point "a browser reads it: $name"
    else
        skip "a browser reads it: $name" 'there is no chromium'
    fi
}
pages 'a schedule' --name zbv --stages 3 --microbatches 6 --reduce 1
pages 'a run under its prediction' --compare run
pages 'all schedules' --all --stages 2 --microbatches 4
pages 'any name' --file '<b>&"c.csv'
grep -qF '<title>&lt;b&gt;&amp;' page.html
point 'the name is no tag'
plan
