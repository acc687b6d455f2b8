//! The engine: contents into memory, names of rules into verdicts.

use std::{
    fs::File,
    io::{self, Read, Seek},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use onesweep_layout::size::Size;
use yara_x::Rules;

use super::{
    NAME, Settings,
    compile::epoch,
    workers::{Unmatched, Workers},
};
use crate::scan::engine::{Content, Engine, EngineError, EngineId, NAME_BYTES_MAX, Verdict};

/// Of contents that are larger, one lies in memory at a time.
const LARGE: u64 = 64 << 20;
/// So many bytes of a file are read before it is looked whether there is time left.
const READ_BYTES: u64 = 8 << 20;

/// Rules that were compiled.
#[derive(Debug)]
pub(super) struct Yara {
    epoch: Result<String, String>,
    settings: Settings,
    workers: Workers,
    stop: Arc<AtomicBool>,
    /// Whose turn it is to hold a large content.
    large: Mutex<()>,
}

impl Yara {
    pub(super) fn new(rules: Rules, settings: Settings, stop: Arc<AtomicBool>) -> Self {
        let epoch = match (epoch(&rules), &settings.epoch) {
            (Ok(epoch), Some(more)) => Ok(format!("{epoch} {more}")),
            (Ok(epoch), None) => Ok(epoch),
            (Err(error), _) => Err(format!("cannot tell the rules from others: {error}")),
        };
        Self { epoch, workers: Workers::new(rules, settings.patience), settings, stop, large: Mutex::default() }
    }

    /// A copy, which is a worker's own.
    fn copied(&self, content: Content<'_>, until: Instant) -> Result<Vec<u8>, EngineError> {
        match content {
            Content::Bytes(bytes) => {
                let mut copy = empty(bytes.len())?;
                copy.extend_from_slice(bytes);
                Ok(copy)
            }
            Content::File(file) => self.read(file, until),
        }
    }

    fn read(&self, mut file: &File, until: Instant) -> Result<Vec<u8>, EngineError> {
        let size = file.metadata().and_then(|found| file.rewind().map(|()| found.len())).map_err(unread)?;
        let mut bytes = empty(usize::try_from(size).unwrap_or(usize::MAX))?;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(EngineError::Stopped);
            }
            if Instant::now() >= until {
                return Err(late());
            }
            if file.take(READ_BYTES).read_to_end(&mut bytes).map_err(unread)? == 0 {
                return Ok(bytes);
            }
            // Somebody may write to it.
            self.takes(bytes.len() as u64)?;
        }
    }
}

fn unread(source: io::Error) -> EngineError {
    EngineError::Failed(format!("cannot read it: {source}"))
}

fn late() -> EngineError {
    EngineError::Failed("the rules were not matched in time (--scan-time)".to_owned())
}

fn empty(bytes: usize) -> Result<Vec<u8>, EngineError> {
    let mut empty = Vec::new();
    let reserved = empty.try_reserve_exact(bytes);
    reserved.map_err(|_| EngineError::Failed(format!("there is no memory for its {}", Size(bytes as u64))))?;
    Ok(empty)
}

impl Engine for Yara {
    fn name(&self) -> &'static str {
        NAME
    }

    fn id(&self) -> Result<EngineId, EngineError> {
        let epoch = self.epoch.as_ref().map_err(|why| EngineError::Failed(why.clone()))?;
        EngineId::new(NAME, epoch).ok_or_else(|| EngineError::Failed("the epoch is too long".to_owned()))
    }

    fn takes(&self, bytes: u64) -> Result<(), EngineError> {
        let most = self.settings.bytes_max;
        if bytes <= most {
            return Ok(());
        }
        let (bytes, most) = (Size(bytes), Size(most));
        Err(EngineError::Failed(format!("it has {bytes}, and rules are matched against {most} at most (--scan-size)")))
    }

    fn scan(&self, content: Content<'_>) -> Result<Verdict, EngineError> {
        let bytes = match content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(file) => file.metadata().map_err(unread)?.len(),
        };
        self.takes(bytes)?;
        let _turn = (bytes > LARGE).then(|| self.large.lock().unwrap_or_else(PoisonError::into_inner));
        if self.stop.load(Ordering::Relaxed) {
            return Err(EngineError::Stopped);
        }
        let until = Instant::now() + self.settings.patience;
        let matched = self.workers.matched(self.copied(content, until)?, until, &self.stop);
        match matched {
            Ok(names) if names.is_empty() => Ok(Verdict::Clean),
            Ok(names) => Ok(Verdict::infected(&joined(&names, NAME_BYTES_MAX))),
            Err(Unmatched::Late) => Err(late()),
            Err(Unmatched::Stopped) => Err(EngineError::Stopped),
            Err(Unmatched::Full) => Err(EngineError::Failed(
                "too many contents before it were not matched in time, and are at it still".to_owned(),
            )),
            Err(Unmatched::Failed(why)) => Err(EngineError::Failed(why)),
            Err(Unmatched::NoThread(source)) => {
                Err(EngineError::Io { engine: NAME.to_owned(), step: "start a thread", source })
            }
        }
    }
}

