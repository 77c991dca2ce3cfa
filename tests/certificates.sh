#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# certificates.sh SOURCE FOLDER: makes the certificates of docs/security.md by its own commands, and then those of
# strangers, and some that nobody can use.
set -e
commands=$(awk '/^### Making a CA/ {here = 1} here && /^```$/ {exit} here && block {print} here && /^```sh$/ {block = 1}' \
  "$1/docs/security.md")
[ -n "$commands" ] || { echo "docs/security.md has no commands that make a CA" >&2; exit 1; }
mkdir -p "$2" && cd "$2"
eval "$commands"

ec="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
# ca NAME, and cert CA NAME DAYS EXTENSION: as those commands.
ca() { openssl req -x509 $ec -days 30 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem"; }
cert() {
  openssl req $ec -subj "/CN=$2" -keyout "$2.key" -out "$2.csr"
  echo "$4" > "$2.ext"
  openssl x509 -req -in "$2.csr" -CA "$1.pem" -CAkey "$1.key" -CAcreateserial -days "$3" -extfile "$2.ext" -out "$2.pem"
  chmod 600 "$2.key"
}
name="subjectAltName=DNS:job-42"
ca other-ca
cert other-ca other 7 "$name"
cat ca.pem other-ca.pem > both-ca.pem
cert ca second 7 "$name"
cert ca nameless 7 "subjectAltName=DNS:job-43"
cert ca job-42 7 "keyUsage=digitalSignature" # the name, but as its subject alone
cert ca old -1 "$name"
cert ca server 7 "extendedKeyUsage=serverAuth"
cert ca middle 7 "basicConstraints=critical,CA:TRUE"
cert middle under 7 "$name"
cat middle.pem >> under.pem
openssl ec -in rank.key -aes256 -passout pass:sesame -out locked.key
chmod 600 locked.key
