# front.awk - makes the installed headers from the library's own, as shardloop/front, the LIST, says:
#
#     awk -f front.awk -v source=FOLDER -v to=FOLDER LIST
#
# It writes to TO: for each section a header, with the functions that the section names; shardloop.h, which includes all of
# them; internal/, the headers that these include; and shardloop.map, the exported symbols of a shared library, for the
# linker.

function fail(text) {
    print "front.awk: " text >"/dev/stderr"
    failed = 1
    exit 1
}

# ---- the list ----

/^#/ || /^$/ { next }
/^= / {
    section = $2
    title[section] = substr($0, index($0, " - ") + 3)
    if (section != "exported") order[++sections] = section
    next
}
{
    first = 1
    if ($1 ~ /\.h$/) {
        piece = $1
        pieces[section] = pieces[section] " " piece
        home[piece] = section
        first = 2
    }
    for (i = first; i <= NF; i++) {
        if ($i == "(*)") whole[piece] = 1
        else if ($i ~ /^\(.*\)$/) support[substr($i, 2, length($i) - 2)] = 1
        else if (section == "exported") private[$i] = 1
        else promised[$i] = piece
    }
}

# ---- headers, item by item ----

# bare LINE: without comments; a comment may go on in the next line.
function bare(line, out, at) {
    out = ""
    while (line != "") {
        if (inside) {
            if (!(at = index(line, "*/"))) return out
            line = substr(line, at + 2)
            inside = 0
        } else {
            if (!(at = index(line, "/*"))) return out line
            out = out substr(line, 1, at - 1)
            line = substr(line, at + 2)
            inside = 1
        }
    }
    return out
}
# name_of CODE: the function or the variable that it declares; "": a type, a macro or a directive.
function name_of(code, head) {
    if (code ~ /^(#|typedef|_Static_assert)/) return ""
    head = code
    sub(/[{;=].*/, "", head)
    if (match(head, /sl_[a-z0-9_]+ *\(/)) {
        head = substr(head, RSTART, RLENGTH)
        sub(/ *\($/, "", head)
        return head
    }
    if (head ~ /^extern / && match(head, /sl_[a-z0-9_]+(\[[A-Z_]*\])?$/)) {
        head = substr(head, RSTART)
        sub(/\[.*/, "", head)
        return head
    }
    return ""
}
# read_items PATH: kind[1..items], text[], code[], name[]; blank lines are items of their own.
function read_items(path, line, part, depth, more) {
    items = 0
    while ((more = getline line <(source "/" path)) > 0) {
        part = line
        inside = 0
        items++
        if (line == "") {
            kind[items] = "blank"
        } else if (line ~ /^\/\*/) {
            kind[items] = "comment"
            while (line !~ /\*\/$/ && (getline line <(source "/" path)) > 0) part = part "\n" line
        } else if (line ~ /^#/) {
            kind[items] = line ~ /^#include "/ ? "include" : line ~ /^#include </ ? "system" : line ~ /^#(ifn?def|if|elif|else|endif)/ ? "condition" : "code"
            while (line ~ /\\$/ && (getline line <(source "/" path)) > 0) part = part "\n" line
            code[items] = part
            name[items] = ""
        } else if (line ~ /^SL_(BEGIN|END)_C$/) {
            kind[items] = "guard"
        } else {
            kind[items] = "code"
            code[items] = bare(line)
            while (!is_complete(code[items]) && (getline line <(source "/" path)) > 0) {
                part = part "\n" line
                code[items] = code[items] " " bare(line)
            }
            name[items] = name_of(code[items])
        }
        text[items] = part
    }
    close(source "/" path)
    if (more < 0 || !items) fail("there is no " path)
}
function is_complete(code, opened, closed) {
    if (inside) return 0
    opened = gsub(/{/, "{", code)
    closed = gsub(/}/, "}", code)
    sub(/ *$/, "", code)
    return opened == closed && code ~ /[;}]$/
}
# macro_lacks CODE: it calls a function that is left out.
function macro_lacks(code, word) {
    if (code !~ /^#define /) return 0
    while (match(code, /sl_[a-z0-9_]+/)) {
        word = substr(code, RSTART, RLENGTH)
        if (word in left_out) return 1
        code = substr(code, RSTART + RLENGTH)
    }
    return 0
}
function is_kept(piece, name) {
    return name == "" || name in promised || name in support || piece in whole
}
# includes LINE, SECTION: as the installed headers name it, which PATH needs; "": it lies in SECTION itself.
function included(line, section, path) {
    path = line
    gsub(/#include "|"$/, "", path)
    if (path in home) return home[path] == section ? "" : "#include <shardloop/" home[path] ">"
    if (!(path in wanted)) queue[++queued] = path
    wanted[path] = 1
    return "#include <shardloop/internal/" path ">"
}

# ---- output ----

# emit LINE: where it names one of the library's headers that has a home, it names that.
function emit(line, path) {
    if (line ~ /[a-z_]\/[a-z_\/0-9]*\.h/ && line !~ /^#include/)
        for (path in home) gsub(path, home[path], line)
    print line >file
}

# body PIECE: its items that are kept, with their comments.
function body(piece, i, pending, floating, in_run, blank, depth, guards, first) {
    read_items(piece)
    first = 1
    for (i = 1; i <= items; i++) {
        if (kind[i] == "condition") {
            if (text[i] ~ /^#ifndef SL_[A-Z0-9_]+_H$/ || (text[i] == "#endif" && !depth)) continue
            depth += text[i] ~ /^#if/ ? 1 : text[i] == "#endif" ? -1 : 0
        } else if (kind[i] ~ /include|system/ && !depth) {
            continue
        }
        if (kind[i] == "guard" || (text[i] ~ /^#define SL_[A-Z0-9_]+_H$/)) continue
        if (kind[i] == "blank") {
            if (pending != "" && !in_run) floating = floating "\n" pending "\n"
            pending = ""
            in_run = 0
            blank = 1
        } else if (kind[i] == "comment") {
            if (in_run) pending = ""
            in_run = 0
            if (first) {
                sub(/^\/\* [a-z0-9_]+\.h - /, "", text[i])
                text[i] = "/*\n * " toupper(substr(text[i], 1, 1)) substr(text[i], 2)
                floating = "\n" text[i] "\n"
                first = 0
                pending = ""
                in_run = 1
                continue
            }
            pending = pending == "" ? text[i] : pending "\n" text[i]
        } else {
            in_run = 1
            if (kind[i] == "code" && name[i] != "" && !is_kept(piece, name[i])) continue
            if (macro_lacks(text[i])) continue
            if (name[i] in promised) {
                found[name[i]] = 1
                if (kind[i] == "code" && promised[name[i]] != piece) fail(name[i] " is in " piece ", not in " promised[name[i]])
            }
            if (floating != "") emit(substr(floating, 1, length(floating) - 1))
            if (blank || floating != "") emit("")
            if (name[i] != "" && !(name[i] in promised)) emit("/* Not promised; inline functions call it. */")
            if (pending != "") emit(pending)
            emit(text[i])
            floating = pending = ""
            blank = 0
        }
    }
}
function front(section, count, list, i, j, line, seen, guard, lines) {
    file = to "/shardloop/" section
    guard = "SHARDLOOP_" toupper(section)
    gsub(/[^A-Z0-9]/, "_", guard)
    emit("/* " section " - " title[section] ". Made of the library's own headers. */")
    emit("#ifndef " guard "\n#define " guard "\n")
    count = split(pieces[section], list, " ")
    for (i = 1; i <= count; i++) {
        read_items(list[i])
        for (j = 1; j <= items; j++) {
            line = kind[j] == "include" ? included(text[j], section) : kind[j] == "system" ? text[j] : ""
            if (line ~ /offload_queued/) line = "" # a part of a condition
            if (line != "" && !((section line) in written)) emit(line)
            written[section line] = 1
        }
    }
    for (i = 1; i <= count; i++) {
        if (list[i] == "spmd/base/base.h") {
            body(list[i])
            list[i] = ""
        }
    }
    emit("\nSL_BEGIN_C")
    for (i = 1; i <= count; i++) if (list[i] != "") body(list[i])
    emit("\nSL_END_C\n\n#endif")
    close(file)
}
# internal PATH: a whole header that the others need.
function internal(path, line, folder) {
    file = to "/shardloop/internal/" path
    folder = file
    sub(/\/[^\/]*$/, "", folder)
    system("mkdir -p '" folder "'")
    while ((getline line <(source "/" path)) > 0) {
        if (line ~ /^#include "/) line = included(line, "")
        emit(line)
    }
    close(source "/" path)
    close(file)
}
function sorted_names(set, list, n, i, j, word) {
    n = 0
    for (word in set) list[++n] = word
    for (i = 2; i <= n; i++) {
        word = list[i]
        for (j = i - 1; j > 0 && list[j] > word; j--) list[j + 1] = list[j]
        list[j + 1] = word
    }
    return n
}

END {
    if (failed) exit 1
    system("rm -rf '" to "/shardloop' && mkdir -p '" to "/shardloop'")
    # Omitted names are known before the first header is written.
    for (s = 1; s <= sections; s++) {
        count = split(pieces[order[s]], list, " ")
        for (p = 1; p <= count; p++) {
            read_items(list[p])
            for (i = 1; i <= items; i++) {
                if (kind[i] != "code" || name[i] == "") continue
                if (!is_kept(list[p], name[i])) left_out[name[i]] = 1
                else if (name[i] in promised && code[i] !~ /^(static inline|SL_INLINE)/) symbol[name[i]] = 1
            }
        }
    }
    for (s = 1; s <= sections; s++) front(order[s])
    for (q = 1; q <= queued; q++) internal(queue[q])
    for (word in promised) if (!(word in found)) fail("no header of the list has " word)

    file = to "/shardloop/shardloop.h"
    emit("/* shardloop.h - all that the library promises: #include <shardloop/shardloop.h>. A program may include single\n * headers instead. What lies in internal/ is what these need, and changes without notice. Other\n * paths in comments are those of the library's sources. */")
    emit("#ifndef SHARDLOOP_SHARDLOOP_H\n#define SHARDLOOP_SHARDLOOP_H\n")
    for (s = 1; s <= sections; s++) emit("#include <shardloop/" order[s] "> /* " title[order[s]] " */")
    emit("\n#endif")
    close(file)

    # The same for what includes the library's own headers as well: tests of examples.
    system("mkdir -p '" to "/within/shardloop'")
    file = to "/within/shardloop/shardloop.h"
    for (s = 1; s <= sections; s++) {
        count = split(pieces[order[s]], list, " ")
        for (p = 1; p <= count; p++) emit("#include \"" list[p] "\"")
    }
    close(file)

    file = to "/shardloop.map"
    emit("SHARDLOOP_" version " {\nglobal:")
    count = sorted_names(symbol, names)
    for (i = 1; i <= count; i++) emit("    " names[i] ";")
    emit("local:\n    *;\n};\nSHARDLOOP_PRIVATE {\nglobal:")
    count = sorted_names(private, names)
    for (i = 1; i <= count; i++) emit("    " names[i] ";")
    emit("};")
    close(file)
}
