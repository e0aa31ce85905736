"""Folders of documents are read whole, or what is not read is told, and cut by their headings."""

import io
import json
import zipfile

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from st_jtcse.cli import train
from st_jtcse.data import Source, load_sentences
from st_jtcse.data.judged_corpus import load_judged_corpus
from st_jtcse.data.passages import Report, read_passages
from st_jtcse.errors import UserError

MARKDOWN = """---
author: nobody
---
# Guide

Read *all* of [this](https://example.org).

## Install

Run `setup` first.

```
# no heading

x = 1
```
"""
HTML = """<html><head><title>Shop | Site</title><style>p {}</style></head><body>
<nav>Home Products</nav><h1>Shop</h1><p>We sell tea &amp; coffee_beans.</p></body></html>"""
RST = """Manual
======

.. include:: /etc/hostname

Use
---

Turn the key.
"""


def pdf(text="", password=None):
    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    if text:
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    held = io.BytesIO()
    writer.write(held)
    return held.getvalue()


def word(*paragraphs):
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(
            "word/document.xml", f"<w:document {space}><w:body>{body}</w:body></w:document>"
        )
        archive.writestr(
            "word/styles.xml",
            f'<w:styles {space}><w:style w:type="paragraph" w:styleId="Heading1">'
            '<w:name w:val="heading 1"/></w:style></w:styles>',
        )
        archive.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            '<Relationship Id="r" Target="word/document.xml" Type="http://schemas.openxmlformats.'
            'org/officeDocument/2006/relationships/officeDocument"/></Relationships>',
        )
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        )
    return held.getvalue()


def folder_of(path, **files):
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        stem, _, suffix = name.rpartition("_")
        (path / f"{stem}.{suffix}").write_bytes(raw)
    return path


def read(place, **how):
    report = Report(place)
    return list(read_passages(place, report=report, **how)), report


def test_each_kind_of_document_becomes_passages_with_its_place(tmp_path):
    folder = folder_of(
        tmp_path / "docs",
        a_md=MARKDOWN,
        b_html=HTML,
        c_rst=RST,
        d_pdf=pdf("The pump is checked every year by hand"),
        e_docx=word(("Heading1", "Letter"), ("Normal", "We met on Monday.")),
        f_txt="# 1 in a list\nof caf\xe9s".encode("latin-1"),
        g_txt="Plain text in UTF-16".encode("utf-16"),
    )
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.md").write_text("not read")
    (folder / "loop").symlink_to(folder)
    (folder / "same.md").symlink_to(folder / "a.md")
    passages, report = read(folder)
    assert [(one.source, one.title, one.headings, one.text) for one in passages] == [
        ("a.md", "Guide", ("Guide",), "Read all of this."),
        ("a.md", "Guide", ("Guide", "Install"), "Run setup first. ``` # no heading x = 1 ```"),
        ("b.html", "Shop", ("Shop",), "We sell tea & coffee_beans."),
        ("c.rst", "Manual", ("Manual", "Use"), "Turn the key."),
        ("d.pdf", "d", (), "The pump is checked every year by hand"),
        ("e.docx", "Letter", ("Letter",), "We met on Monday."),
        ("f.txt", "f", (), "# 1 in a list of cafés"),
        ("g.txt", "g", (), "Plain text in UTF-16"),
    ]
    assert [one.name for one in passages[:3]] == ["a.md#1", "a.md#2", "b.html#1"]
    assert report.lines == [f"{folder}: 8 passages of 7 files"]
    # A wildcard names some of them, from its own folder on.
    assert [one.source for one in read(tmp_path / "*" / "[bc].*")[0]] == [
        "docs/b.html",
        "docs/c.rst",
    ]


