//! An ordinary user, as whom programs are run.

/// One who owns nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// What stands before the words of a program that this user runs.
pub(crate) fn words() -> Vec<String> {
    ["setpriv".to_owned(), format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()].into()
}
