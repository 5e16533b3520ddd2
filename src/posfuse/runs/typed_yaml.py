"""YAML files whose keys and types a dataclass defines."""

import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.errors import InputError
from posfuse.runs.hydra_errors import one_line
from posfuse.untrusted import read_yaml

# Patterns of OmegaConf's messages about the type of a value, and what is shown instead.
TYPES = {
    r"Cannot merge .*": "has a list in the place of keys with values, or the reverse",
    r"Structured config .* missing mandatory value: (\S+)": r"\1: missing; add it",
    r"Invalid type assigned: (\w+) is not a subclass .*": r"must be keys with values (got \1)",
    r"Value (.+) is incompatible with type hint '\S*Dict\b.*": r"must be keys with values (got \1)",
    r"Value (.+) is incompatible with type hint '\S*List\b.*": r"must be a list (got \1)",
    r"Invalid value assigned: \w+ is not a ListConfig.*": "must be a list",
    r"Incompatible value 'None' .*": "null is not allowed; give a value",
}


def read_typed(path: Any, schema: type, *nested: type) -> Any:
    """The content of a YAML file (a path or a resource of a package) as an object of `schema`.

    `nested` are the dataclasses in the fields of `schema`. Raises InputError, which names the file
    and the key.
    """
    name = str(path) if isinstance(path, Path) else path.name
    try:
        content, merged = OmegaConf.create(read_yaml(path)), OmegaConf.structured(schema)
        if not isinstance(content, DictConfig):
            raise InputError(f"{name}: holds a list; write key: value")
        for key in content:  # one by one: not every error names its key
            if not isinstance(key, str):
                raise InputError(f"{name}: {key!r}: must be a text; remove it, or put it in quotes")
            try:
                merged = OmegaConf.merge(merged, OmegaConf.masked_copy(content, [key]))
            except OmegaConfBaseException as error:
                line = _shown(error, schema, *nested)
                place = name if key in line else f"{name}: {key}"
                raise InputError(f"{place}: {line}") from error
        return OmegaConf.to_object(merged)
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#x}"
        raise InputError(f"{name}: not UTF-8 (byte {byte}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror}); give a YAML file") from error
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not YAML ({' '.join(str(error).split())})") from error
    except (OmegaConfBaseException, ValueError) as error:
        raise InputError(f"{name}: {_shown(error, schema, *nested)}") from error


def _shown(error: Exception, *schemas: type) -> str:
    line = one_line(error)
    for pattern, shown in TYPES.items():
        line = re.sub(pattern, shown, line)
    return line
