// Tags, layouts and offsets, as memdesc computes them; the chapter "Learn" draws them with lesson.js.
// tests/docs/test_learn.py compares every function here with the Python package, in node.
"use strict";
(function (root) {
  const FAMILIES = ["", "w", "hw", "dhw"].flatMap((spatial) =>
    ["nc", "oi", ...(spatial ? ["goi"] : [])].map((first) => first + spatial)
  );
  // names that mean another tag than their letters say, with the letters of their dims
  const NAMES = {
    in_out_channel: ["nchw", "ac|Bd|4b"],
    in_out_height: ["nchw", "aC|bd|4c"],
    in_out_width: ["nchw", "ac|bD|4d"],
    conv2d_filter: ["oihw", "Acd|b|4a"],
    OhwI24o: ["oihw", "Acdb24a"],
    OhwI32o: ["oihw", "Acdb32a"],
    gOhwI24o: ["goihw", "aBdec24b"],
    gOhwI32o: ["goihw", "aBdec32b"],
    gIOhw2i8o16i2o: ["goihw", "aBCde2c8b16c2b"],
    gIOdhw2i8o16i2o: ["goidhw", "aBCdef2c8b16c2b"],
  };
  const TOKEN = /([0-9]{0,15})([A-Za-z]|\([A-Za-z]+\))(?:\/([0-9]{1,15})\.?)?/y;
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
  const fail = (message) => { throw new Error(message); };

  // The letters that a tag uses for dims 0, 1, 2, ...: those of a family such as nchw, else a to l.
  function lettersOf(text) {
    const used = [...new Set(text.toLowerCase().match(/^[a-z]*/)[0])].sort().join("");
    return FAMILIES.find((family) => [...family].sort().join("") === used) || "abcdefghijkl";
  }

  function tokens(text, letters) {
    const found = [];
    for (let at = 0; at < text.length; at = TOKEN.lastIndex) {
      TOKEN.lastIndex = at;
      const match = TOKEN.exec(text);
      if (!match) fail(`expected a letter or a block such as 16b, found '${text.slice(at)}'`);
      const [all, extent, name, step] = match;
      const lower = name.toLowerCase();
      const dims = [...lower.replace(/[()]/g, "")].map((letter) => letters.indexOf(letter));
      if (dims.includes(-1)) fail(`'${all}' names no dim; the dims are ${[...letters].join(", ")}`);
      if (extent && name !== lower) fail(`write the block ${all} in lower case: ${all.toLowerCase()}`);
      if (extent && (!+extent || (step && !+step))) fail(`block ${all} has a size of zero`);
      if (step && !extent) fail(`'${all}' gives a step to an outer letter`);
      if (name !== lower && name !== name.toUpperCase()) fail(`'${name}' mixes upper and lower case`);
      found.push({ dims, key: String(dims), text: all, upper: name !== lower,
                   extent: extent ? +extent : 0, step: step ? +step : 0 });
    }
    return found;
  }

  // Read a tag: axes (dims of each), digits {axis, step, extent} outermost first, alignments.
  function parseTag(text) {
    const [letters, parts] = NAMES[text] || [null, text];
    const bars = parts.split("|");
    if (bars.length !== 1 && bars.length !== 3) fail("an image is rows|columns|lane, such as ac|Bd|4b");
    const whole = bars.map((part, k) => (k < bars.length - 1 && /[0-9]$/.test(part) ? part + "." : part)).join("");
    const [body, ...rounded] = whole.split("__");
    const known = letters || bars.length > 1 ? "abcdefghijkl" : lettersOf(body);
    const all = tokens(body, known);
    const outer = all.filter((token) => !token.extent), used = outer.flatMap((token) => token.dims);
    if (!used.length) fail("a tag starts with the letters of its dims, such as abcd");
    const twice = used.find((dim, k) => used.indexOf(dim) < k);
    if (twice !== undefined) fail(`dim ${known[twice]} appears twice among the outer letters`);
    const ndims = Math.max(...used) + 1;
    if (used.length < ndims) fail(`dim ${[...known].find((_, dim) => !used.includes(dim))} is missing`);
    for (const block of all.filter((token) => token.extent)) {
      const owner = outer.find((token) => token.key === block.key);
      if (!owner) fail(`block ${block.text} has no outer letter`);
      if (!owner.upper) fail(`block ${block.text} needs the outer letter ${owner.text.toUpperCase()} in upper case`);
    }
    const axes = outer.map((token) => token.dims).sort((a, b) => a[0] - b[0]);
    for (const token of outer) setSteps(token, all);
    const align = axes.map(() => 0);
    for (const part of rounded) {
      const match = /^([a-z]|\([a-z]+\))([0-9]{1,15})$/.exec(part);
      const dims = match && [...match[1].replace(/[()]/g, "")].map((letter) => known.indexOf(letter));
      const axis = axes.findIndex((other) => String(other) === String(dims));
      if (axis < 0 || align[axis] || !+match[2]) fail(`expected an alignment such as __b8, once for each axis, found '__${part}'`);
      align[axis] = +match[2];
    }
    const count = (part) => tokens(part, known).filter((token) => token.extent !== 1).length;
    const split = bars.length === 3 ? [count(bars[0]), count(bars[0]) + count(bars[1])] : null;
    const digits = all.filter((token) => token.extent !== 1).map((token) => ({
      axis: axes.findIndex((dims) => String(dims) === token.key), step: token.step, extent: token.extent,
    }));
    if (split && digits.slice(split[1]).some((digit, k) => k || digit.extent !== 4)) fail("the lane of an image is empty or one block of 4, such as 4b");
    return { axes, digits, align: align.map((count) => count || 1), split, letters: (letters || known).slice(0, ndims) };
  }

  // The step of a block is the product of the blocks inside it.
  function setSteps(outer, all) {
    const blocks = all.filter((token) => token.extent && token.key === outer.key);
    const written = blocks.filter((token) => token.step);
    if (outer.upper && !blocks.length) fail(`${outer.text} is in upper case, but no block of it follows`);
    if (written.length && written.length < blocks.length) fail(`some blocks of ${outer.text} give a step and some do not`);
    if (written.length) blocks.sort((a, b) => b.step - a.step || b.extent - a.extent);
    let step = 1;
    for (const block of blocks.reverse()) {
      if (block.step && block.step !== step) fail(`step ${block.step} of ${block.text}: the blocks inside make ${step}`);
      block.step = step;
      step *= block.extent;
    }
    outer.step = step;
  }

  // The layout of a tag or of strides ("strides 8 1") for dims; blocks are outermost first.
  function layoutOf(text, dims) {
    if (!dims.length || !dims.every((size) => Number.isInteger(size) && size >= 0)) fail("dims are numbers such as 1x5x2x3");
    if (/^strides /.test(text)) return byStrides(text.slice(8), dims);
    const tag = parseTag(text);
    if (tag.letters.length !== dims.length) fail(`'${text}' is for ${tag.letters.length} dims (${[...tag.letters].join(", ")}), not ${dims.length}`);
    const axes = tag.axes.map((own, k) => {
      const size = product(tag.digits.filter((digit) => digit.axis === k).map((digit) => digit.extent || 1));
      const whole = (size * tag.align[k]) / gcd(size, tag.align[k]);
      const extent = product(own.map((dim) => dims[dim]));
      return { dims: own, extent, padded: Math.ceil(extent / whole) * whole };
    });
    let stride = 1;
    const blocks = tag.digits.slice().reverse().map(({ axis, step, extent }) => {
      const block = { axis, step, extent: extent || axes[axis].padded / step, stride, outer: !extent };
      stride *= block.extent || 1;
      return block;
    }).reverse();
    const size = product(axes.map((axis) => axis.padded));
    const image = tag.split && {
      lanes: product(blocks.slice(tag.split[1]).map((block) => block.extent)),
      width: product(blocks.slice(tag.split[0], tag.split[1]).map((block) => block.extent)),
    };
    return { dims, letters: tag.letters, axes, blocks, size, image };
  }

  function byStrides(text, dims) {
    const strides = text.trim().split(/[ ,x]+/).map(Number);
    if (strides.length !== dims.length || !strides.every((stride) => Number.isInteger(stride) && stride >= 0)) fail(`give one stride for each of the ${dims.length} dims, such as strides ${dims.map(() => 1).join(" ")}`);
    const axes = dims.map((extent, dim) => ({ dims: [dim], extent, padded: extent }));
    const blocks = dims.map((extent, axis) => ({ axis, step: 1, extent, stride: strides[axis], outer: true }))
      .sort((a, b) => b.stride - a.stride);
    const last = dims.reduce((sum, extent, dim) => sum + (extent - 1) * strides[dim], 0);
    return { dims, letters: "abcdefghijkl".slice(0, dims.length), axes, blocks, size: dims.includes(0) ? 0 : last + 1, image: null };
  }

  // The index of each axis: row-major over its dims.
  const axisIndices = (layout, index) =>
    layout.axes.map((axis) => axis.dims.reduce((sum, dim) => sum * layout.dims[dim] + index[dim], 0));

  // One term of the offset for each block: the digit of the index times its stride.
  const terms = (layout, at) =>
    layout.blocks.map((block) => {
      const digit = Math.floor(at[block.axis] / block.step) % block.extent;
      return { ...block, digit, product: digit * block.stride };
    });

  const offsetAt = (layout, at) => terms(layout, at).reduce((sum, term) => sum + term.product, 0);
  const offsetOf = (layout, index) => offsetAt(layout, axisIndices(layout, index));

  // All elements and padding: {at: index of each axis, offset, index: of each dim, null in padding}.
  function elements(layout) {
    let all = [[]];
    for (const { padded } of layout.axes) all = all.flatMap((at) => Array.from({ length: padded }, (_, k) => [...at, k]));
    return all.map((at) => {
      const index = [];
      const inside = layout.axes.every((axis, k) => at[k] < axis.extent);
      layout.axes.forEach((axis, k) => axis.dims.slice().reverse().reduce((rest, dim) => {
        index[dim] = rest % layout.dims[dim];
        return Math.floor(rest / layout.dims[dim]);
      }, at[k]));
      return { at, offset: offsetAt(layout, at), index: inside ? index : null };
    });
  }

  const api = { layoutOf, offsetOf, terms, elements, product };
  if (typeof module !== "undefined") module.exports = api;
  else root.memdescLayout = api;
})(this);
