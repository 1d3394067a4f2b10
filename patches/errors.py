"""The one exception of the patch engine and of the build."""


class PatchError(Exception):
    """Stops the work. Reads as one line: where it happened, what was found, what to do.

    `outcome` is the verdict that `python -m patches status` prints for the patch at fault.
    """

    outcome = "broken"

    def __init__(self, where: str, found: str, remedy: str):
        self.where, self.found, self.remedy = where, found, remedy
        super().__init__(" ".join(f"{where}: {found}; {remedy}".split()))


class TargetMoved(PatchError):
    """The file, class or function that a patch names is gone; `target` is the name that was looked for."""

    outcome = "target moved"

    def __init__(self, where: str, found: str, remedy: str, target: str):
        super().__init__(where, found, remedy)
        self.target = target


class MatchCountWrong(PatchError):
    """The pattern of an edit matched more or fewer times than the patch says."""

    outcome = "match count wrong"
