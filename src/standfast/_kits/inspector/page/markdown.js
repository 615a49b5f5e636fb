// Markdown as nodes: text becomes text nodes and a closed list of elements, never markup. Used for what was said, not
// for what a person decides about: that is shown as it is stored.
"use strict";

const INLINE = /(`[^`\n]+`)|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function inline(text, into) {
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    into.append(text.slice(at, found.index));
    at = found.index + found[0].length;
    const [, code, strong, emphasis, label, address] = found;
    if (code) into.append(element("code", code.slice(1, -1)));
    else if (strong) into.append(element("strong", strong));
    else if (emphasis) into.append(element("em", emphasis));
    else {
      // The address stands beside the label: a link that says one place and leads to another is seen.
      into.append(element("a", label, { href: address, rel: "noopener noreferrer", target: "_blank" }), ` (${address})`);
    }
  }
  into.append(text.slice(at));
  return into;
}

function markdown(text) {
  const made = document.createDocumentFragment();
  const lines = text.split("\n");
  let open = null; // the list or paragraph that takes the next line
  for (let n = 0; n < lines.length; n++) {
    const row = lines[n];
    const heading = /^(#{1,6})\s+(.*)$/.exec(row);
    const bullet = /^\s*[-*+]\s+(.*)$/.exec(row);
    const numbered = /^\s*(\d{1,9})[.)]\s+(.*)$/.exec(row);
    if (/^\s*```/.test(row)) {
      const code = [];
      for (n++; n < lines.length && !/^\s*```\s*$/.test(lines[n]); n++) code.push(lines[n]);
      made.append(element("pre", code.join("\n")));
      open = null;
    } else if (heading) {
      made.append(inline(heading[2], element("p", undefined, { class: "heading" })));
      open = null;
    } else if (bullet || numbered) {
      const tag = bullet ? "UL" : "OL";
      if (open?.tagName !== tag) {
        open = element(tag, undefined, numbered ? { start: numbered[1] } : {});
        made.append(open);
      }
      open.append(inline(bullet ? bullet[1] : numbered[2], element("li")));
    } else if (!row.trim()) {
      open = null;
    } else {
      if (open?.tagName !== "P") {
        open = element("p");
        made.append(open);
      } else open.append(element("br"));
      inline(row, open);
    }
  }
  return made;
}
