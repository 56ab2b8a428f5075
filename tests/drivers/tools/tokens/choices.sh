#!/bin/sh
# choices.sh DRIVERS DATA - transformer evaluate --choices: scores compared with those of single texts, in several
# layouts; the choice; refusals. Prints TAP.
driver=$1/transformer
tokenizer=$2/tokenizers/gpt2.json
. "$(dirname "$0")/../../../rigs/points.sh"

small="--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --blocks 1 --layers-per-block 2 --sequence 48"
for n in 1 2 3 4 5 6 7 8 9; do printf 'one two three four five six seven eight nine ten\n'; done >text
call train $small --batch 4 --data text --validation 0 --mesh data=1 --steps 60 --lr 0.01 --save run

cat >choices.jsonl <<'END'
{"prompt": "one two three", "choices": ["four", "five six", "ten"], "answer": 0}

{"context": "six seven ", "choices": ["ten", "eight nine", "a"], "answer": 1, "subject": "numbers"}
{"prompt": "Äpfel und", "choices": ["Birnen", "öl"], "answer": 1}
{"prompt": "", "choices": ["one two", "zzz"], "answer": 0}
END

# ---- scores ----

# sum_of TEXT: the sum of the losses of its bytes but the first.
sum_of() {
    printf '%s' "$1" >scored
    "$driver" evaluate --params run --eval-data scored --mesh data=1 --json >sum 2>sum.err
    sed 's/.*"loss":\([-+.e0-9]*\),.*"tokens":\([0-9]*\),.*/\1 \2/' sum | awk '{ printf "%.9g\n", $1 * $2 }'
}
# score PROMPT WHOLE: the score of the text after the prompt.
score() {
    { sum_of "$1" && sum_of "$2"; } | awk '{ x[NR] = $1 } END { printf "%.9g\n", x[1] - x[2] }'
}
{
    score 'one two three' 'one two three four'
    score 'one two three' 'one two three five six'
    score 'one two three' 'one two three ten'
    score 'six seven' 'six seven ten'
    score 'six seven' 'six seven eight nine'
    score 'six seven' 'six seven a'
    score 'Äpfel und' 'Äpfel und Birnen'
    score 'Äpfel und' 'Äpfel und öl'
    sum_of '
one two' | sed 's/^/-/'
    sum_of '
zzz' | sed 's/^/-/'
} >wanted

# scores: those in the last call's output, a line each.
scores() {
    sed -n 's/.*"scores":\[\([^]]*\)\].*/\1/p' out | tr , '\n'
}
sed 's/six seven "/six seven"/' choices.jsonl >with
call evaluate --params run --choices with --json
scores >all
[ $status = 0 ] && [ ! -s err ] && head -n 8 all >made && head -n 8 wanted >known && near 1e-4 made known
point 'scores are the losses of the choices alone'
call evaluate --params run --choices with --bare-choices --json
scores | tail -n 2 >made
tail -n 2 wanted >known
[ $status = 0 ] && near 1e-4 made known
point 'before an empty prompt stands a newline; nothing stands between with --bare-choices'
call evaluate --params run --choices with --target-delimiter '  ' --json
scores >two
call evaluate --params run --choices choices.jsonl --json
scores >blank
sed -n 4p two >made
sed -n 4p blank >known
[ $status = 0 ] && cmp -s made known
point 'white space at the end of a prompt belongs to the choice'
call evaluate --params run --choices with --json
[ "$(sed -n 's/.*"line":\([0-9]*\),.*/\1/p' out | tr '\n' ' ')" = '1 3 4 5 ' ] &&
    grep -qF '"bytes":[4,8,3]' out && grep -qF '"bytes":[6,3]' out && [ "$(grep -c '"chosen_norm":' out)" = 4 ]
point 'a line a question'
sed -n 's/.*"scores":\[\(.*\)\],"bytes":\[\(.*\)\],"chosen":\([0-9]*\),"chosen_norm":\([0-9]*\),"answer":\([0-9]*\)}/\1 \2 \3 \4 \5/p' out >parts
awk '{ n = split($1, s, ","); split($2, b, ","); best = norm = 1
    for (i = 2; i <= n; i++) { if (s[i] > s[best]) best = i; if (s[i] / b[i] > s[norm] / b[norm]) norm = i }
    if ($3 != best - 1 || $4 != norm - 1) bad = 1; right += $3 == $5; by += $4 == $5 }
    END { p = right / NR; q = by / NR; printf "%.9g %.9g %.9g %.9g\n", p, sqrt(p * (1 - p) / (NR - 1)), q, sqrt(q * (1 - q) / (NR - 1)); exit bad || NR != 4 }' parts >said
[ $? = 0 ] && tail -n 1 out | sed 's/.*"accuracy":\([^,]*\),"accuracy_stderr":\([^,]*\),"accuracy_norm":\([^,]*\),"accuracy_norm_stderr":\([^,]*\),.*/\1 \2 \3 \4/' >found &&
    paste found said | awk '{ for (i = 1; i < 5; i++) { d = $i - $(i + 4); if (d * d > 1e-12) exit 1 } }'
point 'the largest score, and the largest of a byte, are chosen; their accuracies'
[ "$(values questions)" = 4 ] && [ "$(values choices)" = 10 ] && [ "$(values tokens)" = 58 ] && [ "$(values shortened)" = 0 ] &&
    awk -v speed="$(values questions_per_second)" 'BEGIN { exit !(speed > 0) }'
