'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const left = 62, right = 14, top_ = 12, bottom = 36, hidden = new Set(), logs = new Set();
let smoothing = 0;

const label = v => {
    for (const [unit, letter] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']])
        if (Math.abs(v) >= 10 * unit && Math.abs(v) < 1e13) return +(v / unit).toPrecision(5) + letter;
    return String(+v.toPrecision(5));
};
function ticks(low, high, wanted, log) {
    const list = [];
    if (log) {
        const decades = Math.log10(high / low), every = Math.max(1, Math.ceil(decades / (wanted + 1)));
        for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p += every)
            for (const m of decades < 3 ? [1, 2, 5] : [1])
                if (m * 10 ** p >= low && m * 10 ** p <= high) list.push(m * 10 ** p);
        return list;
    }
    const least = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find(m => m * power >= least * (1 - 1e-9));
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && list.length < 16; i++) list.push(i * step);
    return list;
}
/* An exponential mean, as if there had been nothing before the first number. */
function smooth(y) {
    let sum = 0, weight = 0;
    return y.map(v => {
        if (v === null) return null;
        sum = smoothing * sum + (1 - smoothing) * v;
        weight = smoothing * weight + (1 - smoothing);
        return sum / weight;
    });
}
function path(xs, ys) {
    let d = '', drawing = false;
    ys.forEach((y, i) => {
        if (y !== null) d += (drawing ? 'L' : 'M') + xs[i].toFixed(1) + ' ' + y.toFixed(1);
        if (y !== null && !drawing && (i + 1 == ys.length || ys[i + 1] === null)) d += 'h0';
        drawing = y !== null;
    });
    return d;
}
function band(xs, lows, highs) {
    let d = '';
    for (let i = 0; i < xs.length; i++) {
        const begin = i;
        while (i < xs.length && lows[i] !== null) i++;
        for (let k = begin; k < i; k++) d += (k > begin ? 'L' : 'M') + xs[k].toFixed(1) + ' ' + highs[k].toFixed(1);
        for (let k = i - 1; k >= begin; k--) d += 'L' + xs[k].toFixed(1) + ' ' + lows[k].toFixed(1);
        if (i > begin) d += 'Z';
    }
    return d;
}
function draw(plot) {
    const svg = document.querySelector(`#${CSS.escape(plot.id)} .chart`), log = logs.has(plot.id);
    const width = Math.max(svg.clientWidth, 240), height = Math.min(300, Math.max(220, width * .45));
    const shown = plot.series.filter(s => !hidden.has(s.run)), all = shown.flatMap(s => [...s.y, ...s.low, ...s.high]);
    const values = all.filter(v => v !== null && (!log || v > 0));
    let low = Math.min(...values), high = Math.max(...values);
    const { first, last } = plot;
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    plot.place = null;
    if (!values.length) { svg.innerHTML = ''; return; }
    const size = Math.max(Math.abs(low), Math.abs(high));
    if (high - low < Math.max(1e-6 * size, 1e-100)) { const room = size / 10 || 1; low = log ? low / 2 : low - room; high += room; }
    const ease = log ? Math.pow(high / low, .04) : .04 * (high - low);
    if (log) { low /= ease; high *= ease; } else { low -= ease; high += ease; }
    const f = log ? Math.log10 : v => v, x = v => left + (v - first) / (last - first) * (width - left - right);
    const y = v => v === null || (log && v <= 0) ? null : height - bottom - (f(v) - f(low)) / (f(high) - f(low)) * (height - top_ - bottom);
    let text = '<path class="grid" stroke="#e1e4e8" d="', words = '<g class="ticks" fill="#57606a" font-size="11">';
    for (const v of ticks(low, high, 6, log)) {
        text += `M${left} ${y(v)}H${width - right}`;
        words += `<text x="${left - 7}" y="${y(v) + 4}" text-anchor="end">${label(v)}</text>`;
    }
    for (const v of ticks(first, last, Math.max(2, Math.floor(width / 65)), false))
        words += `<text x="${x(v)}" y="${height - bottom + 15}" text-anchor="middle">${label(v)}</text>`;
    text += `"/>${words}<text x="${(left + width - right) / 2}" y="${height - 4}" text-anchor="middle">step</text></g>`;
    for (const s of shown) {
        const xs = s.x.map(x), ys = s.y.map(y), line = plot.noisy && smoothing > 0 ? smooth(s.y).map(y) : ys;
        const dash = Math.floor(s.run / 6) % 4;
        text += `<g class="r${s.run % 6}${dash ? ' d' + dash : ''}" fill="none" stroke="currentColor">`;
        if (s.low.length) text += `<path opacity=".3" fill="currentColor" stroke-width=".8" d="${band(xs, s.low.map(v => y(v) ?? (v === null ? null : height - bottom)), s.high.map(v => y(v) ?? (v === null ? null : height - bottom)))}"/>`;
        if (line !== ys) text += `<path class="raw" d="${path(xs, ys)}"/>`;
        text += `<path stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round" d="${path(xs, line)}"/>`;
        if (s.x.length <= 40) ys.forEach((v, i) => { if (v !== null) text += `<circle cx="${xs[i]}" cy="${v}" r="2.5" fill="currentColor"/>`; });
        text += '</g>';
    }
    svg.innerHTML = text + `<path class="cross" d=""/>`;
    plot.place = { svg, width, height, first, last, shown };
}
/* The numbers at the step under the pointer. */
function point(plot, tip, event) {
    const place = plot.place;
    if (!place) return;
    const box = place.svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * place.width;
    const step = place.first + (at - left) / (place.width - left - right) * (place.last - place.first);
    const lines = [];
    let cross = null;
    for (const s of place.shown) {
        const i = s.x.reduce((best, v, k) => Math.abs(v - step) < Math.abs(s.x[best] - step) ? k : best, 0);
        cross ??= s.x[i];
        const span = s.low.length && s.low[i] !== null ? ` (${label(s.low[i])} to ${label(s.high[i])})` : '';
        lines.push(`${data.runs[s.run]}: ${s.y[i] === null ? 'no number' : +s.y[i].toPrecision(5)}${span} at ${s.x[i]}`);
    }
    const x = left + (cross - place.first) / (place.last - place.first) * (place.width - left - right);
    place.svg.querySelector('.cross').setAttribute('d', `M${x} ${top_}V${place.height - bottom}`);
    tip.textContent = lines.join('\n');
    tip.hidden = false;
    const begin = x / place.width * box.width;
    tip.style.left = begin > box.width / 2 ? Math.max(0, begin - tip.offsetWidth - 10) + 'px' : Math.min(begin + 10, Math.max(0, box.width - tip.offsetWidth)) + 'px';
}
const all = () => data.plots.forEach(draw);
for (const plot of data.plots) {
    const card = document.getElementById(plot.id), tip = card.querySelector('.tip'), area = card.querySelector('.plot');
    const log = card.querySelector('header input');
    if (log) log.addEventListener('change', () => { log.checked ? logs.add(plot.id) : logs.delete(plot.id); draw(plot); });
    area.addEventListener('pointermove', event => point(plot, tip, event));
    area.addEventListener('pointerleave', () => { tip.hidden = true; card.querySelector('.cross')?.setAttribute('d', ''); });
}
for (const box of document.querySelectorAll('[name=run]'))
    box.addEventListener('change', () => { box.checked ? hidden.delete(+box.value) : hidden.add(+box.value); all(); });
const slider = document.getElementById('smoothing');
slider.addEventListener('input', () => { smoothing = +slider.value; document.getElementById('smoothed').value = slider.value; all(); });
for (const control of document.querySelectorAll('.control')) control.hidden = false;
addEventListener('resize', all);
all();
