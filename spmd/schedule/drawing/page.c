/* page.c - a timeline as a page for browsers. */
#include "spmd/schedule/drawing/page.h"

#include "spmd/base/svg.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<style>\n"
    "body{margin:0;overflow:hidden;font:13px Helvetica,Arial,sans-serif;color-scheme:light dark}\n"
    "svg{display:block;width:100%;height:calc(100vh - 6em);cursor:grab}\n"
    "rect:hover{opacity:.75}\n"
    "pre{margin:0;box-sizing:border-box;padding:.6em 1em;height:6em;overflow:auto;font-size:1em}\n"
    "</style>\n<title>";

/* A box's title is "measured: stage 1, forward of microbatch 2, 3 to 4 ms": who, what, when. What another row has of
 * the same stage and microbatches is told beside it. */
static const char script[] =
    "<script>\n"
    "\"use strict\";\n"
    "const svg = document.querySelector(\"svg\"), said = document.querySelector(\"pre\"), hint = said.textContent;\n"
    "const whole = svg.getAttribute(\"viewBox\").split(\" \").map(Number);\n"
    "let view = whole.slice(), held = null;\n"
    "const what = text => text.replace(/^(predicted|measured): /, \"\").replace(/, [^ ]+ to [^ ]+ ms$/, \"\");\n"
    "const told = new Map();\n"
    "for (const title of svg.querySelectorAll(\"rect > title\")) {\n"
    "  const text = title.textContent, box = title.parentNode, key = what(text);\n"
    "  const times = text.match(/, ([^ ]+) to ([^ ]+) ms$/), line = text + \" (\" + (times[2] - "
    "times[1]).toPrecision(4) + \" ms)\";\n"
    "  if (!told.has(key)) told.set(key, []);\n"
    "  told.get(key).push(line);\n"
    "  title.remove();\n"
    "  box.addEventListener(\"mouseenter\", () => {\n"
    "    said.textContent = [line, ...told.get(key).filter(other => other !== line)].join(\"\\n\");\n"
    "  });\n"
    "}\n"
    "function show() { svg.setAttribute(\"viewBox\", view.join(\" \")); }\n"
    "function at(event) {\n"
    "  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());\n"
    "  return [point.x, point.y];\n"
    "}\n"
    "svg.addEventListener(\"wheel\", event => {\n"
    "  const [x, y] = at(event), by = Math.exp(event.deltaY / 500);\n"
    "  view = [x + (view[0] - x) * by, y + (view[1] - y) * by, view[2] * by, view[3] * by];\n"
    "  event.preventDefault();\n"
    "  show();\n"
    "}, {passive: false});\n"
    "svg.addEventListener(\"mousedown\", event => { held = at(event); event.preventDefault(); });\n"
    "svg.addEventListener(\"mousemove\", event => {\n"
    "  if (!held) return;\n"
    "  const [x, y] = at(event);\n"
    "  view[0] += held[0] - x;\n"
    "  view[1] += held[1] - y;\n"
    "  show();\n"
    "});\n"
    "window.addEventListener(\"mouseup\", () => { held = null; });\n"
    "svg.addEventListener(\"dblclick\", () => { view = whole.slice(); said.textContent = hint; show(); });\n"
    "document.documentElement.dataset.boxes = [...told.values()].reduce((sum, lines) => sum + lines.length, 0);\n"
    "</script>\n";

void sl_page_begin(FILE *file, const char *title) {
    fputs(head, file);
    sl_svg_escape(file, title);
    fputs(
        "</title>\n</head>\n<body>\n<pre>The wheel zooms, the mouse moves the drawing and tells of the box under it, a "
        "double click shows all.</pre>\n",
        file);
}

void sl_page_end(FILE *file) { fprintf(file, "%s</body>\n</html>\n", script); }
