//! The settings: what was typed, then the file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    args::{ServeArgs, ServeSettings},
    config,
    report::Failure,
};

/// Where the file is.
const PATH: &str = "/etc/onesweep/serve.toml";

/// What holds now: what was typed, and what the file says beside. Each of them is checked before.
pub(super) fn read(args: &ServeArgs) -> Result<ServeSettings, Failure> {
    let path = args.config.as_deref().unwrap_or(Path::new(PATH));
    let file = match fs::read_to_string(path) {
        Ok(text) => config::of_file(&text).map_err(|why| Failure::could_not_run(path, "read the settings", why))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.config.is_none() => ServeSettings::default(),
        Err(error) => return Err(Failure::io(path, "read the settings", &error)),
    };
    let settings = args.settings.clone().or(file);
    check(&settings, args.new_token.is_some()).map_err(Failure::told)?;
    Ok(settings)
}

fn check(settings: &ServeSettings, makes_token: bool) -> Result<(), String> {
    let ServeSettings { paths, timed, http, http_tokens, metrics, .. } = settings;
    if makes_token {
        let why = "--new-token needs the file of tokens: add --http-tokens FILE";
        return http_tokens.as_ref().map(drop).ok_or_else(|| why.to_owned());
    }
    if paths.is_empty() && timed.is_empty() {
        return Err("no file system is named: add a PATH, or a line such as paths = [\"/\"] to the settings".to_owned());
    }
    if http.is_some() && http_tokens.is_none() {
        return Err("--http needs the file of tokens: add --http-tokens FILE".to_owned());
    }
    if !metrics.is_empty() && http.is_none() {
        return Err("--metrics needs an address to tell them at: add --http ADDRESS:PORT".to_owned());
    }
    if let Some(path) = metrics.iter().find(|path| !path.is_absolute()) {
        return Err(format!("{}: cannot tell metrics of it: the path isn't absolute", path.display()));
    }
    Ok(())
}

/// Settings that hold until the next start, of which these differ.
pub(super) fn fixed(before: &ServeSettings, now: &ServeSettings) -> Vec<&'static str> {
    let differs = [
        ("socket", before.socket() != now.socket()),
        ("store", before.store != now.store),
        ("user", before.user != now.user),
        ("mount-namespace", before.mount_namespace != now.mount_namespace),
        ("http", before.http != now.http),
        // The mover takes rights that are given up at the start.
        ("relocate", now.relocates() && !before.relocates()),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// The directory of stores.
pub(super) fn store(settings: &ServeSettings) -> PathBuf {
    settings.store.clone().unwrap_or_else(|| "/var/lib/onesweep/summaries".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, LogLevel, parse_line};

    fn args(line: &str) -> ServeArgs {
        match parse_line(&format!("serve {line}")) {
            Ok(Command::Serve(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_option_can_stand_in_the_file_and_what_is_typed_wins() {
        let typed = args(
            "/a /b --timed /n --socket s --store d --user 7 --mount-namespace n --full-totals 1,2 --summaries d.toml --http 127.0.0.1:1 --http-tokens t --http-max-time 9s --metrics /m \
             --harvest-after 5m --background-budget 9 --sizes-follow close --check-open-every 5s --relocate seeking --relocate-after 9s --relocate-budget 7 --relocate-pressure 8 --log warn",
        );
        let file: ServeSettings = config::of_file(
            "paths = [\"/a\", \"/b\"]\ntimed = [\"/n\"]\nsocket = \"s\"\nstore = \"d\"\nuser = 7\nmount-namespace = \"n\"\nfull-totals = [1, 2]\nsummaries = \"d.toml\"\nhttp = \"127.0.0.1:1\"\n\
             http-tokens = \"t\"\nhttp-max-time = \"9s\"\nmetrics = [\"/m\"]\nharvest-after = \"5m\"\nbackground-budget = 9\nsizes-follow = \"close\"\ncheck-open-every = \"5s\"\nrelocate = \"seeking\"\nrelocate-after = \"9s\"\nrelocate-budget = 7\nrelocate-pressure = 8\n\
             log = \"warn\"\n",
        )
        .unwrap();
        assert_eq!(typed.settings, file);
        let other = ServeSettings { log: Some(LogLevel::Debug), paths: vec!["/c".into()], ..ServeSettings::default() };
        let both = other.clone().or(file.clone());
        assert_eq!((both.log, &both.paths, &both.metrics), (other.log, &other.paths, &file.metrics));
        assert_eq!(fixed(&both, &file), Vec::<&str>::new());
        assert_eq!(
            fixed(&ServeSettings::default(), &file),
            ["socket", "store", "user", "mount-namespace", "http", "relocate"]
        );
    }

    #[test]
    fn mistakes_in_the_file_name_their_line() {
        for (text, expected) in [
            ("paths = [\"/\"]\nmetric = []", "line 2: unknown field `metric`"),
            ("\n\nharvest-after = \"5\"", "line 3: '5' is no time"),
            ("log = \"loud\"", "line 1: unknown variant `loud`"),
            ("sizes-follow = \"later\"", "line 1: unknown variant `later`"),
            ("relocate = true", "line 1: "),
            ("http = \"nowhere\"", "line 1: "),
            ("full-totals = 7", "line 1: "),
            ("paths = [", "line 1: "),
        ] {
            let error = config::of_file::<ServeSettings>(text).unwrap_err();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        for (line, expected) in [
            ("", "no file system is named"),
            ("/ --http 127.0.0.1:1", "--http-tokens FILE"),
            ("/ --metrics /x", "--http ADDRESS:PORT"),
            ("/ --http 127.0.0.1:1 --http-tokens t --metrics x", "isn't absolute"),
        ] {
            let error = check(&args(line).settings, false).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(check(&args("").settings, true).unwrap_err().contains("--http-tokens"));
    }
}
