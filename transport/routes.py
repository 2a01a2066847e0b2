"""Where a request goes. Pure: the upstream's address, the path a client asks for, and the query, joined without decoding.

Rules of this file
- The CLI's local base is `/v1` for responses and chat, nothing for messages and generate_content (DESIGN 11). A path in
  the configured base takes the local base's place; without one the path stays as it is (case A34).
- Escapes are never decoded and never added.
- Only paths of the model API get the real key, the configured headers and the configured query. Everything else, and
  anything with a dot segment (a server might resolve it to another path), goes to the same origin without them.
- A query pair that is configured replaces one of the same name from the client; `key` is the client's token and goes.
"""
from __future__ import annotations

LOCAL_BASE = {"responses": "/v1", "chat": "/v1", "messages": "", "generate_content": ""}
# Below the local base, what is the model API. Gemini's SDKs choose the version themselves.
API_PREFIXES = {"responses": ("/v1",), "chat": ("/v1",), "messages": ("/v1",),
                "generate_content": ("/v1beta", "/v1alpha", "/v1")}
DEFAULT_PORTS = {"http": 80, "https": 443}


class BadAddress(ValueError):
    pass


def split_url(url):
    """-> (scheme, host, port, path, query); host without brackets, with an IPv6 zone after %, path without a trailing slash,
    query without `?`."""
    scheme, found, rest = url.partition("://")
    scheme = scheme.lower()
    if not found or scheme not in DEFAULT_PORTS:
        raise BadAddress("a base URL begins with http:// or https://")
    rest = rest.partition("#")[0]
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    authority = authority.rpartition("@")[2]
    if authority.startswith("["):
        host, bracket, port = authority[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadAddress("an IPv6 address in a URL stands in brackets")
        host, port = host.replace("%25", "%"), port[1:]  # RFC 6874: a zone stands behind an escaped %
    else:
        host, _, port = authority.partition(":")
    if not host or (port and not (port.isdigit() and port.isascii() and 0 < int(port) < 65536)):
        raise BadAddress("a host, and a port from 1 to 65535")
    return scheme, host, int(port) if port else DEFAULT_PORTS[scheme], (slash + path).rstrip("/"), query


class Route:
    """The configured upstream. `join(target)` -> (upstream target, is it the model API)."""

    def __init__(self, base_url, api, query=None):
        self.scheme, self.host, self.port, self.path, base_query = split_url(base_url)
        self.api = api
        self._local = LOCAL_BASE.get(api, "")
        self._prefixes = API_PREFIXES.get(api, ("/v1",))
        if api == "messages" and self.path.endswith("/v1"):
            self.path = self.path[:-3]
        self._pairs = [pair for pair in base_query.split("&") if pair]
        self._pairs += ["%s=%s" % (_escape(name), _escape(str(value))) for name, value in (query or {}).items()]
        self._joined = {}  # targets are few, and asked for again and again
        self._names = {pair.partition("=")[0] for pair in self._pairs}
        self.name = self.host.partition("%")[0]  # a zone means something to this machine only
        host = "[%s]" % self.name if ":" in self.host else self.host
        self.authority = host if self.port == DEFAULT_PORTS[self.scheme] else "%s:%d" % (host, self.port)

    def is_api(self, path):
        return (any(path == prefix or path.startswith(prefix + "/") for prefix in self._prefixes)
                and not has_dot_segment(path))

    def join(self, target, key_pair=None):
        """Both are origin-form. `key_pair` is appended to the query of model API paths (auth `query`)."""
        known = self._joined.get((target, key_pair))
        if known is None:
            if len(self._joined) > 256:
                self._joined.clear()
            known = self._joined[target, key_pair] = self._join(target, key_pair)
        return known

    def _join(self, target, key_pair):
        path, mark, query = target.partition("?")
        api = self.is_api(path)
        pairs = [pair for pair in query.split("&") if pair.partition("=")[0] != "key"] if mark else []
        if api:
            if self.path:
                path = self._base_for(path) + path[len(self._local):]
            ours = self._pairs + [key_pair] if key_pair else self._pairs
            pairs = self._pairs + [pair for pair in pairs if pair and pair.partition("=")[0] not in self._names]
            pairs += ours[len(self._pairs):]
        query = "&".join(pairs)
        return (path + "?" + query if query or (mark and not pairs and target.endswith("?")) else path), api

    def _base_for(self, path):
        """Gemini's clients bring the version; a base that ends in the same one does not say it twice."""
        if self.api == "generate_content":
            version = "/" + path.split("/", 2)[1]
            if self.path.endswith(version):
                return self.path[:-len(version)]
        return self.path

    def same_origin(self, location):
        """Does a redirect stay at the configured origin? Relative references do (RFC 3986 4.2)."""
        location = location.replace("\\", "/").lower()  # browsers and some HTTP libraries take one for the other
        if location.startswith("//"):
            location = self.scheme + ":" + location
        elif ":" not in location.partition("?")[0].partition("#")[0].partition("/")[0]:
            return True
        try:
            return split_url(location)[:3] == (self.scheme, self.host.lower(), self.port)
        except BadAddress:
            return False


def has_dot_segment(path):
    """Also escaped, escaped twice, with backslashes, or with a path parameter, as some servers read it ("/..;/")."""
    if "." not in path and "%2" not in path.lower():
        return False
    plain, seen = path.lower(), None
    while plain != seen:
        seen, plain = plain, plain.replace("%25", "%")
    plain = plain.replace("%2e", ".").replace("%2f", "/").replace("\\", "/").replace("%5c", "/").replace("%3b", ";")
    return any(segment.partition(";")[0] in (".", "..") for segment in plain.split("/"))


def token_in_query(target, token):
    query = target.partition("?")[2]
    return any(pair == "key=" + token for pair in query.split("&"))


def _escape(text):
    """Percent-encode what may not stand in a query component (RFC 3986 section 3.4)."""
    return "".join(chr(c) if chr(c).isalnum() and c < 128 or chr(c) in "-._~" else "%%%02X" % c for c in text.encode())