def test_what_cannot_be_read_is_told_and_counted(tmp_path):
    folder = folder_of(
        tmp_path / "docs",
        a_md="Text.",
        empty_txt="",
        headings_html="<p></p>",
        locked_pdf=pdf("Nobody reads this text without a key", "secret"),
        scan_pdf=pdf(),
        torn_pdf=b"%PDF-1.7 torn",
        torn_docx=b"PK torn",
        binary_txt=b"\0\1\2\xff" * 9,
    )
    passages, report = read(folder)
    assert [one.text for one in passages] == ["Text."]
    assert report.skipped == {
        "empty": ["empty.txt"],
        "without text": ["headings.html"],
        "encrypted": ["locked.pdf"],
        "scanned, without text": ["scan.pdf"],
        "damaged": ["torn.pdf"],
        "damaged, or encrypted": ["torn.docx"],
        "no text, or of an unknown encoding": ["binary.txt"],
    }
    assert f"{folder}: 1 skipped, encrypted: locked.pdf" in report.lines
    (folder / "a.md").write_text("# A heading alone\n")
    with pytest.raises(
        UserError, match=r"expected documents with text, found none .*1 skipped, emp"
    ):
        read(folder)
    with pytest.raises(UserError, match=r"expected files of documents \(\.md, .*found none"):
        read(tmp_path / "*.md")


def test_text_that_repeats_over_files_is_left_out(tmp_path):
    notice = "All rights reserved,\nwhatever they are."
    files = {f"f{at}_md": f"# File {at}\n\nText {at}.\n\n{notice}\n" for at in range(12)}
    few = {f"g{at}_md": "Only in two files.\n" for at in range(2)}
    passages, report = read(folder_of(tmp_path, **files, **few))
    assert [one.text for one in passages][-3:] == ["Text 9.", *["Only in two files."] * 2]
    assert report.repeated == 12
    assert "12 blocks of text are left out, which repeat over 3 files" in report.lines[1]


def test_long_sections_are_cut_between_sentences(tmp_path):
    sentences = [f"Sentence number {at} says a little more." for at in range(40)]
    folder_of(tmp_path, a_md="# One\n\n" + " ".join(sentences) + "\n\n# Two\n\nShort.\n")
    passages, _ = read(tmp_path, size=200)
    assert " ".join(one.text for one in passages[:-1]) == " ".join(sentences)
    assert max(len(one.text) for one in passages) <= 200
    assert all(one.text.endswith(".") for one in passages)
    assert passages[-1].headings == ("Two",)


def test_a_folder_is_trained_on_passage_by_passage(tmp_path, caplog):
    folder = folder_of(tmp_path / "docs", a_md=MARKDOWN, b_html=HTML, c_txt="")
    rows = load_sentences([Source(folder)]).rows
    expected = ["Read all of this.", "Run setup first. ``` # no heading x = 1 ```"]
    assert rows["sentence"][:2] == expected
    assert "docs: 3 passages of 2 files" in caplog.text
    assert "docs: 1 skipped, empty: c.txt" in caplog.text
    # One document, whatever is beside it, and a folder as what queries search.
    assert load_sentences([Source(folder / "a.md")]).rows["sentence"][:] == expected
    queries = tmp_path / "queries.csv"
    queries.write_text("query,relevant\nhow to set up,a.md\ntea,b.html\n")
    corpus = load_judged_corpus(Source(queries, corpus=folder))
    assert (corpus.names, corpus.starts) == (["b.html", "a.md"], [0, 1])
    assert corpus.texts[1] == f"Guide {expected[0]}"


def test_the_command_writes_what_training_and_search_read(tmp_path, capsys):
    folder = folder_of(tmp_path / "docs", a_md=MARKDOWN, b_html=HTML, c_pdf=b"torn")
    output = tmp_path / "search" / "corpus.jsonl"
    assert train.main(["texts", str(folder), "-o", str(output)]) == 0
    told = capsys.readouterr().out
    assert "3 passages of 2 files" in told and "1 skipped, damaged: c.pdf" in told
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert rows[1] == {
        "_id": "a.md#2",
        "title": "Guide",
        "text": "Run setup first. ``` # no heading x = 1 ```",
        "headings": ["Guide", "Install"],
        "source": "a.md",
    }
    assert load_sentences([Source(output)]).rows["sentence"][:] == [row["text"] for row in rows]
    assert train.main(["texts", str(folder), "-o", str(output)]) == 2
    assert "--output: " in (told := capsys.readouterr().err) and "exists already" in told
    assert train.main(["texts", str(tmp_path / "none"), "-o", str(tmp_path / "x.jsonl")]) == 2
    assert "expected files of documents" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()
