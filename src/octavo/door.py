"""The front door of a package that the `octavo` command goes through on its way in.

lazy_loader reads a stub with `ast`. To load that takes 25 ms, in which Ctrl-C would end a command in a traceback; so it
waits for the first name that somebody asks for. Nothing slow, such as `typing`, is imported here.
"""


def open_door(door: dict[str, object], name: str) -> object:
    """A name of the package with these globals, by its stub; `lazy_loader` answers for all others from then on."""
    import lazy_loader  # type: ignore[import-untyped]

    find, list_names, names = lazy_loader.attach_stub(str(door["__name__"]), str(door["__file__"]))
    door.update(__getattr__=find, __dir__=list_names, __all__=names)
    return names if name == "__all__" else find(name)
