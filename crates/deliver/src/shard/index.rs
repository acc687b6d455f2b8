//! What tells readers where samples are: `index.json` for the data set, and `SHARD.idx` for each shard. Pure.

use serde::Serialize;

use super::layout::Layout;

/// The index of a data set, as `wids` of the package webdataset reads it (`ShardListDataset`).
#[derive(Serialize)]
struct Index<'a> {
    __kind__: &'static str,
    wids_version: u32,
    name: &'a str,
    shardlist: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    url: &'a str,
    nsamples: usize,
    filesize: u64,
}

/// `index.json`, of shards with samples; `names` are those of their files.
pub(super) fn json(layout: &Layout, name: &str, names: &[String]) -> Vec<u8> {
    let shards = layout.shards.iter().filter(|shard| !shard.samples.is_empty()).zip(names);
    let shardlist =
        shards.map(|(shard, url)| Entry { url, nsamples: shard.samples.len(), filesize: shard.file_len() }).collect();
    let index = Index { __kind__: "wids-shard-index-v1", wids_version: 1, name, shardlist };
    let mut text = serde_json::to_vec_pretty(&index).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The index of one shard, as NVIDIA DALI reads it (`fn.readers.webdataset`, `index_paths`): version and number of samples, then for
/// each sample a line with extension, place of the content, size and name of its files.
///
/// `None` for names with spaces, which the format has no way to write.
pub(super) fn lines(layout: &Layout, shard: usize) -> Option<Vec<u8>> {
    let samples = &layout.samples[layout.shards[shard].samples.clone()];
    let mut text = format!("v1.2 {}\n", samples.len()).into_bytes();
    for sample in samples {
        for member in sample.clone() {
            let name = layout.name_of(member);
            if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0x0b) {
                return None;
            }
            if member > sample.start {
                text.push(b' ');
            }
            text.extend_from_slice(layout.extension_of(member));
            let placed = &layout.members[member];
            text.extend_from_slice(format!(" {} {} ", placed.content_at(), placed.size).as_bytes());
            text.extend_from_slice(name);
        }
        text.push(b'\n');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Planned, Rules};
    use super::*;

    fn layout(names: &[&str]) -> Layout {
        let rules = Rules { max_count: 2, max_bytes: u64::MAX, reach: 0, seed: 0 };
        let files = names.iter().map(|name| Planned { name: name.as_bytes().to_vec(), size: 600 });
        Layout::new(files, rules, |_, _| 512).0
    }

    #[test]
    fn a_line_tells_all_files_of_a_sample() {
        let layout = layout(&["d/a.cls", "d/a.seg.png", "b.jpg", "c.jpg"]);
        let text = String::from_utf8(lines(&layout, 0).unwrap()).unwrap();
        let expected = "v1.2 2\ncls 512 600 d/a.cls seg.png 2048 600 d/a.seg.png\njpg 3584 600 b.jpg\n";
        assert_eq!(text, expected);
        assert_eq!(lines(&layout, 1).unwrap(), b"v1.2 1\njpg 512 600 c.jpg\n");
    }

    #[test]
    fn names_with_spaces_have_no_lines() {
        for name in ["a b.jpg", "a\x0bb.jpg", "a\nb.jpg", "a.j pg"] {
            assert_eq!(lines(&layout(&[name]), 0), None, "{name:?}");
        }
    }

    #[test]
    fn the_index_names_shards_with_samples_alone() {
        let mut layout = layout(&["a.x", "b.x", "c.x", "d.x", "e.x"]);
        layout.mend(|sample| sample != 2 && sample != 3);
        let names = ["s-0.tar", "s-1.tar"].map(str::to_owned);
        let index: serde_json::Value = serde_json::from_slice(&json(&layout, "s", &names)).unwrap();
        assert_eq!(index["__kind__"], "wids-shard-index-v1");
        let told = |at: usize| (index["shardlist"][at]["url"].as_str(), index["shardlist"][at]["nsamples"].as_u64());
        assert_eq!([told(0), told(1), told(2)], [(Some("s-0.tar"), Some(2)), (Some("s-1.tar"), Some(1)), (None, None)]);
    }
}
