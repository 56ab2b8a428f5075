# quick.sh - sourced by tests/gpu for --quick: takes the steps of the file list one after another until the time is
# spent, and prints one table of them. Programs are started as tests/list says; nothing else is needed.
here=tests/gpu_quick
rows=$(mktemp)
trap 'rm -f "$commands" "$rows"' EXIT
trap 'interrupted=yes; [ -z "$running" ] || kill "$running"' INT TERM
interrupted=
running=
began=$(date +%s)

# row NAME VERDICT TENTHS DIFFERS NOTE: verdicts are passed, FAILED, skipped, cut off and not reached. No column is empty:
# read would skip it.
row() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:--}" "$(printf %s "${5:--}" | tr '\t\n' '  ' | cut -c 1-150)" >>"$rows"
    [ "$2" = 'not reached' ] || printf '%s %s: %s\n' "$(date +%T)" "$1" "$2" >&2
}

now() { echo $(($(date +%s%N) / 100000000)); }
left() { echo $((began + seconds - $(date +%s))); }

# run NAME LIMIT COMMAND...: its output goes to $logs/NAME. Sets $status, $tenths and, if it was ended, $late:
# "limit", "time" where the time for all was spent, or "signal".
run() {
    name=$1 limit=$2
    shift 2
    late=
    rest=$(left)
    [ "$rest" -ge 1 ] || rest=1
    [ "$limit" -le "$rest" ] || limit=$rest late=time
    start=$(now)
    status=0
    timeout -k 3 "$limit" "$@" >"$logs/$name" 2>&1 </dev/null &
    running=$!
    wait $running || status=$?
    running=
    tenths=$(($(now) - start))
    case $status in
    124 | 137) [ -n "$late" ] || late=limit ;;
    *) late= ;;
    esac
    [ -z "$interrupted" ] || late=signal
}

# The first point that failed, and the message of cmocka about it (on stderr, before all points); else the last line.
complaint() {
    { grep -m 1 '^not ok' "$1" && { grep -m 1 '^ERROR: ' "$1" || grep -m 1 -A 1 '^not ok' "$1" | tail -n 1; } ||
        grep -vE '^(# |ok |1\.\.|$)' "$1" | tail -n 1 || cat "$1"; } | head -n 2 | tr '\n' ' '
}

# The result that came nearest to its limit, as the test reports it (tests/rigs/numbers.h).
nearest() { sed -n 's/^# nearest to its limit: \([^,]*\).*/\1/p' "$1" | tail -n 1; }

# conclude NAME: the row of the command that run has run.
conclude() {
    log=$logs/$1
    case $late in
    signal) row "$1" 'cut off' $tenths "" "a signal came" && return ;;
    time) row "$1" 'cut off' $tenths "" "the time was spent" && return ;;
    limit) row "$1" FAILED $tenths "" "ended after $limit seconds; its last line: $(tail -n 1 "$log")" && return ;;
    esac
    case $status in
    0) row "$1" passed $tenths "$(nearest "$log")" "" ;;
    77) row "$1" skipped $tenths "$(nearest "$log")" "$(grep -m 1 'SKIP' "$log" | sed 's/.*SKIP *//')" ;;
    *) row "$1" FAILED $tenths "$(nearest "$log")" "status $status: $(complaint "$log")" ;;
    esac
}

# ---- steps

# Which GPU and driver.
step_gpu() {
    if [ "$device" != cuda ]; then
        row gpu skipped 0 "" "this build computes on threads that behave like GPUs: times mean nothing"
        return
    fi
    run gpu "$1" nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
    case $status in
    0) row gpu passed $tenths "" "$(tr '\n' ';' <"$logs/gpu")" ;;
    *) row gpu skipped $tenths "" "nvidia-smi ends with $status" ;;
    esac
}

