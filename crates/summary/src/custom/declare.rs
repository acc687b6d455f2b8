//! Which summaries are kept beside the totals: declared in a TOML file, a table for each (docs/du.md).

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{
    command::Command,
    keys::{Age, Classes, Extension, Group, Largest, Owner, Period, Project, SizeClass, Summarise},
    tally::{Merge, Rule},
};

/// Summaries, at most: each is a part of every directory's record.
const SUMMARIES_MAX: usize = 16;
/// Bytes of the file, at most.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Keys of a directory, unless the table says otherwise, and at most.
const KEYS: usize = 256;
const KEYS_MAX: usize = 4096;
/// Files that are the largest, and keys that are the top ones, unless the table says otherwise, and at most.
const TOP: usize = 10;
const TOP_MAX: usize = 100;
/// A command has so long for each directory.
const COMMAND_LIMIT: Duration = Duration::from_secs(1);
/// Of what the store keeps: rises when old parts can't be understood any more.
const LAYOUT: u32 = 2;

/// What a part of the file says, in a form that stays the same: it is hashed, and the hash is kept.
fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("s{}:{text}", text.len()),
        toml::Value::Integer(number) => format!("i{number}"),
        toml::Value::Float(number) => format!("f{:x}", number.to_bits()),
        toml::Value::Boolean(is) => format!("b{}", u8::from(*is)),
        toml::Value::Datetime(time) => format!("d{time}"),
        toml::Value::Array(all) => format!("[{}]", all.iter().map(written).collect::<Vec<_>>().join(",")),
        toml::Value::Table(table) => {
            let mut all: Vec<String> =
                table.iter().map(|(key, value)| format!("{}:{key}={}", key.len(), written(value))).collect();
            all.sort();
            format!("{{{}}}", all.join(","))
        }
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The summaries that are kept.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    all: Vec<Declaration>,
    wants_project: bool,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// What it is called.
    pub name: String,
    /// What it is by.
    pub by: By,
    /// How directories are merged.
    pub rule: Rule,
    /// What it is made of.
    pub source: Source,
    /// All that what is kept of it depends on.
    told: String,
}

/// What a summary is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Who owns what.
    Owner,
    /// Of which group it is.
    Group,
    /// Extensions of names.
    Extension,
    /// Classes of sizes.
    Size,
    /// Months or years of the last change.
    Age,
    /// Projects.
    Project,
    /// The largest files.
    Largest,
    /// What a command says.
    Command,
    /// What a type of Rust says.
    Own,
}

impl By {
    /// As it is written in a file.
    pub fn name(self) -> &'static str {
        match self {
            By::Owner => "owner",
            By::Group => "group",
            By::Extension => "extension",
            By::Size => "size",
            By::Age => "age",
            By::Project => "project",
            By::Largest => "largest",
            By::Command => "command",
            By::Own => "own",
        }
    }
}

/// What a summary is made of.
#[derive(Clone, Debug)]
pub enum Source {
    /// Each entry by itself.
    Entries(Arc<dyn Summarise>),
    /// All entries of a directory.
    Command(Arc<Command>),
}

/// A table of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    by: By,
    keys: Option<usize>,
    borders: Option<Vec<String>>,
    every: Option<Period>,
    count: Option<usize>,
    command: Option<Vec<String>>,
    merge: Option<CommandMerge>,
    user: Option<u32>,
    group: Option<u32>,
    #[serde(rename = "as-root")]
    as_root: Option<bool>,
    version: Option<u64>,
}

/// How what a command says of two directories becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CommandMerge {
    Sum,
    Min,
    Max,
    Top,
    Histogram,
}

impl Declared {
    /// Reads a file. An error names the table and what is wrong with it; refused when anybody but root could have written the
    /// file, for it names programs.
    pub fn read(path: &Path) -> io::Result<Declared> {
        Declared::parse(&Declared::text(path)?).map_err(invalid)
    }

