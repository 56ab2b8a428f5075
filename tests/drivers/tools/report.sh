#!/bin/sh
# report.sh DRIVERS - pages and lines that the driver report makes of metrics and traces; prints TAP.
drivers=$1
driver=$drivers/report
. "$(dirname "$0")/../../rigs/points.sh"

# finds NAME TEXT...: the last call succeeded without a word on stderr, and each TEXT is in the file page.
finds() {
    name=$1 found=$([ $status = 0 ] && [ ! -s err ] && echo yes)
    shift
    for text in "$@"; do
        grep -qF -- "$text" page || found=
    done
    [ "$found" ]
    point "$name"
}

# ---- runs as drivers write them ----

mkdir run
small='--layers 4 --hidden 8 --batch 8 --microbatches 4 --steps 6'
"$drivers/looping_pipeline" --mesh data=2,model=2 $small --clip 1 --metrics run/metrics.jsonl --trace run/trace.json \
    >out 2>err &&
    "$drivers/transformer" train --mesh data=1 --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 \
        --layers-per-block 1 --blocks 2 --batch 2 --steps 6 --evaluate-every 3 --metrics words.jsonl >out 2>err
status=$?
[ $status = 0 ] && head -n 1 run/metrics.jsonl | grep -q '^{"step":0,.*"lr":0.001' &&
    tail -n 1 run/metrics.jsonl | grep -q '"memory":\[{"coordinate":0,"parameters":[1-9][0-9]*,"gradients":[1-9][0-9]*,'
point 'steps tell their learning rate, and the last line memory by category'

call run words.jsonl --output page
finds 'a page of two runs' '<!DOCTYPE html>' 'id="loss"' 'id="evaluation"' 'id="lr"' 'id="norm"' 'id="tokens"' 'id="ms"' \
    'id="accuracy"' 'id="memory"' '>optimizer<' 'A step of the pipeline: run' 'predicted and measured' '>words<' \
    'last evaluation' '>coordinates 0, 2<' '<code>--batch</code></th><td>8</td><td>2</td>'
! sed 's/ xmlns="[^"]*"//' page | grep -E 'https?:|//[a-z]|@import|url\(|<link rel="[^i]| src=' && [ ! -s out ]
point 'it names nothing outside itself'
call run/metrics.jsonl run/trace.json words.jsonl --output other && cmp -s page other
sed -i 's/>run</>metrics</; s/>run</>metrics</' page
call run --output run/report.html && [ $status = 0 ] && call run --output run/report.html && [ $status = 0 ]
point 'a page may lie in the directory that it shows'
call run/trace.json --output page
finds 'a trace alone' 'A step of the pipeline: trace' 'no metrics'
call this=run/metrics.jsonl that=words.jsonl this=run/trace.json --output page
finds 'a trace by the name of its run' 'A step of the pipeline: this' '>that<'

"$drivers/looping_pipeline" --mesh data=1,model=2 $small --metrics metrics --trace trace >out 2>err
sed 's/"schedule":"[a-z0-9-]*"/"schedule":"mine"/' trace >other
call metrics other --output page
finds 'a schedule that has no name cannot be drawn' 'Not drawn: ' 'mine'

# ---- numbers ----

cat >steps <<'END'
{"step":0,"loss":4,"lr":0.1,"ms":100}
{"step":1,"loss":3,"lr":0.1,"ms":4}
{"step":2,"loss":9,"lr":0.1,"ms":4,"something":"else"}

{"step":1,"loss":2.5,"lr":0.1,"ms":6}
{"step":2,"loss":null,"lr":0.1,"ms":8}
{"step":2,"evaluation_loss":2.25}
{"step":3,"loss":2.75,"lr":0.1,"ms":8}
END
call --json steps
[ $status = 0 ] && [ "$(cat out)" = '{"run":"steps","state":"not finished","steps":4,"last_step":3,"final_loss":2.75,"final_loss_low":1.22930937,"final_loss_high":4.27069063,"lowest_loss":2.5,"lowest_loss_low":0.979309367,"lowest_loss_high":4.02069063,"lowest_loss_step":1,"evaluation_loss":2.25,"best_evaluation_loss":2.25,"best_evaluation_loss_step":2,"median_ms":8.0,"median_ms_low":6.0,"median_ms_high":8.0}' ] &&
    [ "$(cat err)" = 'report: steps: 1 number is null: a gap in its plot' ]
