// JupyterLab's notebook and this widget's place in it; elsewhere, such as in Voila, there is none.
function placeInNotebook(model, el) {
  const cells = model.widget_manager?.context?.model?.sharedModel;
  const cell = el.closest(".jp-Notebook .jp-Cell");
  if (!cells?.insertCell || !cell) return null;
  // A notebook that is drawn in part numbers its cells itself.
  const siblings = [
    ...cell.parentElement.querySelectorAll(":scope > .jp-Cell"),
  ];
  const index = Number(
    cell.dataset.windowedListIndex ?? siblings.indexOf(cell),
  );
  return { cells, index };
}

function render({ model, el }) {
  const [details, summary, bar, copy, insert, status, code] = fill(
    el,
    `<details class="ll-code"><summary>Code</summary>
      <div class="ll-bar"><button>Copy</button><button>Insert below</button>
        <span role="status"></span></div>
      <pre tabindex="0" role="region" aria-label="Code"></pre>
    </details>`,
  );
  const show = () => {
    code.textContent = model.get("value");
    status.textContent = "";
  };
  details.ontoggle = () => {
    insert.hidden = !placeInNotebook(model, el);
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
  insert.onclick = () => {
    const { cells, index } = placeInNotebook(model, el);
    const source = code.textContent;
    cells.insertCell(index + 1, { cell_type: "code", source });
    status.textContent = "Inserted below.";
  };
  show();
  model.on("change:value", show);
  return () => model.off("change:value", show);
}
export default { render };
