'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const canvas = document.querySelector('canvas'), paint = canvas.getContext('2d'), said = document.getElementById('said');
const hint = said.textContent, MARK = 1.5, LEFT = 132, AXIS = 24, OPTIMIZER = data.kinds.length - 1, MESSAGE = data.kinds.findIndex(k => k[0] == 'message');
let begin = 0, end = data.end, scroll = 0, held = null, chosen = null;

/* ---- boxes, and the tracks that they lie in: a layer's rank ---- */

let boxes = 0;
const tracks = data.layers.map((layer, l) => layer.stages.map((stages, rank) => ({ layer: l, rank, main: [], lane: [] })));
const alike = data.layers.map(() => new Map()); /* of boxes beside each other: the first of each action */
const keyOf = box => [box.kind, box.stage, box.microbatch, box.count, box.turn].join();
data.layers.forEach((layer, l) => {
    const list = layer.boxes;
    for (let i = 0; i < list.length; i += 7, boxes++) {
        const [rank, kind, loop, microbatch, count, from, takes] = list.slice(i, i + 7);
        const box = { layer: l, rank, kind, loop, microbatch, count, from, to: from + takes, takes, stage: layer.stages[rank][loop], turn: 0 };
        while (data.kinds[kind][3] && alike[l].has(keyOf(box))) box.turn++; /* gathered once more */
        (data.kinds[kind][3] ? tracks[l][rank].lane : tracks[l][rank].main).push(box);
        if (!alike[l].has(keyOf(box))) alike[l].set(keyOf(box), box);
    }
    layer.boxes = null;
    for (const track of tracks[l]) for (const part of [track.main, track.lane]) part.sort((a, b) => a.from - b.from);
});
const lanes = tracks.some(list => list.some(track => track.lane.length));
const under = track => data.over && track.layer > 0;

/* Each row has tracks; a row without any is a heading. */
const rows = [];
if (data.beside || data.over)
    tracks[0].forEach((_, rank) => rows.push(...(data.over ? [tracks.map(list => list[rank])] : tracks.map(list => [list[rank]]))));
else
    tracks.forEach((list, l) => {
        if (data.layers[l].heading) rows.push(data.layers[l].heading);
        rows.push(...list.map(track => [track]));
    });
let total = 0;

/* Rows are as high as there is room for; what does not fit can be moved to. */
function layOut() {
    const room = canvas.clientHeight - AXIS - 8, real = rows.filter(row => typeof row != 'string').length;
    const most = data.over ? 48 : 34, least = data.over ? 30 : 15, headings = 24 * (rows.length - real);
    const pitch = Math.max(least, Math.min(most, (room - headings) / real / (data.beside ? 1.15 : 1.25)));
    let y = 4;
    for (const row of rows) {
        if (typeof row == 'string') { y += 24; continue; }
        for (const track of row) {
            const lane = lanes && !under(track) ? pitch * .22 : 0;
            track.y = y;
            track.height = (data.over && !under(track) ? pitch * .62 : pitch) - lane;
            track.laneY = y + track.height;
            track.laneHeight = lane;
        }
        y += pitch * (data.beside && row[0].layer + 1 < data.layers.length ? 1.04 : 1.25);
    }
    total = y;
    scroll = Math.max(0, Math.min(scroll, total - room));
}

/* ---- drawing ---- */

const xOf = time => LEFT + (time - begin) / (end - begin) * (canvas.clientWidth - LEFT - 16);
const axisY = () => Math.min(canvas.clientHeight - AXIS, total + 2); /* below the rows */
const timeAt = x => begin + (x - LEFT) / (canvas.clientWidth - LEFT - 16) * (end - begin);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name);
function colourOf(box) {
    const [, first, last] = data.kinds[box.kind], loops = data.layers[box.layer].stages[0].length;
    const part = loops > 1 ? box.loop / (loops - 1) : .25;
    return first.map((c, i) => Math.round(c + part * (last[i] - c)));
}
const textOf = box => box.count > 1 ? `${box.microbatch}-${box.microbatch + box.count - 1}` : `${box.microbatch}`;