point 'of a step that comes twice the later line counts, null is a gap, the first step is no typical one'
{
    cat steps
    printf '{"final_loss":2.75,"parameters":1000,"interrupted":true}\n{"step":4,"lo'
} >growing
call --json growing
[ $status = 0 ] && grep -q '"state":"interrupted","steps":4,' out && [ "$(wc -l <err)" = 1 ] &&
    grep -q 'growing: the last line, 10, is not whole and was left out' err
point 'a file that is being written'
cat growing steps >again
sed -i 's/{"step":4,"lo{/{/' again
call --json again
[ $status = 0 ] && grep -q '"state":"not finished","steps":4,' out
point 'a run that goes on has not finished'

for line in 'no JSON' '[1]' '{"step":1' 'NaN' '{"step":1}}'; do
    { cat steps && echo "$line" && echo '{"step":5,"loss":1}'; } >bad
    refuses 'bad: line 9: is no JSON object: metrics are JSON lines, as --metrics writes them' bad
done
for line in '"step":-1' '"step":1.5' '"step":"one"' '"step":1e16' '"step":null'; do
    echo "{$line,\"loss\":1}" >bad
    refuses 'bad: line 1: "step" is not a whole number from 0 to 1e15' bad
done
echo '{"step":1,"loss":"two"}' >bad
refuses 'bad: line 1: "loss" is neither a number nor null' bad
echo '{"step":1,"loss":1e101}' >bad
refuses 'bad: line 1: "loss" is beyond 1e100' bad
echo '{"something":"else"}' >bad
refuses 'bad: has no step yet' bad
: >bad
refuses 'bad: has no step yet' bad
refuses 'nothing: No such file' nothing
mkdir empty
refuses 'empty: a directory without a file that is called metrics or trace' empty
refuses 'the run a: has two files of metrics' a=steps a=words.jsonl
echo '{"traceEvents":[{"ph":"X"}]}' >bad
refuses 'the trace bad: event 0: has not all of' steps bad
refuses 'at most 24 runs' $(for i in $(seq 25); do echo "$i=steps"; done)
cat steps | "$driver" --json /dev/stdin >out 2>err
[ $? = 0 ] && grep -q '"steps":4,' out
point 'metrics from a pipe'

# ---- chance makes no best run ----

# noisy NAME MS LOSS: 200 steps whose times wander by a tenth, and losses from step to step by 0.2, around these.
noisy() {
    awk -v ms="$2" -v loss="$3" 'BEGIN {
        for (i = 0; i < 200; i++)
            printf "{\"step\":%d,\"loss\":%.6f,\"ms\":%.6f}\n", i, loss + 0.1 * cos(i * i), ms * (1 + 0.05 * sin(i / 20) + 0.01 * cos(i * i))
        print "{\"final_loss\":1}" }' >"$1"
}
noisy base 100 3
noisy near 101 3.05
noisy far 80 2
call base near --output page
[ $status = 0 ] && ! grep -q 'class="best"' page && ! grep -qE '[+-][0-9.]+ %' page && grep -qE '<small>9[0-9.]+ to 10[0-9.]+</small>' page
point 'runs that differ by less than their steps: no best, no percentage, and from where to where'
call base far --output page
[ $status = 0 ] && [ "$(grep -o 'class="best"' page | wc -l)" = 3 ] && grep -q -- '-20.0 %' page
point 'runs that differ by more: the best time and losses'
call base far --json
grep -qE '"median_ms":10[0-9.]+,"median_ms_low":9[0-9.]+,"median_ms_high":10[0-9.]+' out
point 'from where to where, for programs'
terminal=$(LC_ALL=C TERM=xterm "$driver" base near --terminal loss)
echo "$terminal" >out
! grep -qE '[+-][0-9.]+ %' out
point 'nor in a terminal'

# ---- for spreadsheets ----

call steps 'a "b", c=base' --csv table
[ $status = 0 ] && [ ! -s out ] && [ "$(head -n 6 table)" = "$(printf '%s\r\n' 'run,step,loss,evaluation_loss,lr,ms' 'steps,0,4,,0.1,100' 'steps,1,2.5,,0.1,6' 'steps,2,,2.25,0.1,8' \
    'steps,3,2.75,,0.1,8' '"a ""b"", c",0,3.1,,,101')" ]
