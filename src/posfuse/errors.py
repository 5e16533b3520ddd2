"""The one exception that means: what the user gave cannot be used."""


class InputError(Exception):
    """One line that names the file or key, what is wrong with it, and the cure."""
