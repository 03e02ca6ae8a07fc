// What every view uses; it stands before the view's own script.

// Fills a view with HTML, and returns a function that finds an element of it.
function fill(el, html) {
  el.innerHTML = html;
  // The notebook has shortcuts on single keys, such as "d" twice, which deletes a cell.
  el.addEventListener("keydown", (event) => event.stopPropagation());
  return (selector) => el.querySelector(selector);
}

// Whether a click is the second of a double click, by which nobody means to do a thing twice.
function isSecondOfTwo(click) {
  return click.detail > 1;
}
