const PAGE = 50;
const NUMBER = /^-?\d+(\.\d+)?$/;
const HUGE = 10n ** 400n;                            // where an infinite float is sorted
const MISSING = "-", CUT = "…";

const make = (tag, given = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...children);
  return element;
};
const placesOf = (number) => (number.split(".")[1] ?? "").length;
const mostPlaces = (numbers) => numbers.reduce((most, one) => Math.max(most, placesOf(one)), 0);

// A number as an integer of its smallest place: no float ever holds an amount.
const scaled = (number, places) => {
  if (!NUMBER.test(number)) return number.startsWith("-") ? -HUGE : HUGE;
  const [whole, fraction = ""] = number.split(".");
  return BigInt(whole + fraction.padEnd(places, "0"));
};
const unscaled = (integer, places) => {
  const digits = String(integer < 0n ? -integer : integer).padStart(places + 1, "0");
  const cut = digits.length - places;
  const fraction = digits.slice(cut).replace(/0+$/, "");
  return (integer < 0n ? "-" : "") + digits.slice(0, cut) + (fraction && "." + fraction);
};
const grouped = (number) => {
  const [whole, fraction] = number.split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (fraction ? "." + fraction : "");
};

// Texts that Python can leave out: the value, its thousands apart, and its token where the heading has none.
const textOf = (column, row) => {
  const value = column.values[row];
  if (column.texts) return column.texts[row];
  if (!value) return MISSING;
  if (column.kind !== "number") return value;
  const symbol = column.symbols ? " " + (column.symbols[row] || "?") : "";
  return (column.plain ? value : grouped(value)) + symbol;
};
const titleOf = (column, row) => {
  const value = column.values[row], text = textOf(column, row);
  if (!value || column.kind === "time" || !column.texts || { yes: "True", no: "False" }[text] === value) return "";
  if (column.kind === "text") return text === value ? "" : value;
  const [digits, symbol] = text.split(" ");
  if (digits.replaceAll(",", "") === value) return "";
  return (column.order ? value : grouped(value)) + (symbol && !column.order ? " " + symbol : "");
};

