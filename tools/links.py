"Every link of a built site: files and anchors that aren't there, and what a page would fetch from another machine."
import re
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHES = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data"), ("use", "href"), ("image", "href"), ("embed", "src"), ("video", "src")}
HARMLESS = {"canonical", "search", "next", "prev", "author", "index", "license"}   # <link rel>: named, not fetched


@dataclass
class Seen(HTMLParser):
    "What one page names."
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)      # followed by a reader
    fetched: list[str] = field(default_factory=list)    # by the browser, unasked

    def __post_init__(self): super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attrs):
        a = {k: v or "" for k, v in attrs}
        self.ids |= {a[k] for k in ("id", "name") if k in a}
        if tag == "a" and "href" in a: self.links.append(a["href"])
        if tag == "link" and set(a.get("rel", "").split()) <= HARMLESS: return
        self.fetched += [a[k] for t, k in FETCHES if t == tag and k in a]
        if "srcset" in a: self.fetched += [part.split()[0] for part in a["srcset"].split(",") if part.strip()]
        self.fetched += re.findall(r"url\(['\"]?([^'\")]+)", a.get("style", ""))

    handle_startendtag = handle_starttag


def read(root: Path) -> dict[Path, Seen]:
    "All pages below `root`."
    pages = {}
    for path in sorted(root.rglob("*.html")):
        if "_static" in path.relative_to(root).parts: continue
        pages[path.resolve()] = seen = Seen()
        seen.feed(path.read_text())
    return pages


def outside(address: str) -> bool: return bool(re.match(r"(https?|wss?|ftp):|//", address))


def broken(root: Path, pages: dict[Path, Seen], path: Path, address: str) -> str:
    "Why a local address leads nowhere; '' where it leads somewhere."
    parts = urlsplit(address)
    if outside(address) or parts.scheme in ("mailto", "data", "javascript", "about"): return ""
    target = (path.parent/unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir(): target = target/"index.html"
    if not target.exists(): return "no such file"
    if root.resolve() not in target.parents: return "outside the site"
    return "no such anchor" if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids else ""


def check(root: Path) -> tuple[list[str], dict[str, list[str]], list[str]]:
    "Broken local addresses; outside links and the pages they stand on; what would be fetched from outside."
    pages, bad, out, fetched = read(root), [], defaultdict(list), []
    for path, seen in pages.items():
        name = path.relative_to(root.resolve()).as_posix()
        for address in dict.fromkeys(seen.links + seen.fetched):
            if why := broken(root, pages, path, address): bad.append(f"{name}: {address}: {why}")
        for address in seen.links:
            if outside(address): out[address].append(name)
        fetched += [f"{name}: {address}" for address in seen.fetched if outside(address)]
    for style in root.rglob("*.css"):
        fetched += [f"{style.relative_to(root)}: {u}" for u in re.findall(r"(?:url\(|@import )['\"]?((?:https?:)?//[^'\")]+)", style.read_text(errors="replace"))]
    return bad, dict(out), fetched


def report(root: Path) -> int:
    "Print what `check` finds; 1 where a local address is broken or something is fetched from outside."
    bad, out, fetched = check(root)
    for line in bad: print("broken:", line)
    for line in fetched: print("fetched from elsewhere:", line)
    for address, names in sorted(out.items()): print(f"not checked (elsewhere): {address} on {len(names)} page(s), such as {names[0]}")
    print(f"{len(read(root))} pages, {len(bad)} broken, {len(fetched)} fetched from elsewhere, {len(out)} outside addresses")
    return int(bool(bad or fetched))