# Libraries that one of the programs has, and that are not found.
lost_libraries() {
    for program in "$directory"/tests/test_* "$directory"/drivers/* "$directory"/benchmarks/bench_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then ldd "$program" 2>/dev/null || true; fi
    done | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u
}

# Makes links in $directory/tests/lib to libraries that programs do not find: in the pack, or in CUDA's folders. No
# other libraries come before the system's own.
link_libraries() {
    rm -rf "$directory/tests/lib"
    mkdir -p "$directory/tests/lib"
    export LD_LIBRARY_PATH="$root/tests/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    packages=$(python3 -c 'import sys; print(" ".join(path + "/nvidia" for path in sys.path if path))' 2>/dev/null) || true
    for round in 1 2 3; do # a linked library may need others
        lost=$(lost_libraries)
        linked=
        for library in $lost; do
            for place in "$root/lib" /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/*/lib \
                $(ls -d $(printf '%s/*/lib ' $packages) 2>/dev/null); do
                [ -e "$place/$library" ] || continue
                ln -sf "$place/$library" "$directory/tests/lib"
                linked=yes
                break
            done
        done
        [ -n "$linked" ] || break
    done
    lost=$(lost_libraries | tr '\n' ' ')
    linked=$(ls "$directory/tests/lib" | tr '\n' ' ')
}

# Whether the programs' libraries are here.
step_libraries() {
    command -v ldd >/dev/null || { row libraries skipped 0 "" "there is no ldd" && return; }
    [ -z "$lost" ] || { row libraries FAILED 0 "" "not found: $lost" && return; }
    row libraries passed 0 "" "${linked:+not the system's: $linked}"
}

# A driver's losses beside those of a CPU.
step_loss() {
    name=$1 limit=$2
    grep "^$name$tab" $here/losses >"$rows.loss" || true
    IFS=$tab read -r _ tolerance wanted words <"$rows.loss" || wanted=
    rm -f "$rows.loss"
    program=$directory/drivers/${words%% *}
    [ -n "$wanted" ] || { row "$name" FAILED 0 "" "$here/losses has no such losses" && return; }
    [ -x "$program" ] || { row "$name" skipped 0 "" "there is no $program" && return; }
    case $words in
    *nccl*)
        gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || true
        if [ "$device" = cuda ] && [ "${gpus:-0}" -lt 2 ] && [ "${NCCL_MULTI_RANK_GPU_ENABLE:-0}" != 1 ]; then
            row "$name" skipped 0 "" "a GPU a coordinate: there is ${gpus:-0} of 2, and NCCL_MULTI_RANK_GPU_ENABLE is not 1"
            return
        fi
        ;;
    esac
    run "$name" "$limit" "$program" ${words#* } --json
    if [ $status != 0 ] || [ -n "$late" ]; then
        conclude "$name"
        return
    fi
    # A loss that is no number is left out of the line.
    sed -n '/^{"step":/{s/.*"loss":\([^,}]*\).*/\1/;s/^{.*/none/;p}' "$logs/$name" | awk -v wanted="$wanted" -v tolerance="$tolerance" '
        BEGIN { n = split(wanted, want, " ") }
        { got = $1 + 0; d = got - want[NR]; if (d < 0) d = -d
          if ($1 !~ /^[-+.0-9eE]+$/ || NR > n || !(d <= tolerance * want[NR])) { if (!bad) bad = NR; said[NR] = $1 }
          if (d / want[NR] > most) most = d / want[NR] }
        END { printf "%.1e of %s\t", most, tolerance
              if (NR != n) printf "%d losses of %d", NR, n
              else if (bad) printf "step %d: %s in place of %s", bad - 1, said[bad], want[bad]
              print ""; exit bad || NR != n }' >"$rows.loss" || status=1
    IFS=$tab read -r differs note <"$rows.loss" || true
    rm -f "$rows.loss"
    row "$name" "$([ $status = 0 ] && echo passed || echo FAILED)" $tenths "$differs" "$note"
}

# Costs of starting work.
step_launches() {
    [ -x "$directory/benchmarks/bench_launch" ] || { row launches skipped 0 "" "there is no $directory/benchmarks/bench_launch" && return; }
    run launches "$1" "$directory/benchmarks/bench_launch"
    [ $status = 0 ] || { conclude launches && return; }
    figures=$(sed -n 's/.*"region_us":\([0-9]*\.*[0-9]\{0,2\}\).*"product_us":\([0-9]*\.*[0-9]\{0,2\}\).*/a region takes \1 us, a product \2/p' "$logs/launches")
    row launches passed $tenths "" "$figures"
}

