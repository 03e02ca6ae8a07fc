// The kernel filters, sorts, adds up and formats; this shows a page of rows and says what was clicked.
function render({ model, el }) {
  const button = (textContent, title = "") =>
    make("button", { type: "button", textContent, title });
  const search = make("input", {
    type: "search",
    autocomplete: "off",
    spellcheck: false,
  });
  const csv = button("Save CSV", "Save these rows with all digits");
  const copy = button("Copy code", "Copy code that makes this table");
  const status = make("span", { role: "status" });
  const back = button("Previous");
  const next = button("Next");
  const place = make("span");
  const pager = make("div", { className: "ll-bar" }, back, place, next);
  const box = make("div", {
    className: "ll-box",
    tabIndex: 0,
    role: "region",
    ariaLabel: model.get("label"),
  });
  const help = make("p", { className: "ll-help" });
  const notes = make("div");
  const filter = make("label", {}, "Filter ", search);
  const bar = make("div", { className: "ll-bar" }, filter, csv, copy, status);
  const root = make(
    "div",
    { className: "ll-view" },
    bar,
    box,
    pager,
    help,
    notes,
  );
  const choosing = model.get("choosing");
  root.classList.toggle("ll-choosing", choosing);
  el.append(root);
  keepKeys(root);

  const count = (number) => number.toLocaleString("en-US");
  const rows = () => [...box.querySelectorAll("tbody tr")];

  // A heading becomes a button, which sorts and says what the column means.
  const addSorting = (cell, number, order) => {
    const arrow = { ascending: " ▲", descending: " ▼", "": "" }[order];
    const mark = make("span", { ariaHidden: "true", textContent: arrow });
    const heading = make(
      "button",
      { type: "button", title: cell.title },
      cell.textContent,
      mark,
    );
    heading.onclick = () => model.send({ sort: number });
    heading.onfocus = heading.onpointerenter = () => {
      help.textContent = heading.title;
    };
    heading.onblur = heading.onpointerleave = () => {
      help.textContent = "";
    };
    cell.removeAttribute("title");
    if (order) cell.ariaSort = order;
    cell.replaceChildren(heading);
  };

  const addTotals = (table, totals, headings) => {
    const cells = totals.map(([textContent, title], number) => {
      const cell = make("td", { textContent, title });
      cell.setAttribute("align", headings[number].getAttribute("align"));
      return cell;
    });
    if (cells.length) table.append(make("tfoot", {}, make("tr", {}, ...cells)));
  };

  const showPage = () => {
    const page = model.get("page");
    const headings = () => [...box.querySelectorAll("thead th")];
    const focused = headings().findIndex((cell) =>
      cell.contains(document.activeElement),
    );
    box.innerHTML = page.html;
    headings().forEach((cell, number) =>
      addSorting(cell, number, page.orders[number]),
    );
    addTotals(box.querySelector("table"), page.totals, headings());
    // The headings are new; the keyboard stays where it was.
    if (focused >= 0) headings()[focused]?.firstChild.focus();
    notes.innerHTML = page.notes;
    const end = page.start + page.rows.length;
    pager.hidden = page.matching === page.rows.length;
    back.disabled = page.start === 0;
    next.disabled = end === page.matching;
    place.textContent = `Rows ${count(page.start + 1)} to ${count(end)}`;
    const all = `${count(page.all)} rows`;
    status.textContent = page.filtered
      ? `${count(page.matching)} of ${all}`
      : all;
    box.scrollTop = 0;
    showChosen();
  };

  const showChosen = () => {
    if (!choosing) return;
    box.querySelector("table").role = "grid";
    box.querySelector("table").ariaLabel = model.get("label");
    const chosen = model.get("page").rows.indexOf(model.get("chosen"));
    rows().forEach((row, number) => {
      row.ariaSelected = String(number === chosen);
      row.tabIndex = number === Math.max(0, chosen) ? 0 : -1;
    });
  };
  const choose = (row) => {
    if (!choosing || !row) return;
    model.set("chosen", model.get("page").rows[rows().indexOf(row)]);
    model.save_changes();
  };
  const showCopy = () => {
    copy.hidden = !model.get("code");
  };

  box.onclick = (event) => choose(event.target.closest("tbody tr"));
  box.onkeydown = (event) => {
    const row = event.target.closest("tbody tr");
    if (!choosing || !row) return;
    const other = {
      ArrowDown: row.nextElementSibling,
      ArrowUp: row.previousElementSibling,
    }[event.key];
    if (other) {
      row.tabIndex = -1;
      other.tabIndex = 0;
      other.focus();
    } else if (event.key === "Enter" || event.key === " ") choose(row);
    else return;
    event.preventDefault();
  };
  search.oninput = () => model.send({ filter: search.value });
  const turn = (rows) => model.send({ start: model.get("page").start + rows });
  back.onclick = () => turn(-model.get("page").size);
  next.onclick = () => turn(model.get("page").size);
  copy.onclick = async () => {
    await copyText(model.get("code"));
    status.textContent = "Code copied";
  };
  csv.onclick = () => model.send({ csv: true });
  const save = async ({ refused, csv: label }, [packed]) => {
    if (refused) {
      status.textContent = refused;
      return;
    }
    const text = new Blob([packed])
      .stream()
      .pipeThrough(new DecompressionStream("gzip"));
    const href = URL.createObjectURL(await new Response(text).blob());
    const name = label.toLowerCase().replace(/[^a-z0-9]+/g, "-");
    make("a", { href, download: `${name || "table"}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  };

  showPage();
  showCopy();
  model.on("change:page", showPage);
  model.on("change:chosen", showChosen);
  model.on("change:code", showCopy);
  model.on("msg:custom", save);
  return () => {
    model.off("change:page", showPage);
    model.off("change:chosen", showChosen);
    model.off("change:code", showCopy);
    model.off("msg:custom", save);
  };
}
export default { render };
