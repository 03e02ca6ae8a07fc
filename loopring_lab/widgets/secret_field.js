function render({ model, el }) {
  const field = document.createElement("form");
  field.className = "loopring-lab-secret";
  const label = field.appendChild(document.createElement("label"));
  const input = document.createElement("input");
  Object.assign(input, { type: "password", autocomplete: "off", spellcheck: false });
  const name = label.appendChild(document.createElement("span"));
  label.appendChild(input);
  const button = field.appendChild(document.createElement("button"));
  button.type = "submit";
  const note = field.appendChild(document.createElement("span"));
  note.setAttribute("role", "status");
  const show = () => {
    name.textContent = model.get("description");
    button.textContent = model.get("action");
    note.textContent = model.get("note");
  };
  model.on("change", show);
  show();
  const submit = (event) => {
    event.preventDefault();
    const text = input.value;
    input.value = "";
    model.send({ typed: text });
  };
  field.addEventListener("submit", submit);
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();                       // the notebook has shortcuts on single keys
    if (event.key === "Enter") submit(event);
  });
  el.appendChild(field);
}
export default { render };