point 'a row a step, and only the columns that runs have'
python3 -c '
import csv
rows = list(csv.DictReader(open("table", newline=""), strict=True))
assert len(rows) == 204 and all(None not in row and None not in row.values() for row in rows)
assert rows[5]["run"] == "a \"b\", c" and rows[203]["step"] == "199"' >out 2>err
point 'another program reads it'
refuses '--svg, --terminal, --json and --csv: one of them at most' steps --csv table --json
refuses '--output: --csv names the file of its own' steps --csv table --output page
refuses '--csv: nowhere/table: No such file' base --csv nowhere/table
refuses '--csv and RUN name the same file' steps --csv steps
refuses_with 3 '/dev/full: ' base --csv /dev/full
(ulimit -f 1 && exec "$driver" base --csv kept.csv) >out 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && [ ! -e kept.csv ]
point 'a full disk leaves no file'

# ---- large, and strange ----

python3 - <<'END'
import json, math
with open("long", "w") as file:
    for step in range(10000):
        loss = 987.5 if step == 4321 else 2 + 9 * math.exp(-step / 900) + 0.1 * math.sin(step * step)
        print(json.dumps({"step": step, "loss": loss, "lr": 1e-3 * math.exp(-step / 5000), "norm": 1 + math.sin(step), "mfu": 0.4,
                          "tokens_per_second": 30000 + 900 * math.cos(step), "ms": 60 + math.sin(step)}), file=file)
END
call long --output page
finds 'a spike among 10000 steps is there' '987.5' 'mean of up to 28 steps'
[ "$(wc -c <page)" -lt 500000 ]
point "such a page is small: $(wc -c <page) bytes"
head -n 2000 long >less
call $(for i in $(seq 24); do echo "number-$i=less"; done) --output page && [ "$(wc -c <page)" -lt 1000000 ]
point "that of 24 such runs, too: $(wc -c <page) bytes"

sed '/null/d' steps >whole
call "a <b>&\"c\"<script><!--=whole" --output page
finds 'names are escaped' 'a &lt;b&gt;&amp;&quot;c&quot;&lt;script&gt;&lt;!--' '\u003cb>&\"c\"\u003cscript>\u003c!--'
[ "$(grep -o '<script' page | wc -l)" = 2 ]
point 'and begin no script'
call "$(printf 'caf\303\251 \377 \001')=whole" --output page
finds 'names are UTF-8' "$(printf 'caf\303\251 ? ?')"

python3 - whole run >out 2>err <<END
import subprocess, sys, xml.dom.minidom
for plot in "loss evaluation lr norm ms accuracy memory timeline".split():
    text = subprocess.run(["$driver", "--svg", plot, *sys.argv[1:], "a<&\"=whole"], check=True, capture_output=True).stdout
    xml.dom.minidom.parseString(text)
END
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'each picture is XML'
call words.jsonl --svg loss --output page
finds 'one plot as a file' '<svg class="chart" role="img" xmlns=' 'Training loss' '<style>' '>words<'
refuses '--svg timeline: none of the runs has it' whole --svg timeline
refuses '--svg balance: none of the runs has it' whole --svg balance
refuses '--terminal tokens: none of the runs has it' whole --terminal tokens

# ---- in a terminal ----

# terminal LOCALE TERM ARGUMENT...
terminal() {
    locale=$1 type=$2
    shift 2
    LC_ALL=$locale TERM=$type "$driver" "$@" >out 2>err </dev/null
    status=$?
}

terminal C xterm whole --terminal all --width 60
[ $status = 0 ] && [ ! -s err ] && ! grep -q '[^ -~]' out && [ "$(wc -L <out)" -le 60 ] && grep -q 'Training loss' out &&
    grep -q 'final loss  *2.75' out && grep -q 'Milliseconds a step' out
point 'ASCII, 60 columns wide'
terminal C.UTF-8 dumb whole --terminal loss --width 60
[ $status = 0 ] && ! LC_ALL=C grep -q '[^ -~]' out
point 'ASCII on a terminal that shows no more'
terminal C.UTF-8 xterm whole --terminal loss --width 60
[ $status = 0 ] && LC_ALL=C grep -q "$(printf '\342\240\200\|\342[\240-\243]')" out && [ "$(LC_ALL=C.UTF-8 wc -L <out)" -le 60 ]
point 'braille where the locale is UTF-8'
for cores in 2 4; do
    for steps in 5 8; do
        echo "{\"step\":0,\"loss\":1,\"ms\":$steps}"
        echo "{\"final_loss\":1,\"coordinates\":4,\"cores\":$cores}"
    done >both
    head -n 2 both >"shared$cores" && tail -n 2 both >"other$cores"
