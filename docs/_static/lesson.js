// The forms of the chapter "Learn": the logical grid beside memory, and the arithmetic of one element.
"use strict";
(function () {
  const { layoutOf, terms, indices, elements, product } = memdescLayout;
  const MOST = 640; // elements that a form draws
  const LINE = 512; // bits of a cache line
  const FORM = `
    <form class="lesson-form" autocapitalize="off" autocomplete="off" spellcheck="false" onsubmit="return false">
      <label>Tag<input name="tag"></label>
      <label>Dims<input name="dims"></label>
      <label>Bits of an element
        <select name="bits"><option>4<option>8<option>16<option>32<option>64</select></label>
      <label>Mark along<select name="along"></select></label>
    </form>
    <p class="lesson-error" role="alert"></p>
    <div class="lesson-halves" tabindex="0" role="group" aria-label="Layout: arrow keys move through memory"></div>
    <div class="lesson-sum" aria-live="polite"></div>`;

  const numbers = (text) => text.trim().split(/[x, ]+/).map((part) => (/^[0-9]+$/.test(part) ? +part : NaN));
  const count = (amount, word) => `${amount} ${word}${amount > 1 ? "s" : ""}`;
  const html = (tag, texts) => texts.map((text) => `<${tag}>${text}</${tag}>`).join("");
  const half = (title, tables) =>
    `<div class="lesson-half"><p class="lesson-title">${title}</p><div class="lesson-scroll">${tables}</div></div>`;
  // a digit of an index as Python writes it: c, c // 4, c % 4, c // 4 % 2
  const over = (name, step) => (step > 1 ? `${name} // ${step}` : name);
  const digitOf = ({ step, extent, outer }, name) => over(name, step) + (outer ? "" : ` % ${extent}`);

  // How many elements of memory make a row of the picture, and have one colour.
  function rowOf({ image, blocks }) {
    if (image) return image.width * image.lanes;
    const strides = blocks.map((block) => block.stride).filter((stride) => stride >= 4 && stride <= 16);
    return strides.length ? Math.min(...strides) : 8;
  }

  class Lesson {
    constructor(holder) {
      holder.innerHTML = FORM;
      [this.form, this.error, this.halves, this.sum] = holder.children;
      const { mark, along, group } = holder.dataset;
      for (const name of ["tag", "dims", "bits"]) this.form[name].value = holder.dataset[name];
      this.group = group ? numbers(group) : [];
      this.along = group ? "group" : along;
      this.listen();
      this.draw(({ offset }) => offset === +mark);
    }

    listen() {
      this.form.addEventListener("input", (event) => {
        if (event.target === this.form.along) this.along = event.target.value;
        this.draw(({ place }) => String(place) === String(this.marked?.place));
      });
      const onCell = (type, act) =>
        this.halves.addEventListener(type, (event) => {
          const cell = event.target.closest("[data-k]");
          if (cell) act(this.all[cell.dataset.k]);
        });
      onCell("pointerover", (element) => this.isHeld || this.mark(element));
      onCell("click", (element) => {
        this.isHeld = !(this.isHeld && element === this.marked);
        this.mark(element);
      });
      this.halves.addEventListener("keydown", (event) => {
        const steps = { ArrowLeft: -1, ArrowUp: -this.row, ArrowRight: 1, ArrowDown: this.row };
        if (!(event.key in steps)) return;
        const next = this.all[this.all.indexOf(this.marked) + steps[event.key]];
        if (next) this.mark(next);
        event.preventDefault();
      });
    }

    // Draw what the form says, and mark the first element for which `isMarked` holds.
    draw(isMarked) {
      try {
        this.layout = this.read();
        this.error.textContent = "";
      } catch (error) {
        this.error.textContent = error.message;
        return;
      }
      this.all = elements(this.layout).sort((a, b) => a.offset - b.offset);
      this.row = rowOf(this.layout);
      this.offer();
      this.halves.innerHTML = this.grid() + this.memory();
      this.mark(this.all.find(isMarked) || this.all[0]);
    }

    read() {
      const layout = layoutOf(this.form.tag.value.trim(), numbers(this.form.dims.value));
      const needed = Math.max(layout.size, product(layout.axes.map((axis) => axis.padded)));
      if (needed && needed <= MOST) return layout;
      throw Error(`${needed} elements with padding: this form draws 1 to ${MOST}, memdesc show any number`);
    }

    // What can be marked beside an element: its neighbours along a dim, or the group of its scale.
    offer() {
      const { letters, dims } = this.layout;
      const along = [...letters].filter((_, dim) => dims[dim] > 1).map((letter) => new Option(letter));
      if (this.group.length === dims.length) along.push(new Option(`its group (${this.group.join("x")})`, "group"));
      this.form.along.replaceChildren(new Option("nothing", ""), ...along);
      this.form.along.value = this.along;
      if (this.form.along.selectedIndex < 0) this.form.along.value = "";
    }

    cell(element, label, more = "") {
      if (!element) return `<td class="gap${more}"></td>`;
      const hue = (Math.floor(element.offset / this.row) * 137.5 + 210) % 360;
      const name = element.inside ? "cell" : "cell padding";
      const data = `data-k="${this.all.indexOf(element)}" style="--hue: ${hue}"`;
      return `<td class="${name}${more}" ${data}>${label(element)}</td>`;
    }

    // One small table for each index of the leading dims; fused dims are drawn without their padding.
    grid() {
      const { letters, dims, axes } = this.layout;
      const extents = dims.slice();
      for (const axis of axes) if (axis.dims.length === 1) extents[axis.dims[0]] = axis.padded;
      const at = new Map(this.all.map((element) => [String(element.place), element]));
      const [rows, columns] = [1, ...extents].slice(-2);
      const tables = indices(extents.slice(0, -2)).map((lead) => {
        const names = lead.map((k, dim) => `${letters[dim]} = ${k}`).filter((_, dim) => extents[dim] > 1);
        const places = indices([rows, columns]).map((place) => String([...lead, ...place].slice(-dims.length)));
        const cells = places.map((place) => this.cell(at.get(place), ({ offset }) => offset));
        const lines = indices([rows]).map(([row]) => cells.slice(row * columns, (row + 1) * columns).join(""));
        return `<table><caption>${names.join(", ")}</caption>${html("tr", lines)}</table>`;
      });
      const [last, row] = [...letters].reverse();
      return half(`The tensor: ${row ? `rows ${row}, ` : ""}columns ${last}; numbers are offsets`, tables.join(""));
    }

    memory() {
      const { letters, dims, size, image } = this.layout;
      const long = [...dims.keys()].filter((dim) => dims[dim] > 1);
      const shown = long.length ? long : [0]; // a dim of one element says nothing
      const label = ({ inside, place }) => (inside ? shown.map((dim) => place[dim]).join(",") : "0");
      const found = new Map(this.all.slice().reverse().map((element) => [element.offset, element]));
      const width = Math.max(...this.all.map((element) => label(element).length), 2) * 7.3 + 10;
      const room = Math.floor((Math.min(this.halves.clientWidth, 360) - 50) / width);
      const lanes = image ? image.lanes : 1;
      let across = image ? Math.max(Math.floor(room / lanes), 1) * lanes : this.row;
      while (!image && across > room && across % 2 === 0) across /= 2;
      const lines = [];
      for (const [offset] of indices([size])) {
        const column = image ? offset % this.row : offset; // an image begins each row anew
        const start = image ? `${column / lanes}, ${Math.floor(offset / this.row)}` : offset;
        if (column % across === 0) lines.push(html("th", [start]));
        const isLine = offset > 0 && (offset * this.form.bits.value) % LINE === 0;
        const more = (isLine ? " line" : "") + (lanes > 1 && offset % lanes === 0 ? " pixel" : "");
        lines.push(lines.pop() + this.cell(found.get(offset), label, more));
      }
      const from = image ? "pixels from x, y on" : "from each offset on";
      const names = shown.map((dim) => letters[dim]).join(",");
      return half(`Memory: ${from}; in each cell the index ${names}`, `<table>${html("tr", lines)}</table>`);
    }

    // The elements marked beside the one that is explained: its neighbours along a dim, or its group.
    company({ inside, place }) {
      const { letters, dims } = this.layout;
      const along = this.form.along.value;
      if (!inside || !along) return [];
      const sizes = along === "group" ? this.group : dims.map((extent, dim) => (letters[dim] === along ? extent : 1));
      const groupOf = (index) => String(index.map((at, dim) => Math.floor(at / sizes[dim])));
      return this.all.filter((other) => other.inside && groupOf(other.place) === groupOf(place));
    }

    mark(element) {
      this.marked = element;
      const company = this.company(element);
      for (const cell of this.halves.querySelectorAll("[data-k]")) {
        const other = this.all[cell.dataset.k];
        cell.classList.toggle("marked", other.offset === element.offset);
        cell.classList.toggle("company", company.includes(other));
      }
      const summary = company.length ? `<p class="lesson-company">${this.summary(company, element)}</p>` : "";
      this.sum.innerHTML = this.arithmetic(element) + summary;
    }

    arithmetic({ at, place, offset, inside }) {
      const { letters, axes, image } = this.layout;
      const names = axes.map(({ dims }) => dims.map((dim) => letters[dim]));
      const name = (k) => (names[k].length > 1 ? `(${names[k].join("")})` : names[k][0]);
      const where = place.map((value, dim) => `${letters[dim]} = ${value}`).join(", ");
      const lines = [`${inside ? "Element" : "Padding"} ${where}`];
      axes.forEach(({ extent }, k) => {
        if (at[k] >= extent) lines.push(`${name(k)} ends at ${extent - 1}: this place holds 0.`);
        else if (names[k].length > 1) lines.push(`${name(k)} = ${at[k]}: row-major over ${names[k].join(", ")}`);
      });
      const rows = terms(this.layout, at).map((term) => {
        const digit = digitOf(term, name(term.axis));
        const worked = digit === name(term.axis) ? "" : `${digitOf(term, at[term.axis])} `;
        return html("td", [digit, `${worked}= ${term.digit}`, `× ${term.stride}`, `= ${term.product}`]);
      });
      const total = `<tr class="total">${html("td", ["offset", "", "", `= ${offset}`])}</tr>`;
      const bits = +this.form.bits.value;
      const byte = Math.floor((offset * bits) / 8);
      const nibble = bits < 8 ? `, its ${offset % 2 ? "high" : "low"} half` : "";
      const line = `cache line ${byte} // 64 = ${Math.floor(byte / 64)}`;
      const address = [`Byte ${offset} × ${bits} / 8 = ${byte}${nibble}; ${line}`];
      const [x, y] = [Math.floor((offset % this.row) / image?.lanes), Math.floor(offset / this.row)];
      if (image) address.push(`Pixel x = ${x}, y = ${y}, lane ${offset % image.lanes}`);
      return `${html("p", lines)}<table>${html("tr", rows)}${total}</table>${html("p", address)}`;
    }

    summary(company, { place }) {
      const { letters, dims } = this.layout;
      const along = this.form.along.value;
      const offsets = [...new Set(company.map((element) => element.offset))];
      const runs = offsets.filter((offset, k) => offset !== offsets[k - 1] + 1).length;
      const lines = new Set(offsets.map((offset) => Math.floor((offset * this.form.bits.value) / LINE))).size;
      const inside = `${count(company.length, "element")} in ${count(runs, "run")}`;
      const text = `${inside} of adjacent elements, ${count(lines, "cache line")}.`;
      if (along !== "group") return `Along ${along}: ${text}`;
      const at = place.map((value, dim) => Math.floor(value / this.group[dim]));
      const counts = dims.map((extent, dim) => Math.ceil(extent / this.group[dim]));
      const scale = at.reduce((sum, value, dim) => sum * counts[dim] + value, 0);
      const names = this.group.map((size, dim) => over(letters[dim], size)).join(", ");
      const shared = `(${names}) = (${at.join(", ")}), number ${scale} of ${product(counts)}`;
      return `The group: ${text} They share the scale ${shared}.`;
    }
  }

  document.querySelectorAll(".memdesc-lesson").forEach((holder) => new Lesson(holder)); // deferred
})();
