const HTML = `
  <form class="loopring-lab-secret ll-bar">
    <label><span></span><input type="password" autocomplete="off"></label>
    <button></button>
    <span role="status"></span>
  </form>`;

function render({ model, el }) {
  const find = fill(el, HTML);
  const name = find("label span");
  const input = find("input");
  const button = find("button");
  const note = find("[role=status]");

  function show() {
    name.textContent = model.get("description");
    button.textContent = model.get("action");
    note.textContent = model.get("note");
  }

  // A message, not a trait: what is typed becomes part of no state.
  find("form").onsubmit = (event) => {
    event.preventDefault();
    const typed = input.value;
    input.value = "";
    show();
    if (typed) {
      model.send({ typed });
    } else {
      note.textContent = model.get("missing");
    }
  };

  show();
  model.on("change", show);
  return () => model.off("change", show);
}
export default { render };
