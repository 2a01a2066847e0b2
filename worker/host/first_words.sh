# The first words on a connection: find a Python that can run the worker, and become it. Read from stdin by whatever sh is
# there, so that no word has to pass a second shell (ssh). @WORDS@ are put in by channel.py. An empty line ends what a login has
# printed, which need not end with one (a terminal's title).
set -f
said=
# shellcheck disable=SC2043
for python in @PYTHONS@; do
    command -v "$python" >/dev/null 2>&1 || continue
    if why=$("$python" -I -S -c @CHECK@ 2>&1 </dev/null); then
        echo; echo @MARK@ ready
        exec "$python" -I -S -c @LOADER@
    fi
    said="$said $python: $why;"
done
echo
# shellcheck disable=SC2086
echo @MARK@ none $said
