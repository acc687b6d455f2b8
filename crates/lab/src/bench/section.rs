//! Sections of a page, from one heading to the next.
//!
//! Results are made over many days, on more than one machine. So a section stays as it is while the results that are at
//! hand have less behind them than it has.

const HEADING: &str = "### ";
/// How [`missing`](super::exhibits::missing) begins.
const LACKS: &str = "*Not yet measured: ";

/// The section with that title, with its heading.
pub(crate) fn of<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let mut starts = page.match_indices(HEADING).map(|(at, _)| at).filter(|&at| at == 0 || page[..at].ends_with('\n'));
    let start =
        starts.find(|&at| page[at..].lines().next().and_then(|line| line.strip_prefix(HEADING)) == Some(title))?;
    Some(&page[start..starts.next().unwrap_or(page.len())])
}

/// The section of that title, if fewer runs are lacking to it than `lacking`.
pub(crate) fn with_more_behind<'a>(page: &'a str, title: &str, lacking: usize) -> Option<&'a str> {
    let published = of(page, title)?;
    let lacked = published.lines().find_map(|line| line.strip_prefix(LACKS)?.split(' ').next()?.parse().ok());
    (lacking > lacked.unwrap_or(0)).then_some(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "words\n### one\n\ntext ### no heading\n\n*Not yet measured: 3 of 9 runs (x).*\n\n### two\nall\n";

    #[test]
    fn a_section_ends_at_the_next_heading() {
        assert!(of(PAGE, "one").is_some_and(|text| text.starts_with("### one\n") && text.ends_with("(x).*\n\n")));
        assert_eq!(of(PAGE, "two"), Some("### two\nall\n"));
        assert_eq!(of(PAGE, "no heading"), None);
    }

    #[test]
    fn a_section_stays_while_more_is_behind_it() {
        let stays = |title, lacking| with_more_behind(PAGE, title, lacking).is_some();
        assert!(stays("one", 4) && !stays("one", 3));
        assert!(stays("two", 1) && !stays("two", 0), "nothing was lacking");
        assert!(!stays("three", 9), "it was not there");
    }
}
