#!/bin/sh
# CPU time of the whole machine for a page that wrk reads: its servers are several, and have children.
# usage: pages.sh wrk ARGUMENT…
busy() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }
before=$(busy)
pages=$("$@" | awk '/requests in/ { print $1 }')
# The last pages, which wrk leaves, end.
sleep 0.3
after=$(busy)
# A tick of /proc/stat is 10 ms.
echo "$after $before $pages" | awk '{ printf "total_us_per_op %.2f\n", ($1 - $2) * 10000 / $3 }'
