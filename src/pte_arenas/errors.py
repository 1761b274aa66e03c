"""The errors that this package raises on purpose."""


class ArenaError(ValueError):
    """Wrong use: a declaration, a module or a call that cannot work, and what to do instead."""


class InvalidProgramError(ValueError):
    """A program file that breaks a rule of the format.

    Attributes:
        where: Path of the offending field in the file, such as `arenas[0].slots[1]`.
        message: What was expected there and what was found.
    """

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where
        self.message = message

    def __reduce__(self) -> tuple[type["InvalidProgramError"], tuple[str, str]]:
        return type(self), (self.where, self.message)


class StateFileError(ArenaError):
    """A state file that does not fit; nothing of the session has changed."""


class DamagedStateError(StateFileError):
    """No state file, or one that is damaged or truncated."""


class OtherProgramError(StateFileError):
    """A state file of another program."""


class MissingSlotError(StateFileError):
    """A state file without a slot that the session has."""


class UnknownSlotError(StateFileError):
    """A state file with a slot that the program does not have."""


class SlotMismatchError(StateFileError):
    """A state file with a slot of another dtype, other sizes or another dim order."""
