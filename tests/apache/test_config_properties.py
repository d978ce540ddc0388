"""The reader of `.properties` text, against examples, against its writer, and against Java."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.apache.properties import (
    MalformedProperties,
    Property,
    format_property,
    parse_properties,
)

# Text and what it holds; the last of two equal keys counts. Java is asked about the same texts.
CASES: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"\n\n \t\f\r\n", {}),
    (b"a=1", {"a": "1"}),
    (b"a=1\nb=2\rc=3\r\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    (b"  a = 1  ", {"a": "1  "}),
    (b"a:1\nb 2\nc\t3\nd\f4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    (b"a = = 1\nb : : 2\nc =: 3\nd   4 = 5", {"a": "= 1", "b": ": 2", "c": ": 3", "d": "4 = 5"}),
    (b"a\nb=\nc:\nd ", {"a": "", "b": "", "c": "", "d": ""}),
    (b"=1", {"": "1"}),
    (b":", {"": ""}),
    (b"# a=1\n! b=2\n  # c=3\n\t!d\ne=5 # not a comment", {"e": "5 # not a comment"}),
    (b"# continued? \\\na=1", {"a": "1"}),
    (b"a=1\\\n2\\\n   3", {"a": "123"}),
    (b"a=1\\\r\n  2\\\r  3", {"a": "123"}),
    (b"a=1\\\n# 2", {"a": "1# 2"}),
    (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    (b"a=1\\\n   \nb=2", {"a": "1", "b": "2"}),
    (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    (b"a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
    (b"a=1\\", {"a": "1"}),
    (b"a\\\n=\\\n1", {"a": "1"}),
    (b"\\\na=1", {"a": "1"}),
    (b"\\\n#a=1\nb=2", {"b": "2"}),
    (b"\\", {"": ""}),
    (b"\\\n", {"": ""}),
    (b"\\\r", {"": ""}),
    (b"\\\r\n", {}),
    (b"\\\n\n", {}),
    (b"\\\n  ", {}),
    (b"\\\n\\", {"": ""}),
    (b"a\\=b=1\na\\:c:2\na\\ d 3", {"a=b": "1", "a:c": "2", "a d": "3"}),
    (b"\\#e=4\n\\!f=5", {"#e": "4", "!f": "5"}),
    (b"a=\\t\\n\\r\\f\\b\\q\\\\\\=", {"a": "\t\n\r\fbq\\="}),
    (b"\\u0061\\u003d=\\u00e9\\u20AC", {"a=": "é€"}),
    (b"a=\\ud83d\\ude00\\ud83d", {"a": "😀\ud83d"}),
    (b"a=\\\\u0041", {"a": "\\u0041"}),
    (b"a=\xe9\xc3\xa9", {"a": "é\xc3\xa9"}),
    (b"a=\\\xe9", {"a": "é"}),
    (b"a=1\x0b2\x1c3\x85\xa04", {"a": "1\x0b2\x1c3\x85\xa04"}),
    (b"\x0ba=1", {"\x0ba": "1"}),
    (b"a=1\na=2\n a:3", {"a": "3"}),
    (b"a=1\x002", {"a": "1\x002"}),
    (b"\xef\xbb\xbfa=1", {"ï»¿a": "1"}),
    (b"server.1=[::1]:2888:3888;2181", {"server.1": "[::1]:2888:3888;2181"}),
    (b"dataDir=C\\:\\\\zk\\\\data", {"dataDir": "C:\\zk\\data"}),
    (b"dataDir=C:\\zk\\data", {"dataDir": "C:zkdata"}),
]  # fmt: skip

REFUSED = [b"a=\\u", b"a=\\u12", b"a=\\u12g4", b"\\uXXXX=1", b"a=\\u 123", b"a=\\u+123"]


def as_map(properties: Sequence[Property]) -> dict[str, str]:
    return {key: value for key, value, _ in properties}


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_text__is_read_as_java_reads_it(text: bytes, expected: dict[str, str]) -> None:
    assert as_map(parse_properties(text)) == expected
    assert as_map(parse_properties(text.decode("iso-8859-1"))) == expected


@pytest.mark.parametrize("text", REFUSED)
def test_broken_escape__is_refused_with_its_line(text: bytes) -> None:
    with pytest.raises(MalformedProperties, match=r"line 3: \\u needs four hexadecimal digits"):
        parse_properties(b"# first\nb=2\n" + text)


def test_line__is_the_one_on_which_the_key_begins() -> None:
    text = "# one\n\na=1\\\n  2\\\n  3\r\nb=2\r\r\nc=3\n\\\n\\\nd=4\na=5\n"

    assert parse_properties(text) == [
        Property("a", "123", 3),
        Property("b", "2", 6),
        Property("c", "3", 8),
        Property("d", "4", 11),
        Property("a", "5", 12),
    ]


def test_many_continued_lines__take_linear_time() -> None:
    text = "a=" + "x\\\n" * 100_000

    assert as_map(parse_properties(text)) == {"a": "x" * 100_000}


_TEXT = st.text(st.characters(codec="utf-16"), max_size=20) | st.text(
    " \t\f\r\n\\=:#!ua0é€😀", max_size=20
)


@given(st.lists(st.tuples(_TEXT, _TEXT), max_size=5))
def test_what_is_written__is_read_back(pairs: list[tuple[str, str]]) -> None:
    text = "".join(format_property(key, value) + "\n" for key, value in pairs)

    assert text.isascii()
    assert [(key, value) for key, value, _ in parse_properties(text)] == pairs
    assert [line for _, _, line in parse_properties(text)] == list(range(1, len(pairs) + 1))


_TRICKY_BYTES = st.lists(
    st.sampled_from(
        [
            *(bytes([byte]) for byte in b"ab=: \t\f#!\\\r\n\xe9"),
            b"\\u0041",
            b"\\u",
            b"\\\n",
            b"\r\n",
        ]
    ),
    max_size=24,
).map(b"".join)


@given(_TRICKY_BYTES | st.binary(max_size=40))
def test_any_bytes__are_read_or_refused(text: bytes) -> None:
    try:
        found = [line for _, _, line in parse_properties(text)]
    except MalformedProperties as error:
        found = [error.line]

    lines = text.count(b"\n") + text.count(b"\r") + 1
    assert found == sorted(found)
    assert all(1 <= line <= lines for line in found)


# Reads texts in hexadecimal, one a line, and answers each with pairs of UTF-16 code units in
# hexadecimal, or with "refused".
_JUDGE = """
import java.io.*;
import java.util.*;

