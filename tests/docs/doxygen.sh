#!/bin/sh
# doxygen.sh BUILD - target docs makes pages of headers and guides, without a warning; prints TAP.
build=$1
. "$(dirname "$0")/../rigs/points.sh"

if ! command -v doxygen >out; then
    skip 'pages of headers and guides' 'there is no Doxygen'
    plan
    exit
fi
# shows FILE TEXT: the page has that text, between tags.
shows() {
    sed 's/<[^>]*>//g' "$build/docs/html/$1" | grep -qF -- "$2"
}
cmake --build "$build" --target docs >out 2>err && ! grep -i -e warning -e error: out err
point 'the target docs ends without a warning'
shows collectives_8h.html 'sl_psum' && shows structsl__schedule.html 'the stages of each rank'
point 'pages have functions, and the comments behind fields'
shows optimizer_8h.html 'STEP counts from 1.' && shows index.html 'A looping pipeline'
point 'comments before a function are its text; the README is the first page'
plan
