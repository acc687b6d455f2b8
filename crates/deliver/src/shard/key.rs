//! Which sample a file belongs to, by its name: WebDataset's rule.

/// The length of the key of a file: all of its path up to the first dot of its last component. Files with the same key
/// are one sample, and what stands behind the dot tells them apart.
///
/// `None` for what readers of the format leave out or take for something else: names without a dot, with nothing behind
/// it, or with nothing before it, and all below `__NAME__`, which is kept for metadata of shards.
pub(super) fn key_len(name: &[u8]) -> Option<usize> {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].iter().position(|&byte| byte == b'.')?;
    let is_sample = dot > base && dot + 1 < name.len() && !is_metadata(name);
    is_sample.then_some(dot)
}

fn is_metadata(name: &[u8]) -> bool {
    let first = name.split(|&byte| byte == b'/').next().unwrap_or(name);
    first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_at_the_first_dot_of_the_last_name() {
        for (name, key) in [
            ("a.jpg", Some("a")),
            ("a.seg.png", Some("a")),
            ("d.1/e.2/a.b.c", Some("d.1/e.2/a")),
            ("_x_.txt", Some("_x_")),
            ("d/__a__.txt", Some("d/__a__")),
            ("README", None),
            ("d.1/README", None),
            (".hidden", None),
            ("d/.hidden.txt", None),
            ("d/ends.", None),
            ("__meta__.x/a.jpg", Some("__meta__.x/a")),
            ("__meta__/a.jpg", None),
            ("__a.b__", None),
            ("", None),
        ] {
            let found = key_len(name.as_bytes()).map(|len| &name[..len]);
            assert_eq!(found, key, "{name}");
        }
    }
}
