"""The page: whole, escaped, readable aloud, and asking nothing of the network."""

import base64
import re
from html.parser import HTMLParser

from st_jtcse.reports.page import Picture, Section, grouped, render_page
from st_jtcse.reports.table import Table

SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"></svg>'
VOID = {"meta", "img", "source", "link", "br", "hr", "input"}


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


SECTIONS = [
    Section(
        "Scores",
        "One.\n\nTwo <i>.",
        Table(["model", "score"], [["<b>bold</b>", "1.5"], ["plain", "2"]]),
    ),
    Section("Picture", picture=Picture(SVG, SVG + b"<!-- narrow -->", 'a "quoted" <alt>')),
    Section("Another", picture=Picture(SVG, SVG, "dots")),
]


def test_the_page_is_whole_and_asks_nothing_of_the_network():
    page = render_page("A title", SECTIONS)
    reader = read(page)
    assert page.startswith("<!DOCTYPE html>") and reader.all("html") == [{"lang": "en"}]
    assert not re.search(r"https?:|//|url\(|@import", page.replace("</", ""))
    assert not {"script", "link", "iframe"} & {tag for tag, _ in reader.tags}
    (policy,) = [
        meta for meta in reader.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy["content"].startswith("default-src 'none'")
    assert "@media (prefers-color-scheme: dark)" in page


def test_all_text_is_escaped():
    page = render_page("<script>alert(1)</script>", SECTIONS)
    reader = read(page)
    assert "<b>" not in page and "<i>" not in page and "<script>" not in page
    assert ("th", "<b>bold</b>") in reader.texts and ("p", "Two <i>.") in reader.texts
    assert ("h1", "<script>alert(1)</script>") in reader.texts


def test_pictures_are_inside_the_page_and_say_what_they_show():
    first, second = read(render_page("t", SECTIONS)).all("img")
    assert first["alt"] == 'a "quoted" <alt>' and second["alt"] == "dots"
    narrow = read(render_page("t", SECTIONS)).all("source")
    assert all(source["media"].startswith("(max-width: ") for source in narrow)
    for address, data in (
        (first["src"], SVG),
        (second["src"], SVG),
        (narrow[0]["srcset"], SVG + b"<!-- narrow -->"),
    ):
        head, content = address.split(",")
        assert head == "data:image/svg+xml;base64" and base64.b64decode(content) == data


def test_tables_and_headings_can_be_found_by_keyboard_and_by_ear():
    reader = read(render_page("t", SECTIONS))
    assert [attributes["scope"] for attributes in reader.all("th")] == ["col", "col", "row", "row"]
    assert [text for tag, text in reader.texts if tag in ("h1", "h2") and text] == [
        "t",
        "Scores",
        "Picture",
        "Another",
    ]
    anchors = [attributes["href"] for attributes in reader.all("a")]
    assert anchors == [f"#{attributes['id']}" for attributes in reader.all("h2")]
    regions = [attributes for attributes in reader.all("div") if attributes.get("role") == "region"]
    assert len(regions) == 1 and all(
        region["tabindex"] == "0" and region["aria-label"] for region in regions
    )


def test_what_was_told_of_several_is_one_paragraph():
    told = [("no pooler.", "a"), ("no map.", "a"), ("no pooler.", "b")]
    assert grouped(told) == ["a, b: no pooler.", "a: no map."]
