// The kernel filters, sorts, adds up and formats; this shows a page of rows and says what was clicked.
function render({ model, el }) {
  const [
    view,
    bar,
    label,
    search,
    csv,
    status,
    box,
    pager,
    back,
    place,
    next,
    help,
    notes,
  ] = fill(
    el,
    `<div class="ll-view">
      <div class="ll-bar">
        <label>Filter <input type="search" autocomplete="off" placeholder="text, or size > 1"></label>
        <button title="Save these rows with all digits">Save CSV</button>
        <span role="status"></span>
      </div>
      <div class="ll-box" tabindex="0" role="region" aria-label="Table"></div>
      <div class="ll-bar"><button>Previous</button><span></span><button>Next</button></div>
      <p class="ll-help"></p>
      <div></div>
    </div>`,
  );
  const buttons = () => [...box.querySelectorAll("th button")];
  const rows = () => [...box.querySelectorAll("tbody tr")];
  const show = () => {
    const page = model.get("page");
    const { activeElement } = document;
    const stops = () => [...buttons(), ...rows()];
    const focused = stops().indexOf(activeElement);
    box.innerHTML = page.html;
    // All is new; the keyboard stays where it was.
    stops()[focused]?.focus();
    notes.innerHTML = page.notes;
    status.textContent = page.status;
    place.textContent = page.place;
    pager.hidden = page.matching === page.rows.length;
    back.disabled = page.start === 0;
    next.disabled = page.start + page.rows.length === page.matching;
  };

  // Pointing at a heading, or moving the keyboard there, says what the column means.
  const explain = ({ target }) => {
    help.textContent = target.closest("th button")?.title ?? "";
  };
  box.onpointerover = explain;
  box.addEventListener("focusin", explain);
  const choose = (row) => model.send({ choose: rows().indexOf(row) });
  box.onclick = ({ target }) => {
    const heading = target.closest("th button");
    const row = target.closest("tr[tabindex]");
    if (heading) model.send({ sort: buttons().indexOf(heading) });
    else if (row) choose(row);
  };
  box.onkeydown = (event) => {
    const row = event.target.closest("tr[tabindex]");
    const { key } = event;
    if (!row) return;
    if (key === "ArrowDown") row.nextElementSibling?.focus();
    else if (key === "ArrowUp") row.previousElementSibling?.focus();
    else if (key === "Enter" || key === " ") choose(row);
    else return;
    event.preventDefault();
  };
  search.oninput = () => model.send({ filter: search.value });
  const turn = (way) => {
    const { start, size } = model.get("page");
    model.send({ start: start + way * size });
    box.scrollTop = 0;
  };
  back.onclick = () => turn(-1);
  next.onclick = () => turn(1);
  csv.onclick = () => model.send({ csv: true });
  const save = async ({ refused }, [packed]) => {
    if (refused) {
      status.textContent = refused;
      return;
    }
    const unpack = new DecompressionStream("gzip");
    const text = new Response(new Blob([packed]).stream().pipeThrough(unpack));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await text.blob());
    link.download = "table.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  show();
  model.on("change", show);
  model.on("msg:custom", save);
  return () => {
    model.off("change", show);
    model.off("msg:custom", save);
  };
}
export default { render };