    /// The text of a file, which is refused where [`read`](Self::read) refuses it.
    pub fn text(path: &Path) -> io::Result<String> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(invalid("it isn't a file".to_owned()));
        }
        if facts.uid() != 0 || facts.mode() & 0o022 != 0 {
            return Err(invalid("others may write it; chown root and chmod 644 it".to_owned()));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The same from its text.
    pub fn parse(text: &str) -> Result<Declared, String> {
        Declared::parse_for(text, true)
    }

    /// The same in a process that runs none of the commands: another one does, and tells what they say. Takes no rights.
    pub fn parse_without_commands(text: &str) -> Result<Declared, String> {
        Declared::parse_for(text, false)
    }

    fn parse_for(text: &str, runs_commands: bool) -> Result<Declared, String> {
        let tables: toml::Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message().lines().next().unwrap_or_default())
        })?;
        let mut declared = Declared::default();
        for (name, value) in tables {
            let wrong = |why: String| format!("[{name}]: {why}");
            if !value.is_table() {
                return Err(format!("{name}: a summary is a table, such as [{name}] and by = \"owner\" below it"));
            }
            let told = written(&value);
            let table = Table::deserialize(value)
                .map_err(|error| wrong(error.message().lines().next().unwrap_or_default().to_owned()))?;
            let (rule, source) = table.source(runs_commands).map_err(wrong)?;
            declared.wants_project |= table.by == By::Project;
            declared.take(Declaration { name: name.clone(), by: table.by, rule, source, told })?;
        }
        Ok(declared)
    }

    /// Adds one of your own. What is kept of it is made anew when `version` is another one.
    pub fn add(&mut self, name: &str, rule: Rule, version: u64, own: Arc<dyn Summarise>) -> Result<(), String> {
        let merge = match rule.merge {
            Merge::Sum => "sum",
            Merge::Min => "min",
            Merge::Max => "max",
            Merge::Files => "files",
        };
        let told = format!("{merge} {} {version}", rule.limit);
        self.take(Declaration { name: name.to_owned(), by: By::Own, rule, source: Source::Entries(own), told })
    }

    fn take(&mut self, new: Declaration) -> Result<(), String> {
        let name = &new.name;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > 32 || !name.bytes().all(is_word) {
            return Err(format!("[{name}]: a name has 1 to 32 letters, digits, - and _"));
        }
        if self.find(name).is_some() {
            return Err(format!("[{name}]: there are two of this name"));
        }
        if self.all.len() == SUMMARIES_MAX {
            return Err(format!("[{name}]: there are more than {SUMMARIES_MAX} summaries"));
        }
        self.all.push(new);
        Ok(())
    }

    /// All: those of a file in the order of their names.
    pub fn all(&self) -> &[Declaration] {
        &self.all
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Where one stands among them.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|one| one.name == name)
    }

    /// Some of them are by commands.
    pub fn has_commands(&self) -> bool {
        self.all.iter().any(|one| matches!(one.source, Source::Command(_)))
    }

    /// The project of each entry has to be asked for.
    pub fn wants_project(&self) -> bool {
        self.wants_project
    }

    /// What is kept is of these summaries when this is the same; 0 where there is none.
    pub fn hash(&self) -> u64 {
        if self.all.is_empty() {
            return 0;
        }
        let mut hash = Sha256::new();
        hash.update(LAYOUT.to_le_bytes());
        for one in &self.all {
            for part in [one.name.as_bytes(), one.told.as_bytes()] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        let bytes: [u8; 32] = hash.finalize().into();
        bytes.first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes)).max(1)
    }
}

impl Table {
    fn source(&self, runs_commands: bool) -> Result<(Rule, Source), String> {
        self.check_keys()?;
        let sum = |keys| Rule { merge: Merge::Sum, limit: keys };
        let keys = number("keys", self.keys, KEYS, KEYS_MAX)?;
        let entries = |source: Arc<dyn Summarise>| Ok((sum(keys), Source::Entries(source)));
        match self.by {
            By::Owner => entries(Arc::new(Owner)),
            By::Group => entries(Arc::new(Group)),
            By::Extension => entries(Arc::new(Extension)),
            By::Size => entries(Arc::new(SizeClass(self.classes()?))),
            By::Age => entries(Arc::new(Age(self.every.unwrap_or(Period::Month)))),
            By::Project => entries(Arc::new(Project)),
            By::Largest => {
                let limit = number("count", self.count, TOP, TOP_MAX)?;
                Ok((Rule { merge: Merge::Files, limit }, Source::Entries(Arc::new(Largest))))
            }
            By::Command => self.command(keys, runs_commands),
            By::Own => Err("by = \"own\" is for programs that declare a type of Rust".to_owned()),
        }
    }

