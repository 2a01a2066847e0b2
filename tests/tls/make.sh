#!/bin/sh
# Test certificates, valid for 100 years and worthless outside the tests: ca.pem signs server.pem (127.0.0.1, ::1,
# localhost, model); other.pem is signed by nobody whom the tests trust; expired.pem by ca.pem, ended in 2001.
set -eu
cd "$(dirname "$0")"
san='subjectAltName=DNS:localhost,DNS:model,IP:127.0.0.1,IP:::1'
key() { openssl ecparam -genkey -name prime256v1 -noout -out "$1"; }
key ca.key
openssl req -x509 -new -key ca.key -subj '/CN=sandbox-worker test CA' -days 36500 -out ca.pem \
    -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign'
key server.key
printf '%s\nextendedKeyUsage=serverAuth\n' "$san" > ext
openssl req -new -key server.key -subj '/CN=localhost' |
    openssl x509 -req -CA ca.pem -CAkey ca.key -set_serial 2 -days 36500 -extfile ext -out server.pem
openssl req -x509 -new -key server.key -subj '/CN=localhost' -days 36500 -addext "$san" -out other.pem
openssl req -new -key server.key -subj '/CN=localhost' -out request
: > index.txt
echo 03 > serial
cat > conf <<'END'
[ca]
default_ca = d
[d]
database = index.txt
serial = serial
new_certs_dir = .
default_md = sha256
policy = p
[p]
commonName = supplied
END
openssl ca -batch -config conf -cert ca.pem -keyfile ca.key -in request -extfile ext \
    -startdate 20000101000000Z -enddate 20010101000000Z -notext -out expired.pem
rm -f ca.key ext request conf index.txt* serial* 03.pem
