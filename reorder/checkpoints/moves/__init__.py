"""Changes of tensors in files, cut into pieces of bounded size.

A change (`changes`) is cut into pieces (`pieces`): each is a region whose bytes are runs in the
files. A piece with the places of its tensors is a task, which threads or a cluster run (`tasks`);
`losses` finds the numbers that a task changes too much.
"""
