#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# links.sh ROOT: every link from a page of this repository to one of its files leads somewhere.
set -eu
cd "${1:?usage: links.sh ROOT}"
pages=$(find . \( -name 'build*' -o -name shared -o -name '.?*' \) -prune -o -type f -name '*.md' -print | LC_ALL=C sort)
missing=$(for page in $pages; do
    grep -oE '\]\([^)# ]+' "$page" | cut -c3- | grep -v '://' | sort -u | while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || echo "$page: there is no $link"
    done
done)
[ -z "$pages" ] && missing="links: found no page"
[ -z "$missing" ] || { echo "$missing"; exit 1; }
echo "links: all lead somewhere, of $(echo "$pages" | wc -l) pages"
