// JupyterLab's notebook and this widget's place in it; elsewhere, such as in Voila, there is none.
function placeInNotebook(model, el) {
  const cells = model.widget_manager?.context?.model?.sharedModel;
  const cell = el.closest(".jp-Notebook .jp-Cell");
  if (!cells?.insertCell || !cell) return null;
  // A notebook that is drawn in part numbers its cells itself.
  const siblings = [
    ...cell.parentElement.querySelectorAll(":scope > .jp-Cell"),
  ];
  return {
    cells,
    index: Number(cell.dataset.windowedListIndex ?? siblings.indexOf(cell)),
  };
}

function render({ model, el }) {
  const copy = make("button", { type: "button", textContent: "Copy" });
  const insert = make("button", {
    type: "button",
    textContent: "Insert below",
  });
  const status = make("span", { role: "status" });
  const code = make("pre", { tabIndex: 0, role: "region", ariaLabel: "Code" });
  el.classList.add("ll-code");
  el.append(make("div", { className: "ll-bar" }, copy, insert, status), code);
  keepKeys(el);

  const show = () => {
    code.textContent = model.get("value");
    status.textContent = "";
  };
  copy.onclick = async () => {
    await copyText(model.get("value"));
    status.textContent = "Copied.";
  };
  insert.onclick = () => {
    const { cells, index } = placeInNotebook(model, el);
    cells.insertCell(index + 1, {
      cell_type: "code",
      source: model.get("value"),
    });
    status.textContent = "Inserted below.";
  };
  show();
  model.on("change:value", show);
  // The element is put into the page after it is made.
  requestAnimationFrame(() => {
    insert.hidden = !placeInNotebook(model, el);
  });
  return () => model.off("change:value", show);
}
export default { render };