public class Judge {
    static String hex(String text) {
        StringBuilder out = new StringBuilder();
        for (char unit : text.toCharArray()) out.append(String.format("%04x", (int) unit));
        return out.toString();
    }
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] bytes = new byte[line.length() / 2];
            for (int i = 0; i < bytes.length; i++)
                bytes[i] = (byte) Integer.parseInt(line.substring(2 * i, 2 * i + 2), 16);
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(bytes));
            } catch (IllegalArgumentException refused) {
                System.out.println("refused");
                continue;
            }
            StringJoiner out = new StringJoiner(",", "[", "]");
            for (String key : properties.stringPropertyNames())
                out.add("[\\"" + hex(key) + "\\",\\"" + hex(properties.getProperty(key)) + "\\"]");
            System.out.println(out);
        }
    }
}
"""


def ask_java(java: str, folder: Path, texts: Sequence[bytes]) -> list[dict[str, str] | None]:
    """What `java.util.Properties` makes of each text; None where it refuses one."""
    source = folder / "Judge.java"
    source.write_text(_JUDGE)
    answer = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", str(source)],
        input="".join(text.hex() + "\n" for text in texts),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    read: list[dict[str, str] | None] = []
    for line in answer.stdout.splitlines():
        if line == "refused":
            read.append(None)
            continue
        units = json.loads(line)
        decoded = [
            [bytes.fromhex(part).decode("utf-16-be", "surrogatepass") for part in pair]
            for pair in units
        ]
        read.append(dict(decoded))
    return read


def tricky_texts(count: int) -> list[bytes]:
    """Texts made of the characters that the format is about; always the same ones."""
    pieces = [bytes([byte]) for byte in b"ab=: \t\f#!\\\r\n\xe9\x0b"]
    pieces += [b"\\u0041", b"\\u00", b"\\\n", b"\\\r\n", b"\r\n", b"\\ud83d", b"\\ude00"]
    state = 12345
    texts = []
    for _ in range(count):
        text = b""
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        for _ in range(1 + (state >> 40) % 14):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            text += pieces[(state >> 33) % len(pieces)]
        texts.append(text)
    return texts


@pytest.mark.conformance
def test_java_reads_the_same(tmp_path: Path) -> None:
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        pytest.skip("no Java development kit on the PATH")
    texts = [*(text for text, _ in CASES), *REFUSED, *tricky_texts(20_000)]
    written = [format_property(key, value).encode() for key, value in _WRITTEN]
    texts += written

    answers = ask_java(java, tmp_path, texts)

    assert len(answers) == len(texts)
    for text, expected in zip(texts, answers, strict=True):
        try:
            found: dict[str, str] | None = as_map(parse_properties(text))
        except MalformedProperties:
            found = None
        assert found == expected, text
    assert answers[-len(written) :] == [{key: value} for key, value in _WRITTEN]


_WRITTEN = [
    ("dataDir", "C:\\zk data\\é"),
    ("a b=c", "  lead and trail  "),
    ("#!", "\t\n\r\f\\"),
    ("😀", "€ \ud83d"),
    ("", ""),
]
