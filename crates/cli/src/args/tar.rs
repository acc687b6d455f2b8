//! `onesweep tar`, in the language of GNU tar.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf};

use clap::{ArgMatches, Args, error::ErrorKind};

use super::Common;

/// Writes an archive, reading in the order of the disk
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  onesweep tar -cf /backup/home.tar -C /srv home
  onesweep tar czf /backup/etc.tar.gz /etc
  onesweep tar -c --zstd --xattrs --acls -f - home | ssh backup 'cat > home.tar.zst'
  find . -newer stamp -print0 | onesweep tar -cf new.tar --null --no-recursion -T -"
)]
pub(crate) struct TarArgs {
    /// Make an archive (the only thing this tar does)
    #[arg(short, long, required = true)]
    pub(crate) create: bool,
    /// The archive; - is standard output
    #[arg(short, long, required = true, value_name = "ARCHIVE")]
    pub(crate) file: PathBuf,
    /// Look paths up in DIR; comes before them
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Files and directories
    #[arg(value_name = "PATH", required_unless_present = "files_from")]
    pub(crate) paths: Vec<PathBuf>,
    /// Take further paths from FILE (- is standard input)
    #[arg(short = 'T', long, value_name = "FILE")]
    pub(crate) files_from: Vec<PathBuf>,
    /// Paths from FILE end with a NUL instead of a line feed
    #[arg(long)]
    pub(crate) null: bool,
    /// Don't enter directories
    #[arg(long, overrides_with = "recursion")]
    pub(crate) no_recursion: bool,
    /// Enter directories (the default)
    #[arg(long, hide_short_help = true)]
    recursion: bool,
    /// Take the lines of -T as paths, never as options (always done)
    #[arg(long, hide_short_help = true)]
    verbatim_files_from: bool,
    /// Store numbers alone for users and groups
    #[arg(long)]
    pub(crate) numeric_owner: bool,
    /// Store this as the owner of everything
    #[arg(long, value_name = "NAME[:UID]")]
    pub(crate) owner: Option<String>,
    /// Store this as the group of everything
    #[arg(long, value_name = "NAME[:GID]")]
    pub(crate) group: Option<String>,
    /// Store this time for everything
    #[arg(long, value_name = "DATE")]
    pub(crate) mtime: Option<String>,
    /// Store the time of --mtime only for what is younger
    #[arg(long, requires = "mtime")]
    pub(crate) clamp_mtime: bool,
    /// Change the modes that are stored, as chmod would
    #[arg(long, value_name = "CHANGES")]
    pub(crate) mode: Option<String>,
    /// Let the exit code be 0 when files can't be read
    #[arg(long)]
    pub(crate) ignore_failed_read: bool,
    /// Compress with gzip
    #[arg(short = 'z', long, conflicts_with_all = ["zstd", "auto_compress"])]
    pub(crate) gzip: bool,
    /// Compress with Zstandard
    #[arg(long, conflicts_with = "auto_compress")]
    pub(crate) zstd: bool,
    /// Compress by the suffix of the archive: .gz, .tgz, .taz, .zst, .tzst
    #[arg(short = 'a', long)]
    pub(crate) auto_compress: bool,
    /// Compression level [default: 6 of gzip, 3 of Zstandard]
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    pub(crate) level: Option<i32>,
    /// Store files with holes without them
    #[arg(short = 'S', long)]
    pub(crate) sparse: bool,
    /// Store extended attributes
    #[arg(long, overrides_with = "no_xattrs")]
    pub(crate) xattrs: bool,
    /// Store POSIX ACLs
    #[arg(long, overrides_with = "no_acls")]
    pub(crate) acls: bool,
    /// Store the SELinux context
    #[arg(long, overrides_with = "no_selinux")]
    pub(crate) selinux: bool,
    /// Store no extended attributes (the default)
    #[arg(long, hide_short_help = true)]
    no_xattrs: bool,
    /// Store no POSIX ACLs (the default)
    #[arg(long, hide_short_help = true)]
    no_acls: bool,
    /// Store no SELinux context (the default)
    #[arg(long, hide_short_help = true)]
    no_selinux: bool,
    /// Format of the archive; it is always this one
    #[arg(short = 'H', long, value_name = "FORMAT", value_parser = ["posix", "pax"], hide_short_help = true)]
    format: Option<String>,
    /// The same as --format=posix
    #[arg(long, hide_short_help = true)]
    posix: bool,
    /// Keywords of the format; only those that change nothing here
    #[arg(long, value_name = "KEYWORDS", value_parser = pax_keywords, hide_short_help = true)]
    pax_option: Vec<String>,
    /// Blocks of 512 bytes in a record; it is always 20
    #[arg(short, long, value_name = "BLOCKS", value_parser = ["20"], hide_short_help = true)]
    blocking_factor: Option<String>,
    /// Times are shown in UTC (none are shown)
    #[arg(long, hide_short_help = true)]
    utc: bool,
    /// Patterns have wildcards (the default)
    #[arg(long, hide_short_help = true)]
    wildcards: bool,
    /// Wildcards match slashes (the default)
    #[arg(long, hide_short_help = true)]
    wildcards_match_slash: bool,
    /// Patterns match after any slash (the default)
    #[arg(long, hide_short_help = true)]
    no_anchored: bool,
    /// Patterns tell capitals from small letters (the default)
    #[arg(long, hide_short_help = true)]
    no_ignore_case: bool,
    /// Store permissions (always done)
    #[arg(short, long, visible_alias = "same-permissions", hide_short_help = true)]
    preserve_permissions: bool,
    /// Which extended attributes; with --xattrs they are all stored
    #[arg(long, value_name = "PATTERN", value_parser = ["*"], hide_short_help = true)]
    xattrs_include: Vec<String>,
    /// How holes are stored; it is always this way
    #[arg(long, value_name = "VERSION", value_parser = ["1.0"], hide_short_help = true)]
    sparse_version: Option<String>,
    /// How holes are found; it is always this way
    #[arg(long, value_name = "METHOD", value_parser = ["seek"], hide_short_help = true)]
    hole_detection: Option<String>,
    /// Order of the members: none, which is that of the disk, or inode
    #[arg(long, value_name = "ORDER", value_parser = sort)]
    pub(crate) sort: Option<Sort>,
    /// Leave out the files of version control systems
    #[arg(long)]
    pub(crate) exclude_vcs: bool,
    /// Keep the leading / of paths
    #[arg(short = 'P', long)]
    pub(crate) absolute_names: bool,
    /// Print how much was written
    #[arg(long)]
    pub(crate) totals: bool,
    /// Print the path of each entry
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Refused: GNU tar's -h follows every symbolic link
    #[arg(short = 'h', long, hide = true)]
    pub(crate) dereference: bool,
    /// Print help
    // Without -h, which has another meaning for tar.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What GNU tar's `--sort` can mean here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// As the sweep goes.
    None,
    /// By inode.
    Inode,
}