/* Index of the first of LIST, boxes one after another, that ends after the view begins. */
function firstShown(list) {
    let low = 0, high = list.length;
    while (low < high) {
        const middle = low + high >> 1;
        if (list[middle].to < begin) low = middle + 1; else high = middle;
    }
    return low;
}
function drawBoxes(list, y, height, grey, first) {
    const width = canvas.clientWidth;
    let drawn = -1;
    for (let i = first; i < list.length && list[i].from <= end; i++) {
        const box = list[i], x = Math.max(xOf(box.from), LEFT - 2), right = Math.min(xOf(box.to), width + 2);
        if (right < drawn + .4 || right < LEFT) continue; /* there is a box in this pixel already */
        const colour = colourOf(box), wide = right - x;
        paint.fillStyle = grey || `rgb(${colour})`;
        paint.fillRect(x, y, Math.max(wide - (wide > 3 ? .8 : 0), box.takes ? .4 : MARK), height);
        drawn = right;
        const text = textOf(box);
        if (data.kinds[box.kind][3] || box.kind == OPTIMIZER || box.kind == MESSAGE || height < 12 || wide < 6 * text.length + 4) continue;
        const dark = .299 * colour[0] + .587 * colour[1] + .114 * colour[2] < 140;
        paint.fillStyle = grey ? css('--ink') : dark ? '#fff' : '#111';
        paint.font = grey ? '10px Helvetica, Arial, sans-serif' : '11px Helvetica, Arial, sans-serif';
        paint.textAlign = 'center';
        paint.fillText(text, (x + right) / 2, grey ? y + height - 5 : y + height / 2 + 4);
    }
}
function drawTrack(track) {
    const grey = under(track) ? css('--under') : null, layer = data.layers[track.layer], y = track.y - scroll;
    if (y > canvas.clientHeight || y + track.height < 0) return;
    if (!data.over) {
        paint.fillStyle = css('--idle');
        const x = Math.max(xOf(0), LEFT);
        paint.fillRect(x, y, Math.max(0, Math.min(xOf(layer.idle), canvas.clientWidth) - x), track.height);
    }
    drawBoxes(track.main, y, track.height, grey, firstShown(track.main));
    if (!grey) drawBoxes(track.lane, track.laneY - scroll, track.laneHeight, null, 0);
}
function nameOf(track) {
    const layer = data.layers[track.layer];
    if (data.beside) return track.layer ? layer.row : `rank ${track.rank}  ${layer.row}`;
    const stages = layer.stages[track.rank];
    return `rank ${track.rank}` + (stages.length > 3 ? '' : `: ${stages.length > 1 ? 'stages' : 'stage'} ${stages.join(', ')}`);
}
function drawNames() {
    const width = canvas.clientWidth, height = canvas.clientHeight;
    let y = 4, last = -99;
    paint.fillStyle = css('--paper');
    paint.fillRect(0, 0, LEFT, height);
    paint.fillStyle = css('--ink');
    for (const row of rows) {
        if (typeof row == 'string') {
            paint.textAlign = 'left';
            paint.font = 'bold 12px Helvetica, Arial, sans-serif';
            paint.fillText(row, 16, y + 18 - scroll);
            y += 24;
            continue;
        }
        const track = row[0], middle = track.y + track.height / 2 + 4;
        paint.textAlign = 'right';
        paint.font = '12px Helvetica, Arial, sans-serif';
        if (middle - last >= 12) paint.fillText(nameOf(track), LEFT - 8, middle - scroll), last = middle;
        y = track.y + (row[row.length - 1].height + row[0].laneHeight) * 1.25;
    }
    paint.fillStyle = css('--paper');
    paint.fillRect(0, axisY(), width, height);
}
function drawAxis() {
    const y = axisY(), width = canvas.clientWidth, wanted = (end - begin) / ((width - LEFT) / 80);
    const power = 10 ** Math.floor(Math.log10(wanted)), step = power * [1, 2, 5, 10].find(m => m * power >= wanted);
    const digits = Math.max(0, Math.min(12, -Math.floor(Math.log10(step))));
    paint.strokeStyle = paint.fillStyle = css('--faint');
    paint.textAlign = 'center';
    paint.font = '11px Helvetica, Arial, sans-serif';
    paint.beginPath();
    paint.moveTo(LEFT, y + .5);
    paint.lineTo(width - 16, y + .5);
    for (let i = Math.ceil(begin / step - 1e-9); i * step <= end + 1e-9 * step; i++) {
        const x = xOf(i * step);
        paint.moveTo(x, y);
        paint.lineTo(x, y + 5);
        paint.fillText((i * step).toFixed(digits), x, y + 18);
    }
    paint.stroke();
    paint.textAlign = 'right';
    paint.fillText('ms', LEFT - 8, y + 18);
}
function draw() {
    const scale = devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * scale;
    canvas.height = canvas.clientHeight * scale;
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    layOut();
    for (const list of data.over ? [...tracks].reverse() : tracks) for (const track of list) drawTrack(track);
    if (chosen) {
        const [x, y, width, height] = frameOf(chosen);
        paint.strokeStyle = css('--ink');
        paint.lineWidth = 2;
        paint.strokeRect(x, y, Math.max(width, 1), height);
        paint.lineWidth = 1;
    }
    drawNames();
    drawAxis();
    document.documentElement.dataset.view = `${begin} ${end}`;
}