done
call shared4 other4 --output page
grep -q '<td class="best">5</td>' page && ! grep -q 'coordinates share' page
point 'the fastest of runs with a core for each coordinate'
call shared2 other2 --output page
! grep -q '<td class="best">' page && [ "$(grep -c '4 coordinates share 2 cores: times are not those of 4 devices' page)" = 2 ] &&
    grep -q 'of speed none is' page
point 'none is the fastest where coordinates shared cores'
sed 's/"coordinates":4/"coordinates":2/' other4 >fewer
call shared4 fewer --output page && ! grep -q '<td class="best">' page
point 'nor where meshes differ'
terminal C xterm shared2 --terminal loss
grep -q '^shared2: 4 coordinates share 2 cores' out && call shared2 --json && grep -q '"coordinates":4,"cores":2' out
point 'in a terminal and for programs, too'
terminal C xterm one=whole two=words.jsonl --terminal loss
[ $status = 0 ] && grep -q '\*\* one' out && grep -q '++ two' out && [ "$(wc -L <out)" -le 80 ]
point 'runs have letters'
for step in 0 1 2 3; do
    echo "{\"step\":$step,\"loss\":3.0${step}63e-05,\"lr\":0.001,\"norm\":1e-$step}"
done >small.jsonl
terminal C xterm small.jsonl --terminal all
[ $status = 0 ] && grep -q '^ 3\.02e-05 |' out
point 'labels keep their exponents'
grep -q '^    0\.001 |\*' out && ! grep -q '0\.0010' out
point 'what never changes has round numbers beside it'
[ "$(grep -c '(log scale)' out)" = 1 ] && grep -q 'Gradient norm (log scale)' out && grep -q '^     0\.01 |' out
point 'more than two decades are drawn by powers'
script -qec "'$driver' whole" /dev/null </dev/null >out 2>err
grep -q 'a page is nothing for a terminal: write it with --output FILE.html' out
point 'a page does not go to a terminal'

# ---- output ----

"$driver" whole >page 2>err
status=$?
finds 'a page on stdout' '</html>'
echo old >kept
(ulimit -f 1 && exec "$driver" long --output kept) >out 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && [ "$(cat kept)" = old ] && [ "$(ls kept*)" = kept ]
point 'what cannot be written whole leaves the old file'

# ---- in a browser ----

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)

# probe FLAG...: opens the page, and prints colours, the number of plots drawn, and controls that the script has unlocked.
probe() {
    {
        cat page
        echo '<script>const of = (s, p) => getComputedStyle(document.querySelector(s))[p];
document.title = [of("body", "backgroundColor"), of("#loss .r0", "color"), document.querySelectorAll(".plot .chart g path").length,
    document.querySelectorAll("[hidden].control").length, document.querySelectorAll(".plot .cross").length].join(" | ");</script>'
    } >probe.html
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/browser" \
        --enable-logging=stderr --window-size=900,1200 "$@" --dump-dom "file://$work/probe.html" 2>log |
        sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p'
}

if [ -z "$browser" ]; then
    skip 'the page in a browser' 'there is no chromium (Debian: chromium)'
elif ! echo '<p>seen</p>' >seen.html || ! timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$work/browser" --dump-dom "file://$work/seen.html" 2>log | grep -q seen; then
    skip 'the page in a browser' "$browser does not run here"
else
    call run words.jsonl long --output page
    light=$(probe --blink-settings=preferredColorScheme=1)
    grep CONSOLE log >err
    echo "$light" >out
    [ ! -s err ] && expr "$light" : 'rgb(246, 248, 250) | rgb(0, 114, 178) | [1-9][0-9]* | 0 | [1-9]' >/dev/null
    point 'a browser draws it, the script runs, and there is no error and nothing that it may not load'
    dark=$(probe --blink-settings=preferredColorScheme=0)
    echo "$dark" >out
    expr "$dark" : 'rgb(15, 20, 26) | rgb(92, 184, 240) | ' >/dev/null
    point 'dark, where that is preferred'
fi

plan