fn sort(text: &str) -> Result<Sort, String> {
    match text {
        "none" => Ok(Sort::None),
        "inode" => Ok(Sort::Inode),
        "name" => Err("members come as they are read; for the same archive from the same file system each time, \
                       take --order directory --one-file-system"
            .into()),
        _ => Err("use none or inode".into()),
    }
}

/// What people give to GNU tar for archives that can be made again. Here it is so anyway: no times but that of the
/// last change are stored, no global headers are written, and no process id is in any name.
fn pax_keywords(text: &str) -> Result<String, String> {
    for keyword in text.split(',') {
        let is_so = matches!(keyword, "delete=atime" | "delete=ctime" | "exthdr.name=%d/PaxHeaders/%f")
            || keyword.starts_with("globexthdr.name=");
        if !is_so {
            return Err(format!("{keyword} is not supported; delete=atime and delete=ctime change nothing here"));
        }
    }
    Ok(text.to_owned())
}

/// What GNU tar's `--exclude-vcs` leaves out.
pub(crate) const VERSION_CONTROL: [&str; 22] = [
    "CVS",
    ".cvsignore",
    "RCS",
    "SCCS",
    ".git",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
    ".svn",
    ".arch-ids",
    "{arch}",
    "=RELEASE-ID",
    "=meta-update",
    "=update",
    ".bzr",
    ".bzrignore",
    ".bzrtags",
    ".hg",
    ".hgignore",
    ".hgrags",
    ".hgtags",
    "_darcs",
];

