//! Programs that run another one, which their words name.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use super::{
    executable::place_of,
    words::{name, split, valued},
};

struct Wrapper {
    program: &'static str,
    /// Options that are followed by a word that could be taken for a program.
    values: &'static [&'static str],
}

const WRAPPERS: [Wrapper; 11] = [
    Wrapper { program: "nice", values: &["-n", "--adjustment"] },
    Wrapper { program: "ionice", values: &["-c", "-n", "--class", "--classdata"] },
    Wrapper { program: "env", values: &["-u", "-C", "-S", "--unset", "--chdir", "--split-string"] },
    Wrapper {
        program: "sudo",
        values: &[
            "-u",
            "-g",
            "-h",
            "-p",
            "-C",
            "-T",
            "-U",
            "-D",
            "-R",
            "-r",
            "-t",
            "--user",
            "--group",
            "--host",
            "--prompt",
            "--close-from",
            "--command-timeout",
            "--other-user",
            "--chdir",
            "--chroot",
            "--role",
            "--type",
        ],
    },
    Wrapper { program: "time", values: &["-f", "-o", "--format", "--output"] },
    Wrapper { program: "timeout", values: &["-k", "-s", "--kill-after", "--signal"] },
    Wrapper { program: "chrt", values: &["-T", "-P", "-D", "--sched-runtime", "--sched-period", "--sched-deadline"] },
    Wrapper { program: "nohup", values: &[] },
    Wrapper { program: "setsid", values: &[] },
    Wrapper { program: "stdbuf", values: &["-i", "-o", "-e", "--input", "--output", "--error"] },
    Wrapper { program: "taskset", values: &[] },
];

/// Which words of a command name its program and those that it runs in turn, as far as they tell.
pub(super) fn programs_in(command: &[OsString]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut next = (!command.is_empty()).then_some(0);
    while let Some(at) = next {
        found.push(at);
        let wrapper = WRAPPERS.iter().find(|wrapper| name(&command[at]) == wrapper.program);
        next = wrapper.and_then(|wrapper| run_by(wrapper, command, at + 1));
    }
    found
}

/// The first word behind a wrapper's options that can be a program. What stands before it are numbers, variables and the like.
fn run_by(wrapper: &Wrapper, command: &[OsString], from: usize) -> Option<usize> {
    let mut words = command.iter().enumerate().skip(from);
    while let Some((at, word)) = words.next() {
        if word.as_bytes().starts_with(b"-") {
            let (option, joined) = split(word);
            let said_with = valued(option, wrapper.values.iter().copied());
            if joined.is_none() && said_with.is_some_and(|valued| !valued.is_joined) {
                words.next();
            }
        } else if is_program(word) {
            return Some(at);
        }
    }
    None
}

fn is_program(word: &OsString) -> bool {
    WRAPPERS.iter().any(|wrapper| word == wrapper.program) || place_of(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_behind_those_that_run_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display().to_string();
        std::fs::create_dir(folder.path().join("borg")).unwrap();
        for (line, programs) in [
            ("tar -cf x.tar sudo", &["tar"][..]),
            ("nice -n 19 tar -cf x.tar sudo", &["nice", "tar"]),
            ("nice tar -cf x.tar @/borg", &["nice", "tar"]),
            ("nice -n19 sh -c install", &["nice", "sh"]),
            ("nice @/borg /bin/sh", &["nice", "/bin/sh"]),
            ("env LANG=C timeout 10m /bin/sh /srv", &["env", "timeout", "/bin/sh"]),
            ("env -i -C /bin/sh -u sh - tar", &["env", "tar"]),
            ("time -f %e tar -cf - /srv", &["time", "tar"]),
            ("time --format=%e -o sh cp a b", &["time", "cp"]),
            ("sudo -Eu sh -- cp -a b c", &["sudo", "cp"]),
            ("timeout -s kill 10 cp a b", &["timeout", "cp"]),
            (
                "ionice -c best-effort chrt 10 taskset 0xff setsid cp a b",
                &["ionice", "chrt", "taskset", "setsid", "cp"],
            ),
            ("/usr/bin/nice no-such-program sudo", &["/usr/bin/nice", "sudo"]),
            ("sudo", &["sudo"]),
            ("no-such-program", &["no-such-program"]),
            ("", &[""]),
        ] {
            let words: Vec<OsString> = line.split(' ').map(|word| word.replace('@', &at).into()).collect();
            let found: Vec<&OsString> = programs_in(&words).into_iter().map(|at| &words[at]).collect();
            assert_eq!(found, programs, "{line}");
        }
        assert!(programs_in(&[]).is_empty());
    }
}
