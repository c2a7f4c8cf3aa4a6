// How is what is shown changed without touching what stays the same?

export const byId = (id) => document.getElementById(id);

/** An element with properties; `className`, `textContent` and the like, or `aria-…` and `role` as attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && !name.startsWith("aria-") && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function text(element, value) {
  const shown = String(value);
  if (element.textContent !== shown) element.textContent = shown;
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function style(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

export function shown(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

/**
 * Make the children of `parent` fit `items`: one per key, in order. `create(item)` makes an element, `update(element, item)` fills it.
 * Elements keep their place in the page as long as their key is there, so that focus and selection stay.
 */
export function reconcile(parent, items, key, create, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let element = old.get(name);
    if (element) old.delete(name);
    else {
      element = create(item);
      element.dataset.key = name;
    }
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
    update(element, item);
  }
  for (const gone of old.values()) gone.remove();
}

/** A table row whose cells are filled by `fill`: functions (cell, item), the first of which makes the row's header. */
export function rows(body, items, key, fill, classes = []) {
  reconcile(
    body,
    items,
    key,
    () => make("tr", {}, ...fill.map((_, index) => make(index ? "td" : "th", index ? { className: classes[index] || "" } : { scope: "row" }))),
    (row, item) => fill.forEach((each, index) => each(row.children[index], item)),
  );
}
