#!/bin/sh
# chats.sh DRIVERS DATA - transformer train and evaluate --chat: tokens that are scored, and sums of their losses and
# gradients in several layouts; refusals. Prints TAP.
driver=$1/transformer
tokenizer=$2/tokenizers/gpt2.json
. "$(dirname "$0")/../../../rigs/points.sh"

small="--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --blocks 1 --layers-per-block 2 --sequence 192"

cat >chats.jsonl <<'END'
{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two three"}]}

{"messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "four"}, {"role": "assistant", "content": "5"}], "id": 7}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d e f"}]}
{"messages": [{"role": "assistant", "content": "sieben öl"}]}
END
call train $small --chat chats.jsonl --validation 0 --batch 4 --mesh data=1 --steps 20 --lr 0.01 --save run
[ $status = 0 ]
point 'a training'

# ---- scored tokens ----

# sum_of FORMAT: the sum of the losses of a text's bytes but the first.
sum_of() {
    printf "$1" >scored
    "$driver" evaluate --params run --eval-data scored --mesh data=1 --json >sum 2>sum.err
    sed 's/.*"loss":\([-+.e0-9]*\),.*"tokens":\([0-9]*\),.*/\1 \2/' sum | awk '{ printf "%.9g\n", $1 * $2 }'
}
call evaluate --params run --chat chats.jsonl --mesh data=1 --batch 4 --json
values loss >whole
[ $status = 0 ] && [ "$(values tokens)" = $((9 + 1 + 1 + 5 + 10 + 5 * 10)) ] && grep -q '"bits_per_byte":null' out &&
    grep -qx 'transformer: --chat chats.jsonl: 4 conversations (ChatML) in 2 sequences, 76 tokens of answers; longer than --sequence: 0 shortened, 0 left out' err
point 'the answers and what ends them, in bytes'
sed -n 1p chats.jsonl >first
call evaluate --params run --chat first --mesh data=1 --batch 1 --json
echo "$(values loss) $(values tokens)" | awk '{ printf "%.9g\n", $1 * $2 }' >made
chatml='<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n'
{ sum_of "$chatml" && sum_of "${chatml}two three<|im_end|>"; } | awk '{ x[NR] = $1 } END { printf "%.9g\n", x[2] - x[1] }' >wanted
[ "$(values tokens)" = 19 ] && near 1e-4 made wanted
point 'ChatML'
printf '%s\n' '{"messages": [{"role": "user", "content": " a"}, {"role": "assistant", "content": " b c\n"}]}' >second
call evaluate --params run --chat second --chat-template llama3 --mesh data=1 --batch 1 --json
echo "$(values loss) $(values tokens)" | awk '{ printf "%.9g\n", $1 * $2 }' >made
tokens=$(values tokens)
llama='<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
for text in "$llama" "${llama}b c<|eot_id|>"; do
    printf "$text" >scored
    call evaluate --params run --eval-data scored --mesh data=1 --json
    echo "$(values loss) $(values tokens)" | awk '{ printf "%.9g\n", $1 * $2 }'
done | awk '{ x[NR] = $1 } END { printf "%.9g\n", x[2] - x[1] }' >wanted
[ "$tokens" = 13 ] && near 1e-4 made wanted
point 'Llama 3'

# ---- several in a sequence ----

for kind in "$small" "--attention gqa --model-dimension 16 --n-heads 4 --kv-heads 2 --rope-dim 0 --learned-positions 512 --blocks 1 --layers-per-block 2"; do
    train="train $kind --sequence 512 --chat chats.jsonl --validation 0 --steps 6 --lr 0.01 --json"
    rm -rf packed
    call $train --batch 1 --mesh pipe=2 --save packed
    values loss >loss
    [ $status = 0 ] && grep -q '4 conversations (ChatML) in 1 sequence,' err
    point 'four conversations in a sequence'
    call $train --batch 4 --mesh data=1 --no-pack
    values loss >apart
    [ $status = 0 ] && grep -q '4 conversations (ChatML) in 4 sequences' err && near 1e-4 loss apart
    point 'what is learned of them is what is learned of them apart'
    for packing in '' '--sequence 200' --no-pack; do
        call evaluate --params packed --chat chats.jsonl --mesh data=1 --batch 2 --json $packing
        values loss >loss
        [ -n "$packing" ] || cp loss first.loss
        [ $status = 0 ] && [ "$(values tokens)" = 76 ] && near 1e-5 loss first.loss
        point "evaluate: the same with \"$packing\""
    done
done

# ---- sums over layouts ----

