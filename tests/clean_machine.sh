#!/usr/bin/env bash
# Follow the README and the guides word for word on bare Debian systems: `make clean-machine`, as root, for a quarter of an hour.
#
# Two roots are made in FOLDER: one that reaches the network as this machine does, and one that has no network at all. Both hold
# what the pages ask for (python3, python3-venv, make, git), a user who is not root, and nothing else. The studio runs there, and
# Chromium of this machine follows its guide. Left out: PostgreSQL and Spark (`make test-services`). Without root or debootstrap it
# says so and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${FOLDER:-/var/tmp/understudy-clean-machine}
packages=ca-certificates,python3,python3-venv,make,git

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "skipped: a clean machine needs root and debootstrap"
  exit 0
fi

# On MACHINE, with no variable of this one, do WORDS as somebody who just logged in.
on() {
  local apart=(--mount --pid --fork --kill-child)
  [ "$1" = closed ] && apart+=(--net)
  unshare "${apart[@]}" bash -c 'mount -t proc proc "$0/proc"; mount -t sysfs sysfs "$0/sys"; mount -t tmpfs tmpfs "$0/dev/shm"
    exec env -i /usr/sbin/chroot "$0" /bin/su - reader -c "$1"' "$folder/$1" "set -e; $2"
}

# Read GUIDE on the connected machine in PLACE, in the environment that the first guide made.
read_guide() {
  echo "=== $2"
  on open "source understudy/.venv/bin/activate; mkdir -p '$1'; cd '$1'
    python ~/understudy/tests/follow_guide.py ~/understudy/docs/guide/$2"
}

# Read GUIDE where the first guide ended: a copy of its folder and of its ledger.
read_next() {
  echo "=== $1.md"
  on open "source understudy/.venv/bin/activate; cp -r first-release after-$1; cp -r .local/share after-$1/.share
    export XDG_DATA_HOME=~/after-$1/.share; cd after-$1${2:+/$2}
    python ~/understudy/tests/follow_guide.py ~/understudy/docs/guide/$1.md"
}

# Start the studio on the connected machine and follow its guide with the browser of this one.
read_studio() {
  echo "=== studio.md"
  on open "$(sed -n 's/^ *\(cd ~.*--shortcut\)$/\1/p' docs/guide/studio.md); test -f ~/.local/share/applications/understudy-studio.desktop"
  on open "source understudy/.venv/bin/activate; exec understudy studio --no-browser --json" >"$folder/studio.json" &
  local studio=$!
  until grep -q '^}' "$folder/studio.json"; do sleep 1; kill -0 $studio; done
  UNDERSTUDY_STUDIO=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$folder/studio.json") \
    .venv/bin/python -m pytest -q tests/studio/test_browser.py -k runs_already
  kill $studio
}

mkdir -p "$folder"
for machine in open closed; do
  [ -d "$folder/$machine" ] && { echo "$folder/$machine already exists; delete it first"; exit 1; }
  debootstrap --variant=minbase --include="$packages" "${SUITE:-bookworm}" "$folder/$machine" ${MIRROR:+"$MIRROR"} \
    >"$folder/$machine.log"
  chroot "$folder/$machine" useradd --create-home --shell /bin/bash reader
done
cp /etc/resolv.conf "$folder/open/etc/"
cp /usr/local/share/ca-certificates/*.crt "$folder/open/usr/local/share/ca-certificates/" 2>/dev/null || true
chroot "$folder/open" update-ca-certificates >/dev/null
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$folder/open/etc/pip.conf"
git clone --quiet --no-hardlinks . "$folder/open/home/reader/understudy"
chroot "$folder/open" chown -R reader: /home/reader/understudy

echo "=== README"
on open "cd understudy; make demo; source .venv/bin/activate; mkdir ../readme; cd ../readme
  python ~/understudy/tests/follow_guide.py ~/understudy/README.md
  rm -rf ~/understudy/.venv ~/understudy/demo-out ~/.local" # the next reader begins with an empty ledger
echo "=== first-release.md"
on open "cd understudy; python3 tests/follow_guide.py --install docs/guide/first-release.md"
for guide in budget bounds run ledger compare public discovery mst privbayes privsyn evaluate audit on-disk; do
  read_next "$guide"
done
read_next analysts people-for-analysts
read_guide rules rules.md
read_guide linked linked.md
on open "mkdir schema; cp first-release/people.csv schema"
printf 'row\na\np\na\na\na\n' | read_guide schema schema.md
read_studio
on open "cd understudy; .venv/bin/python -m pip install --quiet '.[eval,sql]'"
read_guide databases databases.md

echo "=== air-gapped.md"
on open "cd understudy; python3 tests/follow_guide.py --under 'On the connected machine' docs/guide/air-gapped.md"
cp -r "$folder/open/home/reader/understudy/"{wheelhouse,tests/follow_guide.py,docs/guide/air-gapped.md} "$folder/closed/home/reader/"
chroot "$folder/closed" chown -R reader: /home/reader
on closed "python3 follow_guide.py --under 'On the closed machine' air-gapped.md"
echo "=== Dockerfile"
python3 tests/follow_dockerfile.py "$folder/open"
echo "followed: the README, every guide and the Dockerfile"
