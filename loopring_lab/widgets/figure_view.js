const NEAR = 8;                                    // pixels within which a line or a point is meant
const TOOLS = [
  ["+", "Zoom in"], ["−", "Zoom out"], ["◀", "Move back"], ["▶", "Move on"], ["Show all", "Show all"],
];
const KEYS = { "+": 0, "=": 0, "-": 1, "0": 4 };

function render({ model, el }) {
  const make = (parent, tag, name, more = {}) => {
    const made = parent.appendChild(document.createElement(tag));
    made.className = name;
    for (const [key, value] of Object.entries(more)) made.setAttribute(key, value);
    return made;
  };
  const root = make(el, "div", "loopring-lab-figure");
  const tools = make(root, "div", "ll-tools", { role: "toolbar", "aria-label": "View of the figure" });
  const picture = make(root, "div", "ll-picture", { role: "img", tabindex: "0" });
  const drawing = make(picture, "div", "ll-drawing", { "aria-hidden": "true" });
  const band = make(picture, "div", "ll-band");
  const tip = make(picture, "div", "ll-tip", { "aria-hidden": "true" });
  const live = make(root, "div", "ll-live", { role: "status", "aria-live": "polite" });
  const prefix = `f${crypto.getRandomValues(new Uint32Array(2)).join("")}-`;
  let at = -1, from = null, panel = 0, marks = [], panels = [];

  const hide = () => { tip.hidden = band.hidden = true; };
  const draw = () => {
    // two views on a page must not share the ids of clip paths and letters
    drawing.innerHTML = model.get("svg").replace(/(\bid="|href="#|url\(#)/g, `$1${prefix}`);
    [marks, panels] = [model.get("marks"), model.get("panels")];
    panel = Math.min(panel, panels.length - 1);
    at = -1;
    const help = "Arrow keys read the values, plus and minus zoom, 0 shows all.";
    picture.setAttribute("aria-label", `${model.get("label")}. ${help}`);
    const zoomed = panels.some((one) => one[5]);
    buttons.forEach((button, i) => { if (i) button.disabled = !zoomed; });
    hide();
  };

  const outline = (left, top, right, bottom) => {
    band.hidden = false;
    const width = picture.clientWidth, height = picture.clientHeight;
    Object.assign(band.style, {
      left: `${left * width - 1}px`, width: `${(right - left) * width + 2}px`,
      top: `${top * height - 1}px`, height: `${(bottom - top) * height + 2}px`,
    });
  };
  const tell = (number) => {
    at = number;
    const [, left, top, right, bottom, text] = marks[at];
    panel = marks[at][0];
    outline(left, top, right, bottom);
    tip.textContent = text;
    tip.hidden = false;
    const width = picture.clientWidth, height = picture.clientHeight, gap = 10;
    const beside = right * width + gap + tip.offsetWidth <= width;
    const x = beside ? right * width + gap : left * width - gap - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(x, width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, Math.min(top * height, height - tip.offsetHeight))}px`;
  };

  // where a pointer is, in parts of the picture
  const place = (event) => {
    const box = picture.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const gap = (low, high, value) => Math.max(low - value, value - high, 0);
  const panelAt = ([x, y]) => {
    const far = panels.map(([l, t, r, b]) => Math.hypot(gap(l, r, x), gap(t, b, y)));
    return far.indexOf(Math.min(...far));
  };
  const nearest = ([x, y]) => {
    const inside = panelAt([x, y]), sideways = panels[inside][4] === "x";
    const width = picture.clientWidth, height = picture.clientHeight;
    let best = -1, least = Infinity;
    marks.forEach(([number, left, top, right, bottom], i) => {
      if (number !== inside) return;
      const dx = gap(left, right, x) * width, dy = gap(top, bottom, y) * height;
      const thin = (right - left) * width < 1 || (bottom - top) * height < 1;
      const close = thin && Math.hypot(dx, dy) <= NEAR;      // before what it stands on
      const far = close ? Math.hypot(dx, dy) - 1e6 : sideways ? dx + dy / 1e3 : dy + dx / 1e3;
      if (far < least) [best, least] = [i, far];
    });
    return best;
  };

  const zoom = (start, end) => model.send({ zoom: [panel, start, end] });
  const focus = () => {                            // the middle of a zoom, in parts of its panel
    if (at < 0) return 0.5;
    const [l, t, r, b, direction] = panels[panel], [, left, top, right, bottom] = marks[at];
    return direction === "x" ? ((left + right) / 2 - l) / (r - l) : ((top + bottom) / 2 - t) / (b - t);
  };
  const actions = [
    () => { const middle = Math.max(0.25, Math.min(0.75, focus())); zoom(middle - 0.25, middle + 0.25); },
    () => zoom(-0.5, 1.5), () => zoom(-0.25, 0.75), () => zoom(0.25, 1.25), () => model.send({ zoom: null }),
  ];
  const buttons = TOOLS.map(([text, label], i) => {
    const button = make(tools, "button", "", { type: "button", "aria-label": label, title: label });
    button.textContent = text;
    button.addEventListener("click", () => actions[i]());
    return button;
  });

  const dragged = (event) => {
    const [l, t, r, b, direction] = panels[panel], [x, y] = place(event);
    const part = direction === "x" ? (x - l) / (r - l) : (y - t) / (b - t);
    return Math.max(0, Math.min(1, part));
  };
  const ends = (event) => [from, dragged(event)].sort((a, b) => a - b);
  picture.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    panel = panelAt(place(event));
    from = dragged(event);
    picture.setPointerCapture(event.pointerId);
    picture.focus({ preventScroll: true });
    event.preventDefault();
  });
  picture.addEventListener("pointermove", (event) => {
    if (from === null) {
      const found = nearest(place(event));
      if (found >= 0) tell(found); else hide();
      return;
    }
    const [l, t, r, b, direction] = panels[panel], [low, high] = ends(event);
    tip.hidden = true;
    if (direction === "x") outline(l + low * (r - l), t, l + high * (r - l), b);
    else outline(l, t + low * (b - t), r, t + high * (b - t));
  });
  picture.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [low, high] = ends(event);
    from = null;
    if (high - low > 0.01) zoom(low, high); else hide();
  });
  picture.addEventListener("pointercancel", () => { from = null; hide(); });
  picture.addEventListener("pointerleave", () => { if (from === null) hide(); });
  picture.addEventListener("dblclick", () => actions[4]());

  root.addEventListener("keydown", (event) => {
    event.stopPropagation();                       // the notebook has shortcuts on single keys
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const end = { Home: 0, End: marks.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    else if (step && event.shiftKey) actions[step < 0 ? 2 : 3]();
    else if (event.target === picture && marks.length && (step || end !== undefined)) {
      const next = end ?? (at < 0 && step > 0 ? 0 : at + step);
      tell(Math.max(0, Math.min(marks.length - 1, next)));
      live.textContent = marks[at][5].replaceAll("\n", ", ");
    } else if (event.key in KEYS && !event.ctrlKey && !event.metaKey) actions[KEYS[event.key]]();
    else return;
    event.preventDefault();
  });

  model.on("change:svg", draw);
  draw();
  return () => model.off("change:svg", draw);
}
export default { render };