point 'numbers of questions, choices and tokens'
sed -n 1,3p with >right
call evaluate --params run --choices right --json
[ "$(values accuracy)" = 1.0 ] && [ "$(values accuracy_stderr)" = 0.0 ]
point 'what was learned is chosen'

# ---- layouts ----

call evaluate --params run --choices choices.jsonl --json
scores >one
for layout in data=2 data=3 pipe=2 'pipe=2 --schedule looped-bfs' data=2,pipe=2; do
    call evaluate --params run --choices choices.jsonl --json --mesh $layout
    scores | cmp -s - one && [ $status = 0 ] && [ "$(wc -l <one)" = 10 ]
    point "the same bits on $layout"
done
for layout in tensor=2 data=2,tensor=2 'pipe=2,tensor=2 --vocabulary-parallel' 'data=1 --storage bf16'; do
    call evaluate --params run --choices choices.jsonl --json --mesh $layout
    scores >made
    case $layout in *bf16*) bound=0.02 ;; *) bound=1e-5 ;; esac
    [ $status = 0 ] && near $bound made one
    point "the same on $layout"
done
gzip -c choices.jsonl >packed
call evaluate --params run --choices packed --json
[ $status = 0 ] && scores | cmp -s - one
point 'packed by gzip'
mkfifo pipe
cat choices.jsonl >pipe &
call evaluate --params run --choices pipe --json
[ $status = 0 ] && scores | cmp -s - one
point 'from a pipe'
refused 'cannot be opened: it is a directory' evaluate --params run --choices /
call evaluate --params run --choices choices.jsonl --dry-run
[ $status = 0 ] && grep -q coordinate out
point 'a plan of its memory'

# ---- people ----

call evaluate --params run --choices choices.jsonl --mesh data=2
[ $status = 0 ] && head -n 1 out | grep -qF -- '; --choices choices.jsonl, 4 questions, 10 choices, ' &&
    grep -q ' questions/s; .* sequences/s: ' out && tail -n 2 out | awk '{ if (NF != 3) exit 1 }'
point 'a table for people'
call evaluate --params run --choices right --sequence 12
[ $status = 0 ] && grep -qE '^[1-9] choices. prompts were longer than --sequence: ' out
point 'prompts that are too long lose their beginnings'
"$driver" evaluate --params run --choices choices.jsonl >/dev/full 2>err
status=$?
[ $status = 3 ] && tail -n 1 err | grep -q 'No space left'
point 'a full disk'
"$driver" evaluate --params run --choices choices.jsonl --json >/dev/full 2>err
status=$?
[ $status = 3 ] && tail -n 1 err | grep -q 'No space left'
point 'a full disk under JSON'

# ---- tokens ----

call evaluate --tokenizer "$tokenizer" --attention gqa --n-heads 2 --model-dimension 16 --layers-per-block 1 --mesh data=1 --choices choices.jsonl --json
[ $status = 0 ] && [ "$(values tokens)" -lt 58 ] && [ "$(values tokens)" -ge 10 ] && [ "$(scores | wc -l)" = 10 ]
point 'a tokenizer makes tokens of them'

# ---- refusals ----

# bad LINE TEXT: FILE's second line is wrong.
bad() {
    printf '%s\n%s\n' '{"prompt": "a", "choices": ["b", "c"], "answer": 1}' "$1" >bad.jsonl
    refused "bad.jsonl: line 2: $2" evaluate --params run --choices bad.jsonl
}
bad '{' ''
bad '[1]' 'an array of JSON: each line must be an object of its own'
bad '{"choices": ["b", "c"], "answer": 1}' 'no text under the key "prompt" or "context"'
bad '{"prompt": "a", "answer": 1}' 'no array of 2 to 65536 texts under the key "choices"'
bad '{"prompt": "a", "choices": ["b"], "answer": 0}' 'no array of 2 to 65536 texts under the key "choices"'
bad '{"prompt": "a", "choices": ["b", 3], "answer": 0}' 'choice 1 is no text, or an empty one'
bad '{"prompt": "a", "choices": ["", "c"], "answer": 0}' 'choice 0 is no text, or an empty one'
for answer in 2 -1 1.0 '"1"' null true 99999999999; do
    bad "{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": $answer}" 'no integer from 0 to 1 under the key "answer"'
done
bad '{"prompt": "a", "choices": ["b", "c"]}' 'no integer from 0 to 1 under the key "answer"'
bad '{"prompt": "a", "choices": ["b", "000000000000000000000000000000000000000000000000"], "answer": 0}' 'choice 1 has 49 tokens, and --sequence is 48'
: >empty
refused 'empty: no questions: a line of JSON is one' evaluate --params run --choices empty
refused 'nothing: cannot be opened: No such file' evaluate --params run --choices nothing
refused 'token 195, but the vocabulary has 0 to 127' evaluate $small --vocab-size 128 --choices choices.jsonl
for option in data eval-data validation evaluate-batches stride microbatches batch; do
    value=1
    case $option in *data) value=text ;; validation) value=0.5 ;; esac
    refused "--$option: is read only " evaluate --params run --choices choices.jsonl --$option $value
done
refused '--target-delimiter: is read only without --bare-choices' evaluate --params run --choices choices.jsonl --bare-choices --target-delimiter x

plan
