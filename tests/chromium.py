"""A real headless Chromium, driven over its DevTools pipe: open a page, look, press keys, and see what it tried to do.

`Browser()` starts one with a profile of its own; `browser.open(path, ...)` gives a Page. The pipe (descriptors 3 and 4,
messages that end with NUL) needs neither port nor websocket.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
)
TO_3_AND_4 = """
import fcntl, os, sys
pair = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3]]    # out of the way of 3 and 4
for target, fd in zip((3, 4), pair):
    os.dup2(fd, target)
os.execv(sys.argv[3], sys.argv[3:])
"""
HANG = 120.0  # s: a guard, never a measure
KEYS = {"Tab": 9, "Enter": 13, "Space": 32}
TYPED = {"Enter": "\r", "Space": " "}


def program():
    return next(filter(None, map(shutil.which, NAMES)), None)


def why_not():
    return None if program() else "no Chromium here (Debian: apt-get install chromium)"


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        to_read, self.writer = os.pipe()
        self.reader, to_write = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", TO_3_AND_4, str(to_read), str(to_write), program(), *FLAGS, "--user-data-dir=" + self.profile],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(os.environ, HOME=self.profile, XDG_RUNTIME_DIR=self.profile),
        )
        os.close(to_read)
        os.close(to_write)
        self.number, self.buffer, self.events = 0, b"", []

    def close(self):
        try:
            self.send("Browser.close")
            self.process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)  # its own session: nothing else is in it
            except ProcessLookupError:
                pass
            self.process.wait()
            os.close(self.reader)
            os.close(self.writer)
            shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, session=None, **params):
        """The command's result; events that come meanwhile are kept."""
        self.number += 1
        number, message = self.number, {"id": self.number, "method": method, "params": params}
        os.write(self.writer, json.dumps(dict(message, **({"sessionId": session} if session else {}))).encode() + b"\0")
        return self.until(lambda one: one.get("id") == number, method)["result"]

    def until(self, wanted, what):
        end = time.monotonic() + HANG
        while True:
            message, zero, rest = self.buffer.partition(b"\0")
            if zero:
                self.buffer, one = rest, json.loads(message.decode())
                assert "error" not in one, "%s: %s" % (what, one.get("error"))
                if "method" in one:
                    self.events.append(one)
                if wanted(one):
                    return one
                continue
            ready = select.select([self.reader], [], [], max(0, end - time.monotonic()))[0]
            data = os.read(self.reader, 1 << 20) if ready else b""
            assert data, "Chromium said nothing to %s" % what
            self.buffer += data

    def open(self, path, width=1280, height=900, dark=False, fragment=""):
        return Page(self, path, width, height, dark, fragment)


class Page:
    """An open page. `url`; `events(method)`: what Chromium told of it since."""

    def __init__(self, browser, path, width, height, dark, fragment):
        self.browser, self.url = browser, "file://" + os.path.abspath(str(path)) + fragment
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.send("Page.navigate", url=self.url)
        browser.until(lambda one: one.get("method") == "Page.loadEventFired" and one.get("sessionId") == self.session, "load")
        self.send(
            "Runtime.evaluate",
            expression="new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))",
            awaitPromise=True,
        )

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def events(self, method):
        return [one["params"] for one in self.browser.events if one.get("sessionId") == self.session and one["method"] == method]

    def value(self, expression):
        """What a JavaScript expression is, as JSON."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": TYPED[key]} if kind == "keyDown" and key in TYPED else {}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=" " if key == "Space" else key,
                code=key,
                windowsVirtualKeyCode=KEYS[key],
                **text,
            )

    def type(self, text):
        self.send("Input.insertText", text=text)

    def picture(self, path):
        with open(str(path), "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def paper(self):
        return base64.b64decode(self.send("Page.printToPDF")["data"])

    def complaints(self):
        """Errors and warnings on the console, exceptions, dialogs."""
        entries = [one["entry"]["text"] for one in self.events("Log.entryAdded")]
        entries += [str(one["exceptionDetails"]) for one in self.events("Runtime.exceptionThrown")]
        entries += [str(one["args"]) for one in self.events("Runtime.consoleAPICalled")]
        return entries + ["dialog: " + one["message"] for one in self.events("Page.javascriptDialogOpening")]

    def asked(self):
        """The URLs that the page wanted."""
        return [one["request"]["url"] for one in self.events("Network.requestWillBeSent")]

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)
