"""listed.py - changes that no test can notice, with the reason: equivalent.py has rules for others."""
import re

# (kernel, kind, the source line, the instruction, reason): regular expressions that match all of it, for mutants that no test notices.
LIST = [
    (r".*", "a row beyond the end", r".*", r"setp\.gt\.u32 %p\d+, %r\d+, 2",
     "a reduction over warps has one more round, in which each lane keeps its own value"),
    (r"attention_forward.*", "an accumulator not cleared", r"(FORWARD|KERNELS)\(.*", r"mov\.f32 .*, 0f00000000",
     "what there is before a row's first keys is multiplied by 0"),
    (r"attention_keys_any.*", "a wait of cp.async removed", r".*", r"cp\.async\.wait_all",
     "a team's own rows are not copied there; tests notice the other wait"),
    (r".*", "(a row beyond the end|a constant off by one|another comparison)", r".*", r"setp\.[lg][te]\.u64 %p\d+, %rd\d+, -\d", "whether an index is near 2^64"),
    (r".*", "a load of another width", r".*", r"ld\.(shared|local)\.u64 .*", "an index has at most 32 bits in tests: addresses, which have more, are noticed"),
    (r".*", "a constant off by one", r"return __nvvm_ex2_approx_ftz_f\(.*", r"(max|min)\.f32 .*", "a bound that only infinite numbers reach"),
    (r"add_(parts|balance|losses)|softmax_losses", "another comparison", r"(SL_ROWS\(|for \(size_t once = 0; once < 1; ).*", r"setp\.ne\.s(32|64) .*, 0",
     "one row has one block"),
    (r".*", "another comparison", r"SL_(LANES|ADDS)\(reduction.*", r"setp\.gt\.u32 %p\d+, %r\d+, 2",
     "a reduction over warps has one more round, in which each lane keeps its own value"),
    (r"attention_forward.*", "another comparison", r"if \(next < end\) bring_keys\(.*", r"setp\.gt\.u32 .*", "a block of no keys is brought"),
    (r"attention_forward.*", "another comparison", r"(FORWARD|KERNELS)\(.*", r"setp\.ge\.f32 .*, 0f00000000", "a row's sum of weights, whose logarithm is taken, is not 0"),
    (r".*", "another comparison", r"const bool subnormal = .*", r"setp\.lt\.f32 .*", "the smallest normal number has the same logarithm either way"),
    (r".*", "a constant off by one", r"for \(size_t r = 0; r < count; r\+\+\) \{", r"setp\.eq\.s64 .*, 0", "whether a loop's end is beyond all numbers"),
    (r".*", "a constant off by one", r".*", r"and\.b64 .*, -4294967296", "short numbers are divided as long ones are"),
    (r"attention_.*", "a lane's index off by one", r"for \(int step = 1; step < 4; step \*= 2\).*", r"shfl\.sync\.bfly\.b32 .*, 2, 31, -1",
     "a lane's neighbour has the same"),
    (r".*", "(another comparison|a row beyond the end)", r"SL_(LANES|ADDS)\(reduction.*", r"setp\.lt\.u32 %p\d+, %r\d+, %r\d+",
     "a lane behind those that are added has another sum, which nothing reads"),
    (r".*", "a row beyond the end", r"for \(size_t i = 0; i < n; i \+= SL_FOUR\).*", r"min\.u64 .*", "the next thread has that element, too, and stores the same"),
    (r"whole_norm_forward.*", "a constant off by one", r"SL_THREADS\(\)", r"setp\.eq\.s64 .*, 0", "another of a row's threads stores the same"),
    (r"whole_norm_.*", "a row beyond the end", r"for \(size_t t = 0; t < TOGETHER \* ALONG; t\+\+\) \{", r"min\.u64 .*, 127",
     "another thread does that, too, and stores the same"),
    (r"reduce_\w+", "an accumulator not cleared", r"", r"mov\.f32 .*, 0f00000000", "the value of an element that has none of the types"),
    (r"reduce_\w+", "another comparison", r"return \(struct place\)\{at, at, left < SL_BLOCK .*", r"setp\.ne\.s64 .*", "a block begins before the last column"),
    (r"attention_.*", "an accumulator not cleared", r"read\[i\] = row \+ i \* down < count \? .*", r"mov\.f32 .*, 0f00000000",
     "rows behind the last one have weights of zero"),
    (r"whole_norm_backward.*", "an add for a sub", r"SL_THREADS\(\)", r"add\.s64 (%rd\d+), \1, %rd\d+", "a block has fewer rows than threads: none has a second turn"),
    (r"largest_bits", "a row beyond the end", r"for \(size_t p = 0; p < SL_PARTS; p\+\+\) most = .*", r"min\.u64 .*",
     "another thread has that number, too, and the largest stays"),
    (r"(sum|merge)_\w+", "a lane's index off by one", r"", r"mov\.u32 %r1, %tid\.x", "thread 0 clears a shared variable that is set before it is read"),
    (r"attention_\w+_64", "(an add for a sub|a row beyond the end|another comparison)", r"for \(uint32_t c = thread % 16 \* 4; c < x\.columns; c \+= 64\) \{",
     r"(add\.s32 .*, 64|setp\.lt\.u32 .*)", "a head has 64 columns at most, and fewer rotary ones"),
    (r"attention_(keys|queries).*", "an accumulator not cleared", r"(KERNELS|BACKWARD_QUERIES)\(.*", r"mov\.f32 .*, 0f00000000",
     "rows behind the last one have weights of zero, or are not stored"),
    (r"attention_(queries|keys).*", "an accumulator not cleared", r"own->\w+\[d\]\[l\]\[i\] = query < count \? .*", r"mov\.f32 .*, 0f00000000",
     "nothing is stored of rows beyond the last query"),
    (r"attention_queries.*", "a predicate negated", r"own->logsum\[d\]\[l\]\[i\] = .*", r"@%p\d+ bra .*", "another of a row's lanes stores the delta, which all of them have"),
    (r"attention_.*", "(a row beyond the end|a constant off by one|another comparison)", r"for \(uint32_t row = thread / across; row < all; .*", r"setp\.lt\.u32 .*, \d+",
     "a thread's rows are 16 or 32 apart, and begin below 8"),
    (r".*", "a load of another width", r".*", r"st\.shared\.u32 \[_ZN4ompx5state9TeamState.*", "OpenMP keeps a number of threads there, which has 16 bits"),
    (r".*", "a constant off by one", r".*", r"setp\.lt\.u32 %p\d+, %r\d+, 33", "whether a team is one warp: teams have whole warps"),
    (r".*", "a constant off by one", r".*", r"mov\.f32 .*, 0f00000000", "a sum that begins at 6e-39 is rounded to the same"),
    (r"softmax_gradient", "an accumulator not cleared", r"SL_ROWS\(.*", r"mov\.f32 .*, 0f00000000", "the factor of a row without a label is not read"),
    (r"forward", "an offset off by an element", r"for \(size_t c = 0; c < query->depth / pack; c\+\+\) group->q.*", r"st\.u32 .*",
     "each lane of a head is set again; the others are not read"),
    (r".*", "another comparison", r"return x < -126\.0f \? 0\.0f : e;.*", r"setp\.lt\.f32 .*", "for x = -126 alone 2^-126 is 0"),
    (r"attention_queries.*", "an add for a sub", r"for \(size_t e = from \+ c; e < from \+ c \+ 2; e\+\+\)", r"add\.s64 .*, -?\d+",
     "whether a loop's end is beyond all numbers"),
    (r"(conv|pool)_\w+", "a constant off by one", r".*", r"shr\.u32 %r\d+, %r\d+, 31", "the sign of a size, or its two highest bits: an image's are small"),
    (r"reduce_in", "another comparison", r"", r"setp\.eq\.s32 .*, 0", "a device's list has fewer than 2^18 members"),
    (r"rotate_heads", "a row beyond the end", r"SL_BLOCKS\(.*", r"min\.u64 .*", "a block has four pairs at most, and an end of its own"),
    (r"row_maxima", "a row beyond the end", r"SL_LANES\(reduction.*", r"setp\.lt\.u64 .*", "a group of four beyond the row has no element, and the largest stays"),
    (r"sl_attention_decode_device", "another comparison", r"", r"setp\.ne\.s64 .*, 0", "on GPUs a step has all keys of a block, so it is the first one"),
    (r"forward_divided", "an accumulator not cleared", r"", r"mov\.f32 .*, 0f00000000", "the sum of a product without terms: each has some"),
    (r"merge", "another comparison", r"SL_ROWS\(.*", r"setp\.ne\.s32 %p\d+, %r1, 0", "all threads have the row's logarithm, and store it between barriers"),
]


def reason(*texts):
    """Why no test notices a mutant, by the list, or None; TEXTS: the kernel, the kind, the source line, the instruction."""
    for *patterns, because in LIST:
        if all(re.fullmatch(pattern, text) for pattern, text in zip(patterns, texts)):
            return because
    return None
