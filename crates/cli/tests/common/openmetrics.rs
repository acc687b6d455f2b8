//! The text form of OpenMetrics 1.0, as strictly as its specification has it for what is written here: gauges and counters without
//! timestamps and exemplars.

use std::collections::BTreeSet;

/// A sample: its name, its labels, and its value.
pub(crate) type Sample = (String, Vec<(String, String)>, f64);

#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    told: BTreeSet<&'static str>,
    has_samples: bool,
}

/// The samples of a text; why it isn't one, where it breaks a rule.
pub(crate) fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the last line is no `# EOF`")?;
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("`# EOF` has no line of its own".into());
    }
    let (mut families, mut family) = (BTreeSet::new(), Family::default());
    // What a sample may be called by one family is no name for another.
    let mut names = BTreeSet::new();
    let (mut samples, mut seen) = (Vec::new(), BTreeSet::new());
    for line in body.split_terminator('\n') {
        let wrong = |why: &str| format!("{why}: {line:?}");
        if let Some(rest) = line.strip_prefix("# ") {
            let (word, rest) = rest.split_once(' ').ok_or_else(|| wrong("no descriptor"))?;
            let (name, what) = rest.split_once(' ').ok_or_else(|| wrong("a descriptor of nothing"))?;
            if name != family.name {
                if !is_name(name, true) || !families.insert(name.to_owned()) {
                    return Err(wrong("a name that is none, or a family in two places"));
                }
                family = Family { name: name.to_owned(), ..Family::default() };
            }
            let word =
                ["TYPE", "UNIT", "HELP"].into_iter().find(|known| *known == word).ok_or_else(|| wrong("a word"))?;
            if family.has_samples || !family.told.insert(word) {
                return Err(wrong("told twice, or behind samples"));
            }
            match word {
                "TYPE" => {
                    let suffix = match what {
                        "gauge" => "",
                        "counter" if !name.ends_with("_total") => "_total",
                        _ => return Err(wrong("a type that isn't written here, or a counter that is called a total")),
                    };
                    family.kind = what.to_owned();
                    for name in BTreeSet::from([name.to_owned(), format!("{name}{suffix}")]) {
                        if !names.insert(name) {
                            return Err(wrong("samples of another family have this name"));
                        }
                    }
                }
                "UNIT" if !name.ends_with(&format!("_{what}")) => {
                    return Err(wrong("the name doesn't end with its unit"));
                }
                "HELP" if unescaped(what).is_none() => return Err(wrong("an escape that is none")),
                _ => {}
            }
            continue;
        }
        let (name, rest) = line.split_at(line.find(['{', ' ']).ok_or_else(|| wrong("no sample"))?);
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest).ok_or_else(|| wrong("labels"))?,
            None => (Vec::new(), rest),
        };
        let value = value.strip_prefix(' ').filter(|value| !value.contains(' ')).ok_or_else(|| wrong("a value"))?;
        let value: f64 = value.parse().map_err(|_| wrong("a value that is no number"))?;
        let is_counter = family.kind == "counter";
        let own = if is_counter { format!("{}_total", family.name) } else { family.name.clone() };
        if name != own || family.kind.is_empty() {
            return Err(wrong("a sample of no family, or of another one"));
        }
        if is_counter && (value.is_nan() || value < 0.0) {
            return Err(wrong("a counter below nothing"));
        }
        let mut sorted = labels.clone();
        sorted.sort();
        if !seen.insert((name.to_owned(), sorted)) {
            return Err(wrong("told twice"));
        }
        family.has_samples = true;
        samples.push((name.to_owned(), labels, value));
    }
    Ok(samples)
}

fn is_name(name: &str, may_have_colons: bool) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || may_have_colons && letter == ':';
    name.starts_with(is_letter) && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// What stands behind `{`, and what is behind `}`.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        let (name, behind) = rest.split_once("=\"")?;
        let end = behind.bytes().scan(false, |escaped, byte| {
            let is_end = byte == b'"' && !*escaped;
            *escaped = byte == b'\\' && !*escaped;
            Some(is_end)
        });
        let end = end.enumerate().find_map(|(at, is_end)| is_end.then_some(at))?;
        if !is_name(name, false) || labels.iter().any(|(other, _)| other == name) {
            return None;
        }
        labels.push((name.to_owned(), unescaped(&behind[..end])?));
        rest = &behind[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some((labels, rest.strip_prefix('}')?)),
        }
    }
}

fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[test]
fn what_breaks_a_rule_is_found() {
    let head = "# TYPE a counter\n# HELP a Some.\n";
    let right = format!(
        "{head}a_total{{p=\"x\\\"\\\\\\n,}}\",q=\"\"}} 1\na_total 2.5\n# TYPE b_s gauge\n# UNIT b_s s\nb_s -1\n# EOF\n"
    );
    let samples = parse(&right).unwrap();
    assert_eq!(samples[0].1, [("p".into(), "x\"\\\n,}".into()), ("q".into(), String::new())]);
    assert_eq!(samples.iter().map(|sample| sample.2).collect::<Vec<_>>(), [1.0, 2.5, -1.0]);
    assert_eq!(parse("# EOF\n"), Ok(vec![]));
    let wrong = [
        "a_total 1\n# EOF".to_owned(),
        format!("{head}a_total 1\n"),
        format!("{head}a 1\n# EOF\n"),
        format!("{head}a_total -1\n# EOF\n"),
        format!("{head}a_total NaN\n# EOF\n"),
        format!("{head}a_total 1 \n# EOF\n"),
        format!("{head}a_total  1\n# EOF\n"),
        format!("{head}a_total 1\na_total 1\n# EOF\n"),
        format!("{head}a_total{{p=\"1\",p=\"2\"}} 1\n# EOF\n"),
        format!("{head}a_total{{p=\"\\x\"}} 1\n# EOF\n"),
        format!("{head}a_total{{p=\"x}} 1\n# EOF\n"),
        format!("{head}a_total{{0=\"x\"}} 1\n# EOF\n"),
        format!("{head}\n# EOF\n"),
        format!("{head}a_total 1\n# HELP a More.\n# EOF\n"),
        format!("{head}# HELP a More.\n# EOF\n"),
        format!("{head}# TYPE a_total gauge\n# EOF\n"),
        format!("{head}# TYPE b gauge\nb 1\n# TYPE a counter\n# EOF\n"),
        "# TYPE a_total counter\n# EOF\n".to_owned(),
        "# TYPE a gauge\n# UNIT a seconds\n# EOF\n".to_owned(),
        "# HELP a Some.\na 1\n# EOF\n".to_owned(),
        "# TYPE a gauge\na 1\n# EOF\n# EOF\n".to_owned(),
        "# TYPE 9 gauge\n# EOF\n".to_owned(),
    ];
    for text in wrong {
        assert!(parse(&text).is_err(), "{text}");
    }
}
