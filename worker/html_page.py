"""Pages for people: one self-contained HTML file with the house's look, in which untrusted text is shown and never executed.

- `shown` makes text visible: markup is escaped, control and format characters, bidirectional marks and lone surrogates
  become their code. `cut` bounds it. `tag` escapes attributes; content must be `Markup` or is escaped.
- `document` puts a page together. Its Content-Security-Policy allows nothing but the page's own style and script, by hash:
  no inline handler, no javascript: link, no request leaves, whatever stands in the text.
- Links point into the page (`anchor`), never to a file of the outcome: a browser would take it for what it claims to be.
Nothing here reads or writes, but `resource`, which takes the page's own style and script out of the bundle.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import re

from worker.version import FILES

POLICY = (
    "default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
# What a browser would not show, or would let reorder what it shows: C0, DEL, C1, format characters (Unicode 15, category Cf
# and the line and paragraph separators), surrogates, non-characters; and what HTML needs escaped.
_SPECIAL = re.compile(
    "[&<>\"'\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
VOID = ("br", "input", "meta", "rect", "line", "path", "polyline", "polygon", "circle")  # those of SVG need their slash


class Markup(str):
    """Text that is HTML already: made by this module, or a constant of the page."""

    __slots__ = ()


def _visible(match):
    character = match.group()
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if code < 0x100:
        return "\\x%02x" % code
    return "\\u%04x" % code if code < 0x10000 else "\\U%08x" % code


def shown(value):
    """Any value as Markup that a person sees whole: str as it is, None as a dash."""
    if isinstance(value, Markup):
        return value
    text = "\u2013" if value is None else value if isinstance(value, str) else str(value)
    return Markup(_SPECIAL.sub(_visible, text.replace("\r\n", "\n")))


def cut(text, most):
    """(`text` of at most `most` characters, head and tail; how many were left out)."""
    if len(text) <= most:
        return text, 0
    head, tail = most - most // 4, most // 4
    return "%s\n\u2026\n%s" % (text[:head], text[len(text) - tail :]), len(text) - head - tail


def tag(name, *content, **attributes):
    """An element. `klass`, `for_` and the like lose what Python needs; `data_x` is data-x; None leaves one out, True is bare."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = "class" if key == "klass" else key.rstrip("_").replace("_", "-")
        words.append(key if value is True else '%s="%s"' % (key, shown(value)))
    head = " ".join(words)
    return Markup("<%s/>" % head if name in VOID else "<%s>%s</%s>" % (head, "".join(map(shown, content)), name))


def join(parts, between=""):
    return Markup(between.join(map(shown, parts)))


def anchor(kind, name):
    """The id of a thing on the page; any text is a good name."""
    text = "%s-%s" % (kind, name)
    if re.match("[a-z]+-[A-Za-z0-9_.-]{1,60}$", text):
        return text
    return "%s.%s" % (kind, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16])


def link(target, *content, **attributes):
    return tag("a", *content, href="#" + target, **attributes)


def table(heads, rows, caption, **attributes):
    """rows: lists of cells (Markup or text), or ready <tr>s. It scrolls in its own box where it is too wide."""
    head = tag("thead", tag("tr", *[tag("th", one, scope="col") for one in heads]))
    body = tag("tbody", *[row if isinstance(row, Markup) else tag("tr", *[tag("td", cell) for cell in row]) for row in rows])
    inner = tag("table", tag("caption", caption, klass="quiet"), head, body, **attributes)
    return tag("div", inner, klass="wide", tabindex="0", role="region", aria_label=caption)


def facts(pairs):
    """A definition list of (name, value)."""
    return tag("dl", *[tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], klass="facts")


def section(name, title, *content, **attributes):
    head = tag("h2", title, id=name + "-title")
    return tag("section", head, *content, id=name, aria_labelledby=name + "-title", **attributes)


def pill(word, tone):
    """A word in a coloured frame. tone: good, bad, warn, odd or quiet."""
    return tag("span", word, klass="pill " + tone)


def resource(name):
    """The text of a file of the bundle (or of a source tree)."""
    if FILES:
        return FILES[name].decode("ascii")
    with open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name), encoding="ascii") as file:
        return file.read()


def document(title, head, main, foot, style="", script=""):
    """The whole page as UTF-8 bytes. head, main, foot: Markup; style and script: text of our own, added to the house's."""
    style = "\n" + resource("worker/html_page.css") + style
    script = "\n" + script
    policy = POLICY % (_hash(style), _hash(script))
    page = join(
        [
            Markup("<!doctype html>\n"),
            Markup('<html lang="en">\n<head>\n<meta charset="utf-8">\n'),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            "\n",
            Markup(
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
            ),
            tag("title", title),
            "\n",
            Markup("<style>%s</style>\n</head>\n<body>\n" % style),
            link("main", "Skip to the content", klass="skip"),
            "\n",
            tag("header", head),
            "\n",
            tag("main", main, id="main", tabindex="-1"),
            "\n",
            tag("footer", foot),
            "\n",
            Markup("<script>%s</script>\n</body>\n</html>\n" % script),
        ]
    )
    return page.encode("utf-8")


def _hash(text):
    return binascii.b2a_base64(hashlib.sha256(text.encode("ascii")).digest(), newline=False).decode("ascii")
