// The forms of the chapter "Learn": the logical grid beside memory, and the arithmetic of one element.
"use strict";
(function () {
  const { layoutOf, terms, range, indices, elements, product } = memdescLayout;
  const MOST = 640; // elements that a form draws
  const LINE = 512; // bits of a cache line
  const FORM = `
    <form class="lesson-form" autocapitalize="off" autocomplete="off" spellcheck="false" onsubmit="return false">
      <label>Tag<input name="tag"></label>
      <label>Dims<input name="dims"></label>
      <label>Bits<select name="bits"><option>4<option>8<option>16<option>32<option>64</select></label>
      <label>Mark along<select name="along"></select></label>
      <p class="lesson-key">Same colour: adjacent. Hatched: padding. Dashed: gap. Bar: cache line or row of pixels.</p>
    </form>
    <p class="lesson-error" role="alert"></p>
    <div>
      <div class="lesson-halves" tabindex="0" role="group" aria-label="Layout: arrow keys move through memory"></div>
      <div class="lesson-sum" aria-live="polite"></div>
    </div>`;

  const numbers = (text) => text.trim().split(/[x, ]+/).map((part) => (/^[0-9]+$/.test(part) ? +part : NaN));
  const count = (amount, word) => `${amount} ${word}${amount > 1 ? "s" : ""}`;
  const html = (tag, texts) => texts.map((text) => `<${tag}>${text}</${tag}>`).join("");
  const half = (title, tables) =>
    `<div class="lesson-half"><p class="lesson-title">${title}</p><div class="lesson-scroll">${tables}</div></div>`;
  // a digit of an index as Python writes it: c, c // 4, c % 4, c // 4 % 2
  const over = (name, step) => (step > 1 ? `${name} // ${step}` : name);
  const digitOf = ({ step, extent, outer }, name) => over(name, step) + (outer ? "" : ` % ${extent}`);

  function reveal(cell) { // scrolls its half, where that is small, and not the page
    const half = cell.closest(".lesson-scroll");
    const [inner, outer] = [cell, half].map((each) => each.getBoundingClientRect());
    half.scrollTop += Math.min(0, inner.top - outer.top) + Math.max(0, inner.bottom - outer.bottom);
  }

  class Lesson {
    constructor(holder) {
      holder.innerHTML = FORM;
      [this.form, this.error] = holder.children;
      [this.halves, this.sum] = holder.lastElementChild.children; // a box, beyond which the sum does not stick
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
      const onCell = (type, act) => this.halves.addEventListener(type, (event) => {
        const cell = event.target.closest("[data-k]");
        if (cell) act(this.all[cell.dataset.k]);
      });
      onCell("pointerover", (element) => this.isHeld || this.mark(element));
      onCell("click", (element) => {
        this.isHeld = !(this.isHeld && element === this.marked);
        this.mark(element);
      });
      this.halves.addEventListener("keydown", (event) => {
        const [right, down] = this.steps;
        const steps = { ArrowLeft: -right, ArrowUp: -down, ArrowRight: right, ArrowDown: down, Escape: 0 };
        if (!(event.key in steps)) return;
        if (event.key === "Escape") this.isHeld = false;
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
      // this many elements of memory have one colour: a row of the picture, or a pixel of an image
      const strides = this.layout.blocks.map((block) => block.stride).reverse();
      this.row = this.layout.image?.lanes || strides.find((stride) => stride >= 4 && stride <= 16) || 8;
      this.offer();
      this.halves.innerHTML = this.grid() + this.memory();
      this.mark(this.all.find(isMarked) || this.all[0]);
    }

    read() {
      const layout = layoutOf(this.form.tag.value.trim(), numbers(this.form.dims.value));
      const needed = Math.max(layout.size, product(layout.axes.map((axis) => axis.padded)));
      if (needed && needed <= MOST) return layout;
      throw Error(`${needed} elements with padding: this form draws 1 to ${MOST}; memdesc show draws any number`);
    }

    // What can be marked beside an element: its neighbours along a dim, or the group of its scale.
    offer() {
      const { letters, dims } = this.layout;
      const along = [...letters].filter((_, dim) => dims[dim] > 1).map((letter) => new Option(letter));
      if (this.group.length === dims.length) along.push(new Option(`its group (${this.group.join("x")})`, "group"));
      this.form.along.replaceChildren(new Option("nothing", ""), ...along);
      this.form.along.value = along.some(({ value }) => value === this.along) ? this.along : "";
    }

    cell(element, label, more = "") {
      if (!element) return `<td class="gap${more}"></td>`;
      const hue = (Math.floor(element.offset / this.row) * 137.5 + 210) % 360;
      const name = (element.inside ? "cell" : "cell padding") + more;
      return `<td class="${name}" data-k="${this.all.indexOf(element)}" style="--hue: ${hue}">${label(element)}</td>`;
    }

    // Rows and columns are the last two dims of more than one element, and each index of the dims before them
    // has a small table. Fused dims are drawn without their padding.
    grid() {
      const { letters, dims, axes } = this.layout;
      const extents = dims.slice();
      for (const axis of axes) if (axis.dims.length === 1) extents[axis.dims[0]] = axis.padded;
      const found = new Map(this.all.map((element) => [String(element.place), element]));
      const long = [...dims.keys()].filter((dim) => extents[dim] > 1);
      const cellAt = (index) => {
        const place = dims.map((_, dim) => index[long.indexOf(dim)] || 0);
        return this.cell(found.get(String(place)), ({ offset }) => offset);
      };
      const [lead, row, column] = [long.slice(0, -2), long.slice(-2, -1), long.slice(-1)];
      const within = (own) => indices(own.map((dim) => extents[dim]));
      const tables = within(lead).map((index) => {
        const lines = within(row).map((r) => within(column).map((c) => cellAt([...index, ...r, ...c])).join(""));
        const names = lead.map((dim, k) => `${letters[dim]} = ${index[k]}`).join(", ");
        return `<table><caption>${names}</caption>${html("tr", lines)}</table>`;
      });
      const names = [...row.map((dim) => `rows ${letters[dim]}, `), ...column.map((dim) => `columns ${letters[dim]}; `)];
      return half(`The tensor: ${names.join("")}numbers are offsets`, tables.join(""));
    }

    memory() {
      const { letters, dims, size, image } = this.layout;
      const long = [...dims.keys()].filter((dim) => dims[dim] > 1);
      const shown = long.length ? long : [0]; // a dim of one element says nothing
      const label = ({ inside, place }) => (inside ? shown.map((dim) => place[dim]).join(",") : "0");
      const found = new Map(this.all.slice().reverse().map((element) => [element.offset, element]));
      const wide = Math.max(...this.all.map((element) => label(element).length * 7.3 + 12), 36);
      const room = Math.floor((Math.min(this.halves.clientWidth, 360) - 50) / wide);
      let across = this.row;
      while (across > room && across % 2 === 0) across /= 2;
      const { width, lanes } = image || { width: across, lanes: 1 };
      this.steps = image ? [lanes, 1] : [1, across]; // to the right, and down
      const lines = range(Math.ceil(size / width)).map((line) => {
        const [y, lane] = [Math.floor(line / lanes), line % lanes];
        const offsets = range(width).map((x) => (y * width + x) * lanes + lane).filter((offset) => offset < size);
        const isLine = (offset) => !image && offset > 0 && (offset * this.form.bits.value) % LINE === 0;
        const more = (offset) => (image && !lane ? " pixel" : isLine(offset) ? " line" : "");
        const head = image ? (lane ? `lane ${lane}` : `y = ${y}`) : offsets[0];
        return html("th", [head]) + offsets.map((offset) => this.cell(found.get(offset), label, more(offset))).join("");
      });
      if (image) lines.unshift(html("th", ["", ...range(width).map((x) => `x = ${x}`)]));
      const title = image ? "Image: a pixel for each x and y" : "Memory: from each offset on";
      const names = shown.map((dim) => letters[dim]).join(",");
      return half(`${title}; in each cell the index ${names}`, `<table>${html("tr", lines)}</table>`);
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
        if (other.offset === element.offset) reveal(cell);
      }
      const summary = company.length ? `<p class="lesson-company">${this.summary(company, element)}</p>` : "";
      this.sum.innerHTML = `${this.arithmetic(element)}${summary}</div>`;
    }

    // The sum of the offset. An image has three: y, x and the lane; its offset counts in a buffer of its pixels.
    arithmetic({ at, place, offset, inside }) {
      const { letters, axes, image } = this.layout;
      const names = axes.map(({ dims }) => dims.map((dim) => letters[dim]));
      const name = (k) => (names[k].length > 1 ? `(${names[k].join("")})` : names[k][0]);
      const sums = image ? { y: image.width * image.lanes, x: image.lanes, lane: 1 } : { offset: 1 };
      const rows = Object.keys(sums).map((sum, part) => {
        const own = terms(this.layout, at).filter((term) => term.part === part && term.extent > 1);
        const lines = own.map((term) => {
          const digit = digitOf(term, name(term.axis));
          const worked = digit === name(term.axis) ? "" : `${digitOf(term, at[term.axis])} `;
          const [stride, product] = [term.stride / sums[sum], term.product / sums[sum]];
          return html("td", [digit, `${worked}= ${term.digit}`, `× ${stride}`, `= ${product}`]);
        });
        const total = own.reduce((total, term) => total + term.product, 0) / sums[sum];
        return `${html("tr", lines)}<tr class="total">${html("td", [sum, "", "", `= ${total}`])}</tr>`;
      });
      const where = place.map((value, dim) => `${letters[dim]} = ${value}`).join(", ");
      const title = `${inside ? "Element" : "Padding"} ${where}${this.isHeld ? " (held until Escape)" : ""}`;
      const notes = [];
      axes.forEach(({ extent }, k) => {
        if (at[k] >= extent) notes.push(`${name(k)} ends at ${extent - 1}: this place holds 0.`);
        else if (names[k].length > 1) notes.push(`${name(k)} = ${at[k]}: row-major over ${names[k].join(", ")}`);
      });
      const bits = +this.form.bits.value;
      const byte = Math.floor((offset * bits) / 8);
      const nibble = bits < 8 ? `, its ${offset % 2 ? "high" : "low"} half` : "";
      if (image) notes.push(`Offset (y × ${image.width} + x) × ${image.lanes} + lane = ${offset}`);
      else notes.push(`Byte ${offset} × ${bits} / 8 = ${byte}${nibble}; cache line ${byte} // 64 = ${byte >> 6}`);
      return `<p>${title}</p><table>${rows.join("")}</table><div>${html("p", notes)}`;
    }

    summary(company, { place }) {
      const { letters, dims, image } = this.layout;
      const along = this.form.along.value;
      const offsets = [...new Set(company.map((element) => element.offset))];
      const runs = offsets.filter((offset, k) => offset !== offsets[k - 1] + 1).length;
      const touched = (size) => new Set(offsets.map((offset) => Math.floor(offset / size))).size;
      const lines = count(touched(LINE / this.form.bits.value), "cache line");
      const where = image ? count(touched(image.lanes), "pixel") : `${count(runs, "run")} of adjacent elements, ${lines}`;
      const text = `${count(company.length, "element")} in ${where}.`;
      if (along !== "group") return `Along ${along}: ${text}`;
      const at = place.map((value, dim) => Math.floor(value / this.group[dim]));
      const names = this.group.map((size, dim) => over(letters[dim], size)).join(", ");
      return `The group: ${text} They share the scale (${names}) = (${at.join(", ")}).`;
    }
  }

  document.querySelectorAll(".memdesc-lesson").forEach((holder) => new Lesson(holder)); // deferred
})();
