"""YAML files whose keys and types a dataclass defines."""

from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.errors import InputError
from posfuse.runs.hydra_errors import one_line

NOT_PLAIN = "has an alias (*name) or very deep nesting; write the values there instead"


def read_typed(path: Any, schema: type, *nested: type) -> Any:
    """The content of a YAML file (a path or a resource of a package) as an object of `schema`.

    `nested` are the dataclasses in the fields of `schema`. Raises InputError, which names the file
    and the key.
    """
    name = str(path) if isinstance(path, Path) else path.name
    try:
        text = path.read_text(encoding="utf-8")
        # A few lines of nested aliases can stand for more values than memory holds.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise RecursionError
        content = OmegaConf.create(text)
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), content))
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#x}"
        raise InputError(f"{name}: not UTF-8 (byte {byte}); save it as UTF-8") from error
    except RecursionError as error:
        raise InputError(f"{name}: {NOT_PLAIN}") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror}); give a YAML file") from error
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not YAML ({' '.join(str(error).split())})") from error
    except (OmegaConfBaseException, ValueError) as error:
        raise InputError(f"{name}: {one_line(error, schema, *nested)}") from error
