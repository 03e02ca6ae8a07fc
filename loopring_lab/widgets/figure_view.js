// The kernel draws; this shows the drawing, finds the mark that is meant, and asks for zooms.
// Edges are left, top, right and bottom as parts of the picture: of axis 0 (x) or 1 (y) those at axis and axis + 2.
const NEAR = 8; // pixels within which a line or a point is meant
const GAP = 10; // pixels between a mark and its text
const LEAST_DRAG = 0.01; // part of the panel; less is a click
const WAYS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

const within = (low, high, value) => Math.max(low, Math.min(high, value));

function render({ model, el }) {
  const [
    figure,
    tools,
    plus,
    minus,
    left,
    right,
    all,
    picture,
    drawing,
    band,
    tip,
    live,
  ] = fill(
    el,
    `<div class="loopring-lab-figure">
        <div class="ll-bar" role="toolbar" aria-label="View of the figure">
          <button title="Zoom in">+</button>
          <button title="Zoom out">−</button>
          <button title="Move back">◀</button>
          <button title="Move on">▶</button>
          <button title="Show all">Show all</button>
        </div>
        <div class="ll-picture" role="img" tabindex="0">
          <div class="ll-drawing" aria-hidden="true"></div>
          <div class="ll-band" hidden></div>
          <div class="ll-tip" aria-hidden="true" hidden></div>
        </div>
        <div class="ll-live" role="status"></div>
      </div>`,
  );
  for (const one of tools.children) one.ariaLabel = one.title;
  // Two views on a page must not share the ids of clip paths and letters.
  const prefix = `f${crypto.getRandomValues(new Uint32Array(2)).join("")}-`;
  let marks, panel, axis;
  let shown = -1; // the mark whose text is shown
  let from = null; // where a drag began

  const hide = () => {
    tip.hidden = true;
    band.hidden = true;
  };
  const draw = () => {
    const page = model.get("page");
    marks = page.marks;
    panel = page.panel;
    axis = page.axis;
    const ids = /(\bid="|href="#|url\(#)/g;
    drawing.innerHTML = page.svg.replace(ids, `$1${prefix}`);
    const help =
      "Arrow keys read the values, plus and minus zoom, 0 shows all.";
    picture.ariaLabel = `${page.label}. ${help}`;
    // Of a figure that is whole, there is nothing to move to or to show.
    for (const one of tools.children)
      one.disabled = one !== plus && !page.zoomed;
    shown = -1;
    hide();
  };

  const outline = (edges) => {
    const [start, top, end, bottom] = edges.map((part) => 100 * part);
    band.style.inset = `${top}% ${100 - end}% ${100 - bottom}% ${start}%`;
    band.hidden = false;
  };
  const tell = (number) => {
    shown = number;
    const [start, top, end, , text] = marks[number];
    outline(marks[number].slice(0, 4));
    tip.textContent = text;
    tip.hidden = false;
    // To the right of the mark, or to its left where there is no room.
    const room = picture.clientWidth - tip.offsetWidth;
    let place = end * picture.clientWidth + GAP;
    if (place > room)
      place = start * picture.clientWidth - GAP - tip.offsetWidth;
    tip.style.left = `${within(0, room, place)}px`;
    const lowest = picture.clientHeight - tip.offsetHeight;
    tip.style.top = `${within(0, lowest, top * picture.clientHeight)}px`;
  };

  // Where a pointer is, in parts of the picture.
  const placeOf = (event) => {
    const box = picture.getBoundingClientRect();
    return [
      (event.clientX - box.left) / box.width,
      (event.clientY - box.top) / box.height,
    ];
  };
  const nearest = (place) => {
    const size = [picture.clientWidth, picture.clientHeight];
    const away = marks.map((mark) => {
      const pixels = size.map((length, n) => {
        const beyond = Math.max(mark[n] - place[n], place[n] - mark[n + 2], 0);
        return beyond * length;
      });
      const isThin = size.some(
        (length, n) => (mark[n + 2] - mark[n]) * length < 1,
      );
      const direct = Math.hypot(...pixels);
      // A line or a point that is pointed at comes before the bar that it stands on.
      if (isThin && direct <= NEAR) return direct - 1e6;
      // Along the axis the nearest mark is meant, however far away it is across.
      return pixels[axis] + pixels[1 - axis] / 1e3;
    });
    return away.indexOf(Math.min(...away));
  };

  // Zooms are parts of what is shown, from 0 to 1.
  const zoom = (start, end) => model.send({ zoom: [start, end] });
  const showAll = () => model.send({ zoom: null });
  const partOf = (value) =>
    (value - panel[axis]) / (panel[axis + 2] - panel[axis]);
  const zoomIn = () => {
    const meant = marks[shown] ?? panel;
    const middle = partOf((meant[axis] + meant[axis + 2]) / 2);
    const start = within(0, 0.5, middle - 0.25);
    zoom(start, start + 0.5);
  };
  const zoomOut = () => zoom(-0.5, 1.5);
  const move = (way) => zoom(way / 4, 1 + way / 4);
  plus.onclick = zoomIn;
  minus.onclick = zoomOut;
  left.onclick = () => move(-1);
  right.onclick = () => move(1);
  all.onclick = picture.ondblclick = showAll;

  // A drag over a range zooms to it.
  const pointed = (event) =>
    within(panel[axis], panel[axis + 2], placeOf(event)[axis]);
  const range = (event) => [from, pointed(event)].sort((a, b) => a - b);
  picture.onpointerdown = (event) => {
    if (event.button) return;
    from = pointed(event);
    picture.setPointerCapture(event.pointerId);
    picture.focus({ preventScroll: true });
    event.preventDefault();
  };
  picture.onpointermove = (event) => {
    if (from !== null) {
      const edges = [...panel];
      [edges[axis], edges[axis + 2]] = range(event);
      tip.hidden = true;
      outline(edges);
    } else if (marks.length) tell(nearest(placeOf(event)));
  };
  picture.onpointerup = (event) => {
    if (from === null) return;
    const [low, high] = range(event).map(partOf);
    from = null;
    if (high - low > LEAST_DRAG) zoom(low, high);
    else hide();
  };
  picture.onpointercancel = picture.onpointerleave = () => {
    from = null;
    hide();
  };

  // Arrows read one mark after the other; only these are read aloud, not every move of a pointer.
  const step = (number) => {
    if (!marks.length) return;
    tell(within(0, marks.length - 1, number));
    live.textContent = tip.textContent.replaceAll("\n", ", ");
  };
  const act = (key, isShift) => {
    const way = WAYS[key];
    if (way && isShift) move(way);
    else if (way) step(shown + way);
    else if (key === "Home") step(0);
    else if (key === "End") step(marks.length - 1);
    else if (key === "+" || key === "=") zoomIn();
    else if (key === "-") zoomOut();
    else if (key === "0") showAll();
    else if (key === "Escape") hide();
    else return false;
    return true;
  };
  figure.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey) return;
    if (act(event.key, event.shiftKey)) event.preventDefault();
  };

  draw();
  model.on("change:page", draw);
  return () => model.off("change:page", draw);
}
export default { render };
