"""Tensors in files.

Files and what is in them:

* `formats`: a module for each format, and one writer
* `stored`: how a layout or a record becomes the tensors of a file
* `files`: `save` and `load`; `checkpoint`: `open_checkpoint`

Quantised weights, which are several tensors:

* `siblings`: which tensors belong together, according to their names
* `quantization`: what the config files of the model declare, read by the table in `declarations`
* `groups`: what the tensors are together, once all of these sources agree
* `experts`: one tensor for the experts of a layer, or a tensor for each
* `patterns`: regular expressions of such files, matched safely

Moving data from file to file in bounded memory:

* `moves`: a change of one tensor or record, cut into pieces, and the tasks that run them
* `reorder_file`: one tensor; `convert`: a whole checkpoint, by rules

Checking a checkpoint:

* `differences`: which values differ from those of another checkpoint
* `diagnosis`: what explains the bytes that differ
"""
