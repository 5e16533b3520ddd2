"""One line for an error of Hydra or OmegaConf, with the key, the file or the override in front."""

import dataclasses
import re
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from traceback import walk_tb

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import errors
from yaml import YAMLError

from posfuse import config
from posfuse.errors import NO_MEMORY, InputError, lacks_memory
from posfuse.limits import meanings
from posfuse.runs.nearest import nearest


def line_of(error: Exception) -> str:
    """One line for an error that ends the command, with the key or the argument that caused it."""
    if lacks_memory(error):
        return NO_MEMORY
    line = one_line(error)
    local = [v for f, _ in walk_tb(error.__traceback__) for v in f.f_locals.values()][::-1]
    if isinstance(error, YAMLError | UnicodeDecodeError):
        file = next((v.name for v in local if isinstance(v, TextIOWrapper)), "a config file")
        return f"{file}: {line}; correct the file, and save it as UTF-8"
    if line.startswith("Only one of --run"):  # an error of the options, not of an override
        return f"{line}; remove the others"
    if not isinstance(error, HydraException | errors.OmegaConfBaseException):
        line = f"{type(error).__name__}: {line}; set HYDRA_FULL_ERROR=1 to see the traceback"
        if own := [v for v in local if isinstance(v, Override) and not v.is_hydra_override()]:
            return f"{own[0].input_line}: {line}"
    elif re.match(r"(?!hydra\.)\S+: ", line) or line.startswith(tuple(f"{a}: " for a in sys.argv)):
        return line
    suspects = [a for a in sys.argv[1:] if re.match(r"[~+]|hydra|.*\$\{", a)]
    if not (suspects or isinstance(error, HydraException)):
        suspects = [a for a in sys.argv[1:] if (config.CONF_DIR / a.partition("=")[0]).is_dir()]
    return f"{', '.join(suspects)}: {line}".removeprefix(": ")


def one_line(error: BaseException) -> str:
    """The message in one line, of an error of Hydra or OmegaConf with its key and the fix."""
    text = " ".join(str(error).split())
    if refused := [str(cause) for cause in _causes(error) if isinstance(cause, InputError)]:
        return " ".join(refused[0].split())  # for example by a resolver of the config
    if isinstance(error, OverrideParseException):
        why = " ".join(str(error.__cause__ or "not an override that Hydra can read").split())
        return f"{error.override}: {why}; write key=value, or 'key=\"value\"' with quotes"
    place = "".join(f"{f}.yaml: " for f in re.findall(r"^In '((?!hydra/)[^']+/[^']+)'", text))
    if several := re.match(r"(Ambiguous|Sweep)[\w ]+'(.*?)' (1\.|requires)", text):
        kind, override, _ = several.groups()
        is_group = (config.CONF_DIR / override.partition("=")[0]).is_dir()
        for_a_list = ", or write key=[a,b] for a list"
        for_a_list *= kind == "Ambiguous" and not is_group
        return f"{override}: several values; add -m for a sweep{for_a_list}"
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"{place}{group}: no {name!r}; {nearest(name, error.options)}"
    own = [e for e in _causes(error) if isinstance(e, errors.OmegaConfBaseException) and e.full_key]
    if not own:
        return text
    key, part = str(own[0].full_key), own[0].object_type
    if not isinstance(own[0], errors.ConfigKeyError | errors.ConfigAttributeError):
        why = " ".join(str(own[0]).partition("full_key:")[0].split()).removesuffix(".")
        fix = "write [a,b] for a list" if "ListConfig" in why else "give another value"
        if lost := re.search(r"(?:key '|value: )(data|encoding|fusion)\.name\b", why):
            fix = f"choose a file of {lost[1]} that has the key name"  # which names the folder
        return f"{place}{key}: {why}; {fix}"
    fix = f"an option of this part needs a +, as in +{key}=VALUE"
    if dataclasses.is_dataclass(part):
        whole = config.Config if part.__module__ == config.__name__ else part
        fix = nearest(key, [f.name for f in dataclasses.fields(part)], dict(meanings(whole)))
    if of_hydra := re.match(r"hydra\.(launcher|sweeper)\.", key):
        name, other = of_hydra[1], {"launcher": "parallel", "sweeper": "optuna"}[of_hydra[1]]
        fix = f"choose a {name} that has it, such as hydra/{name}={other}"
    return f"{place}{key}: unknown key; {fix}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []  # an error of OmegaConf can be its own cause
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        is_hydras = isinstance(error, HydraException | errors.OmegaConfBaseException)
        error = error.__cause__ or (error.__context__ if is_hydras else None)