    fn command(&self, keys: usize, is_run_here: bool) -> Result<(Rule, Source), String> {
        let words = self.command.clone().unwrap_or_default();
        match words.first() {
            None => return Err("command is missing: a list, the program's absolute path first".to_owned()),
            Some(program) if !program.starts_with('/') => {
                return Err(format!("command: {program:?} isn't an absolute path"));
            }
            Some(_) if words.iter().any(|word| word.contains('\0')) => {
                return Err("command: a word holds a byte of zero".to_owned());
            }
            Some(_) => {}
        }
        let user = self.user.ok_or("user is missing: the number of the user that the command runs as")?;
        if user == 0 && self.as_root != Some(true) {
            return Err("user = 0: a command doesn't run as root, unless as-root = true says that it has to".to_owned());
        }
        let group = self.group.unwrap_or(user);
        let merge = self.merge.ok_or("merge is missing: sum, min, max, top or histogram")?;
        let rule = |merge, limit| Rule { merge, limit };
        let rule = match merge {
            CommandMerge::Sum | CommandMerge::Histogram => rule(Merge::Sum, keys),
            CommandMerge::Min => rule(Merge::Min, keys),
            CommandMerge::Max => rule(Merge::Max, keys),
            CommandMerge::Top => rule(Merge::Max, number("count", self.count, TOP, TOP_MAX)?),
        };
        let classes = if merge == CommandMerge::Histogram { Some(self.classes()?) } else { None };
        let command = match is_run_here {
            true => Command::new(words, (user, group), classes, COMMAND_LIMIT)
                .map_err(|error| format!("what keeps a command from the network can't be made: {error}"))?,
            false => Command::elsewhere(words, classes, COMMAND_LIMIT),
        };
        Ok((rule, Source::Command(Arc::new(command))))
    }

    /// Words that mean nothing here would be believed to mean something.
    fn check_keys(&self) -> Result<(), String> {
        let merge = self.merge;
        let is_command = self.by == By::Command;
        let has_count = self.by == By::Largest || merge == Some(CommandMerge::Top);
        let has_borders = self.by == By::Size || merge == Some(CommandMerge::Histogram);
        for (word, is_there, has_meaning) in [
            ("keys", self.keys.is_some(), !has_count),
            ("count", self.count.is_some(), has_count),
            ("borders", self.borders.is_some(), has_borders),
            ("every", self.every.is_some(), self.by == By::Age),
            ("command", self.command.is_some(), is_command),
            ("merge", merge.is_some(), is_command),
            ("user", self.user.is_some(), is_command),
            ("group", self.group.is_some(), is_command),
            ("as-root", self.as_root.is_some(), is_command),
            ("version", self.version.is_some(), is_command),
        ] {
            if is_there && !has_meaning {
                return Err(format!("{word} means nothing here"));
            }
        }
        Ok(())
    }

    fn classes(&self) -> Result<Classes, String> {
        let Some(borders) = &self.borders else { return Ok(Classes::powers_of_ten()) };
        let border = |text: &String| {
            let number =
                size(text).ok_or_else(|| format!("borders: {text:?} is no number; write 4096, 4K, 1M or 2G"))?;
            Ok::<_, String>((number, text.clone()))
        };
        let borders: Vec<(i64, String)> = borders.iter().map(border).collect::<Result<_, _>>()?;
        if borders.is_empty() || borders.len() > KEYS || !borders.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(format!("borders: 1 to {KEYS} numbers, each larger than the one before"));
        }
        Ok(Classes::new(borders))
    }
}

fn number(word: &str, found: Option<usize>, usual: usize, most: usize) -> Result<usize, String> {
    let number = found.unwrap_or(usual);
    if (1..=most).contains(&number) { Ok(number) } else { Err(format!("{word} = {number}: 1 to {most}")) }
}