/// `A,B`, and `A,+2` where not all have room.
fn joined(names: &[String], bytes_max: usize) -> String {
    let all = names.join(",");
    if all.len() <= bytes_max {
        return all;
    }
    let with = |count: usize| format!("{},+{}", names[..count].join(","), names.len() - count);
    let most = (1..names.len()).rev().map(with).find(|text| text.len() <= bytes_max);
    // A name alone is cut.
    most.unwrap_or_else(|| names[0].clone())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, time::Duration};

    use super::*;
    use crate::{
        id::TrustDomain,
        scan::{
            Judge, Trust, Verdicts,
            judge::Sources,
            yara::{compile::tests::of, workers::tests::SLOW},
        },
    };

    const RULES: &str = "rule Bad { strings: $a = \"bad\" condition: $a }
        rule Worse { strings: $a = \"worse\" nocase condition: #a > 1 }
        private rule Hidden { condition: true }
        rule Program { condition: uint32be(0) == 0x7f454c46 }";

    fn yara(rules: &str, settings: Settings) -> Yara {
        Yara::new(of(&[("a.yar", rules)]).unwrap(), settings, Arc::default())
    }

    fn settings() -> Settings {
        Settings { patience: Duration::from_secs(600), bytes_max: 1 << 20, epoch: None }
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn the_rules_that_match_are_the_verdict() {
        let yara = yara(RULES, settings());
        let found = |name: &str| Verdict::Infected(name.to_owned());
        for (content, verdict) in [
            (&b"a good one"[..], Verdict::Clean),
            (b"a bad one", found("Bad")),
            (b"worse", Verdict::Clean),
            (b"worse and WORSE", found("Worse")),
            (b"bad, worse, and WORSE", found("Bad,Worse")),
            (b"\x7fELF", found("Program")),
            (b"good again", Verdict::Clean),
        ] {
            assert_eq!(yara.scan(Content::Bytes(content)).unwrap(), verdict, "{content:?}");
            assert_eq!(yara.scan(Content::File(&file(content))).unwrap(), verdict, "{content:?}, as a file");
        }
    }

    #[test]
    fn many_ask_at_a_time() {
        let yara = yara(RULES, settings());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let yara = &yara;
                scope.spawn(move || {
                    for round in 0..50 {
                        let is_bad = (thread + round) % 3 == 0;
                        let content = format!("{} {thread} {round}", if is_bad { "bad" } else { "good" });
                        assert_eq!(yara.scan(Content::Bytes(content.as_bytes())).unwrap().is_infected(), is_bad);
                    }
                });
            }
        });
    }

    #[test]
    fn modules_know_programs() {
        let yara =
            yara("import \"elf\" import \"pe\" rule Elf { condition: elf.type == elf.ET_DYN or pe.is_pe }", settings());
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[6], elf[16], elf[18], elf[20], elf[52]) = (1, 3, 62, 1, 64);
        assert!(yara.scan(Content::Bytes(&elf)).unwrap().is_infected());
        elf[16] = 1;
        assert_eq!(yara.scan(Content::Bytes(&elf)).unwrap(), Verdict::Clean);
    }

    #[test]
    fn what_is_too_large_or_late_has_no_verdict() {
        let yara = yara(RULES, settings());
        let why = |scanned: Result<Verdict, EngineError>| match scanned {
            Err(EngineError::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(yara.scan(Content::Bytes(&vec![b'.'; 1 << 20])).is_ok());
        assert!(why(yara.scan(Content::Bytes(&vec![b'.'; (1 << 20) + 1]))).contains("--scan-size"));
        // A hole of a tebibyte is not read.
        let hole = tempfile::tempfile().unwrap();
        hole.set_len(1 << 40).unwrap();
        assert!(why(yara.scan(Content::File(&hole))).contains("at most"));
        let hurried = self::yara(SLOW, Settings { patience: Duration::from_millis(50), ..settings() });
        assert!(why(hurried.scan(Content::Bytes(&[7; 200]))).contains("--scan-time"));
        let stopped = Yara { stop: Arc::new(AtomicBool::new(true)), ..yara };
        assert!(matches!(stopped.scan(Content::Bytes(b"x")), Err(EngineError::Stopped)));
    }

    #[test]
    fn a_verdict_is_of_these_rules_and_of_no_other_engine() {
        let domain = TrustDomain::from_key([1; 32]);
        let store = Verdicts::in_memory(&domain, 100).unwrap();
        let sources = Sources { store: Some(store), peers: None, trust: Trust::nobody(), signer: None, domain };
        let id = |rules: &str, more: Option<&str>| {
            yara(rules, Settings { epoch: more.map(str::to_owned), ..settings() }).id().unwrap()
        };
        let first = id(RULES, None);
        let hash = sources.domain.hash(b"content");
        let judge = Judge::new(sources, first.clone());
        judge.found(&first, hash, Verdict::Clean);
        judge.flush(first.clone());
        let same = id(&format!("/* as before */ {RULES}"), None);
        let changed = [id(&RULES.replace("#a > 1", "#a > 0"), None), id(RULES, Some("2"))];
        let clamd = EngineId::new("clamd", first.epoch()).unwrap();
        for (engine, is_known) in changed.into_iter().chain([clamd]).map(|one| (one, false)).chain([(same, true)]) {
            judge.flush(engine.clone());
            assert_eq!(judge.known_here(&hash).is_some(), is_known, "{engine}");
        }
        assert!(yara(RULES, Settings { epoch: Some("x".repeat(300)), ..settings() }).id().is_err());
    }

    #[test]
    fn names_are_told_as_far_as_there_is_room() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (all, room, expected) in [
            (&["One"][..], 128, "One"),
            (&["One", "Two"], 7, "One,Two"),
            (&["One", "Two", "Three"], 10, "One,Two,+1"),
            (&["One", "Two", "Three"], 9, "One,+2"),
            (&["One", "Two"], 4, "One"),
        ] {
            assert_eq!(joined(&names(all), room), expected);
        }
    }
}
