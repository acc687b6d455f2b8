//! Ignore files: `.gitignore` and `.ignore`, as the `ignore` crate reads them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// The names of ignore files; a later one overrules an earlier one of the same directory.
pub(crate) const NAMES: [&[u8]; 2] = [b".gitignore", b".ignore"];

/// The rules that hold in a directory: its own, and those of the directories above.
#[derive(Debug)]
pub(crate) struct Rules {
    own: Gitignore,
    above: Option<Arc<Rules>>,
}

impl Rules {
    /// The rules of a directory that holds ignore files: their contents, in the order of [`NAMES`].
    pub(crate) fn read(directory: &Path, files: &[(PathBuf, Vec<u8>)], above: Option<Arc<Rules>>) -> Arc<Self> {
        let mut builder = GitignoreBuilder::new(directory);
        for (path, content) in files {
            for line in String::from_utf8_lossy(content).lines() {
                // A pattern that can't be read leaves nothing out, as git has it.
                let _ = builder.add_line(Some(path.clone()), line);
            }
        }
        let own = builder.build().unwrap_or_else(|_| Gitignore::empty());
        Arc::new(Self { own, above })
    }

    /// True when the entry is left out. The nearest rule that says anything wins.
    pub(crate) fn ignores(&self, path: &Path, is_directory: bool) -> bool {
        for rules in std::iter::successors(Some(self), |rules| rules.above.as_deref()) {
            match rules.own.matched(path, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// One after the other: in a tree that is deep enough, as many calls within each other would end the stack.
impl Drop for Rules {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut rules) = above.and_then(Arc::into_inner) {
            above = rules.above.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(directory: &str, content: &str, above: Option<Arc<Rules>>) -> Arc<Rules> {
        let file = (PathBuf::from(directory).join(".gitignore"), content.as_bytes().to_vec());
        Rules::read(Path::new(directory), &[file], above)
    }

    #[test]
    fn rules_may_be_as_deep_as_a_tree() {
        let deepest = (0..200_000).fold(None, |above, _| {
            let own = Gitignore::empty();
            Some(Arc::new(Rules { own, above }))
        });
        let deepest = deepest.expect("rules");
        assert!(!deepest.ignores(Path::new("/t/file"), false));
        drop(deepest);
    }

    #[test]
    fn the_nearest_rule_wins() {
        let top = rules("/t", "*.o\n/build/\n", None);
        let below = rules("/t/sub", "!keep.o\n", Some(Arc::clone(&top)));
        for (rules, path, is_directory, expected) in [
            (&top, "/t/a.o", false, true),
            (&top, "/t/build", true, true),
            (&top, "/t/build", false, false),
            (&top, "/t/sub/build", true, false),
            (&below, "/t/sub/x.o", false, true),
            (&below, "/t/sub/keep.o", false, false),
        ] {
            assert_eq!(rules.ignores(Path::new(path), is_directory), expected, "{path}");
        }
    }
}
