"""Changes of tensors in files, cut into pieces of bounded size.

A change (`changes`) is cut into regions (`regions`), whose bytes are runs in the files (`runs`,
`files`). A region's change with its runs is a piece (`pieces`); a piece with the places of its
tensors is a task (`tasks`), which threads run (`run_tasks`).
"""
