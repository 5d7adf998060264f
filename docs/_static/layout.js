// Tags, layouts and offsets, as memdesc computes them; lesson.js draws them in the chapter "Learn".
// tests/docs/test_learn.py compares every function here with the Python package, in node.
"use strict";
(function (root) {
  const FAMILIES = "nc oi ncw oiw goiw nchw oihw goihw ncdhw oidhw goidhw".split(" ");
  // image types: the letters of their dims, and their rows|columns|lane
  const NAMES = {
    in_out_channel: ["nchw", "ac|Bd|4b"],
    in_out_height: ["nchw", "aC|bd|4c"],
    in_out_width: ["nchw", "ac|bD|4d"],
    conv2d_filter: ["oihw", "Acd|b|4a"],
  };
  // B, (cd), 16b, 4a/8.
  const TOKEN = /([0-9]{0,15})([a-z]|[A-Z]|\([a-z]+\)|\([A-Z]+\))(?:\/([0-9]{1,15})\.?)?/gy;
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  const lcm = (a, b) => (a * b) / gcd(a, b);
  const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
  const fail = (message) => { throw new Error(message); };

  // The letters that a tag uses for dims 0, 1, 2, ...: those of a family such as nchw, else a to l.
  function lettersOf(text) {
    const used = [...new Set(text.toLowerCase().match(/^[a-z]*/)[0])].sort().join("");
    return FAMILIES.find((family) => [...family].sort().join("") === used) || "abcdefghijkl";
  }

  const dimsOf = (name, letters) => [...name.toLowerCase().replace(/[()]/g, "")].map((letter) => letters.indexOf(letter));

  function tokens(text, letters) {
    const found = [...text.matchAll(TOKEN)];
    const rest = text.slice(found.map(([all]) => all).join("").length);
    if (rest) fail(`expected a letter or a block such as 16b, found '${rest}'`);
    return found.map(([all, extent, name, step]) => {
      const dims = dimsOf(name, letters);
      const upper = name !== name.toLowerCase();
      if (dims.includes(-1)) fail(`'${all}' names no dim; the dims are ${[...letters].join(", ")}`);
      if (extent && upper) fail(`write the block ${all} in lower case: ${all.toLowerCase()}`);
      if (step && !extent) fail(`'${all}' gives a step to an outer letter`);
      if (/^0+$/.test(extent) || /^0+$/.test(step)) fail(`block ${all} has a size of zero`);
      return { dims, key: String(dims), text: all, upper, extent: +extent, step: +(step || 0) };
    });
  }

  // Read a tag: axes (dims of each), digits {axis, step, extent, part} outermost first, alignments.
  // The parts of an image are its rows, its columns and its lane: 0, 1 and 2.
  function parseTag(text) {
    // oneDNN reads OhwI24o as Ohwi24o, and gIOhw2i8o16i2o as gOIhw2i8o16i2o
    const plain = text.replace(/^(g?Ohw)I(?=(24|32)o$)/, "$1i").replace(/^gIO(?=d?hw2i8o16i2o$)/, "gOI");
    const [letters, whole] = NAMES[text] || [null, plain];
    const [body, ...rounded] = whole.split("__");
    const bars = body.split("|");
    if (bars.length !== 1 && bars.length !== 3) fail("an image is rows|columns|lane, such as ac|Bd|4b");
    const known = letters || bars.length > 1 ? "abcdefghijkl" : lettersOf(body);
    const all = bars.flatMap((bar, part) => tokens(bar, known).map((token) => ({ ...token, part })));
    const outer = all.filter((token) => !token.extent);
    const used = outer.flatMap((token) => token.dims);
    if (!used.length) fail("a tag starts with the letters of its dims, such as abcd");
    const twice = used.find((dim, k) => used.indexOf(dim) < k);
    if (twice !== undefined) fail(`dim ${known[twice]} appears twice among the outer letters`);
    const missing = [...used.keys()].find((dim) => !used.includes(dim));
    if (missing !== undefined) fail(`dim ${known[missing]} is missing`);
    const owned = outer.filter((token) => token.upper).map((token) => token.key);
    const alone = all.find((token) => token.extent && !owned.includes(token.key));
    if (alone) fail(`block ${alone.text} needs its outer letter in upper case`);
    for (const token of outer) setSteps(token, all);
    const axes = outer.map((token) => token.dims).sort((a, b) => a[0] - b[0]);
    const axisOf = (key) => axes.findIndex((dims) => String(dims) === key);
    const align = axes.map(() => 0);
    for (const part of rounded) {
      const [, name = "", count = 0] = /^([a-z]|\([a-z]+\))([0-9]{1,15})$/.exec(part) || [];
      const axis = axisOf(String(dimsOf(name, known)));
      if (align[axis] !== 0 || !+count) fail(`expected an alignment of each axis, such as __b8, found '__${part}'`);
      align[axis] = +count;
    }
    const digits = all
      .filter((token) => token.extent !== 1)
      .map(({ key, step, extent, part }) => ({ axis: axisOf(key), step, extent, part }));
    const lane = digits.filter((digit) => digit.part === 2);
    if (lane.length > 1 || (lane[0]?.extent ?? 4) !== 4) fail("a lane is empty or one block of 4, such as 4b");
    return { axes, digits, align, isImage: bars.length > 1, letters: (letters || known).slice(0, used.length) };
  }

  // The step of a block is the product of the blocks inside it.
  function setSteps(outer, all) {
    const blocks = all.filter((token) => token.extent && token.key === outer.key);
    if (outer.upper && !blocks.length) fail(`${outer.text} is in upper case, but no block of it follows`);
    const isWritten = blocks.some((block) => block.step);
    if (isWritten) blocks.sort((a, b) => b.step - a.step || b.extent - a.extent);
    outer.step = 1;
    for (const block of blocks.reverse()) {
      if (isWritten && block.step !== outer.step) fail(`${block.text}: the blocks inside make a step of ${outer.step}`);
      block.step = outer.step;
      outer.step *= block.extent;
    }
  }

  // The layout of a tag or of strides ("strides 8 1") for dims; blocks are outermost first.
  function layoutOf(text, dims) {
    if (!dims.length || !dims.every((size) => size >= 0)) fail("dims are numbers such as 1x5x2x3");
    if (/^strides\b/.test(text)) return byStrides(text.slice(7), dims);
    if (!NAMES[text] && /[^_]_[^_]|[:,]/.test(text)) // a name of another system
      fail(`a form reads tags such as aBcd16b, and strides; for others: memdesc show --draw '${text}' ${dims.join("x")}`);
    const tag = parseTag(text);
    if (tag.letters.length !== dims.length)
      fail(`'${text}' is for ${tag.letters.length} dims (${[...tag.letters].join(", ")}), not ${dims.length}`);
    const axes = tag.axes.map((own, k) => {
      const sizes = tag.digits.filter((digit) => digit.axis === k).map((digit) => digit.extent || 1);
      const whole = lcm(product(sizes), tag.align[k] || 1);
      const extent = product(own.map((dim) => dims[dim]));
      return { dims: own, extent, padded: Math.ceil(extent / whole) * whole };
    });
    let stride = 1;
    const blocks = [];
    for (const digit of tag.digits.reverse()) {
      const extent = digit.extent || axes[digit.axis].padded / digit.step;
      blocks.unshift({ ...digit, extent, stride, outer: !digit.extent });
      stride *= extent;
    }
    const sizeOf = (part) => product(blocks.filter((block) => block.part === part).map((block) => block.extent));
    const image = tag.isImage ? { width: sizeOf(1), lanes: sizeOf(2) } : null;
    return { dims, letters: tag.letters, axes, blocks, size: stride, image };
  }

  function byStrides(text, dims) {
    const strides = text.trim().split(/[ ,x]+/);
    const dense = dims.map((_, dim) => product(dims.slice(dim + 1)));
    if (strides.length !== dims.length || !strides.every((stride) => /^[0-9]+$/.test(stride)))
      fail(`give one stride for each dim, such as strides ${dense.join(" ")}`);
    const axes = dims.map((extent, dim) => ({ dims: [dim], extent, padded: extent }));
    const blocks = dims.map((extent, axis) => ({ axis, part: 0, step: 1, extent, stride: +strides[axis], outer: true }));
    const last = blocks.reduce((sum, { extent, stride }) => sum + (extent - 1) * stride, 0);
    blocks.sort((a, b) => b.stride - a.stride);
    const size = dims.includes(0) ? 0 : last + 1;
    return { dims, letters: "abcdefghijkl".slice(0, dims.length), axes, blocks, size, image: null };
  }

  // One term of the offset for each block: the digit of the axis' index times its stride.
  const terms = ({ blocks }, at) => blocks.map((block) => {
    const digit = Math.floor(at[block.axis] / block.step) % block.extent;
    return { ...block, digit, product: digit * block.stride };
  });

  // All indices of an array of these extents, in row-major order.
  const range = (extent) => Array.from({ length: extent }, (_, k) => k);
  const indices = (extents) =>
    extents.reduce((all, extent) => all.flatMap((index) => range(extent).map((k) => [...index, k])), [[]]);

  // All elements and padding: `at` is the index of each axis, `place` of each dim, also beyond its extent.
  function elements(layout) {
    return indices(layout.axes.map((axis) => axis.padded)).map((at) => {
      const place = [];
      layout.axes.forEach(({ dims: [first, ...inner] }, k) => {
        place[first] = inner.reverse().reduce((rest, dim) => {
          place[dim] = rest % layout.dims[dim];
          return Math.floor(rest / layout.dims[dim]);
        }, at[k]);
      });
      const offset = terms(layout, at).reduce((sum, term) => sum + term.product, 0);
      return { at, place, offset, inside: layout.axes.every((axis, k) => at[k] < axis.extent) };
    });
  }

  root.memdescLayout = { layoutOf, terms, range, indices, elements, product };
})(this); // the window, or what `require` gives in node
