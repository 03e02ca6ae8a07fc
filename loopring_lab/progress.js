// A line in the corner of the page while something is read. It is no view of a cell, so nothing of it is saved.
function initialize({ model }) {
  const line = document.createElement("div");
  line.className = "ll-progress";
  line.setAttribute("role", "progressbar");
  line.style.cssText = `position: fixed; right: 1em; bottom: 3em; z-index: 1000; padding: 0.4em; border: 1px solid;
    font: 13px monospace; white-space: pre; color: var(--jp-ui-font-color1, CanvasText); background: var(--jp-layout-color1, Canvas)`;
  const write = () => {
    line.textContent = model.get("text");
    line.hidden = !line.textContent;
    line.setAttribute("aria-label", line.textContent);
  };
  model.on("change:text", write);
  write();
  document.body.append(line);
  return () => line.remove();
}

export default { initialize };
