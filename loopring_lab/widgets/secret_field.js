function render({ model, el }) {
  const input = make("input", {
    type: "password",
    autocomplete: "off",
    spellcheck: false,
  });
  const name = make("span");
  const button = make("button", { type: "submit" });
  const note = make("span", { role: "status" });
  const label = make("label", {}, name, input);
  const form = make(
    "form",
    { className: "loopring-lab-secret ll-bar" },
    label,
    button,
    note,
  );
  el.append(form);
  keepKeys(form);

  const show = () => {
    name.textContent = model.get("description");
    button.textContent = model.get("action");
    note.textContent = model.get("note");
  };
  // A message, not a trait: what is typed becomes part of no state.
  const submit = (event) => {
    event.preventDefault();
    const typed = input.value;
    input.value = "";
    model.send({ typed });
  };
  form.onsubmit = submit;
  input.onkeydown = (event) => {
    if (event.key === "Enter") submit(event);
  };
  show();
  model.on("change", show);
  return () => model.off("change", show);
}
export default { render };
