"""The built-in parser `main-text`: the main content of a page as plain text, for jobs that keep texts of pages and no documents.

The rule: the text is that of the parser `markdown`; a page where that finds nothing keeps its visible text.
"""

from holdfast.model.parse_result import Document, Extracted
from holdfast.parse import markdown

version = markdown.version


def parse(document: Document) -> Extracted:
    """Extract the main text of HTML that may be indexed; nothing of anything else."""
    found = markdown.parse(document).data
    return Extracted({"text": found["text"]}) if found else Extracted()
