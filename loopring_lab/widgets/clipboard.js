async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {                                          // not allowed, or a page without TLS
    const area = document.body.appendChild(Object.assign(document.createElement("textarea"), { value: text }));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

