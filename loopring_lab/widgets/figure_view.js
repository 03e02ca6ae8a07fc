// The kernel draws; this shows the drawing, finds the mark that is meant, and asks for zooms.
// A mark is its left, top, right and bottom edge, as parts of the picture, and its text; a panel is four edges.
// The axis is 0 (x) or 1 (y): the edges along it are those at axis and axis + 2.
const NEAR = 8; // pixels within which a line or a point is meant
const GAP = 10; // pixels between a mark and its text
const LEAST_DRAG = 0.01; // part of the panel; less is a click
const HELP = "Arrow keys read the values, plus and minus zoom, 0 shows all.";

const HTML = `
  <div class="loopring-lab-figure">
    <div class="ll-bar" role="toolbar" aria-label="View of the figure">
      <button name="plus" title="Zoom in" aria-label="Zoom in">+</button>
      <button name="minus" title="Zoom out" aria-label="Zoom out">−</button>
      <button name="left" title="Move back" aria-label="Move back">◀</button>
      <button name="right" title="Move on" aria-label="Move on">▶</button>
      <button name="all" title="Show all">Show all</button>
    </div>
    <div class="ll-picture" role="img" tabindex="0">
      <div class="ll-drawing" aria-hidden="true"></div>
      <div class="ll-band" hidden></div>
      <div class="ll-tip" aria-hidden="true" hidden></div>
    </div>
    <div class="ll-live" role="status"></div>
  </div>`;

function within(low, high, value) {
  const atMost = Math.min(high, value);
  return Math.max(low, atMost);
}

// How many pixels a place is before or beyond a mark, along an axis of this length.
function pixelsOff(mark, place, axis, length) {
  const before = mark[axis] - place[axis];
  const beyond = place[axis] - mark[axis + 2];
  return Math.max(before, beyond, 0) * length;
}

// How far a mark is from being meant by a place in a picture of this size; the least is meant.
function distance(mark, place, size, axis) {
  const offs = [0, 1].map((one) => pixelsOff(mark, place, one, size[one]));
  const direct = Math.hypot(...offs);
  const width = (mark[2] - mark[0]) * size[0];
  const height = (mark[3] - mark[1]) * size[1];
  const isThin = Math.min(width, height) < 1;
  // A line or a point that is pointed at comes before the bar that it stands on.
  if (isThin && direct <= NEAR) {
    return direct - 1e6;
  }
  // Along the axis the nearest mark is meant, however far away it is across.
  return offs[axis] + offs[1 - axis] / 1e3;
}

