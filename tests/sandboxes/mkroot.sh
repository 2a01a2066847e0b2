#!/bin/sh
# mkroot.sh PYTHON DEST: a root file system from this machine's busybox and one of its Pythons; no network.
#
# PYTHON is a path such as ~/.pyenv/versions/3.8.18/bin/python3.8 or /usr/bin/python3. DEST gets busybox's applets, the
# interpreter with its standard library (without test suites) in /usr/local, and every library that `ldd` finds for it.
# 60-80 MB, 1-2 s. It has no bash, no certificates, no package manager.
set -eu
python=$1 root=$2
busybox=$(command -v busybox) || { echo "mkroot.sh: busybox is missing (Debian: busybox-static)" >&2; exit 69; }
if ldd "$busybox" >/dev/null 2>&1; then
    echo "mkroot.sh: $busybox is not static (Debian: busybox-static)" >&2; exit 69
fi
rm -rf "$root"
for dir in bin proc sys dev tmp etc root run usr/local/bin var/tmp; do mkdir -p "$root/$dir"; done
chmod 1777 "$root/tmp" "$root/var/tmp"

cp "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"      # a link to itself would be a loop
done

exe=$("$python" -I -S -c 'import os, sys; print(os.path.realpath(sys.executable))')
lib=$("$python" -I -S -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
name=$(basename "$lib")
prefix=$(dirname "$(dirname "$lib")")
mkdir -p "$root/usr/local/lib"
cp "$exe" "$root/usr/local/bin/$name"          # an interpreter finds its library from where it lies itself
ln -s "$name" "$root/usr/local/bin/python3"
tar -c -C "$(dirname "$lib")" --exclude=test --exclude=tests --exclude=idlelib --exclude=tkinter --exclude=ensurepip \
    --exclude=site-packages --exclude=dist-packages --exclude=__pycache__ --exclude='config-*' --exclude='*.a' \
    --exclude=lib2to3 --exclude=turtledemo "$name" | tar -x -C "$root/usr/local/lib"
mkdir -p "$root/usr/local/lib/$name/site-packages"

# Libraries go to the very path that ldd names, but for libpython of a Python with a prefix of its own.
{
    ldd "$exe"
    for file in "$lib"/lib-dynload/*.so; do ldd "$file" 2>/dev/null || true; done
    for file in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2 libgcc_s.so.1; do
        find /lib /usr/lib -name "$file" 2>/dev/null | head -1 | sed 's/^/x => /'
    done
} | awk '/=> \//{print $3} /^[ \t]*\//{print $1}' | sort -u | while read -r file; do
    case $prefix:$file in
        /usr:*) to=$file ;;
        *:"$prefix"/*) to=/usr/local/lib/$(basename "$file") ;;
        *) to=$file ;;
    esac
    mkdir -p "$root$(dirname "$to")"
    cp -L "$file" "$root$to"
    dirname "$to"
done | sort -u > "$root/etc/ld.so.conf"
ldconfig -r "$root"
printf 'root:x:0:0:root:/root:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\n' > "$root/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$root/etc/hosts"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
chroot "$root" /usr/local/bin/python3 -I -S -c 'import ssl, json, ctypes, socket, hashlib'
