// JupyterLab's notebook and this widget's place in it; elsewhere, such as in Voila, there is none.
function placeInNotebook(model, el) {
  const cells = model.widget_manager?.context?.model?.sharedModel;
  const cell = el.closest(".jp-Notebook .jp-Cell");
  const shown = cell && [...cell.parentElement.querySelectorAll(":scope > .jp-Cell")].indexOf(cell);
  const index = Number(cell?.dataset.windowedListIndex ?? shown);
  return cells?.insertCell && cell ? { cells, index } : null;
}

function render({ model, el }) {
  el.classList.add("ll-code");
  const add = (parent, tag, properties) =>
    parent.appendChild(Object.assign(document.createElement(tag), properties));
  const bar = add(el, "div", {});
  const copyButton = add(bar, "button", { type: "button", textContent: "Copy" });
  const insertButton = add(bar, "button", { type: "button", textContent: "Insert below" });
  const status = add(bar, "span", { role: "status" });
  const pre = add(el, "pre", { tabIndex: 0, ariaLabel: "Code" });
  pre.setAttribute("role", "region");
  const show = () => {
    pre.textContent = model.get("value");
    status.textContent = "";
  };
  copyButton.onclick = async () => {
    await copyText(model.get("value"));
    status.textContent = "Copied.";
  };
  insertButton.onclick = () => {
    const { cells, index } = placeInNotebook(model, el);
    cells.insertCell(index + 1, { cell_type: "code", source: model.get("value") });
    status.textContent = "Inserted below.";
  };
  el.addEventListener("keydown", (event) => event.stopPropagation());
  model.on("change:value", show);
  show();
  // The element is put into the page after it is made.
  requestAnimationFrame(() => { insertButton.hidden = !placeInNotebook(model, el); });
  return () => model.off("change:value", show);
}
export default { render };
