#!/bin/bash
# The template engine beside Jinja2: run.sh random|golden COMPARE [SEED COUNT]
#   random   COUNT templates made by chance from SEED, rendered by Debian's python3-jinja2 and by us;
#            by hand: run.sh random build/debug/bin/test_jinja_compare 7 20000
#   golden   the golden renders beside the delivered templates (PM_TOKENIZERS, or
#            ../shared/data/tokenizers beside the source)
set -eo pipefail
here=$(dirname "$(readlink -f "$0")")
case $1 in
random)
	/usr/bin/python3 -c 'import jinja2' 2>/dev/null ||
		{ echo "SKIPPED: python3-jinja2 is not installed (deploy/setup --tests)"; exit 77; }
	/usr/bin/python3 "$here/generate.py" "${3:-1}" "${4:-200}" | "$2" 10
	;;
golden)
	folder=${PM_TOKENIZERS:-$here/../../../shared/data/tokenizers}
	[ -d "$folder/golden-renders" ] ||
		{ echo "SKIPPED: no templates with golden renders in $folder (PM_TOKENIZERS)"; exit 77; }
	/usr/bin/python3 "$here/goldens.py" "$folder" | "$2" 10
	;;
*)
	sed -n '2,6s/^# *//p' "$0"
	exit 2
	;;
esac