# The article's step, predicted and measured: a row for each precision.
step_steps() {
    if [ "$device" != cuda ] || ! [ -x "$directory/benchmarks/bench_step" ]; then
        row steps skipped 0 "" "no benchmarks for GPUs in $directory"
    elif ! command -v python3 >/dev/null; then
        row steps skipped 0 "" "there is no python3"
    else
        run steps "$1" ./benchmarks/run --gpu --quick --alone --json --build "$directory"
        python3 -B $here/steps.py "$logs/steps" >"$rows.steps" 2>/dev/null || true
        while read -r name verdict note; do row "$name" "$verdict" $tenths "" "$note"; done <"$rows.steps"
        [ $status = 0 ] && [ -s "$rows.steps" ] || conclude steps
        rm -f "$rows.steps"
    fi
}

# step_test NAME LIMIT ARGUMENT...: one of tests/list, with ARGUMENTs behind its own.
step_test() {
    name=$1 limit=$2
    shift 2
    line=$(grep "^$name$tab" "$commands") || line=
    [ -n "$line" ] || { row "$name" skipped 0 "" "not in this build" && return; }
    more=$*
    IFS=$tab
    set -- $line
    unset IFS
    shift
    for word; do :; done
    reason=$(missing "$name")
    for word; do
        case $word in "$root"/tests/*) [ -e "$word" ] || case $word in */cache) ;; *) reason="there is no $word" ;; esac ;; esac
    done
    [ -z "$reason" ] || { row "$name" skipped 0 "" "$reason" && return; }
    run "$name" "$limit" "$@" $more
    conclude "$name"
}

# ---- all of them

# Rows as a table, or as JSON; then how many, and how long.
tell() {
    if [ -n "$json" ]; then
        awk -F "$tab" '
            function quoted(text) { gsub(/\\/, "\\\\\\\\", text); gsub(/"/, "\\\\\"", text); gsub(/[\001-\037]/, " ", text); return "\"" text "\"" }
            { if ($4 == "-") $4 = ""; if ($5 == "-") $5 = ""
              printf "{\"test\":%s,\"verdict\":%s,\"seconds\":%.1f,\"differs\":%s,\"note\":%s}\n",
                  quoted($1), quoted($2), $3 / 10, quoted($4), quoted($5) }' "$rows"
        return
    fi
    awk -F "$tab" '
        BEGIN { name[0] = "step"; verdict[0] = "verdict"; time[0] = "s"; differs[0] = "differs"; note[0] = "note" }
        { name[NR] = $1; verdict[NR] = $2; time[NR] = $2 ~ /reached|skipped/ && !$3 ? "" : sprintf("%.1f", $3 / 10)
          differs[NR] = $4 == "-" ? "" : $4; note[NR] = $5 == "-" ? "" : $5 }
        END { for (i = 0; i <= NR; i++) {
                  if (length(name[i]) > wide) wide = length(name[i])
                  if (length(differs[i]) > wider) wider = length(differs[i]) }
              for (i = 0; i <= NR; i++) {
                  line = sprintf("%-" wide "s  %-11s  %6s  %-" wider "s  %s", name[i], verdict[i], time[i], differs[i], note[i])
                  sub(/ +$/, "", line); print line } }' "$rows"
    count() { awk -F "$tab" -v verdict="$1" '$2 == verdict { n++ } END { print n + 0 }' "$rows"; }
    echo "$(count passed) passed, $(count FAILED) failed, $(count skipped) skipped, $(count 'cut off') cut off, $(count 'not reached') not reached;" \
        "$(($(date +%s) - began)) s of $seconds (device: $device; logs: $logs)"
}

steps=$(grep -vE '^(#|$)' $here/list | ONLY=$only awk '$1 ~ ENVIRON["ONLY"]')
[ -n "$steps" ] || refuse "no step's name matches \"$only\""
link_libraries
exec 3<<END
$steps
END
set -f
while read -r name limit more <&3; do
    if [ -n "$interrupted" ] || [ "$(left)" -lt 1 ]; then
        row "$name" 'not reached' 0 "" ""
        continue
    fi
    [ "$device" = cuda ] || limit=$((limit * 5)) # threads under ThreadSanitizer
    case $name in
    gpu | libraries | launches | steps) step_$name "$limit" ;;
    loss_*) step_loss "$name" "$limit" ;;
    *) step_test "$name" "$limit" $more ;;
    esac
done
set +f
tell
! grep -q "${tab}FAILED$tab" "$rows" && [ -z "$interrupted" ]