/* ---- the box under the mouse ---- */

const trackOf = box => tracks[box.layer][box.rank];
function frameOf(box) {
    const track = trackOf(box), lane = data.kinds[box.kind][3], x = xOf(box.from);
    return [x, (lane ? track.laneY : track.y) - scroll, xOf(box.to) - x, lane ? track.laneHeight : track.height];
}
/* The middle of the NUMBERth box of a kind in a layer, in the window, to which it is moved: for tests. */
function placeOf(layer, kind, number) {
    const list = tracks[layer].flatMap(track => [...track.main, ...track.lane]).filter(box => data.kinds[box.kind][0] == kind);
    scroll = trackOf(list[number]).y - 20;
    draw();
    const [x, y, width, height] = frameOf(list[number]), area = canvas.getBoundingClientRect();
    return [area.left + x + width / 2, area.top + y + height * (data.over && layer ? .9 : .5)];
}
function boxAt(x, y) {
    const time = timeAt(x), slack = 2 * (end - begin) / canvas.clientWidth;
    if (x < LEFT || y > axisY()) return null;
    for (const list of tracks) {
        for (const track of list) {
            const inside = y + scroll >= track.y && y + scroll < track.laneY;
            const part = inside ? track.main : y + scroll >= track.laneY && y + scroll < track.laneY + track.laneHeight ? track.lane : [];
            const hit = part.find(box => box.from <= time && time < box.to) ||
                part.find(box => box.from - slack <= time && time < box.to + slack);
            if (hit) return hit;
        }
    }
    return null;
}
const ms = (value, sign) => (sign && value >= 0 ? '+' : '') + value.toPrecision(4).replace(/^(-?[\d.]+)e([+-]\d+)$/, (all, m, e) => e < 6 && e > -7 ? String(Number(all)) : all);
function addRow(table, cell, cells) {
    const row = table.insertRow();
    for (const text of cells) row.appendChild(document.createElement(cell)).textContent = text;
}
function describe(box) {
    const [name] = data.kinds[box.kind], has = box.kind != OPTIMIZER && !data.kinds[box.kind][3];
    const microbatches = has ? `, microbatch${box.count > 1 ? 'es' : ''} ${box.count > 1 ? textOf(box).replace('-', ' to ') : textOf(box)}` : '';
    const layer = data.layers[box.layer], of = data.beside ? '' : data.layers.length > 1 ? `${layer.name}: ` : '';
    return `${of}${name}, stage ${box.stage}${microbatches}` + (` (rank ${box.rank}` + (layer.stages[0].length > 1 ? `, loop ${box.loop})` : ')'));
}
function tell(box) {
    const table = document.createElement('table'), title = document.createElement('b');
    title.textContent = describe(box);
    addRow(table, 'th', ['', 'begins ms', 'ends ms', 'takes ms']);
    const times = [];
    data.layers.forEach((layer, l) => {
        const other = l == box.layer ? box : data.beside && box.kind != MESSAGE ? alike[l].get(keyOf(box)) : null;
        if (other) times.push(other), addRow(table, 'td', [layer.row || layer.name, ms(other.from), ms(other.to), ms(other.takes)]);
    });
    if (times.length == 2)
        addRow(table, 'td', ['difference', ...['from', 'to', 'takes'].map(of => ms(times[1][of] - times[0][of], true))]);
    said.replaceChildren(title, table);
}
function choose(box) {
    if (box === chosen) return;
    chosen = box;
    if (box) tell(box); else said.textContent = hint;
    draw();
}

