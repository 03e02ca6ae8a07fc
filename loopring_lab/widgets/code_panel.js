const HTML = `
  <details class="ll-code">
    <summary>Code</summary>
    <div class="ll-bar">
      <button name="copy">Copy</button>
      <button name="insert">Insert below</button>
      <span role="status"></span>
    </div>
    <pre tabindex="0" role="region" aria-label="Code"></pre>
  </details>`;

// JupyterLab's list of the cells of this notebook; elsewhere, such as in Voila, there is none.
function cellsAround(model, el) {
  const cells = model.widget_manager?.context?.model?.sharedModel;
  const isInCell = el.closest(".jp-Notebook .jp-Cell");
  return isInCell && cells?.insertCell ? cells : null;
}

// The number of the cell that a view is in.
function indexOfCell(el) {
  const cell = el.closest(".jp-Cell");
  // A notebook that is drawn in part numbers its cells itself.
  const numbered = cell.dataset.windowedListIndex;
  if (numbered !== undefined) {
    return Number(numbered);
  }
  const siblings = cell.parentElement.querySelectorAll(":scope > .jp-Cell");
  return [...siblings].indexOf(cell);
}

function render({ model, el }) {
  const find = fill(el, HTML);
  const copy = find("[name=copy]");
  const insert = find("[name=insert]");
  const status = find("[role=status]");
  const code = find("pre");

  function show() {
    code.textContent = model.get("value");
    status.textContent = "";
  }

  // When it is opened, the view has its place on the page.
  find("details").ontoggle = () => {
    insert.hidden = !cellsAround(model, el);
  };

  copy.onclick = async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // Not allowed, or a page without TLS.
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    status.textContent = "Copied.";
  };

  insert.onclick = (event) => {
    if (isSecondOfTwo(event)) {
      return;
    }
    const below = indexOfCell(el) + 1;
    const cell = { cell_type: "code", source: code.textContent };
    cellsAround(model, el).insertCell(below, cell);
    status.textContent = "Inserted below.";
  };

  show();
  model.on("change:value", show);
  return () => model.off("change:value", show);
}
export default { render };
