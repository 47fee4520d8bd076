"""A reader for the XML of answers: elements, their text and their children, and nothing else.

Expat does the parsing. A document type declaration is refused where it begins, so there are no
entities to expand and none to fetch; depth and number of elements are bounded, and the size is
what the caller read. Namespaces and attributes are dropped.
"""

from __future__ import annotations

from xml.parsers import expat

MAX_DEPTH = 32
MAX_ELEMENTS = 100_000


class BadXmlError(Exception):
    """A text is no XML, or none that is read here."""


class Element:
    """One element; `text` is what stands in it outside its children."""

    __slots__ = ("children", "name", "parts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: list[Element] = []
        self.parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def child(self, name: str) -> Element | None:
        """The first child of this name."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def text_of(self, name: str) -> str:
        """The text of the first child of this name, or ""."""
        child = self.child(name)
        return child.text.strip() if child is not None else ""

    def __repr__(self) -> str:
        return f"<Element {self.name}: {len(self.children)} children>"


class _Builder:
    """Puts elements together as expat meets them."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def start(self, name: str, _: object) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) >= MAX_DEPTH:
            raise BadXmlError("too many elements, or too deep")
        element = Element(name.rpartition(":")[2])
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _: str) -> None:
        self._open.pop()

    def text(self, data: str) -> None:
        self._open[-1].parts.append(data)

    def refuse(self, *_: object) -> None:
        raise BadXmlError("a document type declaration, which is not read")


def read_xml(document: bytes) -> Element:
    """The root element of a document. Raises `BadXmlError`."""
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = builder.refuse
    parser.EntityDeclHandler = builder.refuse
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise BadXmlError(str(error)) from None
    except (ValueError, LookupError) as error:  # an encoding that is none
        raise BadXmlError(str(error)) from None
    if builder.root is None:
        raise BadXmlError("no element")
    return builder.root