for layout in 'data=1 --batch 1' 'data=2 --batch 2' 'pipe=2 --batch 4' 'data=1,tensor=2 --batch 2' 'data=3 --batch 6'; do
    call evaluate --params run --chat chats.jsonl --json --mesh $layout
    values loss >loss
    [ $status = 0 ] && [ "$(values tokens)" = 76 ] && near 1e-5 loss whole
    point "evaluate: the same on $layout"
done
train="train $small --chat chats.jsonl --validation 0 --batch 4 --steps 6 --json"
call $train --mesh data=1 --microbatches 4 --save same
values loss >one
[ $status = 0 ] && [ "$(wc -l <one)" = 6 ]
point 'six steps'
for layout in 'pipe=2 --microbatches 4' 'pipe=2 --schedule gpipe --microbatches 4' 'pipe=2 --schedule looped-bfs --microbatches 4'; do
    call $train --mesh $layout
    values loss >loss
    [ $status = 0 ] && cmp -s loss one
    point "the same bits on $layout"
done
for layout in data=2 data=4 'data=1 --accumulate 4' 'data=2 --accumulate 2' data=2,tensor=2 'data=1 --microbatches 1' \
    'pipe=2 --schedule looped-bfs --spread-head rows'; do
    call $train --mesh $layout
    values loss >loss
    [ $status = 0 ] && near 1e-4 loss one
    point "the same mean on $layout"
done
# A small step against the gradient reduces the printed loss by lr x norm^2, so the gradient belongs to this loss.
call train $small --chat chats.jsonl --validation 0 --batch 4 --steps 2 --optimizer sgd --lr 1e-4 --clip 1e9 --mesh data=2 --json
values loss >loss
[ $status = 0 ] && paste -s loss | awk -v norm="$(values norm | head -n 1)" '{ d = ($1 - $2) / (1e-4 * norm * norm); exit !(d > 0.95 && d < 1.05) }'
point 'the gradient is that of the mean over answers'
call train $small --chat chats.jsonl --validation 0.25 --batch 2 --steps 2 --evaluate-every 2 --mesh data=2 --json
[ $status = 0 ] && [ "$(values evaluation_loss | wc -l)" = 1 ]
point 'the last conversation is kept for evaluation'
call train --resume same --steps 8 --json
[ $status = 0 ] && [ "$(values loss | wc -l)" = 2 ] && grep -q -- '--chat ' err
point 'a run that is resumed reads its conversations again'
call evaluate --params run --chat chats.jsonl --sequence 60 --mesh data=1 --batch 1 --json
[ $status = 0 ] && grep -qE 'shortened, [1-9] left out$' err
point 'a conversation whose answer comes too late is left out'

# ---- refusals ----

# bad LINE TEXT
bad() {
    printf '%s\n%s\n' "$(cat first)" "$1" >bad.jsonl
    refused "bad.jsonl: line 2: $2" train $small --chat bad.jsonl
}
bad '{' ''
bad '[]' 'an array of JSON: each line must be an object'
bad '{"messages": "a"}' 'no array under the key "messages"'
bad '{"messages": []}' 'no message has the role "assistant"'
bad '{"messages": [{"role": "user", "content": "a"}]}' 'no message has the role "assistant"'
bad '{"messages": [{"role": "assistant"}]}' 'message 0 has no text under the key "content"'
bad '{"messages": [{"content": "a"}]}' 'message 0 has no text under the key "role"'
bad '{"messages": [{"role": "assistant", "content": ["a"]}]}' 'message 0 has no text under the key "content"'
: >empty
refused 'empty: no conversations: a line of JSON is one' train $small --chat empty
refused 'no conversation has an answer within its first 8 tokens' train $small --chat first --sequence 8
refused 'the tokenizer has neither <|im_start|>, for ChatML, nor <|start_header_id|>' train $small --chat first --tokenizer "$tokenizer"
refused 'the tokenizer has no token <|im_start|>, which the template needs' train $small --chat first --tokenizer "$tokenizer" --chat-template chatml
refused '--pack=1: takes no value' train $small --chat first --pack=1
refused '--data: is read only without --chat' train $small --chat first --data first
refused '--validation: is read only without --chat' evaluate $small --chat first --validation 0.5
refused '--chat: is read only without --choices' evaluate $small --chat first --choices first
refused '--chat and --experts: ' train $small --chat first --experts 2
refused '--validation 0.1 keeps none of 1 conversations' train $small --chat first --evaluate-every 1
refused 'token 195, but the vocabulary has 0 to 127' train $small --chat chats.jsonl --vocab-size 128

plan