/// Letters of the old style that take the next word.
const LETTERS_WITH_VALUE: &[u8] = b"fCTXHb";

/// Rewrites `tar czf x.tar.gz dir` as `tar -c -z -f x.tar.gz dir`: in the old style, a first word without a dash is a
/// bundle of letters, and those that take a value take the following words in turn.
pub(super) fn expand_old_style(words: Vec<OsString>) -> Vec<OsString> {
    let bundle = match (words.get(1), words.get(2)) {
        (Some(command), Some(bundle)) if command == "tar" && !bundle.as_bytes().starts_with(b"-") => bundle.clone(),
        _ => return words,
    };
    let letters = bundle.as_bytes();
    if letters.is_empty() || !letters.iter().all(u8::is_ascii_alphabetic) {
        return words;
    }
    let mut words = words.into_iter();
    let mut expanded: Vec<OsString> = words.by_ref().take(2).collect();
    words.next();
    for &letter in letters {
        expanded.push(format!("-{}", char::from(letter)).into());
        if LETTERS_WITH_VALUE.contains(&letter) {
            expanded.extend(words.next());
        }
    }
    expanded.extend(words);
    expanded
}

/// What has a meaning for GNU tar and none here must not pass for something else.
pub(super) fn check(tar: &ArgMatches, command: &mut clap::Command) -> Result<(), clap::Error> {
    if tar.get_flag("dereference") {
        let what = "-h (--dereference) is not supported: symbolic links below the named paths are never followed; \
                    --follow-roots follows those that are named";
        return Err(command.error(ErrorKind::ArgumentConflict, what));
    }
    check_base_comes_first(tar, command)
}

