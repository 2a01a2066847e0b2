# sandbox-worker as plain ASCII text, for channels that carry nothing else: run this file with Python 3.8 or later.
#
# The code on top checks length and SHA-256 of the whole file, then runs the bundle whose files stand below as comment
# lines: "#@ name", then each line behind a "#" (base64 where a file is not plain ASCII). So a file that was cut still
# parses, and says so in one sentence. Line ends may have become CRLF on the way. Like worker/__main__.py, it parses on
# any Python from 2.7 on.
import sys


def give_up(code, sentence):
    sys.stderr.write("sandbox-worker: %s\n" % sentence)
    sys.exit(code)


def read_files(path):
    """-> {name: bytes}; the last line, "#@ end LENGTH SHA256", seals all that stands above it."""
    import binascii
    import hashlib
    with open(path, "rb") as file:
        text = file.read().replace(b"\r\n", b"\n")
    whole, _, seal = text.rpartition(b"\n#@ end ")
    if seal.split() != [b"%d" % len(whole), hashlib.sha256(whole).hexdigest().encode()]:
        give_up(65, "the bundle is damaged, copy it again: this file of %d bytes does not end as it was built"
                % len(text))
    files = {}
    for part in whole.split(b"\n#@ ")[1:]:
        name, newline, body = part.partition(b"\n")
        name, _, encoded = name.decode().partition(" ")
        content = (newline + body).replace(b"\n#", b"\n")[1:] + newline
        files[name] = binascii.a2b_base64(content) if encoded else content
    return files


if __name__ == "__main__":
    if sys.version_info < (3, 8):
        give_up(69, "Python 3.8 or later is needed; %s is %d.%d" % ((sys.executable,) + sys.version_info[:2]))
    try:
        FILES = read_files(__file__)
    except ImportError as missing:
        give_up(69, "this Python (%s) is not complete: %s" % (sys.executable, missing))
    exec(compile(FILES["__main__.py"], __file__ + "/__main__.py", "exec", dont_inherit=True),
         {"__name__": "__main__", "__file__": __file__, "TEXT_FORM": FILES})
