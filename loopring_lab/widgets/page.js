// What every view uses; it stands before the view's own script.

// An element with properties, among them those of ARIA, and its children.
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// The notebook has shortcuts on single keys, such as "d" twice, which deletes a cell.
function keepKeys(element) {
  element.addEventListener("keydown", (event) => event.stopPropagation());
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not allowed, or a page without TLS.
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
