"""Front doors that open late: a package's names by its stub, each imported when somebody asks for it.

lazy_loader reads a stub with `ast`. To load that takes 25 ms, in which Ctrl-C would end a command in a traceback; so
the packages that the `octavo` command goes through on its way in wait for the first name that somebody asks for
(`open_door`). Nothing slow, such as `typing`, is imported here.
"""

TYPE_CHECKING = False  # `typing` has it too
if TYPE_CHECKING:
    from collections.abc import Callable


def attach_door(
    package: str, file: str, extras: "dict[str, str] | None" = None
) -> "tuple[Callable[[str], object], Callable[[], list[str]], list[str]]":
    """`__getattr__`, `__dir__` and `__all__` of a package. A name that needs an extra says which one: that of the
    package that is missing, or what `extras` has for the name, where more is needed than the first package that is
    missed."""
    import lazy_loader  # type: ignore[import-untyped]

    find, list_names, names = lazy_loader.attach_stub(package, file)

    def find_or_explain(name: str) -> object:
        try:
            return find(name)
        except ModuleNotFoundError as error:
            from octavo.extras import explain_missing

            if (explained := explain_missing(f"{package}.{name}", error, (extras or {}).get(name))) is error:
                raise
            raise explained from error

    return find_or_explain, list_names, names


def open_door(door: dict[str, object], name: str) -> object:
    """A name of the package with these globals; `attach_door` answers for all others from then on."""
    find, list_names, names = attach_door(str(door["__name__"]), str(door["__file__"]))
    door.update(__getattr__=find, __dir__=list_names, __all__=names)
    return names if name == "__all__" else find(name)
