"""The patch queue: semantic edits that turn one pinned upstream release into the fork.

header.py       reads and checks the header of a patch (DEP-3 style)
patterns.py     what an edit looks for inside one function: a call, an assignment, an expression, ...
transforms.py   what an edit does: decorate, insert, replace, add an import, a field or an item
syntax.py       an upstream source file: finds definitions, applies the planned changes, keeps all other bytes
series.py       loads the queue in the order of the file `series`
apply.py        applies the queue to a tree of files: all of it or nothing
pin.py          the pinned release (`pin.toml`): version, wheel names, hashes
fetch.py        gets an upstream wheel through pip, checks its hash, keeps it in the user's cache
errors.py       PatchError: where, what was found, what to do

`python -m patches --help` lists the commands; README.md says when a patch is allowed.
"""
