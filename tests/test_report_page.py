"""Promise: the page of a report works in a real browser: nothing of it is executed or fetched, it can be filtered, folded, used by
keyboard, read in light and dark, on paper, on a wide screen and on a telephone.

The pages: a scripted failed run, a run of 500 tool calls, one whose every text is hostile, and that of a real Codex.
"""

from __future__ import annotations

import os

import pytest

from tests import chromium, outcomes, real_cli
from tests.conformance import runner, scenarios
from tests.test_report import failed_run
from worker.report.page import page
from worker.report.reading import Run

pytestmark = pytest.mark.browser
PAGES = ("failed", "large", "hostile", pytest.param("codex", marks=pytest.mark.real_cli))

# Text whose contrast to what is behind it is below WCAG 2.1's 4.5 (level AA).
CONTRAST = """(() => {
  const luminance = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const numbers = s => s.match(/[\\d.]+/g).map(Number), found = new Set(), seen = new Set();
  for (const one of document.querySelectorAll("body *")) {
    if (![...one.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || ["SCRIPT", "STYLE", "OPTION", "title"].includes(one.tagName)) continue;
    const key = one.tagName + one.className + one.parentElement.className; if (seen.has(key)) continue; seen.add(key);
    const style = getComputedStyle(one), ink = one.closest("svg") ? style.fill : style.color;
    let behind = one; while (behind && (numbers(getComputedStyle(behind).backgroundColor)[3] === 0)) behind = behind.parentElement;
    const a = luminance(numbers(ink).slice(0, 3)), b = luminance(numbers(getComputedStyle(behind || document.body).backgroundColor).slice(0, 3));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.add(key + " " + ratio.toFixed(2));
  }
  return [...found]; })()"""
STRUCTURE = """(() => { const all = s => [...document.querySelectorAll(s)], ids = all("[id]").map(e => e.id);
  return { landmarks: ["header", "nav", "main", "footer"].filter(n => all(n).length !== 1),
    unnamed: all("section").filter(e => !document.getElementById(e.getAttribute("aria-labelledby"))).length,
    unlabelled: all("input, select").filter(e => !e.labels.length).length, bare: all("svg:not([role=img]):not([aria-hidden])").length,
    twice: ids.filter((e, i) => ids.indexOf(e) !== i), broken: all("a").filter(e => !document.getElementById(e.getAttribute("href").slice(1)))
      .map(e => e.outerHTML.slice(0, 200)) }; })()"""
INERT = """[...document.querySelectorAll("*")].filter(e => ["IFRAME", "IMG", "OBJECT", "EMBED", "BASE", "FORM"].includes(e.tagName) ||
  [...e.attributes].some(a => /^on|^src/.test(a.name) || /^\\s*javascript:/i.test(a.value) && a.name === "href")).map(e => e.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser():
    browser = chromium.Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(dist, tmp_path_factory):
    """pages(name): the path of that page, made once."""
    made, bundle = {}, os.path.join(dist, "sandbox-worker.pyz")

    def outcome(name, folder):
        if name == "failed":
            return failed_run(bundle, folder).directory
        if name == "codex":
            places = [os.path.dirname(real_cli.path())]
            done = runner.play(scenarios.BY_NAME["error_after_tool"], real_cli.CODEX[0], places, bundle, folder / "play").done
            assert done.outcome["kind"] == "invalid_request"
            return done.directory
        return outcomes.write(
            folder / "out",
            outcomes.hostile() if name == "hostile" else outcomes.documents(calls=500, output="line of output\n" * 400),
        )

    def path(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = folder / "report.html"
            made[name].write_bytes(page(Run(outcome(name, folder))))
        return made[name]

    return path


@pytest.mark.parametrize("name", PAGES)
def test_it_opens_without_complaint_fetches_nothing_and_fits(browser, pages, name):
    path = pages(name)
    assert path.stat().st_size < 3_000_000
    for width, dark in ((1280, False), (390, True)):
        one = browser.open(path, width=width, dark=dark)
        assert one.complaints() == [] and one.asked() == [one.url]
        assert one.value("document.documentElement.scrollWidth") <= width
        assert one.value("window.pwned") is None and one.value("document.scripts.length") == 1
        assert one.value(INERT) == [] and one.value(CONTRAST) == []
        assert one.value(STRUCTURE) == {"landmarks": [], "unnamed": 0, "unlabelled": 0, "bare": 0, "twice": [], "broken": []}
        one.close()


def test_dark_and_light_differ(browser, pages):
    papers = []
    for dark in (False, True):
        one = browser.open(pages("failed"), dark=dark)
        papers.append(one.value("getComputedStyle(document.body).backgroundColor"))
        one.close()
    assert papers[0] != papers[1]


def test_hostile_text_can_be_read(browser, pages):
    one = browser.open(pages("hostile"))
    text = one.value("document.body.textContent")
    for seen in (
        "</script><script>window.pwned = 1</script>",
        "<img src=x onerror='window.pwned = 2'>",
        "\\u202egnp.exe",
        "\\x1b[31;1mred",
    ):
        assert seen in text
    assert "pwned=7" in text and "characters are left out" in text
    one.close()


def test_the_filter_shows_what_is_asked_for(browser, pages):
    one = browser.open(pages("large"))
    visible = "[...document.querySelectorAll('#attempts-table tbody tr')].filter(r => !r.hidden).map(r => r.id)"
    assert len(one.value(visible)) == 501
    one.value("document.getElementById('filter-words').focus()")
    one.type("377.1")
    assert one.value(visible) == ["a-377"] and one.value("document.getElementById('filter-count').textContent") == "1 of 501"
    one.value(
        "(() => { const s = document.getElementById('filter-kind'); s.value = 'failed'; s.dispatchEvent(new Event('change')); })()"
    )
    assert one.value(visible) == []
    one.value("location.hash = 'a-3'")  # a link to a row that is filtered away brings it back
    one.value("new Promise(r => setTimeout(r))")
    assert "a-3" in one.value(visible)
    one.close()


def test_the_keyboard_reaches_everything_and_folds(browser, pages):
    one = browser.open(pages("failed"))
    one.press("Tab")
    assert one.value("document.activeElement.className") == "skip"
    seen, summary = set(), None
    for _ in range(60):
        one.press("Tab")
        seen.add(one.value("document.activeElement.tagName"))
        if summary is None and one.value("document.activeElement.tagName") == "SUMMARY":
            summary = one.value("document.activeElement.parentElement.open")
            one.press("Enter")
            assert one.value("document.activeElement.parentElement.open") is not summary
        if one.value("document.activeElement === document.body"):
            break
    assert {"A", "SELECT", "INPUT", "SUMMARY"} <= seen and summary is not None
    one.close()


def test_a_link_opens_what_is_folded(browser, pages):
    one = browser.open(pages("large"), fragment="#call-call_5")
    assert one.value("document.getElementById('call-call_5').open") is True
    one.value("document.querySelector('button[data-fold=open]').click()")
    assert one.value("document.querySelectorAll('#conversation details:not([open])').length") == 0
    one.close()


def test_on_paper_everything_is_open(browser, pages):
    one = browser.open(pages("failed"))
    closed = "document.querySelectorAll('details:not([open])').length"
    before = one.value(closed)
    one.value("window.addEventListener('beforeprint', () => { window.left = %s; })" % closed)
    assert one.paper().startswith(b"%PDF") and before > 0 and one.value("window.left") == 0 and one.value(closed) == before
    one.close()