function render({ model, el }) {
  const find = fill(el, HTML);
  const picture = find(".ll-picture");
  const drawing = find(".ll-drawing");
  const band = find(".ll-band");
  const tip = find(".ll-tip");
  const live = find(".ll-live");
  const buttons = el.querySelectorAll("button");
  const plus = find("[name=plus]");
  // Two views on a page must not share the ids of clip paths and letters.
  const prefix = `f${Math.random().toString(36).slice(2)}-`;
  let marks;
  let panel;
  let axis;
  let shown = -1; // the mark whose text is shown
  let dragStart = null; // along the axis

  function hide() {
    tip.hidden = true;
    band.hidden = true;
  }

  function draw() {
    const page = model.get("page");
    marks = page.marks;
    panel = page.panel;
    axis = page.axis;
    const ids = /(\bid="|href="#|url\(#)/g;
    drawing.innerHTML = page.svg.replace(ids, `$1${prefix}`);
    picture.ariaLabel = `${page.label}. ${HELP}`;
    // Of a figure that is whole, there is nothing to move to or to show.
    for (const button of buttons) {
      button.disabled = !page.zoomed;
    }
    plus.disabled = false;
    shown = -1;
    hide();
  }

  function outline(edges) {
    const left = edges[0] * 100;
    const top = edges[1] * 100;
    const right = 100 - edges[2] * 100;
    const bottom = 100 - edges[3] * 100;
    band.style.inset = `${top}% ${right}% ${bottom}% ${left}%`;
    band.hidden = false;
  }

  // Shows the text of a mark to its right, or to its left where there is no room.
  function tell(number) {
    const mark = marks[number];
    shown = number;
    outline(mark);
    tip.textContent = mark[4];
    tip.hidden = false;
    const room = picture.clientWidth - tip.offsetWidth;
    const lowest = picture.clientHeight - tip.offsetHeight;
    const toTheRight = mark[2] * picture.clientWidth + GAP;
    const end = mark[0] * picture.clientWidth - GAP;
    const toTheLeft = end - tip.offsetWidth;
    const left = toTheRight > room ? toTheLeft : toTheRight;
    const top = mark[1] * picture.clientHeight;
    tip.style.left = `${within(0, room, left)}px`;
    tip.style.top = `${within(0, lowest, top)}px`;
  }

  // Where a pointer is, in parts of the picture.
  function placeOf(event) {
    const box = picture.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    const y = (event.clientY - box.top) / box.height;
    return [x, y];
  }

  function nearest(place) {
    const size = [picture.clientWidth, picture.clientHeight];
    const away = marks.map((mark) => distance(mark, place, size, axis));
    return away.indexOf(Math.min(...away));
  }

  // Zooms are parts of what is shown, from 0 to 1.
  function zoom(start, end) {
    model.send({ zoom: [start, end] });
  }

  function showAll() {
    model.send({ zoom: null });
  }

  function partOf(value) {
    const length = panel[axis + 2] - panel[axis];
    return (value - panel[axis]) / length;
  }

  // Shows half of what is shown now, around the mark whose text is shown.
  function zoomIn() {
    const meant = marks[shown] ?? panel;
    const middle = (meant[axis] + meant[axis + 2]) / 2;
    const start = within(0, 0.5, partOf(middle) - 0.25);
    zoom(start, start + 0.5);
  }

  function zoomOut() {
    zoom(-0.5, 1.5);
  }

  function move(way) {
    zoom(way / 4, 1 + way / 4);
  }

  plus.onclick = zoomIn;
  find("[name=minus]").onclick = zoomOut;
  find("[name=left]").onclick = () => move(-1);
  find("[name=right]").onclick = () => move(1);
  find("[name=all]").onclick = showAll;
  picture.ondblclick = showAll;

  // Where a pointer is along the axis, within the panel.
  function pointed(event) {
    const place = placeOf(event);
    return within(panel[axis], panel[axis + 2], place[axis]);
  }

  // The range of a drag so far.
  function dragged(event) {
    const end = pointed(event);
    return [Math.min(dragStart, end), Math.max(dragStart, end)];
  }

  picture.onpointerdown = (event) => {
    const isMainButton = event.button === 0;
    if (isMainButton) {
      dragStart = pointed(event);
      picture.setPointerCapture(event.pointerId);
      // A drag selects no text; then the focus has to be set by hand.
      event.preventDefault();
      picture.focus({ preventScroll: true });
    }
  };

  picture.onpointermove = (event) => {
    if (dragStart !== null) {
      const [low, high] = dragged(event);
      const edges = [...panel];
      edges[axis] = low;
      edges[axis + 2] = high;
      tip.hidden = true;
      outline(edges);
    } else if (marks.length) {
      tell(nearest(placeOf(event)));
    }
  };

  picture.onpointerup = (event) => {
    if (dragStart === null) {
      return;
    }
    const [low, high] = dragged(event).map(partOf);
    dragStart = null;
    if (high - low > LEAST_DRAG) {
      zoom(low, high);
    } else {
      hide();
    }
  };

  function leave() {
    dragStart = null;
    hide();
  }
  picture.onpointercancel = leave;
  picture.onpointerleave = leave;

  // Without shift, arrows read one mark after the other; only these are read aloud, not every move of a pointer.
  function step(number) {
    if (marks.length) {
      tell(within(0, marks.length - 1, number));
      live.textContent = tip.textContent.replaceAll("\n", ", ");
    }
  }

  function follow(way, event) {
    if (event.shiftKey) {
      move(way);
    } else {
      step(shown + way);
    }
  }

  const back = (event) => follow(-1, event);
  const on = (event) => follow(1, event);
  const keys = {
    ArrowLeft: back,
    ArrowUp: back,
    ArrowRight: on,
    ArrowDown: on,
    Home: () => step(0),
    End: () => step(marks.length - 1),
    "+": zoomIn,
    "=": zoomIn, // the key of plus without shift
    "-": zoomOut,
    0: showAll,
    Escape: hide,
  };
  find(".loopring-lab-figure").onkeydown = (event) => {
    const act = keys[event.key];
    const isBrowsers = event.ctrlKey || event.metaKey;
    if (act && !isBrowsers) {
      act(event);
      event.preventDefault();
    }
  };

  draw();
  model.on("change:page", draw);
  return () => model.off("change:page", draw);
}
export default { render };