/// GNU tar's `-C` works from its place on; a sweep has one base, so it has to come before all paths.
fn check_base_comes_first(tar: &ArgMatches, command: &mut clap::Command) -> Result<(), clap::Error> {
    let typed = |name| (tar.contains_id(name)).then(|| tar.indices_of(name)).flatten();
    match (typed("directory").and_then(Iterator::max), typed("paths").and_then(Iterator::min)) {
        (Some(base), Some(path)) if path < base => {
            let what = "-C must come before all paths: they are read in one sweep, from one directory";
            Err(command.error(ErrorKind::ArgumentConflict, what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn tar(line: &str) -> TarArgs {
        match parse_line(line).unwrap_or_else(|error| panic!("{line}: {error}")) {
            Command::Tar(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn old_and_new_style_say_the_same() {
        for line in [
            "tar cf x.tar dir",
            "tar -cf x.tar dir",
            "tar -c -f x.tar dir",
            "tar -c -fx.tar dir",
            "tar --create --file=x.tar dir",
            "tar -c dir -f x.tar",
        ] {
            let args = tar(line);
            assert_eq!((args.file, args.paths), ("x.tar".into(), vec!["dir".into()]), "{line}");
            assert!(args.create && !args.gzip);
        }
    }

    #[test]
    fn bundles_take_their_values_in_turn() {
        for line in ["tar czf x.tgz dir", "tar -czf x.tgz dir", "tar cfz x.tgz dir", "tar -cz -f x.tgz dir"] {
            let args = tar(line);
            assert!(args.gzip, "{line}");
            assert_eq!((args.file, args.paths), ("x.tgz".into(), vec!["dir".into()]), "{line}");
        }
        let args = tar("tar cvfCPS - /base a b --exclude *.o");
        assert!(args.verbose == 1 && args.absolute_names && args.sparse);
        assert_eq!(args.file, PathBuf::from("-"));
        assert_eq!(args.directory, Some("/base".into()));
        assert_eq!(args.paths.len(), 2);
        assert_eq!(args.common.selection.exclude, ["*.o"]);
        let args = tar("tar cfTX a.tar list patterns");
        assert_eq!(
            (args.files_from, args.common.selection.exclude_from),
            (vec!["list".into()], vec!["patterns".into()])
        );
    }

    #[test]
    fn what_gnu_tar_takes_is_taken() {
        let args = tar(
            "tar -c -f - -C / --numeric-owner --owner root:0 --group=root --mtime=@0 --zstd --level=19 --xattrs --acls \
             --selinux --follow-roots --one-file-system --totals --null --no-recursion -T - -v x",
        );
        assert!(args.numeric_owner && args.zstd && args.xattrs && args.acls && args.selinux);
        assert!(args.common.selection.follow_roots);
        assert!(args.totals && args.null && args.no_recursion && args.verbose == 1);
        assert_eq!(args.common.settings.one_file_system, Some(true));
        assert_eq!((args.owner.as_deref(), args.mtime.as_deref(), args.level), (Some("root:0"), Some("@0"), Some(19)));
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        let args = tar("tar -cpvvf x.tar --format=pax --no-xattrs --no-acls --no-selinux --sort=none --exclude-vcs d");
        assert!(args.verbose == 2 && args.exclude_vcs && args.sort == Some(Sort::None));
        tar("tar -cf x.tar --posix -b 20 --utc --recursion --wildcards --wildcards-match-slash --no-anchored \
             --no-ignore-case --verbatim-files-from --pax-option=delete=atime,delete=ctime \
             --pax-option exthdr.name=%d/PaxHeaders/%f d");
        assert_eq!(tar("tar cfb x.tar 20 d").paths, ["d"].map(PathBuf::from));
        assert!(!tar("tar -cf x.tar --no-recursion --recursion d").no_recursion, "the last one counts");
        assert!(tar("tar -cf x.tar --no-xattrs --xattrs d").xattrs, "the last one counts");
        assert!(!tar("tar -cf x.tar --xattrs --no-xattrs d").xattrs, "the last one counts");
        assert!(tar("tar caf x.tgz d").auto_compress);
        for line in ["tar cHf pax x.tar d", "tar -c -H posix -f x.tar d"] {
            let args = tar(line);
            assert_eq!((args.file, args.common.selection.follow_roots), ("x.tar".into(), false), "{line}");
        }
        for line in [
            "tar -cHf pax x.tar d",
            "tar cHf gnu x.tar d",
            "tar -cf x --clamp-mtime d",
            "tar -cf x -b 40 d",
            "tar -cf x --pax-option=delete=atime,atime:=0 d",
            "tar -cf x --anchored d",
            "tar -cf x --ignore-case d",
            "tar -cf x --no-wildcards d",
            "tar -cf x --format=gnu d",
            "tar -caf x -z d",
            "tar -cf x --sort=sideways d",
        ] {
            parse_line(line).unwrap_err();
        }
        assert!(parse_line("tar -cf x --sort=name d").unwrap_err().contains("--order directory"));
    }

    #[test]
    fn what_is_no_archiving_is_refused() {
        for line in [
            "tar xf x.tar",
            "tar -xf x.tar",
            "tar -cxf x.tar d",
            "tar tf x.tar",
            "tar -cf x.tar",
            "tar -c d",
            "tar -cf x.tar a -C /b c",
            "tar -cf x.tar -C /a -C /b c",
            "tar -cz --zstd -f x.tar d",
            "tar cqf x.tar",
            // The first word is a bundle, as for GNU tar.
            "tar dir -cf x.tar",
        ] {
            assert!(parse_line(line).is_err(), "{line}");
        }
        assert!(parse_line("tar -cf x.tar a -C /b c").unwrap_err().contains("before all paths"));
    }

    #[test]
    fn to_follow_all_links_is_refused_and_no_help() {
        for words in ["-chf out.tar dir", "-chzf out.tar dir", "chf out.tar dir", "-cf out.tar --dereference dir"] {
            let words = ["onesweep", "tar"].into_iter().chain(words.split(' ')).map(OsString::from);
            let error = crate::args::parse(words).unwrap_err();
            assert!(error.use_stderr(), "no exit code 0");
            let text = error.to_string();
            assert!(text.contains("--follow-roots follows those that are named"), "{text}");
            assert!(text.contains("Usage: onesweep tar"), "{text}");
        }
        assert!(parse_line("tar --help").unwrap_err().contains("--totals"));
    }
}
