// Elements from data. Text is only ever set as text: no name, reason or value of a study can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes; `on` holds listeners, `data` goes to data-*; children are nodes or text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same of an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, { on = {}, data = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  Object.assign(element.dataset, data);
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set an element's text, touching the page only if it differs. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Tell a screen reader; the same words twice are said once. */
export function say(words) {
  write(document.getElementById("say"), words);
}

let ids = 0;

/** An id no other element has. */
export function fresh(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}