/* ---- zooming and moving ---- */

function show(from, to) {
    const least = data.end * 1e-7, length = Math.max(least, Math.min(to - from, data.end));
    begin = Math.max(0, Math.min(from, data.end - length));
    end = begin + length;
    draw();
}
function zoom(time, by) { show(time + (begin - time) * by, time + (end - time) * by); }
canvas.addEventListener('wheel', event => {
    zoom(Math.max(begin, timeAt(event.offsetX)), Math.exp(event.deltaY / 500));
    event.preventDefault();
}, { passive: false });
canvas.addEventListener('pointerdown', event => { held = [event.offsetX, event.offsetY, begin, scroll]; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointermove', event => {
    if (!held) return choose(boxAt(event.offsetX, event.offsetY));
    const [x, y, from, top] = held, by = (x - event.offsetX) / (canvas.clientWidth - LEFT - 16) * (end - begin);
    scroll = top + y - event.offsetY;
    show(from + by, from + by + end - begin);
});
canvas.addEventListener('pointerup', () => { held = null; });
canvas.addEventListener('pointerleave', () => { if (!held) choose(null); });
canvas.addEventListener('dblclick', () => { scroll = 0; show(0, data.end); });
canvas.addEventListener('keydown', event => {
    const part = (end - begin) / 8, middle = (begin + end) / 2;
    const perform = {
        '+': () => zoom(middle, .7), '=': () => zoom(middle, .7), '-': () => zoom(middle, 1 / .7),
        ArrowLeft: () => show(begin - part, end - part), ArrowRight: () => show(begin + part, end + part),
        ArrowUp: () => { scroll -= 60; draw(); }, ArrowDown: () => { scroll += 60; draw(); },
        Home: () => { scroll = 0; show(0, data.end); },
    }[event.key];
    if (!perform) return;
    perform();
    event.preventDefault();
});
addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);

/* ---- the legend ---- */

function addEntry(fill, text) {
    const entry = document.createElement('span');
    entry.appendChild(document.createElement('i')).style.background = fill;
    entry.append(text);
    document.getElementById('legend').appendChild(entry);
}
data.kinds.forEach(([name, first, last], kind) => {
    const shown = data.over ? tracks.slice(0, 1) : tracks;
    if (!shown.some(list => list.some(track => [...track.main, ...track.lane].some(box => box.kind == kind)))) return;
    const loops = Math.max(...data.layers.map(layer => layer.stages[0].length));
    const one = first.map((c, i) => Math.round(c + .25 * (last[i] - c)));
    addEntry(loops > 1 ? `linear-gradient(90deg, rgb(${first}), rgb(${last}))` : `rgb(${one})`, loops > 1 && kind < MESSAGE ? `${name}, from loop 0 to ${loops - 1}` : name);
});
if (data.over) addEntry('var(--under)', data.layers[1].name); else addEntry('var(--idle)', 'idle');
document.documentElement.dataset.boxes = boxes;
draw();
