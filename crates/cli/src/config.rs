//! Settings from variables and from the configuration file.
//!
//! What is typed wins over variables, and these over the file. So `ONESWEEP_ORDER=directory`, or that line in the file,
//! turns the technique off for a whole system.

use std::{env, ffi::OsString, fs, io, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, de::Error};

use crate::{args::Settings, report::Failure};

/// Where the file is.
const PATH: &str = "/etc/onesweep/config.toml";
/// Gives the file another place, for tests.
const PATH_VARIABLE: &str = "ONESWEEP_CONFIG";
const PREFIX: &str = "ONESWEEP_";

/// Fills in what was not typed.
pub(crate) fn complete(typed: Settings) -> Result<Settings, Failure> {
    let named = env::var_os(PATH_VARIABLE).map(PathBuf::from);
    let path = named.clone().unwrap_or_else(|| PATH.into());
    let file = match fs::read_to_string(&path) {
        Ok(text) => of_file(&text).map_err(|why| Failure::could_not_run(&path, "read the settings", why))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Settings::default(),
        Err(error) => return Err(Failure::io(&path, "read", &error)),
    };
    let variables = of_variables(|name| env::var_os(name)).map_err(Failure::told)?;
    Ok(over(over(typed, variables), file))
}

/// `upper`, and what it leaves open by `lower`. The two words for reassembly are one setting: the upper one wins.
fn over(upper: Settings, mut lower: Settings) -> Settings {
    if upper.threshold.is_some() || upper.reassembly.is_some() {
        (lower.threshold, lower.reassembly) = (None, None);
    }
    upper.or(lower)
}

pub(crate) fn of_file<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let what = error.message().lines().next().unwrap_or_default().to_owned();
        line.map_or_else(|| what.clone(), |line| format!("line {line}: {what}"))
    })
}

fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings, String> {
    let mut all = Settings::default();
    for field in Settings::NAMES {
        let name = format!("{PREFIX}{}", field.to_ascii_uppercase());
        let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
        let value = value.into_string().map_err(|_| format!("{name}: is not UTF-8"))?;
        let table = toml::Table::from_iter([(field.replace('_', "-"), toml::Value::String(value))]);
        let one = Settings::deserialize(toml::Value::Table(table));
        all = all.or(one.map_err(|error| format!("{name}: {}", error.message()))?);
    }
    Ok(all)
}

/// Reads a setting from text, or from a number or truth value as the file may have it.
pub(crate) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: ToString>>(input: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text, a whole number, true or false")]
    enum Raw {
        Truth(bool),
        Number(i64),
        Text(String),
    }
    let text = match Raw::deserialize(input)? {
        Raw::Truth(value) => value.to_string(),
        Raw::Number(value) => value.to_string(),
        Raw::Text(value) => value,
    };
    text.parse().map(Some).map_err(|error: T::Err| D::Error::custom(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;
    use onesweep::Order;

    fn variables(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        of_variables(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    }

    #[test]
    fn typed_wins_over_variables_and_these_over_the_file() {
        let file = of_file("order = \"directory\"\nbudget = \"1M\"\ngap = 4096\n").unwrap();
        let variables = variables(&[("ONESWEEP_ORDER", "inode"), ("ONESWEEP_BUDGET", "2M")]).unwrap();
        let typed = Settings { budget: Some(Size(3 << 20)), ..Settings::default() };
        let all = over(over(typed, variables), file);
        assert_eq!((all.order, all.budget, all.gap), (Some(Order::Inode), Some(Size(3 << 20)), Some(Size(4096))));
    }

    #[test]
    fn a_threshold_above_hides_a_way_of_reassembly_below() {
        let file = of_file("reassembly = \"first-fit\"").unwrap();
        let typed = Settings { threshold: Some(Size(1)), ..Settings::default() };
        assert_eq!(over(typed.clone(), file), typed);
    }

    #[test]
    fn every_setting_can_be_set_in_either_place() {
        for field in Settings::NAMES {
            let value = match *field {
                "metadata" => "auto",
                "order" => "inode",
                "strategy" => "merged",
                "reassembly" => "first-fit",
                "disk" => onesweep::DiskModel::names().next().unwrap(),
                "progress" => "never",
                "device" | "snapshot" | "one_file_system" | "gitignore" | "idle" => "true",
                _ => "8",
            };
            let file: Settings = of_file(&format!("{} = {value:?}", field.replace('_', "-"))).unwrap();
            let variable = variables(&[(&format!("ONESWEEP_{}", field.to_uppercase()), value)]).unwrap();
            assert_eq!(file, variable, "{field}");
            assert_ne!(file, Settings::default(), "{field}");
        }
        assert_eq!(of_file::<Settings>("idle = true\nqueue-depth = 4").unwrap().idle, Some(true));
    }

    #[test]
    fn the_example_has_every_setting_and_each_of_its_lines_can_be_used() {
        let example = include_str!("../../../packaging/config.toml");
        assert_eq!(of_file::<Settings>(example).unwrap(), Settings::default(), "as it is, it says nothing");
        let lines: Vec<_> = example.lines().filter_map(|line| line.strip_prefix("# ")?.split_once(" = ")).collect();
        let shown = |name: &str| lines.iter().find(|(key, _)| *key == name.replace('_', "-"));
        for field in Settings::NAMES {
            let (key, value) = shown(field).unwrap_or_else(|| panic!("packaging/config.toml lacks {field}"));
            assert_ne!(of_file::<Settings>(&format!("{key} = {value}")).unwrap(), Settings::default(), "{field}");
        }
    }

    #[test]
    fn mistakes_name_their_place() {
        for (text, expected) in [
            ("\nordre = \"directory\"", "unknown field `ordre`"),
            ("\norder = \"sideways\"", "unknown order 'sideways'"),
            ("\nbudget = \"much\"", "'much' is no size"),
            ("\nqueue-depth = -1", "line 2"),
            ("\norder = [1]", "expected a text"),
            ("\norder", "line 2"),
        ] {
            let error = of_file::<Settings>(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
        }
        let error = variables(&[("ONESWEEP_BUDGET", "much")]).unwrap_err();
        assert!(error.starts_with("ONESWEEP_BUDGET: 'much' is no size"), "{error}");
        assert_eq!(variables(&[("ONESWEEP_ORDER", "")]).unwrap(), Settings::default(), "empty is unset");
    }
}
