// The kernel draws; this shows the drawing, finds the mark that is meant, and asks for zooms.
const NEAR = 8; // pixels within which a line or a point is meant
const GAP = 10; // pixels between a mark and its text
const LEAST_DRAG = 0.01; // part of a panel; less is a click

// Edges as the kernel sends them: parts of the picture, from its upper left.
const edges = ([left, top, right, bottom]) => ({ left, top, right, bottom });
const distance = (low, high, value) => Math.max(low - value, value - high, 0);
const within = (low, high, value) => Math.max(low, Math.min(high, value));

function render({ model, el }) {
  const drawing = make("div", { className: "ll-drawing", ariaHidden: "true" });
  const band = make("div", { className: "ll-band", hidden: true });
  const tip = make("div", {
    className: "ll-tip",
    hidden: true,
    ariaHidden: "true",
  });
  const picture = make(
    "div",
    { className: "ll-picture", role: "img", tabIndex: 0 },
    drawing,
    band,
    tip,
  );
  const live = make("div", {
    className: "ll-live",
    role: "status",
    ariaLive: "polite",
  });
  const tools = make("div", {
    className: "ll-bar",
    role: "toolbar",
    ariaLabel: "View of the figure",
  });
  el.append(
    make("div", { className: "loopring-lab-figure" }, tools, picture, live),
  );
  // Two views on a page must not share the ids of clip paths and letters.
  const prefix = `f${crypto.getRandomValues(new Uint32Array(2)).join("")}-`;

  let marks = [];
  let panels = [];
  let shown = -1; // the mark whose text is shown
  let panel = 0; // the panel that a zoom is meant for
  let from = null; // where a drag began

  const draw = () => {
    drawing.innerHTML = model
      .get("svg")
      .replace(/(\bid="|href="#|url\(#)/g, `$1${prefix}`);
    marks = model
      .get("marks")
      .map(([number, ...rest]) => ({
        panel: number,
        ...edges(rest),
        text: rest[4],
      }));
    panels = model
      .get("panels")
      .map((rest) => ({
        ...edges(rest),
        isSideways: rest[4] === "x",
        isZoomed: rest[5],
      }));
    panel = Math.min(panel, panels.length - 1);
    const help =
      "Arrow keys read the values, plus and minus zoom, 0 shows all.";
    picture.ariaLabel = `${model.get("label")}. ${help}`;
    const isZoomed = panels.some((one) => one.isZoomed);
    for (const button of tools.children)
      button.disabled = button.title !== "Zoom in" && !isZoomed;
    shown = -1;
    hide();
  };

  const hide = () => {
    tip.hidden = true;
    band.hidden = true;
  };
  const outline = ({ left, top, right, bottom }) => {
    const { clientWidth: width, clientHeight: height } = picture;
    band.hidden = false;
    band.style.left = `${left * width - 1}px`;
    band.style.width = `${(right - left) * width + 2}px`;
    band.style.top = `${top * height - 1}px`;
    band.style.height = `${(bottom - top) * height + 2}px`;
  };
  const tell = (number) => {
    const mark = marks[number];
    const { clientWidth: width, clientHeight: height } = picture;
    shown = number;
    panel = mark.panel;
    outline(mark);
    tip.textContent = mark.text;
    tip.hidden = false;
    // To the right of the mark, or to its left where there is no room.
    const right = mark.right * width + GAP;
    const left = mark.left * width - GAP - tip.offsetWidth;
    const x = right + tip.offsetWidth <= width ? right : left;
    tip.style.left = `${within(0, width - tip.offsetWidth, x)}px`;
    tip.style.top = `${within(0, height - tip.offsetHeight, mark.top * height)}px`;
  };

  // Where a pointer is, in parts of the picture.
  const place = (event) => {
    const box = picture.getBoundingClientRect();
    return [
      (event.clientX - box.left) / box.width,
      (event.clientY - box.top) / box.height,
    ];
  };
  const panelAt = ([x, y]) => {
    const away = panels.map((one) =>
      Math.hypot(
        distance(one.left, one.right, x),
        distance(one.top, one.bottom, y),
      ),
    );
    return away.indexOf(Math.min(...away));
  };
  const nearest = ([x, y]) => {
    const inside = panelAt([x, y]);
    const { clientWidth: width, clientHeight: height } = picture;
    let best = -1;
    let least = Infinity;
    marks.forEach((mark, number) => {
      if (mark.panel !== inside) return;
      const dx = distance(mark.left, mark.right, x) * width;
      const dy = distance(mark.top, mark.bottom, y) * height;
      // In the direction of the panel the nearest mark is meant, however far away it is in the other.
      let away = panels[inside].isSideways ? dx + dy / 1e3 : dy + dx / 1e3;
      // A line or a point that is pointed at comes before the bar that it stands on.
      const isThin =
        (mark.right - mark.left) * width < 1 ||
        (mark.bottom - mark.top) * height < 1;
      if (isThin && Math.hypot(dx, dy) <= NEAR) away = Math.hypot(dx, dy) - 1e6;
      if (away < least) {
        best = number;
        least = away;
      }
    });
    return best;
  };

  // Zooms are parts of what the panel shows, from 0 to 1.
  const zoom = (start, end) => model.send({ zoom: [panel, start, end] });
  const showAll = () => model.send({ zoom: null });
  const partOfPanel = (x, y) => {
    const { left, top, right, bottom, isSideways } = panels[panel];
    return isSideways
      ? (x - left) / (right - left)
      : (y - top) / (bottom - top);
  };
  const zoomIn = () => {
    const mark = marks[shown];
    const middle = mark
      ? partOfPanel((mark.left + mark.right) / 2, (mark.top + mark.bottom) / 2)
      : 0.5;
    const start = within(0, 0.5, middle - 0.25);
    zoom(start, start + 0.5);
  };
  const zoomOut = () => zoom(-0.5, 1.5);
  const moveBack = () => zoom(-0.25, 0.75);
  const moveOn = () => zoom(0.25, 1.25);
  const addTool = (textContent, title, onclick) => {
    tools.append(
      make("button", {
        type: "button",
        textContent,
        title,
        ariaLabel: title,
        onclick,
      }),
    );
  };
  addTool("+", "Zoom in", zoomIn);
  addTool("−", "Zoom out", zoomOut);
  addTool("◀", "Move back", moveBack);
  addTool("▶", "Move on", moveOn);
  addTool("Show all", "Show all", showAll);

  // A drag over a range zooms to it.
  const dragged = (event) => {
    const to = within(0, 1, partOfPanel(...place(event)));
    return [Math.min(from, to), Math.max(from, to)];
  };
  picture.onpointerdown = (event) => {
    if (event.button) return;
    panel = panelAt(place(event));
    from = within(0, 1, partOfPanel(...place(event)));
    picture.setPointerCapture(event.pointerId);
    picture.focus({ preventScroll: true });
    event.preventDefault();
  };
  picture.onpointermove = (event) => {
    if (from === null) {
      const number = nearest(place(event));
      if (number >= 0) tell(number);
      else hide();
      return;
    }
    const [low, high] = dragged(event);
    const { left, top, right, bottom, isSideways } = panels[panel];
    const [width, height] = [right - left, bottom - top];
    tip.hidden = true;
    if (isSideways)
      outline({
        left: left + low * width,
        right: left + high * width,
        top,
        bottom,
      });
    else
      outline({
        left,
        right,
        top: top + low * height,
        bottom: top + high * height,
      });
  };
  picture.onpointerup = (event) => {
    if (from === null) return;
    const [low, high] = dragged(event);
    from = null;
    if (high - low > LEAST_DRAG) zoom(low, high);
    else hide();
  };
  picture.onpointercancel = () => {
    from = null;
    hide();
  };
  picture.onpointerleave = () => {
    if (from === null) hide();
  };
  picture.ondblclick = showAll;

  // Arrows read one mark after the other; only these are read aloud, not every move of a pointer.
  const step = (number) => {
    tell(within(0, marks.length - 1, number));
    live.textContent = marks[shown].text.replaceAll("\n", ", ");
  };
  const keys = {
    ArrowLeft: () => step(shown - 1),
    ArrowUp: () => step(shown - 1),
    ArrowRight: () => step(shown + 1),
    ArrowDown: () => step(shown + 1),
    Home: () => step(0),
    End: () => step(marks.length - 1),
  };
  const shiftKeys = {
    ArrowLeft: moveBack,
    ArrowUp: moveBack,
    ArrowRight: moveOn,
    ArrowDown: moveOn,
  };
  const anywhere = {
    "+": zoomIn,
    "=": zoomIn,
    "-": zoomOut,
    0: showAll,
    Escape: hide,
  };
  el.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey) return;
    let act = anywhere[event.key];
    if (event.shiftKey) act ??= shiftKeys[event.key];
    else if (event.target === picture && marks.length) act ??= keys[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  });
  keepKeys(el);

  draw();
  model.on("change:svg", draw);
  return () => model.off("change:svg", draw);
}
export default { render };
