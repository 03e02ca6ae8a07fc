// The kernel filters, sorts, adds up and formats; this shows a page of rows and says what was clicked.
const HTML = `
  <div class="ll-view">
    <div class="ll-bar">
      <label>Filter
        <input type="search" autocomplete="off" placeholder="text, or size > 1">
      </label>
      <button name="csv" title="Save these rows with all digits">Save CSV</button>
      <span role="status"></span>
    </div>
    <div class="ll-box" tabindex="0" role="region" aria-label="Table"></div>
    <div class="ll-bar ll-pager">
      <button name="back">Previous</button>
      <span></span>
      <button name="next">Next</button>
    </div>
    <p class="ll-help"></p>
    <div class="ll-notes"></div>
  </div>`;

// Hands the browser a file to save, which the kernel has packed.
async function download(packed) {
  const unpack = new DecompressionStream("gzip");
  const unpacked = new Blob([packed]).stream().pipeThrough(unpack);
  const file = await new Response(unpacked).blob();
  const address = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = address;
  link.download = "table.csv";
  link.click();
  // The click only begins the download.
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function render({ model, el }) {
  const find = fill(el, HTML);
  const search = find("input");
  const status = find("[role=status]");
  const box = find(".ll-box");
  const pager = find(".ll-pager");
  const back = find("[name=back]");
  const next = find("[name=next]");
  const help = find(".ll-help");

  const headings = () => [...box.querySelectorAll("th button")];
  const rows = () => [...box.querySelectorAll("tbody tr")];
  const stops = () => [...headings(), ...rows()];

  function show() {
    const page = model.get("page");
    const focused = stops().indexOf(document.activeElement);
    box.innerHTML = page.html;
    // All is new; the keyboard stays where it was.
    stops()[focused]?.focus();
    find(".ll-notes").innerHTML = page.notes;
    status.textContent = page.status;
    find(".ll-pager span").textContent = page.place;
    const end = page.start + page.rows.length;
    pager.hidden = page.matching === page.rows.length;
    back.disabled = page.start === 0;
    next.disabled = end === page.matching;
  }

  // Pointing at a heading, or moving the keyboard there, says what the column means.
  function explain(event) {
    const heading = event.target.closest("th button");
    help.textContent = heading?.title ?? "";
  }
  box.onpointerover = explain;
  box.addEventListener("focusin", explain);

  function sort(heading) {
    model.send({ sort: headings().indexOf(heading) });
  }

  // The row goes by its number in the frame, as a filter may be about to change its place.
  function choose(row) {
    const place = rows().indexOf(row);
    model.send({ choose: model.get("page").rows[place] });
  }

  box.onclick = (event) => {
    const heading = event.target.closest("th button");
    const row = event.target.closest("tr[tabindex]");
    if (heading) {
      sort(heading);
    } else if (row) {
      choose(row);
    }
  };

  // What keys do on a row that can be chosen.
  const keys = {
    ArrowDown: (row) => row.nextElementSibling?.focus(),
    ArrowUp: (row) => row.previousElementSibling?.focus(),
    Enter: choose,
    " ": choose,
  };
  box.onkeydown = (event) => {
    const row = event.target.closest("tr[tabindex]");
    const act = keys[event.key];
    if (row && act) {
      act(row);
      event.preventDefault();
    }
  };

  function turn(way) {
    const page = model.get("page");
    model.send({ start: page.start + way * page.size });
    box.scrollTop = 0;
  }
  back.onclick = () => turn(-1);
  next.onclick = () => turn(1);

  search.oninput = () => model.send({ filter: search.value });
  find("[name=csv]").onclick = (event) => {
    if (!isSecondOfTwo(event)) {
      model.send({ csv: true });
    }
  };

  function receive(message, buffers) {
    if (message.refused) {
      status.textContent = message.refused;
    } else {
      download(buffers[0]);
    }
  }

  search.value = model.get("page").filter;
  show();
  model.on("change", show);
  model.on("msg:custom", receive);
  return () => {
    model.off("change", show);
    model.off("msg:custom", receive);
  };
}
export default { render };
