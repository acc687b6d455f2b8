//! Others that tell how much directories hold, and our own without a server. All of them walk; duc does so for an index, and is asked apart from that.

use std::path::Path;

use crate::bench::work::Programs;

/// What stands for the tree in a command line, and for a file that duc keeps.
const TREE: &str = "TREE";
const INDEX: &str = "INDEX";

/// A program with what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// What tables call it.
    pub(super) name: &'static str,
    command: &'static [&'static str],
}

/// The one that all answers are held against.
pub(super) const DU: Peer = Peer { name: "du", command: &["du", "-s", "-B1", TREE] };

/// Our program, which isn't looked for.
const OURS: &str = "onesweep";

/// It, where no server is: it walks.
pub(super) const WALKED: Peer =
    Peer { name: "onesweep du, no server", command: &[OURS, "du", "--socket", "/nowhere", "-s", "-B1", TREE] };

/// In the order in which they run: an index is asked after it was made.
pub(super) const PEERS: [Peer; 7] = [
    DU,
    WALKED,
    Peer { name: "gdu", command: &["gdu", "-n", "-s", "-c", "-p", TREE] },
    Peer { name: "dua", command: &["dua", "-x", "aggregate", TREE] },
    Peer { name: "diskus", command: &["diskus", TREE] },
    Peer { name: "duc index", command: &["duc", "index", "-q", "-x", "-H", "-d", INDEX, TREE] },
    Peer { name: "duc ls", command: &["duc", "ls", "-b", "-D", "-d", INDEX, TREE] },
];

/// Those that walk with as many threads as there are processors.
pub(super) const PARALLEL: [&str; 3] = ["gdu", "dua", "diskus"];

/// Programs whose versions are told.
pub(super) const PROGRAMS: [&str; 5] = ["du", "gdu", "dua", "diskus", "duc"];

impl Peer {
    /// The command line; `None` where the program isn't installed.
    pub(super) fn argv(&self, programs: &Programs, tree: &Path, index: &Path) -> Option<Vec<String>> {
        let (program, args) = self.command.split_first()?;
        let program = if *program == OURS { programs.onesweep.clone() } else { programs.find(program)? };
        let program = program.display().to_string();
        let filled = |arg: &&str| match *arg {
            TREE => tree.display().to_string(),
            INDEX => index.display().to_string(),
            arg => arg.to_owned(),
        };
        Some([program].into_iter().chain(args.iter().map(filled)).collect())
    }
}

/// du's figure for a tree, in bytes: the first word that it prints.
pub(super) fn first_word(output: &[u8]) -> String {
    String::from_utf8_lossy(output).split_whitespace().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_for_the_tree_or_missing() {
        let programs = Programs { onesweep: "/none".into(), lab: "/none".into(), tools: "/none".into() };
        let argv = DU.argv(&programs, Path::new("/tree"), Path::new("/index")).unwrap();
        assert_eq!(argv[1..], ["-s", "-B1", "/tree"]);
        let argv = WALKED.argv(&programs, Path::new("/tree"), Path::new("/index")).unwrap();
        assert_eq!(argv, ["/none", "du", "--socket", "/nowhere", "-s", "-B1", "/tree"]);
        let missing = Peer { name: "none", command: &["no-such-program", TREE] };
        assert_eq!(missing.argv(&programs, Path::new("/"), Path::new("/")), None);
        assert!(PEERS.iter().all(|peer| peer.command.contains(&TREE)));
        assert_eq!(first_word(b"4096\t/tree\n"), "4096");
    }
}
