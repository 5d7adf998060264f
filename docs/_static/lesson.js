// The forms of the chapter "Learn": the logical grid beside memory, and the arithmetic of one element.
"use strict";
(function () {
  const { layoutOf, terms, elements, product } = memdescLayout;
  const MOST = 640, LINE = 512; // elements that are drawn, bits of a cache line
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const numbers = (text) => text.trim().split(/[x, ]+/).map((part) => (/^[0-9]+$/.test(part) ? Number(part) : NaN));

  // A digit of an index as Python writes it: c, c // 4, c % 4, c // 4 % 2.
  function digitOf(block, name) {
    return name + (block.step > 1 ? ` // ${block.step}` : "") + (block.outer ? "" : ` % ${block.extent}`);
  }

  // How many elements of memory make a row of the picture: the innermost blocks, up to 16.
  function rowOf(layout) {
    if (layout.image) return layout.image.width * layout.image.lanes;
    let row = 1;
    for (const { extent, stride } of layout.blocks.slice().reverse()) {
      if (stride > row && stride <= 16) row = stride; // gaps
      if (stride !== row || row * extent > (row < 4 ? 16 : 8)) break;
      row *= extent;
    }
    return row > 1 ? row : 8;
  }

  class Lesson {
    constructor(holder) {
      this.holder = holder;
      const form = make("form", "lesson-form");
      this.tag = this.field(form, "Tag", "input", holder.dataset.tag);
      this.dims = this.field(form, "Dims", "input", holder.dataset.dims);
      this.bits = this.field(form, "Bits of an element", "select");
      for (const bits of [4, 8, 16, 32, 64]) this.bits.append(new Option(bits, bits, false, String(bits) === holder.dataset.bits));
      this.walk = this.field(form, "Mark along", "select");
      this.group = holder.dataset.group;
      this.error = Object.assign(make("p", "lesson-error"), { role: "alert" });
      this.halves = make("div", "lesson-halves");
      Object.assign(this.halves, { tabIndex: 0, role: "group", ariaLabel: "Layout: arrow keys move through memory" });
      this.sum = Object.assign(make("div", "lesson-sum"), { ariaLive: "polite" });
      holder.replaceChildren(form, this.error, this.halves, this.sum);
      form.addEventListener("submit", (event) => event.preventDefault());
      form.addEventListener("input", (event) => this.draw(event.target === this.tag || event.target === this.dims));
      const onCell = (type, act) => this.halves.addEventListener(type, (event) => {
        const cell = event.target.closest("[data-k]");
        if (cell) act(+cell.dataset.k);
      });
      onCell("pointerover", (k) => this.kept === null && this.mark(k));
      onCell("click", (k) => {
        this.kept = this.kept === k ? null : k;
        this.mark(k);
      });
      this.halves.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowUp: -this.row, ArrowRight: 1, ArrowDown: this.row }[event.key];
        const to = this.order.indexOf(this.marked) + by;
        if (by && to >= 0 && to < this.order.length) this.mark(this.order[to]);
        if (by) event.preventDefault();
      });
      this.draw(true, +holder.dataset.mark);
    }

    field(form, text, kind, value) {
      const label = make("label", "", text);
      const field = make(kind);
      if (kind === "input") Object.assign(field, { value, autocapitalize: "off", spellcheck: false, autocomplete: "off" });
      label.append(field);
      form.append(label);
      return field;
    }

    draw(isNew, offset) {
      let layout;
      try {
        layout = layoutOf(this.tag.value.trim(), numbers(this.dims.value));
        const count = Math.max(layout.size, product(layout.axes.map((axis) => axis.padded)));
        if (!count) throw Error("a dim of 0 leaves nothing to draw");
        if (count > MOST)
          throw Error(`${count} elements with padding: this form draws up to ${MOST}, memdesc show any number`);
      } catch (error) {
        this.error.textContent = error.message;
        return;
      }
      this.error.textContent = "";
      if (isNew) this.renew(layout);
      this.row = rowOf(layout);
      this.halves.replaceChildren(this.grid(), this.memory());
      const wanted = this.all.findIndex((element) => element.offset === offset);
      this.mark(!isNew ? this.marked : wanted < 0 ? this.order[0] : wanted);
    }

    renew(layout) {
      this.layout = layout;
      this.all = elements(layout);
      this.order = this.all.map((_, k) => k).sort((a, b) => this.all[a].offset - this.all[b].offset);
      this.kept = null;
      const along = [...layout.letters].filter((_, dim) => layout.dims[dim] > 1);
      this.chosen = this.walk.value;
      const isGrouped = this.group && this.group.split("x").length === layout.dims.length;
      this.walk.replaceChildren(new Option("nothing", ""), ...along.map((letter) => new Option(letter, letter)));
      if (isGrouped) this.walk.append(new Option(`its group (${this.group})`, "group"));
      const start = this.chosen || (isGrouped ? "group" : this.holder.dataset.along || "");
      if ([...this.walk.options].some((option) => option.value === start)) this.walk.value = start;
    }

    cell(k, text, isGap) {
      const cell = make("td", isGap ? "gap" : "cell", text);
      if (isGap) return cell;
      cell.dataset.k = k;
      cell.style.setProperty("--hue", (Math.floor(this.all[k].offset / this.row) * 137.5 + 210) % 360);
      if (!this.all[k].index) cell.classList.add("padding");
      return cell;
    }

    half(title, tables) {
      const half = make("div", "lesson-half"), scroll = make("div", "lesson-scroll");
      scroll.append(...tables);
      half.append(make("p", "lesson-title", title), scroll);
      return half;
    }

    // One small table for each index of the leading dims; dims of a fused axis have no padding here.
    grid() {
      const { layout } = this;
      const ndims = layout.dims.length;
      const extents = layout.dims.slice();
      layout.axes.forEach((axis) => axis.dims.length > 1 || (extents[axis.dims[0]] = axis.padded));
      const owner = layout.dims.map((_, dim) => layout.axes.findIndex((axis) => axis.dims.includes(dim)));
      const place = ({ at }) => owner.map((a) => (layout.axes[a].dims.length > 1 ? NaN : at[a]));
      const at = new Map(this.all.map((element, k) => [String(element.index || place(element)), k]));
      const [rows, columns] = ndims > 1 ? extents.slice(-2) : [1, extents[0]];
      let leads = [[]];
      for (const extent of extents.slice(0, -2)) leads = leads.flatMap((lead) => Array.from({ length: extent }, (_, k) => [...lead, k]));
      const tables = leads.map((lead) => {
        const table = make("table");
        const name = lead.map((k, dim) => [dim, k]).filter(([dim]) => extents[dim] > 1).map(([dim, k]) => `${layout.letters[dim]} = ${k}`);
        if (name.length) table.append(make("caption", "", name.join(", ")));
        for (let row = 0; row < rows; row++) {
          const line = table.insertRow();
          for (let column = 0; column < columns; column++) {
            const k = at.get(String(ndims > 1 ? [...lead, row, column] : [column]));
            if (k !== undefined) line.append(this.cell(k, this.all[k].offset));
          }
        }
        return table;
      });
      const names = `${ndims > 1 ? `rows ${layout.letters[ndims - 2]}, ` : ""}columns ${layout.letters[ndims - 1]}`;
      return this.half(`The tensor: ${names}; numbers are offsets`, tables);
    }

    memory() {
      const { layout } = this;
      const long = layout.dims.map((_, dim) => dim).filter((dim) => layout.dims[dim] > 1);
      const dims = long.length ? long : [0]; // a dim of one element says nothing
      const found = new Map(this.order.slice().reverse().map((k) => [this.all[k].offset, k]));
      const label = (k) => (this.all[k].index ? dims.map((dim) => this.all[k].index[dim]).join(",") : "0");
      const width = Math.max(...this.all.map((_, k) => label(k).length), 2) * 7.3 + 10;
      const room = Math.min(this.holder.clientWidth, 360) - 50;
      const { lanes, width: across } = layout.image || {};
      let count = layout.image ? Math.max(Math.floor(room / width / lanes), 1) * lanes : this.row;
      while (!layout.image && count > 2 && count % 2 === 0 && count * width > room) count /= 2;
      const table = make("table");
      let line;
      for (let offset = 0; offset < layout.size; offset++) {
        const column = layout.image ? offset % this.row : offset; // an image begins each row anew
        if (column % count === 0) {
          line = table.insertRow();
          line.append(make("th", "", layout.image ? `${column / lanes}, ${Math.floor(offset / lanes / across)}` : offset));
        }
        const k = found.get(offset);
        const cell = this.cell(k, k === undefined ? "" : label(k), k === undefined);
        cell.classList.toggle("line", offset > 0 && (offset * this.bits.value) % LINE === 0);
        cell.classList.toggle("pixel", lanes > 1 && offset % lanes === 0);
        line.append(cell);
      }
      const inside = dims.map((dim) => layout.letters[dim]).join(",");
      return this.half(`Memory: ${layout.image ? "pixels from x, y on" : "from each offset on"}; in each cell the index ${inside}`, [table]);
    }

    // The elements marked beside the one that is explained: its neighbours along a dim, or its group.
    company(k) {
      const { index } = this.all[k];
      const along = this.walk.value;
      if (!index || !along) return [];
      const sizes = along === "group" ? numbers(this.group)
        : this.layout.dims.map((extent, dim) => (this.layout.letters[dim] === along ? extent : 1));
      return this.order.filter((other) => this.all[other].index && this.all[other].index.every(
        (at, dim) => Math.floor(at / sizes[dim]) === Math.floor(index[dim] / sizes[dim])));
    }

    mark(k) {
      this.marked = k;
      const company = this.company(k);
      for (const cell of this.halves.querySelectorAll("[data-k]")) {
        cell.classList.toggle("marked", +cell.dataset.k === k || this.all[+cell.dataset.k].offset === this.all[k].offset);
        cell.classList.toggle("company", company.includes(+cell.dataset.k));
      }
      this.explain(k, company);
    }

    explain(k, company) {
      const { layout } = this;
      const { at, index, offset } = this.all[k];
      const bits = +this.bits.value;
      const lines = [];
      const name = ({ dims }) => {
        const letters = dims.map((dim) => layout.letters[dim]).join("");
        return dims.length > 1 ? `(${letters})` : letters;
      };
      const where = index ? index.map((value, dim) => `${layout.letters[dim]} = ${value}`)
        : layout.axes.map((axis, a) => `${name(axis)} = ${at[a]}`);
      lines.push(make("p", "", `${index ? "Element" : "Padding"} ${where.join(", ")}`));
      layout.axes.forEach((axis, a) => {
        if (at[a] >= axis.extent) lines.push(make("p", "", `${name(axis)} ends at ${axis.extent - 1}: this place holds 0.`));
        if (axis.dims.length > 1 && index) lines.push(make("p", "", `${name(axis)} = ${at[a]}: row-major over ${axis.dims.map((dim) => layout.letters[dim]).join(", ")}`));
      });
      const table = make("table");
      for (const term of terms(layout, at)) {
        const row = table.insertRow();
        const axis = name(layout.axes[term.axis]);
        const digit = digitOf(term, axis);
        const worked = digit === axis ? "" : `${digitOf(term, at[term.axis])} `;
        for (const text of [digit, `${worked}= ${term.digit}`, `× ${term.stride}`, `= ${term.product}`]) row.append(make("td", "", text));
      }
      const total = table.insertRow();
      total.className = "total";
      for (const text of ["offset", "", "", `= ${offset}`]) total.append(make("td", "", text));
      lines.push(table);
      const byte = Math.floor((offset * bits) / 8);
      const half = bits < 8 ? `, its ${offset % 2 ? "high" : "low"} half` : "";
      lines.push(make("p", "", `Byte ${offset} × ${bits} / 8 = ${byte}${half}; cache line ${byte} // 64 = ${Math.floor(byte / 64)}`));
      if (layout.image) {
        const { lanes, width } = layout.image;
        const pixel = Math.floor(offset / lanes);
        lines.push(make("p", "", `Pixel x = ${pixel % width}, y = ${Math.floor(pixel / width)}, lane ${offset % lanes}`));
      }
      if (company.length) lines.push(make("p", "lesson-company", this.summary(company, index, bits)));
      this.sum.replaceChildren(...lines);
    }

    summary(company, index, bits) {
      const offsets = [...new Set(company.map((k) => this.all[k].offset))];
      const runs = offsets.filter((offset, k) => !k || offset !== offsets[k - 1] + 1).length;
      const touched = new Set(offsets.map((offset) => Math.floor((offset * bits) / LINE))).size;
      const many = (count, word) => `${count} ${word}${count > 1 ? "s" : ""}`;
      const what = this.walk.value === "group" ? "The group" : `Along ${this.walk.value}`;
      let text = `${what}: ${many(company.length, "element")} in ${many(runs, "run")} of adjacent elements, ${many(touched, "cache line")}.`;
      if (this.walk.value === "group") {
        const sizes = numbers(this.group);
        const at = index.map((value, dim) => Math.floor(value / sizes[dim]));
        const counts = this.layout.dims.map((extent, dim) => Math.ceil(extent / sizes[dim]));
        const scale = at.reduce((sum, value, dim) => sum * counts[dim] + value, 0);
        const names = sizes.map((size, dim) => this.layout.letters[dim] + (size > 1 ? ` // ${size}` : ""));
        text += ` They share the scale (${names.join(", ")}) = (${at.join(", ")}), number ${scale} of ${product(counts)}.`;
      }
      return text;
    }
  }

  document.querySelectorAll(".memdesc-lesson").forEach((holder) => new Lesson(holder)); // deferred
})();
