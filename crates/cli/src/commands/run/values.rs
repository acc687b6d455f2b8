//! Options that are followed by a word of their own, which could be taken for a tree or for what a program writes to: what is said with them, for each
//! program. Those that take it joined to them alone (`--color=always`) aren't among them, nor those that name what is read.

pub(super) const COPY: &str = "-S --suffix --no-preserve --sparse";

pub(super) const INSTALL: &str = "-S --suffix -m --mode -o --owner -g --group --strip-program";

pub(super) const RSYNC: &str = "-@ -B -M -T -e -f --address --backup-dir --block-size --bwlimit --cc --checksum-choice --checksum-seed \
    --chmod --chown --compare-dest --compress-choice --compress-level --compress-threads --confine-root --contimeout --copy-as --copy-dest \
    --debug --early-input --exclude --exclude-from --files-from --filter --groupmap --iconv --include --include-from --info --link-dest \
    --log-file --log-file-format --log-format --max-alloc --max-delete --max-size --min-size --modify-window --only-write-batch \
    --out-format --outbuf --partial-dir --password-file --port --protocol --read-batch --remote-option --rsh --rsync-path \
    --skip-compress --sockopts --stderr --stop-after --stop-at --suffix --temp-dir --time-limit --timeout --usermap --write-batch --zc --zl --zt";

pub(super) const SCP: &str = "-D -F -J -P -S -X -c -i -l -o";

pub(super) const TAR: &str = "-F -H -I -K -L -N -T -V -X -b -f -g --after-date --blocking-factor --checkpoint-action --exclude \
    --exclude-from --exclude-ignore --exclude-ignore-recursive --exclude-tag --exclude-tag-all --exclude-tag-under --file --files-from \
    --format --group --group-map --hole-detection --index-file --info-script --label --level --listed-incremental --mode --mtime --newer \
    --newer-mtime --new-volume-script --no-quote-chars --owner --owner-map --pax-option --quote-chars --quoting-style --record-size \
    --rmt-command --rsh-command --sort --sparse-version --starting-file --strip-components --suffix --tape-length --to-command --transform \
    --use-compress-program --volno-file --warning --xattrs-exclude --xattrs-include --xform";

pub(super) const GREP: &str = "-A -B -C -D -d -e -f -m --after-context --before-context --binary-files --context --devices --directories \
    --exclude --exclude-dir --exclude-from --file --group-separator --include --label --max-count --regexp";

pub(super) const RIPGREP: &str = "-A -B -C -E -M -T -d -e -f -g -j -m -r -t --after-context --before-context --color --colors --context \
    --context-separator --dfa-size-limit --encoding --engine --field-context-separator --field-match-separator --file --generate --glob \
    --hostname-bin --hyperlink-format --iglob --ignore-file --max-columns --max-count --max-depth --max-filesize --maxdepth \
    --path-separator --pre --pre-glob --regex-size-limit --regexp --replace --sort --sortr --threads --type --type-add --type-clear --type-not";

pub(super) const LS: &str = "-I -T -w --block-size --format --hide --ignore --indicator-style --quoting-style --sort --tabsize --time \
    --time-style --width";

pub(super) const DU: &str =
    "-B -X -d -t --block-size --exclude --exclude-from --files0-from --max-depth --threshold --time-style";

pub(super) const CLAMAV: &str = "-c -d -f -l -p --bytecode-timeout --config-file --copy --database --exclude --exclude-dir --exclude-pua \
    --fail-if-cvd-older-than --file-list --include --include-dir --include-pua --log --max-dir-recursion --max-embeddedpe --max-files \
    --max-filesize --max-htmlnormalize --max-htmlnotags --max-iconspe --max-partitions --max-rechwp3 --max-recursion --max-scansize \
    --max-scantime --max-scriptnormalize --max-ziptypercg --move --pcre-match-limit --pcre-max-filesize --pcre-recmatch-limit --ping \
    --structured-cc-count --structured-cc-mode --structured-ssn-count --structured-ssn-format --tempdir";

pub(super) const RESTIC: &str = "-H -e -g -i -o -p -r -t --cacert --cache-dir --compression --exclude --exclude-file --exclude-if-present \
    --exclude-larger-than --files-from --files-from-raw --files-from-verbatim --group-by --host --http-user-agent --iexclude \
    --iexclude-file --iinclude --include --key-hint --limit-download --limit-upload --option --pack-size --parent --password-command \
    --password-file --path --read-concurrency --repo --repository-file --retry-lock --stdin-filename --stuck-request-timeout --tag --target \
    --time --tls-client-cert";

pub(super) const BORG: &str = "-C -c -e -r --cache-dir --checkpoint-interval --checkpoint-volume --chunker-params --comment --compression \
    --debug-profile --debug-topic --exclude --exclude-from --exclude-if-present --files-cache --filter --lock-wait --paths-delimiter --pattern \
    --patterns-from --remote-buffer --remote-path --remote-ratelimit --repo --rsh --stdin-group --stdin-mode --stdin-name --stdin-user \
    --strip-components --timestamp --umask --upload-buffer --upload-ratelimit";

pub(super) const ZIP: &str = "-O -P -TT -UN -Z -b -ds -i -lf -n -s -t -tt -x --before-date --compression-method --dot-size --exclude \
    --from-date --include --logfile-path --out --output-file --password --split-size --suffixes --temp-path --unicode --unzip-command";

/// Options of two letters without a word of their own, though the second letter alone would have one.
pub(super) const ZIP_WITHOUT: &str = "-db -li -sb -ws";
