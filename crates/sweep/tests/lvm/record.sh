#!/bin/bash
# Writes down what LVM's programs answer, as FOLDER/*.txt: root and lvm2 are needed, device-mapper isn't. Without it no volume can be
# active, so that volumes are made with --driverloaded n; a snapshot and a thin pool, which then can't be made at all, come by
# vgcfgrestore from metadata that is written here.
#
#   record.sh crates/sweep/tests/lvm
set -euo pipefail
to=$(realpath "$1")
scratch=$(mktemp -d)
export LC_ALL=C LVM_SUPPRESS_FD_WARNINGS=1 LVM_SYSTEM_DIR=$scratch
loops=()
trap 'for loop in "${loops[@]}"; do losetup --detach "$loop"; done; rm -r "$scratch"' EXIT

for number in 0 1 2; do
    truncate -s 256M "$scratch/$number.img"
    loops+=("$(losetup --find --show "$scratch/$number.img")")
done
filter=$(printf '"a|^%s$|", ' "${loops[@]}")'"r|.*|"'
cat > "$scratch/lvm.conf" <<END
devices { use_devicesfile = 0 filter = [$filter] global_filter = [$filter] }
activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }
backup { backup = 0 archive = 0 }
END

begin() {
    file=$to/$1.txt
    printf '# %s\n# LVM %s, %s, no device-mapper in the kernel\n' "$2" \
        "$(lvm version 2> /dev/null | sed -n 's/.*LVM version: *//p')" "$(. /etc/os-release; echo "$PRETTY_NAME")" > "$file"
}

# A command, its lines on standard output, those on standard error (with "! " in front), and its exit code.
record() {
    local code=0
    "$@" > "$scratch/out" 2> "$scratch/err" < /dev/null || code=$?
    { printf '\n$ %s\n' "$*"; cat "$scratch/out"; sed 's/^/! /' "$scratch/err"; printf '? %s\n' "$code"; } >> "$file"
}

fields() { record lvs --noheadings --separator '|' -o "$@"; }
make() { lvcreate --driverloaded n --yes -an -Zn -Wn "$@" > "$scratch/log" 2>&1; }
moment='onesweep_moment_1-0'

vgcreate --quiet vg0 "${loops[0]}" > "$scratch/log" 2>&1
make -n home -L 64M vg0
begin thick 'a linear volume'
fields vg_name,lv_name,pool_lv /dev/mapper/vg0-home
fields lv_name vg0
record lvcreate --snapshot --yes --quiet --name $moment --extents 10%ORIGIN vg0/home
fields lv_path vg0/$moment
record lvremove --force --quiet vg0/$moment
fields vg_name,lv_name,pool_lv /dev/dm-3
fields vg_name,lv_name,pool_lv /dev/mapper/vg0-none
fields vg_name,lv_name,pool_lv /dev/mapper/none-home
fields lv_name none

make -n rest -l 100%FREE vg0
begin full 'a volume group without room, asked for a plain volume'
fields vg_name,lv_name,pool_lv /dev/mapper/vg0-home
record lvcreate --driverloaded n --yes --quiet --name $moment -an -Zn -Wn --extents 16 vg0

vgcreate --quiet vg-a "${loops[1]}" > "$scratch/log" 2>&1
make -n my-home -L 32M vg-a
make -n onesweep_moment_4294967294-0 -L 8M vg-a
make -n onesweep_moment_1-7 -L 8M vg-a
begin hyphens 'names with hyphens, and plain volumes under the names of snapshots'
fields vg_name,lv_name,pool_lv /dev/mapper/vg--a-my--home
fields lv_name vg-a
fields lv_path vg-a/onesweep_moment_1-7
record lvcreate --snapshot --yes --quiet --name $moment --extents 10%ORIGIN vg-a/my-home
record lvremove --force --quiet vg-a/onesweep_moment_4294967294-0

vgcreate --quiet vg1 "${loops[2]}" > "$scratch/log" 2>&1
make -n home -L 64M vg1
cow=onesweep_moment_1-1
make -n $cow -L 8M vg1
make -n data -L 32M vg1
make -n meta -L 4M vg1
vgcfgbackup --quiet -f "$scratch/vg1" vg1 > "$scratch/log" 2>&1
python3 - "$scratch/vg1" $cow <<'END'
import sys
path, cow = sys.argv[1:]
text = open(path).read()
def hide(text, name, to):
    at = text.index(f"\t\t{name} {{")
    head, tail = text[:at], text[at:].replace(f"\t\t{name} {{", f"\t\t{to} {{", 1)
    return head + tail.replace('"WRITE", "VISIBLE"]', '"WRITE"]', 1)
text = hide(text, "data", "pool_tdata")
text = hide(text, "meta", "pool_tmeta")
def volume(name, letter, extents, visible, kind):
    flags = '"READ", "WRITE"' + (', "VISIBLE"' if visible else '')
    ident = "-".join(letter * count for count in (6, 4, 4, 4, 4, 4, 6))
    segment = f"start_extent = 0\nextent_count = {extents}\n{kind}"
    return f'{name} {{\nid = "{ident}"\nstatus = [{flags}]\nflags = []\nsegment_count = 1\nsegment1 {{\n{segment}\n}}\n}}\n'
more = volume("pool", "a", 8, True, 'type = "thin-pool"\nmetadata = "pool_tmeta"\npool = "pool_tdata"\ntransaction_id = 2\n'
    'chunk_size = 128\ndiscards = "passdown"\nzero_new_blocks = 0')
thin = 'type = "thin"\nthin_pool = "pool"\ntransaction_id = 1\n'
more += volume("thin", "b", 16, True, thin + "device_id = 1")
more += volume("onesweep_moment_1-2", "c", 16, True, thin + 'device_id = 2\norigin = "thin"')
more += volume("snapshot0", "d", 16, False,
    f'type = "snapshot"\nchunk_size = 8\norigin = "home"\ncow_store = "{cow}"')
open(path, "w").write(text.replace("\tlogical_volumes {\n", "\tlogical_volumes {\n" + more, 1))
END
vgcfgrestore --yes --force --quiet -f "$scratch/vg1" vg1 > "$scratch/log" 2>&1
begin snapshots 'a linear and a thin volume, each with a snapshot, by vgcfgrestore'
fields vg_name,lv_name,pool_lv /dev/mapper/vg1-home
fields vg_name,lv_name,pool_lv /dev/mapper/vg1-thin
fields lv_name vg1
fields lv_path vg1/$cow
fields lv_path vg1/onesweep_moment_1-2
record lvcreate --snapshot --yes --quiet --name $moment --setactivationskip n vg1/thin
record lvremove --force --quiet vg1/$cow
record lvremove --force --quiet vg1/onesweep_moment_1-2
fields lv_name vg1
