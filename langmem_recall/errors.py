"""Errors a user can meet: each says what is wrong, what we got and what to do."""


class RecallError(Exception):
    """Base of every error raised by `langmem_recall`."""


class InputError(RecallError, ValueError):
    """An argument cannot be used; nothing was read or written."""


class PolicyError(RecallError, ValueError):
    """A policy has a knob outside its range."""


class ConfigurationError(RecallError, ValueError):
    """Something is wired up wrongly; raised at once, never treated as a fault of a turn."""


class MissingExtraError(RecallError, ImportError):
    """An optional dependency is not installed; the message names the exact `pip install`."""


class StoreError(RecallError):
    """A store file or its contents cannot be used as they are; nothing was changed."""