/// In powers of 1024.
fn size(text: &str) -> Option<i64> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let power = ["", "K", "M", "G", "T", "P"].iter().position(|known| *known == unit)?;
    number.parse::<i64>().ok()?.checked_mul(1 << (10 * power))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
        [owner]
        by = "owner"
        [type]
        by = "extension"
        keys = 500
        [size]
        by = "size"
        borders = ["4K", "1M"]
        [years]
        by = "age"
        every = "year"
        [largest]
        by = "largest"
        count = 20
    "#;

    /// What is installed as an example: as it is, and with every mark before a setting taken out.
    #[test]
    fn the_example_is_understood() {
        let example = include_str!("../../../../packaging/summaries.toml");
        assert!(Declared::parse(example).expect("it is understood").all().is_empty());
        let is_setting = |line: &&str| line.starts_with('[') || line.contains(" = ");
        let settings = example.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_setting);
        let declared = Declared::parse(&settings.collect::<Vec<_>>().join("\n")).expect("it is understood");
        let mut names: Vec<&str> = declared.all().iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["age", "group", "largest", "lines", "owner", "project", "size", "type"]);
    }

    #[test]
    fn a_file_declares_summaries() {
        let declared = Declared::parse(ALL).expect("it is understood");
        let names: Vec<&str> = declared.all().iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), 5);
        assert!(!declared.wants_project());
        let rule = |name| declared.all()[declared.find(name).expect("it is there")].rule;
        assert_eq!(rule("owner"), Rule { merge: Merge::Sum, limit: KEYS });
        assert_eq!(rule("type").limit, 500);
        assert_eq!(rule("largest"), Rule { merge: Merge::Files, limit: 20 });
        assert!(Declared::parse("[p]\nby = \"project\"").expect("it is understood").wants_project());
        assert_eq!(Declared::parse("").expect("nothing").hash(), 0);
    }

    /// It is kept in stores, so it may change with `LAYOUT` alone.
    #[test]
    fn a_hash_stays_what_it_is() {
        let text = "[lines]\nby = \"command\"\ncommand = [\"/bin/a\", \"b\"]\nmerge = \"sum\"\nuser = 7\n";
        let value: toml::Value = toml::from_str(text).expect("TOML");
        let form = "{5:lines={2:by=s7:command,4:user=i7,5:merge=s3:sum,7:command=[s6:/bin/a,s1:b]}}";
        assert_eq!(written(&value), form);
        assert_eq!(Declared::parse(text).expect("it is understood").hash(), 17_105_775_994_904_173_659);
    }

    #[test]
    fn another_declaration_has_another_hash() {
        let hash = |text: &str| Declared::parse(text).expect("it is understood").hash();
        assert_eq!(hash(ALL), hash(&ALL.replace("        ", "  ")));
        for (from, to) in [("500", "501"), ("year\"", "month\""), ("[type]", "[types]"), ("1M", "2M"), ("20", "21")] {
            assert_ne!(hash(ALL), hash(&ALL.replacen(from, to, 1)), "{from}");
        }
    }

    #[test]
    fn mistakes_name_their_place() {
        let command = "[c]\nby = \"command\"\n";
        for (text, expected) in [
            ("[a]\nby = \"colour\"", "[a]: unknown variant `colour`"),
            ("[a]", "[a]: missing field `by`"),
            ("a = 1", "a: a summary is a table"),
            ("\n[a\n", "line 2"),
            ("[a]\nby = \"owner\"\ncolour = 1", "[a]: unknown field `colour`"),
            ("[a]\nby = \"owner\"\nkeys = 0", "[a]: keys = 0: 1 to 4096"),
            ("[a]\nby = \"owner\"\ncount = 5", "[a]: count means nothing here"),
            ("[a]\nby = \"owner\"\nevery = \"year\"", "[a]: every means nothing here"),
            ("[a]\nby = \"largest\"\ncount = 1000", "[a]: count = 1000: 1 to 100"),
            ("[a]\nby = \"size\"\nborders = [\"2K\", \"1K\"]", "[a]: borders: 1 to 256 numbers"),
            ("[a]\nby = \"size\"\nborders = [\"2X\"]", "[a]: borders: \"2X\" is no number"),
            ("[a]\nby = \"age\"\nevery = \"day\"", "[a]: unknown variant `day`"),
            ("[a]\nby = \"own\"", "[a]: by = \"own\" is for programs"),
            ("[\"a b\"]\nby = \"owner\"", "[a b]: a name has 1 to 32"),
            (command, "[c]: command is missing"),
            (&format!("{command}command = [\"wc\"]"), "[c]: command: \"wc\" isn't an absolute path"),
            (&format!("{command}command = [\"/wc\"]"), "[c]: user is missing"),
            (&format!("{command}command = [\"/wc\"]\nuser = 0"), "[c]: user = 0: a command doesn't run as root"),
            (&format!("{command}command = [\"/wc\"]\nuser = 1"), "[c]: merge is missing"),
            (&format!("{command}command = [\"/wc\"]\nuser = 1\nmerge = \"mean\""), "[c]: unknown variant `mean`"),
        ] {
            let error = Declared::parse(text).expect_err(text);
            assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
        }
        let many: String = (0..=SUMMARIES_MAX).map(|number| format!("[a{number}]\nby = \"owner\"\n")).collect();
        assert!(Declared::parse(&many).expect_err("too many").contains("more than 16 summaries"));
    }
}