// What a spreadsheet would run as a formula begins with a quote instead.
const csvCell = (text, kind) => {
  const safe = kind !== "number" && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

function sorted(rows, column, isDown) {
  const values = column.order ?? column.values;
  const isNumber = column.kind === "number";
  const places = isNumber ? mostPlaces(values) : 0;
  const keyed = rows.map((row) => [values[row] && isNumber ? scaled(values[row], places) : values[row], row]);
  const present = keyed.filter(([key]) => key !== "");
  const sign = isDown ? -1 : 1;
  present.sort(([a, i], [b, j]) => (a < b ? -sign : a > b ? sign : i - j));
  return [...present, ...keyed.filter(([key]) => key === "")].map(([, row]) => row);
}

// The sum of the rows' values, if they are all in one unit.
function total(columns, column, rows) {
  const known = rows.filter((row) => column.values[row] !== "");
  const units = new Set(column.unit === null ? [] : known.map((row) => columns[column.unit].values[row]));
  if (!known.length || units.size > 1 || units.has("")) return null;
  const places = mostPlaces(known.map((row) => column.values[row]));
  const sum = known.reduce((all, row) => all + scaled(column.values[row], places), 0n);
  const [unit] = units;
  const symbol = unit && !column.heading.endsWith(`(${unit})`) ? " " + unit : "";
  const written = (number) => grouped(unscaled(number, places)) + symbol;
  const cuts = (column.texts ?? []).filter((one) => one.includes(CUT)).map((one) => one.split(CUT)[0]);
  const below = cuts.length ? Math.max(0, places - mostPlaces(cuts)) : 0;
  const rest = sum % 10n ** BigInt(below);
  const text = rest ? written(sum - rest).replace(/(?= |$)/, CUT) : written(sum);
  return { text, title: rest ? written(sum) : "", missing: rows.length - known.length };
}

function render({ model, el }) {
  let by = null, isDown = false, filter = "", page = 0, haystacks = null, rows = [], visible = [];
  let columns = [];
  const search = make("input", { type: "search", autocomplete: "off", spellcheck: false });
  const csv = make("button", { type: "button", textContent: "Save CSV", title: "Save these rows with all digits" });
  const copy = make("button", { type: "button", textContent: "Copy code", title: "Copy code that makes this table" });
  const status = make("span", { className: "ll-status" });
  status.setAttribute("role", "status");
  const bar = make("div", { className: "ll-bar" }, make("label", {}, "Filter ", search), csv, copy, status);
  const head = make("thead"), body = make("tbody"), foot = make("tfoot");
  const table = make("table", { className: "ll-table" }, head, body, foot);
  const box = make("div", { className: "ll-box", tabIndex: 0 }, table);
  box.setAttribute("role", "region");
  const back = make("button", { type: "button", textContent: "Previous" });
  const next = make("button", { type: "button", textContent: "Next" });
  const place = make("span", { className: "ll-status" });
  const pager = make("div", { className: "ll-bar" }, back, place, next);
  const help = make("p", { className: "ll-help" });
  const notes = make("div");
  const root = make("div", { className: "ll-view" }, bar, box, pager, help, notes);

  const aligned = (element, column) => {
    element.setAttribute("align", column.kind === "number" ? "right" : "left");
    return element;
  };

  const heading = (column, number) => {
    const arrow = make("span");
    arrow.setAttribute("aria-hidden", "true");
    const button = make("button", { type: "button", title: column.help }, column.heading, arrow);
    button.onclick = () => {
      [by, isDown] = by !== column.name ? [column.name, false] : isDown ? [null, false] : [by, true];
      page = 0;
      update();
    };
    button.onfocus = button.onpointerenter = () => { help.textContent = column.help; };
    button.onblur = button.onpointerleave = () => { help.textContent = ""; };
    const cell = aligned(make("th", { scope: "col" }, button), column);
    cell.dataset.column = number;
    return cell;
  };

  const choose = (row) => {
    model.set("chosen", row);
    model.save_changes();
  };

  const line = (row) => {
    const cells = visible.map((column) => {
      const text = textOf(column, row), cell = make(column.key ? "th" : "td", { textContent: text });
      if (column.key) cell.scope = "row";
      if (text.length > 40 && column.kind === "text") cell.className = "ll-long";
      const title = titleOf(column, row);
      if (title) cell.title = title;
      return aligned(cell, column);
    });
    const made = make("tr", {}, ...cells);
    made.dataset.row = row;
    return made;
  };

  const markChosen = () => {
    if (!model.get("choosing")) return;
    const lines = [...body.children], chosen = model.get("chosen");
    const reachable = lines.find((one) => +one.dataset.row === chosen) ?? lines[0];
    for (const one of lines) {
      one.setAttribute("aria-selected", String(+one.dataset.row === chosen));
      one.tabIndex = one === reachable ? 0 : -1;
    }
  };

  const drawTotals = () => {
    const totals = visible.map((column) => (column.adds ? total(columns, column, rows) : null));
    foot.replaceChildren();
    if (!totals.some(Boolean) || rows.length < 2) return;
    const missing = totals.some((one) => one?.missing);
    const label = missing ? "Total of known" : "Total";
    const cells = visible.map((column, number) => {
      const text = totals[number]?.text ?? (number === 0 ? label : "");
      const title = totals[number]?.title ?? "";
      return aligned(make(number === 0 && !totals[0] ? "th" : "td", { textContent: text, title }), column);
    });
    if (cells[0].tagName === "TH") cells[0].scope = "row";
    foot.append(make("tr", {}, ...cells));
  };

  const drawPage = () => {
    const start = page * PAGE, end = Math.min(start + PAGE, rows.length);
    body.replaceChildren(...rows.slice(start, end).map(line));
    pager.hidden = rows.length <= PAGE;
    back.disabled = page === 0;
    next.disabled = end === rows.length;
    place.textContent = `Rows ${grouped(String(start + 1))} to ${grouped(String(end))}`;
    box.scrollTop = 0;
    markChosen();
  };

  const update = () => {
    const all = model.get("data").rows, wanted = filter.toLowerCase();
    rows = Array.from({ length: all }, (_, row) => row);
    if (wanted) {
      haystacks ??= rows.map((row) => columns.map((one) => `${textOf(one, row)}\n${one.values[row]}`).join("\n").toLowerCase());
      rows = rows.filter((row) => haystacks[row].includes(wanted));
    }
    const column = columns.find((one) => one.name === by);
    if (column) rows = sorted(rows, column, isDown);
    for (const cell of head.querySelectorAll("th")) {
      const isSorted = visible[cell.dataset.column] === column;
      if (isSorted) cell.ariaSort = isDown ? "descending" : "ascending";
      else cell.removeAttribute("aria-sort");
      cell.querySelector("span").textContent = isSorted ? (isDown ? " ▼" : " ▲") : "";
    }
    status.textContent = wanted
      ? `${grouped(String(rows.length))} of ${grouped(String(all))} rows`
      : `${grouped(String(all))} rows`;
    drawTotals();
    drawPage();
  };

  const redraw = () => {
    ({ columns } = model.get("data"));
    haystacks = null;
    page = 0;
    for (const one of columns) {
      if (one.unit !== null && one.heading === one.name) one.symbols = columns[one.unit].values;
    }
    visible = columns.filter((column) => !column.hidden);
    head.replaceChildren(make("tr", {}, ...visible.map(heading)));
    notes.replaceChildren(...model.get("data").notes.map((one) => make("p", {}, make("small", { textContent: one }))));
    update();
  };

  const settle = () => {
    copy.hidden = !model.get("code");
    const name = model.get("label");
    box.setAttribute("aria-label", name);
    if (!model.get("choosing")) return;
    table.setAttribute("role", "grid");
    table.setAttribute("aria-label", name);
    root.classList.add("ll-choosing");
  };

  search.oninput = () => { filter = search.value; page = 0; update(); };
  back.onclick = () => { page -= 1; drawPage(); };
  next.onclick = () => { page += 1; drawPage(); };
  copy.onclick = async () => {
    await copyText(model.get("code"));
    status.textContent = "Code copied";
  };
  csv.onclick = () => {
    const lines = rows.map((row) => columns.map((one) => csvCell(one.values[row], one.kind)));
    const text = [columns.map((one) => csvCell(one.name, "text")), ...lines].map((one) => one.join(",")).join("\r\n");
    const href = URL.createObjectURL(new Blob([text + "\r\n"], { type: "text/csv" }));
    const name = model.get("label").toLowerCase().replace(/[^a-z0-9]+/g, "-") || "table";
    make("a", { href, download: `${name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  };
  body.onclick = (event) => {
    const clicked = event.target.closest("tr");
    if (clicked && model.get("choosing")) choose(+clicked.dataset.row);
  };
  body.onkeydown = (event) => {
    const focused = event.target.closest("tr");
    if (!focused || !model.get("choosing")) return;
    const other = { ArrowDown: focused.nextElementSibling, ArrowUp: focused.previousElementSibling }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(+focused.dataset.row);
    else if (other) {
      focused.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
    } else return;
    event.preventDefault();
  };
  root.addEventListener("keydown", (event) => event.stopPropagation());    // the notebook has shortcuts on keys

  model.on("change:data", redraw);
  model.on("change:code change:label", settle);
  model.on("change:chosen", markChosen);
  settle();
  redraw();
  el.append(root);
  return () => {
    model.off("change:data", redraw);
    model.off("change:code change:label", settle);
    model.off("change:chosen", markChosen);
  };
}

export default { render };
