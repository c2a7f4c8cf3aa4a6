// Which rows of a long table are in sight? Only those are in the page; the others are a number and a scroll bar.
import { attribute, make, style, text } from "./dom.js";

const SPARE = 4; // rows beyond what is in sight

/**
 * A table of divs with the roles of a table. `columns`: {title, track (a CSS grid track), className, fill(cell, row)}; the first is the row's
 * header, a button that selects. `canvas`: behind the rows, as large as what is in sight.
 */
export class VirtualTable {
  constructor(root, { label, columns, rowHeight = 28, rowsMax = 20, key, select = null, title = null, canvas = false }) {
    this.columns = columns;
    this.rowHeight = rowHeight;
    this.rowsMax = rowsMax;
    this.key = key;
    this.select = select;
    this.title = title;
    this.items = [];
    this.selected = null;
    this.active = 0;
    this.pool = [];
    this.head = make("div", { className: "vt-head", role: "rowgroup" });
    const head = make("div", { className: "vt-row", role: "row", "aria-rowindex": "1" });
    for (const column of columns) head.append(make("div", { className: `vt-cell ${column.className || ""}`, role: "columnheader", textContent: column.title }));
    this.headRow = head;
    this.head.append(head);
    this.space = make("div", { className: "vt-space", role: "presentation" });
    this.body = make("div", { className: "vt-body", role: "rowgroup", tabIndex: 0, "aria-label": `${label}, rows` });
    this.canvas = canvas ? make("canvas", { className: "vt-canvas", "aria-hidden": "true" }) : null;
    if (this.canvas) this.body.append(this.canvas);
    this.body.append(this.space);
    this.root = make("div", { className: "vt", role: "table", "aria-label": label }, this.head, this.body);
    style(this.root, "--tracks", columns.map((column) => column.track).join(" "));
    style(this.root, "--tracks-narrow", columns.filter((column) => !/optional/.test(column.className || "")).map((column) => column.track).join(" "));
    style(this.root, "--row", `${rowHeight}px`);
    root.append(this.root);
    this.body.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.body);
    this.onDraw = null;
  }

  setItems(items) {
    this.items = items;
    attribute(this.root, "aria-rowcount", String(items.length + 1));
    style(this.body, "height", `${Math.max(1, Math.min(items.length, this.rowsMax)) * this.rowHeight}px`);
    style(this.space, "height", `${items.length * this.rowHeight}px`);
    this.active = Math.min(this.active, Math.max(0, items.length - 1));
    this.draw();
  }

  get first() {
    return Math.max(0, Math.floor(this.body.scrollTop / this.rowHeight));
  }

  draw() {
    const most = Math.ceil(this.body.clientHeight / this.rowHeight) + SPARE;
    const first = Math.max(0, Math.min(this.first - SPARE / 2, this.items.length - most));
    const last = Math.min(this.items.length, first + most);
    while (this.pool.length < Math.min(most, this.items.length)) this.pool.push(this.newRow());
    for (let slot = 0; slot < this.pool.length; slot++) {
      const row = this.pool[slot];
      const index = first + ((slot - (first % this.pool.length) + this.pool.length) % this.pool.length);
      if (index < last) this.fill(row, index);
      else row.hidden = true;
    }
    if (this.onDraw) this.onDraw();
  }

  newRow() {
    const row = make("div", { className: "vt-row", role: "row" });
    this.columns.forEach((column, index) => {
      const cell = make("div", { className: `vt-cell ${column.className || ""}`, role: index ? "cell" : "rowheader" });
      if (!index && this.select) {
        const button = make("button", { type: "button", tabIndex: -1 });
        button.addEventListener("click", () => this.choose(row.index));
        cell.append(button);
      }
      row.append(cell);
    });
    this.space.append(row);
    return row;
  }

  fill(row, index) {
    const item = this.items[index];
    row.hidden = false;
    row.index = index;
    style(row, "transform", `translateY(${index * this.rowHeight}px)`);
    attribute(row, "aria-rowindex", String(index + 2));
    row.classList.toggle("selected", this.selected !== null && this.key(item) === this.selected);
    this.columns.forEach((column, at) => {
      const cell = row.children[at];
      if (!at && this.select) {
        cell.firstChild.tabIndex = index === this.active ? 0 : -1;
        attribute(cell.firstChild, "aria-pressed", String(this.key(item) === this.selected));
        column.fill(cell.firstChild, item, index);
      } else column.fill(cell, item, index);
    });
  }

  choose(index) {
    const item = this.items[index];
    if (!item || !this.select) return;
    this.active = index;
    this.selected = this.selected === this.key(item) ? null : this.key(item);
    this.select(this.selected === null ? null : item);
    this.draw();
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !this.select || !this.items.length || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const within = event.target !== this.body;
    const from = within ? this.active : this.first - (step > 0 ? 1 : 0);
    this.active = Math.min(this.items.length - 1, Math.max(0, from + step));
    const top = this.active * this.rowHeight;
    const height = this.body.clientHeight;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + this.rowHeight > this.body.scrollTop + height) this.body.scrollTop = top + this.rowHeight - height;
    this.draw();
    const row = this.pool.find((each) => !each.hidden && each.index === this.active);
    if (row) row.firstChild.firstChild.focus({ preventScroll: true });
  }
}

export const plain = (read) => (cell, row) => text(cell, read(row));
