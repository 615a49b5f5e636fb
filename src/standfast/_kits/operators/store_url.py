"""Parsed URL of a store: scheme, path, and standfast's own options."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.base.type_names import describe_type

OPTIONS = frozenset({"sessions_table", "messages_table", "schema", "key_prefix", "layout", "cluster"})
"""Options of ours that a URL may carry; every other one is left to the database's own library."""


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A store's URL, taken apart."""

    text: str
    """As it was given, without the options that are ours; it may hold a password."""
    scheme: str
    """The kind of database."""
    driver: str
    """Behind a plus: the library that SQLAlchemy is to use; "" where none is named."""
    path: str
    """What stands behind the scheme and the host, unquoted; of a file its path."""
    options: Mapping[str, str]
    """What stood behind the question mark and is meant for standfast."""

    @property
    def shown(self) -> str:
        """URL fit for printing and keeping: without a password, with standfast's options."""
        text = without_password(self.text)
        if self.scheme == "sqlite" or not self.options:
            return text
        return f"{text}{'&' if '?' in text else '?'}{urlencode(self.options)}"

    def password_hidden_in(self, text: str) -> str:
        """Remove the password from a text: errors of a server may quote the address."""
        try:
            password = urlsplit(self.text).password
        except ValueError:
            password = None
        return text.replace(password, "***") if password else text


_LIBPQ = re.compile(
    r"\s*(?:(?:host|hostaddr|port|dbname|user|password|passfile|service|options|application_name|ssl\w+|\w+_timeout)"
    r"\s*=\s*(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])*)(?:\s+|$))+"
)
"""Settings of a connection as libpq takes them: `host=localhost password='two words'`."""


def parse_url(url: str | os.PathLike[str]) -> StoreURL:
    """A URL or a path, taken apart."""
    if not isinstance(url, str | os.PathLike) or not isinstance(os.fspath(url), str):
        raise SettingTypeError(f"{describe_type(url)} names no store", "Give a URL, or the path of a database file.")
    text = os.fspath(url)
    if not text:
        raise InvalidSettingError("an empty text names no store", "Give a URL, or the path of a database file.")
    scheme, separator, rest = text.partition("://")
    if isinstance(url, str) and _LIBPQ.fullmatch(text) and not os.path.exists(text):
        # Not quoted: there may be a password in it, and it would be printed as the name of a file.
        raise InvalidSettingError(
            "keywords of PostgreSQL's library (host=… dbname=…) name no store here",
            "Give them as a URL: postgresql://user@host:5432/database.",
        )
    if not separator or isinstance(url, os.PathLike):
        return StoreURL(text, "sqlite", "", text, {})
    scheme, _, driver = scheme.lower().partition("+")  # SQLAlchemy's way of naming a driver
    if scheme == "sqlite":
        # By hand: to urlsplit the first part of a relative path may look like a host.
        path, _, query = rest.partition("?")
        options = dict(parse_qsl(query))
        return StoreURL(text, scheme, driver, unquote(path[1:] if path.startswith("/") else path), options)
    parts = urlsplit(text)
    given = parse_qsl(parts.query)
    ours = {name: value for name, value in given if name in OPTIONS}
    theirs = "&".join(one for one in parts.query.split("&") if one.partition("=")[0] not in OPTIONS)
    return StoreURL(parts._replace(query=theirs).geturl(), scheme, driver, unquote(parts.path), ours)


def without_password(url: str) -> str:
    """Return a URL fit for printing."""
    before, separator, rest = url.partition("://")
    if not separator:
        return url
    rest = re.sub(r"([?&]password=)[^&]*", r"\1***", rest)  # PostgreSQL's library takes it there too
    if "@" not in rest:
        return f"{before}://{rest}"
    place = rest.partition("/")[0]
    user, _, host = place.rpartition("@")
    name = user.partition(":")[0]
    return f"{before}://{name + ':***@' if ':' in user else user + '@'}{host}{rest[len(place) :]}"


def only(url: StoreURL, *names: str) -> dict[str, str]:
    """Return the options of a URL; raise for any option not among `names`."""
    for name in url.options:
        if name not in names:
            raise InvalidSettingError(
                f"{name!r} is no option of a {url.scheme}:// store",
                f"It has {', '.join(names)}." if names else "It has none.",
            )
    return dict(url.options)
