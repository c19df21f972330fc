"""What the site has beside docs/: README as its first page, the reference, and files of the repository that pages name.

mkdocs calls `on_config`, `on_files` and `on_page_markdown`. One text stands in one place: a link that leads out of
docs/ leads to a page made of that file, and a relative link is followed from the place of its text in the repository.
"""

import ast
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "octavo"
PAGES_OF_FILES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Texts of the repository's root that are pages of their own."""
MODULES = ("errors", "ids", "units")
"""Doors that are no packages."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]*)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```\w+) no-run$", re.MULTILINE)
LANGUAGES = {
    ".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".sh": "sh", ".md": "markdown",
    ".service": "ini", ".env": "sh", "Containerfile": "docker",
}  # fmt: skip
"""By the end of a file's name."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the sections that name no page of their own. Pages that none names end the guides."""
    decisions = sorted(f"decisions/{file.name}" for file in (DOCS / "decisions").glob("0*.md"))
    pages = {"Reference": list(reference()), "Decisions": ["decisions/README.md", *decisions]}
    fill(config.nav or [], pages)
    named = set(re.findall(r"[\w/.-]+[.]md", str(config.nav)))
    guides = next(entry["Guides"] for entry in config.nav or [] if "Guides" in entry)
    guides += sorted({file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} - named)
    return config


def fill(entries: list[Any], pages: dict[str, list[str]]) -> None:
    """Gives every section of the navigation that has a name of `pages` those pages."""
    for entry in entries:
        if isinstance(entry, dict):
            for title, inside in entry.items():
                entry[title] = pages.get(title, inside)
                if isinstance(inside, list):
                    fill(inside, pages)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that have no file in docs/."""
    for source, uri in PAGES_OF_FILES.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text()))
    texts = [(repository_path(file.src_uri), file.content_string) for file in files.documentation_pages()]
    linked = {target for path, text in texts for target, _, _ in links_of(text, path)}
    for target in sorted(linked):
        uri = uri_of(target)
        if uri.startswith("files/"):
            files.append(File.generated(config, uri, content=page_of(ROOT / target)))
    for uri, content in reference().items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """The page's text with links within the site, and without words that only the repository's scripts read."""
    here = repository_path(page.file.src_uri)
    for target, start, end in reversed(links_of(markdown, here)):
        markdown = (
            markdown[:start] + relpath(uri_of(target), str(PurePosixPath(page.file.src_uri).parent)) + markdown[end:]
        )
    return FENCE.sub(r"\1", markdown)


def links_of(text: str, path: str) -> list[tuple[str, int, int]]:
    """For each relative link of a text: the file that it leads to in the repository, and where its path stands."""
    found = []
    for match in LINK.finditer(text):
        target = normpath(str(PurePosixPath(path).parent / match[1]))
        if match[1] and not target.startswith("..") and (ROOT / target).exists():
            found.append((target, *match.span(1)))
    return found


def repository_path(uri: str) -> str:
    """Where the text of a page is in the repository."""
    return next((source for source, page in PAGES_OF_FILES.items() if page == uri), f"docs/{uri}")


def uri_of(target: str) -> str:
    """The site's file for a file of the repository."""
    if target in PAGES_OF_FILES:
        return PAGES_OF_FILES[target]
    if target == "docs" or target.startswith("docs/"):
        inside = target.removeprefix("docs").removeprefix("/")
        return f"{inside}/README.md" if (ROOT / target).is_dir() else inside
    return f"files/{target}.md"


def page_of(path: Path) -> str:
    """A page that shows a file, or the files of a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_file():
        return f"# {name}\n\n{code_of(path)}"
    inside = [file for file in sorted(path.rglob("*")) if language_of(file) and "build" not in file.parts]
    if all(file.suffix == ".json" for file in inside):
        return "\n".join([f"# {name}", "", *(f"- `{file.relative_to(path).as_posix()}`" for file in inside)])
    return "\n\n".join(
        [f"# {name}", *(f"## {file.relative_to(path).as_posix()}\n\n{code_of(file)}" for file in inside)]
    )


def code_of(path: Path) -> str:
    return f"````{language_of(path) or 'text'}\n{path.read_text().rstrip()}\n````\n"


def language_of(path: Path) -> str | None:
    return LANGUAGES.get(path.suffix or path.name)


def reference() -> dict[str, str]:
    """The pages of the reference: a list of the front doors, and a page for each with the names that it exports."""
    listed = [
        "# Reference",
        "",
        "The front doors of Octavo, made from docstrings. Names inside the packages may change.",
        "",
    ]
    pages = {"reference/index.md": ""}
    for door in [PACKAGE, *sorted(file.parent for file in PACKAGE.glob("*/__init__.py"))]:
        name = ".".join(door.relative_to(PACKAGE.parent).parts)
        if names := exports_of(door):
            listed.append(f"- [{name}]({name}.md): {summary_of(door / '__init__.py')}")
            pages[f"reference/{name}.md"] = reference_page(name, names)
    for module in MODULES:
        listed.append(f"- [octavo.{module}](octavo.{module}.md): {summary_of(PACKAGE / f'{module}.py')}")
        pages[f"reference/octavo.{module}.md"] = f"# octavo.{module}\n\n::: octavo.{module}\n"
    pages["reference/index.md"] = "\n".join(listed) + "\n"
    return pages


def summary_of(module: Path) -> str:
    """The first paragraph of a module's docstring."""
    return " ".join((ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n\n")[0].split())


def reference_page(package: str, names: list[str]) -> str:
    lines = [f"# {package}", "", f"::: {package}", "    options:", "      members: false", ""]
    for name in names:
        lines += [
            f"::: {package}.{name}",
            "    options:",
            "      show_root_heading: true",
            "      show_root_toc_entry: true",
            "",
        ]
    return "\n".join(lines)


def exports_of(door: Path) -> list[str]:
    """The names that a front door lists: in the stub of a lazy one, else in `__all__`."""
    stub = door / "__init__.pyi"
    if stub.exists():
        imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
        return sorted({alias.asname or alias.name for node in imports for alias in node.names})
    for node in ast.parse((door / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []
